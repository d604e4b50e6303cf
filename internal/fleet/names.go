package fleet

// Objects in the cluster (design §3).
const (
	LeaseNamespace = "kube-system"
	LeaseName      = "fleet-regrade"
	// LeaseHolder is the holder of the Lease during a swap (R-D1-06).
	LeaseHolder = "fleet-role"
	// LeaseSwapID and LeaseSwapNodes are annotations of the Lease; the second
	// is a comma-separated list (R-B-03). LeaseController is the controller's
	// own id (safety rule 21) and LeaseRecord the record of safety rule 4.
	LeaseSwapID     = "swap-id"
	LeaseSwapNodes  = "swap-nodes"
	LeaseController = "controller"
	LeaseRecord     = "role-record"
	// LeaseOutcome is how the swap ended, written before anything else says so: only
	// the holder of the Lease can write it (safety rules 21 and 25).
	LeaseOutcome = "role-outcome"

	DefaultNamespace   = "github-runner-platform"
	ConfigMapActuators = "fleet-role-actuators"
	ConfigMapStatus    = "fleet-role-status"
	ConfigMapProbe     = "fleet-role-probe"
	KeyStatus          = "status.json"
	KeyRequest         = "request.json"
	KeyPause           = "pause.json"

	// ConfigMapHealth is where the heartbeat process publishes, and the names of what it
	// publishes there and elsewhere; the last one says until when the fleet is vouched for.
	ConfigMapHealth  = "fleet-health"
	KeyHealth        = "fleet-health.json"
	KeyRoleStatus    = "role-status.json"
	FileHealthyUntil = "arc-healthy-until"
	// ConfigMapAlert holds the state of the alert process.
	ConfigMapAlert = "fleet-alert"
	KeyAlertState  = "state.json"

	// HeartbeatPrefix and a node name make the name of the Lease with which a
	// host daemon says that its last report still holds (safety rule 29).
	HeartbeatPrefix = "fleet-role-host-"
	// HeartbeatBootID and HeartbeatCounter are its annotations: the report they
	// vouch for.
	HeartbeatBootID  = "boot-id"
	HeartbeatCounter = "counter"
	// HeartbeatLabel marks these Leases, so that one list reads them all.
	HeartbeatLabel = "app.kubernetes.io/component"
	// HeartbeatLabelValue is its value.
	HeartbeatLabelValue = "fleet-role-host"
	// ProbeHeartbeatPrefix and ProbeHeartbeatLabelValue are the same of the Lease
	// with which a probe says that it goes on.
	ProbeHeartbeatPrefix     = "fleet-role-probe-"
	ProbeHeartbeatLabelValue = "fleet-role-probe"

	ServiceAccountController = "fleet-role"
	// ServiceAccountProbe is the probes', and the name of their DaemonSet.
	ServiceAccountProbe = "fleet-role-probe"
	ServiceAccountHost  = "fleet-role-actuator"
	// ServiceAccountLevel is of the level half of the host daemons: it may patch Nodes, evict
	// pods and take the Lease, so it is made where levels are switched on alone.
	ServiceAccountLevel = "fleet-level"
	// ServiceAccountHeartbeat and ServiceAccountAlert are also the names of the
	// Deployments.
	ServiceAccountHeartbeat = "fleet-heartbeat"
	ServiceAccountAlert     = "fleet-alert"
	// SecretHeartbeat holds GitHub's token for the heartbeat process, under the key
	// SecretToken; SecretAlert the addresses and tokens of the alert process.
	SecretHeartbeat = "heartbeat-gh-token"
	SecretToken     = "token"
	SecretAlert     = "fleet-alert"
	// ServiceAccountRecovery is of `regrade recovery`, and the name of its Deployment.
	ServiceAccountRecovery = "fleet-node-recovery"

	// AnnotationOutOfService is the default mark of `regrade recovery` on a Node that
	// it tainted. Its domain lacks the .com of the label prefix: a name that stands.
	AnnotationOutOfService = "github-runner.exadev/out-of-service-applied-at"

	// SnapshotPrefix and a swap id make the base name of an etcd snapshot (R-D1-28).
	SnapshotPrefix = "fleet-role-"

	// KubeletLeaseNamespace holds one Lease a Node, renewed by its kubelet.
	KubeletLeaseNamespace = "kube-node-lease"
)

// HeartbeatName is the name of a host daemon's heartbeat Lease.
func HeartbeatName(node string) string { return HeartbeatPrefix + node }

// DefaultRunnerSelector selects the pods a planned change never cuts.
const DefaultRunnerSelector = "actions-ephemeral-runner=True"

// Exit statuses of every command (R-D1-15..18, R-E2-03/04, design §4.1).
const (
	ExitDone    = 0
	ExitFailed  = 1
	ExitRefused = 2
	ExitNotYet  = 3
)

// Files and folders on a host (design §4.1, R-D1-11, R-216-13). All are
// absolute and looked up under a root, so that tests and containers can move it.
const (
	RoleDir         = "/etc/github-runner"
	FileRole        = RoleDir + "/role"
	FileLeaving     = RoleDir + "/leaving"
	FileJoinURL     = RoleDir + "/join-url"
	FileAgentURL    = RoleDir + "/agent-join-url"
	FileClusterID   = RoleDir + "/cluster-id"
	FileMemberID    = RoleDir + "/member-id"
	FileVoters      = RoleDir + "/voters"
	FilePassword    = RoleDir + "/node-password-sum"
	FileJoinBegun   = RoleDir + "/joining" // swap id: a join was confirmed, in this boot or an earlier one
	FileJoining     = "/run/regrade/joining"
	FileAllowJoin   = "/run/regrade/allow-join"
	FileSetupLock   = "/run/regrade/setup.lock"       // on Docker: of host setup and host remove, before there is a data volume
	FileApplying    = "/run/regrade/apply-level.lock" // platform command: a run of apply_level has its lock
	FileHostConfig  = "/etc/regrade/host.yaml"
	FileJoinConfig  = "/etc/regrade/join.yaml"
	FileInstalled   = "/etc/regrade/installed.json"
	FileKubeconfig  = "/etc/rancher/k3s/fleet-role-actuator.kubeconfig"
	FileLevelKube   = "/etc/rancher/k3s/fleet-level.kubeconfig"
	FileHostLock    = "/var/lib/rancher/k3s/fleet-role.lock"
	DefaultDataDir  = "/var/lib/rancher/k3s"
	FileServerConf  = "/etc/rancher/k3s/server.yaml"
	FileAgentConf   = "/etc/rancher/k3s/agent.yaml"
	FileLevelDropIn = FileServerConf + ".d/30-regrade-level.yaml"
	FileJoinDropIn  = FileServerConf + ".d/20-fleet-role-join.yaml"
	FileAgentJoin   = FileAgentConf + ".d/20-fleet-role-join.yaml"
	FileUnitJoin    = "/etc/systemd/system/k3s.service.d/20-fleet-role-join.conf"
	FileAgentUnit   = "/etc/systemd/system/k3s-agent.service.d/20-fleet-role-join.conf"
	FileLevel       = "regrade-level"        // in the data dir, read by the Docker entrypoint
	FileStarted     = "regrade-started"      // in the data dir, written by it: the level the server started with
	FileRan         = "/run/regrade/k3s-ran" // on Docker: the boot in which k3s was seen running
	FileLock        = "regrade-lock"         // in the data dir, locked by it for as long as k3s runs
	FilePartCopy    = ".regrade-copy"        // in a folder of the identity: not the host's yet, or half a copy
	FileEntrypoint  = "/run/regrade-entrypoint.json"
	EnvJoinHost     = "GITHUB_RUNNER_JOIN_HOST"

	// DirFsync is where the probe of a standby measures its disk: on the one that
	// would hold the datastore, as far as k3s's default layout says.
	DirFsync = DefaultDataDir + "/fleet-role-probe"
)
