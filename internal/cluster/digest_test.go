package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

func TestDigest(t *testing.T) {
	pod := func(name, node string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		p.Spec.NodeName = node
		return p
	}
	world := func(edit func(*Draft)) string {
		s := NewStore()
		s.Update(func(d *Draft) {
			Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "1"}})
			d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", ResourceVersion: "1"}})
			d.PutPod(pod("p", ""))
		})
		s.Update(edit)
		return s.Snapshot().Digest()
	}
	same := world(func(*Draft) {})
	if again := world(func(*Draft) {}); again != same || len(same) != 16 {
		t.Errorf("%s and %s of the same picture", same, again)
	}
	for name, edit := range map[string]func(*Draft){
		"a pool that changed": func(d *Draft) {
			Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "2"}})
		},
		"a node that changed": func(d *Draft) {
			d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", ResourceVersion: "2"}})
		},
		"a claim": func(d *Draft) {
			d.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c", ResourceVersion: "1"}})
		},
		"a pod that waits":     func(d *Draft) { d.PutPod(pod("q", "")) },
		"a pod that is bound":  func(d *Draft) { d.PutPod(pod("q", "n")) },
		"a pod that went away": func(d *Draft) { d.DeletePod(PodKey{"default", "p"}) },
	} {
		t.Run(name, func(t *testing.T) {
			if world(edit) == same {
				t.Error("is not seen")
			}
		})
	}
}

// However a picture came about, its digest is that of what is there.
func TestADigestForgetsHowThePictureCame(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	s := NewStore()
	node := func(name, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version}, Spec: corev1.NodeSpec{ProviderID: "id-" + name}}
	}
	claim := func(name, version string) *v1.NodeClaim {
		return &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version}, Status: v1.NodeClaimStatus{ProviderID: "id-" + name}}
	}
	for i := range 2000 {
		name, version := fmt.Sprint("n", random.IntN(6)), fmt.Sprint(i)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", random.IntN(8))}, Spec: corev1.PodSpec{NodeName: name}}
		s.Update(func(d *Draft) {
			switch random.IntN(7) {
			case 0, 1:
				d.PutNode(node(name, version))
			case 2:
				d.PutClaim(claim(name, version))
			case 3:
				d.DeleteNode(name)
			case 4:
				d.DeleteClaim(name)
			case 5:
				d.PutPod(pod)
			case 6:
				d.DeletePod(PodKey{"default", pod.Name})
			}
		})
		want := sum(0)
		for n := range s.Snapshot().Nodes() {
			want += n.sum()
		}
		if got := s.Snapshot().machineSum; got != want {
			t.Fatalf("after %d edits the rows add up to %x, and %x is kept", i+1, want, got)
		}
	}
}

// A decision of a large cluster leaves as little garbage as one of a small one.
func TestADigestLeavesNoGarbage(t *testing.T) {
	s := NewStore()
	s.Update(func(d *Draft) {
		for i := range 2000 {
			d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: "1"}})
		}
	})
	snap := s.Snapshot()
	if got := testing.AllocsPerRun(10, func() { snap.Digest() }); got > 10 {
		t.Errorf("%.0f allocations", got)
	}
}
