package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/doctor"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/remote"
)

// fleetFile is -f: the hosts that are asked as well, each on itself.
type fleetFile struct {
	path  string
	ssh   sshSettings
	fleet inventory.Fleet
}

func (f *fleetFile) flags(fs *pflag.FlagSet) {
	fs.StringVarP(&f.path, "file", "f", "", "fleet.yaml: ask each of its hosts over SSH as well, and take its settings where neither flag nor variable gives one")
	f.ssh.flags(fs)
}

func (f *fleetFile) given() bool { return f.path != "" }

// read reads the file and sets the flags of cmd that it has a setting for.
func (f *fleetFile) read(cmd *cobra.Command, e env.Env) error {
	if !f.given() {
		return nil
	}
	p, err := readFleet(e, f.path)
	if err != nil {
		return err
	}
	f.fleet = p.fleet
	if err := env.Read(cmd, e.Getenv); err != nil {
		return err
	}
	for _, s := range f.fleet.Settings {
		if cmd.Flags().Lookup(s.Name) == nil || env.Given(cmd.Flags(), s.Name) {
			continue
		}
		if err := cmd.Flags().Set(s.Name, s.Value); err != nil {
			return env.Usage("%s: line %d: %s: %v", f.path, s.Line, s.Name, err)
		}
	}
	return nil
}

// written are the file's hosts as a doctor compares them.
func (f *fleetFile) written() []doctor.Written {
	if !f.given() {
		return nil
	}
	out := []doctor.Written{}
	for _, h := range f.fleet.Hosts {
		out = append(out, doctor.Written{Name: h.Name, Address: h.Address, NodeIP: h.NodeIP, Takes: h.Takes(), Eligible: h.Eligible, Pinned: h.Pinned})
	}
	return out
}

// answer is what a host printed, or why there is none.
type answer struct {
	host    string
	out     []byte
	problem string
}

const (
	// together is how many hosts are asked at once.
	together = 8
	onHostAt = "/usr/local/bin/regrade"
)

// inDaemon runs regrade in the container of a Docker project's host daemon, found by its
// folder: Compose of any version labels it so.
const inDaemon = `id=$(docker ps -q --filter label=com.docker.compose.service=regrade-host --filter "label=com.docker.compose.project.working_dir=$1" | head -n 1)
[ -n "$id" ] || { echo "no container of the service regrade-host runs in the project $1" >&2; exit 125; }
shift; exec docker exec "$id" regrade "$@"`

func onHost(h inventory.Host, args []string) []string {
	if h.Platform == inventory.Docker {
		return append([]string{"sh", "-c", inDaemon, "sh", h.Project}, args...)
	}
	return append([]string{onHostAt}, args...)
}

// ask runs a command of regrade's on each host of the fleet, some at once, in the order
// of the file. A command that failed may have printed its answer all the same.
func (f *fleetFile) ask(ctx context.Context, d Deps, limit time.Duration, args ...string) []answer {
	var hosts []inventory.Host
	for _, h := range f.fleet.Hosts {
		if h.Takes() {
			hosts = append(hosts, h)
		}
	}
	out := make([]answer, len(hosts))
	room := make(chan struct{}, together)
	var all sync.WaitGroup
	for i, h := range hosts {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			out[i] = f.askHost(ctx, d, h, args)
		})
	}
	all.Wait()
	return out
}

func (f *fleetFile) askHost(ctx context.Context, d Deps, h inventory.Host, args []string) answer {
	a := answer{host: h.Name}
	target, err := remote.ParseTarget(h.SSH)
	if err != nil {
		a.problem = err.Error()
		return a
	}
	r, err := d.Dial(ctx, target, f.ssh.options())
	if err != nil {
		a.problem = err.Error()
		return a
	}
	defer func() { _ = r.Close() }() // it has answered, or never will
	got, err := r.Run(ctx, remote.Command{Argv: onHost(h, args)})
	if err != nil {
		a.problem = err.Error()
		return a
	}
	if a.out = got.Out; len(got.Out) == 0 {
		words := strings.TrimSpace(string(got.Err))
		if len(words) > 300 {
			words = words[:300]
		}
		a.problem = fmt.Sprintf("regrade there ends with status %d: %s", got.Code, words)
	}
	return a
}

// doctors are what the hosts' own doctors find, and the versions of regrade on them.
func (f *fleetFile) doctors(ctx context.Context, d Deps) (fs []doctor.Finding, versions map[string]string) {
	versions = map[string]string{}
	for _, a := range f.ask(ctx, d, 2*time.Minute, "host", "doctor", "-o", "json") {
		var doc doctor.Document
		if a.problem == "" {
			if err := json.Unmarshal(a.out, &doc); err != nil || doc.Protocol == 0 {
				a.problem = "what it printed is no finding; an older regrade has no doctor"
			}
		}
		fs = append(fs, doctor.OfHost(a.host, doc, a.problem)...)
		if a.problem == "" {
			versions[a.host] = doc.Version
		}
	}
	return fs, versions
}
