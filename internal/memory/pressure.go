package memory

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/exadev/regrade/internal/level"
)

// ParsePressure reads the two lines of a PSI file, of the machine or of a cgroup:
//
//	some avg10=0.00 avg60=0.00 avg300=0.00 total=0
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=0
//
// procfs reads the machine's only, and a second parser would be a second rule.
func ParsePressure(text string) (level.Pressure, error) {
	var p level.Pressure
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		var ten, sixty *float64
		switch kind {
		case "some":
			ten, sixty = &p.SomeAvg10, &p.SomeAvg60
		case "full":
			ten, sixty = &p.FullAvg10, &p.FullAvg60
		default:
			continue // what later kernels add
		}
		if seen[kind] {
			return level.Pressure{}, fmt.Errorf("two lines of %q", kind)
		}
		seen[kind] = true
		for key, to := range map[string]*float64{"avg10": ten, "avg60": sixty} {
			v, err := percent(rest, key)
			if err != nil {
				return level.Pressure{}, fmt.Errorf("%s: %w", kind, err)
			}
			*to = v
		}
	}
	if !seen["some"] || !seen["full"] {
		return level.Pressure{}, fmt.Errorf("no lines of some and full")
	}
	return p, nil
}

func percent(line, key string) (float64, error) {
	for field := range strings.FieldsSeq(line) {
		text, ok := strings.CutPrefix(field, key+"=")
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0 && v <= 100) { // not a NaN either
			return 0, fmt.Errorf("%s of %q: want 0 to 100", key, text)
		}
		return v, nil
	}
	return 0, fmt.Errorf("no %s", key)
}
