package project_test

import (
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/project/projecttest"
	"github.com/exadev/regrade/internal/provision/setup"
)

// machine is a host on which commands are run.
type machine struct {
	*projecttest.Machine
	t *testing.T
}

func newMachine(t *testing.T) *machine { return &machine{Machine: projecttest.New(t), t: t} }

const document = `
role: ROLE
eligible: true
labels: {rack: r1}
host:
  node: NODE
  platform: docker
  servers: ["https://10.0.0.2:6443", "https://10.0.0.3:6443"]
join: {n1: "https://10.0.0.1:6443", n2: "https://10.0.0.2:6443", n3: "https://10.0.0.3:6443", n4: "https://10.0.0.4:6443"}
kubeconfig: |
  users: [{user: {token: hush-kube}}]
voter:
  cluster-init: ["true"]
  tls-san: [k8s.example]
  disable: [traefik]
  node-ip: [10.0.0.9]
  data-dir: [/elsewhere]
token: hush-server
docker:
  agent-token: hush-agent
  images: {k3s: "rancher/k3s:v1.36.3-k3s1", regrade: "regrade:v1"}
  flags: {node-ip: [10.0.0.1]}
`

func desired(t *testing.T, role fleet.Role, node string, change ...func(*setup.Desired)) setup.Desired {
	t.Helper()
	d, err := setup.Parse([]byte(strings.NewReplacer("ROLE", string(role), "NODE", node).Replace(document)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(&d)
	}
	return d
}

// run is one `regrade host setup`.
func (m *machine) run(d setup.Desired) (project.Plan, []string, error) {
	m.t.Helper()
	m.Calls = nil
	h := m.Host()
	seen, err := h.Look(m.t.Context(), d)
	if err != nil {
		return project.Plan{}, nil, err
	}
	plan, problems := project.Make(seen, d)
	var codes []string
	for _, p := range problems {
		codes = append(codes, p.Code+": "+p.Sentence)
	}
	if len(codes) > 0 {
		return plan, codes, nil
	}
	if err := h.Bring(m.t.Context(), plan); err != nil {
		return plan, nil, err
	}
	return plan, nil, h.Carry(m.t.Context(), plan)
}

// setUp is one that has to succeed.
func (m *machine) setUp(d setup.Desired) project.Plan {
	m.t.Helper()
	plan, problems, err := m.run(d)
	if err != nil || len(problems) > 0 {
		m.t.Fatal(problems, err)
	}
	return plan
}

func (m *machine) remove() ([]string, error) {
	m.t.Helper()
	m.Calls = nil
	h := m.Host()
	seen, err := h.LookForRemoval(m.t.Context())
	if err != nil {
		return nil, err
	}
	removal, problems := project.MakeRemoval(seen)
	var codes []string
	for _, p := range problems {
		codes = append(codes, p.Code+": "+p.Sentence)
	}
	if len(codes) > 0 {
		return codes, nil
	}
	return nil, h.Remove(m.t.Context(), removal)
}
