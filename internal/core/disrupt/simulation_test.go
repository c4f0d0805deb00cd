package disrupt

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// waits makes a pod wait for a place.
func waits(p *corev1.Pod) {
	p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
}

// ratherApart pods share a node only where they must.
func ratherApart(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels["app"] = app
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	}
}

// only lets a pod run where a label has one of the values.
func only(key string, values ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}}}}}
	}
}

// inZone moves a node.
func inZone(zone string) func(*corev1.Node, *v1.NodeClaim) {
	return func(n *corev1.Node, c *v1.NodeClaim) {
		n.Labels[corev1.LabelTopologyZone], c.Labels[corev1.LabelTopologyZone] = zone, zone
	}
}

// TestSimulations is about what a pass assumes of everything that does not move.
func TestSimulations(t *testing.T) {
	for name, tc := range map[string]struct {
		build func() *fixture
		edit  func(*World)
		want  []string
	}{
		"a pod that waits in vain keeps no node": {build: func() *fixture {
			return newFixture(small()...).pool("p").node("a", "p", "mid", onDemand).pods("a", "web", 1, "1", "1Gi").node("b", "p", "mid", onDemand).pods("b", "web", 2, "1", "1Gi").
				pods("none", "huge", 1, "500", "1Gi", waits)
		}, want: []string{"underutilized a"}},
		"room that was planned for a pod is taken": {build: func() *fixture {
			f := newFixture(small()...).pool("p").node("a", "p", "mid", onDemand).pods("a", "web", 1, "3", "1Gi").node("b", "p", "mid", onDemand).pods("b", "web", 1, "1", "1Gi").
				pods("none", "late", 1, "3", "1Gi", waits)
			f.store.Update(func(d *cluster.Draft) { d.Plan(promisedPod, "b", noon) })
			return f
		}, want: nil},
		"pods that would rather be apart keep their nodes": {build: twoApart, want: nil},
		"unless preferences are ignored":                   {build: twoApart, edit: func(w *World) { w.Terms.IgnorePreferences = true }, want: []string{"underutilized a"}},
		"a spread over zones outlives the replacement": {build: func() *fixture {
			web := spreadOver(corev1.LabelTopologyZone, "web", 1)
			return newFixture(small()...).pool("p").node("a", "p", "big", onDemand).pods("a", "web", 1, "1500m", "1Gi", web).
				node("b", "p", "cheap", onDemand, inZone("b")).pods("b", "web", 1, "1500m", "1Gi", web)
		}, want: []string{"underutilized a -> cheap/on-demand"}},
		"a pool without instance types harms no other": {build: func() *fixture {
			f := newFixture(small()...).pool("empty").pool("p").node("a", "p", "big", onDemand).pods("a", "web", 1, "1", "1Gi")
			f.pools["empty"] = engine.Pool{Pool: f.pools["empty"].Pool, Catalog: &cloud.Catalog{}}
			return f
		}, want: []string{"underutilized a -> cheap/on-demand"}},
		"a pool that is not ready gets no new nodes": {build: func() *fixture {
			return newFixture(small()...).pool("p").node("a", "p", "big", onDemand).pods("a", "web", 1, "1", "1Gi")
		}, edit: func(w *World) { w.NotReady = map[string]bool{"p": true} }, want: nil},
		"but its nodes may go where their pods fit elsewhere": {build: func() *fixture {
			return newFixture(small()...).pool("p").node("a", "p", "mid", onDemand).pods("a", "web", 1, "1", "1Gi").pool("q").node("b", "q", "mid", onDemand).pods("b", "web", 2, "1", "1Gi")
		}, edit: func(w *World) { w.NotReady = map[string]bool{"p": true} }, want: []string{"underutilized a"}},
		"a pool that is being deleted gets no new nodes": {build: func() *fixture {
			return newFixture(small()...).pool("p", func(p *v1.NodePool) { p.DeletionTimestamp, p.Finalizers = new(metav1.NewTime(noon)), []string{"x"} }).
				node("a", "p", "big", onDemand).pods("a", "web", 1, "1", "1Gi")
		}, want: nil},
		"a pod that must have a zone takes it along": {build: func() *fixture {
			return newFixture(small()...).pool("p").node("a", "p", "big", onDemand).pods("a", "web", 1, "1", "1Gi", only(corev1.LabelTopologyZone, "a")).
				node("b", "p", "cheap", onDemand, inZone("b"))
		}, want: []string{"empty b", "underutilized a -> cheap/on-demand"}},
		"a disk of the node itself is left behind": {build: func() *fixture { return withDisk(&corev1.LocalVolumeSource{Path: "/x"}) }, want: []string{"underutilized a -> cheap/on-demand"}},
		"one that stands elsewhere keeps the node": {build: func() *fixture { return withDisk(nil) }, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.build().world()
			if tc.edit != nil {
				tc.edit(w)
			}
			p := newPlanner(engine.New()).Propose(w)
			if got := say(p); !slices.Equal(got, tc.want) {
				t.Errorf("steps %v, want %v; %v", got, tc.want, noteTexts(p))
			}
		})
	}
}

// withDisk is a node that is too large, with a pod whose volume names the node. local is nil for a volume that is not on the node itself.
func withDisk(local *corev1.LocalVolumeSource) *fixture {
	f := newFixture(small()...).pool("p").node("a", "p", "big", onDemand).pods("a", "db", 1, "1", "1Gi", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}}
	})
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.Local = local
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}}}}
	f.store.Update(func(d *cluster.Draft) {
		cluster.PVs.Put(d, pv)
		cluster.PVCs.Put(d, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "disk", Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		})
	})
	return f
}

func twoApart() *fixture {
	return newFixture(small()...).pool("p").node("a", "p", "cheap", onDemand).pods("a", "web", 1, "1", "1Gi", ratherApart("web")).
		node("b", "p", "cheap", onDemand).pods("b", "web", 1, "1", "1Gi", ratherApart("web"))
}

// TestReservations follows the table of directions: whatever is cheaper replaces, however either is bought.
func TestReservations(t *testing.T) {
	for name, tc := range map[string]struct {
		from string
		paid float64 // for the node
		want []string
	}{
		"on demand becomes reserved":         {onDemand, 1, []string{"underutilized a -> x/reserved"}},
		"spot becomes reserved":              {spot, 0.5, []string{"underutilized a -> x/reserved"}},
		"reserved becomes reserved for less": {v1.CapacityTypeReserved, 0.3, []string{"underutilized a -> x/reserved"}},
		"and not for as much":                {v1.CapacityTypeReserved, 0.1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			x := priced("x", map[string]float64{"a/reserved": 0.1})
			old := priced("old", map[string]float64{"a/" + tc.from: tc.paid})
			f := newFixture(x, old).pool("p").node("a", "p", "old", tc.from).pods("a", "web", 1, "1", "1Gi")
			if got := say(f.propose(t)); !slices.Equal(got, tc.want) {
				t.Errorf("steps %v, want %v", got, tc.want)
			}
		})
	}
}

// TestOrderOfDrift: with a budget for one node, who goes first?
func TestOrderOfDrift(t *testing.T) {
	withGrace := func(_ *corev1.Node, c *v1.NodeClaim) {
		c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
	}
	never := func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration(v1.Never) }
	daemon := func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }
	for name, tc := range map[string]struct {
		other []func(*corev1.Pod) // what the node runs that drifted later
		want  string
	}{
		"the one that drifted first":                      {nil, "drifted a"},
		"a node with pods of daemons only goes before it": {[]func(*corev1.Pod){daemon}, "drifted b"},
		"a node with a protected pod is not an empty one": {[]func(*corev1.Pod){protect}, "drifted a"},
		"a node whose pods have all ended is":             {[]func(*corev1.Pod){func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }}, "drifted b"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(small()...).pool("p", allowing("1"), never).node("room", "p", "big", onDemand).pods("room", "web", 4, "3", "1Gi").
				node("a", "p", "mid", onDemand, drift(-2*time.Hour), withGrace).pods("a", "web", 1, "1", "1Gi").
				node("b", "p", "mid", onDemand, drift(-time.Hour), withGrace).pods("b", "web", 1, "1", "1Gi", tc.other...)
			if got := say(f.propose(t)); len(got) != 1 || got[0] != tc.want {
				t.Errorf("steps %v, want %s", got, tc.want)
			}
		})
	}
}
