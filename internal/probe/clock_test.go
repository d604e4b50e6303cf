package probe

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock of a host was a day ahead and has been set right while its probe was
// away: the disk is measured again within a window all the same.
func TestADiskIsMeasuredWithinAWindowThoughTheClockWasSetBack(t *testing.T) {
	c, m := newMaps(3, 1), newMachine(1)
	live(t, c, "n4", m, func(_ *Probe, pass func(int)) { pass(120) })
	w := c.entry(t, "n4")
	for i := range w.Samples {
		w.Samples[i].At = w.Samples[i].At.Add(24 * time.Hour)
	}
	raw, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c.data["n4"] = string(raw)
		m := newMachine(2)
		p := newProbe(c, "n4", m)
		for range 120 {
			p.Pass(t.Context())
			time.Sleep(period)
		}
		if m.fsyncs == 0 {
			t.Errorf("not measured in 120 periods; the next time is in %s", time.Until(p.disk.next))
		}
	})
}
