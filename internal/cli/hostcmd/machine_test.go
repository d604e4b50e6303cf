package hostcmd

import (
	"errors"
	"strings"
	"testing"

	"github.com/exadev/regrade/internal/hostd/preflight"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/platform/command"
	"github.com/exadev/regrade/internal/platform/docker"
	"github.com/exadev/regrade/internal/platform/systemd"
)

func TestThePlatformIsTheOneInTheSettings(t *testing.T) {
	for text, want := range map[string]string{"": "systemd", "platform: systemd\n": "systemd", "platform: docker\n": "docker",
		"platform: command\ncommand: {levels: [/l], current-level: [/c], apply-level: [/a]}\n": "command"} {
		h, err := settings.Parse([]byte("node: n1\nservers: [\"https://10.0.0.2:6443\"]\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		m, err := machineOf(h, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		switch m.(type) {
		case *systemd.Host:
			got = "systemd"
		case *docker.Host:
			got = "docker"
		case *command.Host:
			got = "command"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestWhatDockerLacksHasItsCode(t *testing.T) {
	absent := stagedInDocker(docker.Staging{Absent: "no container"}, nil)
	if absent.Absent != "no container" {
		t.Errorf("%+v", absent)
	}
	if s := stagedInDocker(docker.Staging{}, errors.New("the engine hangs")); !strings.Contains(s.Absent, "hangs") {
		t.Errorf("an engine that says nothing staged a server: %+v", s)
	}
	for passwordless, code := range map[bool]string{true: preflight.CodePassword, false: preflight.CodeIdentity} {
		s := stagedInDocker(docker.Staging{IdentityProblem: "no", Passwordless: passwordless}, nil)
		if len(s.Problems) != 1 || s.Problems[0].Code != code {
			t.Errorf("%+v, want %s", s.Problems, code)
		}
	}
}
