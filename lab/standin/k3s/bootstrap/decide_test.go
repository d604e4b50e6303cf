package bootstrap

import (
	"errors"
	"testing"
)

// k3s facts §14.3, row "WAL dir = initialised; name file; tombstone file; backup rename; join with learner": the
// decision half, the table of §3.2.
func TestStartUpDecisionTable(t *testing.T) {
	for _, tc := range []struct {
		name  string
		facts Facts
		want  Start
		err   error
	}{
		{name: "nothing set is sqlite", want: StartSQLite},
		{name: "cluster-init makes a cluster", facts: Facts{ClusterInit: true}, want: StartNew},
		{name: "server and token join", facts: Facts{ServerURL: true, Token: true}, want: StartJoin},
		{name: "server beats cluster-init", facts: Facts{ServerURL: true, Token: true, ClusterInit: true}, want: StartJoin},
		{name: "server without token is sqlite", facts: Facts{ServerURL: true}, want: StartSQLite},
		{name: "server and cluster-init without token is an error", facts: Facts{ServerURL: true, ClusterInit: true}, err: ErrTokenRequired},
		{name: "a WAL needs no flags", facts: Facts{WAL: true}, want: StartExisting},
		{name: "a WAL ignores flags", facts: Facts{WAL: true, ServerURL: true, Token: true, ClusterInit: true}, want: StartExisting},
		{name: "a tombstone with server and token rejoins", facts: Facts{WAL: true, Tombstone: true, ServerURL: true, Token: true}, want: StartRejoin},
		{name: "a tombstone without server is refused", facts: Facts{WAL: true, Tombstone: true, RefuseTombstone: true}, err: ErrTombstone},
		{name: "a tombstone without server splits before 1.34.4", facts: Facts{WAL: true, Tombstone: true}, want: StartNewAfterTombstone},
		{name: "a tombstone with server but no token splits", facts: Facts{WAL: true, Tombstone: true, ServerURL: true, RefuseTombstone: true}, want: StartNewAfterTombstone},
		{name: "a tombstone without a WAL is no tombstone", facts: Facts{Tombstone: true, ServerURL: true, Token: true, RefuseTombstone: true}, want: StartJoin},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Decide(tc.facts)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("got %q, %v; want %q, %v", got, err, tc.want, tc.err)
			}
		})
	}
}
