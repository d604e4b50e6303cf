package remote

import (
	"bytes"
	"strings"
	"sync"
)

// capture keeps one output of a command, to MaxOutput bytes from the mark on. What is
// before the mark is not the command's. Safe for concurrent use.
type capture struct {
	mark string
	over chan<- struct{} // told once, when there is more; has room for it
	// begun is closed with the mark; nil where nobody waits for it.
	begun chan struct{}

	mu   sync.Mutex
	data []byte
	told bool
	seen bool
}

// maxNoise is how much may come before the mark, and maxEnd the mark at the end.
const (
	maxNoise = 64 << 10
	maxEnd   = 64
)

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if room := MaxOutput + maxNoise - len(c.data); room > 0 {
		c.data = append(c.data, p[:min(len(p), room)]...)
	}
	_, out, marked := c.cut()
	if len(out) > MaxOutput+maxEnd {
		c.tell()
	}
	if marked && c.begun != nil && !c.seen {
		c.seen = true
		close(c.begun)
	}
	return len(p), nil // read on, until the command has ended
}

func (c *capture) tell() {
	if !c.told {
		c.told = true
		c.over <- struct{}{}
	}
}

// cut takes the output apart: the words after the mark, and what follows its line.
func (c *capture) cut() (words []string, out []byte, marked bool) {
	rest := c.data
	if c.mark != "" {
		i := bytes.Index(rest, []byte(c.mark))
		if i < 0 {
			return nil, rest, false
		}
		line, after, ok := bytes.Cut(rest[i+len(c.mark):], []byte("\n"))
		if !ok {
			return nil, nil, false
		}
		words, rest = strings.Fields(string(line)), after
	}
	return words, rest, true
}

// output is what the command wrote, and the words of the first mark's line.
func (c *capture) output() (words []string, out []byte, marked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut()
}

// whole is the output without the mark at its end, false where that is missing.
func (c *capture) whole() ([]byte, bool) {
	_, out, _ := c.output()
	return bytes.CutSuffix(out, []byte(c.mark+"\n"))
}
