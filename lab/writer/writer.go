package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/exadev/regrade/lab/cluster"
	"github.com/exadev/regrade/lab/host"
)

// Namespace that the writer writes into.
const Namespace = "regrade-lab-writer"

// Label of the objects of one writer.
const runLabel = "regrade-lab/run"

// Options of a writer.
type Options struct {
	// Run tells writers of one cluster apart; small letters, digits, dashes.
	Run string
	// Interval between writes; default 50 ms, about what 20 busy controllers do.
	Interval time.Duration
	// Timeout of one write; default 5 s. How long writes stood still is the gap, not the timeout.
	Timeout time.Duration
	// Logf is told about failures; nil means nobody.
	Logf func(format string, args ...any)
}

// Server is an API server to write through.
type Server struct {
	Name string
	API  kubernetes.Interface
}

// write is one write that was acknowledged.
type write struct {
	object  string
	value   string
	version string // resourceVersion in the acknowledgement
	at      time.Time
	server  string
}

// Failure is a write that was not acknowledged. It may have happened all the same.
type Failure struct {
	At     time.Time
	Server string
	Err    error
}

func (f Failure) String() string {
	return fmt.Sprintf("%s through %s: %v", f.At.Format("15:04:05.000"), f.Server, f.Err)
}

// Writer writes ConfigMaps, one after the other, through its servers in turn: each second write makes a new object, the
// others change one of a few objects, as Leases and status documents are changed.
type Writer struct {
	options Options
	back    kubernetes.Interface
	stop    chan struct{}
	done    chan struct{}
	once    sync.Once

	mu       sync.Mutex
	servers  []Server
	acked    []write
	failures []Failure
	began    time.Time
	ended    time.Time
}

// updated is how many objects are changed over and over.
const updated = 4

// Cluster is what Start needs of a cluster.
type Cluster interface {
	// Via gives a client through this host alone, API one through any that works.
	Via(h *host.Host) (*cluster.API, error)
	API() (*cluster.API, error)
}

// Start writes through the API servers of the hosts, each by itself, with the usual options.
func Start(ctx context.Context, c Cluster, hosts ...*host.Host) (*Writer, error) {
	back, err := c.API()
	if err != nil {
		return nil, err
	}
	servers, err := Servers(c, hosts...)
	if err != nil {
		return nil, err
	}
	return New(ctx, Options{Run: fmt.Sprintf("w%d", time.Now().UnixNano())}, back, servers...)
}

// Servers gives the hosts' API servers to write through.
func Servers(c Cluster, hosts ...*host.Host) ([]Server, error) {
	var servers []Server
	for _, h := range hosts {
		api, err := c.Via(h)
		if err != nil {
			return nil, err
		}
		servers = append(servers, Server{Name: h.Name(), API: api})
	}
	return servers, nil
}

// New makes the namespace and starts to write. What was written is read back through the client given.
func New(ctx context.Context, options Options, back kubernetes.Interface, servers ...Server) (*Writer, error) {
	if len(servers) == 0 {
		return nil, errors.New("writer: no server")
	}
	if options.Interval == 0 {
		options.Interval = 50 * time.Millisecond
	}
	if options.Timeout == 0 {
		options.Timeout = 5 * time.Second
	}
	if options.Logf == nil {
		options.Logf = func(string, ...any) {}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	_, err := back.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("writer: %w", err)
	}
	w := &Writer{options: options, back: back, servers: slices.Clone(servers), stop: make(chan struct{}), done: make(chan struct{}), began: time.Now()}
	go w.loop(context.WithoutCancel(ctx))
	return w, nil
}

// Use replaces the servers, from the next write on.
func (w *Writer) Use(servers ...Server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers = slices.Clone(servers)
}

// halt ends the writing.
func (w *Writer) halt() {
	w.once.Do(func() { close(w.stop) })
	<-w.done
}

func (w *Writer) loop(ctx context.Context) {
	defer close(w.done)
	ticker := time.NewTicker(w.options.Interval)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-w.stop:
			w.mu.Lock()
			w.ended = time.Now()
			w.mu.Unlock()
			return
		case <-ticker.C:
		}
		w.mu.Lock()
		if len(w.servers) == 0 {
			w.mu.Unlock()
			continue
		}
		server := w.servers[n%len(w.servers)]
		w.mu.Unlock()
		w.write(ctx, server, n)
	}
}

// write makes the n-th write.
func (w *Writer) write(ctx context.Context, server Server, n int) {
	ctx, cancel := context.WithTimeout(ctx, w.options.Timeout)
	defer cancel()
	value := fmt.Sprintf("%08d", n)
	name := fmt.Sprintf("%s-new-%s", w.options.Run, value)
	change := n%2 == 1
	if change {
		name = fmt.Sprintf("%s-changed-%d", w.options.Run, (n/2)%updated)
	}
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{runLabel: w.options.Run}}, Data: map[string]string{"value": value},
	}
	maps := server.API.CoreV1().ConfigMaps(Namespace)
	var made *corev1.ConfigMap
	var err error
	if change {
		// Without a resourceVersion an update replaces what is there.
		made, err = maps.Update(ctx, object, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			made, err = maps.Create(ctx, object, metav1.CreateOptions{})
		}
	} else {
		made, err = maps.Create(ctx, object, metav1.CreateOptions{})
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		failure := Failure{At: now, Server: server.Name, Err: err}
		w.failures = append(w.failures, failure)
		w.options.Logf("writer: a write failed: %s", failure)
		return
	}
	w.acked = append(w.acked, write{object: name, value: value, version: made.ResourceVersion, at: now, server: server.Name})
}

// Report is what became of the writes.
type Report struct {
	// Writes were acknowledged, Failed were not.
	Writes, Failed int
	// LongestGap is the longest time between two acknowledged writes, and GapAt when it began.
	LongestGap time.Duration
	GapAt      time.Time
	// Lost are acknowledged writes that are not there.
	Lost     []string
	Failures []Failure
}

func (r Report) String() string {
	return fmt.Sprintf("writes %d, failed %d, longest gap %.2f s, lost %d", r.Writes, r.Failed, r.LongestGap.Seconds(), len(r.Lost))
}

// Gap is the longest time without an acknowledged write until now, or between two times when they are not zero.
func (w *Writer) Gap(from, to time.Time) (time.Duration, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	end := w.ended
	if end.IsZero() {
		end = time.Now()
	}
	if to.IsZero() || to.After(end) {
		to = end
	}
	if from.Before(w.began) {
		from = w.began
	}
	last, longest, at := from, time.Duration(0), from
	for _, each := range w.acked {
		if each.at.Before(from) {
			continue
		}
		until := each.at
		if until.After(to) {
			break
		}
		if gap := until.Sub(last); gap > longest {
			longest, at = gap, last
		}
		last = until
	}
	if gap := to.Sub(last); gap > longest {
		longest, at = gap, last
	}
	return longest, at
}

// Acknowledged is how many writes were acknowledged so far, Failed the writes that were not.
func (w *Writer) Acknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// Failed gives the writes that failed so far.
func (w *Writer) Failed() []Failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.failures)
}

// Stop ends the writing, reads every acknowledged write back from a quorum, and reports.
func (w *Writer) Stop(ctx context.Context) (Report, error) {
	w.halt()
	gap, at := w.Gap(time.Time{}, time.Time{})
	report := Report{LongestGap: gap, GapAt: at, Failures: w.Failed()}
	report.Failed = len(report.Failures)

	w.mu.Lock()
	acked := slices.Clone(w.acked)
	w.mu.Unlock()
	report.Writes = len(acked)
	// No resourceVersion: read from a quorum, not from a cache.
	list, err := w.back.CoreV1().ConfigMaps(Namespace).List(ctx, metav1.ListOptions{LabelSelector: runLabel + "=" + w.options.Run})
	if err != nil {
		return report, fmt.Errorf("writer: read back: %w", err)
	}
	there := map[string]string{}
	for _, object := range list.Items {
		there[object.Name] = object.Data["value"]
	}
	report.Lost = lost(acked, there)
	return report, nil
}

// lost names the acknowledged writes that are not there. Of the changes of one object the last acknowledged has to be there, or a
// later one: a write that was not acknowledged may have happened.
func lost(acked []write, there map[string]string) []string {
	var missing []string
	for _, each := range acked {
		value, found := there[each.object]
		switch {
		case !found:
			missing = append(missing, fmt.Sprintf("%s=%s, acknowledged %s by %s: not there", each.object, each.value, each.at.Format("15:04:05.000"), each.server))
		case strings.Compare(value, each.value) < 0:
			missing = append(missing, fmt.Sprintf("%s=%s, acknowledged %s by %s: it is %s", each.object, each.value, each.at.Format("15:04:05.000"), each.server, value))
		}
	}
	return missing
}
