package scenarios

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exadev/regrade/lab/cluster"
)

// oneAddress is the Service kubernetes as a pod has it: one address. Each new connection goes to one of the endpoints
// that the Service has at that moment and stays there, as kube-proxy has it; to prefer, while it is one of them, which
// kube-proxy does one time in as many. picks are the connections so far.
func (s *scenario) oneAddress(prefer string) (url string, picks func() []string) {
	s.t.Helper()
	a := &address{s: s, api: s.api(), prefer: s.Host(prefer).IP().String()}
	s.must(s.Lab.Within(func() (err error) {
		a.Listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}))
	s.Lab.Defer(func() { _ = a.Close() })
	go func() {
		for {
			c, err := a.Accept()
			if err != nil {
				return
			}
			go a.carry(c)
		}
	}()
	return "https://" + a.Addr().String(), func() []string {
		a.mu.Lock()
		defer a.mu.Unlock()
		return slices.Clone(a.log)
	}
}

type address struct {
	net.Listener
	s      *scenario
	api    *cluster.API
	prefer string
	mu     sync.Mutex
	log    []string
}

// pick is where a new connection goes, empty when the endpoints cannot be read.
func (a *address) pick(ctx context.Context) string {
	slice, err := a.api.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return ""
	}
	var all []string
	for _, e := range slice.Endpoints {
		all = append(all, e.Addresses...)
	}
	if len(all) == 0 {
		return ""
	}
	to := all[rand.IntN(len(all))]
	if slices.Contains(all, a.prefer) {
		to = a.prefer
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log = append(a.log, fmt.Sprintf("%s %s of %v", time.Now().UTC().Format("15:04:05.000"), to, all))
	return to
}

// carry copies both ways until one side ends.
func (a *address) carry(c net.Conn) {
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	to := a.pick(ctx)
	if to == "" {
		return
	}
	b, err := a.s.Lab.DialContext(ctx, "tcp", net.JoinHostPort(to, "6443"))
	if err != nil {
		return
	}
	defer func() { _ = b.Close() }()
	go func() {
		_, _ = io.Copy(c, b)
		_ = c.Close()
	}()
	_, _ = io.Copy(b, c)
}
