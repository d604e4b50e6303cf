package project

import (
	"cmp"

	"github.com/exadev/regrade/internal/platform/docker"
	"github.com/exadev/regrade/internal/provision/setup"
)

// Telling are the variables of an .env that Named reads: none of them is a secret.
func Telling() []string { return []string{varProject, varNode, varSocket} }

// Name is what a project is known by before anything of regrade is on its host: its name, the
// Node that its .env is for, empty where it says none, and the engine's socket.
type Name struct{ Project, Node, Socket string }

// Named reads it, the fleet's word before the .env's.
func Named(d setup.Docker, e Env) Name {
	return Name{
		Project: cmp.Or(d.Project, e.Get(varProject), defaultProject),
		Node:    e.Get(varNode),
		Socket:  cmp.Or(d.Socket, e.Get(varSocket), docker.DefaultSocket),
	}
}

// Volume is the data volume's.
func (n Name) Volume() string { return volume(n.Project) }

func volume(project string) string { return project + "_k3s-data" }
