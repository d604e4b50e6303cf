package cluster_test

import (
	"testing"
	"time"

	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/fault"
	"github.com/exadev/regrade/lab/writer"
)

// The lab's own parts, on a cluster that has never heard of regrade.
func TestThreeServersAndAnAgentWithoutRegrade(t *testing.T) {
	spec := cluster.Standard()
	spec.WithoutRegrade = true
	c := cluster.Start(t, spec)
	ctx := t.Context()
	watch := c.Lab.Watch()

	w, err := writer.Start(ctx, c, c.Host("n2"), c.Host("n3"))
	if err != nil {
		t.Fatal(err)
	}
	leader, err := c.Leader(ctx, c.Host("n2"))
	if err != nil || leader == "" {
		t.Fatalf("leader %q, %v", leader, err)
	}
	if err := c.MoveLeader(ctx, c.Host("n1")); err != nil {
		t.Fatal(err)
	}
	if leader, err = c.Leader(ctx, c.Host("n3")); err != nil || leader != "n1" {
		t.Fatalf("leader %q, %v", leader, err)
	}

	if err := c.RunRunner(ctx, "job", "n4"); err != nil {
		t.Fatal(err)
	}
	if err := c.Budget(ctx, "guard", "job"); err != nil {
		t.Fatal(err)
	}
	if there, err := c.PodIsThere(ctx, "job"); err != nil || !there {
		t.Fatalf("the pod is there: %v, %v", there, err)
	}
	if err := c.EndPod(ctx, "job"); err != nil {
		t.Fatal(err)
	}

	// A power loss of the leader: writes through the others go on after an election.
	if err := c.Host("n1").Crash(ctx, true); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Members(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Host("n1").Boot(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitAPI(ctx, 2*time.Minute, c.Host("n1")); err != nil {
		t.Fatal(err)
	}
	heal, err := fault.DropPort(ctx, c.Host("n1"), cluster.PeerPort)
	if err != nil {
		t.Fatal(err)
	}
	if err := heal(); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitVoters(ctx, time.Minute, "n1", "n2", "n3"); err != nil {
		t.Fatal(err)
	}

	report, err := w.Stop(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("writer: %s", report)
	if len(report.Lost) > 0 || report.Writes == 0 {
		t.Fatalf("writes %d, lost %v", report.Writes, report.Lost)
	}
	for _, failure := range report.Failures {
		t.Logf("failed: %s", failure)
	}
	watch.Stop()
	if overlaps := watch.Overlaps(); len(overlaps) > 0 {
		t.Fatalf("two k3s processes on one host: %v", overlaps)
	}
	folder := t.TempDir()
	if err := c.Collect(ctx, folder); err != nil {
		t.Fatal(err)
	}
}
