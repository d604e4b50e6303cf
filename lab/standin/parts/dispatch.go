package parts

import (
	"fmt"
	"os"
	"path/filepath"
)

// Names of the components, as argv[0] of their processes.
const (
	EtcdName              = "etcd"
	APIServerName         = "kube-apiserver"
	ControllerManagerName = "kube-controller-manager"
	SchedulerName         = "kube-scheduler"
	KubeletName           = "kubelet"
	ShimName              = "containerd-shim-runc-v2"
)

// components maps a name to the function that runs it in this process and returns its exit status. The
// arguments exclude argv[0].
var components = map[string]func(args []string) int{
	EtcdName:              runEtcd,
	APIServerName:         runAPIServer,
	ControllerManagerName: runControllerManager,
	SchedulerName:         runScheduler,
	KubeletName:           runKubelet,
	ShimName:              runShim,
}

// Dispatch runs the component that args name in this process and returns its exit status when it has ended;
// ok is false, and nothing has run, if args name none. args is os.Args as it is: the base name of args[0]
// may be a component, or args[1] may be "component" and args[2] its name. It must be the first thing main does.
func Dispatch(args []string) (status int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	if run, found := components[filepath.Base(args[0])]; found {
		return run(args[1:]), true
	}
	if len(args) > 2 && args[1] == "component" {
		run, found := components[args[2]]
		if !found {
			fmt.Fprintf(os.Stderr, "component %q is unknown\n", args[2])
			return 1, true
		}
		return run(args[3:]), true
	}
	return 0, false
}
