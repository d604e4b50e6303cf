package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/exadev/regrade/internal/cli/env"
)

// Version is set by the build (-ldflags -X); empty takes the module's.
var Version string

func version() string {
	if Version != "" {
		return Version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return info.Main.Version
}

func newVersion(e env.Env) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if out.json() {
				return failed(printJSON(e.Out, map[string]string{"version": version(), "go": runtime.Version()}))
			}
			_, err := fmt.Fprintf(e.Out, "regrade %s %s\n", version(), runtime.Version())
			return failed(err)
		},
	}
	out.flags(cmd.Flags())
	return cmd
}
