package project

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/provision/setup"
)

// Settings are the daemon's as this host has them, with the kubeconfig where this process
// finds it; nil for a host that has none, which was never in a swap.
func (h Host) Settings(d setup.Desired) (*settings.Host, error) {
	return h.settings(d.DockerPart().Folder)
}

// SettingsOf are the same of a host that was set up.
func (h Host) SettingsOf(r *Record) (*settings.Host, error) {
	if r == nil {
		return nil, nil
	}
	return h.settings(r.Folder)
}

func (h Host) settings(folder string) (*settings.Host, error) {
	e, _, err := h.env(folder)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(in(folder, meant(varSettings, e.Get(varSettings))), filepath.Base(fleet.FileHostConfig))
	raw, err := os.ReadFile(h.at(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the daemon's settings: %w", err)
	}
	s, err := settings.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("the daemon's settings: %s: %w", path, err)
	}
	s.Kubeconfig = h.at(filepath.Join(in(folder, meant(varK3sDir, e.Get(varK3sDir))), filepath.Base(s.Kubeconfig)))
	return &s, nil
}
