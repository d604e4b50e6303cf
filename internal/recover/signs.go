package recover

import (
	"fmt"
	"time"

	"github.com/exadev/regrade/internal/status"
)

// Sign is something that a process on a host keeps renewing through the API, as it was
// watched: it moves as long as the host runs, whatever its kubelet says.
type Sign struct {
	Of SignOf `json:"of"`
	// Still is for how long it was seen not to move, by the clock of who looked: since it
	// was last seen to, or since the first look (safety rule 22).
	Still time.Duration `json:"still"`
	// Moved: it was seen to move.
	Moved bool `json:"moved,omitempty"`
}

// SignOf is whose sign it is.
type SignOf string

// Whose signs there are.
const (
	SignProbe   SignOf = "probe"
	SignDaemon  SignOf = "host-daemon"
	SignKubelet SignOf = "kubelet"
)

// signs are what they are called, and the code of one that moves.
var signs = map[SignOf]struct{ name, code string }{
	SignProbe:   {"probe", CodeProbeBeats},
	SignDaemon:  {"host daemon", CodeDaemonBeats},
	SignKubelet: {"kubelet's Lease", CodeKubeletRenews},
}

// lifeFor is how long a sign must have stood still before it says nothing any more:
// the threshold, and no less than it takes to miss three of what comes every period.
func (p Policy) lifeFor() time.Duration { return max(p.After, 4*p.Period) }

// alive is why a host is not taken for dead whatever anybody else says of it: what runs
// on it was seen to go on, or was not watched for long enough to say that it does not.
func alive(n *Node, o *Observation, p Policy) (reasons []status.Reason) {
	say := func(code, format string, args ...any) {
		reasons = append(reasons, status.Reason{Code: code, Node: n.Name, Sentence: fmt.Sprintf(format, args...)})
	}
	if o.SignsProblem != "" {
		say(CodeSignsNotRead, "whether anything on %s still goes on is not known: %s", n.Name, o.SignsProblem)
		return reasons
	}
	for _, s := range n.Signs {
		word, known := signs[s.Of]
		switch {
		case s.Still >= p.lifeFor():
		case !known:
			say(CodeSignsTooShort, "something on %s, %q, still goes on", n.Name, s.Of)
		case s.Moved:
			say(word.code, "%s's own %s was seen to go on %s ago: the host runs", n.Name, word.name, seconds(s.Still))
		default:
			say(CodeSignsTooShort, "whether %s's own %s goes on is not known yet: it is watched for %s of %s", n.Name, word.name, seconds(s.Still), seconds(p.lifeFor()))
		}
	}
	return reasons
}
