package parts

import (
	"context"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestACommandThatEndsByItselfIsKnown(t *testing.T) {
	for _, c := range []struct {
		name    string
		command []string
		after   time.Duration
		code    int32
		ends    bool
	}{
		{"sleep ends after its time", []string{"sleep", "1.5"}, 1500 * time.Millisecond, 0, true},
		{"true ends at once", []string{"true"}, 0, 0, true},
		{"false fails at once", []string{"false"}, 0, 1, true},
		{"sleep for ever does not end", []string{"sleep", "infinity"}, 0, 0, false},
		{"sleep of a negative time does not end", []string{"sleep", "-1"}, 0, 0, false},
		{"a server does not end", []string{"/run.sh"}, 0, 0, false},
		{"an image's own command does not end", nil, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			after, code, ends := ending(c.command)
			if after != c.after || code != c.code || ends != c.ends {
				t.Errorf("got %v, %d, %v", after, code, ends)
			}
		})
	}
}

func TestPodsGetAddressesOfTheNodesRangeAndHostPodsNone(t *testing.T) {
	ctx := context.Background()
	r := newFakeRuntime()
	if _, err := r.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.RuntimeConfig{
		NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: "10.42.7.0/29"},
	}}); err != nil {
		t.Fatal(err)
	}
	address := func(mode runtimeapi.NamespaceMode) string {
		t.Helper()
		made, err := r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: mode},
			}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		status, err := r.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: made.PodSandboxId})
		if err != nil {
			t.Fatal(err)
		}
		return status.Status.Network.Ip
	}
	if got := address(runtimeapi.NamespaceMode_NODE); got != "" {
		t.Errorf("a pod of the host's network got %s", got)
	}
	for _, want := range []string{"10.42.7.2", "10.42.7.3", "10.42.7.4", "10.42.7.5", "10.42.7.6", "10.42.7.2"} {
		if got := address(runtimeapi.NamespaceMode_POD); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestAStoppedSandboxStopsItsContainers(t *testing.T) {
	ctx := context.Background()
	r := newFakeRuntime()
	made, err := r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	container, err := r.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: made.PodSandboxId, Config: &runtimeapi.ContainerConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: container.ContainerId}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: made.PodSandboxId}); err != nil {
		t.Fatal(err)
	}
	status, err := r.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container.ContainerId})
	if err != nil {
		t.Fatal(err)
	}
	if status.Status.State != runtimeapi.ContainerState_CONTAINER_EXITED || status.Status.ExitCode != 137 {
		t.Errorf("the container is %v with exit code %d", status.Status.State, status.Status.ExitCode)
	}
}
