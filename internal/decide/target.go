package decide

import (
	"fmt"

	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Codes of a target that is refused, beside swap.CodeTarget.
const (
	CodeFewEligible = "TooFewEligible"
	CodeNoHeadroom  = "NoHeadroom"
)

// CheckTarget holds the wanted number of voters to what makes swaps possible:
// odd and three or more, with a place of headroom below the most servers allowed
// for the fourth voter of a swap (R-185-31), and no more than the eligible hosts
// once any is marked (R-185-33). With none marked regrade only reports, and that
// is no refusal. maxServers of zero is no bound. The installer asks the same
// function before it changes anything.
func CheckTarget(target, eligible, maxServers int) []status.Reason {
	var rs []status.Reason
	say := func(code, format string, args ...any) {
		rs = append(rs, status.Reason{Code: code, Sentence: fmt.Sprintf(format, args...)})
	}
	if target < 3 || target%2 == 0 {
		say(swap.CodeTarget, "the target of %d voters is not an odd number of three or more", target)
	}
	if maxServers > 0 && target >= maxServers {
		say(CodeNoHeadroom, "a swap of %d voters needs a place for one more for a while, and at most %d servers are allowed", target, maxServers)
	}
	if eligible > 0 && eligible < target {
		say(CodeFewEligible, "%d hosts are marked eligible, fewer than the target of %d voters", eligible, target)
	}
	return rs
}
