package fitness

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Trim leaves out of verdicts what can be spared until they take at most so many
// bytes as JSON: one document carries all of them. What a verdict comes to stays,
// and so do its gravest reasons. Voters are trimmed after the others.
func Trim(vs []Verdict, most int) []Verdict {
	out := slices.Clone(vs)
	for _, votes := range []bool{false, true} {
		for _, less := range []func(*Verdict){withoutDoubles, withoutMeasures, gravest} {
			if size(out) <= most {
				return out
			}
			for i := range out {
				if out[i].Votes == votes {
					less(&out[i])
				}
			}
		}
	}
	return out
}

func size(vs []Verdict) int {
	raw, err := json.Marshal(vs)
	if err != nil {
		return 0
	}
	return len(raw)
}

// withoutDoubles leaves a measure out of a reason that the verdict has already.
func withoutDoubles(v *Verdict) {
	v.Reasons = slices.Clone(v.Reasons)
	for i := range v.Reasons {
		if m := v.Reasons[i].Measure; m != nil && slices.Contains(v.Measures, *m) {
			v.Reasons[i].Measure = nil
		}
	}
}

func withoutMeasures(v *Verdict) { v.Measures = nil }

// most reasons that gravest keeps.
const fewReasons = 3

func gravest(v *Verdict) {
	if n := len(v.Reasons) - fewReasons; n > 0 {
		v.Reasons = append(slices.Clone(v.Reasons[:fewReasons]), Reason{Code: CodeTrimmed, Weight: Note, Sentence: fmt.Sprintf("%s: %d more reasons are left out to keep the document small", v.Node, n)})
	}
}
