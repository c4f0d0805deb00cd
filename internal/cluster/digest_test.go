package cluster

import (
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
			d.PutPool(&v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "1"}})
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
			d.PutPool(&v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "2"}})
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
