package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Codes of what speaks against a cluster, beside those of packages adopt, decide and swap.
const (
	CodeNotK3s       = "NotK3s"
	CodeNoEtcd       = "NotEtcd"
	CodeFewServers   = "TooFewServers"
	CodeEvenServers  = "EvenServers"
	CodeServersFlags = "FlagsDiffer"
)

// etcdSince is the first k3s whose etcd is surely one that swaps are safe with, 3.6.4
// (k3s-facts §4.3, safety rule 9). Earlier lines may have 3.5.26 or later: a Node does
// not tell.
var etcdSince = [3]int{1, 34, 1}

// against says what speaks against the servers as a whole.
func (d *Draft) against(servers []DraftHost) {
	say := func(code, format string, args ...any) {
		d.Against = append(d.Against, status.Problem{Code: code, Sentence: fmt.Sprintf(format, args...)})
	}
	if len(servers) < 3 {
		say(CodeFewServers, "the cluster has %d servers: with fewer than three there is no vote to spare, and nothing is swapped", len(servers))
	} else if len(servers)%2 == 0 {
		say(CodeEvenServers, "the cluster has %d servers: an even number of voters survives no more failures than one fewer; adding or removing one is a person's to do", len(servers))
	}
	for _, h := range servers {
		if v, ok := version(h.version); ok && slices.Compare(v[:], etcdSince[:]) < 0 {
			say(swap.CodeEtcdVersion, "%s runs k3s %s, whose etcd may be too old: swaps need etcd 3.5.26 or later, or 3.6.4 or later, which k3s v1.34.1 has", h.Name, h.version)
		}
		first := servers[0]
		if h.version != first.version {
			say(swap.CodeK3sVersions, "%s runs k3s %s and %s runs %s: bring them to one version first", first.Name, first.version, h.Name, h.version)
		}
		if first.args == nil || h.args == nil {
			continue
		}
		for _, difference := range k3s.Differences(h.args, first.args, nil) {
			say(CodeServersFlags, "%s and %s run with different flags: %s", h.Name, first.Name, difference)
		}
	}
	for i := range d.Hosts {
		h := &d.Hosts[i]
		if len(servers) > 0 && h.version != servers[0].version {
			h.note("it runs k3s %s, %s runs %s", h.version, servers[0].Name, servers[0].version)
		}
	}
}

// version reads v1.34.2+k3s1.
func version(s string) (v [3]int, ok bool) {
	n, err := fmt.Sscanf(s, "v%d.%d.%d", &v[0], &v[1], &v[2])
	return v, err == nil && n == 3 && strings.Contains(s, "+k3s")
}

func sortedKeys(c k3s.Config) []string { return slices.Sorted(maps.Keys(c)) }
