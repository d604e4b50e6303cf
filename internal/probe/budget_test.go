package probe

import (
	"testing"
	"time"
)

func TestHowOftenAWindowMayBeWritten(t *testing.T) { // safety rule 29
	const period, most = 15 * time.Second, 400
	for name, tt := range map[string]struct {
		hosts, bytes int
		period       time.Duration
		want         int
	}{
		"one host alone":                            {1, 3 << 10, period, 1},
		"nothing written yet":                       {4, 0, period, 1},
		"three voters and a standby":                {4, 4 * 3 << 10, period, 1},
		"nine hosts":                                {9, 9 * 3 << 10, period, 6},
		"nine hosts with the longest numbers":       {9, 9 * 8 << 10, period, 15},
		"64 hosts":                                  {64, 64 * 3 << 10, period, 26},
		"64 hosts with the longest numbers":         {64, 512 << 10, period, 66},
		"64 hosts at a period of a minute":          {64, 64 * 3 << 10, time.Minute, 6},
		"64 hosts at a period of a second":          {64, 64 * 3 << 10, time.Second, most},
		"a fleet whose heartbeats are the budget":   {1000, 1 << 20, period, most},
		"no host at all, which nobody asks for":     {0, 0, period, 1},
		"a size that makes no sense is taken for 0": {4, -5, period, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := writeEvery(tt.hosts, tt.bytes, tt.period, most)
			if got != tt.want {
				t.Errorf("every %d periods, want %d", got, tt.want)
			}
			if got == most {
				return
			}
			seconds := tt.period.Seconds()
			windows := float64(tt.hosts) * float64(max(tt.bytes, 0)) / (float64(got) * seconds)
			beats := 2 * float64(tt.hosts) * beatBytes / seconds
			if all := windows + beats; all > float64(budget(tt.hosts)) {
				t.Errorf("%.0f bytes a second of %d", all, budget(tt.hosts))
			}
		})
	}
}

func TestTheBudgetIsTheRules(t *testing.T) { // safety rule 29
	for hosts, want := range map[int]int{1: 5 << 10, 9: 5 << 10, 64: 50 << 10, 500: 50 << 10} {
		if got := budget(hosts); got != want {
			t.Errorf("%d hosts: %d bytes a second, want %d", hosts, got, want)
		}
	}
	for n := 9; n < 64; n++ {
		if budget(n+1) <= budget(n) {
			t.Errorf("the budget of %d hosts is no more than that of %d", n+1, n)
		}
	}
}

func TestHostsDoNotWriteInStep(t *testing.T) {
	for _, every := range []int{1, 3, 4, 25, 100} {
		sum, lowest, highest := 0, every, every
		spread := 2*(every/4) + 1
		for i := range spread {
			n := jittered(every, func(int) int { return i })
			sum, lowest, highest = sum+n, min(lowest, n), max(highest, n)
		}
		if sum != every*spread || lowest < 1 || lowest < every-every/4 || highest > every+every/4 {
			t.Errorf("every %d: from %d to %d, in all %d", every, lowest, highest, sum)
		}
	}
}

// A heartbeat vouches for an entry until it is a window ahead of it: a probe that
// writes less often than that is silent to the controller though it goes on.
func TestNoProbeIsSilentBetweenTwoWrites(t *testing.T) {
	for _, size := range []int{5, 20, 100, 1000} {
		for _, hosts := range []int{4, 9, 64, 150, 1000} {
			for _, period := range []time.Duration{time.Second, 2 * time.Second, 15 * time.Second} {
				p := &Probe{s: Settings{Size: size, Period: period}, seen: view{hosts: hosts}, mapBytes: min(hosts*(3<<10)*size/100, 1<<20)}
				most := 0
				for i := range 2*(p.every()/4) + 1 {
					most = max(most, jittered(p.every(), func(int) int { return i }))
				}
				if most > size {
					t.Errorf("%d hosts, a window of %d, a period of %s: written every %d periods at most, vouched for during %d", hosts, size, period, most, size)
				}
			}
		}
	}
}
