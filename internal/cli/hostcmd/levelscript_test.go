package hostcmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/clitest"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/hostcmd"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/lease"
	"github.com/exadev/regrade/internal/level"
	"github.com/exadev/regrade/internal/platform"
	"github.com/exadev/regrade/internal/status"
	"github.com/exadev/regrade/internal/swap"
)

// The scripts run this binary as regrade, on a host in memory: the voter a of a, b and c,
// but for what change.json says of it. What a command leaves is host.json, which the next
// one begins with, and `effects` has one line for each change of the host.
func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"regrade": regrade}) }

func TestScripts(t *testing.T) { // issue 6: `regrade level` shows and sets by hand with the same gates
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": clitest.Exits},
	})
}

// world is what host.json keeps, and change.json changes, of a rig.
type world struct {
	Now     time.Time       `json:"now"`
	Facts   platform.Facts  `json:"facts"`
	Self    *swap.Node      `json:"self"`
	Lease   lease.Lease     `json:"lease"`
	Own     fleet.MemberID  `json:"own"`
	Members []status.Member `json:"members"`
	Ready   map[string]bool `json:"ready"`
	Silent  []string        `json:"silent"`
	Memory  level.Reading   `json:"memory"`
	NoAPI   bool            `json:"no_api"`
	Lost    bool            `json:"lost"` // the server does not come back from a restart
	Others  others          `json:"others"`
}

func (r *rig) world() world {
	return world{Now: r.now, Facts: r.host.Facts(), Self: r.self, Lease: r.lease, Own: r.own, Members: r.members, Ready: r.ready, Silent: r.silent, Memory: r.memory, NoAPI: r.noAPI, Others: r.others}
}

func (r *rig) put(w world) {
	r.now, r.self, r.lease, r.own, r.members, r.ready, r.silent = w.Now, w.Self, w.Lease, w.Own, w.Members, w.Ready, w.Silent
	r.memory, r.noAPI, r.others = w.Memory, w.NoAPI, w.Others
	r.host.Change(func(f *platform.Facts) { *f = w.Facts })
	on := r.host.OnAdvance
	r.host.OnAdvance = func(f *platform.Facts) {
		on(f)
		r.self.Ready = f.Server.Level != fleet.LevelEtcdOnly
		if w.Lost && f.Server.Level != w.Facts.Server.Level {
			r.own = 0
		}
	}
}

// begin is the host of the script: host.json, or the one that each script begins with, and
// what change.json says over it, once.
func begin() (*rig, error) {
	r := bareRig("a")
	r.members = r.members[:3]
	for i, n := range []string{"a", "b", "c"} {
		r.members[i].ClientURLs = []string{"https://" + n + ":2379"}
	}
	r.self.Ready, r.lease = true, lease.Lease{Exists: true}
	r.memory = level.Reading{Pressure: &level.Pressure{}, AvailableBytes: 2 << 30, TotalBytes: 4 << 30}
	w := r.world()
	for _, file := range []string{"host.json", "change.json"} {
		raw, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(raw, &w)
		}
		if err != nil {
			return nil, err
		}
	}
	r.put(w)
	return r, nil
}

// end keeps what the command has left.
func (r *rig) end() error {
	raw, err := json.MarshalIndent(r.world(), "", "  ")
	if err != nil {
		return err
	}
	var calls []byte
	for _, c := range r.host.Calls {
		calls = append(calls, c+"\n"...)
	}
	return errors.Join(os.WriteFile("host.json", raw, 0o600), os.WriteFile("effects", calls, 0o600), os.Rename("change.json", "changed.json"))
}

func regrade() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	e := env.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now}
	r, err := begin()
	if err != nil {
		e.Err.Write([]byte(err.Error() + "\n")) //nolint:errcheck // it ends with 125 all the same
		os.Exit(125)
	}
	e.Now = func() time.Time { return r.now }
	d := cli.Deps{}
	d.More = append(d.More, hostcmd.NewLevel(e, r.deps()))
	code := cli.Run(ctx, os.Args[1:], e, d)
	if err := r.end(); err != nil && !errors.Is(err, os.ErrNotExist) {
		code = 125
	}
	os.Exit(code)
}
