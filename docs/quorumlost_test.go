package docs_test

import (
	"os"
	"strings"
	"testing"
)

// What a join has begun outlives a reboot: a server starts by it on a datastore that is
// put back (safety rule 18). Whoever forgets a step-down by hand forgets a join as well.
func TestQuorumLostForgetsAJoinThatWasBegun(t *testing.T) {
	raw, err := os.ReadFile("quorum-lost.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for block := range strings.SplitSeq(string(raw), "\n\n") {
		for _, dir := range []string{"/etc/github-runner/", "fleet-role.d/"} {
			if !strings.Contains(block, "rm -f "+dir+"leaving") {
				continue
			}
			if blocks++; !strings.Contains(block, " "+dir+"joining ") {
				t.Errorf("forgets %sleaving and not joining:\n%s", dir, block)
			}
		}
	}
	if blocks != 4 {
		t.Errorf("%d places, want 4", blocks)
	}
}
