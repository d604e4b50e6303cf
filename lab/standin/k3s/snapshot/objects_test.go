package snapshot

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
)

// k3s facts §8: a reconcile makes objects of files, and deletes those of this node without a file and those of nodes
// without the etcd label.
func TestReconcileMakesItsOwnObjectsAndDropsThoseOfFormerServers(t *testing.T) {
	file := func(node string, unix int64) File {
		name := FileName("on-demand", node, time.Unix(unix, 0))
		return File{Name: name, Node: node, Path: "/s/" + name, Size: 7, Created: time.Unix(unix, 0), TokenHash: "abc"}
	}
	mine, gone, peers, formers := file("n1", 10), file("n1", 5), file("n2", 10), file("n3", 10)
	c := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{fileResource: "ETCDSnapshotFileList"}, Object(gone), Object(peers), Object(formers))
	if err := reconcileObjects(t.Context(), c, []File{mine}, "n1", map[string]bool{"n1": true, "n2": true}); err != nil {
		t.Fatal(err)
	}
	list, err := c.Resource(fileResource).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, o := range list.Items {
		left[o.GetName()] = true
		status, ok := o.Object["status"].(map[string]any)
		if !ok || status["readyToUse"] != true || o.GetAnnotations()[TokenHashAnnotation] != "abc" {
			t.Errorf("object %v", o.Object)
		}
	}
	if d := cmp.Diff(map[string]bool{ObjectName(mine): true, ObjectName(peers): true}, left); d != "" {
		t.Error(d)
	}
}
