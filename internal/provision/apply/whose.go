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
	"github.com/exadev/regrade/internal/provision/project"
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
		found, err := t.itself(ctx, h, ca)
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

// itself says how a host is another one than it is taken for.
func (t *Turn) itself(ctx context.Context, h *host, ca []byte) ([]status.Problem, error) {
	if h.Platform == inventory.Docker {
		return t.inProject(ctx, h, ca)
	}
	dir := settings.Defaults().DataDir
	if own, ok := h.Settings["data-dir"].(string); ok {
		dir = own
	}
	who, err := h.ranAs(ctx, dir)
	if err != nil {
		return nil, err
	}
	if found := h.differs(who, ca); len(found) > 0 || who.node != "" {
		return found, nil
	}
	// No k3s has run here as a unit: it may be a Docker host's machine all the same.
	if all, err := h.boxes(ctx, project.Named(setup.Docker{}, project.Env{})); err == nil {
		return t.another(ctx, h, ca, all)
	}
	return nil, nil // an engine that does not answer is none of a native host's
}

// identified is who k3s ran as in a data folder; what it has not said is empty.
type identified struct {
	node string
	ca   []byte
}

func (h *host) ranAs(ctx context.Context, dir string) (identified, error) {
	r, err := h.runner.Run(ctx, remote.Command{Argv: []string{"sh", "-c", identity, "sh", dir}})
	if err != nil {
		return identified{}, err
	}
	cert, ca, ok := bytes.Cut(r.Out, []byte("\n"+identityEnd+"\n"))
	if !ok {
		return identified{}, failed(CodeHostFailed, "it does not say which Node it is: %s", said(r))
	}
	who := identified{ca: bytes.TrimSpace(ca)}
	if len(bytes.TrimSpace(cert)) > 0 {
		if who.node, err = k3s.NodeOfCert(cert); err != nil {
			return identified{}, failed(CodeHostFailed, "it does not say which Node it is: %v", err)
		}
	}
	return who, nil
}

// differs says how the k3s that is taken for the host's is another Node's, or of another cluster.
func (h *host) differs(who identified, ca []byte) (problems []status.Problem) {
	if who.node != "" && who.node != h.Name {
		problems = append(problems, h.is(setup.CodeOtherNode, "the host at %s is the Node %q by its kubelet's certificate", h.SSH, who.node))
	}
	if len(who.ca) > 0 && len(ca) > 0 && !k3s.SameCA(who.ca, ca) {
		problems = append(problems, h.is(setup.CodeOtherCA, "the k3s of the host at %s is of another cluster than the kubeconfig: their CAs differ", h.SSH))
	}
	return problems
}

func (h *host) is(code, format string, args ...any) status.Problem {
	return status.Problem{Code: code, Sentence: h.Name + ": " + fmt.Sprintf(format, args...)}
}
