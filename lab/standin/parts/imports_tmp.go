package parts
import (
 _ "go.etcd.io/etcd/server/v3/embed"
 _ "go.etcd.io/etcd/client/v3"
 _ "k8s.io/kubernetes/cmd/kube-apiserver/app"
 _ "k8s.io/kubernetes/cmd/kube-controller-manager/app"
 _ "k8s.io/kubernetes/cmd/kube-scheduler/app"
 _ "k8s.io/kubernetes/pkg/kubemark"
 _ "k8s.io/client-go/kubernetes"
 _ "k8s.io/client-go/tools/clientcmd"
 _ "k8s.io/client-go/util/retry"
 _ "k8s.io/apiserver/pkg/authentication/user"
 _ "github.com/coreos/go-systemd/v22/daemon"
 _ "github.com/spf13/cobra"
 _ "sigs.k8s.io/yaml"
 _ "github.com/google/go-cmp/cmp"
 _ "golang.org/x/sys/unix"
)
