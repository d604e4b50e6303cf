package parts

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// parentOf is the environment variable that makes the test binary a parent: see beParent.
const parentOf = "STANDIN_TEST_PARENT_OF"

// beParent starts the fake runtime on a socket as an ordinary child, prints its pid, and waits to be killed.
func beParent(socket string) int {
	child, err := StartProcess(context.Background(), Command(ShimName, "-address", socket))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(child.PID())
	<-child.Done()
	return 0
}

// A SIGKILL of k3s, as a crash is, leaves no etcd that holds the datastore's lock.
func TestChildrenDieWithTheirParent(t *testing.T) {
	run, err := os.MkdirTemp("", "parent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	parent := exec.Command(selfPath())
	parent.Env = append(os.Environ(), parentOf+"="+filepath.Join(run, "s"))
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = parent.Process.Kill() })
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Sscan(line, &child); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // the threads of the parent come and go
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the child is gone before its parent: %v", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for deadline := time.Now().Add(5 * time.Second); alive(child); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the child lives 5 s after its parent")
		}
	}
}

// alive tells whether a process runs; one that ended and was not reaped yet does not.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	var state string
	for i := len(text) - 1; i > 0; i-- {
		if text[i] == ')' {
			_, _ = fmt.Sscan(string(text[i+1:]), &state)
			break
		}
	}
	return state != "Z" && state != "X"
}

func TestDispatchLeavesOtherCommandsAlone(t *testing.T) {
	for _, args := range [][]string{nil, {"k3s"}, {"/usr/local/bin/k3s", "server"}, {"k3s", "component"}, {"k3s", "etcd-snapshot", "save"}} {
		if status, ok := Dispatch(args); ok {
			t.Errorf("%v ran a component, status %d", args, status)
		}
	}
	if status, ok := Dispatch([]string{"k3s", "component", "kube-proxy"}); !ok || status != 1 {
		t.Errorf("an unknown component gave %d, %v, want 1, true", status, ok)
	}
}
