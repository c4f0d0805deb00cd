package drain_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// inWorld runs a test with one large machine that is ready for pods.
func inWorld(t *testing.T, test func(*testing.T, *sim.World, *sim.Karpenter), edits ...func(*v1.NodeClaim)) {
	t.Helper()
	sim.Bubble(t, sim.Options{PodStop: 2 * time.Second}, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		large := func(c *v1.NodeClaim) {
			c.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{"large"}}}
		}
		sim.Create(t, w, sim.Claim("c", append(edits, large)...))
		time.Sleep(20 * time.Second)
		test(t, w, k)
	})
}

func nodeOf(t *testing.T, w *sim.World) *corev1.Node {
	t.Helper()
	nodes := memapi.All[*corev1.Node](w.API)
	if len(nodes) != 1 {
		t.Fatalf("%d nodes, want one", len(nodes))
	}
	return nodes[0]
}

// run starts pods on the node.
func run(w *sim.World, pods ...*corev1.Pod) {
	for _, p := range pods {
		w.API.Put(p)
	}
	time.Sleep(5 * time.Second)
}

func pods(w *sim.World) string {
	var out []string
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		text := p.Name
		if p.DeletionTimestamp != nil {
			text += " ending"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestDeletingNodeOrClaimEndsBoth(t *testing.T) {
	for name, remove := range map[string]func(*testing.T, *sim.World){
		"a deleted node takes its claim and its machine along": func(t *testing.T, w *sim.World) { sim.Delete(t, w, nodeOf(t, w)) },
		"a deleted claim takes its node and its machine along": func(t *testing.T, w *sim.World) { sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c")) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
				run(w, sim.Pod("p", "1"))
				remove(t, w)
				time.Sleep(time.Second)
				node := nodeOf(t, w)
				if !strings.Contains(fmt.Sprint(node.Spec.Taints), v1.DisruptedTaintKey) || node.Labels[corev1.LabelNodeExcludeBalancers] != "karpenter" {
					t.Errorf("taints %v, labels %v", node.Spec.Taints, node.Labels)
				}
				time.Sleep(30 * time.Second)
				sim.WantNothing(t, w)
				sim.WantEvent(t, k, "Evicted", "p")
			})
		})
	}
}

func TestAnEmptyNodeIsDrainedForFiveSeconds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		sim.Delete(t, w, nodeOf(t, w))
		time.Sleep(4 * time.Second)
		if len(w.Cloud.Machines()) != 1 || w.Cloud.Machines()[0].Deleting {
			t.Error("the machine stops before five seconds have passed")
		}
		time.Sleep(2 * time.Second)
		if c := sim.Get[*v1.NodeClaim](t, w, "c"); !condition.IsTrue(c, v1.ConditionTypeDrained) || !condition.IsTrue(c, v1.ConditionTypeInstanceTerminating) {
			t.Errorf("conditions = %v", c.Status.Conditions)
		}
		time.Sleep(10 * time.Second)
		sim.WantNothing(t, w)
	})
}

func TestPodsLeaveInWaves(t *testing.T) {
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ds", UID: "ds", Controller: new(true)}}
	}
	critical := func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }
	inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		run(w, sim.Pod("d-critical-daemon", "100m", daemon, critical), sim.Pod("c-critical", "100m", critical),
			sim.Pod("b-daemon", "100m", daemon), sim.Pod("a-web", "100m"), sim.Pod("a-web2", "100m"))
		sim.Delete(t, w, nodeOf(t, w))
		var seen []string
		for range 150 {
			time.Sleep(100 * time.Millisecond)
			if now := pods(w); len(seen) == 0 || seen[len(seen)-1] != now {
				seen = append(seen, now)
			}
		}
		for _, p := range [][2]string{{"a-web", "b-daemon"}, {"a-web2", "b-daemon"}, {"b-daemon", "c-critical"}, {"c-critical", "d-critical-daemon"}} {
			for _, s := range seen {
				if strings.Contains(s, p[1]+" ending") && strings.Contains(s+",", p[0]+",") || strings.Contains(s, p[1]+" ending") && strings.Contains(s, p[0]+" ending") {
					t.Errorf("%s was told to end before %s was gone: %s", p[1], p[0], s)
				}
			}
		}
		time.Sleep(15 * time.Second)
		sim.WantNothing(t, w)
	})
}

func TestTheNodeSaysWhoHoldsItsDrain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		run(w, sim.Pod("a", "100m", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/slow"} }))
		run(w, sim.Pod("b", "100m", func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} }))
		sim.Delete(t, w, nodeOf(t, w))
		time.Sleep(time.Minute)
		want := "default/b, which is protected by its annotation " + v1.DoNotDisruptAnnotationKey
		if !slices.ContainsFunc(k.Events(), func(e *corev1.Event) bool { return e.Reason == "FailedDraining" && strings.HasSuffix(e.Message, want) }) {
			t.Errorf("no event of the node ends with %q", want)
		}
	})
}

func TestBudgets(t *testing.T) {
	budget := func(name string, allowed int32) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "p"}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
		}
	}
	t.Run("a budget holds the pod and the node until it allows the eviction", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			w.API.Put(budget("b", 0))
			run(w, sim.Pod("p", "1"))
			node := nodeOf(t, w)
			sim.Delete(t, w, node)
			time.Sleep(10 * time.Minute)
			if pods(w) != "p" {
				t.Fatalf("pods = %s, want p untouched", pods(w))
			}
			sim.WantEvent(t, k, "FailedDraining", node.Name)
			w.API.Put(budget("b", 1))
			time.Sleep(30 * time.Second)
			sim.WantNothing(t, w)
		})
	})
	t.Run("a pod under two budgets cannot be evicted", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			w.API.Put(budget("b1", 1))
			w.API.Put(budget("b2", 1))
			run(w, sim.Pod("p", "1"))
			sim.Delete(t, w, nodeOf(t, w))
			time.Sleep(time.Minute)
			if pods(w) != "p" {
				t.Errorf("pods = %s, want p untouched", pods(w))
			}
		})
	})
	t.Run("the deadline ends pods that a budget holds, with the grace that is left", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			w.API.Put(budget("b", 0))
			run(w, sim.Pod("p", "1", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(60)) }))
			sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
			time.Sleep(3*time.Minute + 50*time.Second)
			early := pods(w)
			time.Sleep(15 * time.Second)
			if early != "p" || len(memapi.All[*corev1.Pod](w.API)) != 0 {
				t.Errorf("ten seconds before its time: %q, five seconds after: %q", early, pods(w))
			}
			sim.WantEvent(t, k, "Disrupted", "p")
			sim.WantEvent(t, k, "TerminationGracePeriodExpiring", "c")
			forced := k.Journal.Select(journal.Query{Act: journal.Evicted})
			if len(forced) != 1 || forced[0].About[0].Name != "p" || forced[0].Evictions != 1 {
				t.Errorf("the journal has %+v, want one eviction of p", forced)
			}
			time.Sleep(time.Minute)
			sim.WantNothing(t, w)
		}, func(c *v1.NodeClaim) { c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: 5 * time.Minute} })
	})
}

// Who deletes the definition of NodeClaims has every claim deleted, and no other can be created: the pods stay where they are.
func TestNothingIsDrainedWhileTheDefinitionOfClaimsIsDeleted(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, w *sim.World){
		"with it goes the claim": func(t *testing.T, w *sim.World) { sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c")) },
		"a user deletes a Node":  func(t *testing.T, w *sim.World) { sim.Delete(t, w, nodeOf(t, w)) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
				run(w, sim.Pod("p", "1"))
				w.API.SetFault(func(r memapi.Request) error {
					if r.Verb == "create" && r.Kind == "NodeClaim" {
						return apierrors.NewForbidden(schema.GroupResource{Group: v1.Group, Resource: "nodeclaims"}, "definition-probe",
							errors.New("create not allowed while custom resource definition is terminating"))
					}
					return nil
				})
				remove(t, w)
				time.Sleep(time.Hour)
				if pods(w) != "p" || len(w.Cloud.Machines()) != 1 {
					t.Errorf("pods %q on %d machines, want p on its machine", pods(w), len(w.Cloud.Machines()))
				}
				if gone := nodeOf(t, w).DeletionTimestamp != nil; gone != (name == "a user deletes a Node") {
					t.Errorf("the Node is being deleted: %v", gone)
				}
				sim.WantEvent(t, k, "FailedDraining", "c")
				w.API.SetFault(func(r memapi.Request) error { // a right that is missing says nothing of the definition
					if r.Verb == "create" && r.Kind == "NodeClaim" {
						return apierrors.NewForbidden(schema.GroupResource{Group: v1.Group, Resource: "nodeclaims"}, "definition-probe",
							errors.New("the user cannot create nodeclaims"))
					}
					return nil
				})
				time.Sleep(5 * time.Minute)
				sim.WantNothing(t, w)
			})
		})
	}
}

func TestPodsThatAreNotEvicted(t *testing.T) {
	t.Run("a pod that asks not to be disrupted is waited for", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			run(w, sim.Pod("p", "1", func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "10m"} }))
			sim.Delete(t, w, nodeOf(t, w))
			time.Sleep(9 * time.Minute)
			held := pods(w)
			time.Sleep(2 * time.Minute)
			if held != "p" {
				t.Errorf("pods = %q while protected", held)
			}
			sim.WantEvent(t, k, "DoNotDisruptUntil", "p")
			sim.WantEvent(t, k, "DoNotDisruptGracePeriodElapsed", "p")
			sim.WantNothing(t, w)
		})
	})
	t.Run("a pod that tolerates the taint stays until the machine stops", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			run(w, sim.Pod("p", "1", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }))
			sim.Delete(t, w, nodeOf(t, w))
			time.Sleep(7 * time.Second)
			if pods(w) != "p" {
				t.Errorf("pods = %q, want p running", pods(w))
			}
			time.Sleep(10 * time.Second)
			sim.WantNothing(t, w)
			for _, e := range k.Events() {
				if e.Reason == "Evicted" {
					t.Error("it was evicted")
				}
			}
		})
	})
}

func TestVolumesLeaveBeforeTheMachine(t *testing.T) {
	attach := func(t *testing.T, w *sim.World) *storagev1.VolumeAttachment {
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}}
		a.Spec.NodeName = nodeOf(t, w).Name
		a.Spec.Source.PersistentVolumeName = new("pv-1")
		w.API.Put(a)
		time.Sleep(time.Second)
		return a
	}
	t.Run("an attached volume keeps the machine", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			a := attach(t, w)
			node := nodeOf(t, w)
			sim.Delete(t, w, node)
			time.Sleep(time.Minute)
			if len(w.Cloud.Machines()) != 1 {
				t.Fatal("the machine went with the volume attached")
			}
			sim.WantEvent(t, k, "AwaitingVolumeDetachment", node.Name)
			w.API.Remove(a)
			time.Sleep(15 * time.Second)
			sim.WantNothing(t, w)
			if n := testutil.ToFloat64(k.Metrics.NodesDrained.WithLabelValues("default")); n != 1 {
				t.Errorf("%v drained nodes are counted, want one", n)
			}
		})
	})
	t.Run("but not beyond the deadline", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			attach(t, w)
			sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
			time.Sleep(80 * time.Second)
			sim.WantNothing(t, w)
		}, func(c *v1.NodeClaim) { c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Minute} })
	})
}

func TestMachinesThatAreGone(t *testing.T) {
	t.Run("a node that is not ready and has no machine is not drained", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			run(w, sim.Pod("p", "1", func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} }))
			w.Cloud.Vanish(sim.Get[*v1.NodeClaim](t, w, "c").Status.ProviderID)
			time.Sleep(20 * time.Second)
			sim.WantNothing(t, w)
		})
	})
	t.Run("a machine that does not stop keeps node and claim", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			var mended atomic.Bool
			w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
				if c.Method == fakecloud.Terminate && !mended.Load() {
					return fakecloud.Fault{Err: fmt.Errorf("throttled")}
				}
				return fakecloud.Fault{}
			})
			sim.Delete(t, w, nodeOf(t, w))
			time.Sleep(10 * time.Minute)
			nodeOf(t, w)
			sim.Get[*v1.NodeClaim](t, w, "c")
			mended.Store(true)
			time.Sleep(time.Minute)
			sim.WantNothing(t, w)
		})
	})
	t.Run("a cloud that does not answer has not said that a machine is gone", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			node := nodeOf(t, w)
			run(w, sim.Pod("p", "1", func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} }))
			memapi.Edit(w.API, "", node.Name, func(n *corev1.Node) {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
			})
			w.Cloud.SetFault(func(fakecloud.Call) fakecloud.Fault { return fakecloud.Fault{Err: fmt.Errorf("throttled")} })
			sim.Delete(t, w, node)
			time.Sleep(10 * time.Minute)
			nodeOf(t, w)
			if got := pods(w); got != "p" {
				t.Errorf("pods = %q, want that it runs on", got)
			}
			w.Cloud.SetFault(nil)
			w.API.Remove(sim.Get[*corev1.Pod](t, w, "p"))
			time.Sleep(time.Minute)
			sim.WantNothing(t, w)
		})
	})
	t.Run("nodes of others are not touched", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", Finalizers: []string{v1.TerminationFinalizer}}}
			other.Spec.ProviderID = "other:///1"
			w.API.Put(other)
			sim.Delete(t, w, other)
			time.Sleep(time.Minute)
			if n := sim.Get[*corev1.Node](t, w, "other"); len(n.Finalizers) != 1 || len(n.Spec.Taints) > 0 {
				t.Errorf("node = %+v", n)
			}
		})
	})
}

func TestANodeWhoseClaimIsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		run(w, sim.Pod("p", "1"))
		w.API.Remove(sim.Get[*v1.NodeClaim](t, w, "c"))
		sim.Delete(t, w, nodeOf(t, w))
		var asked atomic.Bool
		w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
			asked.Store(asked.Load() || c.Method == fakecloud.Terminate)
			return fakecloud.Fault{}
		})
		time.Sleep(4 * time.Second) // no dwell: there is no claim to note its beginning on
		if n := len(memapi.All[*corev1.Node](w.API)); n != 0 || pods(w) != "" || asked.Load() {
			t.Errorf("%d nodes, pods %q, machine told to stop: %v; want the node drained and gone, and its machine left to garbage collection", n, pods(w), asked.Load())
		}
		sim.WantEvent(t, k, "Evicted", "p")
	})
}

func TestDeadlines(t *testing.T) {
	held := func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
		p.Spec.TerminationGracePeriodSeconds = new(int64(60))
	}
	t.Run("no grace at all ends everything at once", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			run(w, sim.Pod("p", "1", held))
			sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
			time.Sleep(20 * time.Second)
			sim.WantNothing(t, w)
			sim.WantEvent(t, k, "Disrupted", "p")
		}, func(c *v1.NodeClaim) { c.Spec.TerminationGracePeriod = &metav1.Duration{} })
	})
	t.Run("a deadline that was set before is kept", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			run(w, sim.Pod("p", "1", held))
			memapi.Edit(w.API, "", "c", func(c *v1.NodeClaim) {
				c.Annotations = map[string]string{v1.NodeClaimTerminationTimestampAnnotationKey: time.Now().Add(2 * time.Minute).UTC().Format(time.RFC3339)}
			})
			sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
			time.Sleep(50 * time.Second)
			early := pods(w)
			time.Sleep(90 * time.Second)
			if early != "p" {
				t.Errorf("pods = %q more than a minute before the deadline", early)
			}
			sim.WantNothing(t, w)
		}, func(c *v1.NodeClaim) { c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour} })
	})
	t.Run("without one a protected pod is waited for", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			run(w, sim.Pod("p", "1", held))
			sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
			time.Sleep(24 * time.Hour)
			if pods(w) != "p" || len(w.Cloud.Machines()) != 1 {
				t.Errorf("pods = %q, %d machines after a day", pods(w), len(w.Cloud.Machines()))
			}
		})
	})
	t.Run("a deadline that means nothing stops the drain before it begins", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			run(w, sim.Pod("p", "1"))
			memapi.Edit(w.API, "", "c", func(c *v1.NodeClaim) {
				c.Annotations = map[string]string{v1.NodeClaimTerminationTimestampAnnotationKey: "soon"}
			})
			sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
			time.Sleep(time.Minute)
			if pods(w) != "p" || len(w.Cloud.Machines()) != 1 {
				t.Errorf("pods = %q, %d machines", pods(w), len(w.Cloud.Machines()))
			}
		})
	})
}

func TestEvictAfter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		run(w, sim.Pod("p", "1"))
		memapi.Edit(w.API, "", "c", func(c *v1.NodeClaim) {
			c.Annotations = map[string]string{v1.EvictAfterAnnotationKey: time.Now().Add(45 * time.Second).UTC().Format(time.RFC3339)}
		})
		sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
		time.Sleep(40 * time.Second)
		if pods(w) != "p" || !strings.Contains(fmt.Sprint(nodeOf(t, w).Spec.Taints), v1.DisruptedTaintKey) {
			t.Errorf("pods = %q, taints %v: want the node tainted and the pod running", pods(w), nodeOf(t, w).Spec.Taints)
		}
		time.Sleep(30 * time.Second)
		sim.WantNothing(t, w)
		if !slices.ContainsFunc(k.Events(), func(e *corev1.Event) bool {
			return e.InvolvedObject.Name == "p" && e.Message == "Evicted pod: Interrupted"
		}) {
			t.Error("the pod is not told that its machine was taken back")
		}
	})
}

// deafInWorld is inWorld with watches that stop to show pods when the test says so.
func deafInWorld(t *testing.T, edit func(*v1.NodeClaim), test func(t *testing.T, w *sim.World, deafen func())) {
	t.Helper()
	var deaf atomic.Bool
	ko := sim.KarpenterOptions{Deaf: func(e memapi.Event) bool {
		_, pod := e.Object.(*corev1.Pod)
		return pod && deaf.Load()
	}}
	sim.Bubble(t, sim.Options{PodStop: 2 * time.Second}, ko, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		sim.Create(t, w, sim.Claim("c", edit))
		time.Sleep(20 * time.Second)
		test(t, w, func() { deaf.Store(true) })
	})
}

func listsFail(w *sim.World) {
	w.API.SetFault(func(r memapi.Request) error {
		if r.Verb == "list" && r.Kind == "Pod" {
			return errors.New("no answer")
		}
		return nil
	})
}

func TestPodsThatWereNotSeen(t *testing.T) {
	none := func(*v1.NodeClaim) {}
	grace := func(d time.Duration) func(*v1.NodeClaim) {
		return func(c *v1.NodeClaim) { c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: d} }
	}
	held := func(w *sim.World, allowed int32) {
		w.API.Put(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "late"}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
		})
	}
	tolerant := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: v1.DisruptedTaintKey, Operator: corev1.TolerationOpExists}}
	}
	for name, tc := range map[string]struct {
		claim       func(*v1.NodeClaim)
		world       func(t *testing.T, w *sim.World)
		after       func(t *testing.T, w *sim.World) // a minute after the end began
		first, last int                              // machines that run a minute after the end began, and a minute after that
	}{
		"a pod is evicted, and its budget asked": {none, func(_ *testing.T, w *sim.World) { held(w, 0); run(w, sim.Pod("late", "1")) },
			func(_ *testing.T, w *sim.World) { held(w, 1) }, 1, 0},
		"a pod that stays until the machine stops does not count": {none, func(_ *testing.T, w *sim.World) { run(w, sim.Pod("late", "1", tolerant)) },
			func(*testing.T, *sim.World) {}, 0, 0},
		"a machine waits while nobody knows": {none, func(_ *testing.T, w *sim.World) { listsFail(w) },
			func(_ *testing.T, w *sim.World) { w.API.SetFault(nil) }, 1, 0},
		"but not beyond its deadline": {grace(90 * time.Second), func(_ *testing.T, w *sim.World) { listsFail(w) },
			func(*testing.T, *sim.World) {}, 1, 0},
		"nor when the cloud takes it anyway": {none, func(t *testing.T, w *sim.World) {
			listsFail(w)
			memapi.Edit(w.API, "", "c", func(c *v1.NodeClaim) {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1.EvictAfterAnnotationKey, time.Now().Add(90*time.Second).UTC().Format(time.RFC3339))
			})
		}, func(*testing.T, *sim.World) {}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			deafInWorld(t, tc.claim, func(t *testing.T, w *sim.World, deafen func()) {
				deafen()
				tc.world(t, w)
				sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
				time.Sleep(time.Minute)
				if n := len(w.Cloud.Machines()); n != tc.first {
					t.Fatalf("%d machines a minute after the end began, want %d", n, tc.first)
				}
				if c, ok := sim.Find[*v1.NodeClaim](w, "c"); ok && condition.IsTrue(c, v1.ConditionTypeDrained) {
					t.Error("the claim says that it is drained")
				}
				tc.after(t, w)
				time.Sleep(time.Minute)
				if n := len(w.Cloud.Machines()); n != tc.last {
					t.Errorf("%d machines in the end, want %d", n, tc.last)
				}
			})
		})
	}
}

// Volumes may keep a machine long after its pods were last looked for.
func TestPodsThatCameWhileVolumesStayed(t *testing.T) {
	deafInWorld(t, func(*v1.NodeClaim) {}, func(t *testing.T, w *sim.World, deafen func()) {
		attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		attachment.Spec.NodeName, attachment.Spec.Source.PersistentVolumeName = nodeOf(t, w).Name, new("pv")
		w.API.Put(attachment)
		sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
		time.Sleep(30 * time.Second)
		if !condition.IsTrue(sim.Get[*v1.NodeClaim](t, w, "c"), v1.ConditionTypeDrained) {
			t.Fatal("not drained")
		}
		deafen()
		w.API.Put(sim.Pod("late", "1", func(p *corev1.Pod) {
			p.Spec.NodeName = nodeOf(t, w).Name
			p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
		}))
		w.API.Remove(attachment)
		time.Sleep(time.Minute)
		if len(w.Cloud.Machines()) != 1 {
			t.Error("the machine was stopped under a pod")
		}
		if condition.IsTrue(sim.Get[*v1.NodeClaim](t, w, "c"), v1.ConditionTypeDrained) {
			t.Error("the claim says that it is drained")
		}
	})
}

// A list of pods is dear to old API servers.
func TestTheAPIServerIsAskedOnceForThePodsOfAMachine(t *testing.T) {
	slow := sim.Options{Cloud: fakecloud.Options{Shutdown: 2 * time.Minute}}
	sim.Bubble(t, slow, sim.KarpenterOptions{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		sim.Create(t, w, sim.Claim("c"))
		time.Sleep(20 * time.Second)
		var lists atomic.Int32
		w.API.SetFault(func(r memapi.Request) error {
			if r.Verb == "list" && r.Kind == "Pod" {
				lists.Add(1)
			}
			return nil
		})
		sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
		time.Sleep(3 * time.Minute)
		sim.WantNothing(t, w)
		if n := lists.Load(); n != 1 {
			t.Errorf("asked %d times, want once", n)
		}
	})
}
