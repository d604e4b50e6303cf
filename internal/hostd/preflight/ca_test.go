package preflight_test

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/preflight"
	"github.com/exadev/regrade/internal/k3s/catest"
)

// A cluster whose CA is one of an organisation gives a bundle at /cacerts, and its
// tokens carry the hash of the root alone (k3s, pkg/clientaccess/token.go).
func TestPreflightWithACABundle(t *testing.T) { // safety rule 17
	root, other := catest.New(t, "root", nil), catest.New(t, "other", nil)
	middle := catest.New(t, "middle", root)
	signs := catest.New(t, "k3s-server-ca", middle)
	bundle := catest.Bundle(signs, middle, root)
	digest := sha256.Sum256(root.Cert.Raw)
	token := func(hash string) string {
		return "token: K10" + hash + "::server:" + secret + "\nflannel-backend: none\ndisable: traefik\n"
	}
	renewed := func() []byte {
		m := catest.New(t, "middle", root)
		return catest.Bundle(catest.New(t, "k3s-server-ca", m), m, root)
	}
	const agent, server = fleet.DefaultDataDir + "/agent/server-ca.crt", fleet.DefaultDataDir + "/server/tls/server-ca.crt"
	for name, c := range map[string]struct {
		change func(s *standby)
		code   string
	}{
		"a token with the root's hash":                        {func(s *standby) { s.plant(fleet.FileServerConf, token(hex.EncodeToString(digest[:]))) }, ""},
		"a token without a hash":                              {func(*standby) {}, ""},
		"a token with the hash of the whole bundle":           {func(s *standby) { s.plant(fleet.FileServerConf, token(hash(bundle))) }, preflight.CodeOtherCA},
		"a token of another root":                             {func(s *standby) { s.plant(fleet.FileServerConf, token(hash(other.Cert.Raw))) }, preflight.CodeOtherCA},
		"an agent from before the intermediates were renewed": {func(s *standby) { s.plant(agent, string(renewed())) }, ""},
		"an agent of another root":                            {func(s *standby) { s.plant(agent, string(catest.Bundle(other))) }, preflight.CodeOtherCA},
		"a former server of this bundle":                      {func(s *standby) { s.plant(server, string(bundle)) }, ""},
		"a former server from before they were renewed":       {func(s *standby) { s.plant(server, string(renewed())) }, preflight.CodeStaleCred},
		"a former server of another root":                     {func(s *standby) { s.plant(server, string(catest.Bundle(other))) }, preflight.CodeOtherCA},
		"a server that another certificate in its bundle vouches for": {func(s *standby) {
			s.serve(other.Serving(t))
			s.voter.ca = catest.Bundle(signs, middle, root, other)
		}, preflight.CodeJoinUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandby(t)
			s.serve(signs.Serving(t))
			s.voter.ca = bundle
			s.plant(agent, string(bundle))
			c.change(s)
			p := s.c.Preflight(t.Context(), s.in)
			var codes []string
			for _, x := range p.Problems {
				codes = append(codes, x.Code)
			}
			if want := slices.DeleteFunc([]string{c.code}, func(s string) bool { return s == "" }); !slices.Equal(codes, want) {
				t.Errorf("%v, want %v", p.Problems, want)
			}
		})
	}
}

// serve has the voter answer with another certificate.
func (s *standby) serve(cert tls.Certificate) {
	s.t.Helper()
	handler := s.voter.Config.Handler
	s.voter.Close()
	s.voter.Server = httptest.NewUnstartedServer(handler)
	s.voter.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	s.voter.StartTLS()
	u, err := url.Parse(s.voter.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	s.in.JoinURLs["n1"], s.c.Ports = s.voter.URL, []string{u.Port()}
}
