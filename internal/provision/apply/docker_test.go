package apply_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/observe"
	"github.com/exadev/regrade/internal/provision/apply"
	"github.com/exadev/regrade/internal/provision/inventory"
	"github.com/exadev/regrade/internal/provision/project"
	"github.com/exadev/regrade/internal/provision/setup"
)

const mixed = `
hosts:
- {name: n1, address: 10.0.0.1, role: server, platform: docker}
- {name: n2, address: 10.0.0.2, role: server}
- {name: n3, address: n3.example, role: server, platform: docker, docker: {images: {regrade: "regrade:own"}}}
- {name: n4, address: 10.0.0.4, role: agent, eligible: true, platform: docker}
`

// newMixed is a cluster with Docker servers that a person has set up, and n4, which has an
// engine and nothing else.
func newMixed(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	f, err := inventory.Parse([]byte(mixed), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.fleet = f
	delete(s.machines, "n5")
	delete(s.c.nodes, "n5")
	delete(s.c.nodes, "n4")
	for _, name := range []string{"n1", "n3", "n4"} {
		m := s.machines[name]
		m.engine, m.images, m.files = true, map[string]bool{"regrade:hand": true, "regrade:own": true}, map[string]string{"/srv/k3s/.env": "regrade:hand"}
	}
	s.machines["n4"].files, s.machines["n4"].images = map[string]string{}, map[string]bool{"regrade:9": true}
	n3 := s.c.nodes["n3"]
	n3.InternalIP = "10.0.0.3"
	s.c.nodes["n3"] = n3
	return s
}

func image(s *apply.Settings) { s.Image = "regrade:9" }

func TestDockerHostsAndNativeOnesAreOneFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMixed(t)
		before := s.state()
		out := s.must(s.turn(image, check).Apply(t.Context()))
		if out.Changed == 0 || !maps.Equal(before, s.state()) || !strings.Contains(s.out.String(), "n4: new: it becomes an agent in the project /srv/k3s") {
			t.Errorf("a look: %+v\n%s", out, s.out.String())
		}
		s.must(s.turn(image).Apply(t.Context()))
		// A project that is there keeps its image, another takes the fleet's (R-C-09).
		for name, want := range map[string]string{"n1": "regrade:hand", "n3": "regrade:own", "n4": "regrade:9"} {
			m := s.machines[name]
			if !m.setUp || m.files["/srv/k3s/.env"] != want || s.c.nodes[name].Labels[keys.Eligible()] != fleet.True {
				t.Errorf("%s: set up %v, with %s, labels %v", name, m.setUp, m.files["/srv/k3s/.env"], s.c.nodes[name].Labels)
			}
		}
		// What is lent by a Docker server comes from its project.
		if d := s.machines["n4"].given; d.Token.Reveal() != "hush-server" || d.Voter.Get("disable") != "traefik" {
			t.Errorf("n4 was given %+v", d)
		}
		if got, want := s.machines["n4"].given.Docker.Usual, (setup.Images{K3s: "rancher/k3s:v1.34.2-k3s1", Regrade: "regrade:9"}); got != want {
			t.Errorf("the usual images are %+v, want %+v", got, want)
		}
		// Its Node's address where the file has none that could be etcd's.
		if got := s.machines["n3"].given.Docker.Flags["node-ip"]; !slices.Equal(got, []string{"10.0.0.3"}) {
			t.Errorf("node-ip of n3: %v", got)
		}
		after := s.state()
		if out = s.must(s.turn(image).Apply(t.Context())); out.Changed != 0 || !maps.Equal(after, s.state()) {
			t.Errorf("the second run: %+v\n%s", out, s.out.String())
		}
		// An image that the file names is that of every Docker host which names no other.
		s.machines["n1"].images["regrade:9"] = true
		s.must(s.turn(image, func(a *apply.Settings) { a.ImageAsked = true }).Apply(t.Context()))
		for name, want := range map[string]string{"n1": "regrade:9", "n3": "regrade:own", "n4": "regrade:9"} {
			if got := s.machines[name].files["/srv/k3s/.env"]; got != want {
				t.Errorf("asked for regrade:9, %s has %s", name, got)
			}
		}
		if strings.Contains(s.out.String(), "hush") {
			t.Errorf("a secret is shown:\n%s", s.out.String())
		}
	})
}

// Whatever breaks the turn of a new Docker host off, the next one completes it.
func TestANewDockerHostThatBrokeOffIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := newMixed(t)
		whole.must(whole.turn(image).Apply(t.Context()))
		want := whole.state()
		for n := 1; n <= len(whole.machines["n4"].ran); n++ {
			s := newMixed(t)
			s.machines["n4"].dies = n
			if out, err := s.turn(image).Apply(t.Context()); err != nil || len(out.Problems) != 1 {
				t.Errorf("dies at %d: %+v, %v", n, out, err)
			}
			s.machines["n4"].dies, s.machines["n4"].broken = 0, false
			s.must(s.turn(image).Apply(t.Context()))
			if got := s.state(); !maps.Equal(got, want) {
				t.Errorf("died at %d: the next run leaves\n%v, want\n%v", n, got, want)
			}
		}
	})
}

func archive(t *testing.T, arch string) func(*apply.Settings) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "images.tar")
	if err := os.WriteFile(file, []byte("regrade:9"), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(a *apply.Settings) {
		a.Archive = apply.Archive{Path: file, Archive: project.Archive{Names: []string{"regrade:9"}, Arch: arch}}
	}
}

// Images go where they are missing, and the file that brought them is taken away.
func TestAnArchiveOfImagesIsCarriedToHostsThatLackOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMixed(t)
		s.machines["n4"].images = map[string]bool{}
		if out, err := s.turn(image).Apply(t.Context()); err != nil || out.Problems["n4"].Code != apply.CodeHostRefused || !strings.Contains(out.Problems["n4"].Sentence, "(ImageMissing)") {
			t.Fatalf("without one: %+v, %v", out, err)
		}
		before := s.state()
		s.must(s.turn(image, archive(t, "amd64"), check).Apply(t.Context()))
		if !maps.Equal(before, s.state()) {
			t.Error("a look carried it")
		}
		out, err := s.turn(image, archive(t, "arm64")).Apply(t.Context())
		if err != nil || out.Problems["n4"].Code != project.CodeImage || !maps.Equal(before, s.state()) {
			t.Errorf("of another architecture: %+v, %v", out, err)
		}
		// One without the image is not carried for nothing, and says what it has.
		wrong := func(a *apply.Settings) { a.Archive.Names = []string{"other:1"} }
		out, err = s.turn(image, archive(t, "amd64"), wrong).Apply(t.Context())
		if p := out.Problems["n4"]; err != nil || p.Code != apply.CodeHostRefused || !strings.Contains(p.Sentence, "(ImageMissing)") || !strings.Contains(p.Sentence, "images.tar has other:1") {
			t.Errorf("of another image: %+v, %v", out, err)
		}
		if slices.Contains(s.machines["n4"].ran, "put /srv/k3s/.images.tar") {
			t.Error("one that does not help was carried")
		}
		s.must(s.turn(image, archive(t, "amd64")).Apply(t.Context()))
		for name, m := range s.machines {
			carried := slices.Contains(m.ran, "put /srv/k3s/.images.tar")
			if carried != (name == "n4") {
				t.Errorf("carried to %s: %v", name, carried)
			}
			if _, left := m.files["/srv/k3s/.images.tar"]; left {
				t.Errorf("it is left on %s", name)
			}
		}
		if !s.machines["n4"].setUp {
			t.Error("n4 is not set up")
		}
	})
}

func TestADockerHostThatCannotBeDoneIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*site)
		host  string
		code  string
	}{
		"its Node is another's": {func(s *site) { s.c.nodes["n4"] = observe.Node{Name: "n4", Version: "1"} }, "n4", apply.CodeNodeTaken},
		"its Node is there and it refuses": {func(s *site) {
			s.c.nodes["n4"] = observe.Node{Name: "n4", Version: "1"}
			s.machines["n4"].refuses = "k3s runs elsewhere (K3sOutsideProject)"
		}, "n4", apply.CodeHostRefused},
		// Carried out it would have been a second server of the name, made out of nothing.
		"its Node is a server and the machine has nothing": {func(s *site) {
			s.machines["n1"].files, s.machines["n1"].images["regrade:9"] = map[string]string{}, true
		}, "n1", apply.CodeNodeTaken},
		"a new server":     {func(s *site) { delete(s.c.nodes, "n1") }, "n1", apply.CodeNodeMissing},
		"it does not join": {func(s *site) { s.machines["n4"].c = newCluster(); delete(s.machines["n4"].c.nodes, "n4") }, "n4", apply.CodeNotJoined},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMixed(t)
				c.spoil(s)
				out, err := s.turn(image).Apply(t.Context())
				if err != nil || len(out.Problems) != 1 || out.Problems[c.host].Code != c.code {
					t.Fatalf("%+v, %v\n%s", out, err, s.out.String())
				}
				if done := c.code == apply.CodeNotJoined; s.machines[c.host].setUp != done {
					t.Errorf("set up: %v", s.machines[c.host].setUp)
				}
			})
		})
	}
}

// A NAS has regrade in the project's folder, and is rid of it by a removal.
func TestAHostWithAReadOnlySystemHasRegradeInItsProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const at = "/srv/k3s/bin/regrade"
		s := newMixed(t)
		s.machines["n1"].readOnly = true
		before := s.state()
		s.must(s.turn(image, check).Apply(t.Context()))
		if !maps.Equal(before, s.state()) {
			t.Errorf("a look left something: %v", s.machines["n1"].files)
		}
		s.must(s.turn(image).Apply(t.Context()))
		if m := s.machines["n1"]; m.files[at] != "program nine" || m.files["/usr/local/bin/regrade"] != "" || !m.setUp {
			t.Errorf("n1: %v", m.files)
		}
		if out := s.must(s.turn(image).Apply(t.Context())); out.Changed != 0 {
			t.Errorf("the second run: %+v\n%s", out, s.out.String())
		}
		s.must(s.turn(image, check).Remove(t.Context()))
		// Its file system was lost at a boot: the host is not passed by.
		s.machines["n1"].files[fleet.FileInstalled] = "{}"
		delete(s.machines["n1"].files, at)
		if _, err := s.turn(image).Remove(t.Context()); err == nil || !strings.Contains(err.Error(), apply.CodeProgramGone) || !s.machines["n2"].setUp {
			t.Errorf("a removal without the program: %v", err)
		}
		s.machines["n1"].files[at] = "program nine"
		s.must(s.turn(image).Remove(t.Context()))
		for name, m := range s.machines {
			if m.setUp || m.files[at] != "" || m.files["/usr/local/bin/regrade"] != "" {
				t.Errorf("%s: set up %v, %v", name, m.setUp, m.files)
			}
		}
	})
	// A native host's units name one place.
	s := newSite(t)
	s.machines["n2"].readOnly = true
	if out, err := s.turn().Apply(t.Context()); err != nil || out.Problems["n2"].Code != "ReadOnly" {
		t.Errorf("%+v, %v", out, err)
	}
}
