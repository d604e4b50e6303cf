package heartbeat

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/status"
)

// Observation is what one tick has read. An error in words stands for a part that
// nobody knows.
type Observation struct {
	Nodes        []Node
	NodesProblem string

	// Status is the controller's, nil where there is none: nobody has installed one,
	// or it has written nothing yet.
	Status        *status.Status
	StatusProblem string

	// Runners is what is read for the checks of GitHub's runners; nil when none of
	// them was asked for.
	Runners *Runners
}

// Node is what a Node says.
type Node struct {
	Name   string
	Labels map[string]string
	Ready  bool
	// Pressure are the types of its pressure conditions that hold.
	Pressure    []string
	EtcdIsVoter string
	// Swap: it carries the annotation of a swap.
	Swap bool
	// Silent: its host daemon has not written its heartbeat for a StatusLife, as this
	// process saw it.
	Silent bool
}

// Wanted is what is asked about GitHub's runners.
type Wanted struct {
	// Namespace of the runner controller and its listeners.
	Namespace        string
	Controller, Pods bool
	ScaleSets        []string // namespace/release
}

// Any says whether anything is asked.
func (w Wanted) Any() bool { return w.Controller || w.Pods || len(w.ScaleSets) > 0 }

// Runners is what Actions Runner Controller says of itself. A problem in words is
// an answer that nobody has.
type Runners struct {
	// Controllers are ready replicas of its Deployment; ControllerFound: there is one.
	ControllerFound   bool
	Controllers       int
	ControllerProblem string

	// ScaleSets are those that are expected, in that order.
	ScaleSets []ScaleSet

	// Unschedulable are runner pods that no node takes, and since when.
	Unschedulable []Pod
	PodsProblem   string
}

// ScaleSet is one expected scale set.
type ScaleSet struct {
	Name string // namespace/release
	// Found: its AutoscalingRunnerSet exists; Listening: a listener pod of it runs.
	Found, Listening bool
	Problem          string
}

// Pod is a runner pod that no node takes.
type Pod struct {
	Name  string // namespace/name
	Since time.Time
}

// Names of the checks that may be asked for.
const (
	CheckAPI        = "api"         // the API answers
	CheckNodes      = "nodes"       // some Node is Ready
	CheckVoters     = "voters"      // as many voters as wanted, or one more in a swap within its bound
	CheckController = "controller"  // regrade's controller has published lately
	CheckRunners    = "runners"     // GitHub's runner controller has a ready replica
	CheckScaleSets  = "scale-sets"  // each expected scale set exists and listens
	CheckRunnerPods = "runner-pods" // no runner pod has been unschedulable for too long
)

// checkStatus is not asked for: a status that is there and cannot be read makes a
// fleet one that nobody vouches for.
const checkStatus = "status"

// Checks are all that may be asked for.
func Checks() []string {
	return []string{CheckAPI, CheckNodes, CheckVoters, CheckController, CheckRunners, CheckScaleSets, CheckRunnerPods}
}

// DefaultChecks are those of a fleet that runs no GitHub runners.
func DefaultChecks() []string { return []string{CheckAPI, CheckNodes, CheckVoters} }

// ParseChecks reads a list with commas between. An empty one is refused: a fleet
// that nothing is asked of is always vouched for.
func ParseChecks(list string) ([]string, error) {
	var checks []string
	for c := range strings.SplitSeq(list, ",") {
		switch c = strings.TrimSpace(c); {
		case c == "":
		case !slices.Contains(Checks(), c):
			return nil, fmt.Errorf("check %q: want some of %s", c, strings.Join(Checks(), ", "))
		case slices.Contains(checks, c):
			return nil, fmt.Errorf("check %q is there twice", c)
		default:
			checks = append(checks, c)
		}
	}
	if len(checks) == 0 {
		return nil, fmt.Errorf("no check: want some of %s", strings.Join(Checks(), ", "))
	}
	return checks, nil
}

// ParseScaleSets reads a list of namespace/release with white space between.
func ParseScaleSets(list string) ([]string, error) {
	var sets []string
	for s := range strings.FieldsSeq(list) {
		namespace, release, ok := strings.Cut(s, "/")
		if !ok || fleet.CheckNamespace(namespace) != nil || fleet.CheckName(release) != nil {
			return nil, fmt.Errorf("scale set %q: want namespace/release", s)
		}
		if slices.Contains(sets, s) {
			return nil, fmt.Errorf("scale set %q is there twice", s)
		}
		sets = append(sets, s)
	}
	return sets, nil
}
