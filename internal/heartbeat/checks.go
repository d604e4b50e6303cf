package heartbeat

import (
	"fmt"
	"strings"
	"time"
)

// checks are what was asked for, and the reading of a status that is there.
func checks(o Observation, d *Document, before Memory, now time.Time, s Settings) []Check {
	var out []Check
	add := func(name, reason string) {
		c := Check{Name: name, OK: reason == "", Reason: brief(reason)}
		if !c.OK {
			c.Since = since(before.Failing[name], now)
		}
		out = append(out, c)
	}
	for _, name := range s.Checks {
		add(name, check(name, o, d, now, s))
	}
	if o.StatusProblem != "" {
		add(checkStatus, "the controller's status cannot be read: "+o.StatusProblem)
	}
	return out
}

// maxReason is how long a reason may be, in bytes.
const maxReason = 512

func brief(s string) string {
	if len(s) <= maxReason {
		return s
	}
	return strings.ToValidUTF8(s[:maxReason-4], "") + " …"
}

// check is why one does not hold, empty when it does. What is not known does not
// hold.
func check(name string, o Observation, d *Document, now time.Time, s Settings) string {
	unread := o.NodesProblem != ""
	switch name {
	case CheckAPI:
		if unread {
			return "the API does not answer: " + o.NodesProblem
		}
	case CheckNodes:
		if unread {
			return "whether a node is Ready is not known: the API does not answer"
		}
		for _, n := range o.Nodes {
			if n.Ready {
				return ""
			}
		}
		return fmt.Sprintf("none of %d nodes is Ready", len(o.Nodes))
	case CheckVoters:
		return votersCheck(d, unread)
	case CheckController:
		switch {
		case o.StatusProblem != "":
			return "whether a controller decides is not known"
		case o.Status == nil:
			return "no controller has published a status"
		case !lately(o.Status, now, s):
			return fmt.Sprintf("the controller's last status is of %s", o.Status.At.UTC().Format(time.RFC3339))
		}
	case CheckRunners, CheckScaleSets, CheckRunnerPods:
		if o.Runners == nil {
			return "nothing was read of the runners"
		}
		return runners(name, o.Runners, now, s)
	default:
		return fmt.Sprintf("there is no check %q", name)
	}
	return ""
}

func votersCheck(d *Document, unread bool) string {
	v := d.Voters
	switch {
	case unread:
		return "the voters are not known: the API does not answer"
	case v == nil:
		return "no node votes in etcd"
	case v.Count == v.Target:
		return ""
	}
	if running, deadline := d.Swapping(); running && !d.At.After(deadline) && v.Count == v.Target+1 {
		return ""
	}
	return fmt.Sprintf("etcd has %d voters, %d are wanted", v.Count, v.Target)
}

func runners(name string, r *Runners, now time.Time, s Settings) string {
	switch name {
	case CheckRunners:
		switch {
		case r.ControllerProblem != "":
			return "the runner controller cannot be read: " + r.ControllerProblem
		case !r.ControllerFound:
			return "there is no runner controller"
		case r.Controllers == 0:
			return "the runner controller has no ready replica"
		}
	case CheckScaleSets:
		var wrong []string
		for _, set := range r.ScaleSets {
			switch {
			case set.Problem != "":
				wrong = append(wrong, set.Name+" cannot be read: "+set.Problem)
			case !set.Found:
				wrong = append(wrong, set.Name+" does not exist")
			case !set.Listening:
				wrong = append(wrong, set.Name+" has no listener that runs")
			}
		}
		if len(wrong) > 0 {
			return "scale sets: " + strings.Join(wrong, "; ")
		}
	case CheckRunnerPods:
		if r.PodsProblem != "" {
			return "the runner pods cannot be read: " + r.PodsProblem
		}
		n, first := 0, ""
		for _, p := range r.Unschedulable {
			// A time that is far ahead is of a clock that is off: for how long is not known.
			if now.Sub(p.Since).Abs() >= s.Unschedulable {
				if n++; first == "" {
					first = p.Name
				}
			}
		}
		if n > 0 {
			return fmt.Sprintf("%d runner pods are not scheduled for %s or longer, such as %s", n, s.Unschedulable, first)
		}
	}
	return ""
}
