package disruption_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// mendable writes on a claim's node the fault that a reboot may mend.
func mendable(t *testing.T, w *sim.World, claim string) {
	t.Helper()
	memapi.Edit(w.API, "", sim.Get[*v1.NodeClaim](t, w, claim).Status.NodeName, func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: fakecloud.Mendable, Status: corev1.ConditionFalse,
			Reason: "XID48", LastTransitionTime: metav1.Now()})
	})
}

func nodeOf(t *testing.T, w *sim.World, claim string) *corev1.Node {
	t.Helper()
	return sim.Get[*corev1.Node](t, w, sim.Get[*v1.NodeClaim](t, w, claim).Status.NodeName)
}

func reasonOf(c *v1.NodeClaim, kind string) string {
	for _, x := range c.Status.Conditions {
		if x.Type == kind {
			return x.Reason
		}
	}
	return ""
}

// rebootTime is enough for a fault to be due, and for a reboot with its drain.
const rebootTime = 20 * time.Minute

func TestABrokenMachineIsRebooted(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		sim.Create(t, w, sim.Pod("web", "1", sim.OwnedBy("web")))
		time.Sleep(time.Minute)
		before := nodeOf(t, w, "c0")
		mendable(t, w, "c0")
		time.Sleep(10*time.Minute - 10*time.Second)
		if w.Cloud.Reboots() != 0 || len(nodeOf(t, w, "c0").Spec.Taints) > 0 {
			t.Fatal("the machine is rebooted before its fault is due")
		}
		time.Sleep(20*time.Second + 2*time.Second)
		if n := nodeOf(t, w, "c0"); len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != v1.RebootingTaintKey ||
			n.Labels[v1.NodeInitializedLabelKey] != "" {
			t.Errorf("the node is not closed: taints %v, labels %v", n.Spec.Taints, n.Labels)
		}
		c := sim.Get[*v1.NodeClaim](t, w, "c0")
		if got := c.Annotations[v1.RebootGracePeriodAnnotationKey]; got != "5m0s" {
			t.Errorf("the drain is bounded by %q", got)
		}
		for _, x := range c.Status.Conditions {
			if x.Type == v1.ConditionTypeRebooting && x.Message != "rebooting for AcceleratedHardwareReady/XID48" {
				t.Errorf("the condition says %q", x.Message)
			}
		}
		time.Sleep(2 * time.Minute)
		after := nodeOf(t, w, "c0")
		c = sim.Get[*v1.NodeClaim](t, w, "c0")
		if w.Cloud.Reboots() != 1 || after.UID != before.UID || after.Status.NodeInfo.BootID != "boot-2" || w.Cloud.Launches() != 1 {
			t.Errorf("%d reboots, boot id %s, %d machines launched", w.Cloud.Reboots(), after.Status.NodeInfo.BootID, w.Cloud.Launches())
		}
		if len(after.Spec.Taints) > 0 || after.Labels[v1.NodeInitializedLabelKey] != "true" || !condition(c, v1.ConditionTypeInitialized) {
			t.Errorf("the node is not what it was: taints %v, labels %v", after.Spec.Taints, after.Labels)
		}
		if reasonOf(c, v1.ConditionTypeRebooting) != v1.ReasonRebootSucceeded || reasonOf(c, v1.ConditionTypeDisruptionReason) != "" ||
			c.Annotations[v1.RebootPreBootIDAnnotationKey] != "" || c.Annotations[v1.RebootGracePeriodAnnotationKey] != "" {
			t.Errorf("the claim keeps %v, %v", c.Status.Conditions, c.Annotations)
		}
		pod := memapi.All[*corev1.Pod](w.API)[0]
		if pod.Name == "web" || pod.Spec.NodeName != after.Name {
			t.Errorf("pod %s is on %q, want another one on the same node", pod.Name, pod.Spec.NodeName)
		}
		sim.WantEvent(t, k, "RebootObserved", "c0")
		for name, got := range map[string]float64{
			"decisions": testutil.ToFloat64(k.Metrics.DisruptionDecisions.WithLabelValues("reboot", "unhealthy", "")),
			"reboots":   testutil.ToFloat64(k.Metrics.Reboots.WithLabelValues("succeeded")),
			"durations": float64(testutil.CollectAndCount(k.Metrics.RebootDuration)),
			"recovered": float64(testutil.CollectAndCount(k.Metrics.RebootRecovery)),
		} {
			if got != 1 {
				t.Errorf("%s: %v, want 1", name, got)
			}
		}
	})
}

// After two reboots within a day the machine is replaced, whichever process counts.
func TestAMachineThatRebootsDoNotMendIsReplaced(t *testing.T) {
	ko := sim.KarpenterOptions{Provision: true, Disrupt: true, Repairs: true}
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		for reboots := range 3 {
			w.With(t, ko, func(k *sim.Karpenter) {
				if reboots == 0 {
					editPool(w, func(p *v1.NodePool) {
						p.Spec.Disruption.ConsolidateAfter, p.Spec.Disruption.Budgets = v1.NillableDuration{}, []v1.Budget{{Nodes: "100%"}}
					})
					sim.Create(t, w, sim.Claim("c0"))
					time.Sleep(2 * time.Minute)
				}
				if !stays(w, "c0") || w.Cloud.Reboots() != reboots {
					t.Fatalf("before reboot %d there were %d", reboots+1, w.Cloud.Reboots())
				}
				mendable(t, w, "c0")
				time.Sleep(rebootTime)
			})
		}
		if stays(w, "c0") || w.Cloud.Reboots() != 2 {
			t.Errorf("the machine stays, or was rebooted %d times", w.Cloud.Reboots())
		}
	})
}

// A reboot that fails hands the machine back to repair, which replaces it within its budgets.
func TestAFailedRebootEndsInAReplacement(t *testing.T) {
	refused := fmt.Errorf("%w: not authorized to perform ec2:RebootInstances", cloud.ErrRebootRefused)
	for name, tc := range map[string]struct {
		fault   func(fakecloud.Call) fakecloud.Fault
		never   bool // the machine does not come back
		reboots int
		result  string
		drained bool // before it was known
	}{
		"refused beforehand": {fault: failing(fakecloud.MayReboot, refused), result: "provider_error"},
		"refused":            {fault: failing(fakecloud.Reboot, refused), result: "provider_error", drained: true},
		"never accepted":     {fault: failing(fakecloud.Reboot, context.DeadlineExceeded), result: "provider_error", drained: true},
		"never back":         {never: true, reboots: 1, result: "recovery_timeout", drained: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := sim.Options{}
			if tc.never {
				o.RebootsFor = func(cloud.Machine) time.Duration { return -1 }
			}
			sim.Bubble(t, o, sim.KarpenterOptions{Provision: true, Disrupt: true, Repairs: true}, func(t *testing.T,
				w *sim.World, k *sim.Karpenter) {
				budget := func(nodes string) {
					editPool(w, func(p *v1.NodePool) {
						p.Spec.Disruption.ConsolidateAfter, p.Spec.Disruption.Budgets = v1.NillableDuration{}, []v1.Budget{{Nodes: nodes}}
					})
				}
				budget("1")
				sim.Create(t, w, sim.Claim("c0"))
				time.Sleep(2 * time.Minute)
				sim.Create(t, w, sim.Pod("web", "1", sim.OwnedBy("web")))
				time.Sleep(time.Minute)
				w.Cloud.SetFault(tc.fault)
				mendable(t, w, "c0")
				time.Sleep(10*time.Minute + 3*time.Second)
				budget("0") // the reboot has begun, or was refused
				time.Sleep(time.Hour)
				c, ok := sim.Find[*v1.NodeClaim](w, "c0")
				if name == "refused beforehand" && !ok { // then the replacement had begun, too
					return
				}
				if !ok || c.DeletionTimestamp != nil || reasonOf(c, v1.ConditionTypeRebooting) != v1.ReasonRebootFailed {
					t.Fatalf("the machine went without a budget, or its reboot did not fail: %v", ok)
				}
				if n := nodeOf(t, w, "c0"); tc.drained && len(n.Spec.Taints) > 0 {
					t.Errorf("the node keeps %v", n.Spec.Taints)
				}
				if got := testutil.ToFloat64(k.Metrics.Reboots.WithLabelValues(tc.result)); got != 1 || w.Cloud.Reboots() != tc.reboots {
					t.Errorf("%v reboots ended so, %d machines were rebooted", got, w.Cloud.Reboots())
				}
				sim.WantEvent(t, k, "RebootFailed", "c0")
				budget("1")
				time.Sleep(time.Hour)
				if stays(w, "c0") || w.Cloud.Reboots() != tc.reboots {
					t.Error("the machine is not replaced")
				}
			})
		})
	}
}

func failing(m fakecloud.Method, err error) func(fakecloud.Call) fakecloud.Fault {
	return func(c fakecloud.Call) fakecloud.Fault {
		if c.Method == m {
			return fakecloud.Fault{Err: err}
		}
		return fakecloud.Fault{}
	}
}

// What keeps a broken node from being replaced keeps its machine from being rebooted.
func TestWhatKeepsAMachineFromBeingRebooted(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, w *sim.World){
		"do-not-repair": func(t *testing.T, w *sim.World) {
			memapi.Edit(w.API, "", "c0", func(c *v1.NodeClaim) { c.Annotations = map[string]string{v1.DoNotRepairAnnotationKey: "true"} })
		},
		"a budget of 0 for Unhealthy": func(t *testing.T, w *sim.World) {
			editPool(w, func(p *v1.NodePool) {
				p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0", Reasons: []v1.DisruptionReason{v1.DisruptionReasonUnhealthy}}}
			})
		},
		"a paused pool": func(t *testing.T, w *sim.World) {
			editPool(w, func(p *v1.NodePool) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1.PausedAnnotationKey, "true") })
		},
		"too many that are broken": func(t *testing.T, w *sim.World) { mendable(t, w, "c1") },
	} {
		t.Run(name, func(t *testing.T) {
			withFleet(t, 2, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				prepare(t, w)
				mendable(t, w, "c0")
				time.Sleep(rebootTime)
				c := sim.Get[*v1.NodeClaim](t, w, "c0")
				if w.Cloud.Reboots() != 0 || reasonOf(c, v1.ConditionTypeRebooting) != "" || len(nodeOf(t, w, "c0").Spec.Taints) > 0 {
					t.Errorf("rebooted %d times; the claim has %v", w.Cloud.Reboots(), c.Status.Conditions)
				}
			})
		})
	}
}

// Where a reboot would not do, the machine is replaced at once.
func TestWhenAMachineIsReplacedAlthoughARebootMayMendIt(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, w *sim.World){
		"it has drifted": func(t *testing.T, w *sim.World) { w.Cloud.SetDrift("c0", "AMIDrift"); time.Sleep(10 * time.Minute) },
		"no boot would be noticed": func(t *testing.T, w *sim.World) {
			memapi.Edit(w.API, "", nodeOf(t, w, "c0").Name, func(n *corev1.Node) { n.Status.NodeInfo.BootID = "" })
		},
		"it has another fault, too": func(t *testing.T, w *sim.World) {
			memapi.Edit(w.API, "", nodeOf(t, w, "c0").Name, func(n *corev1.Node) {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "StorageReady",
					Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFleet(t, 1, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				drifts := strings.Contains(name, "drifted")
				editPool(w, func(p *v1.NodePool) { // drift alone replaces nothing
					p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0", Reasons: []v1.DisruptionReason{v1.DisruptionReasonDrifted}}}
				})
				prepare(t, w)
				if drifts && !stays(w, "c0") {
					t.Fatal("drift replaced the machine")
				}
				mendable(t, w, "c0")
				time.Sleep(rebootTime)
				if stays(w, "c0") || w.Cloud.Reboots() != 0 {
					t.Errorf("the machine stays: %t; rebooted %d times", stays(w, "c0"), w.Cloud.Reboots())
				}
			})
		})
	}
}

// A machine that is being rebooted uses up the budgets of all reasons, so that the next one waits for it.
func TestRebootsKeepToBudgets(t *testing.T) {
	away := func(cloud.Machine) time.Duration { return 5 * time.Minute }
	sim.Bubble(t, sim.Options{RebootsFor: away}, sim.KarpenterOptions{Provision: true, Disrupt: true, Repairs: true},
		func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			editPool(w, func(p *v1.NodePool) {
				p.Spec.Disruption.ConsolidateAfter, p.Spec.Disruption.Budgets = v1.NillableDuration{}, []v1.Budget{{Nodes: "1"}}
			})
			for i := range 10 {
				sim.Create(t, w, sim.Claim(fmt.Sprint("c", i)))
			}
			time.Sleep(2 * time.Minute)
			mendable(t, w, "c0")
			mendable(t, w, "c1")
			time.Sleep(14 * time.Minute)
			if w.Cloud.Reboots() != 1 {
				t.Errorf("%d machines are rebooted at once", w.Cloud.Reboots())
			}
			if got := testutil.ToFloat64(k.Metrics.PoolNodesConsumingBudgets.WithLabelValues("default", "drifted")); got != 1 {
				t.Errorf("%v nodes use up the budget", got)
			}
			time.Sleep(10 * time.Minute)
			if w.Cloud.Reboots() != 2 || w.Cloud.Launches() != 10 {
				t.Errorf("%d machines were rebooted, %d launched", w.Cloud.Reboots(), w.Cloud.Launches())
			}
		})
}

// Pods that may not leave ride through the reboot when the drain has had its time; a drain without a bound does not begin.
func TestPodsThatMayNotLeaveBeforeAReboot(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		zero := intstr.FromInt32(0)
		sim.Create(t, w, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &zero, Selector: &metav1.LabelSelector{}}})
		sim.Create(t, w, sim.Pod("web", "1", sim.OwnedBy("web")))
		time.Sleep(time.Minute)
		mendable(t, w, "c0")
		time.Sleep(14 * time.Minute)
		if w.Cloud.Reboots() != 0 {
			t.Fatal("the machine is rebooted before its drain has had its time")
		}
		time.Sleep(3 * time.Minute)
		if _, there := sim.Find[*corev1.Pod](w, "web"); !there || w.Cloud.Reboots() != 1 {
			t.Errorf("the pod is there: %t; %d reboots", there, w.Cloud.Reboots())
		}
	})
}

// A claim that is deleted while its machine is being rebooted ends like any other.
func TestAMachineMayGoWhileItIsRebooted(t *testing.T) {
	for _, after := range []time.Duration{2 * time.Second, 20 * time.Second} {
		withFleet(t, 1, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			mendable(t, w, "c0")
			time.Sleep(10*time.Minute + after)
			c := sim.Get[*v1.NodeClaim](t, w, "c0")
			if !condition(c, v1.ConditionTypeRebooting) {
				t.Fatal("no reboot is under way")
			}
			if err := w.API.Client("user").Delete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			if _, there := sim.Find[*v1.NodeClaim](w, "c0"); there || len(w.Cloud.Machines()) != 0 {
				t.Errorf("%s into the reboot: the claim is there: %t, %d machines", after, there, len(w.Cloud.Machines()))
			}
		})
	}
}
