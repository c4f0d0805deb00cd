package disrupt

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/seat"
)

func TestWhatBlocksANode(t *testing.T) {
	annotate := func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: value} }
	}
	evict := func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotEvictAnnotationKey: value} }
	}
	owned := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			apiVersion := "apps/v1"
			if kind == "Node" {
				apiVersion = "v1"
			}
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "x"}}
		}
	}
	with := func(edits ...func(*corev1.Pod)) func(*fixture) {
		return func(f *fixture) { f.pods("n", "web", 1, "1", "1Gi", edits...) }
	}
	blocked := func(f *fixture) { f.pdb("web", 0) }
	for name, tc := range map[string]struct {
		node func(*corev1.Node, *v1.NodeClaim)
		rest []func(*fixture)
		want Code
	}{
		"an ordinary node is free": {nil, []func(*fixture){with()}, ""},
		"a node annotated do-not-disrupt=true is not": {func(n *corev1.Node, _ *v1.NodeClaim) {
			n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
		}, nil, NodeProtected},
		"a claim annotated do-not-disrupt=true is not": {func(_ *corev1.Node, c *v1.NodeClaim) {
			c.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
		}, nil, ClaimProtected},
		"a claim annotated do-not-disrupt=false is": {func(_ *corev1.Node, c *v1.NodeClaim) {
			c.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "false"}
		}, nil, ""},
		"a node annotated do-not-disrupt=false is": {func(n *corev1.Node, _ *v1.NodeClaim) {
			n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "false"}
		}, nil, ""},
		"a node annotated with a duration is": {func(n *corev1.Node, _ *v1.NodeClaim) {
			n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "1h"}
		}, nil, ""},
		"a node that is not initialised is not": {func(n *corev1.Node, _ *v1.NodeClaim) { delete(n.Labels, v1.NodeInitializedLabelKey) }, nil, NotInitialized},
		"a claim that is being deleted is not": {func(_ *corev1.Node, c *v1.NodeClaim) {
			c.DeletionTimestamp = new(metav1.NewTime(noon))
			c.Finalizers = []string{"x"}
		}, nil, Deleting},
		"a machine that is stopping is not":                               {func(_ *corev1.Node, c *v1.NodeClaim) { condition.SetTrue(c, v1.ConditionTypeInstanceTerminating, noon) }, nil, Deleting},
		"a node of a pool that is gone is not":                            {func(n *corev1.Node, _ *v1.NodeClaim) { n.Labels[v1.NodePoolLabelKey] = "gone" }, nil, NoPool},
		"a node without a type label is free":                             {func(n *corev1.Node, _ *v1.NodeClaim) { delete(n.Labels, corev1.LabelInstanceTypeStable) }, nil, ""},
		"a node that was promised to a pod nearly ten minutes ago is not": {nil, []func(*fixture){promised(noon.Add(time.Second - seat.Longest))}, Nominated},
		"one that was promised ten minutes ago is":                        {nil, []func(*fixture){promised(noon.Add(-seat.Longest))}, ""},
		"ten minutes begin when the node is initialised": {func(_ *corev1.Node, c *v1.NodeClaim) {
			condition.Clear(c, v1.ConditionTypeInitialized, noon)
			condition.SetTrue(c, v1.ConditionTypeInitialized, noon.Add(time.Second-seat.Longest))
		},
			[]func(*fixture){promised(noon.Add(-time.Hour))}, Nominated},
		"and not before its claim says so": {func(_ *corev1.Node, c *v1.NodeClaim) { condition.Clear(c, v1.ConditionTypeInitialized, noon) },
			[]func(*fixture){promised(noon.Add(-time.Hour))}, Nominated},
		"a promise to a pod that is gone does not count": {nil, []func(*fixture){promised(noon), func(f *fixture) {
			f.store.Update(func(d *cluster.Draft) { d.DeletePod(promisedPod) })
		}}, ""},
		"nor does one to a pod that is being deleted": {nil, []func(*fixture){func(f *fixture) { f.pods("none", "late", 1, "1", "1Gi", waits, stopping) }, func(f *fixture) {
			f.store.Update(func(d *cluster.Draft) { d.Plan(promisedPod, "n", noon) })
		}}, ""},
		"nor does one to a pod that was bound elsewhere": {nil, []func(*fixture){promised(noon), func(f *fixture) {
			f.pods("none", "late", 1, "1", "1Gi", func(p *corev1.Pod) { p.Spec.NodeName = "elsewhere" })
		}}, ""},
		"nor does one that was made to another node since": {nil, []func(*fixture){promised(noon), func(f *fixture) {
			f.store.Update(func(d *cluster.Draft) { d.Plan(promisedPod, "elsewhere", noon) })
		}}, ""},
		"a pod that is to leave another node is promised room too": {nil, []func(*fixture){func(f *fixture) {
			f.node("other", "p", "mid", onDemand).pods("other", "late", 1, "1", "1Gi")
			f.store.Update(func(d *cluster.Draft) {
				d.MarkForRemoval("claim-other")
				d.Plan(cluster.PodKey{Namespace: "default", Name: "late-other-0"}, "claim-n", noon)
			})
		}}, Nominated},
		"a protected pod blocks":                                 {nil, []func(*fixture){with(annotate("true"))}, PodProtected},
		"a protected DaemonSet pod blocks":                       {nil, []func(*fixture){with(owned("DaemonSet"), annotate("true"))}, PodProtected},
		"a protected mirror pod blocks":                          {nil, []func(*fixture){with(owned("Node"), annotate("true"))}, PodProtected},
		"a protected pod that has ended does not":                {nil, []func(*fixture){with(annotate("true"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, ""},
		"a protected pod that is stopping does not":              {nil, []func(*fixture){with(annotate("true"), stopping)}, ""},
		"a pod protected by the older name blocks":               {nil, []func(*fixture){with(evict("true"))}, PodProtected},
		"a duration under the older name does not":               {nil, []func(*fixture){with(evict("61m"))}, ""},
		"the newer name wins over the older":                     {nil, []func(*fixture){with(evict("true"), func(p *corev1.Pod) { p.Annotations[v1.DoNotDisruptAnnotationKey] = "59m" })}, ""},
		"a pod protected for a time blocks":                      {nil, []func(*fixture){with(annotate("61m"))}, PodProtected},
		"a pod whose time is over does not":                      {nil, []func(*fixture){with(annotate("59m"))}, ""},
		"a pod protected for a time that has not started blocks": {nil, []func(*fixture){with(annotate("1s"), func(p *corev1.Pod) { p.Status.StartTime = nil })}, PodProtected},
		"an annotation that means nothing does not block":        {nil, []func(*fixture){with(annotate("soon"))}, ""},
		"a negative duration does not block":                     {nil, []func(*fixture){with(annotate("-1h"))}, ""},
		"an exhausted budget blocks":                             {nil, []func(*fixture){with(), blocked}, PodBudget},
		"a budget that allows one does not":                      {nil, []func(*fixture){with(), func(f *fixture) { f.pdb("web", 1) }}, ""},
		"a budget in another namespace does not":                 {nil, []func(*fixture){with(), func(f *fixture) { f.pdb("web", 0, func(b *policyv1.PodDisruptionBudget) { b.Namespace = "other" }) }}, ""},
		"two budgets for one pod block, whatever they allow":     {nil, []func(*fixture){with(), func(f *fixture) { f.pdb("web", 5).pdb("web", 6) }}, PodBudget},
		"an exhausted budget of a DaemonSet pod blocks":          {nil, []func(*fixture){with(owned("DaemonSet")), blocked}, PodBudget},
		"an exhausted budget of a mirror pod does not":           {nil, []func(*fixture){with(owned("Node")), blocked}, ""},
		"an exhausted budget of a pod that stays does not":       {nil, []func(*fixture){with(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }), blocked}, ""},
		"a budget without a selector selects nothing":            {nil, []func(*fixture){with(), func(f *fixture) { f.pdb("web", 0, func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil }) }}, ""},
		"unready pods may go where the budget says so": {nil, []func(*fixture){
			with(func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
			}),
			func(f *fixture) {
				f.pdb("web", 0, func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow) })
			}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("default")
			var edits []func(*corev1.Node, *v1.NodeClaim)
			if tc.node != nil {
				edits = append(edits, tc.node)
			}
			f.node("n", "default", "m", v1.CapacityTypeOnDemand, edits...)
			for _, r := range tc.rest {
				r(f)
			}
			blocks := surveyOf(f.world()).blocks()
			got := Code("")
			if len(blocks) > 0 {
				got = blocks[0].Code
			}
			if got != tc.want {
				t.Errorf("blocked by %q, want %q (%v)", got, tc.want, blocks)
			}
		})
	}
}

// promised promises the node n to a pod that waits.
func promised(at time.Time) func(*fixture) { return func(f *fixture) { f.promise("n", at) } }

func stopping(p *corev1.Pod) {
	p.DeletionTimestamp = new(metav1.NewTime(noon.Add(10 * time.Second)))
	p.DeletionGracePeriodSeconds = new(int64(30))
}

func TestPodsThatNeedAnotherPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*corev1.Pod)
		pdb  func(*policyv1.PodDisruptionBudget)
		want int
	}{
		"a running pod does":                                 {func(*corev1.Pod) {}, nil, 1},
		"a DaemonSet pod does not":                           {func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }, nil, 0},
		"a terminating pod of a Deployment does not":         {stopping, nil, 0},
		"a terminating pod of a StatefulSet does":            {func(p *corev1.Pod) { stopping(p); p.OwnerReferences[0].Kind = "StatefulSet" }, nil, 1},
		"a pod that costs nothing to move does all the same": {func(p *corev1.Pod) { p.Spec.Priority = new(int32(-2000000000)) }, nil, 1},
		"a pod under a budget that is used up for now does":  {func(*corev1.Pod) {}, func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.FromInt32(3)) }, 1},
		"a pod under a budget that never allows one does not": {func(*corev1.Pod) {}, func(b *policyv1.PodDisruptionBudget) {
			b.Spec.MinAvailable, b.Spec.MaxUnavailable = nil, new(intstr.FromString("0%"))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("default").node("n", "default", "m", v1.CapacityTypeOnDemand).pods("n", "web", 1, "1", "1Gi", tc.edit)
			if tc.pdb != nil {
				f.pdb("web", 0, tc.pdb)
			}
			candidates := surveyOf(f.world()).candidates()
			if got := len(candidates[0].Pods); got != tc.want {
				t.Errorf("%d pods need a place, want %d", got, tc.want)
			}
		})
	}
}

func TestPricesOfRunningNodes(t *testing.T) {
	f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("default").
		node("on-demand", "default", "m", v1.CapacityTypeOnDemand).
		node("spot", "default", "m", v1.CapacityTypeSpot).
		node("unknown", "default", "gone", v1.CapacityTypeSpot)
	got := map[string]float64{}
	candidates := surveyOf(f.world()).candidates()
	for _, c := range candidates {
		got[c.Name()] = c.Price.Dollars()
	}
	for name, want := range map[string]float64{"on-demand": 0.2, "spot": 0.1, "unknown": 0} {
		if got[name] != want {
			t.Errorf("price of %s = %v, want %v", name, got[name], want)
		}
	}
}
