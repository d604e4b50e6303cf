package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// claiming begins the name of a folder that is about to become a lab's.
const claiming = ".claiming-"

// claim records this process as the owner of the lab of that name. The lab appears
// with its owner: one without would be taken down by whoever sweeps in that moment.
func claim(state, dir string) error {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return fmt.Errorf("claim lab: %w", err)
	}
	if _, err := os.Stat(state); err == nil {
		return fmt.Errorf("claim lab: %s is there already: another run has a lab of this name, or it was kept", state)
	}
	made, err := os.MkdirTemp(stateDir, claiming)
	if err != nil {
		return fmt.Errorf("claim lab: %w", err)
	}
	owner := fmt.Sprintf("%d %s", os.Getpid(), startTime(os.Getpid()))
	err = errors.Join(
		os.WriteFile(filepath.Join(made, "owner"), []byte(owner), 0o600),
		os.WriteFile(filepath.Join(made, "dir"), []byte(dir), 0o600),
	)
	if err == nil {
		err = os.Rename(made, state)
	}
	if err != nil {
		return fmt.Errorf("claim lab: %w", errors.Join(err, os.RemoveAll(made)))
	}
	return nil
}

// startTime of a process in clock ticks since boot, as text; empty when there is no such process. Together with the pid it
// names a process for good.
func startTime(pid int) string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field, the name in brackets, may hold spaces.
	_, rest, found := strings.Cut(string(content), ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

// Sweep takes down the labs of this machine whose owner is gone and that were not kept.
func Sweep(logf func(string, ...any)) error {
	entries, err := os.ReadDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for old labs: %w", err)
	}
	var failed []error
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, claiming) {
			continue
		}
		if _, err := os.Stat(filepath.Join(stateDir, name, "keep")); err == nil {
			logf("lab: lab %s was kept; end it with: go run ./cmd/lab-setup end %s", name, name)
			continue
		}
		content, err := os.ReadFile(filepath.Join(stateDir, name, "owner"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for old labs: %w", err)
		}
		pid, started, _ := strings.Cut(string(content), " ")
		if number, err := strconv.Atoi(pid); err == nil && started != "" && startTime(number) == started {
			continue
		}
		logf("lab: taking down %s, its owner is gone", name)
		failed = append(failed, takeDown(name))
	}
	return errors.Join(failed...)
}

// End takes down the lab of that name whoever owns it.
func End(name string) error {
	if _, err := os.Stat(filepath.Join(stateDir, name)); err != nil {
		return fmt.Errorf("end lab: %w", err)
	}
	return takeDown(name)
}

// takeDown removes everything that carries the lab's name: processes, mounts, namespaces, cgroups, folders. It uses names
// only, so it works for a lab of a process that is gone.
func takeDown(name string) error {
	if name == "" || filepath.Base(name) != name {
		return fmt.Errorf("take down lab %q: not a name", name)
	}
	state := filepath.Join(stateDir, name)
	failed := []error{killCgroup(name)}

	if content, err := os.ReadFile(filepath.Join(state, "dir")); err == nil {
		// The folder's last element is the lab's name; anything else is not ours to remove.
		if dir := string(content); filepath.Base(dir) == name && filepath.Base(filepath.Dir(dir)) == "labs" {
			failed = append(failed, discardTree(dir))
		}
	}
	namespaces, err := filepath.Glob("/run/netns/" + namespaceName(name, "*"))
	failed = append(failed, err)
	for _, namespace := range namespaces {
		result, err := run(context.Background(), exec.CommandContext(context.Background(), "ip", "netns", "delete", filepath.Base(namespace)))
		failed = append(failed, err, result.Err())
	}
	propagated, err := filepath.Glob("/run/systemd/nspawn/propagate/" + machineName(name, "*"))
	failed = append(failed, err)
	for _, folder := range propagated {
		failed = append(failed, discardTree(folder))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("take down lab %s: %w", name, err)
	}
	if err := os.RemoveAll(state); err != nil {
		return fmt.Errorf("take down lab %s: %w", name, err)
	}
	return nil
}

func namespaceName(lab, part string) string { return "rg" + lab + "-" + part }

func machineName(lab, host string) string { return "rg" + lab + "-" + host }

// raiseSysctl sets a number of the kernel when it is lower.
func raiseSysctl(name string, least int) error {
	path := filepath.Join("/proc/sys", name)
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("raise %s: %w", name, err)
	}
	if have, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && have >= least {
		return nil
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(least)), 0o644); err != nil {
		return fmt.Errorf("raise %s: %w", name, err)
	}
	return nil
}
