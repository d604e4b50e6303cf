package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// conform holds a runner against what Runner says. It changes files of this machine, below
// a folder of the test's.
func conform(t *testing.T, open func(t *testing.T) Runner) {
	t.Run("run", func(t *testing.T) { conformRun(t, open(t)) })
	t.Run("end", func(t *testing.T) { conformEnd(t, open(t)) })
	t.Run("put", func(t *testing.T) { conformPut(t, open(t)) })
	t.Run("put fails", func(t *testing.T) { conformPutFails(t, open(t)) })
}

func conformRun(t *testing.T, r Runner) {
	for name, test := range map[string]struct {
		argv []string
		in   io.Reader
		want Result
	}{
		"both outputs and the status are kept": {argv: []string{"sh", "-c", "echo out; echo err >&2; exit 3"}, want: Result{Code: 3, Out: []byte("out\n"), Err: []byte("err\n")}},
		"a signal is kept":                     {argv: []string{"sh", "-c", "kill -TERM $$"}, want: Result{Code: 143, Signal: "TERM"}},
		"arguments arrive as they are": {
			argv: []string{"printf", `[%s]`, "a b", "", `'"$HOME\`, "*", "-x", "two\nlines", "ä", "$(id)", "!", "~"},
			want: Result{Out: []byte(`[a b][]['"$HOME\][*][-x]` + "[two\nlines][ä][$(id)][!][~]")},
		},
		"input arrives":                    {argv: []string{"cat"}, in: strings.NewReader("one\ntwo"), want: Result{Out: []byte("one\ntwo")}},
		"no input is an empty one":         {argv: []string{"cat"}},
		"input that is not read":           {argv: []string{"true"}, in: bytes.NewReader(make([]byte, 8<<20))},
		"it is root":                       {argv: []string{"id", "-u"}, want: Result{Out: []byte("0\n")}},
		"it is in the folder /":            {argv: []string{"pwd"}, want: Result{Out: []byte("/\n")}},
		"messages are in English":          {argv: []string{"sh", "-c", "echo $LC_ALL"}, want: Result{Out: []byte("C\n")}},
		"a program in sbin is found":       {argv: []string{"sh", "-c", "command -v sysctl chroot >/dev/null"}},
		"zeros and no newline at the end":  {argv: []string{"printf", `a\000b`}, want: Result{Out: []byte("a\x00b")}},
		"a line that looks like a mark":    {argv: []string{"echo", "regrade-"}, want: Result{Out: []byte("regrade-\n")}},
		"an argument that is a flag of sh": {argv: []string{"echo", "-c", "--", "x"}, want: Result{Out: []byte("-c -- x\n")}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.Run(t.Context(), Command{Argv: test.argv, In: test.in})
			if err != nil {
				t.Fatal(err)
			}
			if got.Code != test.want.Code || got.Signal != test.want.Signal || !bytes.Equal(got.Out, test.want.Out) || !bytes.Equal(got.Err, test.want.Err) {
				t.Errorf("got %d %q %q %q, want %d %q %q %q", got.Code, got.Signal, got.Out, got.Err,
					test.want.Code, test.want.Signal, test.want.Out, test.want.Err)
			}
		})
	}
	for name, test := range map[string]struct {
		argv []string
		code int
		says string
	}{
		"a program that is not there is a result":     {[]string{"no-such-program"}, 127, "not found"},
		"a path that is not there is a result":        {[]string{"/no/such/program"}, 127, "not found"},
		"a file that is no program is a result":       {[]string{"/etc/passwd"}, 126, "ermission denied"},
		"a PATH of the host is not the test's folder": {[]string{"server_test.go"}, 127, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.Run(t.Context(), Command{Argv: test.argv})
			if err != nil || got.Code != test.code || !strings.Contains(string(got.Err), test.says) {
				t.Errorf("got %+v %q, %v, want %d", got, got.Err, err, test.code)
			}
		})
	}
	t.Run("what no program can be given is an error", func(t *testing.T) {
		for _, argv := range [][]string{nil, {"echo", "a\x00b"}} {
			if got, err := r.Run(t.Context(), Command{Argv: argv}); err == nil {
				t.Errorf("%q: got %+v, want an error", argv, got)
			}
		}
	})
	t.Run("output to the bound is kept, more is an error", func(t *testing.T) {
		got, err := r.Run(t.Context(), Command{Argv: []string{"head", "-c", strconv.Itoa(MaxOutput), "/dev/zero"}})
		if err != nil || len(got.Out) != MaxOutput {
			t.Errorf("to the bound: %d bytes, %v", len(got.Out), err)
		}
		for _, script := range []string{"head -c " + strconv.Itoa(MaxOutput+1) + " /dev/zero", "exec cat /dev/zero", "exec cat /dev/zero >&2"} {
			if _, err := r.Run(t.Context(), Command{Argv: []string{"sh", "-c", script}}); CodeOf(err) != OutputTooLong {
				t.Errorf("%s: got %v, want %s", script, err, OutputTooLong)
			}
		}
	})
}

// conformEnd: nothing of a command is left when Run is back.
func conformEnd(t *testing.T, r Runner) {
	broken := errors.New("the reader broke")
	for name, test := range map[string]struct {
		script string
		in     func(begun func()) io.Reader
		cancel bool
		want   error
	}{
		"a context that ends ends the command":        {script: "exec sleep 1000", cancel: true, want: context.Canceled},
		"and what it started":                         {script: "sleep 1000 & echo $! >>$0; sleep 1000", cancel: true, want: context.Canceled},
		"one that heeds no SIGTERM is killed":         {script: "trap '' TERM; sleep 1000; sleep 1000", cancel: true, want: context.Canceled},
		"a reader that fails ends the command":        {script: "cat >/dev/null; echo whole >>$0.whole", in: failing(broken), want: broken},
		"a reader that fails ends one that reads not": {script: "sleep 1000", in: failing(broken), want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			note := filepath.Join(t.TempDir(), "pids")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			begun := func() {
				eventually(t, "the command begins", func() bool { b, _ := os.ReadFile(note); return bytes.Contains(b, []byte("\n")) })
			}
			c := Command{Argv: []string{"sh", "-c", "echo $$ >>$0; " + test.script, note}}
			if test.in != nil {
				c.In = test.in(begun)
			}
			if test.cancel {
				go func() { begun(); cancel() }()
			}
			got, err := r.Run(ctx, c)
			if !errors.Is(err, test.want) {
				t.Errorf("got %+v, %v, want %v", got, err, test.want)
			}
			pids, err := os.ReadFile(note)
			if err != nil || len(pids) == 0 {
				t.Fatalf("the command did not begin: %v", err)
			}
			for pid := range strings.FieldsSeq(string(pids)) {
				n, _ := strconv.Atoi(pid)
				eventually(t, "process "+pid+" is gone", func() bool { return !runs(n) })
			}
			if _, err := os.Stat(note + ".whole"); err == nil {
				t.Error("half of the input was taken for the whole")
			}
		})
	}
	t.Run("a context that has ended runs nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		file := filepath.Join(t.TempDir(), "made")
		if _, err := r.Run(ctx, Command{Argv: []string{"touch", file}}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Error("it ran")
		}
	})
}

// failing gives a reader that fails once the command has begun.
func failing(err error) func(func()) io.Reader {
	return func(begun func()) io.Reader {
		return io.MultiReader(strings.NewReader("half"), readerFunc(func([]byte) (int, error) { begun(); return 0, err }))
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// runs says whether a process runs: a zombie does not.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(rest, []byte("Z"))
}

// eventually waits for another process.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("not in 20 s: %s", what)
			return
		}
	}
}

func conformPut(t *testing.T, r Runner) {
	dir := filepath.Join(t.TempDir(), "a folder's $name")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "-file 'x'")
	big := bytes.Repeat([]byte("0123456789abcdef\x00\n"), 300_000)
	for _, test := range []struct {
		name    string
		content io.Reader
		want    []byte
		mode    fs.FileMode
	}{
		{"a new file", strings.NewReader("one\n"), []byte("one\n"), 0o600},
		{"it is replaced, with its mode", strings.NewReader("two"), []byte("two"), 0o644},
		{"by an empty one", strings.NewReader(""), nil, 0o400},
		{"by a large one", bytes.NewReader(big), big, 0o755},
		{"from a reader that cannot seek", io.MultiReader(strings.NewReader("thr"), strings.NewReader("ee")), []byte("three"), 0o640},
		{"from where a reader stands", from(t, "skipped,kept", 8), []byte("kept"), 0o600},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := r.Put(t.Context(), path, test.content, test.mode); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, test.want) {
				t.Errorf("got %d bytes %.20q, %v, want %d %.20q", len(got), got, err, len(test.want), test.want)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != test.mode {
				t.Errorf("mode %v, want %v", info.Mode(), test.mode)
			}
			if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 0 {
				t.Errorf("it is of user %d", uid)
			}
			alone(t, path)
		})
	}
	t.Run("a reader of the old file sees the old file", func(t *testing.T) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if err := r.Put(t.Context(), path, strings.NewReader("new"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(f); string(got) != "kept" {
			t.Errorf("got %q: it was written in place", got)
		}
	})
	t.Run("a link is replaced, not what it points at", func(t *testing.T) {
		target, link := filepath.Join(t.TempDir(), "target"), filepath.Join(t.TempDir(), "link")
		write(t, target, "kept", 0o600)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if err := r.Put(t.Context(), link, strings.NewReader("new"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(target); string(got) != "kept" {
			t.Errorf("the link's target holds %q", got)
		}
	})
}

// from is a file that is read from somewhere on.
func from(t *testing.T, content string, at int64) io.Reader {
	r := strings.NewReader(content)
	if _, err := r.Seek(at, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	return r
}

// alone: no temporary file is left beside.
func alone(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if left := slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == filepath.Base(path) || e.IsDir() }); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func conformPutFails(t *testing.T, r Runner) {
	broken := errors.New("the reader broke")
	dir := t.TempDir()
	full, fixed := small(t, "size=64k"), small(t, "size=64k")
	write(t, filepath.Join(fixed, "file"), "old", 0o640)
	if err := syscall.Mount("", fixed, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		path    string
		content io.Reader
		mode    fs.FileMode
		old     bool // the file is there
		code    Code
		want    error
	}{
		"a missing folder":            {path: dir + "/none/file", code: NoFolder},
		"a folder that is a file":     {path: write(t, dir+"/plain", "", 0o600) + "/file", code: NoFolder},
		"a folder in its place":       {path: folder(t, dir+"/sub"), code: WriteFailed},
		"a full disk":                 {path: full + "/file", old: true, content: bytes.NewReader(make([]byte, 1<<20)), code: DiskFull},
		"a file system for reading":   {path: fixed + "/file", old: true, code: ReadOnly},
		"a reader that fails":         {path: dir + "/file", old: true, content: io.MultiReader(strings.NewReader("half"), readerFunc(func([]byte) (int, error) { return 0, broken })), want: broken},
		"a name that is not absolute": {path: "file"},
		"a name with dots":            {path: dir + "/../file"},
		"a folder's name":             {path: dir + "/"},
		"a mode that is more":         {path: dir + "/file", mode: fs.ModeSetuid | 0o755, old: true},
	} {
		t.Run(name, func(t *testing.T) {
			if test.old && test.code != ReadOnly {
				write(t, test.path, "old", 0o640)
			}
			if test.content == nil {
				test.content = strings.NewReader("new")
			}
			if test.mode == 0 {
				test.mode = 0o600
			}
			err := r.Put(t.Context(), test.path, test.content, test.mode)
			if err == nil {
				t.Fatal("it was written")
			}
			if CodeOf(err) != test.code || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %q %v, want %q %v", CodeOf(err), err, test.code, test.want)
			}
			if !strings.Contains(err.Error(), test.path) {
				t.Errorf("%v does not name the file", err)
			}
			if test.old {
				got, err := os.ReadFile(test.path)
				if err != nil || string(got) != "old" {
					t.Errorf("what was there is now %.20q, %v", got, err)
				}
				if info, err := os.Stat(test.path); err != nil || info.Mode() != 0o640 {
					t.Errorf("its mode is now %v, %v", info.Mode(), err)
				}
				entries, _ := os.ReadDir(filepath.Dir(test.path))
				for _, e := range entries {
					if strings.HasPrefix(e.Name(), ".") {
						t.Errorf("left behind: %s", e.Name())
					}
				}
			}
		})
	}
}

func folder(t *testing.T, path string) string {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// small mounts a small file system.
func small(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatalf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// needRoot skips what changes files as root.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: commands and files are to be root's")
	}
}

func TestThisMachineIsARunner(t *testing.T) {
	needRoot(t)
	conform(t, func(t *testing.T) Runner {
		r, err := Dial(t.Context(), Target{Local: true}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	})
}

func TestAHostOverSSHIsARunner(t *testing.T) {
	needRoot(t)
	s, o := host(t)
	conformOver(t, s, o)
}

// Under sudo a shell waits for the command, and says where its outputs end.
func TestAHostUnderSudoIsARunner(t *testing.T) {
	needRoot(t)
	s, o := host(t)
	s.env = append(os.Environ(), "SUDO_UID=1000")
	conformOver(t, s, o)
}

func conformOver(t *testing.T, s *server, o Options) {
	conform(t, func(t *testing.T) Runner {
		r, err := dial(t, s, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	})
}
