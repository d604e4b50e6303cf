package apply

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/manifests"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/setup"
	"github.com/exadev/regrade/internal/remote"
	"github.com/exadev/regrade/internal/status"
)

// identity prints who k3s ran as on a host, and then the CA of its cluster.
const (
	identity = `cat "$1/` + k3s.FileKubeletCert + `" 2>/dev/null; echo; echo "` + identityEnd + `"
cat "$1/` + k3s.FileAgentCA + `" 2>/dev/null || cat "$1/` + k3s.FileServerCA + `" 2>/dev/null; :`
	identityEnd = "== CA"
)

// whose refuses all of it, before anything is written, where a host that was reached is not the
// Node that it is taken for, or is of another cluster than the kubeconfig: a wrong address in
// fleet.yaml would give one host what is another's. Of a host whose k3s never ran there is
// nothing to compare.
func (t *Turn) whose(ctx context.Context) error {
	ca, err := t.authority(ctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var problems []status.Problem
	t.each(ctx, atOnce, t.hosts, func(ctx context.Context, h *host) error {
		found, err := h.itself(ctx, ca)
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, found...)
		return err
	})
	if len(problems) == 0 {
		return nil
	}
	slices.SortFunc(problems, func(a, b status.Problem) int { return strings.Compare(a.Sentence, b.Sentence) })
	return &Refusal{problems}
}

// authority is the CA that the cluster publishes, nil where it does not.
func (t *Turn) authority(ctx context.Context) ([]byte, error) {
	ca, err := t.cluster.RootCA(ctx)
	if err == nil && len(ca) == 0 {
		_, ca, err = t.cluster.Token(ctx, t.Namespace, manifests.HostToken)
	}
	return ca, err
}

// itself says how a host is another one than it is taken for. A Docker host's k3s has its files in
// a volume, and is asked by its own setup.
func (h *host) itself(ctx context.Context, ca []byte) (problems []status.Problem, _ error) {
	if h.Platform != inventory.Native {
		return nil, nil
	}
	dir := settings.Defaults().DataDir
	if own, ok := h.Settings["data-dir"].(string); ok {
		dir = own
	}
	r, err := h.runner.Run(ctx, remote.Command{Argv: []string{"sh", "-c", identity, "sh", dir}})
	if err != nil {
		return nil, err
	}
	cert, its, ok := bytes.Cut(r.Out, []byte("\n"+identityEnd+"\n"))
	if !ok {
		return nil, failed(CodeHostFailed, "it does not say which Node it is: %s", said(r))
	}
	say := func(code, format string, args ...any) {
		problems = append(problems, status.Problem{Code: code, Sentence: h.Name + ": " + fmt.Sprintf(format, args...)})
	}
	if len(bytes.TrimSpace(cert)) > 0 {
		node, err := k3s.NodeOfCert(cert)
		if err != nil {
			return nil, failed(CodeHostFailed, "it does not say which Node it is: %v", err)
		}
		if node != h.Name {
			say(setup.CodeOtherNode, "the host at %s is the Node %q by its kubelet's certificate", h.SSH, node)
		}
	}
	if its = bytes.TrimSpace(its); len(its) > 0 && len(ca) > 0 && !k3s.SameCA(its, ca) {
		say(setup.CodeOtherCA, "the k3s of the host at %s is of another cluster than the kubeconfig: their CAs differ", h.SSH)
	}
	return problems, nil
}
