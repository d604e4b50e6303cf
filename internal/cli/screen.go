package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/exadev/regrade/internal/fitness"
	"github.com/exadev/regrade/internal/quorum"
	"github.com/exadev/regrade/internal/status"
)

// screen is regrade status for people: what stands, what is next and why, and
// every host that regrade has to do with.
func screen(w io.Writer, p paint, st status.Status) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	mode := ""
	if st.DryRun {
		mode = ", dry run: automatic swaps are reported only"
	}
	line("%s, target %d voters%s", stamp(st.At), st.Target, mode)
	if words, bad := tolerance(st); words != "" {
		c := colour("")
		if bad {
			c = red
		}
		line("votes %s", p.in(c, words))
	}
	if s := st.Swap; s != nil {
		line("swap  %s: %s out, %s in", s.ID, s.Out, s.In)
		text := fmt.Sprintf("      %s since %s", s.Step, stamp(s.StepSince))
		if !s.Deadline.IsZero() {
			text += ", bound " + stamp(s.Deadline)
		}
		line("%s", text)
		printReasons(w, s.Reasons)
	}
	if r := st.Request; r != nil {
		line("asked %s out, %s in, at %s", r.Out, r.In, stamp(r.At))
	}
	if st.Pause != nil {
		line("hold  %s", p.in(yellow, st.Pause.Words()))
	}
	if d := st.Dropped; d != nil && (st.LastSwap == nil || d.At.After(st.LastSwap.EndedAt)) {
		line("dropped the request %s, at %s", droppedWords(*d), stamp(d.At))
		printReasons(w, d.Reasons)
	}
	line("next  %s (%s)", st.Next.Sentence, st.Next.Code)
	if st.Swap == nil {
		printReasons(w, st.Next.Waits)
	}
	if a := st.Automatic; a != nil && st.Swap == nil && a.Sentence != st.Next.Sentence {
		line("fit   %s", a.Sentence)
		printReasons(w, a.Reasons)
	}
	if l := st.LastSwap; l != nil {
		line("last  %s: %s out, %s in, ended %s", l.Outcome, l.Out, l.In, stamp(l.EndedAt))
		printReasons(w, l.Reasons)
	}
	if len(st.Pending) > 0 {
		line("owed  clean-up of %s, when it comes back", strings.Join(st.Pending, ", "))
	}
	if !st.EvenSince.IsZero() {
		line("even  number of voters since %s", stamp(st.EvenSince))
	}
	if st.At.Before(st.CooldownUntil) {
		line("cool  no automatic swap before %s", stamp(st.CooldownUntil))
	}
	if !st.HistoryLost.IsZero() {
		line("lost  an earlier status, before %s: which swaps ended until then is not known", stamp(st.HistoryLost))
	}
	hosts(w, p, st)
}

// tolerance is how many voters may be lost now, and in words what the next
// loss would mean. A voter that cannot be seen to be well is not counted on.
func tolerance(st status.Status) (words string, bad bool) {
	voters, up := 0, 0
	for _, h := range st.Hosts {
		if h.Voter {
			voters++
			if h.Ready && h.Fresh || h.Fresh && h.Level != "" && h.Level != "full" {
				up++
			}
		}
	}
	if voters == 0 {
		return "", false
	}
	need := quorum.Need(voters)
	count := fmt.Sprintf("%d of %d are well", up, voters)
	switch spare := up - need; {
	case spare < 0:
		return fmt.Sprintf("%s, fewer than the %d that a quorum needs: etcd may take no writes", count, need), true
	case spare == 0:
		return fmt.Sprintf("%s: none can be spared; the next loss stops all writes", count), true
	case spare == 1:
		return fmt.Sprintf("%s: one can be lost; the loss after that stops all writes", count), false
	default:
		return fmt.Sprintf("%s: %d can be lost; the loss after that stops all writes", count, spare), false
	}
}

func hosts(w io.Writer, p paint, st status.Status) {
	verdicts := map[string]*fitness.Verdict{}
	for i := range st.Verdicts {
		verdicts[st.Verdicts[i].Node] = &st.Verdicts[i]
	}
	columns := []column{{head: "HOST"}, {head: "ROLE"}, {head: "VOTE"}, {head: "READY"}, {head: "REPORT"}, {head: "ELIGIBLE"}}
	judged := len(verdicts) > 0
	if judged {
		columns = append(columns, column{head: "VERDICT"}, column{head: "LINK"}, column{head: "CONNECT", right: true}, column{head: "FSYNC", right: true}, column{head: "COMMIT", right: true}, column{head: "MEMORY", right: true})
	}
	columns = append(columns, column{head: "MEMBER"})
	var rows [][]cell
	for _, group := range []func(status.Host) bool{
		func(h status.Host) bool { return h.Voter || h.Learner },
		func(h status.Host) bool { return !h.Voter && !h.Learner },
	} {
		for _, h := range st.Hosts {
			if !group(h) {
				continue
			}
			row := []cell{{text: h.Name}, {text: role(h)}, {text: vote(h)}, readiness(h), report(h), {text: eligible(h)}}
			if judged {
				row = append(row, readings(verdicts[h.Name])...)
			}
			rows = append(rows, append(row, cell{text: member(h)}))
		}
	}
	p.table(w, "", columns, rows)
	for _, h := range st.Hosts {
		v := verdicts[h.Name]
		if v == nil || v.Fitness == fitness.Fit {
			continue
		}
		for _, r := range v.Reasons {
			if r.Weight != fitness.Note {
				_, _ = fmt.Fprintf(w, "  %s: %s (%s)\n", h.Name, r.Sentence, r.Code)
				break // the gravest; regrade explain has them all
			}
		}
	}
	if st.OtherNodes > 0 {
		_, _ = fmt.Fprintf(w, "and %d other Nodes\n", st.OtherNodes)
	}
}

// readings are a verdict's cells: the worst measure of each kind.
func readings(v *fitness.Verdict) []cell {
	if v == nil {
		return []cell{{text: "-"}, {text: "-"}, {text: "-"}, {text: "-"}, {text: "-"}, {text: "-"}}
	}
	out := []cell{{text: string(v.Fitness), colour: verdictColour(v.Fitness)}, {text: dash(string(v.Link))}}
	for _, kinds := range [][]fitness.Kind{
		{fitness.ConnectP99}, {fitness.WALFsyncP99, fitness.FsyncP99}, {fitness.BackendCommitP99}, {fitness.MemoryAvailable, fitness.MemoryOver},
	} {
		c := cell{text: "-"}
		for _, kind := range kinds {
			if m, ok := worst(v, kind); ok {
				c = cell{text: measureValue(m), colour: marginColour(m.Margin)}
				break
			}
		}
		out = append(out, c)
	}
	return out
}

func role(h status.Host) string {
	if h.Level != "" && h.Level != "full" {
		return dash(string(h.Role)) + ", " + string(h.Level)
	}
	return dash(string(h.Role))
}

func readiness(h status.Host) cell {
	if h.Ready {
		return cell{text: "yes"}
	}
	return cell{text: "no", colour: red}
}

func vote(h status.Host) string {
	switch {
	case h.Voter:
		return "voter"
	case h.Learner:
		return "learner"
	}
	return "-"
}

func member(h status.Host) string {
	if h.MemberID == 0 {
		return "-"
	}
	return h.MemberID.String()
}

func eligible(h status.Host) string {
	if h.Pinned {
		return yes(h.Eligible) + ", pinned"
	}
	return yes(h.Eligible)
}

func report(h status.Host) cell {
	switch {
	case h.Fresh:
		return cell{text: "fresh"}
	case h.Role == "":
		return cell{text: "none"}
	}
	return cell{text: "silent", colour: yellow}
}
