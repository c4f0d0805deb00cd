package disruption_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// tolerated is for how long the fake cloud tolerates a node that is not ready.
const tolerated = 30 * time.Minute

// withFleet runs a test with machines c0, c1, … that nothing but repair removes.
func withFleet(t *testing.T, n int, test func(t *testing.T, w *sim.World, k *sim.Karpenter)) {
	t.Helper()
	ko := sim.KarpenterOptions{Provision: true, Disrupt: true, Repairs: true}
	sim.Bubble(t, sim.Options{}, ko, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		editPool(w, func(p *v1.NodePool) {
			p.Spec.Disruption.ConsolidateAfter = v1.NillableDuration{}
			p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
		})
		for i := range n {
			sim.Create(t, w, sim.Claim(fmt.Sprint("c", i)))
		}
		time.Sleep(2 * time.Minute)
		test(t, w, k)
	})
}

func editPool(w *sim.World, edit func(*v1.NodePool)) { memapi.Edit(w.API, "", "default", edit) }

// report writes what the kubelet of a claim's node says.
func report(t *testing.T, w *sim.World, claim string, status corev1.ConditionStatus) {
	t.Helper()
	memapi.Edit(w.API, "", sim.Get[*v1.NodeClaim](t, w, claim).Status.NodeName, func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now()}}
	})
}

func stays(w *sim.World, claim string) bool {
	c, ok := sim.Find[*v1.NodeClaim](w, claim)
	return ok && c.DeletionTimestamp == nil
}

func TestRepairWaitsForItsBudget(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		editPool(w, func(p *v1.NodePool) {
			p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0", Reasons: []v1.DisruptionReason{v1.DisruptionReasonUnhealthy}}}
		})
		report(t, w, "c0", corev1.ConditionFalse)
		time.Sleep(2 * tolerated)
		if !stays(w, "c0") {
			t.Fatal("the broken node went although its budget is 0")
		}
		sim.WantEvent(t, k, "DisruptionBlocked", "default")
		if got := testutil.ToFloat64(k.Metrics.PoolAllowedDisruptions.WithLabelValues("default", "unhealthy")); got != 0 {
			t.Errorf("%v repairs are allowed by the metric", got)
		}
		editPool(w, func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "1"}} })
		time.Sleep(2 * time.Minute)
		if stays(w, "c0") {
			t.Error("the broken node stays")
		}
		if got := testutil.ToFloat64(k.Metrics.DisruptionDecisions.WithLabelValues("delete", "unhealthy", "")); got != 1 {
			t.Errorf("%v decisions were counted", got)
		}
	})
}

func TestTheReplacementOfABrokenNodeComesFirst(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		sim.Create(t, w, sim.Pod("web", "1", sim.OwnedBy("web")))
		time.Sleep(time.Minute)
		memapi.Edit(w.API, "", sim.Get[*v1.NodeClaim](t, w, "c0").Status.NodeName, func(n *corev1.Node) {
			n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} // says nothing about repair
		})
		report(t, w, "c0", corev1.ConditionUnknown)
		time.Sleep(tolerated - time.Minute)
		if claims := memapi.All[*v1.NodeClaim](w.API); len(claims) != 1 {
			t.Fatalf("%d claims before the node has been broken for long enough", len(claims))
		}
		for range 300 {
			time.Sleep(time.Second)
			claims := memapi.All[*v1.NodeClaim](w.API)
			if stays(w, "c0") {
				continue
			}
			for _, c := range claims {
				if c.Name != "c0" && c.Labels[v1.NodePoolLabelKey] != "" && condition(c, v1.ConditionTypeInitialized) {
					return
				}
			}
			t.Fatal("the node went before its replacement was initialized")
		}
		t.Error("the broken node was not replaced")
	})
}

func condition(c *v1.NodeClaim, kind string) bool {
	for _, x := range c.Status.Conditions {
		if x.Type == kind {
			return x.Status == metav1.ConditionTrue
		}
	}
	return false
}

func TestNothingIsRepairedWhereManyAreBroken(t *testing.T) {
	withFleet(t, 5, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		report(t, w, "c0", corev1.ConditionFalse)
		report(t, w, "c1", corev1.ConditionFalse)
		time.Sleep(tolerated + 2*time.Minute)
		if !stays(w, "c0") || !stays(w, "c1") {
			t.Fatal("a node went although two of five are broken")
		}
		for _, object := range []string{"c0", sim.Get[*v1.NodeClaim](t, w, "c0").Status.NodeName, "default"} {
			sim.WantEvent(t, k, "NodeRepairBlocked", object)
		}
		report(t, w, "c1", corev1.ConditionTrue)
		time.Sleep(2 * time.Minute)
		if stays(w, "c0") || !stays(w, "c1") {
			t.Error("the one node that is still broken was not repaired, or the other one was")
		}
	})
}

func TestDoNotRepairKeepsABrokenNode(t *testing.T) {
	for value, kept := range map[string]bool{"true": true, "True": false, "false": false} {
		t.Run(value, func(t *testing.T) {
			withFleet(t, 1, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
				memapi.Edit(w.API, "", "c0", func(c *v1.NodeClaim) { c.Annotations = map[string]string{v1.DoNotRepairAnnotationKey: value} })
				report(t, w, "c0", corev1.ConditionFalse)
				time.Sleep(tolerated + 2*time.Minute)
				if stays(w, "c0") != kept {
					t.Errorf("the node stays: %t, want %t", stays(w, "c0"), kept)
				}
				if kept {
					sim.WantEvent(t, k, "DisruptionBlocked", "c0")
				}
			})
		})
	}
}

// A pod that may not be evicted keeps its node unless the drain is bounded; then the end of the drain is written when the claim is deleted.
func TestPodsKeepABrokenNodeUnlessItsDrainIsBounded(t *testing.T) {
	for name, grace := range map[string]*metav1.Duration{"no bound": nil, "a bound": {Duration: 7 * time.Minute}} {
		t.Run(name, func(t *testing.T) {
			withFleet(t, 1, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
				editPool(w, func(p *v1.NodePool) { p.Spec.Template.Spec.TerminationGracePeriod = nil })
				memapi.Edit(w.API, "", "c0", func(c *v1.NodeClaim) { c.Spec.TerminationGracePeriod = grace })
				zero := intstr.FromInt32(0)
				sim.Create(t, w, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
					Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &zero, Selector: &metav1.LabelSelector{}}})
				sim.Create(t, w, sim.Pod("web", "1", sim.OwnedBy("web")))
				time.Sleep(time.Minute)
				report(t, w, "c0", corev1.ConditionFalse)
				time.Sleep(tolerated + 2*time.Minute)
				if stays(w, "c0") != (grace == nil) {
					t.Fatalf("the node stays: %t", stays(w, "c0"))
				}
				if grace == nil {
					sim.WantEvent(t, k, "DisruptionBlocked", "c0")
					return
				}
				c := sim.Get[*v1.NodeClaim](t, w, "c0")
				end, err := lifecycle.Deadline(c)
				if left := end.Sub(c.DeletionTimestamp.Time); err != nil || left < 6*time.Minute || left > 8*time.Minute {
					t.Errorf("the drain ends %s after the deletion, %v; want seven minutes", left, err)
				}
			})
		})
	}
}

func TestABrokenNodeThatRecoversStays(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		sim.Create(t, w, sim.Pod("web", "1", sim.OwnedBy("web")))
		time.Sleep(time.Minute)
		report(t, w, "c0", corev1.ConditionFalse)
		for range 2400 {
			time.Sleep(time.Second)
			if len(memapi.All[*v1.NodeClaim](w.API)) == 2 {
				break
			}
		}
		if claims := memapi.All[*v1.NodeClaim](w.API); len(claims) != 2 {
			t.Fatalf("there are %d claims, want one and its replacement", len(claims))
		}
		report(t, w, "c0", corev1.ConditionTrue)
		time.Sleep(5 * time.Minute)
		if !stays(w, "c0") {
			t.Error("the node went although it had recovered before its replacement was ready")
		}
		if node := sim.Get[*corev1.Node](t, w, sim.Get[*v1.NodeClaim](t, w, "c0").Status.NodeName); len(node.Spec.Taints) > 0 {
			t.Errorf("it keeps the taints %v", node.Spec.Taints)
		}
	})
}

// What a fault says of the end of the drain is written to the claim, unless the claim has to end earlier.
func TestAFaultBoundsTheDrain(t *testing.T) {
	for name, earlier := range map[string]time.Duration{"no end is written": 0, "a later one": time.Hour, "an earlier one": 4 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			withFleet(t, 1, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				zero := intstr.FromInt32(0)
				sim.Create(t, w, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
					Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &zero, Selector: &metav1.LabelSelector{}}})
				sim.Create(t, w, sim.Pod("web", "1", sim.OwnedBy("web")))
				time.Sleep(time.Minute)
				node := sim.Get[*v1.NodeClaim](t, w, "c0").Status.NodeName
				memapi.Edit(w.API, "", node, func(n *corev1.Node) {
					n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "StorageReady", Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()})
				})
				broken := time.Now()
				if earlier > 0 {
					at := broken.Add(10*time.Minute + earlier).UTC().Format(time.RFC3339)
					memapi.Edit(w.API, "", "c0", func(c *v1.NodeClaim) {
						c.Annotations = map[string]string{v1.NodeClaimTerminationTimestampAnnotationKey: at}
					})
				}
				time.Sleep(12 * time.Minute)
				c := sim.Get[*v1.NodeClaim](t, w, "c0")
				if c.DeletionTimestamp == nil {
					t.Fatal("the broken node stays")
				}
				want := c.DeletionTimestamp.Add(5 * time.Minute)
				if earlier > 0 && earlier < 5*time.Minute {
					want = broken.Add(10*time.Minute + earlier)
				}
				if end, err := lifecycle.Deadline(c); err != nil || end.Sub(want).Abs() > 30*time.Second {
					t.Errorf("the drain ends at %s (%v), want %s", end, err, want)
				}
			})
		})
	}
}
