package fleet

import (
	"strings"
	"testing"
)

func TestKeysOfAnnotations(t *testing.T) {
	for key, ok := range map[string]bool{
		AnnotationOutOfService: true, "a/b": true, "example.com/A_b.c-9": true, "example.com/" + strings.Repeat("x", 63): true,
		"": false, "b": false, "/b": false, "a/": false, "a/b/c": false, "A/b": false, "a/-b": false, "a/b-": false, "a/b c": false, "a/ä": false,
		"example.com/" + strings.Repeat("x", 64): false, strings.Repeat("x", 254) + "/b": false,
	} {
		if err := CheckKey(key); (err == nil) != ok {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func FuzzCheckKey(f *testing.F) {
	for _, s := range []string{AnnotationOutOfService, "a/b", "/", "a.b/c_d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckKey(s) == nil && (len(s) > 253+1+63 || strings.Count(s, "/") != 1 || strings.ContainsAny(s, " \t\n\x00")) {
			t.Errorf("%q is taken for a key", s)
		}
	})
}
