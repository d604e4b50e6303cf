package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/controller/clustertest"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// waiting follows a request of n1 for n4 in a bubble and gives the exit status,
// what was printed, and how long it took.
func waiting(t *testing.T, timeout time.Duration, c *clustertest.Cluster) (code int, out, errs string, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var o, x bytes.Buffer
		a := asker{
			e: env.Env{Out: &o, Err: &x}, d: Deps{Look: time.Second}, cluster: c, pair: swap.Pair{Out: "n1", In: "n4"}, out: output{format: "text"},
		}
		started := time.Now()
		err := a.follow(t.Context(), Answer{Out: "n1", In: "n4", Accepted: true}, "", started, timeout)
		code, _ = env.Status(err)
		out, errs, took = o.String(), x.String(), time.Since(started)
	})
	return code, out, errs, took
}

func asked(statusText string) *clustertest.Cluster {
	raw, err := json.Marshal(status.Request{Protocol: status.Protocol, Out: "n1", In: "n4", At: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)})
	if err != nil {
		panic(err)
	}
	data := map[string]string{fleet.KeyRequest: string(raw)}
	if statusText != "" {
		data[fleet.KeyStatus] = statusText
	}
	return clustertest.New(clustertest.State{Maps: map[string]observe.ConfigMap{fleet.ConfigMapStatus: {Data: data}}})
}

const stale = `{"protocol":1,"at":"2026-11-29T11:00:00Z","controller":"dead","target":3,"swap":null,"last_swap":null,"request":null,"next":{"state":"idle","code":"NothingToDo","sentence":"no swap begins"},"hosts":[]}`

// It must neither wait for ever nor say "refused" of a swap that has begun.
func TestAWaitForARequestThatNoControllerTakesUpEnds(t *testing.T) { // safety rule 25
	for name, text := range map[string]string{"there was never a status": "", "the status stands still": stale} {
		t.Run(name, func(t *testing.T) {
			code, out, errs, took := waiting(t, 0, asked(text))
			if code != fleet.ExitFailed || took < status.RequestLife || took > status.RequestLife+2*time.Minute {
				t.Errorf("exit status %d after %s", code, took)
			}
			if !strings.Contains(errs, "no controller took the request up within 10m0s") || !strings.Contains(errs, CodeNoController) {
				t.Errorf("the cause is not named: %s", errs)
			}
			if strings.Count(out, "is the Deployment fleet-role running?") != 1 {
				t.Errorf("not said meanwhile, once: %s", out)
			}
		})
	}
	t.Run("the swap has begun and its controller fell", func(t *testing.T) {
		c := asked(stale)
		c.Edit(func(s *clustertest.State) {
			s.Lease.Exists, s.Lease.Holder, s.Lease.Annotations = true, fleet.LeaseHolder, map[string]string{fleet.LeaseSwapID: "20261129T120000Z-n1-n4"}
		})
		if code, _, errs, _ := waiting(t, 0, c); code != fleet.ExitNotYet || !strings.Contains(errs, "has begun and no controller") {
			t.Errorf("exit status %d: %s", code, errs)
		}
	})
	t.Run("the credentials are taken away meanwhile", func(t *testing.T) {
		c := asked(stale)
		c.Hook = func(call string) error {
			if strings.HasPrefix(call, "ConfigMap") {
				return apierrors.NewUnauthorized("expired")
			}
			return nil
		}
		code, _, errs, took := waiting(t, 0, c)
		if code != fleet.ExitNotYet || took > time.Minute || !strings.Contains(errs, "does not accept these credentials (401)") {
			t.Errorf("exit status %d after %s: %s", code, took, errs)
		}
	})
	t.Run("the Lease cannot be read", func(t *testing.T) {
		c := asked("")
		c.Hook = func(call string) error {
			if strings.HasPrefix(call, "Lease") {
				return errors.New("no quorum")
			}
			return nil
		}
		if code, _, errs, _ := waiting(t, 0, c); code != fleet.ExitNotYet || !strings.Contains(errs, "no quorum") {
			t.Errorf("exit status %d: %s", code, errs)
		}
	})
	t.Run("with a timeout before that", func(t *testing.T) {
		if code, _, errs, took := waiting(t, 5*time.Minute, asked("")); code != fleet.ExitNotYet || took > 6*time.Minute || strings.Contains(errs, "the controller goes on") {
			t.Errorf("exit status %d after %s: %s", code, took, errs)
		}
	})
}

// A controller that publishes holds the request for as long as a gate is shut.
func TestAWaitGoesOnWhileAControllerPublishes(t *testing.T) {
	c := asked("")
	n := 0
	c.Hook = func(call string) error {
		if n++; n%30 == 0 {
			go c.Edit(func(s *clustertest.State) {
				s.Maps[fleet.ConfigMapStatus].Data[fleet.KeyStatus] = strings.Replace(stale, "11:00:00", time.Now().UTC().Format(time.TimeOnly), 1)
			})
		}
		return nil
	}
	if code, out, errs, took := waiting(t, time.Hour, c); code != fleet.ExitNotYet || took < time.Hour || !strings.Contains(errs, "the controller goes on") || strings.Contains(out, "Deployment") {
		t.Errorf("exit status %d after %s: %s %s", code, took, out, errs)
	}
}

// What keeps a loop from reading is printed once for each change of it.
func TestAnErrorOfALoopIsPrintedOncePerChange(t *testing.T) {
	c := asked(stale)
	reads := 0
	c.Hook = func(string) error {
		reads++
		switch {
		case reads <= 3:
			return errors.New("no quorum")
		case reads <= 5:
			return errors.New("no route")
		case reads == 8:
			return errors.New("no route")
		}
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		var out, errs bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := showStatus(ctx, c, env.Env{Out: &out, Err: &errs, Getenv: func(string) string { return "" }}, output{format: "text"}, true, time.Second)
		if err != nil || reads < 15 {
			t.Errorf("the watch ended after %d reads: %v", reads, err)
		}
		if strings.Count(errs.String(), "no quorum") != 1 || strings.Count(errs.String(), "no route") != 2 {
			t.Errorf("%s", errs.String())
		}
		if strings.Count(out.String(), "no swap begins") != 1 {
			t.Errorf("%s", out.String())
		}
	})
}
