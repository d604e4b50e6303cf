package level

import "testing"

// R-112-04, R-185-17, R-185-39: each limit held to its boundary.
func TestMemoryIsOver(t *testing.T) {
	l := Limits{SomeAvg60: 20, FullAvg60: 5, AvailableFloorBytes: 256 << 20}
	const all = 1 << 30
	calm := &Pressure{SomeAvg10: 99, FullAvg10: 99} // ten seconds are not judged
	for name, tt := range map[string]struct {
		r       Reading
		l       Limits
		over    []string
		missing []string
	}{
		"a calm host":                             {Reading{calm, all, all}, l, nil, nil},
		"some wait just under the limit":          {Reading{&Pressure{SomeAvg60: 19.99}, all, all}, l, nil, nil},
		"some wait at the limit":                  {Reading{&Pressure{SomeAvg60: 20}, all, all}, l, []string{CodePressureSome}, nil},
		"all wait just under the limit":           {Reading{&Pressure{FullAvg60: 4.99}, all, all}, l, nil, nil},
		"all wait at the limit":                   {Reading{&Pressure{FullAvg60: 5}, all, all}, l, []string{CodePressureFull}, nil},
		"the floor itself is enough":              {Reading{calm, 256 << 20, all}, l, nil, nil},
		"a byte under the floor":                  {Reading{calm, 256<<20 - 1, all}, l, []string{CodeAvailable}, nil},
		"everything at once":                      {Reading{&Pressure{SomeAvg60: 90, FullAvg60: 80}, 0, all}, l, []string{CodePressureSome, CodePressureFull, CodeAvailable}, nil},
		"a kernel without PSI":                    {Reading{nil, all, all}, l, nil, []string{CodeNoPressure}},
		"a kernel without PSI and without memory": {Reading{nil, 1, all}, l, []string{CodeAvailable}, []string{CodeNoPressure}},
		"no meminfo is not zero":                  {Reading{calm, 0, 0}, l, nil, []string{CodeNoAvailable}},
		"a limit of zero is not judged":           {Reading{nil, 0, 0}, Limits{}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			over, rs := Over(tt.r, tt.l)
			if over != (len(tt.over) > 0) || !same(rs, tt.over) {
				t.Errorf("over %v for %v, want %v", over, rs, tt.over)
			}
			if m := Missing(tt.r, tt.l); !same(m, tt.missing) {
				t.Errorf("missing %v, want %v", m, tt.missing)
			}
		})
	}
}

func same(rs []Reason, codes []string) bool {
	if len(rs) != len(codes) {
		return false
	}
	for i, r := range rs {
		if r.Code != codes[i] || r.Sentence == "" {
			return false
		}
	}
	return true
}
