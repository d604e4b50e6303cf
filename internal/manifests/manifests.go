package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"path"

	"sigs.k8s.io/yaml"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/heartbeat"
)

// Var is one environment variable of the controller.
type Var struct{ Name, Value string }

// Settings of what is rendered.
type Settings struct {
	Namespace         string
	ActuatorConfigMap string
	Image             string
	// Env are the controller's variables, in order. FLEET_ROLE_SELF is added.
	Env []Var
	// ConfigMaps renders the report map, the probes' and the status, too, without data. They
	// are to be created and never replaced: the controller makes them by itself
	// when they are absent, and what they hold is live (safety rule 25).
	ConfigMaps bool
	// Controller renders the Deployment; off where the controller runs outside.
	Controller bool
	// Probe renders the DaemonSet. ProbeEnv are its variables, in order;
	// FLEET_ROLE_NODE is added. LabelPrefix is that of the label which marks
	// eligible hosts, empty for the default; FsyncDir is the folder on each host in
	// which a standby's disk is measured.
	Probe       bool
	ProbeEnv    []Var
	LabelPrefix string
	FsyncDir    string
	// Recovery renders the Deployment of `regrade recovery` with its account and rights.
	// RecoveryEnv are its variables, in order; NODE_RECOVERY_SELF_NODE is added. Its
	// rights are those of what it does: RecoveryPrunes to delete Nodes, RecoveryEvidence
	// to read what the probes say.
	Recovery         bool
	RecoveryEnv      []Var
	RecoveryPrunes   bool
	RecoveryEvidence bool
	// Levels renders the account, rights and token of the hosts' level half: who has the
	// token can patch any Node, which is the power to remove any member.
	Levels bool
	// ProbeMetricsPort is where each probe shows its metrics and health, on its
	// host; zero for not at all.
	ProbeMetricsPort int
	// Heartbeat and Alert render those two processes, each with its account, rights and
	// ConfigMap; their variables follow, in order. Runners is what the heartbeat asks
	// about GitHub's runners, and has to be allowed to.
	Heartbeat, Alert       bool
	HeartbeatEnv, AlertEnv []Var
	Runners                heartbeat.Wanted
}

func (s Settings) keys() fleet.Keys {
	if k, err := fleet.NewKeys(s.LabelPrefix); err == nil {
		return k
	}
	return fleet.DefaultKeys() // the prefix was checked before
}

// Object is one manifest.
type Object map[string]any

// Kind, Name and Namespace of an object, for messages and tests.
func (o Object) Kind() string      { return text(o, "kind") }
func (o Object) Name() string      { return text(o, "metadata", "name") }
func (o Object) Namespace() string { return text(o, "metadata", "namespace") }

// CreateOnly says that it is created where it is absent and never replaced.
func (o Object) CreateOnly() bool {
	meta, _ := o["metadata"].(Object)
	notes, _ := meta["annotations"].(Object)
	return notes[CreateOnly] == fleet.True
}

// Of is a manifest as an API server gives it back.
func Of(raw map[string]any) Object {
	o := Object{}
	for key, v := range raw {
		if m, ok := v.(map[string]any); ok {
			v = Of(m)
		}
		o[key] = v
	}
	return o
}

// Mine are the labels by which regrade's own objects are found.
func Mine() map[string]string {
	return map[string]string{"app.kubernetes.io/part-of": "regrade", "app.kubernetes.io/managed-by": "regrade"}
}

func text(o map[string]any, keys ...string) string {
	for _, p := range keys[:len(keys)-1] {
		next, ok := o[p].(Object)
		if !ok {
			return ""
		}
		o = next
	}
	s, _ := o[keys[len(keys)-1]].(string)
	return s
}

// Objects are all manifests, in an order in which they can be applied.
func Objects(s Settings) ([]Object, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	objects := []Object{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": Object{"name": s.Namespace, "labels": labels("namespace")}},
		account(s.Namespace, fleet.ServiceAccountController, "controller"),
		account(s.Namespace, fleet.ServiceAccountHost, "host"),
		account(s.Namespace, fleet.ServiceAccountProbe, "probe"),
	}
	if s.Recovery {
		objects = append(objects, account(s.Namespace, fleet.ServiceAccountRecovery, "recovery"))
	}
	if s.Levels {
		objects = append(objects, account(s.Namespace, fleet.ServiceAccountLevel, "level"))
	}
	objects = append(objects, rights(s)...)
	objects = append(objects, token(s, HostToken, fleet.ServiceAccountHost, "host"))
	if s.Levels {
		objects = append(objects, token(s, LevelToken, fleet.ServiceAccountLevel, "level"))
	}
	if s.ConfigMaps {
		for _, name := range []string{s.ActuatorConfigMap, fleet.ConfigMapProbe, fleet.ConfigMapStatus} {
			objects = append(objects, Object{
				"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": Object{
					"name": name, "namespace": s.Namespace, "labels": labels("controller"),
					"annotations": Object{CreateOnly: fleet.True},
				},
			})
		}
	}
	if s.Controller {
		objects = append(objects, deployment(s))
	}
	if s.Probe {
		objects = append(objects, daemonSet(s))
	}
	if s.Recovery {
		objects = append(objects, recoveryDeployment(s))
	}
	return append(objects, health(s)...), nil
}

const (
	// HostToken is the Secret with the host daemons' token.
	HostToken = fleet.ServiceAccountHost + "-token"
	// LevelToken is the Secret with that of their level half.
	LevelToken = fleet.ServiceAccountLevel + "-token"
	// CreateOnly marks a manifest that is created where absent and never replaced.
	CreateOnly = "regrade.exadev.com/create-only"
)

func (s Settings) check() error {
	if err := fleet.CheckNamespace(s.Namespace); err != nil {
		return err
	}
	if err := fleet.CheckName(s.ActuatorConfigMap); err != nil {
		return fmt.Errorf("the ConfigMap of the reports: %w", err)
	}
	switch {
	case s.ActuatorConfigMap == fleet.ConfigMapStatus:
		return errors.New("reports and status cannot share a ConfigMap")
	case s.ActuatorConfigMap == fleet.ConfigMapProbe:
		return errors.New("reports and the probes' windows cannot share a ConfigMap")
	case s.Namespace == fleet.LeaseNamespace || s.Namespace == fleet.KubeletLeaseNamespace:
		return fmt.Errorf("regrade needs a namespace of its own, not %s", s.Namespace)
	case s.Controller && s.Image == "":
		return errors.New("the controller's Deployment needs an image")
	case s.Probe && s.Image == "":
		return errors.New("the probes' DaemonSet needs an image")
	case (s.Heartbeat || s.Alert) && s.Image == "":
		return errors.New("the Deployments of heartbeat and alert need an image")
	case s.Recovery && s.Image == "":
		return errors.New("the Deployment of recovery needs an image")
	case s.Probe && !path.IsAbs(s.FsyncDir):
		return fmt.Errorf("the folder in which disks are measured: %q is no absolute path", s.FsyncDir)
	case s.ProbeMetricsPort < 0 || s.ProbeMetricsPort > 65535:
		return fmt.Errorf("the port of the probes' metrics: %d is none", s.ProbeMetricsPort)
	}
	if s.LabelPrefix != "" {
		if _, err := fleet.NewKeys(s.LabelPrefix); err != nil {
			return err
		}
	}
	return nil
}

func labels(component string) Object {
	return Object{
		"app.kubernetes.io/name": "regrade", "app.kubernetes.io/part-of": "regrade",
		"app.kubernetes.io/component": component, "app.kubernetes.io/managed-by": "regrade",
	}
}

func account(namespace, name, component string) Object {
	return Object{
		"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": Object{"name": name, "namespace": namespace, "labels": labels(component)},
		// The Deployment asks for its token itself; nothing else shall get one.
		"automountServiceAccountToken": false,
	}
}

// token is a Secret that the token controller fills in; a kubeconfig on the hosts carries
// the token (R-D1-10).
func token(s Settings, name, account, component string) Object {
	return Object{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
		"metadata": Object{
			"name": name, "namespace": s.Namespace, "labels": labels(component),
			"annotations": Object{"kubernetes.io/service-account.name": account},
		},
	}
}

// YAML is all of them as one document stream.
func YAML(objects []Object) ([]byte, error) {
	var b bytes.Buffer
	for _, o := range objects {
		raw, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("manifests: %s %s: %w", o.Kind(), o.Name(), err)
		}
		b.WriteString("---\n")
		if o.CreateOnly() {
			b.WriteString("# Create where absent, never replace: what it holds is live.\n")
		}
		b.Write(raw)
	}
	return b.Bytes(), nil
}
