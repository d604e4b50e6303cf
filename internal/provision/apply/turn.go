package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/remote"
	"github.com/exadev/regrade/internal/status"
)

// Turn is one run of apply or of remove.
type Turn struct {
	Settings
	cluster Cluster
	dial    Dial
	hosts   []*host
	// helpers are servers outside of a limit, which lend and get nothing.
	helpers []*host
	// bystanders are hosts of the file on which nothing is installed.
	bystanders []*host
	nodes      map[string]observe.Node
	beats      map[string]observe.Heartbeat
	screen     *screen

	kubeconfigs credentials
	lent        setup.Lent
	changed     int // objects and labels
	// leaving: it is a removal.
	leaving bool
}

// host is one host in a turn.
type host struct {
	inventory.Host
	runner remote.Runner
	arch   string
	// program is where regrade is, on that host; passing is a file of it that goes at the
	// turn's end, with its folders where they are empty then.
	program string
	passing string
	changed bool
	// restarted: its daemon was started anew, and has to speak anew.
	restarted bool
	// newcomer: it has no k3s of its own yet, or had none before this turn. taken: it has no
	// Compose project, and the cluster has a Node of its name.
	newcomer bool
	taken    bool
	// problem ends its part in the turn; refused says that the host is as it was.
	problem *status.Problem
	refused bool
}

type credentials struct{ host, level k3s.Secret }

// Outcome is what a turn came to.
type Outcome struct {
	// Changed counts hosts, objects and Nodes that were changed, or would be.
	Changed int
	// Problems are of the hosts that were not done, by name.
	Problems map[string]status.Problem
}

// Refusal ends a turn before anything is changed.
type Refusal struct{ Problems []status.Problem }

func (r *Refusal) Error() string {
	var lines []string
	for _, p := range r.Problems {
		lines = append(lines, fmt.Sprintf("  - %s (%s)", p.Sentence, p.Code))
	}
	return "refused, nothing is changed:\n" + strings.Join(lines, "\n")
}

// Reason codes of a turn, beside those of the hosts themselves.
const (
	CodeSwapUnderWay = "SwapUnderWay"
	CodeLeaseTaken   = "LeaseTaken"
	CodeNoSuchHost   = "NoSuchHost"
	CodeNodeMissing  = "NodeMissing"
	CodeNoProgram    = "NoProgram"
	CodeProgramFails = "ProgramDoesNotRun"
	CodeProgramGone  = "ProgramGone"
	CodeNoCredential = "NoCredential"
	CodeNobodyLends  = "NobodyLends"
	CodeNotAgent     = "ServerNotEligible"
	CodeNodeIP       = "NodeIPDiffers"
	CodeNodeTaken    = "NodeTaken"
	CodeNotJoined    = "NotJoined"
	CodeHostFailed   = "HostFailed"
	CodeHostRefused  = "HostRefused"
	CodeDaemonSilent = "DaemonSilent"
)

// New makes a turn.
func New(s Settings, c Cluster, dial Dial) *Turn {
	t := &Turn{Settings: s, cluster: patient{c}, dial: dial, screen: &screen{out: s.Out, now: s.Now}}
	for _, h := range s.Fleet.Hosts {
		if h.Takes() && (len(s.Limit) == 0 || slices.Contains(s.Limit, h.Name)) {
			t.hosts = append(t.hosts, &host{Host: h})
		}
		if !h.Takes() && len(s.Limit) == 0 {
			t.bystanders = append(t.bystanders, &host{Host: h})
		}
	}
	return t
}

// phase is one part of a turn. An error of run ends the turn; what is wrong with a host
// ends that host's part.
type phase struct {
	title  string
	should func() bool
	run    func(ctx context.Context) error
}

func always() bool { return true }

// Apply carries out a turn. A Refusal is an error with nothing changed.
func (t *Turn) Apply(ctx context.Context) (Outcome, error) {
	if err := Known(t.Fleet, t.Limit); err != nil {
		return Outcome{}, err
	}
	whole := func() bool { return len(t.Limit) == 0 }
	return t.carry(ctx, []phase{
		{"look at the cluster", always, t.look},
		{"reach the hosts", always, t.reach},
		{"which hosts they are", always, t.whose},
		{"program", always, t.programs},
		{"accounts and rights", whole, func(ctx context.Context) error { return t.objects(ctx, isNot(processes)) }},
		{"credential of the daemons", always, t.credential},
		{"flags of a voter", always, t.borrow},
		{"new hosts", always, t.newcomers},
		{"servers", always, func(ctx context.Context) error { return t.setUp(ctx, t.serves, 1) }},
		{"standbys", always, func(ctx context.Context) error {
			return t.setUp(ctx, func(h *host) bool { return !t.serves(h) }, atOnce)
		}},
		{"new nodes", func() bool { return !t.Check && len(t.away()) > 0 }, t.arrivals},
		{"labels", always, t.labels},
		// The new controller last: it may ask for what an old daemon does not report.
		{"processes", whole, func(ctx context.Context) error { return t.objects(ctx, processes) }},
		{"reports", func() bool { return !t.Check }, t.reports},
	})
}

// atOnce is how many hosts are worked on side by side.
const atOnce = 8

func (t *Turn) carry(ctx context.Context, phases []phase) (Outcome, error) {
	defer t.close(context.WithoutCancel(ctx))
	for _, p := range phases {
		if !p.should() {
			continue
		}
		done := t.screen.begin(p.title)
		err := p.run(ctx)
		done()
		if err != nil {
			return t.outcome(), fmt.Errorf("%s: %w", p.title, err)
		}
		if err := ctx.Err(); err != nil {
			return t.outcome(), fmt.Errorf("%s: interrupted; the next run goes on: %w", p.title, err)
		}
	}
	return t.outcome(), nil
}

func (t *Turn) outcome() Outcome {
	o := Outcome{Changed: t.changed, Problems: map[string]status.Problem{}}
	for _, h := range slices.Concat(t.hosts, t.bystanders) {
		if h.changed {
			o.Changed++
		}
		if h.problem != nil {
			o.Problems[h.Name] = *h.problem
		}
	}
	return o
}

// Known refuses a limit that names nobody.
func Known(f inventory.Fleet, limit []string) error {
	var problems []status.Problem
	for _, name := range limit {
		i := slices.IndexFunc(f.Hosts, func(h inventory.Host) bool { return h.Name == name })
		switch {
		case i < 0:
			problems = append(problems, status.Problem{Code: CodeNoSuchHost, Sentence: fmt.Sprintf("--limit %s: no host of the fleet has that name", name)})
		case !f.Hosts[i].Takes():
			problems = append(problems, status.Problem{Code: CodeNoSuchHost, Sentence: fmt.Sprintf("--limit %s: that host is neither a server nor eligible, and nothing is installed on it", name)})
		}
	}
	if len(problems) > 0 {
		return &Refusal{problems}
	}
	return nil
}

// each does something with every host that has had no trouble yet, so many at once.
func (t *Turn) each(ctx context.Context, atOnce int, hosts []*host, do func(context.Context, *host) error) {
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for _, h := range hosts {
		if h.problem != nil || ctx.Err() != nil {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			if err := do(ctx, h); err != nil {
				t.fail(h, err)
			}
		})
	}
	wg.Wait()
}

// problemError is a problem of a host on its way up.
type problemError struct {
	status.Problem
	refused bool
}

func (p *problemError) Error() string { return p.Sentence }

// refusal is failed of a host that is as it was.
func refusal(code, format string, args ...any) error {
	return &problemError{Problem: status.Problem{Code: code, Sentence: fmt.Sprintf(format, args...)}, refused: true}
}

func failed(code, format string, args ...any) error {
	return &problemError{Problem: status.Problem{Code: code, Sentence: fmt.Sprintf(format, args...)}}
}

// fail ends a host's part in the turn.
func (t *Turn) fail(h *host, err error) {
	p := status.Problem{Code: CodeHostFailed, Sentence: err.Error()}
	if e, ok := errors.AsType[*problemError](err); ok {
		p, h.refused = e.Problem, e.refused
	} else if e, ok := errors.AsType[*remote.Problem](err); ok {
		p = status.Problem{Code: string(e.Code), Sentence: e.Sentence}
	}
	p.Sentence = clean(p.Sentence)
	h.problem = &p
	t.screen.line(h.Name, "%s (%s)", p.Sentence, p.Code)
}

// serves says whether a host may be a server now: by the file, or by what a swap made of it.
func (t *Turn) serves(h *host) bool { return h.Role == fleet.RoleServer || t.votes(h) }

func (t *Turn) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, h := range slices.Concat(t.hosts, t.helpers) {
		if h.runner == nil {
			continue
		}
		if h.passing != "" {
			_, _ = h.runner.Run(ctx, remote.Command{Argv: h.clean(h.passing)}) // a leftover is written over next time
		}
		_ = h.runner.Close()
	}
}
