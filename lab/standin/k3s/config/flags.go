// Package config reads k3s's command line, config file, drop-ins and environment into one set of options (k3s facts
// §1). It decides only what k3s itself decides here; it starts nothing.
package config

import "strings"

// Command is a k3s sub-command that takes a config file.
type Command string

// The commands of the stand-in.
const (
	Server   Command = "server"
	Agent    Command = "agent"
	Snapshot Command = "etcd-snapshot"
)

type kind int

const (
	text kind = iota
	list
	toggle
)

// flagDef is one flag: its names (the first is the canonical one), where it is valid, and its defaults.
type flagDef struct {
	names []string
	kind  kind
	on    string // letters: S server, A agent, E etcd-snapshot
	env   string
	def   string
}

// table holds a line per flag: names|kind|where|environment|default. The names are k3s's own.
const table = `
config,c|text|SAE|K3S_CONFIG_FILE|/etc/rancher/k3s/config.yaml
debug|toggle|SAE|K3S_DEBUG|
v|text|SA||
vmodule|text|SA||
log,l|text|SAE||
alsologtostderr|toggle|SAE||
token,t|text|SA|K3S_TOKEN|
token-file|text|SA|K3S_TOKEN_FILE|
server,s|text|SA|K3S_URL|
data-dir,d|text|SAE|K3S_DATA_DIR|/var/lib/rancher/k3s
node-name|text|SAE|K3S_NODE_NAME|
with-node-id|toggle|SA||
node-label|list|SA||
node-taint|list|SA||
node-ip,i|list|SA||
node-external-ip|list|SA||
node-internal-dns|list|SA||
node-external-dns|list|SA||
bind-address|text|SA||
flannel-iface|text|SA||
flannel-conf|text|SA||
flannel-cni-conf|text|SA||
kubelet-arg|list|SA||
kube-proxy-arg|list|SA||
lb-server-port|text|SA|K3S_LB_SERVER_PORT|6444
private-registry|text|SA||/etc/rancher/k3s/registries.yaml
snapshotter|text|SA||overlayfs
pause-image|text|SA||
docker|toggle|SA||
container-runtime-endpoint|text|SA||
default-runtime|text|SA||
image-service-endpoint|text|SA||
nonroot-devices|toggle|SA||
selinux|toggle|SA|K3S_SELINUX|
resolv-conf|text|SA|K3S_RESOLV_CONF|
protect-kernel-defaults|toggle|SA||
image-credential-provider-bin-dir|text|SA||
image-credential-provider-config|text|SA||
airgap-extra-registry|list|SA||
disable-default-registry-endpoint|toggle|SA||
disable-selinux|toggle|SA||
prefer-bundled-bin|toggle|SA||
rootless|toggle|SA||
vpn-auth|text|SA|K3S_VPN_AUTH|
vpn-auth-file|text|SA|K3S_VPN_AUTH_FILE|
enable-pprof|toggle|SA||
supervisor-metrics|toggle|S||
disable-apiserver-lb|toggle|A||
no-flannel|toggle|SA||
cluster-secret|text|SA|K3S_CLUSTER_SECRET|
https-listen-port|text|S||6443
supervisor-port|text|S|K3S_SUPERVISOR_PORT|
apiserver-port|text|S|K3S_APISERVER_PORT|
apiserver-bind-address|text|S|K3S_APISERVER_BIND_ADDRESS|
advertise-address|text|S||
advertise-port|text|S||
tls-san|list|S||
tls-san-security|toggle|S||true
cluster-cidr|list|S||10.42.0.0/16
service-cidr|list|S||10.43.0.0/16
service-node-port-range|text|S||30000-32767
cluster-dns|list|S||10.43.0.10
cluster-domain|text|S||cluster.local
flannel-backend|text|S||vxlan
flannel-ipv6-masq|toggle|S||
flannel-external-ip|toggle|S||
egress-selector-mode|text|S||agent
servicelb-namespace|text|S||kube-system
write-kubeconfig,o|text|S|K3S_KUBECONFIG_OUTPUT|/etc/rancher/k3s/k3s.yaml
write-kubeconfig-mode|text|S|K3S_KUBECONFIG_MODE|
write-kubeconfig-group|text|S|K3S_KUBECONFIG_GROUP|
write-kubeconfig-name|text|S|K3S_KUBECONFIG_NAME|
helm-job-image|text|S||
agent-token|text|S|K3S_AGENT_TOKEN|
agent-token-file|text|S|K3S_AGENT_TOKEN_FILE|
cluster-init|toggle|S|K3S_CLUSTER_INIT|
cluster-reset|toggle|S|K3S_CLUSTER_RESET|
cluster-reset-restore-path|text|S||
kube-apiserver-arg|list|S||
etcd-arg|list|S||
kube-controller-manager-arg|list|S||
kube-scheduler-arg|list|S||
kube-cloud-controller-manager-arg|list|S||
kine-tls|toggle|S||
datastore-endpoint|text|S|K3S_DATASTORE_ENDPOINT|
datastore-cafile|text|S|K3S_DATASTORE_CAFILE|
datastore-certfile|text|S|K3S_DATASTORE_CERTFILE|
datastore-keyfile|text|S|K3S_DATASTORE_KEYFILE|
etcd-expose-metrics|toggle|S||
etcd-disable-snapshots|toggle|S||
etcd-snapshot-name|text|S||etcd-snapshot
etcd-snapshot-schedule-cron|text|S||0 */12 * * *
etcd-snapshot-reconcile-interval|text|S||10m
etcd-snapshot-retention|text|SE||5
etcd-snapshot-dir,dir|text|SE||
etcd-snapshot-compress,snapshot-compress|toggle|SE||
etcd-s3,s3|toggle|SE||
etcd-s3-endpoint,s3-endpoint|text|SE||s3.amazonaws.com
etcd-s3-endpoint-ca,s3-endpoint-ca|text|SE||
etcd-s3-skip-ssl-verify,s3-skip-ssl-verify|toggle|SE||
etcd-s3-access-key,s3-access-key|text|SE|AWS_ACCESS_KEY_ID|
etcd-s3-secret-key,s3-secret-key|text|SE|AWS_SECRET_ACCESS_KEY|
etcd-s3-session-token,s3-session-token|text|SE|AWS_SESSION_TOKEN|
etcd-s3-bucket,s3-bucket|text|SE||
etcd-s3-bucket-lookup-type,s3-bucket-lookup-type|text|SE||
etcd-s3-region,s3-region|text|SE||us-east-1
etcd-s3-folder,s3-folder|text|SE||
etcd-s3-proxy,s3-proxy|text|SE||
etcd-s3-config-secret,s3-config-secret|text|SE||
etcd-s3-insecure,s3-insecure|toggle|SE||
etcd-s3-retention,s3-retention|text|SE||5
etcd-s3-timeout,s3-timeout|text|SE||5m
default-local-storage-path|text|S||
disable|list|S||
disable-scheduler|toggle|S||
disable-cloud-controller|toggle|S||
disable-kube-proxy|toggle|S||
disable-network-policy|toggle|S||
disable-helm-controller|toggle|S||
disable-apiserver|toggle|S||
disable-controller-manager|toggle|S||
disable-etcd|toggle|S||
disable-agent|toggle|S||
embedded-registry|toggle|S||
system-default-registry|text|S|K3S_SYSTEM_DEFAULT_REGISTRY|
secrets-encryption|toggle|S||
secrets-encryption-provider|text|S||aescbc
multus|toggle|S||
name|text|E||on-demand
etcd-server,s|text|E||https://127.0.0.1:6443
etcd-token,t|text|E||
output,o|text|E||
`

func parseTable() []flagDef {
	kinds := map[string]kind{"text": text, "list": list, "toggle": toggle}
	var defs []flagDef
	for _, line := range strings.Split(strings.TrimSpace(table), "\n") {
		f := strings.SplitN(line, "|", 5)
		defs = append(defs, flagDef{
			names: strings.Split(f[0], ","), kind: kinds[f[1]], on: f[2], env: f[3], def: f[4],
		})
	}
	return defs
}

// flagsOf lists the flags that cmd knows.
func flagsOf(cmd Command) []flagDef {
	letter := map[Command]string{Server: "S", Agent: "A", Snapshot: "E"}[cmd]
	var out []flagDef
	for _, d := range parseTable() {
		if strings.Contains(d.on, letter) {
			out = append(out, d)
		}
	}
	return out
}

// secretFlags show as asterisks in the node-args annotation. --etcd-s3-session-token is missing in k3s as well.
var secretFlags = map[string]bool{
	"-t": true, "--token": true, "--agent-token": true, "--datastore-endpoint": true,
	"--etcd-s3-access-key": true, "--etcd-s3-secret-key": true, "--vpn-auth": true,
	"--cluster-secret": true,
}
