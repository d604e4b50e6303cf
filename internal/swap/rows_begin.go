package swap

import (
	"fmt"
	"slices"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/status"
)

func idleRows() []Row {
	return append(droppedRows(), waitingRows()...)
}

// droppedRows are the requests that no swap can come of: one that stays would hold
// up the next one for all its life.
func droppedRows() []Row {
	unread := func(v *view) string {
		return "the swap request cannot be read and is dropped: " + v.o.RequestProblem
	}
	expired := func(v *view) string {
		return fmt.Sprintf("the request to swap %s for %s is older than %s", v.o.Request.Out, v.o.Request.In, status.RequestLife)
	}
	// What held it when its life was over is the reason that a person asks for.
	late := func(v *view) []status.Reason {
		return append([]status.Reason{{Code: CodeRequestExpired, Sentence: expired(v)}}, v.startGates(v.requested())...)
	}
	alone := func(code string, say func(*view) string) func(*view) []status.Reason {
		return func(v *view) []status.Reason { return []status.Reason{{Code: code, Sentence: say(v)}} }
	}
	return []Row{
		{From: Idle, If: "the request cannot be read", Do: DropRequest, Code: CodeRequestMalformed,
			when: func(v *view) bool { return v.o.RequestProblem != "" },
			act:  drop(alone(CodeRequestMalformed, unread)),
			say:  unread},
		{From: Idle, If: "the request is older than its life", Do: DropRequest, Code: CodeRequestExpired,
			when: func(v *view) bool {
				r := v.o.Request
				return r != nil && (v.o.Now.Sub(r.At) > status.RequestLife || r.At.Sub(v.o.Now) > status.RequestLife)
			},
			act: drop(late),
			say: expired},
		{From: Idle, If: "the request is of a host that it can never be about", Do: DropRequest, Code: CodeRequestRefused,
			when:  func(v *view) bool { return len(v.refusal()) > 0 },
			act:   drop((*view).refusal),
			waits: (*view).refusal,
			say: func(v *view) string {
				return fmt.Sprintf("the request to swap %s for %s is refused and dropped", v.o.Request.Out, v.o.Request.In)
			}},
	}
}

// drop drops the request and has the status say why.
func drop(why func(*view) []status.Reason) func(*view) Action {
	return func(v *view) Action {
		d := status.Dropped{At: v.o.Now, Reasons: why(v)}
		if r := v.o.Request; r != nil {
			d.Out, d.In, d.Asked = r.Out, r.In, r.At
		}
		return Action{Kind: DropRequest, Dropped: &d}
	}
}

// refusal is what is wrong with the request itself, whatever the moment: the
// command refuses it before it is made (R-E2-04), one that was written by hand, or
// whose Node has changed since, is refused here.
func (v *view) refusal() []status.Reason {
	if v.o.Request == nil {
		return nil
	}
	rs := v.startGates(v.requested())
	return slices.DeleteFunc(rs, func(r status.Reason) bool { return !Usage(r.Code) })
}

func waitingRows() []Row {
	return []Row{
		{From: Idle, If: "a host of an ended swap came back and its Node still looks like a server", Do: CleanNode, Code: "OwedCleanUp",
			when: func(v *view) bool { return v.owedClean() != nil },
			act: func(v *view) Action {
				h := v.owedClean()
				return Action{Kind: CleanNode, Node: h.Name, Swap: fleet.SwapID(h.Node.Annotations[v.p.Keys.Cordoned()])}
			},
			say: func(v *view) string { return v.owedClean().Name + " has come back as an agent; its Node is cleaned" }},
		{From: Idle, If: "a host of an ended swap is back and clean", Do: Uncordon, Code: "OwedUncordon",
			when: func(v *view) bool { return v.owedUncordon() != nil },
			act: func(v *view) Action {
				h := v.owedUncordon()
				return Action{Kind: Uncordon, Node: h.Name, Swap: fleet.SwapID(h.Node.Annotations[v.p.Keys.Cordoned()])}
			},
			say: func(v *view) string { return v.owedUncordon().Name + " is back; its cordon of ours goes" }},
		{From: Idle, If: "a person asks and a gate is shut", Code: "RequestHeld",
			when:  func(v *view) bool { return v.o.Request != nil && len(v.startGates(v.requested())) > 0 },
			waits: func(v *view) []status.Reason { return v.startGates(v.requested()) },
			say: func(v *view) string {
				return fmt.Sprintf("the request to swap %s for %s waits", v.o.Request.Out, v.o.Request.In)
			}},
		{From: Idle, If: "a person asks and every gate is open", Do: TakeLease, To: Begin, Code: "RequestTaken",
			when: func(v *view) bool { return v.o.Request != nil },
			act:  func(v *view) Action { return v.take(v.requested(), true) },
			say: func(v *view) string {
				return fmt.Sprintf("%s is swapped for %s, as asked", v.o.Request.Out, v.o.Request.In)
			}},
		{From: Idle, If: "the number of voters is even", Code: "VotersEven",
			when: func(v *view) bool { return v.list.known && v.list.voters()%2 == 0 },
			waits: func(v *view) []status.Reason {
				return []status.Reason{reason(CodeEvenVoters, "", "etcd has %s and no swap is on record: %s", plural(v.list.voters(), "voter"), describe(v.list.members))}
			},
			say: say("the number of voters is even and no swap is on record; nobody is removed, a person has to look")},
		{From: Idle, If: "a person has paused the fleet", Code: "Paused",
			when:  func(v *view) bool { return len(v.paused()) > 0 },
			waits: func(v *view) []status.Reason { return v.paused() },
			say:   say("the fleet is paused: no swap begins")},
		{From: Idle, If: "the verdicts ask for nothing", Code: "NothingToDo",
			when: func(v *view) bool { return v.o.Automatic == nil },
			say:  say("no swap begins")},
		{From: Idle, If: "the verdicts ask, and this is a dry run", Code: "DryRun",
			when: func(v *view) bool { return v.p.DryRun },
			say: func(v *view) string {
				return fmt.Sprintf("%s would be swapped for %s; this is a dry run", v.o.Automatic.Out, v.o.Automatic.In)
			}},
		{From: Idle, If: "the verdicts ask inside the cooldown", Code: "Cooldown",
			when: func(v *view) bool { return v.o.Status == nil || v.o.Now.Before(v.o.Status.CooldownUntil) },
			say: func(v *view) string {
				if v.o.Status == nil {
					return "the status is missing: a cooldown starts"
				}
				return "the cooldown ends at " + v.o.Status.CooldownUntil.UTC().Format("15:04:05")
			}},
		{From: Idle, If: "the pair was abandoned lately", Code: "PairBackedOff",
			when: func(v *view) bool { return v.backedOff(*v.o.Automatic) != nil },
			say: func(v *view) string {
				b := v.backedOff(*v.o.Automatic)
				return fmt.Sprintf("swapping %s for %s was abandoned %d times; not again before %s", b.Out, b.In, b.Count, b.Until.UTC().Format("2006-01-02 15:04:05"))
			}},
		{From: Idle, If: "the verdicts ask and a gate is shut", Code: "DecisionHeld",
			when:  func(v *view) bool { return len(v.startGates(*v.o.Automatic)) > 0 },
			waits: func(v *view) []status.Reason { return v.startGates(*v.o.Automatic) },
			say: func(v *view) string {
				return fmt.Sprintf("swapping %s for %s waits", v.o.Automatic.Out, v.o.Automatic.In)
			}},
		{From: Idle, Do: TakeLease, To: Begin, Code: "DecisionTaken",
			act: func(v *view) Action { return v.take(*v.o.Automatic, false) },
			say: func(v *view) string {
				return fmt.Sprintf("%s is unfit and %s is fit: they are swapped", v.o.Automatic.Out, v.o.Automatic.In)
			}},
	}
}

func (v *view) requested() Pair { return Pair{Out: v.o.Request.Out, In: v.o.Request.In} }

// take makes the record from the lists that the gates have just judged.
func (v *view) take(pair Pair, manual bool) Action {
	id := fleet.NewSwapID(v.o.Now, pair.Out, pair.In)
	rec := status.Record{
		Protocol: status.Protocol, Prefix: v.p.Keys.Prefix(), ID: id, Out: pair.Out, In: pair.In,
		Manual: manual, Started: v.o.Now, ClusterID: v.list.cluster,
	}
	for _, m := range v.list.members {
		node := nodeOf(v.o, m)
		rec.Voters = append(rec.Voters, status.RecordVoter{Node: node, ID: m.ID, Name: m.Name})
		if node == pair.Out {
			rec.OutMember = m.ID
		}
	}
	return Action{Kind: TakeLease, Swap: id, Record: &rec}
}

func (v *view) backedOff(pair Pair) *status.Backoff {
	if v.o.Status == nil {
		return nil
	}
	for i, b := range v.o.Status.Backoff {
		if b.Out == pair.Out && b.In == pair.In && v.o.Now.Before(b.Until) {
			return &v.o.Status.Backoff[i]
		}
	}
	return nil
}

// owed are the Nodes with a cordon of ours and no swap: what an ended swap
// left to be done when the host returns (safety rule 16). Nothing is done on
// it while somebody holds the Lease (safety rule 21).
func (v *view) owed() []*Host {
	if v.leaseState() == lease.Held {
		return nil
	}
	var hs []*Host
	for i := range v.o.Hosts {
		h := &v.o.Hosts[i]
		if v.cordonMarked(h) && h.Node.Annotations[v.p.Keys.Swap()] == "" {
			hs = append(hs, h)
		}
	}
	return hs
}

// owedClean is a returned host that is an agent, is no member, and whose Node
// still carries a server's marks. Where the operator had cordoned it before the
// swap no cordon of ours stands, and only desired-role tells what it was asked
// to become.
func (v *view) owedClean() *Host {
	if v.leaseState() == lease.Held {
		return nil
	}
	for i := range v.o.Hosts {
		h := &v.o.Hosts[i]
		asked := h.Node.Labels[v.p.Keys.DesiredRole()] == string(fleet.RoleAgent)
		if h.Node.Annotations[v.p.Keys.Swap()] == "" && (asked || v.cordonMarked(h)) && v.returned(h) && !v.clean(h) {
			return h
		}
	}
	return nil
}

// owedUncordon is one that is clean and Ready again; or a voter, which needs
// no clean-up at all.
func (v *view) owedUncordon() *Host {
	for _, h := range v.owed() {
		if _, votes := v.memberOfNode(h.Name); v.list.known && votes && h.Node.Ready && h.Fresh {
			return h
		}
		if v.returned(h) && v.clean(h) && back(h) {
			return h
		}
	}
	return nil
}

func (v *view) returned(h *Host) bool {
	_, member := v.memberOfNode(h.Name)
	return v.list.known && !member && h.Fresh && h.Report != nil && h.Report.Role == fleet.RoleAgent &&
		!h.Report.Leaving && h.Report.Etcd == nil
}

func beginRows() []Row {
	return []Row{
		{From: Begin, If: "a Node is gone and nothing was ordered yet", Do: Conclude, To: End, Code: "NodeGoneAbandoned",
			when: func(v *view) bool { return (v.in == nil || v.out == nil) && v.list.known && !v.begun() },
			act:  conclude(fleet.OutcomeAbandoned, func(v *view) []status.Reason { return v.gone() }),
			say:  say("a Node of the swap is gone before anything was changed")},
		{From: Begin, If: "OUT's Node and member are gone past the bound and IN serves", Do: Conclude, To: End, Code: "CompletedNodeGone",
			when: func(v *view) bool {
				return v.out == nil && v.in != nil && v.stepIs(v.in, fleet.StepPromote) && v.departed() && v.inServes() && v.heldIn(Begin, v.p.FinishTimeout)
			},
			act: conclude(fleet.OutcomeCompleted, func(v *view) []status.Reason { return v.gone() }),
			say: func(v *view) string {
				return v.rec.In + " votes; the Node and the member of " + v.rec.Out + " are gone"
			}},
		{From: Begin, If: "IN's Node is gone past the bound, no list holds it, and OUT was stepped down", Do: Order, Code: "StepUpNodeGone",
			when: func(v *view) bool { return v.inLeft() && v.outTouched() },
			act: func(v *view) Action {
				return Action{Kind: Order, Node: v.rec.Out, Swap: v.rec.ID, Step: fleet.StepStepUp, Level: fleet.LevelFull}
			},
			say: func(v *view) string { return v.rec.Out + " is told to be a full server again" }},
		{From: Begin, If: "IN's Node is gone past the bound and the voters are those of before", Do: Conclude, To: End, Code: "RolledBackNodeGone",
			when: func(v *view) bool { return v.inLeft() && v.outRestored() },
			act:  conclude(fleet.OutcomeRolledBack, func(v *view) []status.Reason { return v.gone() }),
			say: func(v *view) string {
				return "the voters are exactly those of before; the Node of " + v.rec.In + " is gone"
			}},
		{From: Begin, If: "a Node is gone", Code: "NodeGone",
			when:  func(v *view) bool { return v.in == nil || v.out == nil },
			waits: func(v *view) []status.Reason { return v.gone() },
			say:   say("a Node of the swap is gone in the middle of it; the host registers it again at its next start")},
		{From: Begin, If: "the request still stands", Do: DropRequest, Code: "RequestTakenUp",
			when: func(v *view) bool {
				return v.o.Request != nil && v.o.Request.Out == v.rec.Out && v.o.Request.In == v.rec.In
			},
			act: func(*view) Action { return Action{Kind: DropRequest} },
			say: say("the request is taken up")},
		{From: Begin, If: "no Node carries the record and the servers to join falter, for a minute at most", Code: "JoinHostWait",
			when: func(v *view) bool {
				return v.faltersAtBegin() && v.o.Now.Sub(v.rec.Started).Abs() <= status.JoinPatience
			},
			waits: func(v *view) []status.Reason { return v.beforeGates(v.out, v.in) },
			say: func(v *view) string {
				return fmt.Sprintf("%s finds servers to join that cannot say who the members are; nothing is written until they can, or for %s", v.rec.In, status.JoinPatience)
			}},
		{From: Begin, If: "no Node carries the record and a gate has shut", Do: Conclude, To: End, Code: "GateShutAtBegin",
			when: func(v *view) bool { return v.unwritten() && len(v.beforeGates(v.out, v.in)) > 0 },
			act:  conclude(fleet.OutcomeAbandoned, func(v *view) []status.Reason { return v.beforeGates(v.out, v.in) }),
			say:  say("a gate has shut since the Lease was taken; nothing was changed")},
		{From: Begin, If: "IN has no record", Do: WriteRecord, Code: "RecordOnIn",
			when: func(v *view) bool { return !v.carries(v.in) },
			act:  recordOn(inNode),
			say:  func(v *view) string { return "the record is written on " + v.rec.In }},
		{From: Begin, Do: WriteRecord, To: Prepare, Code: "RecordOnOut",
			act: recordOn(outNode),
			say: func(v *view) string { return "the record is written on " + v.rec.Out }},
	}
}

// unwritten: the Lease is taken for the swap, and nothing else was written for it.
func (v *view) unwritten() bool { return len(v.marked) == 0 && !v.begun() }

// faltersAtBegin: of a swap that is not written yet every gate is open but the one
// that passes by itself.
func (v *view) faltersAtBegin() bool {
	return v.state == Begin && v.in != nil && v.out != nil && v.unwritten() && Falters(v.beforeGates(v.out, v.in))
}

func recordOn(node func(*view) string) func(*view) Action {
	return func(v *view) Action {
		rec := *v.rec
		return Action{Kind: WriteRecord, Node: node(v), Swap: rec.ID, Record: &rec}
	}
}

// ordered says whether any host was given an order in this swap.
func (v *view) ordered() bool {
	for _, h := range []*Host{v.in, v.out} {
		if h != nil && h.Node.Annotations[v.p.Keys.Step()] != "" {
			return true
		}
	}
	return v.reached(Promote)
}

// begun says whether the swap may have changed a host or the membership,
// whatever the Nodes have lost since (safety rules 25 and 27).
func (v *view) begun() bool { return v.ordered() || v.changed() }

// changed is begun by what the status and the lists say alone: an order on a Node
// may be a stranger's.
func (v *view) changed() bool {
	return v.reached(Promote) || len(v.inMembers()) > 0 || v.departed()
}

// inLeft: IN's Node has been gone for as long as a promotion may take, and the
// members are those of before: a deleted Node is judged by member id (rule 27).
func (v *view) inLeft() bool {
	return v.in == nil && v.out != nil && v.exact() && v.heldIn(Begin, v.promoteBound())
}

// heldIn says whether the swap has been in a state for longer than bound without
// leaving it.
func (v *view) heldIn(s State, bound time.Duration) bool {
	sw := v.swapStatus()
	return sw != nil && sw.Step == string(s) && v.o.Now.Sub(sw.StepSince) > bound
}

// gone names the Nodes that are gone, and their members that are not.
func (v *view) gone() []status.Reason {
	var rs []status.Reason
	for _, x := range []struct {
		name    string
		members []status.Member
	}{{v.rec.In, v.inMembers()}, {v.rec.Out, v.outMembers()}} {
		if v.o.Host(x.name) != nil {
			continue
		}
		r := reason(CodeNodeGone, x.name, "the Node %s is gone", x.name)
		if len(x.members) > 0 {
			r.Sentence += ", and its member " + memberWords(x.members[0]) + " is still listed"
		}
		rs = append(rs, r)
	}
	return rs
}

// conclude publishes an outcome before any mark is taken away, so that a swap
// that has ended is never begun again (R-228-18).
func conclude(outcome fleet.Outcome, reasons func(*view) []status.Reason) func(*view) Action {
	return func(v *view) Action {
		last := status.LastSwap{
			ID: v.rec.ID, Out: v.rec.Out, In: v.rec.In, Outcome: outcome, Manual: v.rec.Manual, EndedAt: v.o.Now,
			Snapshot: v.snapshotName(),
		}
		if reasons != nil {
			last.Reasons = reasons(v)
		}
		if sw := v.swapStatus(); sw != nil {
			last.Steps = slices.Clone(sw.Steps)
		}
		last.OutgoingPending = outcome == fleet.OutcomeCompleted && !(v.finished(v.out) && v.clean(v.out) && back(v.out))
		last.IncomingPending = outcome == fleet.OutcomeRolledBack && !(v.finished(v.in) && v.clean(v.in) && back(v.in))
		return Action{Kind: Conclude, Swap: v.rec.ID, Last: &last}
	}
}

// othersNode is a Node of the swap that names another controller.
func (v *view) othersNode() string {
	for _, name := range v.marked {
		if v.o.Host(name).Node.Annotations[v.p.Keys.Controller()] != v.o.Self {
			return name
		}
	}
	return ""
}

// heldRows: states in which nothing is done but what gets the swap out of them.
func heldRows() []Row {
	return []Row{
		{From: Reclaim, Do: TakeLease, Code: "LeaseTakenAgain",
			act: func(v *view) Action {
				rec := *v.rec
				return Action{Kind: TakeLease, Swap: rec.ID, Record: &rec}
			},
			say: func(v *view) string {
				if v.leaseState() == lease.Expired {
					return "the Lease has expired; it is taken again for the swap under way"
				}
				return "the Lease is nobody's; it is taken again for the swap under way"
			}},
		{From: LeaseLost, Code: "LeaseIsAnothers",
			waits: func(v *view) []status.Reason {
				return []status.Reason{reason(CodeLeaseHeld, "", "the Lease is held by %s", v.o.Lease.Holder)}
			},
			say: say("the Lease is another's; nothing is done until it is free")},
		{From: TakeOverState, If: "the other controller may still be alive", Code: "OtherController",
			when: func(v *view) bool {
				return v.o.Lease.Annotations[fleet.LeaseController] != v.o.Self && v.o.LeaseUnchanged < v.p.TakeOver
			},
			say: func(v *view) string {
				return fmt.Sprintf("another controller drives this swap; it is taken over when its Lease has stood still for %s", v.p.TakeOver)
			}},
		{From: TakeOverState, If: "a Node names another controller", Do: TakeOver, Code: "SwapTakenOver",
			when: func(v *view) bool { return v.othersNode() != "" },
			act:  func(v *view) Action { return Action{Kind: TakeOver, Node: v.othersNode(), Swap: v.rec.ID} },
			say:  say("this controller writes its id on the Nodes, so that the old one's next write fails")},
		{From: TakeOverState, Do: TakeLease, Code: "LeaseTakenOver",
			act: func(v *view) Action {
				rec := *v.rec
				return Action{Kind: TakeLease, Swap: rec.ID, Record: &rec}
			},
			say: say("the Lease of a controller that is gone is taken over")},
		{From: Frozen, If: "a removal that the swap asked for stands", Do: WithdrawRemoval, Code: "FrozenWithdrawn",
			// It was asked for among other members: k3s would carry it out whenever it
			// comes to it, long after the swap was frozen.
			when: func(v *view) bool { return v.ourRemoval() != nil },
			act: func(v *view) Action {
				return Action{Kind: WithdrawRemoval, Node: v.ourRemoval().Name, Swap: v.rec.ID}
			},
			waits: func(v *view) []status.Reason { return v.frozen() },
			say: func(v *view) string {
				return "the membership changed in a way that is not the swap's; the request to remove " + v.ourRemoval().Name + " is withdrawn"
			}},
		{From: Frozen, Code: "Frozen",
			waits: func(v *view) []status.Reason { return v.frozen() },
			say:   say("the membership changed in a way that is not the swap's; it is held until a person has looked")},
		{From: StatusUnread, Code: "StatusUnread",
			waits: func(v *view) []status.Reason {
				return []status.Reason{reason(CodeMissing, "", "the published status cannot be read: %s", v.o.StatusProblem)}
			},
			say: say("the published status cannot be read, so nobody knows how far the swap is; it is held")},
		{From: Contradiction, Code: "Contradiction",
			waits: func(v *view) []status.Reason {
				if v.problem != nil {
					return []status.Reason{*v.problem}
				}
				return []status.Reason{reason(CodeOtherSwap, "", "the Lease names swap %s, which no Node carries and whose record cannot be read", v.o.Lease.SwapID())}
			},
			say: say("the marks of a swap cannot be understood; everything is held")},
	}
}
