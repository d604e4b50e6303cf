package rolefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/platform/atomicfile"
)

// Names that only the host's own processes use.
const (
	// FileServerLevel is written by role-is before a server starts: the level it
	// starts with. k3s hides its arguments (R-112-16).
	FileServerLevel = "/run/regrade/server-level"
	// FileJournal is the daemon's note of the step it is in.
	FileJournal = "/var/lib/regrade/step.json"
	// FileLevelJournal is its note of the step between levels that it is in.
	FileLevelJournal = "/var/lib/regrade/level.json"
)

// maxFile bounds the small files; a bigger one is refused unread.
const maxFile = 64 << 10

// Dir reads and writes the files under a root.
type Dir struct {
	Root string
	// RoleDir and RunDir are where the host has /etc/github-runner and /run/regrade for
	// whoever looks at them from outside of a container; empty is there.
	RoleDir, RunDir string
}

func (d Dir) at(path string) string {
	for from, to := range map[string]string{fleet.RoleDir: d.RoleDir, filepath.Dir(fleet.FileJoining): d.RunDir} {
		if to != "" && filepath.Dir(path) == from {
			path = filepath.Join(to, filepath.Base(path))
			break
		}
	}
	return filepath.Join("/", d.Root, path)
}

// Read reads the role files. The datastore's part of Files (WAL, Tombstone,
// JoinURL, Token, BootID) is the caller's. Content that makes no sense is a
// problem that the rule weighs, not an error: a member must start on its
// datastore even when a small file beside it is broken.
func (d Dir) Read() (Files, error) {
	var f Files
	role, err := d.file(fleet.FileRole)
	if err != nil {
		return Files{}, err
	}
	if role != nil {
		// An empty one is no missing one, with which either role may start: a shell that
		// writes it on a full disk leaves that behind (safety rule 10).
		if f.Role, err = fleet.ParseRole(strings.TrimSpace(string(role))); err != nil {
			f.RoleProblem = fmt.Sprintf("%s: %v", fleet.FileRole, err)
		}
	}
	leaving, err := d.line(fleet.FileLeaving)
	if err != nil {
		return Files{}, err
	}
	f.Leaving = fleet.SwapID(leaving)
	raw, err := d.file(fleet.FileJoining)
	if err != nil {
		f.JoiningProblem = err.Error()
	}
	if f.Joining, err = ParseJoining(raw); err != nil {
		f.Joining = Joining{} // what cannot be read confirms nothing
	}
	if f.Joining.Swap == "" {
		// A voter whose role file says server needs none of it.
		if f.Joining.Swap, err = d.joinBegun(); err != nil {
			f.JoiningProblem, f.ForeignJoin = err.Error(), errors.Is(err, errNoJoin)
		}
	}
	for path, id := range map[string]*fleet.MemberID{fleet.FileClusterID: &f.Identity.ClusterID, fleet.FileMemberID: &f.Identity.MemberID} {
		s, err := d.line(path)
		if err != nil {
			return Files{}, err
		}
		if s == "" {
			continue
		}
		if *id, err = fleet.ParseMemberID(s); err != nil {
			f.IdentityProblem = fmt.Sprintf("%s: %v", path, err)
		}
	}
	// A server that lost its node password runs on: nothing starts or stops by this.
	if sum, err := d.line(fleet.FilePassword); err == nil {
		f.Identity.Password = sum
	}
	// Whom to ask, no more: without it the join URLs are asked.
	if voters, err := d.file(fleet.FileVoters); err == nil {
		f.Identity.Voters = strings.Fields(string(voters))
	}
	return f, nil
}

var errNoJoin = errors.New("it holds no swap id")

// joinBegun is the swap whose join was confirmed, whenever that was; empty when the file is
// not there. It is written whole or not at all: an empty one, or one that holds no swap, is
// somebody else's and says nothing (safety rule 18).
func (d Dir) joinBegun() (fleet.SwapID, error) {
	raw, err := d.file(fleet.FileJoinBegun)
	if err != nil || raw == nil {
		return "", err
	}
	id, err := fleet.ParseSwapID(strings.TrimSpace(string(raw)))
	if err != nil {
		return "", fmt.Errorf("%s: %w", fleet.FileJoinBegun, errNoJoin) // it may hold anything, at any length
	}
	return id, nil
}

// JoinURL is where the next start of a role joins, on a platform without
// drop-ins; empty when the file is missing or empty (R-A-08).
func (d Dir) JoinURL(role fleet.Role) (string, error) { return d.line(joinURL(role)) }

// SetJoinURL writes it; the empty URL deletes the file.
func (d Dir) SetJoinURL(role fleet.Role, url string) error { return d.put(joinURL(role), url) }

func joinURL(role fleet.Role) string {
	if role == fleet.RoleServer {
		return fleet.FileJoinURL
	}
	return fleet.FileAgentURL
}

// AllowedBoot is the boot in which the operator allowed a join, empty when none.
func (d Dir) AllowedBoot() (string, error) { return d.line(fleet.FileAllowJoin) }

// AllowJoin is the operator's override for this boot (safety rule 18).
func (d Dir) AllowJoin(bootID string) error {
	return atomicfile.Write(d.at(fleet.FileAllowJoin), []byte(bootID+"\n"), 0o600)
}

// EndAllowJoin takes the override back.
func (d Dir) EndAllowJoin() error { return atomicfile.Remove(d.at(fleet.FileAllowJoin)) }

// ParseJoining reads the joining file; no bytes are none.
func ParseJoining(raw []byte) (Joining, error) {
	var j Joining
	if len(raw) == 0 {
		return j, nil
	}
	if err := json.Unmarshal(raw, &j); err != nil {
		return Joining{}, err
	}
	if _, err := fleet.ParseSwapID(string(j.Swap)); err != nil {
		return Joining{}, err
	}
	if j.BootID == "" {
		return Joining{}, errors.New("no boot id")
	}
	return j, nil
}

// SetRole writes the role file.
func (d Dir) SetRole(role fleet.Role) error {
	if _, err := fleet.ParseRole(string(role)); err != nil {
		return err
	}
	return d.put(fleet.FileRole, string(role))
}

// SetLeaving writes the leaving file; the empty id deletes it.
func (d Dir) SetLeaving(id fleet.SwapID) error { return d.put(fleet.FileLeaving, string(id)) }

// SetJoining writes the confirmation of a join; the zero value deletes it. What
// outlives a reboot is written first and deleted last: from the moment in which k3s may
// make a datastore until the role file says server, a boot must find it (safety rule 18).
func (d Dir) SetJoining(j Joining) error {
	if j == (Joining{}) {
		if err := atomicfile.Remove(d.at(fleet.FileJoining)); err != nil {
			return err
		}
		return d.put(fleet.FileJoinBegun, "")
	}
	raw, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if _, err := ParseJoining(raw); err != nil {
		return fmt.Errorf("joining: %w", err)
	}
	if err := d.put(fleet.FileJoinBegun, string(j.Swap)); err != nil {
		return err
	}
	return atomicfile.Write(d.at(fleet.FileJoining), append(raw, '\n'), 0o600)
}

// SetIdentity writes the identity. A zero cluster id leaves what is there, so
// that a host that was a member once is known as one for good (safety rule 19).
func (d Dir) SetIdentity(id Identity) error {
	if id.ClusterID != 0 {
		if err := d.put(fleet.FileClusterID, id.ClusterID.String()); err != nil {
			return err
		}
	}
	if err := d.put(fleet.FileVoters, strings.Join(id.Voters, "\n")); err != nil {
		return err
	}
	if err := d.put(fleet.FilePassword, id.Password); err != nil {
		return err
	}
	member := ""
	if id.MemberID != 0 {
		member = id.MemberID.String()
	}
	return d.put(fleet.FileMemberID, member)
}

// SetServerLevel notes the level that the server starts with now. The note of an
// earlier start goes first: on a full disk none is better than a wrong one.
func (d Dir) SetServerLevel(level fleet.Level) error {
	if old, err := d.ServerLevel(); err == nil && old == level {
		return nil
	}
	if err := d.put(FileServerLevel, ""); err != nil {
		return err
	}
	return d.put(FileServerLevel, string(level))
}

// ServerLevel is the level the server was last started with in this boot, empty
// when nothing noted it.
func (d Dir) ServerLevel() (fleet.Level, error) {
	s, err := d.line(FileServerLevel)
	if err != nil || s == "" {
		return "", err
	}
	return fleet.ParseLevel(s)
}

// Journal reads the daemon's note, nil when there is none.
func (d Dir) Journal() ([]byte, error) { return d.file(FileJournal) }

// SetJournal writes it.
func (d Dir) SetJournal(raw []byte) error {
	return atomicfile.Write(d.at(FileJournal), raw, 0o600)
}

// LevelJournal reads the daemon's note of a step between levels, nil when there is none.
func (d Dir) LevelJournal() ([]byte, error) { return d.file(FileLevelJournal) }

// SetLevelJournal writes it.
func (d Dir) SetLevelJournal(raw []byte) error {
	return atomicfile.Write(d.at(FileLevelJournal), raw, 0o600)
}

// put writes one line, or deletes the file when the line is empty.
func (d Dir) put(path, line string) error {
	if line == "" {
		return atomicfile.Remove(d.at(path))
	}
	return atomicfile.Write(d.at(path), []byte(line+"\n"), 0o644)
}

func (d Dir) line(path string) (string, error) {
	raw, err := d.file(path)
	return strings.TrimSpace(string(raw)), err
}

func (d Dir) file(path string) ([]byte, error) {
	info, err := os.Stat(d.at(path))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read role files: %w", err)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s: %d bytes are more than %d", path, info.Size(), maxFile)
	}
	raw, err := os.ReadFile(d.at(path))
	if err != nil {
		return nil, fmt.Errorf("read role files: %w", err)
	}
	return raw, nil
}
