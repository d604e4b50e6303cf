package sim

// Gate is asked before each call of a process, and may keep it for as long as it
// likes: so a process stops between what it has read and what it does with it.
// An error is given to the caller in place of an answer.
type Gate func(what string) error

func (g Gate) pass(what string) error {
	if g == nil {
		return nil
	}
	return g(what)
}

// Through puts a gate before the controller's port.
func (c *Cluster) Through(g Gate) *Cluster { c.gate = g; return c }

// Through puts a gate before the platform port.
func (m *Machine) Through(g Gate) *Machine { m.gate = g; return m }

// Through puts a gate before the daemon's API port.
func (a *HostAPI) Through(g Gate) *HostAPI { a.m.gate = g; return a }

// Through puts a gate before the daemon's etcd port.
func (e *HostEtcd) Through(g Gate) *HostEtcd { e.m.gate = g; return e }
