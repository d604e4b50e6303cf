package fleetcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/reach"
	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/kube"
	"github.com/exadev/regrade/internal/provision/inventory"
)

// Nodes is what `regrade init` asks the cluster.
type Nodes interface {
	SetupNodes(ctx context.Context) ([]k3s.Node, error)
}

// InitDeps are what `regrade init` is made with; tests put a cluster in memory here.
type InitDeps struct {
	Connect func(kube.Access) (Nodes, error)
	// Version is the program's, for the API server's log.
	Version string
}

// InitProduction reaches a real cluster.
func InitProduction(version string) InitDeps {
	return InitDeps{
		Connect: func(a kube.Access) (Nodes, error) {
			conn, err := kube.Connect(a)
			if err != nil {
				return nil, err
			}
			return kube.NewClient(conn, kube.Options{}), nil
		},
		Version: version,
	}
}

// initCommand is one command line.
type initCommand struct {
	e env.Env
	d InitDeps

	cluster       reach.Cluster
	prefix, file  string
	force, schema bool
}

// NewInit makes `regrade init`.
func NewInit(e env.Env, d InitDeps) *cobra.Command {
	c := &initCommand{e: e, d: d}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a fleet's file from a running cluster",
		Long: `Init lists the cluster's Nodes and writes fleet.yaml from what they tell: servers,
agents, addresses, and what labels of regrade they have already. It changes nothing in
the cluster and reaches no host.

What speaks against regrade in this cluster stands in the file as comments and on
standard error; the file is written all the same. Containers are told from hosts by the
name that their system gives itself, and SSH is tried at each Node's address: read the
file before it is applied. On a k3s server the kubeconfig is /etc/rancher/k3s/k3s.yaml.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	c.cluster.Flags(cmd.Flags())
	cmd.Flags().StringVar(&c.prefix, "label-prefix", fleet.DefaultPrefix, "prefix of regrade's labels, annotations and taint")
	env.Bind(cmd.Flags(), "label-prefix", "FLEET_ROLE_LABEL_PREFIX")
	cmd.Flags().StringVarP(&c.file, "output", "o", "-", "file to write, which must not be there yet; - for standard output")
	cmd.Flags().BoolVar(&c.force, "force", false, "write over a file that is there")
	cmd.Flags().BoolVar(&c.schema, "schema", false, "print the JSON Schema of the file, for an editor, and ask no cluster")
	return cmd
}

func (c *initCommand) run(cmd *cobra.Command) error {
	if err := env.Read(cmd, c.e.Getenv); err != nil {
		return err
	}
	if c.schema {
		return c.write(inventory.Schema)
	}
	keys, err := fleet.NewKeys(c.prefix)
	if err != nil {
		return env.Usage("%v", err)
	}
	access, err := c.cluster.Access("regrade-init/" + c.d.Version)
	if err != nil {
		return err
	}
	if err := c.free(); err != nil { // before a cluster is asked
		return err
	}
	cluster, err := c.d.Connect(access)
	if err != nil {
		return env.Failed(err)
	}
	nodes, err := cluster.SetupNodes(cmd.Context())
	if err != nil {
		return env.Failed(err)
	}
	d := inventory.DraftOf(nodes, keys)
	if d.Servers() == 0 {
		return env.Failed(fmt.Errorf("none of the cluster's %d Nodes is a server: nothing is written", len(nodes)))
	}
	if c.cluster.Namespace != fleet.DefaultNamespace {
		d.Settings = append(d.Settings, inventory.Setting{Name: "namespace", Value: c.cluster.Namespace})
	}
	var b bytes.Buffer
	if err := d.Write(&b); err != nil {
		return env.Failed(err)
	}
	if err := c.write(b.Bytes()); err != nil {
		return err
	}
	c.tell(d, b.Bytes())
	return nil
}

// tell says what was written, and what speaks against it.
func (c *initCommand) tell(d inventory.Draft, raw []byte) {
	if len(d.Against) > 0 {
		_, _ = fmt.Fprintln(c.e.Err, "What speaks against regrade as the cluster is now:")
		for _, p := range d.Against {
			_, _ = fmt.Fprintf(c.e.Err, "  - %s (%s)\n", p.Sentence, p.Code)
		}
	}
	var names []string
	for _, s := range d.Settings {
		names = append(names, s.Name)
	}
	if _, err := inventory.Parse(raw, names); err != nil {
		_, _ = fmt.Fprintln(c.e.Err, "The file cannot be applied before this is put right in it:")
		for line := range strings.SplitSeq(err.Error(), "\n") {
			_, _ = fmt.Fprintf(c.e.Err, "  - %s\n", line)
		}
	}
	if c.file != "-" {
		_, _ = fmt.Fprintf(c.e.Err, "%s is written, with %d servers and %d agents. Read it through, then: regrade apply --check -f %s\n", c.file, d.Servers(), len(d.Hosts)-d.Servers(), c.file)
	}
}

// free refuses a file that is there.
func (c *initCommand) free() error {
	if c.file == "-" || c.force {
		return nil
	}
	if _, err := os.Lstat(c.file); err == nil {
		return c.taken()
	}
	return nil
}

func (c *initCommand) taken() error {
	return env.Usage("%s is there already; name another file, or write over it with --force", c.file)
}

// write writes the output at once: a file that is there before is not touched without
// --force, not even one that came meanwhile.
func (c *initCommand) write(raw []byte) error {
	switch {
	case c.file == "-":
		if _, err := c.e.Out.Write(raw); err != nil {
			return env.Failed(err)
		}
		return nil
	case c.force:
		if err := renameio.WriteFile(c.file, raw, 0o644); err != nil {
			return env.Failed(fmt.Errorf("write %s: %w", c.file, err))
		}
		return nil
	}
	f, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return c.taken()
	}
	if err != nil {
		return env.Failed(fmt.Errorf("write the file: %w", err))
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err != nil {
		return env.Failed(fmt.Errorf("write %s: %w", c.file, err))
	}
	return nil
}
