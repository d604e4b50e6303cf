package apply

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// screen is what a person sees of a turn: each phase with the time it took, and under
// it what is to be said of a host, never mixed with another's.
type screen struct {
	mu  sync.Mutex
	out io.Writer
	now func() time.Time
}

func (s *screen) begin(title string) func() {
	began := s.now()
	s.write("== %s\n", title)
	return func() { s.write("   %.1f s\n", s.now().Sub(began).Seconds()) }
}

// line is a sentence about one host.
func (s *screen) line(name, format string, args ...any) {
	s.write("%s: %s\n", name, fmt.Sprintf(format, args...))
}

// block is several lines about one, set in.
func (s *screen) block(name, heading, text string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", name, heading)
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		b.WriteString("    " + line)
	}
	s.write("%s", b.String())
}

func (s *screen) write(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.out, clean(fmt.Sprintf(format, args...)))
}

// clean leaves no sign in what a host says that a terminal would obey.
func clean(text string) string {
	return strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && (c < ' ' || c >= 0x7f && c < 0xa0) {
			return '?'
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
}
