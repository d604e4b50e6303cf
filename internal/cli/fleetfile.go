package cli

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/manifests"
	"github.com/exadev/regrade/internal/provision/inventory"
)

// notSettings are flags of `regrade manifests` that say nothing of a fleet.
var notSettings = []string{"kubeconfig", "context", "configmaps", "help"}

// fleetSettings are the keys that `settings` of fleet.yaml may have, with their defaults.
func fleetSettings() (out []inventory.Setting) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	newRendering(env.Env{}).flags(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(notSettings, f.Name) {
			out = append(out, inventory.Setting{Name: f.Name, Value: f.DefValue})
		}
	})
	return out
}

// FleetSettings are the names alone.
func FleetSettings() (names []string) {
	for _, s := range fleetSettings() {
		names = append(names, s.Name)
	}
	return names
}

// plan is fleet.yaml, read, with the objects that its settings come to.
type plan struct {
	fleet    inventory.Fleet
	settings settings
	objects  []manifests.Object
	levels   bool
	// image is regrade's; imageAsked: the file names it.
	image      string
	imageAsked bool
}

// maxFleet bounds fleet.yaml.
const maxFleet = 1 << 20

// readFleet reads fleet.yaml; "-" is standard input. What it says is all that counts: variables of
// the person who runs this do not.
func readFleet(e env.Env, file string) (plan, error) {
	raw, err := content(e, file)
	if err != nil {
		return plan{}, env.Usage("%v", err)
	}
	f, err := inventory.Parse(raw, FleetSettings())
	if err != nil {
		return plan{}, env.Usage("%s: %v", file, err)
	}
	e.Getenv = func(string) string { return "" }
	r := newRendering(e)
	cmd := &cobra.Command{Use: "manifests"}
	r.flags(cmd.Flags())
	for _, s := range f.Settings {
		if err := cmd.Flags().Set(s.Name, s.Value); err != nil {
			return plan{}, env.Usage("%s: line %d: settings.%s: %v", file, s.Line, s.Name, err)
		}
	}
	if err := cmd.Flags().Set(inventory.KeyMaxServers, strconv.Itoa(f.MaxServers)); err != nil {
		return plan{}, env.Usage("%s: %s: %v", file, inventory.KeyMaxServers, err)
	}
	// What is live is created where it is absent: the daemons write into it before a controller's
	// image is there.
	r.m.ConfigMaps = true
	objects, err := r.objects(cmd)
	if err != nil {
		return plan{}, env.Usage("%s: settings: %v", file, err)
	}
	_, asked := f.Setting("image")
	return plan{fleet: f, settings: r.s, objects: objects, levels: r.m.Levels, image: r.m.Image, imageAsked: asked}, nil
}

func content(e env.Env, file string) ([]byte, error) {
	if file == "" { // a script's variable that is not set
		return nil, errors.New("--file is empty: name the fleet's file, or - for standard input")
	}
	in := e.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	return io.ReadAll(io.LimitReader(in, maxFleet+1))
}
