package obs_test

import (
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/obs"
)

// Safety rule 31.
func TestWhatLooksLikeASecretIsMasked(t *testing.T) {
	mask := obs.Masker("known-one", "K10"+obs.Secret(strings.Repeat("ab", 32))+"::server:of-a-token", "abc")
	hash := strings.Repeat("0f", 32)
	for text, want := range map[string]string{
		"token is known-one, and known-one":                                       "token is ***, and ***",
		"of-a-token by itself":                                                    "*** by itself",
		"join with K10" + hash + "::server:s3cr3t, or not":                        "join with ***, or not",
		`{"msg":"K10` + hash + `::node:s3cr3t"}`:                                  `{"msg":"***"}`,
		"Authorization: Bearer abcdef.ghi":                                        "Authorization: *** ***",
		"curl -H 'bearer  abcdefgh12'":                                            "curl -H 'bearer  ***'",
		"k3s server --token s3cr3t --disable traefik":                             "k3s server --token *** --disable traefik",
		"k3s server --agent-token=s3cr3t":                                         "k3s server --agent-token=***",
		"K3S_TOKEN=s3cr3t K3S_URL=https://10.0.0.1:6443":                          "K3S_TOKEN=*** K3S_URL=https://10.0.0.1:6443",
		"token: 's3 cr3t'":                                                        "token: '***'",
		`"password":"s3 cr3t","node":"n1"`:                                        `"password":"***","node":"n1"`,
		`{\"token\":\"s3cr3t\"}`:                                                  `{\"token\":\"***\"}`,
		`{"secret_key":"s3\"cr3t"}`:                                               `{"secret_key":"***"}`,
		"etcd-s3-secret-key: s3cr3t":                                              "etcd-s3-secret-key: ***",
		"client-key-data: LS0t":                                                   "client-key-data: ***",
		"mysql://user:s3cr3t@host/db":                                             "mysql://***@host/db",
		"eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJr.c2lnbmF0dXJl ended":                    "*** ended",
		"join abcdef.0123456789abcdef":                                            "join ***",
		"ghp_0123456789abcdefghij":                                                "***",
		"a\n-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nb": "a\n***\nb",
		"-----BEGIN PRIVATE KEY-----\nMHc":                                        "***",
		// What is no secret stays.
		"member 1f3c of cluster c1, leader n1":         "member 1f3c of cluster c1, leader n1",
		"n1 is not Ready (NotReady)":                   "n1 is not Ready (NotReady)",
		"swap 20261129T120000Z-n1-n4":                  "swap 20261129T120000Z-n1-n4",
		"the server token cannot be read":              "the server token cannot be read",
		"abc is too short to be looked for everywhere": "abc is too short to be looked for everywhere",
		"https://10.0.0.1:6443/readyz":                 "https://10.0.0.1:6443/readyz",
		"version v1.36.3+k3s1":                         "version v1.36.3+k3s1",
	} {
		if got := string(mask([]byte(text))); got != want {
			t.Errorf("%s\n\tgives %s\n\twant  %s", text, got, want)
		}
	}
}
