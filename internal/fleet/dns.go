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
