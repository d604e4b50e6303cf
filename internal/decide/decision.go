package decide

import (
	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Decision is the swap to make, or why none.
type Decision struct {
	// Pair is set when nothing speaks against it.
	Pair *swap.Pair `json:"pair,omitempty"`
	// Would is the pair that the ranking comes to, whether or not something holds
	// it back.
	Would    *swap.Pair `json:"would,omitempty"`
	Code     string     `json:"code"`
	Sentence string     `json:"sentence"`
	// Reasons are everything that speaks against a swap now.
	Reasons []status.Reason `json:"reasons,omitempty"`
	// Voters are those that could go, the first one first; Candidates those that
	// could come, the best first, then those that may not and why.
	Voters     []Ranked `json:"voters,omitempty"`
	Candidates []Ranked `json:"candidates,omitempty"`
}

// Ranked is a host's place with the numbers that give it.
type Ranked struct {
	Node string `json:"node"`
	// BadLinks, Seen and Margin are of its verdict; a candidate's margin is that
	// against the voters that would remain.
	BadLinks int              `json:"bad_links,omitempty"`
	Seen     int              `json:"seen,omitempty"`
	Margin   float64          `json:"margin"`
	Link     fitness.LinkKind `json:"link,omitempty"`
	// Reasons: of a voter why it is unfit, of a candidate why it may not come.
	Reasons []status.Reason `json:"reasons,omitempty"`
}

// Codes of a decision.
const (
	CodeSwap         = "SwapWanted"
	CodeNothing      = "NothingUnfit"
	CodeCommonCause  = "CommonCauseLikely"
	CodeOutBarred    = "OutgoingMayNotGo"
	CodeNoCandidate  = "NoCandidate"
	CodeHeld         = "SwapHeld"
	CodeNoneEligible = "NoneEligible"
)

// Codes of reasons against a swap, beside those of verdicts and gates.
const (
	CodePaused     = "Paused"
	CodeCooldown   = "Cooldown"
	CodeEnough     = "EnoughForToday"
	CodeDwell      = "SwappedOutLately"
	CodeFailed     = "FailedAsNewcomer"
	CodeBackedOff  = "PairBackedOff"
	CodeZone       = "ZoneSpread"
	CodeNoVerdict  = "NoVerdict"
	CodeNotSettled = "MemberAlready"
	CodeNotLasting = "NotLastingYet"
	CodeLost       = "HistoryLost"
)
