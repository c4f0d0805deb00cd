package seat_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/seat"
)

func TestUntil(t *testing.T) {
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { at := noon.Add(-d); return &at }
	for name, tc := range map[string]struct {
		ready *time.Time // when the machine was initialised, nil while it boots
		ours  bool
		at    time.Duration // ago it was promised
		want  time.Duration // from now
	}{
		"a machine that boots is waited for, however long it takes": {nil, true, 24 * time.Hour, 10 * time.Minute},
		"ten minutes begin when it is initialised":                  {ago(3 * time.Minute), true, 24 * time.Hour, 7 * time.Minute},
		"or when the promise is made, if that is later":             {ago(3 * time.Minute), true, time.Minute, 9 * time.Minute},
		"then it is over":                      {ago(10 * time.Minute), true, 10 * time.Minute, 0},
		"machines of others were always ready": {nil, false, 4 * time.Minute, 6 * time.Minute},
		"a promise that was made before its machine was is none the older": {ago(0), true, time.Hour, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster.NewStore()
			s.Update(func(d *cluster.Draft) {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "id"}}
				if tc.ours {
					c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Status: v1.NodeClaimStatus{ProviderID: "id"}}
					if tc.ready != nil {
						c.Status.Conditions = []metav1.Condition{{Type: v1.ConditionTypeInitialized, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(*tc.ready)}}
					}
					d.PutClaim(c)
				}
				d.PutNode(n)
				d.PutPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}})
				d.Plan(cluster.PodKey{Namespace: "default", Name: "p"}, "n", noon.Add(-tc.at))
			})
			snap := s.Snapshot()
			promise, ok := snap.Planned(cluster.PodKey{Namespace: "default", Name: "p"})
			if got := seat.Until(snap, promise, noon); !ok || !got.Equal(noon.Add(tc.want)) {
				t.Errorf("kept until %v, want %v", got, noon.Add(tc.want))
			}
			if kept := seat.Kept(snap, promise, noon); kept != (tc.want > 0) {
				t.Errorf("kept = %v", kept)
			}
			if seat.Kept(snap, cluster.Seat{Target: "gone", At: noon}, noon) {
				t.Error("room is kept on a machine that is gone")
			}
		})
	}
}

// TestLanding has three pods that go from a node that is to be removed, one after the other: somebody is on the way to where the seat of one that went
// was not vacant for long.
func TestLanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := cluster.NewStore()
		pod := func(i int) *corev1.Pod {
			yes := true
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i))}, Spec: corev1.PodSpec{NodeName: "old"}}
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: &yes}}
			return p
		}
		s.Update(func(d *cluster.Draft) {
			for _, name := range []string{"old", "n0", "n1", "n2"} {
				d.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name}, Status: v1.NodeClaimStatus{ProviderID: name}})
				d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: name}})
			}
			d.MarkForRemoval("claim-old")
			for i := range 3 {
				d.PutPod(pod(i))
				d.Plan(cluster.PodKey{Namespace: "default", Name: fmt.Sprint("p", i)}, fmt.Sprint("n", i), time.Now())
			}
		})
		if nodes, over := seat.Landing(s.Snapshot(), time.Now()); len(nodes) > 0 || !over.IsZero() {
			t.Errorf("while all run somebody lands on %v, and it is over since %v", nodes, over)
		}
		began := time.Now()
		for i := range 2 {
			s.Update(func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: "default", Name: fmt.Sprint("p", i)}) })
			time.Sleep(seat.Vacancy * 3 / 4)
		}
		nodes, over := seat.Landing(s.Snapshot(), time.Now())
		if len(nodes) != 1 || !nodes["n1"] || !over.Equal(began) {
			t.Errorf("somebody lands on %v, and it is over since %v; want n1 and %v", nodes, over, began)
		}
		s.Update(func(d *cluster.Draft) { d.DropVacant(over) })
		if again, over := seat.Landing(s.Snapshot(), time.Now()); !maps.Equal(again, nodes) || !over.IsZero() {
			t.Errorf("after that somebody lands on %v, and it is over since %v", again, over)
		}
	})
}
