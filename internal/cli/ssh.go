package cli

import (
	"github.com/spf13/pflag"

	"github.com/exadev/regrade/internal/remote"
)

// sshSettings are what a command that goes to hosts may be told of the way there.
type sshSettings struct {
	config     string
	knownHosts []string
	identities []string
}

func (s *sshSettings) flags(fs *pflag.FlagSet) {
	fs.StringVar(&s.config, "ssh-config", "", "file in place of ~/.ssh/config")
	fs.StringSliceVar(&s.knownHosts, "known-hosts", nil, "files in place of ~/.ssh/known_hosts")
	fs.StringSliceVar(&s.identities, "identity", nil, "files with private keys, tried first")
}

// options are those of the person who runs this, but for what flags say.
func (s *sshSettings) options() remote.Options {
	o := remote.Environment()
	if s.config != "" {
		o.ConfigFiles = []string{s.config}
	}
	o.KnownHosts, o.IdentityFiles = s.knownHosts, s.identities
	return o
}
