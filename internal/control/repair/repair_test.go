package repair_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// tolerated is for how long the fake cloud tolerates a node that is not ready.
const tolerated = 30 * time.Minute

// fleet runs a test with n machines that are nodes.
func fleet(t *testing.T, n int, ko sim.KarpenterOptions, test func(t *testing.T, w *sim.World, k *sim.Karpenter)) {
	t.Helper()
	ko.LegacyRepair = true
	sim.Bubble(t, sim.Options{}, ko, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		for i := range n {
			sim.Create(t, w, sim.Claim(name(i)))
		}
		time.Sleep(time.Minute)
		test(t, w, k)
	})
}

func name(i int) string { return fmt.Sprintf("c%d", i) }

// report writes what the kubelet of a claim's node says, or what others say of it.
func report(t *testing.T, w *sim.World, claim string, status corev1.ConditionStatus) {
	t.Helper()
	node := sim.Get[*v1.NodeClaim](t, w, claim).Status.NodeName
	memapi.Edit(w.API, "", node, func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now(), Message: "kubelet stopped"}}
	})
}

func there(w *sim.World, claim string) bool {
	c, ok := sim.Find[*v1.NodeClaim](w, claim)
	return ok && c.DeletionTimestamp == nil
}

func TestABrokenMachineGoesWhateverHoldsIt(t *testing.T) {
	held := func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
		p.Spec.TerminationGracePeriodSeconds = new(int64(7200))
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "held", UID: "held", Controller: new(true)}}
	}
	fleet(t, 1, sim.KarpenterOptions{Provision: true}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
			p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0"}}
			p.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: 24 * time.Hour}
		})
		sim.Create(t, w, sim.Pod("held", "1", held))
		time.Sleep(time.Minute)
		c := sim.Get[*v1.NodeClaim](t, w, "c0")
		memapi.Edit(w.API, "", "c0", func(c *v1.NodeClaim) {
			c.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
			c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: 24 * time.Hour}
		})
		report(t, w, "c0", corev1.ConditionFalse)
		time.Sleep(tolerated - time.Second)
		if !there(w, "c0") {
			t.Fatal("the node went before its time")
		}
		time.Sleep(2 * time.Second)
		if there(w, "c0") {
			t.Fatal("the broken node stays")
		}
		sim.WantEvent(t, k, "DisruptionTerminating", c.Status.NodeName)
		sim.WantEvent(t, k, "DisruptionTerminating", "c0")
		time.Sleep(2 * time.Minute)
		if _, ok := sim.Find[*v1.NodeClaim](w, "c0"); ok {
			t.Error("the end of a broken machine waits for its pods")
		}
		if pod := memapi.All[*corev1.Pod](w.API); len(pod) != 1 || pod[0].Spec.NodeName == "" || pod[0].Spec.NodeName == c.Status.NodeName {
			t.Errorf("the pod did not come back elsewhere: %v", pod)
		}
		labels := c.Labels
		if got := testutil.ToFloat64(k.Metrics.NodeClaimsUnhealthy.WithLabelValues("ready", "default", labels[v1.CapacityTypeLabelKey], c.Status.ImageID, "forceful")); got != 1 {
			t.Errorf("counted %v broken machines", got)
		}
		if got := testutil.ToFloat64(k.Metrics.NodeClaimsDisrupted.WithLabelValues("unhealthy", "default", labels[v1.CapacityTypeLabelKey], "", "forceful")); got != 1 {
			t.Errorf("counted %v forceful disruptions", got)
		}
		if got := testutil.ToFloat64(k.Metrics.PodsDisruptionInitiated.WithLabelValues("unhealthy", "default", labels[v1.CapacityTypeLabelKey], "", "forceful")); got != 1 {
			t.Errorf("counted %v pods", got)
		}
	})
}

func TestDoNotRepairIsHeeded(t *testing.T) {
	fleet(t, 1, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		memapi.Edit(w.API, "", "c0", func(c *v1.NodeClaim) { c.Annotations = map[string]string{v1.DoNotRepairAnnotationKey: "true"} })
		report(t, w, "c0", corev1.ConditionFalse)
		time.Sleep(2 * tolerated)
		if !there(w, "c0") {
			t.Error("it went")
		}
		sim.WantEvent(t, k, "DisruptionBlocked", "c0")
	})
}

func TestANodeThatRecoversStays(t *testing.T) {
	fleet(t, 1, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		for range 3 {
			report(t, w, "c0", corev1.ConditionUnknown)
			time.Sleep(tolerated - time.Second)
			report(t, w, "c0", corev1.ConditionTrue)
			time.Sleep(time.Minute)
		}
		time.Sleep(2 * tolerated)
		if !there(w, "c0") {
			t.Error("it went")
		}
	})
}

func TestWhenManyAreBrokenNoneIsRepaired(t *testing.T) {
	fleet(t, 10, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		w.API.Put(sim.Pool("other"))
		sim.Create(t, w, sim.Claim("other", func(c *v1.NodeClaim) { c.Labels[v1.NodePoolLabelKey] = "other" }))
		for i := range 3 {
			report(t, w, name(i), corev1.ConditionFalse)
		}
		time.Sleep(4 * tolerated)
		for i := range 10 {
			if !there(w, name(i)) {
				t.Fatalf("%s went though three of ten are broken", name(i))
			}
		}
		for _, object := range []string{name(0), sim.Get[*v1.NodeClaim](t, w, name(0)).Status.NodeName, "default"} {
			sim.WantEvent(t, k, "NodeRepairBlocked", object)
		}
		report(t, w, name(2), corev1.ConditionTrue)
		time.Sleep(6 * time.Minute)
		if there(w, name(0)) || there(w, name(1)) || !there(w, name(2)) {
			t.Errorf("there: %v %v %v; want the two that are broken to be gone", there(w, name(0)), there(w, name(1)), there(w, name(2)))
		}
	})
}

func TestMachinesWithoutPoolAreComparedWithTheWholeCluster(t *testing.T) {
	fleet(t, 8, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		for _, alone := range []string{"alone-0", "alone-1"} {
			sim.Create(t, w, sim.Claim(alone, func(c *v1.NodeClaim) { delete(c.Labels, v1.NodePoolLabelKey) }))
		}
		time.Sleep(time.Minute)
		report(t, w, "alone-0", corev1.ConditionFalse)
		report(t, w, "alone-1", corev1.ConditionFalse)
		time.Sleep(tolerated + time.Minute)
		if there(w, "alone-0") || there(w, "alone-1") {
			t.Error("two of ten are broken, and they stay")
		}
	})
}

// A node may change its own labels, and somebody's tool those of many. That takes no machine out of its pool.
func TestANodeThatLostItsPoolsLabelIsComparedWithItsPool(t *testing.T) {
	fleet(t, 4, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		w.API.Put(sim.Pool("other"))
		for i := range 10 {
			sim.Create(t, w, sim.Claim(fmt.Sprintf("other-%d", i), func(c *v1.NodeClaim) { c.Labels[v1.NodePoolLabelKey] = "other" }))
		}
		time.Sleep(time.Minute)
		for i := range 2 {
			report(t, w, name(i), corev1.ConditionFalse)
			memapi.Edit(w.API, "", sim.Get[*v1.NodeClaim](t, w, name(i)).Status.NodeName, func(n *corev1.Node) { delete(n.Labels, v1.NodePoolLabelKey) })
		}
		time.Sleep(2 * tolerated)
		if !there(w, name(0)) || !there(w, name(1)) {
			t.Error("two of a pool's four nodes are broken, and were repaired because they no longer say whose they are")
		}
		sim.WantEvent(t, k, "NodeRepairBlocked", name(0))
	})
}

// A short trouble of others holds a repair back as well: it may be the beginning of a great one.
func TestNodesThatFellIllJustNowCount(t *testing.T) {
	fleet(t, 5, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		report(t, w, name(0), corev1.ConditionFalse)
		time.Sleep(tolerated - time.Second)
		report(t, w, name(1), corev1.ConditionUnknown)
		time.Sleep(time.Minute)
		if !there(w, name(0)) {
			t.Error("one of two of five went")
		}
	})
}

// A drain that somebody began, and that waits for a day, is cut short.
func TestADrainOfABrokenMachineIsCutShort(t *testing.T) {
	for what, deadline := range map[string]string{
		"a deadline that is far": time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339),
		"words":                  "tomorrow",
		"no deadline":            "",
	} {
		t.Run(what, func(t *testing.T) {
			fleet(t, 1, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
				node := sim.Get[*v1.NodeClaim](t, w, "c0").Status.NodeName
				pod := sim.Pod("held", "1", func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} })
				pod.Spec.NodeName = node
				sim.Create(t, w, pod)
				if deadline != "" {
					memapi.Edit(w.API, "", "c0", func(c *v1.NodeClaim) {
						c.Annotations = map[string]string{v1.NodeClaimTerminationTimestampAnnotationKey: deadline}
					})
				}
				sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c0"))
				time.Sleep(time.Minute)
				report(t, w, "c0", corev1.ConditionFalse)
				time.Sleep(tolerated - time.Minute)
				if _, ok := sim.Find[*v1.NodeClaim](w, "c0"); !ok {
					t.Fatal("the pod did not hold the node: the test shows nothing")
				}
				time.Sleep(5 * time.Minute)
				sim.WantNothing(t, w)
				if n := testutil.CollectAndCount(k.Metrics.NodeClaimsUnhealthy); n > 0 {
					t.Error("a claim that others deleted was counted as ours")
				}
			})
		})
	}
}

// What has been promised to whoever waits for the end is kept.
func TestADeadlineThatHasPassedStays(t *testing.T) {
	fleet(t, 1, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		const past = "1999-12-31T23:00:00Z"
		memapi.Edit(w.API, "", "c0", func(c *v1.NodeClaim) {
			c.Annotations = map[string]string{v1.NodeClaimTerminationTimestampAnnotationKey: past}
			c.Finalizers = append(c.Finalizers, "example.com/keep")
		})
		report(t, w, "c0", corev1.ConditionFalse)
		time.Sleep(tolerated + time.Minute)
		c := sim.Get[*v1.NodeClaim](t, w, "c0")
		if got := c.Annotations[v1.NodeClaimTerminationTimestampAnnotationKey]; got != past || c.DeletionTimestamp == nil {
			t.Errorf("deadline %q, deleted %v; want %q and deleted", got, c.DeletionTimestamp, past)
		}
	})
}

// Our picture may be the one that is broken.
func TestANodeThatOnlyWeBelieveToBeBrokenStays(t *testing.T) {
	deaf := false
	ko := sim.KarpenterOptions{Deaf: func(e memapi.Event) bool {
		_, node := e.Object.(*corev1.Node)
		return deaf && node
	}}
	fleet(t, 1, ko, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		report(t, w, "c0", corev1.ConditionFalse)
		time.Sleep(time.Minute)
		deaf = true
		report(t, w, "c0", corev1.ConditionTrue)
		time.Sleep(2 * tolerated)
		if !there(w, "c0") {
			t.Error("it went")
		}
	})
}

func TestMachinesOfOthersAreLeftAlone(t *testing.T) {
	fleet(t, 1, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		memapi.Edit(w.API, "", "c0", func(c *v1.NodeClaim) { c.Spec.NodeClassRef.Kind = "TheirNodeClass" })
		report(t, w, "c0", corev1.ConditionFalse)
		time.Sleep(2 * tolerated)
		if !there(w, "c0") {
			t.Error("it went")
		}
	})
}

// How many are broken cannot be known then.
func TestNothingIsRepairedWhileTheClusterCannotBeRead(t *testing.T) {
	fleet(t, 1, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		k.Store.Update(func(d *cluster.Draft) { d.FailedFeeds([]cluster.FailedFeed{{Kind: "Pod", Since: time.Now()}}) })
		report(t, w, "c0", corev1.ConditionFalse)
		time.Sleep(2 * tolerated)
		if !there(w, "c0") {
			t.Fatal("it went")
		}
		k.Store.Update(func(d *cluster.Draft) { d.FailedFeeds(nil) })
		time.Sleep(2 * time.Minute)
		if there(w, "c0") {
			t.Error("it stays though the cluster can be read again")
		}
	})
}

func TestNothingIsRepairedWhilePaused(t *testing.T) {
	fleet(t, 1, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Annotations = map[string]string{v1.PausedAnnotationKey: "true"} })
		report(t, w, "c0", corev1.ConditionFalse)
		time.Sleep(2 * tolerated)
		if !there(w, "c0") {
			t.Fatal("it went")
		}
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Annotations = nil })
		time.Sleep(time.Minute)
		if there(w, "c0") {
			t.Error("it stays though nothing is paused any more")
		}
	})
}
