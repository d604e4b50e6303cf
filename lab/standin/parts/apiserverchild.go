package parts

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// apiServerCommand is kube-apiserver with k3s's flag --advertise-port, which plain Kubernetes lacks: the
// endpoints of the kubernetes Service name the supervisor's port, and the server listens on another.
func apiServerCommand() *cobra.Command {
	settings := options.NewServerRunOptions()
	ctx := genericapiserver.SetupSignalContext()
	var advertise int
	command := &cobra.Command{
		Use:          APIServerName,
		SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			return settings.GenericServerRunOptions.ComponentGlobalsRegistry.Set()
		},
		RunE: func(*cobra.Command, []string) error {
			if err := logsapi.ValidateAndApply(settings.Logs, utilfeature.DefaultFeatureGate); err != nil {
				return err
			}
			completed, err := settings.Complete(ctx)
			if err != nil {
				return err
			}
			if errs := completed.Validate(); len(errs) != 0 {
				return utilerrors.NewAggregate(errs)
			}
			return serveAPI(ctx, completed, advertise)
		},
	}
	command.SetContext(ctx)
	for _, set := range settings.Flags().FlagSets {
		command.Flags().AddFlagSet(set)
	}
	command.Flags().IntVar(&advertise, "advertise-port", 0, "port in the endpoints of the kubernetes Service; 0 is the secure port")
	return command
}

func serveAPI(ctx context.Context, settings options.CompletedOptions, advertise int) error {
	config, err := apiserver.NewConfig(settings)
	if err != nil {
		return err
	}
	// The loopback client was made from the true port above; the Service's endpoints are made from what the
	// listener says below.
	if serving := config.KubeAPIs.ControlPlane.Generic.SecureServing; advertise != 0 {
		address, ok := serving.Listener.Addr().(*net.TCPAddr)
		if !ok {
			return fmt.Errorf("kube-apiserver listens on %v, which has no port", serving.Listener.Addr())
		}
		serving.Listener = &advertised{Listener: serving.Listener, address: &net.TCPAddr{IP: address.IP, Port: advertise, Zone: address.Zone}}
	}
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	server, err := apiserver.CreateServerChain(completed)
	if err != nil {
		return err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}

// advertised is a listener that says another address than the one it listens on.
type advertised struct {
	net.Listener
	address net.Addr
}

func (a *advertised) Addr() net.Addr { return a.address }
