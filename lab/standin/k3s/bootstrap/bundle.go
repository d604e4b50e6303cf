package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/exadev/regrade/lab/standin/k3s/layout"
)

// Bundle is the content of /v1-k3s/server-bootstrap: files that must be equal on all servers, by their name there.
type Bundle map[string]File

// File is one file of a Bundle.
type File struct {
	Content   []byte
	Timestamp time.Time
}

// newerBy is how much newer a differing file on disk must be to stop the server.
const newerBy = 3 * time.Second

// Paths maps names in the bundle to paths on disk. tls are the files below server/tls, as package pki names them.
func Paths(d layout.Data, tls map[string]string) map[string]string {
	out := map[string]string{
		"PasswdFile": d.Server("cred", "passwd"),
		"IPSECKey":   d.Server("cred", "ipsec.psk"),
	}
	for name, file := range tls {
		out[name] = d.Server("tls", file)
	}
	return out
}

// Read makes a bundle of what is on disk. Missing files are left out.
func Read(paths map[string]string) (Bundle, error) {
	out := Bundle{}
	for name, path := range paths {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read bootstrap file: %w", err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("read bootstrap file: %w", err)
		}
		out[name] = File{Content: b, Timestamp: info.ModTime()}
	}
	return out, nil
}

// Compare finds what to write over and what stops the server: files that differ and are at least 3 s newer on disk
// than the cluster's copy (k3s facts §3.2).
func Compare(disk, cluster Bundle) (write, newer []string) {
	for name, want := range cluster {
		have, ok := disk[name]
		switch {
		case ok && bytes.Equal(have.Content, want.Content):
		case ok && have.Timestamp.Sub(want.Timestamp) >= newerBy:
			newer = append(newer, name)
		default:
			write = append(write, name)
		}
	}
	sort.Strings(write)
	sort.Strings(newer)
	return write, newer
}

// Apply brings the files on disk in line with the cluster's, or fails as k3s does when one is newer.
func Apply(paths map[string]string, cluster Bundle) error {
	disk, err := Read(paths)
	if err != nil {
		return err
	}
	write, newer := Compare(disk, cluster)
	if len(newer) > 0 {
		var files []string
		for _, n := range newer {
			files = append(files, paths[n])
		}
		return fmt.Errorf("%s newer than datastore and could cause a cluster outage. Remove the file(s) from disk and restart to be recreated from datastore",
			strings.Join(files, ", "))
	}
	for _, n := range write {
		path, known := paths[n]
		if !known {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("bootstrap folder: %w", err)
		}
		if err := os.WriteFile(path, cluster[n].Content, 0o600); err != nil {
			return fmt.Errorf("write bootstrap file: %w", err)
		}
	}
	return nil
}
