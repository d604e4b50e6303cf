package main

import (
	"flag"
	"fmt"
	"io"
	"time"
)

// options of the demo.
type options struct {
	hosts int
	fault string
	fast  bool
}

// Faults that the demo can show.
const (
	faultSlow  = "slow"
	faultCrash = "crash"
	faultNone  = "none"
)

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.SetOutput(out)
	f.IntVar(&o.hosts, "hosts", 5, "hosts in all, 4 to 9: three voters (five from seven hosts on), the others standbys")
	f.StringVar(&o.fault, "fault", faultSlow, "what goes wrong: slow (a voter's link), crash (and that voter loses power in the middle of its swap), none")
	f.BoolVar(&o.fast, "fast", false, "shorten k3s's 15 s promotion tick and etcd's timeouts")
	f.Usage = func() {
		_, _ = fmt.Fprintf(out, "demo: a voter swap on one machine, with real etcd members and simulated hosts\n\n")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.hosts < 4 || o.hosts > 9:
		return o, fmt.Errorf("--hosts %d: want 4 to 9", o.hosts)
	case o.fault != faultSlow && o.fault != faultCrash && o.fault != faultNone:
		return o, fmt.Errorf("--fault %q: want slow, crash or none", o.fault)
	}
	return o, nil
}

func (o options) voters() int {
	if o.hosts >= 7 {
		return 5
	}
	return 3
}

// timing is how long things take that are k3s's, etcd's or Kubernetes' own.
type timing struct {
	heartbeat, election time.Duration
	promotion           time.Duration // k3s's tick
	gone                time.Duration // silence until a Node is NotReady
	sample              time.Duration
	window              int
	quiet               time.Duration // healthy time before the fault, and after
	limit               time.Duration // for all of it
}

func (o options) timing() timing {
	t := timing{
		heartbeat: 100 * time.Millisecond, election: time.Second, promotion: 15 * time.Second, gone: 8 * time.Second,
		sample: 150 * time.Millisecond, window: 15, quiet: 3 * time.Second, limit: 3 * time.Minute,
	}
	if o.fast {
		t.promotion, t.gone, t.quiet = time.Second, 4*time.Second, time.Second
		t.sample, t.window = 80*time.Millisecond, 12
	}
	return t
}

// period is what the samples are said to come in: twice as long as they do, so
// that a machine that is busy with five etcds does not make its probes silent.
func (t timing) period() time.Duration { return 2 * t.sample }
