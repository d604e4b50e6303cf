package doctor

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// Names of the checks of a fleet, beside those of a host.
const (
	CheckReports    = "reports"
	CheckVoters     = "voters"
	CheckStandbys   = "standbys"
	CheckVersions   = "versions"
	CheckController = "controller"
	CheckLabels     = "labels"
	CheckMarks      = "marks"
	CheckLease      = "lease"
	CheckServers    = "servers"
	CheckProbes     = "probes"
	CheckFile       = "fleet.yaml"
)

// JudgeFleet finds what is wrong with a fleet: at least one finding a check.
func JudgeFleet(f Fleet) []Finding {
	reports := f.reports()
	silent := map[string]bool{}
	for _, r := range reports {
		silent[r.Node] = silent[r.Node] || r.Node != "" && r.Grade == Fail
	}
	return slices.Concat(
		f.read(), f.controller(), reports, f.clocks(), f.voters(silent), f.standbys(silent), f.versions(), f.lease(),
		f.marks(), f.labels(), f.servers(), f.probes(), f.file(),
	)
}

// underWay says whether a swap is, as far as anything says so.
func (f Fleet) underWay() bool {
	return f.Lease.SwapID() != "" && f.Lease.At(f.Now) == lease.Held || f.Status != nil && f.Status.Swap != nil
}

func (f Fleet) server(h swap.Host) bool {
	_, etcd := h.Node.Labels[fleet.LabelEtcd]
	_, control := h.Node.Labels[fleet.LabelControlPlane]
	return etcd || control
}

// takes says whether regrade has to do with a host: it serves, or may.
func (f Fleet) takes(h swap.Host) bool {
	_, etcd := h.Node.Labels[fleet.LabelEtcd]
	return etcd || h.Node.Labels[f.Policy.Keys.Eligible()] == fleet.True
}

func (f Fleet) read() []Finding {
	c := &check{name: CheckAPI}
	for _, m := range f.Missing {
		c.fail(CodeNotRead, "could not be read: %s", m)
	}
	return c.or("%s answers, and all was read", f.API)
}

// reports: every server and eligible host says how it is, again and again.
func (f Fleet) reports() []Finding {
	c := &check{name: CheckReports}
	n := 0
	for _, h := range f.Hosts {
		if !f.takes(h) {
			continue
		}
		n++
		switch {
		case h.ReportProblem != "":
			c.add(Fail, h.Name, swap.CodeBadReport, "its report cannot be used: %s", h.ReportProblem)
		case h.Report == nil:
			c.add(Fail, h.Name, CodeNoDaemon, "it votes, or may, and has never reported")
		case !h.Fresh && h.Speaks:
			c.add(Fail, h.Name, swap.CodeSilent, "its daemon beats, and its report is of before: it cannot write it")
		case !h.Fresh:
			c.add(Fail, h.Name, swap.CodeSilent, "its host daemon is silent")
		case status.Halts(h.Report.Code):
			c.add(Fail, h.Name, CodeHalts, "its daemon does nothing before a person has looked: %s (%s)", h.Report.Message, h.Report.Code)
		}
	}
	if n == 0 {
		c.fail(CodeNoDaemon, "no Node votes and none is eligible: nothing here is regrade's")
	}
	return c.or("%s, each seen to report", plural(n, "host"))
}

func (f Fleet) clocks() []Finding {
	c := &check{name: CheckClock}
	for i := range f.Hosts {
		if s := swap.Skewed(&f.Hosts[i], f.Now, f.Policy.MaxSkew); s != "" && f.takes(f.Hosts[i]) {
			c.add(Fail, f.Hosts[i].Name, CodeSkew, "%s; at most %s are allowed", s, f.Policy.MaxSkew)
		}
	}
	return c.or("no host is more than %s off the API server's", f.Policy.MaxSkew)
}

// said are codes that another check has already.
func said(r status.Reason, silent map[string]bool, codes ...string) bool {
	if slices.Contains(codes, r.Code) {
		return true
	}
	return silent[r.Node] && slices.Contains([]string{swap.CodeBadReport, swap.CodeNoHostDaemon, swap.CodeSilent}, r.Code)
}

// passes are codes that a swap under way brings along.
var passes = []string{swap.CodeVoterCount, swap.CodeEvenVoters, swap.CodeLearner, swap.CodeUnstarted, swap.CodeLeaving, swap.CodeWrongRole, swap.CodeOperatorCordon, swap.CodeNotFull}

func (f Fleet) voters(silent map[string]bool) []Finding {
	c := &check{name: CheckVoters}
	names, known := swap.Voters(f.Observation, f.Policy)
	for _, r := range swap.Standing(f.Observation, f.Policy) {
		if said(r, silent, swap.CodeK3sVersions, swap.CodeNoK3sVersion, swap.CodeEtcdVersion) {
			continue
		}
		c.add(f.weigh(r.Code), r.Node, r.Code, "%s", r.Sentence)
	}
	for _, name := range names {
		for _, r := range swap.Outgoing(f.Observation, f.Policy, name) {
			if !said(r, silent) {
				c.add(Fail, name, r.Code, "could not go out: %s", r.Sentence)
			}
		}
	}
	if !known {
		return c.or("nobody says who votes")
	}
	return c.or("%s of %d, all well: %s", plural(len(names), "voter"), f.Policy.Target, strings.Join(names, ", "))
}

func (f Fleet) weigh(code string) Grade {
	if f.underWay() && slices.Contains(passes, code) {
		return Warn
	}
	return Fail
}

// standbys: at least one host could take a voter's place.
func (f Fleet) standbys(silent map[string]bool) []Finding {
	c := &check{name: CheckStandbys}
	voters, known := swap.Voters(f.Observation, f.Policy)
	n, ready := 0, 0
	for _, h := range f.Hosts {
		if h.Node.Labels[f.Policy.Keys.Eligible()] != fleet.True || slices.Contains(voters, h.Name) || f.server(h) || f.marked(h) {
			continue
		}
		n++
		rs := swap.Newcomer(f.Observation, f.Policy, h.Name)
		if len(rs) == 0 {
			ready++
		}
		for _, r := range rs {
			if !said(r, silent, CodeSkew) {
				g := Fail
				if slices.Contains(passing, r.Code) {
					g = Warn
				}
				c.add(g, h.Name, r.Code, "could not come in: %s", r.Sentence)
			}
		}
	}
	if known && n == 0 && !f.underWay() {
		c.warn(CodeFewEligible, "no host may take a voter's place: none is eligible and no voter")
	}
	return c.or("%d of %d could take a voter's place", ready, n)
}

func (f Fleet) marked(h swap.Host) bool { return h.Node.Annotations[f.Policy.Keys.Swap()] != "" }

// versions: of k3s and etcd, of regrade on the hosts and of its images.
func (f Fleet) versions() []Finding {
	c := &check{name: CheckVersions}
	for _, r := range swap.Standing(f.Observation, f.Policy) {
		if slices.Contains([]string{swap.CodeK3sVersions, swap.CodeNoK3sVersion, swap.CodeEtcdVersion}, r.Code) {
			c.add(Fail, r.Node, r.Code, "%s", r.Sentence)
		}
	}
	kubelets := map[string][]string{}
	for _, h := range f.Hosts {
		if v := h.Node.KubeletVersion; v != "" {
			kubelets[v] = append(kubelets[v], h.Name)
		}
	}
	if len(kubelets) > 1 {
		c.warn(CodeK3sMixed, "k3s of several versions: %s", spread(kubelets))
	}
	images := map[string][]string{}
	for _, p := range f.Pods {
		if !p.Finished && !p.Terminating && p.Image != "" {
			images[p.Image] = append(images[p.Image], p.Component)
		}
	}
	if len(images) > 1 {
		c.warn(CodeImages, "regrade's pods are of several images: %s", spread(images))
	}
	own := map[string][]string{}
	for node, v := range f.Versions {
		own[v] = append(own[v], node)
	}
	if len(own) > 0 {
		own[f.Version] = append(own[f.Version], "this command")
	}
	if len(own) > 1 {
		c.warn(CodeRegradeVersions, "regrade of several versions: %s", spread(own))
	}
	return c.or("one k3s%s", oneImage(images))
}

func oneImage(images map[string][]string) string {
	for name := range images {
		return ", one regrade: " + name
	}
	return ""
}

// spread is who has what, in an order that does not change.
func spread(by map[string][]string) string {
	var out []string
	for _, v := range slices.Sorted(maps.Keys(by)) {
		names := by[v]
		slices.Sort(names)
		names = slices.Compact(names)
		if len(names) > 5 {
			names = append(names[:5:5], fmt.Sprintf("and %d more", len(names)-5))
		}
		out = append(out, v+" ("+strings.Join(names, ", ")+")")
	}
	return strings.Join(out, ", ")
}

// staleAfter is how many periods old a status may be, and a minute: a controller publishes
// in each pass.
const staleAfter = 4

func (f Fleet) controller() []Finding {
	c := &check{name: CheckController}
	switch {
	case f.StatusProblem != "":
		c.fail(CodeBadStatus, "the published status cannot be used: %s", f.StatusProblem)
	case f.Status == nil:
		c.fail(CodeNoController, "no controller has published a status")
	case f.Now.Sub(f.Status.At) > staleAfter*f.Policy.Period+time.Minute:
		c.fail(CodeNoController, "no controller has published for %s", f.Now.Sub(f.Status.At).Round(time.Second))
	case f.Status.DryRun:
		c.warn(CodeDryRun, "the dry run is on: automatic swaps are reported only")
	}
	switch {
	case f.PauseProblem != "":
		c.warn(CodePaused, "the fleet is paused, by a document that cannot be read: %s", f.PauseProblem)
	case f.Pause != nil:
		c.warn(CodePaused, "the fleet is %s", f.Pause.Words())
	}
	if f.RequestProblem != "" {
		c.warn(CodeBadRequest, "a request waits that cannot be read: %s", f.RequestProblem)
	}
	if f.PodsProblem != "" {
		c.warn(CodePodsUnknown, "regrade's pods cannot be listed: %s", f.PodsProblem)
	}
	var running []string
	for _, p := range f.Pods {
		if p.Finished || p.Terminating {
			continue
		}
		at := p.Namespace + "/" + p.Name
		if p.Component == "controller" {
			running = append(running, at)
		}
		if !p.Ready {
			why := p.Waiting
			if why == "" {
				why = "its container is not ready"
			}
			c.add(Fail, p.Node, CodePodNotReady, "the pod %s: %s, %s", at, why, plural(p.Restarts, "restart"))
		}
	}
	if len(running) > 1 {
		// Two act in turn on one Lease: safe, and neither does what its own settings say.
		c.fail(CodeTwoControllers, "%d controllers run: %s", len(running), strings.Join(running, ", "))
	}
	return c.or("one, which publishes")
}

func (f Fleet) lease() []Finding {
	c := &check{name: CheckLease}
	l := f.Lease
	state := l.At(f.Now)
	switch {
	case state == lease.Expired:
		c.warn(CodeLeaseExpired, "the Lease %s/%s ran out %s ago and %s still holds it", fleet.LeaseNamespace, fleet.LeaseName, f.Now.Sub(l.RenewTime.Add(l.Duration)).Round(time.Second), holder(l))
	case state == lease.Held:
		return c.or("held by %s", holder(l))
	}
	return c.or("free")
}

func holder(l lease.Lease) string {
	if id := l.SwapID(); id != "" {
		return fmt.Sprintf("%s, for swap %s", l.Holder, id)
	}
	return l.Holder
}

// marks: what a swap sets and its end takes away. Without a swap they are left over, and
// most of them keep the next one from beginning (safety rules 16, 25 and 27).
func (f Fleet) marks() []Finding {
	c := &check{name: CheckMarks}
	keys := f.Policy.Keys
	voters, known := swap.Voters(f.Observation, f.Policy)
	for _, h := range f.Hosts {
		for _, key := range slices.Sorted(maps.Keys(h.Node.Annotations)) {
			if keys.ForeignSwapKey(key) {
				c.add(Fail, h.Name, CodeForeignPrefix, "it carries %s, a swap under another label prefix: that holds everything", key)
			}
		}
		if f.underWay() {
			continue
		}
		var left []string
		for _, key := range append(keys.SwapAnnotations(), keys.Cordoned()) {
			if _, there := h.Node.Annotations[key]; there {
				left = append(left, "the annotation "+key)
			}
		}
		for _, t := range h.Node.Taints {
			if t.Key == keys.Taint() {
				left = append(left, "the taint "+t.Key)
			}
		}
		if len(left) > 0 {
			c.add(Warn, h.Name, CodeMarksLeft, "no swap is under way and it carries %s", strings.Join(left, ", "))
		}
		if _, there := h.Node.Annotations[fleet.AnnotationEtcdRemove]; there {
			c.add(Fail, h.Name, CodeRemoveAsked, "it carries %s: k3s removes its member, now or when it has one again", fleet.AnnotationEtcdRemove)
		}
		if _, etcd := h.Node.Labels[fleet.LabelEtcd]; etcd && known && !slices.Contains(voters, h.Name) {
			c.add(Fail, h.Name, CodeRoleLabels, "it is labelled %s and no member list has it", fleet.LabelEtcd)
		}
		if want := h.Node.Labels[keys.DesiredRole()]; want != "" && h.Report != nil && h.Report.Role != "" && want != string(h.Report.Role) {
			c.add(Warn, h.Name, CodeDesired, "the label %s says %s and its role file says %s", keys.DesiredRole(), want, h.Report.Role)
		}
	}
	return c.or("no Node carries what a swap left")
}

func (f Fleet) labels() []Finding {
	c := &check{name: CheckLabels}
	keys := f.Policy.Keys
	voters, _ := swap.Voters(f.Observation, f.Policy)
	for _, h := range f.Hosts {
		for _, key := range []string{keys.Eligible(), keys.Pinned()} {
			if v, there := h.Node.Labels[key]; there && v != fleet.True && v != "false" {
				c.add(Warn, h.Name, CodeBadLabel, "its label %s is %q: want true or false, anything else counts as not set", key, v)
			}
		}
		if slices.Contains(voters, h.Name) && h.Node.Labels[keys.Eligible()] != fleet.True {
			c.add(Warn, h.Name, CodeNotEligible, "it votes and is not labelled %s: it can never be swapped, out or in", keys.Eligible())
		}
	}
	return c.or("%s and %s are true or false wherever they are set", keys.Eligible(), keys.Pinned())
}

// servers: who was told to join a host that serves no more. Such an agent runs on, by the
// other servers that it has heard of, and finds none after a restart with that host as all
// it knows (R-I-33 lists these among what stays manual).
func (f Fleet) servers() []Finding {
	c := &check{name: CheckServers}
	for _, h := range f.Hosts {
		at, ok := f.Started[h.Name]
		if !ok || at.Server == "" {
			continue
		}
		if n := f.named(at.Server); n != nil && n.Name != h.Name && !f.server(*n) {
			c.add(Warn, h.Name, CodeServerDemoted, "its k3s %s was started to join %s, and %s is no server now", at.Role, at.Server, n.Name)
		}
	}
	if n := f.named("https://" + f.Kubeconfig); f.Kubeconfig != "" && n != nil && !f.server(*n) {
		c.warn(CodeKubeDemoted, "this kubeconfig names %s, and %s is no server now", f.Kubeconfig, n.Name)
	}
	return c.or("nobody was told to join a host that serves no more")
}

// named is the Node that a URL leads to, nil for an address that is no Node's own, such
// as a balancer's.
func (f Fleet) named(raw string) *swap.Host {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if h.Name == u.Hostname() || h.Node.InternalIP != "" && h.Node.InternalIP == u.Hostname() {
			return h
		}
	}
	return nil
}

func (f Fleet) probes() []Finding {
	c := &check{name: CheckProbes}
	if f.ProbesProblem != "" {
		c.warn(CodeNotRead, "the probes' heartbeats: %s", f.ProbesProblem)
		return c.found
	}
	if len(f.Probes) == 0 {
		c.warn(CodeNoProbe, "no probe runs: which host is fit is not measured, and nothing is swapped by itself")
		return c.found
	}
	n := 0
	for _, h := range f.Hosts {
		if !f.takes(h) {
			continue
		}
		b, there := f.Probes[h.Name]
		switch {
		case !there:
			c.add(Warn, h.Name, CodeNoProbe, "no probe has ever run there")
		case !b.Moved && b.Age > 3*f.Policy.Period:
			c.add(Warn, h.Name, CodeProbeSilent, "its probe is silent, by its own clock for %s", b.Age.Round(time.Second))
		default:
			n++
		}
	}
	return c.or("%s, each beats", plural(n, "probe"))
}

// file: what fleet.yaml says beside what is there.
func (f Fleet) file() []Finding {
	if f.Written == nil {
		return nil
	}
	c := &check{name: CheckFile}
	keys := f.Policy.Keys
	for _, w := range f.Written {
		h := f.Host(w.Name)
		if h == nil {
			c.add(Fail, w.Name, CodeNoNode, "fleet.yaml has it and the cluster has no such Node")
			continue
		}
		for _, l := range []struct {
			key  string
			want bool
		}{{keys.Eligible(), w.Eligible}, {keys.Pinned(), w.Pinned}} {
			if got := h.Node.Labels[l.key] == fleet.True; w.Takes && got != l.want {
				c.add(Warn, w.Name, CodeLabelWanted, "fleet.yaml has %t for its label %s, and that is %q", l.want, l.key, h.Node.Labels[l.key])
			}
		}
		for _, a := range []string{w.Address, w.NodeIP} {
			if elsewhere(a, h.Node.InternalIP) {
				c.add(Warn, w.Name, CodeAddressWanted, "fleet.yaml has the address %s, its Node %s", a, h.Node.InternalIP)
				break
			}
		}
	}
	for _, h := range f.Hosts {
		if f.takes(h) && !slices.ContainsFunc(f.Written, func(w Written) bool { return w.Name == h.Name }) {
			c.add(Warn, h.Name, CodeLabelWanted, "it votes, or may, and fleet.yaml does not have it")
		}
	}
	return c.or("%s as written", plural(len(f.Written), "host"))
}
