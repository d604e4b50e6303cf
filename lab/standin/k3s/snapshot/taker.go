package snapshot

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/exadev/regrade/lab/standin/k3s/membership"
)

// extraMetadata is the ConfigMap whose data goes into a snapshot's metadata.
const extraMetadata = "k3s-etcd-snapshot-extra-metadata"

// Clients are the ways to an apiserver; nil before there is one.
type Clients struct {
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
}

// Taker takes snapshots on one server.
type Taker struct {
	// Stream reads the local member's database. IsLearner says that there is none to take.
	Stream    func(context.Context) (io.ReadCloser, error)
	IsLearner func(context.Context) (bool, error)
	// Clients waits until there is an apiserver.
	Clients     func(context.Context) (Clients, error)
	Node        string
	Dir         string
	MetadataDir string
	TokenHash   string
	Compress    bool
	Log         *slog.Logger

	busy sync.Mutex
}

// Request is the body of POST /db/snapshot.
type Request struct {
	Operation string   `json:"operation"`
	Name      []string `json:"name,omitempty"`
	Dir       *string  `json:"dir,omitempty"`
	Compress  *bool    `json:"compress,omitempty"`
	Retention *int     `json:"retention,omitempty"`
}

// Answer lists what was done.
type Answer struct {
	Created []string `json:"created,omitempty"`
	Deleted []string `json:"deleted,omitempty"`
}

// Errors of Handle.
var (
	ErrBusy    = errors.New("snapshot save already in progress")
	ErrLearner = errors.New("skipping snapshot: not supported for learner")
)

// Handle answers one request: list is what the server knows, save takes one.
func (t *Taker) Handle(ctx context.Context, body []byte) (any, error) {
	var r Request
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("snapshot request: %w", err)
	}
	dir, compress := t.Dir, t.Compress
	if r.Dir != nil && *r.Dir != "" {
		dir = *r.Dir
	}
	if r.Compress != nil {
		compress = *r.Compress
	}
	switch r.Operation {
	case "save":
		base := "on-demand"
		if len(r.Name) > 0 && r.Name[0] != "" {
			base = r.Name[0]
		}
		f, err := t.Save(ctx, base, dir, compress, 0)
		if err != nil {
			return nil, err
		}
		return Answer{Created: []string{f.Name}}, nil
	case "list":
		return t.objects(ctx)
	default:
		return nil, fmt.Errorf("snapshot operation %q is not known to the stand-in", r.Operation)
	}
}

// Save takes a snapshot: file, then object, then retention (keep above 0), then a reconcile.
func (t *Taker) Save(ctx context.Context, base, dir string, compress bool, keep int) (File, error) {
	if !t.busy.TryLock() {
		return File{}, ErrBusy
	}
	defer t.busy.Unlock()
	learner, err := t.IsLearner(ctx)
	if err != nil {
		return File{}, err
	}
	if learner {
		t.Log.Warn("Unable to take snapshot: not supported for learner")
		return File{}, ErrLearner
	}
	if dir == t.Dir && strings.HasSuffix(dir, filepath.Join("db", "snapshots")) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return File{}, fmt.Errorf("snapshot folder: %w", err)
		}
	}
	f := File{Node: t.Node, Created: time.Now().Truncate(time.Second), TokenHash: t.TokenHash}
	f.Name = FileName(base, t.Node, f.Created)
	if compress {
		f.Name += ".zip"
	}
	f.Path = filepath.Join(dir, f.Name)
	t.Log.Info("Saving etcd snapshot to " + f.Path)
	if f.Size, err = t.write(ctx, f.Path, compress); err != nil {
		return File{}, err
	}
	clients, err := t.Clients(ctx)
	if err != nil {
		return File{}, err
	}
	if cm, err := clients.Kube.CoreV1().ConfigMaps("kube-system").Get(ctx, extraMetadata, metav1.GetOptions{}); err == nil {
		f.Metadata = cm.Data
	}
	if err := writeMetadata(t.MetadataDir, f); err != nil {
		return File{}, err
	}
	if err := createObject(ctx, clients.Dynamic, f); err != nil {
		t.Log.Error("Failed to record snapshot; the next reconcile will", "error", err)
	}
	if keep > 0 {
		if err := t.prune(base, keep); err != nil {
			return File{}, err
		}
	}
	if err := t.reconcile(ctx, clients); err != nil {
		t.Log.Error("Failed to reconcile snapshots", "error", err)
	}
	return f, nil
}

// write copies the database to path through path.part, so that a snapshot is complete when it is there.
func (t *Taker) write(ctx context.Context, path string, compress bool) (int64, error) {
	stream, err := t.Stream(ctx)
	if err != nil {
		return 0, fmt.Errorf("read etcd snapshot: %w", err)
	}
	defer func() { _ = stream.Close() }()
	part := path + ".part"
	out, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("write snapshot: %w", err)
	}
	err = copyTo(out, stream, strings.TrimSuffix(filepath.Base(path), ".zip"), compress)
	if err == nil {
		err = out.Sync()
	}
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part)
		return 0, fmt.Errorf("write snapshot: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("write snapshot: %w", err)
	}
	return info.Size(), nil
}

func copyTo(out io.Writer, in io.Reader, name string, compress bool) error {
	if !compress {
		_, err := io.Copy(out, in)
		return err
	}
	z := zip.NewWriter(out)
	w, err := z.Create(name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, in); err != nil {
		return err
	}
	return z.Close()
}

func (t *Taker) prune(base string, keep int) error {
	files, err := List(t.Dir, t.MetadataDir, t.Node)
	if err != nil {
		return err
	}
	for _, f := range Prune(files, base, t.Node, keep) {
		if err := os.Remove(f.Path); err != nil {
			return fmt.Errorf("prune snapshot: %w", err)
		}
		if err := os.Remove(filepath.Join(t.MetadataDir, f.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("prune snapshot metadata: %w", err)
		}
	}
	return nil
}

func (t *Taker) objects(ctx context.Context) (any, error) {
	clients, err := t.Clients(ctx)
	if err != nil {
		return nil, err
	}
	list, err := clients.Dynamic.Resource(fileResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list snapshot objects: %w", err)
	}
	return list, nil
}

// reconcile makes objects and files agree and stamps the Node.
func (t *Taker) reconcile(ctx context.Context, clients Clients) error {
	files, err := List(t.Dir, t.MetadataDir, t.Node)
	if err != nil {
		return err
	}
	nodes, err := clients.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: membership.EtcdLabel + "=true"})
	if err != nil {
		return fmt.Errorf("list etcd nodes: %w", err)
	}
	if err := reconcileObjects(ctx, clients.Dynamic, files, t.Node, namesOf(nodes)); err != nil {
		return err
	}
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		LocalTimestamp: time.Now().UTC().Format(time.RFC3339),
	}}})
	if err != nil {
		return fmt.Errorf("snapshot timestamp: %w", err)
	}
	if _, err := clients.Kube.CoreV1().Nodes().Patch(ctx, t.Node, types.MergePatchType, b, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("stamp node %s: %w", t.Node, err)
	}
	return nil
}

func namesOf(l *corev1.NodeList) map[string]bool {
	out := map[string]bool{}
	for _, n := range l.Items {
		out[n.Name] = true
	}
	return out
}

// Reconcile runs at the start and then every interval, give or take 5 %.
func (t *Taker) Reconcile(ctx context.Context, interval time.Duration) {
	for {
		clients, err := t.Clients(ctx)
		if err == nil {
			err = t.reconcile(ctx, clients)
		}
		wait := interval + time.Duration((rand.Float64()-0.5)*0.1*float64(interval))
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			t.Log.Error("Failed to reconcile snapshots", "error", err)
			wait = min(wait, 10*time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
