package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// sshRunner is a host over SSH.
type sshRunner struct{ link *link }

func (s *sshRunner) Close() error {
	s.link.close()
	return nil
}

// endGrace is how long a command that is ended has after SIGTERM, and its session after
// SIGKILL.
const endGrace = 3 * time.Second

func (s *sshRunner) Run(ctx context.Context, c Command) (Result, error) {
	r, err := s.run(ctx, c)
	if err != nil {
		return Result{}, s.wrap("run "+name(c), err)
	}
	return r, nil
}

// wrap names what was done, and the host where the error does not.
func (s *sshRunner) wrap(what string, err error) error {
	if CodeOf(err) == "" {
		what += " on " + s.link.name
	}
	return fmt.Errorf("%s: %w", what, err)
}

// name is what errors call a command.
func name(c Command) string {
	if len(c.Argv) == 0 {
		return "nothing"
	}
	return c.Argv[0]
}

func (s *sshRunner) run(ctx context.Context, c Command) (Result, error) {
	if len(c.Argv) == 0 {
		return Result{}, errors.New("there is no program")
	}
	if err := ctx.Err(); err != nil {
		return Result{}, context.Cause(ctx)
	}
	mark := "regrade-" + rand.Text()
	line, err := quote(append([]string{"sh", "-c", becomeRoot, "sh", "sh", "-c", begin, "sh", mark}, c.Argv...))
	if err != nil {
		return Result{}, err
	}
	over := make(chan struct{}, 2)
	out, errs := &capture{mark: mark, over: over}, &capture{mark: mark, over: over, begun: make(chan struct{})}
	session, err := s.link.client.NewSession()
	if err != nil {
		return Result{}, s.link.lost(err)
	}
	defer func() { _ = session.Close() }() // it has ended, or is given up
	session.Stdout, session.Stderr = out, errs
	in, err := session.StdinPipe()
	if err != nil {
		return Result{}, err
	}
	// Not broken off by ctx: what has been asked for may have begun, and could not be ended.
	if err := session.Start("exec " + line); err != nil {
		return Result{}, s.link.lost(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	fed := feed(in, c.In)

	because, err := await(ctx, ended, fed, over, c, s.link.name)
	if because != nil {
		s.end(session, errs, ended)
	}
	_ = session.Close()
	rest(fed)
	if because != nil {
		return Result{}, because
	}
	return s.result(c, out, errs, err)
}

// feeding is a command's input on its way. result is with the error of the reader, or nil
// also where the command read no further.
type feeding struct {
	result <-chan error
	done   bool
}

// await waits until a command has ended, with what its end says, or is to be ended, because
// of something.
func await(ctx context.Context, ended <-chan error, fed *feeding, over <-chan struct{}, c Command, host string) (because, end error) {
	input := fed.result
	tooLong := tooLong(c, host)
	for {
		select {
		case end = <-ended:
			select {
			case <-over: // both at once
				return tooLong, end
			default:
				return nil, end
			}
		case <-ctx.Done():
			return context.Cause(ctx), nil
		case <-over:
			return tooLong, nil
		case err := <-input:
			if fed.done, input = true, nil; err != nil {
				return fmt.Errorf("read its input: %w", err), nil
			}
		}
	}
}

func tooLong(c Command, host string) *Problem {
	return &Problem{Code: OutputTooLong, Host: host,
		Sentence: fmt.Sprintf("%s: %s printed more than %d MiB, and was ended", host, name(c), MaxOutput>>20)}
}

// rest waits until nobody reads the input any more, so that the caller may close it. A
// reader that never comes back is left behind.
func rest(fed *feeding) {
	if fed.done {
		return
	}
	select {
	case err := <-fed.result:
		_ = err // that it ended is all
	case <-time.After(endGrace):
	}
}

// feed gives a command its input. A reader that failed does not end
// the input: the command would take half of it for the whole.
func feed(in io.WriteCloser, from io.Reader) *feeding {
	fed := make(chan error, 1)
	if from == nil {
		_ = in.Close()
		fed <- nil
		return &feeding{result: fed}
	}
	go func() {
		r := &source{r: from}
		_, _ = io.Copy(in, r)
		if r.err == nil {
			_ = in.Close()
		}
		fed <- r.err
	}()
	return &feeding{result: fed}
}

// source remembers the error of a reader, which is not that of the writer.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// end ends a command and what it started: SIGTERM, and SIGKILL after endGrace. It needs the
// mark for that: the SSH server's own way does not surely reach what sudo started, and is
// for what has not come to the mark.
func (s *sshRunner) end(session *ssh.Session, errs *capture, ended <-chan error) {
	select {
	case <-errs.begun:
	case err := <-ended:
		_ = err // that it ended is all
		return
	case <-time.After(endGrace):
	}
	for _, signal := range []ssh.Signal{ssh.SIGTERM, ssh.SIGKILL} {
		words, _, _ := errs.output()
		if len(words) < 21 {
			_ = session.Signal(signal) // an old server knows none
		} else {
			ctx, cancel := context.WithTimeout(context.Background(), endGrace)
			// An error: the connection broke, or the host is too slow; there is no other way.
			_ = s.kill(ctx, string(signal), words[0], words[20])
			cancel()
		}
		select {
		case err := <-ended:
			_ = err // that it ended is all
			return
		case <-time.After(endGrace):
		}
	}
	_ = session.Close()
}

// kill runs the program end, with no way to be ended itself.
func (s *sshRunner) kill(ctx context.Context, signal, pid, began string) error {
	line, err := quote([]string{"sh", "-c", becomeRoot, "sh", "sh", "-c", end, "sh", signal, pid, began})
	if err != nil {
		return err
	}
	session, err := s.link.client.NewSession()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	defer stop()
	defer func() { _ = session.Close() }()
	return session.Run("exec " + line)
}

// result is how a command that ended by itself ended.
func (s *sshRunner) result(c Command, out, errs *capture, err error) (Result, error) {
	var r Result
	if exit, ok := errors.AsType[*ssh.ExitError](err); ok {
		r.Code, r.Signal = exit.ExitStatus(), exit.Signal()
	} else if err != nil {
		return Result{}, s.link.lost(err)
	}
	if err := s.link.stands(); err != nil {
		return Result{}, err
	}
	var how []string
	var began, all bool
	_, r.Err, _ = errs.output()
	if how, r.Out, began = out.output(); !began {
		return Result{}, s.notBegun(r)
	}
	if len(how) > 0 { // it says where it ends
		if r.Out, all = out.whole(); all {
			r.Err, all = errs.whole()
		}
		if !all {
			return Result{}, &Problem{Code: OutputLost, Host: s.link.name,
				Sentence: fmt.Sprintf("%s: sudo did not pass on all that %s printed, as one that logs it does (Defaults log_output)", s.link.name, name(c))}
		}
	}
	if max(len(r.Out), len(r.Err)) > MaxOutput {
		return Result{}, tooLong(c, s.link.name)
	}
	return r, nil
}

// notBegun is the problem of a host on which the command was not started.
func (s *sshRunner) notBegun(r Result) error {
	said := strings.TrimSpace(string(r.Err))
	if said == "" {
		said = strings.TrimSpace(string(r.Out))
	}
	said = short(said)
	if _, reason, ok := strings.Cut(said, "sudo -n: "); ok {
		return &Problem{Code: NoSudo, Host: s.link.name,
			Sentence: fmt.Sprintf("%s: the user is not root and may not become it without a password: %s", s.link.name, reason)}
	}
	return &Problem{Code: NoShell, Host: s.link.name,
		Sentence: fmt.Sprintf("%s runs no command for this user (exit status %d): %s", s.link.name, r.Code, said)}
}

// short is the end of what a host said, on one line.
func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = "..." + strings.ToValidUTF8(s[len(s)-300:], "")
	}
	if s == "" {
		return "it said nothing"
	}
	return s
}
