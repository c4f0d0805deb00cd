package bindfail

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// world is a store with what tests put there.
type world struct {
	store *cluster.Store
	Memory
}

func newWorld() *world { return &world{store: cluster.NewStore()} }

// node adds a machine of ours that was initialised at a second.
func (w *world) node(name string, ready int) {
	w.store.Update(func(d *cluster.Draft) {
		c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name, UID: types.UID(name)}}
		c.Status.ProviderID = name
		c.Status.Conditions = []metav1.Condition{{Type: v1.ConditionTypeInitialized, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(ready))}}
		d.PutClaim(c)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true"}}}
		n.Spec.ProviderID = name
		d.PutNode(n)
	})
}

// pod adds a pod that came, and was judged, at a second.
func (w *world) pod(name string, came, judged int, edits ...func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(at(came))}}
	p.Status.Phase = corev1.PodPending
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(at(judged)),
	}}
	for _, edit := range edits {
		edit(p)
	}
	w.store.Update(func(d *cluster.Draft) { d.PutPod(p) })
}

// on binds a pod at a second.
func on(node string, second int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = node
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(second))}}
	}
}

func weighs(priority int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Priority = &priority }
}

func asks(toleration string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: toleration}} }
}

func by(scheduler string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SchedulerName = scheduler }
}

func (w *world) plan(pod, node string, second int) {
	w.store.Update(func(d *cluster.Draft) {
		d.Plan(cluster.PodKey{Namespace: "default", Name: pod}, "claim-"+node, at(second))
	})
}

// look is a turn in which every pod that has a place keeps it, as far as the engine goes. It says what became of each, pods that are as
// usual left out.
func (w *world) look(second int) string {
	snap := w.store.Snapshot()
	var pods, stay []*cluster.Pod
	for p := range snap.Unbound() {
		pods = append(pods, p)
	}
	sorted := w.Sort(snap, pods, at(second))
	for _, p := range sorted.Ask {
		if hasPlace(snap, p) {
			stay = append(stay, p)
		}
	}
	out := ""
	for _, h := range w.Judge(snap, stay, at(second)) {
		out += "lost " + h.Pod.Name
		if h.Silent {
			out += " (silent)"
		}
		out += "; "
		w.store.Update(func(d *cluster.Draft) { d.Unplan(h.Pod.PodKey) })
	}
	for _, p := range sorted.Try {
		out += "try " + p.Name + "; "
	}
	for _, h := range sorted.Held {
		out += "held " + h.Pod.Name + "; "
	}
	return out
}

// The pod is planned before its node is ready, at noon, and judged before that.
func TestWhenAPlaceIsLost(t *testing.T) {
	for name, tc := range map[string]struct {
		story func(w *world)
		look  int
		want  string
	}{
		"judged again with the node in view":                   {func(w *world) { w.pod("a", -60, 1) }, 61, "lost a; "},
		"judged in the moment in which the last taint went":    {func(w *world) { w.pod("a", -60, -1) }, 61, "lost a; "},
		"a minute is not over":                                 {func(w *world) { w.pod("a", -60, 1) }, 59, ""},
		"not judged since":                                     {func(*world) {}, 500, ""},
		"not judged for ten minutes":                           {func(*world) {}, 601, "lost a (silent); "},
		"judged, and its like are still being bound":           {func(w *world) { w.pod("a", -60, 1); w.pod("b", -60, 0, on("n", 50)) }, 61, ""},
		"judged, and the last of its like was bound long ago":  {func(w *world) { w.pod("a", -60, 1); w.pod("b", -60, 0, on("n", 50)) }, 111, "lost a; "},
		"others were bound that came earlier":                  {func(w *world) { w.pod("b", -30, 0, asks("x"), on("n", 20)) }, 61, ""},
		"one was bound that came later":                        {func(w *world) { w.pod("b", 30, 0, asks("x"), on("n", 31)) }, 61, "lost a; "},
		"one was judged that came later":                       {func(w *world) { w.pod("b", 30, 31, asks("x")) }, 61, "lost a; "},
		"one that came later and is weightier went before it":  {func(w *world) { w.pod("b", 30, 0, asks("x"), weighs(1), on("n", 31)) }, 61, ""},
		"one that came later and is lighter went before it":    {func(w *world) { w.pod("b", 30, 0, asks("x"), weighs(-1), on("n", 31)) }, 61, "lost a; "},
		"another scheduler bound one that came later":          {func(w *world) { w.pod("b", 30, 0, asks("x"), by("other"), on("n", 31)) }, 61, ""},
		"the node changes":                                     {func(w *world) { w.pod("a", -60, 1); w.look(30); w.relabel() }, 61, ""},
		"the node changed a minute ago, and it was not judged": {func(w *world) { w.pod("a", -60, 1); w.look(30); w.relabel(); w.look(35) }, 96, ""},
		"the node changed a minute ago, and it was judged":     {func(w *world) { w.look(30); w.relabel(); w.look(35); w.pod("a", -60, 40) }, 96, "lost a; "},
		"the pod changes":                                      {func(w *world) { w.look(30); w.pod("a", -60, 31, asks("y")) }, 89, "lost a; "},
		"the plan was made when the node was ready": {func(w *world) {
			w.pod("a", 20, 30)
			w.plan("a", "n", 30)
		}, 91, ""},
		"the plan was made when the node was ready, and the pod judged since": {func(w *world) {
			w.pod("a", 20, 31)
			w.plan("a", "n", 30)
		}, 91, "lost a; "},
		"plans that go to and fro do not prolong it": {func(w *world) {
			w.node("m", -600)
			for i := range 10 {
				w.plan("a", []string{"m", "n"}[i%2], 60*(i+1))
				w.look(60*(i+1) + 1)
			}
		}, 665, "lost a (silent); "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.node("n", 0)
			w.pod("a", -60, -50)
			w.plan("a", "n", -40)
			tc.story(w)
			if got := w.look(tc.look); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func (w *world) relabel() {
	n := w.store.Snapshot().Node("n").Node.DeepCopy()
	n.Labels["new"] = "yes"
	w.store.Update(func(d *cluster.Draft) { d.PutNode(n) })
}

// Three pods of a kind lose their places on node n; each step says what happens then, and what the next look shows.
func TestATrial(t *testing.T) {
	type step struct {
		at   int
		do   func(w *world)
		want string
	}
	nothing := func(*world) {}
	probe := func(node string, ready int) func(w *world) {
		return func(w *world) { w.node(node, ready); w.plan("a", node, ready-10) }
	}
	for name, steps := range map[string][]step{
		"one tries, the others wait": {
			{62, nothing, "try a; held b; held c; "},
			{63, probe("m", 100), "held b; held c; "},
			{163, func(w *world) { w.pod("a", -60, 101) }, "lost a; held b; held c; "},
			{164, nothing, "held a; held b; held c; "},
			{462, nothing, "held a; held b; held c; "},
			{464, nothing, "try a; held b; held c; "},
		},
		"one whose node does not come tries again at once": {
			{62, nothing, "try a; held b; held c; "},
			{72, nothing, "try a; held b; held c; "},
		},
		"another one tries when the first is gone": {
			{62, nothing, "try a; held b; held c; "},
			{63, func(w *world) {
				w.store.Update(func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: "default", Name: "a"}) })
			}, "try b; held c; "},
		},
		"the others follow one that was bound elsewhere": {
			{62, nothing, "try a; held b; held c; "},
			{63, probe("m", 70), "held b; held c; "},
			{75, func(w *world) { w.pod("a", -60, 0, on("m", 74)) }, "try b; try c; "},
		},
		"all is forgiven when one is bound to the node after all": {
			{62, nothing, "try a; held b; held c; "},
			{63, func(w *world) { w.pod("a", -60, 0, on("n", 63)) }, ""},
		},
		"all is forgiven when that node is gone and one was bound elsewhere": {
			{62, nothing, "try a; held b; held c; "},
			{63, probe("m", 70), "held b; held c; "},
			{75, func(w *world) {
				w.pod("a", -60, 0, on("m", 74))
				w.store.Update(func(d *cluster.Draft) { d.DeleteClaim("claim-n"); d.DeleteNode("n") })
			}, ""},
		},
		"that node changes": {
			{62, nothing, "try a; held b; held c; "},
			{63, func(w *world) { w.relabel() }, ""},
		},
		"its kubelet declares another feature": {
			{62, nothing, "try a; held b; held c; "},
			{63, func(w *world) {
				n := w.store.Snapshot().Node("n").Node.DeepCopy()
				n.Status.DeclaredFeatures = []string{"New"}
				w.store.Update(func(d *cluster.Draft) { d.PutNode(n) })
			}, ""},
		},
		"a pool changes": {
			{62, nothing, "try a; held b; held c; "},
			{63, func(w *world) {
				w.store.Update(func(d *cluster.Draft) {
					cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 2}})
				})
			}, ""},
		},
		"a node class changes": {
			{62, nothing, "try a; held b; held c; "},
			{63, func(w *world) {
				w.store.Update(func(d *cluster.Draft) { d.PutNodeClass(&cluster.NodeClass{Kind: "K", Name: "c", Generation: 2}) })
			}, ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.node("n", 0)
			for _, name := range []string{"a", "b", "c"} {
				w.pod(name, -60, 1)
				w.plan(name, "n", -40)
			}
			w.look(1)
			if got, want := w.look(61), "lost a; lost b; lost c; "; got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
			for _, s := range steps {
				s.do(w)
				if got := w.look(s.at); got != s.want {
					t.Errorf("at %d got %q, want %q", s.at, got, s.want)
				}
			}
		})
	}
}

// TestATrialIsForgotten has a kind of which no pod waits any more.
func TestATrialIsForgotten(t *testing.T) {
	for name, tc := range map[string]struct {
		after int
		want  string
	}{
		"soon":          {600, "try a; "},
		"after an hour": {2 * 3600, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.node("n", 0)
			w.pod("a", -60, 1)
			w.plan("a", "n", -40)
			w.look(61)
			w.store.Update(func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: "default", Name: "a"}) })
			w.look(tc.after)
			w.pod("a", tc.after, tc.after)
			if got := w.look(tc.after + 1); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// BenchmarkLook is a turn with one pod in question among many that run.
func BenchmarkLook(b *testing.B) {
	w := newWorld()
	w.node("n", 0)
	w.pod("a", -60, 1)
	w.plan("a", "n", -40)
	w.store.Update(func(d *cluster.Draft) {
		for i := range 100_000 {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))}}
			on("other", 0)(p)
			d.PutPod(p)
		}
	})
	snap := w.store.Snapshot()
	pods := []*cluster.Pod{snap.Pod(cluster.PodKey{Namespace: "default", Name: "a"})}
	for b.Loop() {
		w.Sort(snap, pods, at(100))
	}
}

// TestNodesThatCameWithoutDevices has a pod planned for node n, and a plan that would open another one for it.
func TestNodesThatCameWithoutDevices(t *testing.T) {
	claims := func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpu")}}
	}
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: new(true)}}
	}
	for name, tc := range map[string]struct {
		pods  func(w *world)
		along string // another pod that would be on the new node
		want  int    // pods that lose their places
	}{
		"nobody else has devices of the node": {func(w *world) { w.pod("a", -60, 1, claims) }, "", 1},
		"the pod wants none":                  {func(w *world) { w.pod("a", -60, 1) }, "", 0},
		"others have some":                    {func(w *world) { w.pod("a", -60, 1, claims); w.pod("b", -60, 1, claims, on("n", 5)) }, "", 0},
		"others are there without":            {func(w *world) { w.pod("a", -60, 1, claims); w.pod("b", -60, 1, on("n", 5)) }, "", 1},
		"a daemon watches what it has":        {func(w *world) { w.pod("a", -60, 1, claims); w.pod("b", -60, 1, claims, daemon, on("n", 5)) }, "", 1},
		"the pod shares the new node":         {func(w *world) { w.pod("a", -60, 1, claims); w.pod("b", -60, 1) }, "b", 0},
		"with one that fared alike":           {func(w *world) { w.pod("a", -60, 1, claims); w.pod("b", -60, 1, claims); w.plan("b", "n", 0) }, "b", 2},
		"the node is cordoned":                {func(w *world) { w.pod("a", -60, 1, claims); w.cordon("n") }, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.node("n", 0)
			tc.pods(w)
			w.plan("a", "n", 0)
			w.look(10)
			snap := w.store.Snapshot()
			var opened []*cluster.Pod
			for p := range snap.Unbound() {
				if p.Name == "a" || p.Name == tc.along {
					opened = append(opened, p)
				}
			}
			lost := w.Bare(snap, opened, at(10))
			if len(lost) != tc.want {
				t.Fatalf("%d pods lose their places, want %d", len(lost), tc.want)
			}
			for _, h := range lost {
				if !h.Bare || h.Node != "n" || !h.Ready.Equal(at(0)) || !h.Next.IsZero() {
					t.Errorf("verdict %+v", h.Verdict)
				}
			}
		})
	}
}

func (w *world) cordon(name string) {
	n := w.store.Snapshot().Node(name).Node.DeepCopy()
	n.Spec.Unschedulable = true
	w.store.Update(func(d *cluster.Draft) { d.PutNode(n) })
}
