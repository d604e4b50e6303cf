// Package balancer is k3s's client load balancer: a TCP proxy on loopback that remembers servers in a state file and
// fails over between them (k3s facts §10.2).
package balancer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
)

// state is a server's standing. Higher is tried first.
type state int

const (
	failed state = iota
	standby
	unchecked
	recovering
	healthy
	preferred
	active
)

// pool orders servers. It is pure; Balancer guards it.
type pool struct {
	def     string
	servers map[string]state
}

func newPool(def string, saved []string) *pool {
	p := &pool{def: def, servers: map[string]state{}}
	for _, s := range saved {
		p.servers[s] = unchecked
	}
	if _, listed := p.servers[def]; !listed {
		if len(saved) > 0 {
			p.servers[def] = standby
		} else {
			p.servers[def] = unchecked
		}
	}
	return p
}

// set replaces the list. An empty list is ignored. The default stays as a standby when it is not listed. It returns
// the servers that were dropped.
func (p *pool) set(list []string) (dropped []string) {
	if len(list) == 0 {
		return nil
	}
	for s := range p.servers {
		if !slices.Contains(list, s) && s != p.def {
			delete(p.servers, s)
			dropped = append(dropped, s)
		}
	}
	for _, s := range list {
		if st, ok := p.servers[s]; !ok || st == standby {
			p.servers[s] = unchecked
		}
	}
	if !slices.Contains(list, p.def) {
		if st := p.servers[p.def]; st != failed {
			p.servers[p.def] = standby
		}
	}
	return dropped
}

// order is the servers to try, best first; equal ones by name.
func (p *pool) order() []string {
	out := make([]string, 0, len(p.servers))
	for s := range p.servers {
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := p.servers[out[i]], p.servers[out[j]]
		if a != b {
			return a > b
		}
		return out[i] < out[j]
	})
	return out
}

func (p *pool) mark(server string, st state) {
	if _, ok := p.servers[server]; !ok {
		return
	}
	if st == active {
		for s, old := range p.servers {
			if old == active {
				p.servers[s] = preferred
			}
		}
	}
	p.servers[server] = st
}

// listed is the servers without a mere standby, sorted: what the state file keeps.
func (p *pool) listed() []string {
	var out []string
	for s, st := range p.servers {
		if st != standby {
			out = append(out, s)
		}
	}
	sort.Strings(out)
	return out
}

// saved is the state file's content.
type saved struct {
	ServerURL       string   `json:"ServerURL"`
	ServerAddresses []string `json:"ServerAddresses"`
}

// load gives the remembered servers, but only if they were remembered for the same server URL.
func load(file, serverURL string) ([]string, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load balancer state: %w", err)
	}
	var s saved
	if err := json.Unmarshal(b, &s); err != nil || s.ServerURL != serverURL {
		return nil, nil
	}
	return s.ServerAddresses, nil
}

func store(file string, s saved) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("load balancer state: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("load balancer state: %w", err)
	}
	if err := os.WriteFile(file, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("load balancer state: %w", err)
	}
	return nil
}
