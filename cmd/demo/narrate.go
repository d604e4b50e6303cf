package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/exadev/regrade/internal/controller"
	"github.com/exadev/regrade/internal/sim"
	"github.com/exadev/regrade/internal/swap"
)

// narrator tells what happens, as it happens, with the time since the start.
type narrator struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
	last  string // the controller's last line
	told  map[string]bool
}

func newNarrator(out io.Writer) *narrator {
	return &narrator{out: out, began: time.Now(), told: map[string]bool{}}
}

func (n *narrator) line(who, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.print(who, fmt.Sprintf(format, args...))
}

func (n *narrator) print(who, text string) {
	_, _ = fmt.Fprintf(n.out, "%6.1fs  %-11s %s\n", time.Since(n.began).Seconds(), who, text)
}

// heading is a line of its own.
func (n *narrator) heading(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, _ = fmt.Fprintf(n.out, "\n%s\n", text)
}

// hostLines are the effects worth telling, by how they begin.
var hostLines = []struct{ prefix, text string }{
	{"joining written", "confirms the join for this boot"},
	{"stop k3s agent", "stops its agent"},
	{"start k3s server", "starts k3s as a server"},
	{"role file server", "has a datastore: its role file says server"},
	{"leaving written", "notes that it is leaving"},
	{"leadership handed", "hands etcd's leadership over"},
	{"restart k3s server", "restarts with etcd alone"},
	{"role file agent", "names the agent as its coming role"},
	{"stop k3s server", "stops its server"},
	{"datastore aside", "moves its datastore aside"},
	{"start k3s agent", "starts k3s as an agent"},
	{"etcd snapshot begun", "takes an etcd snapshot"},
}

// k3sLines are k3s's doings worth telling.
var k3sLines = []string{
	"added as a learner", "etcd started as a learner", "learner promoted", "k3s server ready", "member removed",
	"removed from etcd", "k3s agent ready", "removal swallowed", "Node turned NotReady",
}

// event is called under the world's lock.
func (n *narrator) event(e sim.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch e.By {
	case "": // the controller tells its own
	case "fault":
		if e.What == "crash" || e.What == "boot" {
			n.print(e.Node, map[string]string{"crash": "LOSES POWER", "boot": "has power again and boots"}[e.What])
		}
	case "k3s":
		for _, l := range k3sLines {
			if strings.HasPrefix(e.What, l) {
				n.print(e.Node, "k3s: "+e.What)
			}
		}
	default:
		for _, l := range hostLines {
			if strings.HasPrefix(e.What, l.prefix) {
				n.print(e.By, l.text)
			}
		}
	}
}

// turn tells what the controller decided, once for each change of mind.
func (n *narrator) turn(t controller.Turn, j *judge) {
	d := t.Decision
	n.mu.Lock()
	defer n.mu.Unlock()
	line := d.Sentence
	if d.State == swap.Idle && !d.Acts() && d.Code == "NothingToDo" {
		line = "" // told in its own words
	}
	for _, w := range d.Waits {
		line += "; " + w.Sentence
	}
	if line == n.last {
		return
	}
	n.last = line
	if line == "" {
		return
	}
	if d.Code == "DecisionTaken" {
		n.print("verdict", j.now().Decision.Sentence)
	}
	n.print("controller", line)
}
