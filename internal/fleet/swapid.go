package fleet

import (
	"fmt"
	"strings"
	"time"
)

const swapStamp = "20060102T150405Z"

// SwapID names a swap: <UTC %Y%m%dT%H%M%SZ>-<out>-<in> (R-D1-02). Node names
// may hold dashes, so an id alone does not tell OUT from IN; the record does.
type SwapID string

// NewSwapID makes the id of a swap that starts at now (the API server's Date).
func NewSwapID(now time.Time, out, in string) SwapID {
	return SwapID(now.UTC().Format(swapStamp) + "-" + out + "-" + in)
}

// ParseSwapID checks the form of an id: a UTC stamp and two or more non-empty
// DNS-1123 parts, at most 253+1+253 characters behind it.
func ParseSwapID(s string) (SwapID, error) {
	stamp, rest, ok := strings.Cut(s, "-")
	if !ok {
		return "", fmt.Errorf("swap id %q: want <stamp>-<out>-<in>", s)
	}
	if _, err := time.Parse(swapStamp, stamp); err != nil {
		return "", fmt.Errorf("swap id %q: stamp is not like %s", s, swapStamp)
	}
	if len(rest) > 2*253+1 {
		return "", fmt.Errorf("swap id: %d characters of node names are too many", len(rest))
	}
	if a, b, ok := strings.Cut(rest, "-"); !ok || a == "" || b == "" {
		return "", fmt.Errorf("swap id %q: want two node names behind the stamp", s)
	}
	for _, c := range rest {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			return "", fmt.Errorf("swap id %q: %q cannot stand in a node name", s, c)
		}
	}
	if strings.HasPrefix(rest, "-") || strings.HasSuffix(rest, "-") {
		return "", fmt.Errorf("swap id %q: a node name is empty", s)
	}
	return SwapID(s), nil
}

// Started is the time in the id, zero when the id is malformed.
func (id SwapID) Started() time.Time {
	stamp, _, _ := strings.Cut(string(id), "-")
	t, err := time.Parse(swapStamp, stamp)
	if err != nil {
		return time.Time{}
	}
	return t
}

// Is says whether the id is the one of a swap of these two nodes.
func (id SwapID) Is(out, in string) bool {
	_, rest, ok := strings.Cut(string(id), "-")
	return ok && rest == out+"-"+in
}
