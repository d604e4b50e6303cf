package systemd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// The break check: leave the wait out of versionOf.
func TestABinaryThatDoesNotSayItsVersionIsAskedSeldom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k3s")
	plant := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	plant("broken")
	for name, answer := range map[string]func() ([]byte, error){
		"it fails":          func() ([]byte, error) { return nil, errors.New("exec format error") },
		"it says something": func() ([]byte, error) { return []byte("usage: k3s\n"), nil },
	} {
		t.Run(name, func(t *testing.T) {
			plant("broken")
			synctest.Test(t, func(t *testing.T) {
				asked, says := 0, answer
				v := versionOf{run: func(context.Context, string) ([]byte, error) { asked++; return says() }}
				for range 3600 { // an hour of passes
					if got := v.of(t.Context(), path); got != "" {
						t.Fatal(got)
					}
					time.Sleep(time.Second)
				}
				if asked < 10 || asked > 20 {
					t.Errorf("asked %d times in an hour", asked)
				}
				// One that is put right is asked at once.
				plant("a whole k3s")
				says = func() ([]byte, error) { return []byte("k3s version v1.36.3+k3s1 (abc)\n"), nil }
				before := asked
				for range 10 {
					if got := v.of(t.Context(), path); got != "v1.36.3+k3s1" {
						t.Errorf("version %q", got)
					}
				}
				if asked != before+1 {
					t.Errorf("asked %d times", asked-before)
				}
			})
		})
	}
}

func TestAGlanceThatGivesUpSaysNothingOfTheBinary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k3s")
	if err := os.WriteFile(path, []byte("slow"), 0o700); err != nil {
		t.Fatal(err)
	}
	v := versionOf{run: func(ctx context.Context, _ string) ([]byte, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return []byte("k3s version v1.36.3+k3s1 (abc)\n"), nil
	}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got := v.of(gone, path); got != "" {
		t.Errorf("version %q", got)
	}
	if got := v.of(t.Context(), path); got != "v1.36.3+k3s1" {
		t.Errorf("the pass after it: version %q", got)
	}
}
