package remote

import (
	"os"
	"os/user"
	"path/filepath"
	"time"
)

// DefaultTimeout is how long one host may take to be connected to, a name looked up, keys
// exchanged and a key accepted.
const DefaultTimeout = 10 * time.Second

// Options are what a connection is made with. The zero value reads no file of anybody's
// home and asks no agent; [Environment] gives those of the person who runs this.
type Options struct {
	// Home is the folder that ~ stands for.
	Home string
	// User is who logs in where neither target nor configuration says.
	User string
	// ConfigFiles are read in this order, as ssh does: the first value counts. One that is
	// not there is passed over.
	ConfigFiles []string
	// KnownHosts replaces the files of the configuration, and ssh's own, where it is set.
	KnownHosts []string
	// IdentityFiles are tried before those of the configuration.
	IdentityFiles []string
	// AgentSocket is ssh-agent's, where the configuration does not say otherwise.
	AgentSocket string
	// Timeout replaces ConnectTimeout of the configuration; 0 leaves it, and DefaultTimeout
	// where it says nothing.
	Timeout time.Duration
}

// Environment gives the options that ssh would have: the person's home and name, both
// configuration files, and the agent of SSH_AUTH_SOCK.
func Environment() Options {
	o := Options{AgentSocket: os.Getenv("SSH_AUTH_SOCK"), ConfigFiles: []string{systemConfig}}
	if u, err := user.Current(); err == nil {
		o.User = u.Username
	}
	if home, err := os.UserHomeDir(); err == nil {
		o.Home = home
		o.ConfigFiles = []string{filepath.Join(home, ".ssh", "config"), systemConfig}
	}
	return o
}

const systemConfig = "/etc/ssh/ssh_config"
