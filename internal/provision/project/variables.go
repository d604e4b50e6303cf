package project

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/hostd/settings"
	"github.com/exadev/regrade/internal/k3s"
	"github.com/exadev/regrade/internal/platform/container"
	"github.com/exadev/regrade/internal/platform/docker"
	"github.com/exadev/regrade/internal/provision/setup"
)

// Variables of the shipped .env that are named here; the others are package container's.
const (
	varProject   = "COMPOSE_PROJECT_NAME"
	varFiles     = "COMPOSE_FILE"
	varNode      = "K3S_NODE_NAME"
	varRole      = "FLEET_ROLE_INVENTORY_ROLE"
	varEligible  = "FLEET_ROLE_ELIGIBLE"
	varPinned    = "FLEET_ROLE_PINNED"
	varPrefix    = "FLEET_ROLE_LABEL_PREFIX"
	varDatastore = "K3S_DATASTORE"
	varK3sImage  = "K3S_IMAGE"
	varImage     = "REGRADE_IMAGE"
	varBoth      = "K3S_REGRADE_IMAGE"
	varProgram   = "FLEET_ROLE_K3S"
	varRoleDir   = "REGRADE_ROLE_DIR"
	varRunDir    = "REGRADE_RUN_DIR"
	varK3sDir    = "REGRADE_K3S_DIR"
	varSettings  = "REGRADE_SETTINGS_DIR"
	varLogDriver = "REGRADE_LOG_DRIVER"
	varSocket    = "DOCKER_SOCKET"
	varNetwork   = "REGRADE_NETWORK"
)

// defaultProject is the name of a project that nobody has given another.
const defaultProject = "regrade"

// variables in the order of env.example.
var variables = []string{
	varProject, varFiles, varNode, varRole, varEligible, varPinned, varPrefix,
	container.EnvToken, container.EnvTokenFile, container.EnvAgentToken, container.EnvAgentTokenFile,
	container.EnvServerURL, container.EnvAgentURL, container.EnvFirst, varDatastore,
	varK3sImage, varImage, varBoth, varProgram, varRoleDir, varRunDir, varK3sDir, varSettings, varLogDriver, varSocket, varNetwork,
}

// given are those that the containers have in their environment.
var given = []string{
	varNode, container.EnvToken, container.EnvTokenFile, container.EnvAgentToken, container.EnvAgentTokenFile, container.EnvServerURL, container.EnvAgentURL,
	varDatastore, container.EnvFirst, varRole, varEligible, varPinned, varPrefix, varProgram,
}

// daemonOnly are those that say nothing to k3s's containers: with another one they need
// not be made anew. regrade's image is an argument of the build of theirs, which Compose 1
// takes for a part of a container: its next `up` would make it anew.
func daemonOnly(compose string) []string {
	if major, _, ok := version(compose); ok && major > 1 {
		return []string{varImage, varSettings, varSocket}
	}
	return []string{varSettings, varSocket}
}

// defaults are what the shipped project takes an empty variable for.
var defaults = map[string]string{
	varEligible: "false", varPinned: "false", varPrefix: fleet.DefaultPrefix, varBoth: "k3s-regrade:latest",
	varRoleDir: "./fleet-role.d", varRunDir: "/run/regrade", varK3sDir: "./k3s", varSettings: "./regrade",
	varLogDriver: "local", varSocket: docker.DefaultSocket, varNetwork: "host", varProgram: docker.DefaultK3s, varDatastore: "etcd",
}

// meant is what a value comes to.
func meant(key, value string) string {
	switch key {
	case varFiles:
		return strings.Join(composeFiles(value), ":")
	case container.EnvFirst:
		if value == "false" {
			return ""
		}
	}
	if value == "" {
		return defaults[key]
	}
	return value
}

// Names of files in the project's folder.
const (
	fileCompose  = "compose.yaml"
	fileRights   = "rights.yaml"
	fileIdentity = "identity.yaml"
	fileImage    = "image/Dockerfile"
	fileEnv      = ".env"
	// fileWithout takes the daemon out of the project after a removal.
	fileWithout = "without-regrade.yaml"
)

// composeFiles are the files of COMPOSE_FILE, without the one of a removal.
func composeFiles(value string) []string {
	if value == "" {
		return []string{fileCompose}
	}
	return slices.DeleteFunc(strings.Split(value, ":"), func(name string) bool { return name == fileWithout })
}

// prior is what counts beside the document when the .env is made.
type prior struct {
	env Env
	// have: there is an .env. made: one of the two k3s containers is there. recorded: there
	// is a role file.
	have, made, recorded bool
}

func (p prior) get(key string) string { return p.env.Get(key) }

// wanted are the variables that the host shall have: the document's word, else what is
// there, else the default.
func wanted(d setup.Desired, h settings.Host, p prior) map[string]string {
	part := d.DockerPart()
	first := func(values ...string) string {
		for _, v := range values {
			if v != "" {
				return v
			}
		}
		return ""
	}
	if !p.have {
		part.Images = setup.Images{
			K3s: first(part.Images.K3s, part.Usual.K3s), Regrade: first(part.Images.Regrade, part.Usual.Regrade), Both: first(part.Images.Both, part.Usual.Both),
		}
	}
	w := map[string]string{
		varProject:   first(part.Project, p.get(varProject), defaultProject),
		varNode:      h.Node,
		varRole:      string(d.Role),
		varEligible:  fmt.Sprint(d.Eligible),
		varPinned:    fmt.Sprint(d.Pinned),
		varK3sImage:  first(part.Images.K3s, p.get(varK3sImage)),
		varImage:     first(part.Images.Regrade, p.get(varImage)),
		varDatastore: p.get(varDatastore),
		varProgram:   first(part.Program, p.get(varProgram)),
		varLogDriver: first(part.LogDriver, p.get(varLogDriver), defaults[varLogDriver]),
		varSocket:    first(part.Socket, p.get(varSocket), defaults[varSocket]),
		varNetwork:   first(part.Network, p.get(varNetwork), defaults[varNetwork]),
	}
	for _, key := range []string{varRoleDir, varRunDir, varK3sDir, varSettings} {
		w[key] = first(p.get(key), defaults[key])
	}
	w[varPrefix] = ""
	if h.Prefix != fleet.DefaultPrefix {
		w[varPrefix] = h.Prefix
	}
	// What a host was set up as is not said again once its role is recorded (R-C-08).
	if p.recorded && p.get(varRole) != "" {
		w[varRole] = p.get(varRole)
	}
	files := part.Files
	if len(files) == 0 {
		files = []string{fileCompose, fileRights}
		if p.have {
			files = composeFiles(p.get(varFiles))
		}
	}
	if part.Identity && !slices.Contains(files, fileIdentity) {
		files = append(slices.Clone(files), fileIdentity)
	}
	w[varFiles] = strings.Join(files, ":")
	tokens(w, d, part, p)
	joins(w, d, h, part, p)
	// A new name for a new pair of images; k3s that runs keeps the one that it was made of
	// while only regrade's is another: the daemon alone takes that.
	w[varBoth] = first(part.Images.Both, p.get(varBoth))
	same := p.get(varK3sImage) == w[varK3sImage] && (p.made || p.get(varImage) == w[varImage])
	if part.Images.Both == "" && (w[varBoth] == "" || !same) && w[varK3sImage] != "" && w[varImage] != "" {
		w[varBoth] = "k3s-regrade:" + tag(w[varK3sImage]) + "-" + tag(w[varImage])
	}
	return w
}

// tokens are the servers' and the agents'. A file that the .env names is kept in their
// place, and so is a token that is written otherwise and is the same.
func tokens(w map[string]string, d setup.Desired, part setup.Docker, p prior) {
	for _, t := range []struct {
		variable, file, saysFile string
		says                     []string
	}{
		{container.EnvToken, container.EnvTokenFile, part.TokenFile, []string{d.Token.Reveal(), d.Voter.Get("token")}},
		{container.EnvAgentToken, container.EnvAgentTokenFile, part.AgentTokenFile, []string{part.AgentToken.Reveal(), d.Voter.Get("agent-token")}},
	} {
		says := t.says[0]
		if says == "" {
			says = t.says[1]
		}
		switch {
		case t.saysFile != "":
			w[t.file], w[t.variable] = t.saysFile, ""
		case p.get(t.file) != "":
			w[t.file], w[t.variable] = p.get(t.file), p.get(t.variable)
		case says == "" || sameToken(says, p.get(t.variable)):
			w[t.variable] = p.get(t.variable)
		default:
			w[t.variable] = says
		}
	}
}

// sameToken compares the secrets of two tokens, whatever CA and user stand before them.
func sameToken(a, b string) bool {
	x, err1 := k3s.ParseToken(a)
	y, err2 := k3s.ParseToken(b)
	return err1 == nil && err2 == nil && x.Secret.Reveal() == y.Secret.Reveal() && (x.CAHash == "" || y.CAHash == "" || x.CAHash == y.CAHash)
}

// joins are where the host joins. What is there stays: the order of the other servers is no
// reason to make a container anew.
func joins(w map[string]string, d setup.Desired, h settings.Host, part setup.Docker, p prior) {
	other := d.Other(h)
	w[container.EnvServerURL], w[container.EnvAgentURL] = part.JoinServer, part.AgentServer
	if part.JoinServer == "" {
		switch {
		case p.have:
			w[container.EnvServerURL] = p.get(container.EnvServerURL)
		case !part.Founder:
			w[container.EnvServerURL] = other
		}
	}
	if part.AgentServer == "" {
		w[container.EnvAgentURL] = other // R-228-14
		if v := p.get(container.EnvAgentURL); v != "" {
			w[container.EnvAgentURL] = v
		}
	}
	// A word for one start; left there it would found a second cluster on lost volumes.
	w[container.EnvFirst] = ""
	switch {
	case p.made:
		w[container.EnvFirst] = p.get(container.EnvFirst)
	case part.ClusterInit:
		w[container.EnvFirst] = "true"
	}
}

// tag is what an image's tag says in another's.
func tag(image string) string {
	if _, sum, ok := strings.Cut(image, "@"); ok {
		_, hex, _ := strings.Cut(sum, ":")
		return hex[:min(12, len(hex))]
	}
	name := image[strings.LastIndex(image, "/")+1:]
	if _, t, ok := strings.Cut(name, ":"); ok {
		return t[:min(50, len(t))]
	}
	return "latest"
}

// in is a path of the project's folder.
func in(folder, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(folder, path)
}
