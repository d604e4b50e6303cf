package k3s

import (
	"maps"
	"slices"

	"github.com/exadev/regrade/internal/fleet"
)

// FlagKind is how k3s takes a flag.
type FlagKind int

// Kinds of flags.
const (
	FlagValue FlagKind = iota // the last one given counts
	FlagList                  // files and command line accumulate (k3s-facts §1.2)
	FlagTruth                 // takes no word after it
)

// Flag is one of k3s's.
type Flag struct {
	Kind FlagKind
	// Env is the variable that gives it where neither file nor command line does.
	Env string
}

// FlagOf is a flag of a role by its long name.
func FlagOf(role fleet.Role, key string) (Flag, bool) {
	if f, ok := bothFlags[key]; ok {
		return f, true
	}
	f, ok := ownFlagsOf(role)[key]
	return f, ok
}

// FlagNames are the long names of a role's flags, sorted.
func FlagNames(role fleet.Role) []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(bothFlags)), slices.Collect(maps.Keys(ownFlagsOf(role))))))
}

// OfBoth says whether both roles know a flag, OfServer whether the server alone does.
func OfBoth(key string) bool   { _, ok := bothFlags[key]; return ok }
func OfServer(key string) bool { _, ok := serverFlags[key]; return ok }

// OfAgent says whether the agent alone knows a flag.
func OfAgent(key string) bool { _, ok := agentFlags[key]; return ok }

// LongFlag is the long name of a flag that may have been given by its short one.
func LongFlag(name string) string {
	if long, ok := shortFlags[name]; ok {
		return long
	}
	return name
}

func ownFlagsOf(role fleet.Role) map[string]Flag {
	if role == fleet.RoleAgent {
		return agentFlags
	}
	return serverFlags
}

// bothFlags are the flags of server and agent alike; serverFlags those on which `k3s agent` dies,
// agentFlags those of which `k3s server` knows nothing (k3s v1.36, `k3s server --help` and
// `k3s agent --help` with the hidden ones).
var bothFlags = map[string]Flag{
	"server":                            {FlagValue, "K3S_URL"},
	"token":                             {FlagValue, "K3S_TOKEN"},
	"token-file":                        {FlagValue, "K3S_TOKEN_FILE"},
	"data-dir":                          {FlagValue, "K3S_DATA_DIR"},
	"node-name":                         {FlagValue, "K3S_NODE_NAME"},
	"with-node-id":                      {FlagTruth, ""},
	"node-ip":                           {FlagList, ""},
	"node-external-ip":                  {FlagList, ""},
	"node-internal-dns":                 {FlagList, ""},
	"node-external-dns":                 {FlagList, ""},
	"node-label":                        {FlagList, ""},
	"node-taint":                        {FlagList, ""},
	"bind-address":                      {FlagValue, ""},
	"protect-kernel-defaults":           {FlagTruth, ""},
	"selinux":                           {FlagTruth, "K3S_SELINUX"},
	"lb-server-port":                    {FlagValue, "K3S_LB_SERVER_PORT"},
	"docker":                            {FlagTruth, ""},
	"container-runtime-endpoint":        {FlagValue, ""},
	"default-runtime":                   {FlagValue, ""},
	"image-service-endpoint":            {FlagValue, ""},
	"private-registry":                  {FlagValue, ""},
	"airgap-extra-registry":             {FlagList, ""},
	"pause-image":                       {FlagValue, ""},
	"snapshotter":                       {FlagValue, ""},
	"flannel-iface":                     {FlagValue, ""},
	"flannel-conf":                      {FlagValue, ""},
	"flannel-cni-conf":                  {FlagValue, ""},
	"vpn-auth":                          {FlagValue, "K3S_VPN_AUTH"},
	"vpn-auth-file":                     {FlagValue, "K3S_VPN_AUTH_FILE"},
	"resolv-conf":                       {FlagValue, "K3S_RESOLV_CONF"},
	"kubelet-arg":                       {FlagList, ""},
	"kube-proxy-arg":                    {FlagList, ""},
	"image-credential-provider-bin-dir": {FlagValue, ""},
	"image-credential-provider-config":  {FlagValue, ""},
	"disable-default-registry-endpoint": {FlagTruth, ""},
	"nonroot-devices":                   {FlagTruth, ""},
	"enable-pprof":                      {FlagTruth, ""},
	"rootless":                          {FlagTruth, ""},
	"prefer-bundled-bin":                {FlagTruth, ""},
	"debug":                             {FlagTruth, "K3S_DEBUG"},
	"v":                                 {FlagValue, ""},
	"vmodule":                           {FlagValue, ""},
	"log":                               {FlagValue, ""},
	"alsologtostderr":                   {FlagTruth, ""},
	"config":                            {FlagValue, "K3S_CONFIG_FILE"},
}

var agentFlags = map[string]Flag{
	"disable-apiserver-lb": {FlagTruth, ""},
}

var serverFlags = map[string]Flag{
	"cluster-init":                      {FlagTruth, "K3S_CLUSTER_INIT"},
	"cluster-reset":                     {FlagTruth, "K3S_CLUSTER_RESET"},
	"cluster-reset-restore-path":        {FlagValue, ""},
	"agent-token":                       {FlagValue, "K3S_AGENT_TOKEN"},
	"agent-token-file":                  {FlagValue, "K3S_AGENT_TOKEN_FILE"},
	"cluster-cidr":                      {FlagList, ""},
	"service-cidr":                      {FlagList, ""},
	"service-node-port-range":           {FlagValue, ""},
	"cluster-dns":                       {FlagList, ""},
	"cluster-domain":                    {FlagValue, ""},
	"kube-apiserver-arg":                {FlagList, ""},
	"kube-scheduler-arg":                {FlagList, ""},
	"kube-controller-manager-arg":       {FlagList, ""},
	"kube-cloud-controller-manager-arg": {FlagList, ""},
	"helm-controller-arg":               {FlagList, ""},
	"etcd-arg":                          {FlagList, ""},
	"https-listen-port":                 {FlagValue, ""},
	"supervisor-port":                   {FlagValue, "K3S_SUPERVISOR_PORT"},
	"apiserver-port":                    {FlagValue, "K3S_APISERVER_PORT"},
	"apiserver-bind-address":            {FlagValue, "K3S_APISERVER_BIND_ADDRESS"},
	"advertise-address":                 {FlagValue, ""},
	"advertise-port":                    {FlagValue, ""},
	"tls-san":                           {FlagList, ""},
	"tls-san-security":                  {FlagTruth, ""},
	"flannel-backend":                   {FlagValue, ""},
	"flannel-ipv6-masq":                 {FlagTruth, ""},
	"flannel-external-ip":               {FlagTruth, ""},
	"egress-selector-mode":              {FlagValue, ""},
	"servicelb-namespace":               {FlagValue, ""},
	"write-kubeconfig":                  {FlagValue, "K3S_KUBECONFIG_OUTPUT"},
	"write-kubeconfig-mode":             {FlagValue, "K3S_KUBECONFIG_MODE"},
	"write-kubeconfig-group":            {FlagValue, "K3S_KUBECONFIG_GROUP"},
	"write-kubeconfig-name":             {FlagValue, "K3S_KUBECONFIG_NAME"},
	"helm-job-image":                    {FlagValue, ""},
	"kine-tls":                          {FlagTruth, ""},
	"datastore-endpoint":                {FlagValue, "K3S_DATASTORE_ENDPOINT"},
	"datastore-cafile":                  {FlagValue, "K3S_DATASTORE_CAFILE"},
	"datastore-certfile":                {FlagValue, "K3S_DATASTORE_CERTFILE"},
	"datastore-keyfile":                 {FlagValue, "K3S_DATASTORE_KEYFILE"},
	"etcd-expose-metrics":               {FlagTruth, ""},
	"etcd-disable-snapshots":            {FlagTruth, ""},
	"etcd-snapshot-name":                {FlagValue, ""},
	"etcd-snapshot-schedule-cron":       {FlagValue, ""},
	"etcd-snapshot-reconcile-interval":  {FlagValue, ""},
	"etcd-snapshot-retention":           {FlagValue, ""},
	"etcd-snapshot-dir":                 {FlagValue, ""},
	"etcd-snapshot-compress":            {FlagTruth, ""},
	"etcd-s3":                           {FlagTruth, ""},
	"etcd-s3-endpoint":                  {FlagValue, ""},
	"etcd-s3-endpoint-ca":               {FlagValue, ""},
	"etcd-s3-skip-ssl-verify":           {FlagTruth, ""},
	"etcd-s3-access-key":                {FlagValue, "AWS_ACCESS_KEY_ID"},
	"etcd-s3-secret-key":                {FlagValue, "AWS_SECRET_ACCESS_KEY"},
	"etcd-s3-session-token":             {FlagValue, "AWS_SESSION_TOKEN"},
	"etcd-s3-bucket":                    {FlagValue, ""},
	"etcd-s3-bucket-lookup-type":        {FlagValue, ""},
	"etcd-s3-region":                    {FlagValue, ""},
	"etcd-s3-folder":                    {FlagValue, ""},
	"etcd-s3-retention":                 {FlagValue, ""},
	"etcd-s3-proxy":                     {FlagValue, ""},
	"etcd-s3-config-secret":             {FlagValue, ""},
	"etcd-s3-insecure":                  {FlagTruth, ""},
	"etcd-s3-timeout":                   {FlagValue, ""},
	"default-local-storage-path":        {FlagValue, ""},
	"disable":                           {FlagList, ""},
	"disable-scheduler":                 {FlagTruth, ""},
	"disable-cloud-controller":          {FlagTruth, ""},
	"disable-kube-proxy":                {FlagTruth, ""},
	"disable-network-policy":            {FlagTruth, ""},
	"disable-helm-controller":           {FlagTruth, ""},
	"disable-apiserver":                 {FlagTruth, ""},
	"disable-controller-manager":        {FlagTruth, ""},
	"disable-etcd":                      {FlagTruth, ""},
	"disable-agent":                     {FlagTruth, ""},
	"embedded-registry":                 {FlagTruth, ""},
	"supervisor-metrics":                {FlagTruth, ""},
	"system-default-registry":           {FlagValue, "K3S_SYSTEM_DEFAULT_REGISTRY"},
	"secrets-encryption":                {FlagTruth, ""},
	"secrets-encryption-provider":       {FlagValue, ""},
}

var shortFlags = map[string]string{"s": "server", "t": "token", "d": "data-dir", "i": "node-ip", "c": "config", "l": "log", "o": "write-kubeconfig"}
