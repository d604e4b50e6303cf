package server

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/exadev/regrade/lab/standin/k3s/access"
	"github.com/exadev/regrade/lab/standin/k3s/bootstrap"
	"github.com/exadev/regrade/lab/standin/k3s/host"
	"github.com/exadev/regrade/lab/standin/k3s/layout"
	"github.com/exadev/regrade/lab/standin/k3s/supervisor"
	"github.com/exadev/regrade/lab/standin/k3s/token"
	"github.com/exadev/regrade/lab/standin/parts/pki"
)

// prepare does everything before the supervisor listens: names, decision, CA files, certificates, tokens. Its errors
// exit 1.
func (s *server) prepare(ctx context.Context) error {
	for _, w := range s.v.Warnings {
		s.log.Warn(w)
	}
	var err error
	if s.host, err = host.From(s.v); err != nil {
		return err
	}
	if err := s.refuse(); err != nil {
		return err
	}
	text, err := tokenText(s.v.Text("token"), s.v.Text("token-file"))
	if err != nil {
		return err
	}
	if s.start, err = s.decide(text); err != nil {
		return err
	}
	if s.reset() {
		if err := s.resettable(); err != nil {
			return err
		}
	} else if s.wasReset, err = dropResetFlag(s.data); err != nil {
		return err
	}
	s.log.Info("Datastore decision", "start", s.start)
	if s.start == bootstrap.StartSQLite {
		return errors.New("without --cluster-init or --server and a token k3s would run on sqlite, which this stand-in does not have")
	}
	if err := s.fetchBootstrap(ctx, text); err != nil {
		return err
	}
	if err := s.secrets(text); err != nil {
		return err
	}
	if err := pki.Ensure(pki.Config{
		Dir: s.data.Server("tls"), NodeName: s.host.NodeName,
		Addresses: append(append([]string{s.host.Advertise(s.v)}, s.host.IPs...), s.host.ExternalIPs...), Names: s.v.Split("tls-san"),
	}); err != nil {
		return err
	}
	return s.writeCredentials()
}

// refuse names the flags of k3s that the stand-in cannot honour or that k3s itself refuses.
func (s *server) refuse() error {
	switch {
	case s.v.Text("datastore-endpoint") != "" && (s.noEtcd() || s.etcdOnly()):
		return errors.New("invalid flag use; cannot use --disable-etcd or --disable-apiserver with --datastore-endpoint")
	case s.v.Text("datastore-endpoint") != "":
		return errors.New("--datastore-endpoint is not supported by this stand-in")
	case s.v.Bool("cluster-reset") && s.v.Text("server") != "":
		return errors.New("invalid flag use; cannot use --cluster-reset and --server together")
	case s.v.Text("cluster-reset-restore-path") != "":
		return errors.New("--cluster-reset-restore-path is not supported by this stand-in: it resets from the datastore alone")
	case s.noEtcd() && s.v.Text("server") == "":
		return errors.New("invalid flag use; --server is required with --disable-etcd")
	case s.noEtcd() && s.etcdOnly():
		return errors.New("invalid flag use; cannot disable both etcd and the apiserver")
	}
	if u := s.v.Text("server"); u != "" && !strings.HasPrefix(u, "https://") {
		return fmt.Errorf("only https:// URLs are supported for --server, got %s", u)
	}
	return nil
}

func (s *server) decide(text string) (bootstrap.Start, error) {
	if s.noEtcd() {
		if text == "" {
			return "", bootstrap.ErrTokenRequired
		}
		return startProxy, nil
	}
	return bootstrap.Decide(bootstrap.Facts{
		WAL: exists(s.data.WAL()), Tombstone: exists(s.data.Tombstone()),
		ServerURL: s.v.Text("server") != "", Token: text != "", ClusterInit: s.v.Bool("cluster-init"),
		RefuseTombstone: s.b.RefuseTombstoneWithoutServer,
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// tokenText prefers the file.
func tokenText(text, file string) (string, error) {
	if file == "" {
		return text, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// fetchBootstrap gets the cluster's CA files from the server to join. With a WAL a failure is only a warning.
func (s *server) fetchBootstrap(ctx context.Context, text string) error {
	url := s.v.Text("server")
	if url == "" || text == "" || s.start == bootstrap.StartNewAfterTombstone {
		return nil
	}
	err := func() error {
		tok, err := token.Parse(text, token.ServerUser)
		if err != nil {
			return err
		}
		acc, err := access.Connect(ctx, url, tok, token.ServerUser)
		if err != nil {
			return err
		}
		s.access = acc
		var bundle bootstrap.Bundle
		if err := acc.GetJSON(ctx, "/v1-k3s/server-bootstrap", 15*time.Second, &bundle); err != nil {
			return err
		}
		return bootstrap.Apply(bootstrap.Paths(s.data, pki.BootstrapFiles()), bundle)
	}()
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "newer than datastore"):
		return err
	case s.start == bootstrap.StartExisting:
		s.log.Warn("Failed to get bootstrap data from the server to join; using what is on disk", "error", err)
		return nil
	default:
		return fmt.Errorf("preparing server: failed to bootstrap cluster data: %w", err)
	}
	if s.start == bootstrap.StartExisting {
		return nil
	}
	return s.compareCritical(ctx)
}

func (s *server) compareCritical(ctx context.Context) error {
	other := bootstrap.Critical{}
	if err := s.access.GetJSON(ctx, "/v1-k3s/config", 15*time.Second, &other); err != nil {
		return fmt.Errorf("failed to get the configuration of the server to join: %w", err)
	}
	if diff := bootstrap.CriticalOf(s.v).Diff(other); len(diff) > 0 {
		return fmt.Errorf("critical configuration value mismatch between servers: %s", strings.Join(diff, "; "))
	}
	return nil
}

// secrets settles the server's and the agents' secret: flags, then server/cred/passwd, then a new one.
func (s *server) secrets(text string) error {
	onDisk, agentOnDisk, err := readPasswd(s.data.Server("cred", "passwd"))
	if err != nil {
		return err
	}
	s.secret, s.agentSecret = onDisk, ""
	if text != "" {
		tok, err := token.Parse(text, token.ServerUser)
		if err != nil {
			return err
		}
		if s.start == bootstrap.StartExisting && onDisk != "" && onDisk != tok.Secret() {
			return errors.New("bootstrap data already found and encrypted with different token")
		}
		s.secret = tok.Secret()
	}
	if s.secret == "" {
		s.secret = host.RandomHex(16)
	}
	agentText, err := tokenText(s.v.Text("agent-token"), s.v.Text("agent-token-file"))
	if err != nil {
		return err
	}
	switch {
	case agentText != "":
		tok, err := token.Parse(agentText, token.NodeUser)
		if err != nil {
			return err
		}
		s.agentSecret = tok.Secret()
	case agentOnDisk != "" && onDisk == s.secret:
		s.agentSecret = agentOnDisk
	default:
		s.agentSecret = s.secret
	}
	return nil
}

// readPasswd gives the secrets of users server and node. A missing file gives none.
func readPasswd(path string) (serverSecret, nodeSecret string, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("read passwd: %w", err)
	}
	defer func() { _ = f.Close() }()
	r := csv.NewReader(f)
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		return "", "", fmt.Errorf("read passwd: %w", err)
	}
	for _, row := range rows {
		if len(row) < 2 {
			continue
		}
		switch row[1] {
		case token.ServerUser:
			serverSecret = row[0]
		case token.NodeUser:
			nodeSecret = row[0]
		}
	}
	return serverSecret, nodeSecret, nil
}

// writeCredentials writes passwd, tokens and kubeconfigs. A file whose content is right already is left alone, as its
// age counts when CA files are compared.
func (s *server) writeCredentials() error {
	d := s.data
	passwd := fmt.Sprintf("%s,%s,%s,%s\n%s,%s,%s,%s\n", s.agentSecret, token.NodeUser, token.NodeUser, supervisor.AgentGroup,
		s.secret, token.ServerUser, token.ServerUser, supervisor.ServerGroup)
	if err := keep(d.Server("cred", "passwd"), passwd); err != nil {
		return err
	}
	if !exists(d.Server("cred", "ipsec.psk")) {
		if err := keep(d.Server("cred", "ipsec.psk"), host.RandomHex(48)); err != nil {
			return err
		}
	}
	ca, err := os.ReadFile(d.Server("tls", "server-ca.crt"))
	if err != nil {
		return fmt.Errorf("read server CA: %w", err)
	}
	s.token = token.Format(ca, token.ServerUser, s.secret)
	if err := keep(d.Token(), s.token+"\n"); err != nil {
		return err
	}
	if err := link(d.Token(), d.Server("node-token")); err != nil {
		return err
	}
	if s.agentSecret == s.secret {
		if err := link(d.Token(), d.Server("agent-token")); err != nil {
			return err
		}
	} else {
		// A link left from before must not make us overwrite the server token.
		if err := os.Remove(d.Server("agent-token")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("agent token: %w", err)
		}
		if err := keep(d.Server("agent-token"), token.Format(ca, token.NodeUser, s.agentSecret)+"\n"); err != nil {
			return err
		}
	}
	for name, cert := range map[string]string{
		"admin": "client-admin", "supervisor": "client-supervisor", "controller": "client-controller", "scheduler": "client-scheduler",
	} {
		if err := pki.WriteKubeconfig(d.Server("cred", name+".kubeconfig"), "https://127.0.0.1:6444",
			d.Server("tls", "server-ca.crt"), d.Server("tls", cert+".crt"), d.Server("tls", cert+".key")); err != nil {
			return err
		}
	}
	out := s.v.Text("write-kubeconfig")
	port := s.v.Text("https-listen-port")
	if s.etcdOnly() {
		port = s.v.Text("lb-server-port")
	}
	if err := pki.WriteAdminKubeconfig(out, "https://127.0.0.1:"+port, d.Server("tls")); err != nil {
		return err
	}
	if m := s.v.Text("write-kubeconfig-mode"); m != "" {
		mode, err := strconv.ParseUint(m, 8, 32)
		if err != nil {
			return fmt.Errorf("--write-kubeconfig-mode %s: %w", m, err)
		}
		if err := os.Chmod(out, os.FileMode(mode)); err != nil {
			return fmt.Errorf("kubeconfig mode: %w", err)
		}
	}
	return nil
}

func keep(path, content string) error {
	if b, err := os.ReadFile(path); err == nil && string(b) == content {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("folder of %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func link(to, path string) error {
	if have, err := os.Readlink(path); err == nil && have == to {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("link %s: %w", path, err)
	}
	if err := os.Symlink(to, path); err != nil {
		return fmt.Errorf("link %s: %w", path, err)
	}
	return nil
}

// moveDatastore renames the datastore to <prefix>-<unix>. Of etcd-backup ones at most 5 older are kept, counted before
// the new one is there, so that 6 can exist (k3s facts §2).
func moveDatastore(d layout.Data, prefix string, now time.Time) error {
	if prefix == "etcd-backup" {
		old, err := filepath.Glob(d.Server("db", "etcd-backup-*"))
		if err != nil {
			return fmt.Errorf("list datastore backups: %w", err)
		}
		sort.Strings(old)
		for len(old) > 5 {
			if err := os.RemoveAll(old[0]); err != nil {
				return fmt.Errorf("drop datastore backup: %w", err)
			}
			old = old[1:]
		}
	}
	to := d.Server("db", prefix+"-"+strconv.FormatInt(now.Unix(), 10))
	if err := os.Rename(d.Etcd(), to); err != nil {
		return fmt.Errorf("move datastore aside: %w", err)
	}
	return nil
}
