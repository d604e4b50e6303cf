package parts

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeRuntime is a container runtime whose containers run nothing. It keeps all state in memory: what it
// knew is gone when it is killed, as a host's containers are after a crash.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	mu         sync.Mutex
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*fakeContainer
	pods       netip.Prefix
	lastIP     netip.Addr
}

type fakeContainer struct {
	status  *runtimeapi.ContainerStatus
	sandbox string
	command []string
	ending  *time.Timer
}

func newFakeRuntime() *fakeRuntime {
	return &fakeRuntime{
		sandboxes:  map[string]*runtimeapi.PodSandboxStatus{},
		containers: map[string]*fakeContainer{},
	}
}

// newID makes an id of 64 hex digits, as containerd does.
func newID() string {
	var id [32]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "%s %q is not there", kind, id)
}

func (r *fakeRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: "v2.1.5-standin", RuntimeApiVersion: "v1",
	}, nil
}

func (r *fakeRuntime) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
}

// UpdateRuntimeConfig takes the Node's pod range; pods get addresses from it.
func (r *fakeRuntime) UpdateRuntimeConfig(_ context.Context, request *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	if prefix, err := netip.ParsePrefix(request.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()); err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if prefix != r.pods {
			r.pods, r.lastIP = prefix, prefix.Addr().Next() // .1 is the bridge's
		}
	}
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// nextIP is the next free address of the pod range; before the range is known it is one for all.
func (r *fakeRuntime) nextIP() string {
	if !r.pods.IsValid() {
		return "192.168.192.168"
	}
	if next := r.lastIP.Next(); r.pods.Contains(next.Next()) {
		r.lastIP = next
	} else {
		r.lastIP = r.pods.Addr().Next().Next()
	}
	return r.lastIP.String()
}

func (r *fakeRuntime) RunPodSandbox(_ context.Context, request *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	config := request.GetConfig()
	namespaces := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	sandbox := &runtimeapi.PodSandboxStatus{
		Id:        newID(),
		Metadata:  config.GetMetadata(),
		State:     runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: time.Now().UnixNano(),
		Network:   &runtimeapi.PodSandboxNetworkStatus{},
		// Without these options the kubelet takes the network for changed and makes the sandbox anew for ever.
		Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: namespaces}},
		Labels:         config.GetLabels(),
		Annotations:    config.GetAnnotations(),
		RuntimeHandler: request.GetRuntimeHandler(),
	}
	if namespaces.GetNetwork() != runtimeapi.NamespaceMode_NODE {
		sandbox.Network.Ip = r.nextIP()
	}
	r.sandboxes[sandbox.Id] = sandbox
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: sandbox.Id}, nil
}

func (r *fakeRuntime) StopPodSandbox(_ context.Context, request *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sandbox, found := r.sandboxes[request.GetPodSandboxId()]; found {
		sandbox.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		for _, container := range r.containers {
			if container.sandbox == sandbox.Id {
				container.end(137)
			}
		}
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (r *fakeRuntime) RemovePodSandbox(_ context.Context, request *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, container := range r.containers {
		if container.sandbox == request.GetPodSandboxId() {
			container.end(137)
			delete(r.containers, id)
		}
	}
	delete(r.sandboxes, request.GetPodSandboxId())
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (r *fakeRuntime) PodSandboxStatus(_ context.Context, request *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sandbox, found := r.sandboxes[request.GetPodSandboxId()]
	if !found {
		return nil, notFound("pod sandbox", request.GetPodSandboxId())
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: proto.CloneOf(sandbox)}, nil
}

func (r *fakeRuntime) ListPodSandbox(_ context.Context, request *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	filter := request.GetFilter()
	response := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range r.sandboxes {
		if filter.GetId() != "" && filter.GetId() != s.Id ||
			filter.GetState() != nil && filter.GetState().State != s.State || !matches(filter.GetLabelSelector(), s.Labels) {
			continue
		}
		response.Items = append(response.Items, &runtimeapi.PodSandbox{
			Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt,
			Labels: s.Labels, Annotations: s.Annotations, RuntimeHandler: s.RuntimeHandler,
		})
	}
	return response, nil
}

func (r *fakeRuntime) CreateContainer(_ context.Context, request *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, found := r.sandboxes[request.GetPodSandboxId()]; !found {
		return nil, notFound("pod sandbox", request.GetPodSandboxId())
	}
	config := request.GetConfig()
	id := newID()
	r.containers[id] = &fakeContainer{
		sandbox: request.GetPodSandboxId(),
		command: slices.Concat(config.GetCommand(), config.GetArgs()),
		status: &runtimeapi.ContainerStatus{
			Id: id, Metadata: config.GetMetadata(), Image: config.GetImage(), ImageRef: config.GetImage().GetImage(),
			State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano(),
			Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		},
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

func (r *fakeRuntime) StartContainer(_ context.Context, request *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	container, found := r.containers[request.GetContainerId()]
	if !found {
		return nil, notFound("container", request.GetContainerId())
	}
	container.status.State = runtimeapi.ContainerState_CONTAINER_RUNNING
	container.status.StartedAt = time.Now().UnixNano()
	if after, code, ends := ending(container.command); ends {
		container.ending = time.AfterFunc(after, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			container.end(code)
		})
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

// ending says when a command would end by itself, and with which status.
func ending(command []string) (after time.Duration, code int32, ends bool) {
	switch {
	case len(command) == 2 && command[0] == "sleep":
		seconds, err := strconv.ParseFloat(command[1], 64)
		if err != nil || seconds < 0 || seconds > 1e9 {
			return 0, 0, false
		}
		return time.Duration(seconds * float64(time.Second)), 0, true
	case len(command) == 1 && command[0] == "true":
		return 0, 0, true
	case len(command) == 1 && command[0] == "false":
		return 0, 1, true
	}
	return 0, 0, false
}

// end marks the container as exited, once. The caller holds the runtime's lock.
func (c *fakeContainer) end(code int32) {
	if c.ending != nil {
		c.ending.Stop()
	}
	if c.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.status.State = runtimeapi.ContainerState_CONTAINER_EXITED
	c.status.FinishedAt = time.Now().UnixNano()
	c.status.ExitCode = code
	c.status.Reason = "Completed"
	if code != 0 {
		c.status.Reason = "Error"
	}
}

// StopContainer ends the container at once, as one that obeys SIGTERM.
func (r *fakeRuntime) StopContainer(_ context.Context, request *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if container, found := r.containers[request.GetContainerId()]; found {
		container.end(143)
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

func (r *fakeRuntime) RemoveContainer(_ context.Context, request *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if container, found := r.containers[request.GetContainerId()]; found {
		container.end(137)
		delete(r.containers, request.GetContainerId())
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (r *fakeRuntime) ListContainers(_ context.Context, request *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	filter := request.GetFilter()
	response := &runtimeapi.ListContainersResponse{}
	for _, c := range r.containers {
		s := c.status
		if filter.GetId() != "" && filter.GetId() != s.Id ||
			filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.sandbox ||
			filter.GetState() != nil && filter.GetState().State != s.State || !matches(filter.GetLabelSelector(), s.Labels) {
			continue
		}
		response.Containers = append(response.Containers, &runtimeapi.Container{
			Id: s.Id, PodSandboxId: c.sandbox, Metadata: s.Metadata, Image: s.Image, ImageRef: s.ImageRef,
			State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations,
		})
	}
	return response, nil
}

func (r *fakeRuntime) ContainerStatus(_ context.Context, request *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	container, found := r.containers[request.GetContainerId()]
	if !found {
		return nil, notFound("container", request.GetContainerId())
	}
	return &runtimeapi.ContainerStatusResponse{Status: proto.CloneOf(container.status)}, nil
}

func matches(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return true
}

// What follows is asked for by the kubelet and has nothing to tell.

func (r *fakeRuntime) UpdateContainerResources(context.Context, *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func (r *fakeRuntime) UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

func (r *fakeRuntime) ReopenContainerLog(context.Context, *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

func (r *fakeRuntime) ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	return &runtimeapi.ListContainerStatsResponse{}, nil
}

func (r *fakeRuntime) ListPodSandboxStats(context.Context, *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return &runtimeapi.ListPodSandboxStatsResponse{}, nil
}

func (r *fakeRuntime) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}
