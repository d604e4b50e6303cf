// Package snapshot takes etcd snapshots, names them and keeps their ETCDSnapshotFile objects (k3s facts §8).
package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Names of labels and annotations on ETCDSnapshotFile objects.
const (
	NodeLabel           = "etcd.k3s.cattle.io/snapshot-storage-node"
	TokenHashAnnotation = "etcd.k3s.cattle.io/snapshot-token-hash"
	LocalTimestamp      = "etcd.k3s.cattle.io/local-snapshots-timestamp"
)

// File is one snapshot on this host's disk.
type File struct {
	Name      string
	Node      string
	Path      string
	Size      int64
	Created   time.Time
	TokenHash string
	Metadata  map[string]string
}

// Location is the file's URL.
func (f File) Location() string { return "file://" + f.Path }

// FileName is <base>-<node name>-<unix seconds>.
func FileName(base, node string, at time.Time) string {
	return fmt.Sprintf("%s-%s-%d", base, node, at.Unix())
}

var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// ObjectName is the name of the snapshot's object: local-, the lower-cased file name, and 6 hex characters of the
// SHA-256 of node name and location. A name Kubernetes would refuse is replaced in the middle.
func ObjectName(f File) string {
	sum := sha256.Sum256([]byte(f.Node + f.Location()))
	suffix := hex.EncodeToString(sum[:])[:6]
	name := "local-" + strings.ToLower(f.Name) + "-" + suffix
	if len(name) <= 240 && objectName.MatchString(name) {
		return name
	}
	short, _, _ := strings.Cut(f.Node, ".")
	ext := ""
	if strings.HasSuffix(f.Name, ".zip") {
		ext = ".zip"
	}
	return fmt.Sprintf("local-etcd-snapshot-%s-%d%s-%s", strings.ToLower(short), f.Created.Unix(), ext, suffix)
}

// metadataFile is what .metadata/<name> holds.
type metadataFile struct {
	TokenHash string            `json:"tokenHash,omitempty"`
	Node      string            `json:"nodeName,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

// List reads the snapshots in dir that carry a time in their name, oldest first. node is what a snapshot without
// metadata belongs to.
func List(dir, metadataDir, node string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var out []File
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || strings.HasSuffix(e.Name(), ".part") {
			continue
		}
		base := strings.TrimSuffix(e.Name(), ".zip")
		unix, err := strconv.ParseInt(base[strings.LastIndex(base, "-")+1:], 10, 64)
		if err != nil {
			continue
		}
		f := File{Name: e.Name(), Node: node, Path: filepath.Join(dir, e.Name()), Size: info.Size(), Created: time.Unix(unix, 0)}
		if b, err := os.ReadFile(filepath.Join(metadataDir, e.Name())); err == nil {
			var m metadataFile
			if err := json.Unmarshal(b, &m); err == nil {
				f.TokenHash, f.Metadata = m.TokenHash, m.Metadata
			}
		}
		out = append(out, f)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Created.Before(out[j].Created) })
	return out, nil
}

// Prune lists what retention drops: all but the newest keep of those with this base name on this node.
func Prune(files []File, base, node string, keep int) []File {
	var mine []File
	for _, f := range files {
		if strings.HasPrefix(f.Name, base+"-"+node+"-") {
			mine = append(mine, f)
		}
	}
	if keep < 1 || len(mine) <= keep {
		return nil
	}
	return mine[:len(mine)-keep]
}

// writeMetadata keeps token hash and extra metadata beside the snapshots, under the same base name.
func writeMetadata(dir string, f File) error {
	b, err := json.Marshal(metadataFile{TokenHash: f.TokenHash, Node: f.Node, Metadata: f.Metadata})
	if err != nil {
		return fmt.Errorf("snapshot metadata: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("snapshot metadata: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, f.Name), b, 0o600); err != nil {
		return fmt.Errorf("snapshot metadata: %w", err)
	}
	return nil
}
