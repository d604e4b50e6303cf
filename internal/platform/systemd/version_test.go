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
				if asked < 60 || asked > 65 { // soon at first, then each minute
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

// NixOS: a link to a wrapper in a store, of one length in every version and of the time 1.
func TestABinaryOfTheSameSizeAndTimeIsAsked(t *testing.T) { // safety rule 9
	dir := t.TempDir()
	link := filepath.Join(dir, "k3s")
	upgrade := func(version string) {
		t.Helper()
		file := filepath.Join(dir, version)
		if err := os.WriteFile(file, []byte(version), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	v := versionOf{run: func(_ context.Context, path string) ([]byte, error) {
		asked++
		raw, err := os.ReadFile(path)
		return []byte("k3s version " + string(raw) + " (abc)\n"), err
	}}
	for _, version := range []string{"v1.36.2+k3s1", "v1.36.3+k3s1"} {
		upgrade(version)
		for range 3 {
			if got := v.of(t.Context(), link); got != version {
				t.Errorf("version %q, it is %s", got, version)
			}
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times of two files", asked)
	}
}
