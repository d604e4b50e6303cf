package fleet

import (
	"fmt"
	"strings"
)

// CheckNamespace says what is wrong with the name of a namespace: an RFC 1123
// label (k8s.io/apimachinery, validation.IsDNS1123Label).
func CheckNamespace(name string) error {
	if !label(name) {
		return fmt.Errorf("namespace %q: want lower-case letters, digits and dashes, at most 63, beginning and ending with a letter or digit", name)
	}
	return nil
}

// CheckName says what is wrong with the name of another object, such as a Node or
// a ConfigMap: an RFC 1123 subdomain (validation.IsDNS1123Subdomain).
func CheckName(name string) error {
	if !subdomain(name) {
		return fmt.Errorf("name %q: want lower-case letters, digits, dashes and dots, at most 253, each part beginning and ending with a letter or digit", name)
	}
	return nil
}

func subdomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if !chars(part) {
			return false
		}
	}
	return true
}

func label(s string) bool { return len(s) <= 63 && chars(s) }

// chars says whether s is one part of a name: of a subdomain, the API server bounds
// only the whole.
func chars(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// CheckKey says what is wrong with the key of a label or annotation: a DNS name, a
// slash and a name of letters, digits, dashes, dots and underscores, at most 63
// (k8s.io/apimachinery, validation.IsQualifiedName). Here the DNS name is required:
// keys without one are people's own.
func CheckKey(key string) error {
	host, name, ok := strings.Cut(key, "/")
	if !ok || !subdomain(host) || !keyName(name) {
		return fmt.Errorf("key %q: want a DNS name, a slash and a name, like example.com/some-name", key)
	}
	return nil
}

func keyName(s string) bool {
	alphanumeric := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	if s == "" || len(s) > 63 || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}
