package nodepassword

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAPasswordMatchesItsHashAndNoOtherDoes(t *testing.T) {
	h, err := Hash("secret")
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(h, "secret"); err != nil {
		t.Error(err)
	}
	if err := Verify(h, "Secret"); !errors.Is(err, ErrMismatch) {
		t.Errorf("got %v", err)
	}
	if err := Verify("$2:x", "secret"); err == nil || errors.Is(err, ErrMismatch) {
		t.Errorf("an unknown format must be an error of its own, got %v", err)
	}
}

func TestTheHostsFileIsMadeOnceAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node", "password")
	first, err := Ensure(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Ensure(path)
	if err != nil || first != second || len(first) != 32 {
		t.Errorf("%q %q %v", first, second, err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != first+"\n" {
		t.Errorf("%q %v", b, err)
	}
}
