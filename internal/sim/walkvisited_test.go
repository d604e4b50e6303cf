package sim

// visited are the states that the walk has come to, and with how much ahead of it.
type visited map[state]int8

type state struct {
	digest digest
	mode   mode
}

// mode is what may follow a state beside what is in the state itself: for how many
// beats the next fault may strike, for how many beats all orders are walked; -1 is
// for ever.
type mode struct{ window, orders, struck int8 }

// add says whether a state is new: not walked before, nor walked with as many faults
// or more to come, by all orders or the same ones. What can follow has followed then:
// a fault that changed nothing, or is over and has left no trace, leads nowhere new.
func (v visited) add(d digest, m mode, left int8) bool {
	if got, known := v[state{d, mode{-1, -1, m.struck}}]; known && got >= left {
		return false
	}
	if got, known := v[state{d, m}]; known && got >= left {
		return false
	}
	v[state{d, m}] = left
	return true
}

// mode is that of the place where the walk stands, and how many faults are left.
func (k *walk) mode() (m mode, left int8) {
	m, left = mode{window: -1, orders: -1}, int8(k.budget-k.pos.struck)
	if n := k.orders[k.pos.struck]; n >= 0 {
		m.orders = int8(max(0, n-k.pos.since))
	}
	if k.pos.struck > 0 {
		if left > 0 && k.within >= 0 {
			if m.window = int8(k.within - k.pos.since + 1); m.window <= 0 {
				m.window, left = -1, 0
			}
		}
	}
	if k.plain || k.apart {
		m.struck = int8(k.pos.struck)
	}
	return m, left
}

func (k *walk) isNew(d digest) bool {
	m, left := k.mode()
	return k.visited.add(d, m, left)
}
