package web

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/status"
)

// described are the metrics of the fleet with their labels.
var described = catalogue{}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return described.desc("regrade_"+name, help, labels...)
}

// Metrics are the controller's metrics by name, each with its labels, beside
// those that every process has.
func Metrics() map[string][]string {
	all := maps.Clone(described)
	for name, labels := range map[string][]string{
		namePasses: {"result"}, nameActions: {"action"}, nameSwaps: {"outcome", "manual"}, nameSeconds: {"outcome"},
		nameInfo: {"version"}, nameRequests: {},
	} {
		all[name] = labels
	}
	return all
}

var (
	descAt       = desc("status_timestamp_seconds", "API server's Date of the last pass that saw the fleet.")
	descTarget   = desc("voters_target", "Voters the fleet shall have.")
	descVoters   = desc("voters", "Voters that the member lists name.")
	descEven     = desc("voters_even_since_timestamp_seconds", "Since when the number of voters is even; absent while it is odd.")
	descDry      = desc("dry_run", "1 while automatic swaps are reported only.")
	descPaused   = desc("paused", "1 while a person has paused the fleet.")
	descCool     = desc("cooldown_until_timestamp_seconds", "No automatic swap before.")
	descOwed     = desc("cleanup_owed", "Hosts whose clean-up is owed.")
	descStep     = desc("swap_step", "1 for the state that the swap under way is in.", "id", "out", "in", "step")
	descSince    = desc("swap_step_since_timestamp_seconds", "Since when the swap under way is in its state.")
	descDeadline = desc("swap_deadline_timestamp_seconds", "When the swap's present state gives up.")
	descWait     = desc("gate_shut", "1 for each gate or wait that holds what is next.", "code", "node")
	descEnded    = desc("last_swap_timestamp_seconds", "When the last swap ended, by outcome.", "outcome")
	descReady    = desc("host_ready", "1 while the Node is Ready.", "node")
	descVoter    = desc("host_voter", "1 while the host votes.", "node")
	descFresh    = desc("host_report_fresh", "1 while the host daemon's report holds.", "node")
	descVerdict  = desc("host_verdict", "1 for the verdict that holds, 0 for the two others.", "node", "verdict")
	descMargin   = desc("host_margin_ratio", "The worst reading of a host as a share of its limit.", "node")
	descBadLinks = desc("host_bad_links", "On how many bad links to other voters a voter is.", "node")
	descSamples  = desc("host_window_samples", "Samples in a host's window.", "node")
	descLower    = desc("reading_lower", "A reading that was judged, its lower edge: seconds, a ratio or bytes, as its kind says.", "node", "kind", "peer")
	descUpper    = desc("reading_upper", "The same, its upper edge; absent where a histogram has none.", "node", "kind", "peer")
	descLimit    = desc("reading_limit", "What the reading is held to.", "node", "kind", "peer")
	descWould    = desc("swap_wanted", "1 for the swap that the verdicts ask for, whether or not something holds it.", "out", "in")
	descHeld     = desc("swap_held", "1 for each reason why the verdicts ask for no swap now.", "code", "node")
	descEligible = desc("host_eligible", "1 while the host is labelled eligible.", "node")
)

// fleetOf collects what the last status says.
type fleetOf struct{ c *Controller }

// Describe implements prometheus.Collector. It is unchecked: what a status does
// not say has no series.
func (f fleetOf) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (f fleetOf) Collect(ch chan<- prometheus.Metric) {
	f.c.mu.Lock()
	s := f.c.status
	f.c.mu.Unlock()
	if s != nil {
		collect(s, func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
		})
	}
}

type gauge func(d *prometheus.Desc, v float64, labels ...string)

func collect(s *status.Status, set gauge) {
	set(descAt, float64(s.At.Unix()))
	set(descTarget, float64(s.Target))
	set(descDry, one(s.DryRun))
	set(descPaused, one(s.Pause != nil))
	if !s.CooldownUntil.IsZero() {
		set(descCool, float64(s.CooldownUntil.Unix()))
	}
	if !s.EvenSince.IsZero() {
		set(descEven, float64(s.EvenSince.Unix()))
	}
	set(descOwed, float64(len(s.Pending)))
	if w := s.Swap; w != nil {
		set(descStep, 1, string(w.ID), w.Out, w.In, w.Step)
		set(descSince, float64(w.StepSince.Unix()))
		if !w.Deadline.IsZero() {
			set(descDeadline, float64(w.Deadline.Unix()))
		}
	}
	waits := map[[2]string]bool{}
	for _, w := range s.Next.Waits {
		if k := [2]string{w.Code, w.Node}; !waits[k] {
			waits[k] = true // two reasons of one code and node are one series
			set(descWait, 1, w.Code, w.Node)
		}
	}
	if l := s.LastSwap; l != nil {
		set(descEnded, float64(l.EndedAt.Unix()), string(l.Outcome))
	}
	voters := 0
	for _, h := range s.Hosts {
		set(descReady, one(h.Ready), h.Name)
		set(descVoter, one(h.Voter), h.Name)
		set(descFresh, one(h.Fresh), h.Name)
		set(descEligible, one(h.Eligible), h.Name)
		if h.Voter {
			voters++
		}
	}
	set(descVoters, float64(voters))
	for _, v := range s.Verdicts {
		for _, f := range []fitness.Fitness{fitness.Fit, fitness.Unfit, fitness.Unknown} {
			set(descVerdict, one(v.Fitness == f), v.Node, string(f))
		}
		set(descMargin, v.Margin, v.Node)
		set(descBadLinks, float64(v.BadLinks), v.Node)
		set(descSamples, float64(v.Samples), v.Node)
		seen := map[[2]string]bool{}
		for _, m := range v.Measures {
			kind := string(m.Kind)
			if k := [2]string{kind, m.Peer}; seen[k] {
				continue
			} else {
				seen[k] = true
			}
			set(descLower, m.Lower, v.Node, kind, m.Peer)
			if !m.Open {
				set(descUpper, m.Upper, v.Node, kind, m.Peer)
			}
			set(descLimit, m.Limit, v.Node, kind, m.Peer)
		}
	}
	if a := s.Automatic; a != nil {
		if a.Out != "" {
			set(descWould, 1, a.Out, a.In)
		}
		held := map[[2]string]bool{}
		for _, r := range a.Reasons {
			if k := [2]string{r.Code, r.Node}; !held[k] {
				held[k] = true
				set(descHeld, 1, r.Code, r.Node)
			}
		}
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
