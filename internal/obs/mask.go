package obs

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// least is how long a secret is at least that is looked for wherever it stands: a shorter
// one is in too many words.
const least = 5

// look is what looks like a secret in a log or a document, with what stands in its place.
// It is looked for only in a line that has one of the hints, in small letters, in it: that
// is a hundred times cheaper.
type look struct {
	hints   []string
	pattern *regexp.Regexp
	with    string
}

// looks are in the order in which they are looked for. Rather too much than too little: a
// masked word costs a question, a secret a new one.
var looks = []look{
	// A k3s token with the hash of the CA (k3s-facts §10.1).
	{[]string{"k10"}, regexp.MustCompile(`K10[0-9a-fA-F]{16,}::[^\s"'\\,;]+`), hidden},
	// A JSON Web Token, as of a ServiceAccount.
	{[]string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`), hidden},
	// A bootstrap token.
	{[]string{"."}, regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), hidden},
	{
		[]string{"gho_", "ghp_", "ghu_", "ghs_", "ghr_", "github_pat_", "xox", "akia", "glpat-"},
		regexp.MustCompile(`\b(?:gh[pousr]_|github_pat_|xox[abprs]-|AKIA|glpat-)[A-Za-z0-9_-]{10,}`), hidden,
	},
	{[]string{"bearer", "basic"}, regexp.MustCompile(`(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}`), "${1}" + hidden},
	// scheme://user:password@host
	{[]string{"://"}, regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s"'@]+@`), "${1}" + hidden + "@"},
	// --token x, and token: x, "secret_key":"x", PASSWORD=x, with its quotes kept, so that a
	// document stays one. A list begins with none of these.
	{words, regexp.MustCompile(`(?i)(--?[a-z0-9-]*(?:` + anyWord + `)[a-z0-9-]*[ =])("[^"\n]*"|'[^'\n]*'|[^\s"',;\[\]{}]+)`), "${1}" + hidden},
	{words, regexp.MustCompile(named + `\\"[^"\n]*?\\"`), `${1}\"` + hidden + `\"`},
	{words, regexp.MustCompile(named + `"(?:[^"\\\n]|\\.)*"`), `${1}"` + hidden + `"`},
	{words, regexp.MustCompile(named + `'[^'\n]*'`), "${1}'" + hidden + "'"},
	{words, regexp.MustCompile(named + `[^\s"'\\,;\[\]{}]+`), "${1}" + hidden},
}

// words are what names of secrets have in them.
var words = []string{
	"token", "passwd", "password", "passphrase", "secret", "apikey", "api-key", "api_key", "accesskey", "access-key", "access_key",
	"client-key", "client_key", "privatekey", "private-key", "private_key", "credential", "authorization", "vpn-auth", "vpn_auth", "datastore-endpoint", "datastore_endpoint",
}

var anyWord = strings.Join(words, "|")

// named is what a value of such a name stands behind.
var named = `(?i)([a-z0-9_.-]*(?:` + anyWord + `)[a-z0-9_-]*\\?["']?[ \t]*[:=][ \t]*)`

// keys are private keys, which go over several lines.
const keyHint = "PRIVATE KEY-----"

var keys = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`)

// Masker masks the given secrets wherever they stand in a text, and what looks like one.
func Masker(known ...Secret) func([]byte) []byte {
	var each [][]byte
	for _, k := range known {
		for _, form := range forms(k.Reveal()) {
			if len(form) >= least && !slices.ContainsFunc(each, func(e []byte) bool { return string(e) == form }) {
				each = append(each, []byte(form))
			}
		}
	}
	// The longest first: one may be part of another.
	slices.SortFunc(each, func(a, b []byte) int { return len(b) - len(a) })
	return func(text []byte) []byte {
		text = bytes.Clone(text)
		for _, e := range each {
			text = bytes.ReplaceAll(text, e, []byte(hidden))
		}
		if bytes.Contains(text, []byte(keyHint)) {
			text = keys.ReplaceAll(text, []byte(hidden))
		}
		lines := bytes.SplitAfter(text, []byte("\n"))
		for i, line := range lines {
			small := bytes.ToLower(line)
			for _, l := range looks {
				if slices.ContainsFunc(l.hints, func(hint string) bool { return bytes.Contains(small, []byte(hint)) }) {
					line = l.pattern.ReplaceAll(line, []byte(l.with))
				}
			}
			lines[i] = line
		}
		return bytes.Join(lines, nil)
	}
}

// forms are a secret as it may stand in a text: whole, and by itself where it is part of
// a k3s token.
func forms(s string) []string {
	s = strings.TrimSpace(s)
	out := []string{s}
	if _, cred, ok := strings.Cut(s, "::"); ok {
		if _, secret, ok := strings.Cut(cred, ":"); ok {
			out = append(out, secret)
		}
	}
	return out
}
