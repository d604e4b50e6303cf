package fleet

// Names that k3s and Kubernetes fixed (k3s-facts §6.1).
const (
	LabelEtcd         = "node-role.kubernetes.io/etcd"
	LabelControlPlane = "node-role.kubernetes.io/control-plane"
	LabelMaster       = "node-role.kubernetes.io/master"
	LabelZone         = "topology.kubernetes.io/zone"

	AnnotationEtcdRemove      = "etcd.k3s.cattle.io/remove"
	AnnotationEtcdRemovedName = "etcd.k3s.cattle.io/removed-node-name"
	AnnotationEtcdName        = "etcd.k3s.cattle.io/node-name"
	AnnotationEtcdAddress     = "etcd.k3s.cattle.io/node-address"
	AnnotationLocalSnapshots  = "etcd.k3s.cattle.io/local-snapshots-timestamp"
	AnnotationS3Snapshots     = "etcd.k3s.cattle.io/s3-snapshots-timestamp"

	ConditionEtcdIsVoter = "EtcdIsVoter"
)

// ServerLabels are what a demoted Node must lose (R-I-16).
func ServerLabels() []string { return []string{LabelControlPlane, LabelEtcd, LabelMaster} }

// EtcdAnnotations are k3s's annotations that a demoted Node must lose. The
// snapshot stamps go too: nothing else ever removes them (k3s-facts §6.3).
func EtcdAnnotations() []string {
	return []string{
		AnnotationLocalSnapshots, AnnotationEtcdAddress, AnnotationEtcdName,
		AnnotationEtcdRemove, AnnotationEtcdRemovedName, AnnotationS3Snapshots,
	}
}

// EtcdAnnotationPrefix begins every annotation of k3s about a Node's etcd member.
const EtcdAnnotationPrefix = "etcd.k3s.cattle.io/"

// The taint of a non-graceful shutdown: Kubernetes takes the pods of a Node that
// carries it for dead and detaches their volumes. Kubernetes looks at the key alone.
const (
	TaintOutOfService      = "node.kubernetes.io/out-of-service"
	TaintOutOfServiceValue = "nodeshutdown"
	EffectNoExecute        = "NoExecute"
)
