// Package program puts the commands of all packages together into the one program
// regrade. Package main runs it, and a release makes its pages from it.
package program

import (
	"github.com/exadev/regrade/internal/cli"
	"github.com/exadev/regrade/internal/cli/alertcmd"
	"github.com/exadev/regrade/internal/cli/entrycmd"
	"github.com/exadev/regrade/internal/cli/env"
	"github.com/exadev/regrade/internal/cli/fleetcmd"
	"github.com/exadev/regrade/internal/cli/heartbeatcmd"
	"github.com/exadev/regrade/internal/cli/hostcmd"
	"github.com/exadev/regrade/internal/cli/probecmd"
	"github.com/exadev/regrade/internal/cli/recoverycmd"
)

// Commands are what cli.New and cli.Run need to make regrade.
func Commands(e env.Env) cli.Deps {
	d := cli.Production()
	d.More = append(d.More,
		entrycmd.New(e), hostcmd.New(e, hostcmd.Production(cli.Version)), hostcmd.NewLevel(e, hostcmd.Production(cli.Version)), probecmd.New(e, probecmd.Production(cli.Version)),
		heartbeatcmd.New(e, heartbeatcmd.Production(cli.Version)), alertcmd.New(e, alertcmd.Production(cli.Version)),
		recoverycmd.New(e, recoverycmd.Production(cli.Version)), fleetcmd.NewInit(e, fleetcmd.InitProduction(cli.Version)),
	)
	return d
}
