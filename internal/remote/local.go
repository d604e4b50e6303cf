package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/exadev/regrade/internal/platform/atomicfile"
)

// local is this machine.
type local struct{}

func (local) Close() error { return nil }

// paths are added to PATH where it lacks them, as on every host.
var paths = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

func (l local) Run(ctx context.Context, c Command) (Result, error) {
	r, err := l.run(ctx, c)
	if err != nil {
		return Result{}, fmt.Errorf("run %s: %w", name(c), err)
	}
	return r, nil
}

func (local) run(ctx context.Context, c Command) (Result, error) {
	if len(c.Argv) == 0 {
		return Result{}, errors.New("there is no program")
	}
	if _, err := quote(c.Argv); err != nil {
		return Result{}, err
	}
	path := strings.Join(append(filepath.SplitList(os.Getenv("PATH")), paths...), ":")
	program, code, why := lookUp(c.Argv[0], path)
	if why != "" {
		return Result{Code: code, Err: fmt.Appendf(nil, "%s: %s\n", c.Argv[0], why)}, nil
	}
	over := make(chan struct{}, 2)
	out, errs := &capture{over: over}, &capture{over: over}
	cmd := &exec.Cmd{
		Path: program, Args: c.Argv, Dir: "/", Stdout: out, Stderr: errs,
		Env: append(os.Environ(), "PATH="+path, "LC_ALL=C"),
		// A group of its own, so that what it starts ends with it.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, context.Cause(ctx)
	}
	if err := cmd.Start(); err != nil {
		return Result{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	fed := feed(in, c.In)
	because, err := await(ctx, ended, fed, over, c, "this machine")
	if because != nil {
		endGroup(cmd.Process.Pid, ended)
	}
	rest(fed)
	if because != nil {
		return Result{}, because
	}
	var r Result
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.Code = exit.ExitCode()
		if st, ok := exit.Sys().(syscall.WaitStatus); ok && st.Signaled() {
			r.Code = 128 + int(st.Signal())
			r.Signal = strings.TrimPrefix(unix.SignalName(st.Signal()), "SIG")
		}
	} else if err != nil {
		return Result{}, err
	}
	_, r.Out, _ = out.output()
	_, r.Err, _ = errs.output()
	if max(len(r.Out), len(r.Err)) > MaxOutput {
		return Result{}, tooLong(c, "this machine")
	}
	return r, nil
}

// endGroup ends a process group: SIGTERM, and SIGKILL after endGrace.
func endGroup(pid int, ended <-chan error) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		_ = syscall.Kill(-pid, signal) // an error: nobody of the group is left
		select {
		case err := <-ended:
			_ = err // that it ended is all
			return
		case <-time.After(endGrace):
		}
	}
}

// lookUp finds a program as a shell does. Where there is none it gives the shell's exit
// status, and why.
func lookUp(name, path string) (program string, code int, why string) {
	places := []string{name}
	if !strings.Contains(name, "/") {
		places = nil
		for _, dir := range filepath.SplitList(path) {
			if filepath.IsAbs(dir) {
				places = append(places, filepath.Join(dir, name))
			}
		}
	}
	code, why = 127, "not found"
	for _, p := range places {
		switch info, err := os.Stat(p); {
		case err != nil:
		case info.IsDir() || info.Mode().Perm()&0o111 == 0:
			code, why = 126, "Permission denied"
		default:
			return p, 0, ""
		}
	}
	return "", code, why
}

func (l local) Put(ctx context.Context, path string, content io.Reader, mode fs.FileMode) error {
	err := l.put(ctx, path, content, mode)
	if err == nil || named(err) {
		return err
	}
	return fmt.Errorf("write %s: %w", path, err)
}

func (local) put(ctx context.Context, path string, content io.Reader, mode fs.FileMode) error {
	if err := checkPut(path, mode); err != nil {
		return err
	}
	problem := func(code Code, said string, err error) error {
		return &Problem{Code: code, Host: LocalName, Sentence: fmt.Sprintf("this machine: %s is not written: %s", path, said), Err: err}
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return problem(NoFolder, "its folder is not there", err)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return problem(WriteFailed, "it is a folder", nil)
	}
	failed := func(err error) error {
		code := WriteFailed
		switch {
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
			code = DiskFull
		case errors.Is(err, syscall.EROFS):
			code = ReadOnly
		}
		said := err
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			said = p.Err // without the temporary name
		}
		return problem(code, said.Error(), err)
	}
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return failed(err)
	}
	defer func() { _ = f.Cleanup() }() // nothing, once it is renamed
	from := &source{r: &untilDone{ctx, content}}
	if _, err := io.Copy(f, from); from.err != nil {
		return fmt.Errorf("read the content: %w", from.err)
	} else if err != nil {
		return failed(err)
	}
	if err := f.Chmod(mode); err != nil {
		return failed(err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return failed(err)
	}
	return atomicfile.Sync(dir)
}

// untilDone reads until its context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}
