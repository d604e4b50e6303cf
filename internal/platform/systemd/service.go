package systemd

import (
	"context"
	"fmt"

	"github.com/coreos/go-systemd/v22/dbus"
)

// Service is how systemd would start a unit: with all files and drop-ins in.
type Service struct {
	UnitState
	// Commands are its start commands, split into words.
	Commands [][]string
	// Environment are its KEY=value lines, EnvironmentFiles the files that are read over
	// them, in order; a name may be a pattern.
	Environment      []string
	EnvironmentFiles []string
}

// Manager is the manager as whoever installs units uses it.
type Manager interface {
	Bus
	Service(ctx context.Context, name string) (Service, error)
	Disable(ctx context.Context, name string) error
}

// NewManager is the host's own systemd.
func NewManager() Manager { return &systemBus{} }

func (b *systemBus) Service(ctx context.Context, name string) (Service, error) {
	var s Service
	err := b.call(ctx, "look at "+name, func(ctx context.Context, c *dbus.Conn) error {
		p, err := c.GetAllPropertiesContext(ctx, name)
		if err != nil {
			return err
		}
		s, err = service(p)
		return err
	})
	return s, err
}

func service(p map[string]any) (Service, error) {
	s := Service{UnitState: unitState(p)}
	rows, _ := p["ExecStart"].([][]any)
	for _, row := range rows {
		if len(row) < 2 {
			return Service{}, fmt.Errorf("a start command of %d parts", len(row))
		}
		program, _ := row[0].(string)
		args, ok := row[1].([]string)
		if !ok || len(args) == 0 {
			return Service{}, fmt.Errorf("a start command of another form")
		}
		s.Commands = append(s.Commands, append([]string{program}, args[1:]...))
	}
	s.Environment, _ = p["Environment"].([]string)
	files, _ := p["EnvironmentFiles"].([][]any)
	for _, f := range files {
		if len(f) > 0 {
			if path, ok := f[0].(string); ok {
				s.EnvironmentFiles = append(s.EnvironmentFiles, path)
			}
		}
	}
	return s, nil
}

func (b *systemBus) Disable(ctx context.Context, name string) error {
	return b.call(ctx, "disable "+name, func(ctx context.Context, c *dbus.Conn) error {
		_, err := c.DisableUnitFilesContext(ctx, []string{name}, false)
		return err
	})
}
