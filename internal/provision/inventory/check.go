package inventory

import (
	"github.com/exadev/regrade/internal/decide"
	"github.com/exadev/regrade/internal/status"
)

// Check says what speaks against a target with this fleet, by the controller's own rule
// (R-185-31, R-185-33): the same function, so that nothing is installed that would then
// do nothing. That every server has an etcd datastore is seen on the host itself
// (R-185-32, package setup).
func Check(f Fleet, target int) []status.Problem {
	eligible := 0
	for _, h := range f.Hosts {
		if h.Eligible {
			eligible++
		}
	}
	var out []status.Problem
	for _, r := range decide.CheckTarget(target, eligible, f.MaxServers) {
		out = append(out, status.Problem{Code: r.Code, Sentence: r.Sentence})
	}
	return out
}
