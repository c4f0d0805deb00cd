package pool_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/control/pool"
	"karpenter.sh/karpenter/internal/core/drift"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// inWorld runs a test in a bubble with a cluster and a Karpenter.
func inWorld(t *testing.T, test func(*testing.T, *sim.World, *sim.Karpenter)) {
	t.Helper()
	sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{}, test)
}

// conditionOf tells a condition in words.
func conditionOf(t *testing.T, w *sim.World, name, kind string) string {
	t.Helper()
	c := condition.Get(sim.Get[*v1.NodePool](t, w, name), kind)
	if c == nil {
		return "none"
	}
	return string(c.Status) + " " + c.Reason
}

func TestReadiness(t *testing.T) {
	class := func(edit func(*awsv1.EC2NodeClass)) func(*sim.World) {
		return func(w *sim.World) { memapi.Edit(w.API, "", "default", edit) }
	}
	for name, tc := range map[string]struct {
		change func(*sim.World)
		want   string // NodeClassReady; Ready
		event  string // what it says, "" for none
	}{
		"a ready class makes the pool ready": {func(*sim.World) {}, "True NodeClassReady; True Ready", ""},
		"a kind of class that there is not": {func(w *sim.World) {
			memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
				p.Generation++
				p.Spec.Template.Spec.NodeClassRef.Kind = "EC2Nodeclass"
			})
		}, "False NodeClassNotFound; False UnhealthyDependents", `there is no kind "EC2Nodeclass"`},
		"a class that is not there": {func(w *sim.World) { w.API.Remove(&awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}) },
			"False NodeClassNotFound; False UnhealthyDependents", `there is no EC2NodeClass named "default"`},
		"a class that is being deleted": {func(w *sim.World) {
			memapi.Edit(w.API, "", "default", func(c *awsv1.EC2NodeClass) { c.Finalizers = []string{"x"} })
			_ = w.API.Client("user").Delete(t.Context(), &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
		}, "False NodeClassTerminating; False UnhealthyDependents", "is being deleted"},
		"a class without conditions": {class(func(c *awsv1.EC2NodeClass) { c.Status.Conditions = nil }),
			"False NodeClassReadinessUnknown; False UnhealthyDependents", ""},
		"a class that is not ready gives its own reason": {class(func(c *awsv1.EC2NodeClass) {
			for _, d := range c.ConditionRules().Dependents {
				condition.SetFalse(c, d, "Broken", "no subnets", time.Now())
			}
		}), "False UnhealthyDependents; False UnhealthyDependents", ": no subnets"},
		"a pool that cannot mean what it says is not ready": {func(w *sim.World) {
			memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
				p.Generation++
				p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: []string{"gold"}}}
			})
		}, "True NodeClassReady; False UnhealthyDependents", "gold"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
				tc.change(w)
				time.Sleep(time.Second)
				told := ""
				for _, e := range k.Events() {
					if e.Reason == string(telemetry.NodePoolNotReady) && e.InvolvedObject.Name == "default" {
						told += e.Reason + " " + e.Message + "\n"
					}
				}
				if (told == "") != (tc.event == "") || !strings.Contains(told, tc.event) {
					t.Errorf("events = %q, want %q", told, tc.event)
				}
				got := conditionOf(t, w, "default", v1.ConditionTypeNodeClassReady) + "; " + conditionOf(t, w, "default", condition.Ready)
				if got != tc.want {
					t.Errorf("conditions = %s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestStaticPoolNeedsItsGate(t *testing.T) {
	for gate, want := range map[bool]string{false: "False FeatureGateDisabled", true: "True ValidationSucceeded"} {
		t.Run(fmt.Sprint("gate ", gate), func(t *testing.T) {
			sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Gates: pool.Gates{StaticCapacity: gate}}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				p := sim.Pool("static")
				p.Spec.Replicas = new(int64(2))
				w.API.Put(p)
				time.Sleep(time.Second)
				if got := conditionOf(t, w, "static", v1.ConditionTypeValidationSucceeded); got != want {
					t.Errorf("ValidationSucceeded = %s, want %s", got, want)
				}
			})
		})
	}
}

// A template may carry annotations that Karpenter keeps for itself: the pool works, and a condition names them.
// The condition comes and goes with the switch, also when a pause is over by itself.
func TestPauseIsShown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		paused := func() string {
			time.Sleep(time.Second)
			c := condition.Get(sim.Get[*v1.NodePool](t, w, "default"), v1.ConditionTypeDisruptionPaused)
			if c == nil {
				return ""
			}
			return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
		}
		annotate := func(value string) {
			memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1.PausedAnnotationKey, value) })
		}
		if got := paused(); got != "" {
			t.Errorf("before anything: %s", got)
		}
		until := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		annotate(until)
		if got, want := paused(), "True PoolPaused no node is disrupted voluntarily: its NodePool is paused until "+until; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		w.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1.PausedNamespace, Annotations: map[string]string{v1.PausedAnnotationKey: "true"}}})
		if got := paused(); !strings.HasPrefix(got, "True ClusterPaused") {
			t.Errorf("with the cluster paused too: %q", got)
		}
		w.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1.PausedNamespace}})
		if got := paused(); !strings.HasPrefix(got, "True PoolPaused") {
			t.Errorf("with the pool alone: %q", got)
		}
		time.Sleep(time.Minute)
		if got := paused(); got != "" {
			t.Errorf("when the time is over: %q", got)
		}
		if !condition.IsTrue(sim.Get[*v1.NodePool](t, w, "default"), condition.Ready) {
			t.Error("the pool is not ready")
		}
	})
}

func TestApprovalIsShown(t *testing.T) {
	for name, tc := range map[string]struct{ approval, rules, want string }{
		"nobody is asked":                {"automatic", "", ""},
		"somebody is":                    {"manual", "", "Manual each voluntary step waits for approval of its DisruptionPlan"},
		"somebody is, but for":           {"manual", "reason=Empty", "Manual each voluntary step waits for approval of its DisruptionPlan; approved without anybody: reason=Empty"},
		"a rule that nobody understands": {"manual", "reason=Empty; pods<=few", `NotUnderstood each voluntary step waits for approval of its DisruptionPlan; karpenter.sh/disruption-auto-approve is not understood, so no rule counts: "pods<=few": "few" is no number of pods`},
		"a word that nobody understands": {"yes", "", `NotUnderstood each voluntary step waits for approval of its DisruptionPlan; karpenter.sh/disruption-approval says "yes", which is neither manual nor automatic`},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
				memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
					p.Annotations = map[string]string{v1.ApprovalAnnotationKey: tc.approval, v1.AutoApproveAnnotationKey: tc.rules}
				})
				time.Sleep(time.Second)
				got := ""
				if c := condition.Get(sim.Get[*v1.NodePool](t, w, "default"), v1.ConditionTypeDisruptionByApproval); c != nil {
					got = c.Reason + " " + c.Message
				}
				if got != tc.want {
					t.Errorf("got  %q\nwant %q", got, tc.want)
				}
			})
		})
	}
}

func TestReservedKeysAreNamed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
			p.Spec.Template.Annotations = map[string]string{v1.DisruptionCommandAnnotationKey: "{}", v1.LaunchTokenAnnotationKey: "x", v1.DoNotDisruptAnnotationKey: "true"}
		})
		time.Sleep(time.Second)
		p := sim.Get[*v1.NodePool](t, w, "default")
		c := condition.Get(p, v1.ConditionTypeReservedKeysIgnored)
		if c == nil || !strings.HasSuffix(c.Message, ": "+v1.DisruptionCommandAnnotationKey+", "+v1.LaunchTokenAnnotationKey) {
			t.Errorf("condition = %v, want it to name the two", c)
		}
		if !condition.IsTrue(p, v1.ConditionTypeReady) {
			t.Errorf("the pool is not ready: %v", p.Status.Conditions)
		}
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Spec.Template.Annotations = nil })
		time.Sleep(time.Second)
		if got := conditionOf(t, w, "default", v1.ConditionTypeReservedKeysIgnored); got != "none" {
			t.Errorf("without such keys the condition is %s", got)
		}
	})
}

// What cannot be read does not count, is said, and keeps no node from coming.
func TestAnnotationsAboutSpotThatCannotBeRead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		for key, bad := range map[string][]string{v1.InterruptionCostAnnotationKey: {"much", "-1", "10001", ""}, v1.SpotMaxShareAnnotationKey: {"half", "0%", "101%", "50", ""}} {
			for _, value := range append(bad, map[string]string{v1.InterruptionCostAnnotationKey: "0.5", v1.SpotMaxShareAnnotationKey: "50%"}[key]) {
				memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Annotations = map[string]string{key: value} })
				time.Sleep(time.Second)
				p := sim.Get[*v1.NodePool](t, w, "default")
				c := condition.Get(p, v1.ConditionTypeSpotAnnotationsIgnored)
				if said := c != nil && strings.Contains(c.Message, key) && strings.Contains(c.Message, "such as"); said != slices.Contains(bad, value) {
					t.Errorf("%s: %q: condition %v", key, value, c)
				}
				if !condition.IsTrue(p, v1.ConditionTypeReady) {
					t.Errorf("%s: %q: the pool is not ready", key, value)
				}
			}
		}
	})
}

func TestForeignPoolsAreNotTouched(t *testing.T) {
	inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		p := sim.Pool("other")
		p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "other", Kind: "Class", Name: "default"}
		w.API.Put(p)
		time.Sleep(time.Minute)
		if got := sim.Get[*v1.NodePool](t, w, "other"); len(got.Status.Conditions)+len(got.Annotations)+len(got.Status.Resources) > 0 {
			t.Errorf("the pool was touched: %+v", got)
		}
	})
}

func TestCounts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		held := func() string {
			time.Sleep(6 * time.Second)
			s := sim.Get[*v1.NodePool](t, w, "default").Status
			cpu, nodes, memory := s.Resources[corev1.ResourceCPU], s.Resources[v1.ResourceNodes], s.Resources[corev1.ResourceMemory]
			return fmt.Sprintf("%d nodes, %s cpu, %s memory, %s", s.Nodes, cpu.String(), memory.String(), nodes.String())
		}
		var got []string
		note := func() { got = append(got, held()) }
		note()
		sim.Create(t, w, sim.Claim("a"))
		sim.Create(t, w, sim.Claim("b"))
		note()
		a := sim.Get[*v1.NodeClaim](t, w, "a")
		memapi.Edit(w.API, "", a.Status.NodeName, func(n *corev1.Node) { n.Status.Capacity[corev1.ResourceCPU] = resource.MustParse("2500m") })
		note()
		sim.Delete(t, w, a)
		note()
		sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "b"))
		note()
		want := "0 nodes, 0 cpu, 0 memory, 0; 2 nodes, 4 cpu, 32Gi memory, 2; 2 nodes, 4500m cpu, 32Gi memory, 2; 1 nodes, 2 cpu, 16Gi memory, 1; 0 nodes, 0 cpu, 0 memory, 0"
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("counts:\n%s\nwant\n%s", text, want)
		}
	})
}

func TestHash(t *testing.T) {
	stamps := func(t *testing.T, w *sim.World) (pool, claim drift.Stamp) {
		t.Helper()
		return drift.Stored(sim.Get[*v1.NodePool](t, w, "default").Annotations), drift.Stored(sim.Get[*v1.NodeClaim](t, w, "c").Annotations)
	}
	t.Run("the pool carries the hash of its template, and a new one when that changes", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c"))
			first, _ := stamps(t, w)
			memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Generation++; p.Spec.Template.Labels = map[string]string{"a": "b"} })
			time.Sleep(time.Second)
			second, _ := stamps(t, w)
			memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Generation++; p.Spec.Weight = new(int32(7)) })
			time.Sleep(time.Second)
			third, _ := stamps(t, w)
			if first.Hash == "" || first == second || second != third {
				t.Errorf("stamps: %v, after a new label %v, after a new weight %v", first, second, third)
			}
		})
	})
	for name, tc := range map[string]struct {
		drifted bool
		version string // of the claim's stamp
		want    string
	}{
		"claims of another version get the pool's hash":       {false, "v3", "pool's"},
		"claims that have drifted keep their hash":            {true, "v3", "own"},
		"claims of the present version are left as they were": {false, "present", "own"},
	} {
		t.Run(name, func(t *testing.T) {
			sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
				present := drift.PoolStamp(sim.Get[*v1.NodePool](t, w, "default"))
				version := tc.version
				if version == "present" {
					version = present.Version
				}
				// The pool comes from a release whose hashes had another version, with the hash of a claim that has not drifted.
				hash := "12345"
				if tc.drifted {
					hash = "54321"
				}
				memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Annotations = annotations(hash, "v3") })
				c := sim.Claim("c", func(c *v1.NodeClaim) {
					c.CreationTimestamp = metav1.NewTime(time.Now())
					c.Annotations = annotations("12345", version)
				})
				condition.SetTrue(c, v1.ConditionTypeLaunched, time.Now())
				if tc.drifted {
					condition.SetTrue(c, v1.ConditionTypeDrifted, time.Now())
				}
				w.API.Put(c)
				// Both loops write to the claim: who loses looks again a second later.
				w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) { time.Sleep(5 * time.Second) })
				pool, claim := stamps(t, w)
				if pool != present {
					t.Errorf("the pool's stamp is %v, want %v", pool, present)
				}
				want := present
				if tc.want == "own" {
					want.Hash = "12345"
				}
				if claim != want {
					t.Errorf("the claim's stamp is %v, want %v", claim, want)
				}
				c = sim.Get[*v1.NodeClaim](t, w, "c")
				if got, want := condition.IsTrue(c, v1.ConditionTypeDrifted), claim.Hash != present.Hash; got != want {
					t.Errorf("drifted = %v, want %v", got, want)
				}
			})
		})
	}
}

func annotations(hash, version string) map[string]string {
	return map[string]string{v1.NodePoolHashAnnotationKey: hash, v1.NodePoolHashVersionAnnotationKey: version}
}

func TestRegistrationHealthIsForgottenWhenPoolOrClassChange(t *testing.T) {
	for name, change := range map[string]func(*sim.World){
		"the pool":  func(w *sim.World) { memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Generation++ }) },
		"the class": func(w *sim.World) { memapi.Edit(w.API, "", "default", func(c *awsv1.EC2NodeClass) { c.Generation++ }) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				before := conditionOf(t, w, "default", v1.ConditionTypeNodeRegistrationHealthy)
				sim.Create(t, w, sim.Claim("c"))
				time.Sleep(time.Minute)
				healthy := conditionOf(t, w, "default", v1.ConditionTypeNodeRegistrationHealthy)
				change(w)
				time.Sleep(time.Second)
				after := conditionOf(t, w, "default", v1.ConditionTypeNodeRegistrationHealthy)
				got := strings.Join([]string{before, healthy, after}, ", ")
				if want := "Unknown AwaitingReconciliation, True NodeRegistrationHealthy, Unknown AwaitingReconciliation"; got != want {
					t.Errorf("health = %s, want %s", got, want)
				}
			})
		})
	}
}
