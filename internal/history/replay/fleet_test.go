package replay

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/history/recording"
)

// node is one of the pool "default" that has been there for a while.
func node(name, kind string, edits ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start.Add(-time.Hour)), Labels: map[string]string{
		v1.NodePoolLabelKey: "default", corev1.LabelInstanceTypeStable: kind, corev1.LabelTopologyZone: "a", v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand,
		corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", v1.NodeRegisteredLabelKey: "true",
	}}}
	for _, edit := range edits {
		edit(n)
	}
	return n
}

// on says where a life is when the recording begins.
func on(name string, l recording.Life) recording.Life {
	l.On = name
	return l
}

func stand(t *testing.T, v *Variant, node *corev1.Node, claim *v1.NodeClaim) {
	t.Helper()
	if err := v.AddNode(node, claim); err != nil {
		t.Fatal(err)
	}
}

// Three machines are there, one of which nobody needs and two with pods that fit together.
func TestAFleetThatIsThere(t *testing.T) {
	v := variant()
	for _, name := range []string{"one", "two", "idle"} {
		stand(t, &v, node(name, "small"), nil)
	}
	got := play(t, record(t, 7200, on("one", life("a", "500m", 0, 0)), on("two", life("b", "500m", 0, 0))), v, settings())
	last := got.Curve[len(got.Curve)-1]
	if got.Launched != 0 || got.PeakNodes != 3 || last.Nodes != 1 || last.Price != 0.1 || got.Evictions < 1 || got.Evictions > 2 || got.Unplaced != 0 {
		t.Errorf("%d launched, %d nodes at most, at last %+v, %d evictions", got.Launched, got.PeakNodes, last, got.Evictions)
	}
}

// A pod begins where it is, even where kube-scheduler would put it, or another, elsewhere.
func TestPodsBeginWhereTheyAre(t *testing.T) {
	v := variant(func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0"}} })
	stand(t, &v, node("full", "small"), nil)
	stand(t, &v, node("other", "small"), nil)
	lives := []recording.Life{life("a", "1", 0, 0), life("b", "1", 0, 0), on("full", life("x", "1", 0, 0)), on("full", life("y", "1", 0, 1800))}
	r := newRun(record(t, 3600, lives...), v, settings())
	r.meter.begin(r, record(t, 3600, lives...))
	defer r.meter.bounds.stop()
	for len(r.next) > 0 && r.next[0].at.Equal(start) {
		r.step()
	}
	for name, want := range map[string]string{"x": "full", "y": "full", "a": "other", "b": "other"} {
		for _, p := range r.pods {
			if p.life.Pod.Name == name && (p.on == nil || p.on.node.Name != want) {
				t.Errorf("%s is not on %s", name, want)
			}
		}
	}
}

// What says how a node was at a moment does not keep pods off for a week, and what says what it is does.
func TestTaintsOfAFleet(t *testing.T) {
	for name, tc := range map[string]struct {
		taint    corev1.Taint
		launched int
	}{
		"it was to go":          {v1.DisruptedTaint(), 0},
		"it was not ready":      {corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}, 0},
		"it was cordoned":       {corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, 0},
		"it is for others only": {corev1.Taint{Key: "team", Value: "b", Effect: corev1.TaintEffectNoSchedule}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := variant()
			stand(t, &v, node("one", "small", func(n *corev1.Node) { n.Spec.Taints, n.Spec.Unschedulable = []corev1.Taint{tc.taint}, true }), nil)
			if got := play(t, record(t, 600, life("a", "1", 0, 0)), v, settings()); got.Launched != tc.launched {
				t.Errorf("%d machines launched, want %d", got.Launched, tc.launched)
			}
		})
	}
}

// The claim says how old a machine is, and what it was made for.
func TestTheClaimOfAMachineThatIsThere(t *testing.T) {
	v := variant()
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-abcde", UID: "abcde", CreationTimestamp: metav1.NewTime(start.Add(-time.Hour)), Labels: map[string]string{v1.NodePoolLabelKey: "default"}}}
	claim.Spec.NodeClassRef, claim.Spec.ExpireAfter = &v1.NodeClassReference{Group: "test", Kind: "Class", Name: "default"}, v1.After(2*time.Hour)
	stand(t, &v, node("one", "small"), claim)
	got := play(t, record(t, 7200, on("one", life("a", "1", 0, 0))), v, settings())
	if got.Steps["Expired"] != 1 || got.Launched != 1 || got.Evictions != 1 {
		t.Errorf("%v, %d launched, %d evictions, want one that expired an hour after the beginning", got.Steps, got.Launched, got.Evictions)
	}
	if claim.Name != "default-abcde" || len(claim.Status.Conditions) != 0 {
		t.Error("the claim of the caller was changed")
	}
}

func TestMachinesThatCannotBeThere(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*corev1.Node)
		want string
	}{
		"of no pool":             {func(n *corev1.Node) { delete(n.Labels, v1.NodePoolLabelKey) }, "it is of no NodePool that is replayed"},
		"of a type nobody sells": {func(n *corev1.Node) { n.Labels[corev1.LabelInstanceTypeStable] = "old" }, `its price is not known: its labels say "old" in zone "a" (on-demand)`},
		"where it is not sold":   {func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "b" }, `its price is not known: its labels say "small" in zone "b" (on-demand)`},
		"as it is not sold":      {func(n *corev1.Node) { n.Labels[v1.CapacityTypeLabelKey] = "spot" }, `its price is not known: its labels say "small" in zone "a" (spot)`},
	} {
		t.Run(name, func(t *testing.T) {
			v := variant()
			if err := v.AddNode(node("one", "small", tc.edit), nil); err == nil || err.Error() != tc.want {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}
