package fitness

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever numbers are written are read, and nothing is left over.
func TestNumbersAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type number struct {
			c column
			v uint64
		}
		var all []number
		for range rapid.IntRange(0, 300).Draw(t, "numbers") {
			v := rapid.Uint64().Draw(t, "number") >> rapid.IntRange(0, 63).Draw(t, "less")
			all = append(all, number{column(rapid.IntRange(0, int(columns)-1).Draw(t, "column")), v})
		}
		p := newPacker()
		for _, n := range all {
			p.uint(n.c, n.v)
		}
		raw := p.end()
		u := newUnpacker(raw)
		for i, n := range all {
			if v := u.uint(n.c); v != n.v || u.fault != "" {
				t.Fatalf("number %d is %d, want %d (%s)", i, v, n.v, u.fault)
			}
		}
		if u.at != len(raw) {
			t.Fatalf("%d of %d bytes were read", u.at, len(raw))
		}
	})
}
