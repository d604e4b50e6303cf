package hostd_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/obs"
)

// Found by auto_swap on a machine with too much to do: a daemon that no API server
// answered took no order for seven minutes, reported nothing, and logged nothing.
func TestADaemonThatNoAPIServerAnswersLogsItOnce(t *testing.T) {
	var out bytes.Buffer
	log, err := obs.NewLogger(&out, "text", "info")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, "a")
	r.log = log
	r.restart()
	r.apiDown = true
	r.pass()
	if strings.Contains(out.String(), "no API server answers") {
		t.Errorf("one answer that did not come is logged: %s", out.String())
	}
	for range 60 {
		r.pass()
	}
	if n := strings.Count(out.String(), "no API server answers"); n != 1 {
		t.Errorf("logged %d times: %s", n, out.String())
	}
	r.apiDown = false
	for range 5 {
		r.pass()
	}
	if n := strings.Count(out.String(), "an API server answers again"); n != 1 {
		t.Errorf("logged %d times: %s", n, out.String())
	}
}
