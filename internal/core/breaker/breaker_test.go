package breaker

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// A story has three nodes: "old" is removed at noon, "stays" stays, and "new" is new.
type story struct {
	store *cluster.Store
	m     Memory
}

func (s *story) node(name string, launched time.Time, ready corev1.ConditionStatus, edits ...func(*v1.NodeClaim)) {
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{v1.NodePoolLabelKey: "p"}}}
	c.Status.ProviderID = "test:///" + name
	condition.SetTrue(c, v1.ConditionTypeLaunched, launched)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: c.Labels}}
	n.Spec.ProviderID = c.Status.ProviderID
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(launched)}}
	for _, edit := range append([]func(*v1.NodeClaim){initialized}, edits...) {
		edit(c)
	}
	s.store.Update(func(d *cluster.Draft) { d.PutClaim(c); d.PutNode(n) })
}

func initialized(c *v1.NodeClaim) { condition.SetTrue(c, v1.ConditionTypeInitialized, noon) }
func booting(c *v1.NodeClaim)     { condition.Clear(c, v1.ConditionTypeInitialized, noon) }
func leaving(c *v1.NodeClaim) {
	c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: noon}, []string{v1.TerminationFinalizer}
}

// pods puts n pods of an owner onto a node.
func (s *story) pods(owner, node string, n int, created time.Time, ready bool, revision string) {
	s.store.Update(func(d *cluster.Draft) {
		for i := range n {
			name := fmt.Sprintf("%s-%s%s-%d", owner, node, revision, i)
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(created),
				Labels:          map[string]string{revisionLabel: revision},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: types.UID(owner), Controller: new(true)}}}}
			p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
			if ready {
				p.Status.Conditions[0].Status = corev1.ConditionTrue
			}
			d.PutPod(p)
		}
	})
}

func (s *story) look(now time.Time) Evidence {
	s.m.Look(s.store.Snapshot(), Limits{Window: 30 * time.Minute, Ready: 5 * time.Minute}, now)
	return s.m.Evidence()
}

func TestBlame(t *testing.T) {
	for name, tc := range map[string]struct {
		tell      func(*story)
		pods, bad int
	}{
		"pods that are ready again":                  {func(s *story) { s.pods("web", "new", 4, noon, true, "") }, 4, 0},
		"pods that are not":                          {func(s *story) { s.pods("web", "new", 4, noon, false, "") }, 4, 4},
		"more pods than moved do not count":          {func(s *story) { s.pods("web", "new", 9, noon, false, "") }, 4, 4},
		"pods of the workload's next release do not": {func(s *story) { s.pods("web-next", "new", 4, noon, false, "") }, 0, 0},
		"nor those of a StatefulSet's next revision": {func(s *story) { s.pods("web", "new", 4, noon, false, "2") }, 0, 0},
		"a release does not hide the pods of others": {func(s *story) { s.pods("web-next", "new", 4, noon, false, ""); s.pods("db", "new", 4, noon, false, "") }, 4, 4},
		"pods that fail everywhere lack what they depend on": {func(s *story) {
			s.pods("web", "new", 4, noon, false, "")
			s.pods("web", "stays", 2, noon.Add(-time.Hour), false, "")
		}, 0, 0},
		"pods that work elsewhere do not": {func(s *story) {
			s.pods("web", "new", 4, noon, false, "")
			s.pods("web", "stays", 2, noon.Add(-time.Hour), true, "")
		}, 4, 4},
		"pods that were broken before are not counted": {func(s *story) { s.pods("sick", "new", 4, noon, false, "") }, 0, 0},
		"pods that are still starting are not judged":  {func(s *story) { s.pods("web", "new", 4, noon.Add(4*time.Minute), false, "") }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{store: cluster.NewStore()}
			s.node("old", noon.Add(-24*time.Hour), corev1.ConditionTrue, leaving)
			s.node("stays", noon.Add(-24*time.Hour), corev1.ConditionTrue)
			s.node("new", noon, corev1.ConditionTrue)
			s.pods("web", "old", 4, noon.Add(-time.Hour), true, "")
			s.pods("db", "old", 4, noon.Add(-time.Hour), true, "")
			s.pods("sick", "old", 4, noon.Add(-time.Hour), false, "")
			s.look(noon)
			tc.tell(s)
			e := s.look(noon.Add(6 * time.Minute))
			if e.Pods != tc.pods || e.BadPods != tc.bad {
				t.Errorf("%d of %d pods are bad, want %d of %d", e.BadPods, e.Pods, tc.bad, tc.pods)
			}
			if e := s.look(noon.Add(31 * time.Minute)); e.Pods != 0 {
				t.Errorf("%d pods are remembered after the window", e.Pods)
			}
		})
	}
}

func TestMachines(t *testing.T) {
	for name, tc := range map[string]struct {
		launched      time.Time
		ready         corev1.ConditionStatus
		edit          func(*v1.NodeClaim)
		machines, bad int
	}{
		"one that works":                        {noon, corev1.ConditionTrue, initialized, 1, 0},
		"one that boots":                        {noon.Add(2 * time.Minute), corev1.ConditionFalse, booting, 0, 0},
		"one that boots for too long":           {noon, corev1.ConditionFalse, booting, 1, 1},
		"a kubelet that restarts":               {noon.Add(5*time.Minute + 30*time.Second), corev1.ConditionUnknown, initialized, 0, 0},
		"a kubelet that died":                   {noon, corev1.ConditionUnknown, initialized, 1, 1},
		"one that was launched long ago":        {noon.Add(-time.Hour), corev1.ConditionUnknown, initialized, 0, 0},
		"one that is removed before it is late": {noon, corev1.ConditionUnknown, leaving, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{store: cluster.NewStore()}
			s.node("new", tc.launched, tc.ready, tc.edit)
			e := s.look(noon.Add(6 * time.Minute))
			if e.Machines != tc.machines || e.BadMachines != tc.bad {
				t.Errorf("%d of %d machines are bad, want %d of %d", e.BadMachines, e.Machines, tc.bad, tc.machines)
			}
			gone := cluster.NewStore()
			s.store = gone
			if e := s.look(noon.Add(7 * time.Minute)); e.BadMachines != tc.bad {
				t.Errorf("%d bad machines are remembered when they are gone, want %d", e.BadMachines, tc.bad)
			}
			s.m.Look(gone.Snapshot(), Limits{Since: noon.Add(10 * time.Minute), Window: time.Hour}, noon.Add(11*time.Minute))
			if e := s.m.Evidence(); e.Machines != 0 {
				t.Error("what was before counts")
			}
		})
	}
}

func TestTrips(t *testing.T) {
	for name, tc := range map[string]struct {
		e    Evidence
		want Cause
	}{
		"nothing":                     {Evidence{}, ""},
		"two of two are chance":       {Evidence{Machines: 2, BadMachines: 2}, ""},
		"three of fifteen are 20 %":   {Evidence{Machines: 15, BadMachines: 3}, ""},
		"three of fourteen are more":  {Evidence{Machines: 14, BadMachines: 3}, Machines},
		"pods count for themselves":   {Evidence{Machines: 100, Pods: 14, BadPods: 3}, Pods},
		"two pods are chance as well": {Evidence{Pods: 2, BadPods: 2}, ""},
		"three of fifteen pods":       {Evidence{Pods: 15, BadPods: 3}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := tc.e.Trips(20); got != tc.want {
				t.Errorf("Trips = %q, want %q", got, tc.want)
			}
		})
	}
}
