package kube

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/exadev/regrade/internal/fleet"
	"github.com/exadev/regrade/internal/recover"
)

func inProtobuf(tb testing.TB, list corev1.NodeList) []byte {
	tb.Helper()
	var body bytes.Buffer
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(&list, &body); err != nil {
		tb.Fatal(err)
	}
	return body.Bytes()
}

const testMark = fleet.AnnotationOutOfService

func readAll(raw []byte) (nodes []recover.Node, err error) {
	err = readNodes(bytes.NewReader(raw), []string{testMark, "example.com/former"}, func(n *corev1.Node) { nodes = append(nodes, recoverable(n)) })
	return nodes, err
}

// A Node that a decision may hang on is read whole, of the others the name.
func TestOnlyWhatMattersOfAListIsDecoded(t *testing.T) {
	change := func(f func(*corev1.Node)) corev1.Node {
		n := full(1)
		f(&n)
		return n
	}
	for name, c := range map[string]struct {
		node  corev1.Node
		whole bool
	}{
		"a Node that is Ready":         {full(1), false},
		"one that is silent":           {change(func(n *corev1.Node) { n.Status.Conditions[4].Status = "Unknown" }), true},
		"one that says it is not":      {change(func(n *corev1.Node) { n.Status.Conditions[4].Status = "False" }), true},
		"one with an odd word":         {change(func(n *corev1.Node) { n.Status.Conditions[4].Status = "true" }), true},
		"one without the condition":    {change(func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[:4] }), true},
		"one with two of them":         {change(func(n *corev1.Node) { n.Status.Conditions[0].Type, n.Status.Conditions[0].Status = "Ready", "Unknown" }), true},
		"one without a status":         {change(func(n *corev1.Node) { n.Status = corev1.NodeStatus{} }), true},
		"one that is marked":           {change(func(n *corev1.Node) { n.Annotations[testMark] = "" }), true},
		"one with a mark of before":    {change(func(n *corev1.Node) { n.Annotations["example.com/former"] = "" }), true},
		"one with the mark as a label": {change(func(n *corev1.Node) { n.Labels[testMark] = "" }), false},
		"one that is being deleted":    {change(func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: since} }), true},
		"one without a name":           {change(func(n *corev1.Node) { n.Name = "" }), true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readAll(inProtobuf(t, corev1.NodeList{Items: []corev1.Node{c.node}}))
			if err != nil {
				t.Fatal(err)
			}
			want := []recover.Node{{Name: c.node.Name, Ready: recover.ReadyTrue}}
			if c.whole {
				want = []recover.Node{recoverable(&c.node)}
			}
			// A zero time comes in two kinds of zero.
			for _, l := range [][]recover.Node{got, want} {
				for i := range l {
					if l[i].Since.Unix() <= 0 {
						l[i].Since = since
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An answer that is not whole is no list of fewer Nodes: a node that is missing would
// be one that needs nothing.
func TestAnAnswerThatIsNotWholeIsRefused(t *testing.T) {
	list := corev1.NodeList{}
	for i := range 5 {
		n := full(i)
		n.Status.Images = n.Status.Images[:1]
		list.Items = append(list.Items, n)
	}
	raw := inProtobuf(t, list)
	if nodes, err := readAll(raw); err != nil || len(nodes) != 5 {
		t.Fatalf("%d, %v", len(nodes), err)
	}
	// The envelope ends with fields of its own behind the object, empty ones.
	for cut := range raw[:len(raw)-4] {
		if nodes, err := readAll(raw[:cut]); err == nil {
			t.Fatalf("the first %d of %d bytes are taken for %d nodes", cut, len(raw), len(nodes))
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "half of JSON": `{"kind":"NodeList","items":[{"metadata":{"name":"a"}}`, "another kind": `{"kind":"PodList","items":[]}`,
		"a page": `{"kind":"NodeList","metadata":{"continue":"x"},"items":[]}`, "no JSON": "<html>",
	} {
		if nodes, err := readAll([]byte(text)); err == nil {
			t.Errorf("%s is taken for %d nodes", name, len(nodes))
		}
	}
	if _, err := readAll(inProtobuf(t, corev1.NodeList{ListMeta: metav1.ListMeta{Continue: "x"}})); err == nil || !strings.Contains(err.Error(), "one page") {
		t.Error(err)
	}
}

func TestAListInJSONIsRead(t *testing.T) {
	nodes, err := readAll([]byte(`{"kind":"NodeList","apiVersion":"v1","items":[` + node("n1") + `]}`))
	if err != nil || len(nodes) != 1 || nodes[0].Name != "n1" {
		t.Errorf("%+v, %v", nodes, err)
	}
}

// What is passed over is what the whole decoder finds nothing in.
func FuzzQuietNodes(f *testing.F) {
	for i := range 3 {
		n := full(i)
		n.Status.Images = nil
		if i > 0 {
			n.Status.Conditions[4].Status = "Unknown"
		}
		if i > 1 {
			n.Annotations[testMark] = "x"
		}
		raw, err := n.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte{0x0a, 0x02, 0x0a, 0x00})
	f.Fuzz(func(t *testing.T, raw []byte) {
		name, ok := quiet(raw, []string{testMark})
		var n corev1.Node
		err := n.Unmarshal(raw)
		if !ok || err != nil {
			return
		}
		whole := recoverable(&n)
		if _, marked := whole.Annotations[testMark]; whole.Name != name || whole.Ready != recover.ReadyTrue || marked || whole.Deleting {
			t.Errorf("%q was passed over: %+v", name, whole)
		}
	})
}

// The same of lists that were damaged by chance, in every build: a list that is taken
// is taken as the whole decoder takes it.
func TestDamagedListsAreReadAsTheWholeDecoderReadsThem(t *testing.T) {
	list := corev1.NodeList{}
	for i := range 3 {
		n := full(i)
		n.Status.Images, n.ManagedFields = n.Status.Images[:1], nil
		if i == 1 {
			n.Status.Conditions[4].Status = "Unknown"
		}
		list.Items = append(list.Items, n)
	}
	raw, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	chance := rand.New(rand.NewPCG(6, 6))
	taken := 0
	for range 1500 {
		damaged := bytes.Clone(raw)
		for range 1 + chance.IntN(3) {
			damaged[chance.IntN(len(damaged))] = byte(chance.Uint32())
		}
		envelope := append(append([]byte("k8s\x00\x12"), binary.AppendUvarint(nil, uint64(len(damaged)))...), damaged...)
		got, err := readAll(envelope)
		var whole corev1.NodeList
		if whole.Unmarshal(damaged) != nil || err != nil {
			continue // what the one refuses the other may not have looked at
		}
		taken++
		if len(got) != len(whole.Items) {
			t.Fatalf("%d nodes of %d", len(got), len(whole.Items))
		}
		for i := range got {
			w := recoverable(&whole.Items[i])
			_, marked := w.Annotations[testMark]
			over := got[i].Version == "" && got[i].UID == "" && len(got[i].Labels) == 0
			if got[i].Name != w.Name || got[i].Ready != w.Ready || over && (w.Ready != recover.ReadyTrue || marked || w.Deleting) {
				t.Fatalf("%+v, whole %+v", got[i], w)
			}
		}
	}
	if taken < 400 {
		t.Errorf("only %d lists were taken: the test proves little", taken)
	}
}

// A Node that fits into what is read ahead is looked at where it lies, a larger one is
// copied; neither is told from the other, however the bytes come.
func TestANodeIsReadWhateverItsSize(t *testing.T) {
	small, large := full(1), full(2)
	for k := range 4000 {
		large.Status.Images = append(large.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("ghcr.io/example/more-%d", k)}})
	}
	silent := full(3)
	silent.Status.Conditions[4].Status = "Unknown"
	raw := inProtobuf(t, corev1.NodeList{Items: []corev1.Node{small, large, silent, small}})
	if len(raw) < readAhead+readAhead/2 {
		t.Fatalf("%d bytes prove little", len(raw))
	}
	for sentence, r := range map[string]io.Reader{
		"at once": bytes.NewReader(raw), "byte by byte": iotest.OneByteReader(bytes.NewReader(raw)), "in halves": iotest.HalfReader(bytes.NewReader(raw)),
	} {
		var got []string
		err := readNodes(r, []string{testMark}, func(n *corev1.Node) { got = append(got, n.Name+" "+string(recoverable(n).Ready)) })
		want := []string{small.Name + " True", large.Name + " True", silent.Name + " Unknown", small.Name + " True"}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", sentence, got, err, want)
		}
	}
}

func FuzzReadNodes(f *testing.F) {
	n := full(0)
	n.Status.Images = n.Status.Images[:1]
	f.Add(inProtobuf(f, corev1.NodeList{Items: []corev1.Node{n, n}}))
	f.Add([]byte(`{"kind":"NodeList","items":[]}`))
	f.Add([]byte("k8s\x00\x12\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		nodes, err := readAll(raw)
		if err == nil && len(nodes) > len(raw) {
			t.Errorf("%d nodes in %d bytes", len(nodes), len(raw))
		}
	})
}
