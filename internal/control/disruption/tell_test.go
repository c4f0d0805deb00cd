package disruption

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// counts compares metrics with what they should be.
func counts(t *testing.T, want map[string]float64, have map[string]prometheus.Collector) {
	t.Helper()
	for name, c := range have {
		if got := testutil.ToFloat64(c); got != want[name] {
			t.Errorf("%s = %v, want %v", name, got, want[name])
		}
	}
}

func heard(t *testing.T, s *stage, events ...string) {
	t.Helper()
	for _, e := range events {
		if !s.heard(e) {
			t.Errorf("event %q is missing; there were %q", e, s.told)
		}
	}
}

func TestAReplacementIsToldOfAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		defer s.run(t)()
		time.Sleep(disrupt.SecondLook + 5*time.Second)
		heard(t, s, "ConsolidationCandidate Node a", "ConsolidationCandidate NodeClaim claim-a", "DisruptionLaunching NodeClaim p-new0", "DisruptionWaitingReadiness NodeClaim p-new0")
		if s.heard("DisruptionTerminating Node a") {
			t.Error("the node is said to go before its replacement is ready")
		}
		s.initialise(replacementName)
		time.Sleep(5 * time.Second)
		heard(t, s, "DisruptionTerminating Node a", "DisruptionTerminating NodeClaim claim-a")
		labels := []string{"replace", "underutilized", "single"}
		counts(t, map[string]float64{"decisions": 1, "by pool": 1, "moves": 1}, map[string]prometheus.Collector{
			"decisions":          s.metrics.DisruptionDecisions.WithLabelValues(labels...),
			"by pool":            s.metrics.DisruptionDecisionsByPool.WithLabelValues(append([]string{"p"}, labels...)...),
			"moves":              s.metrics.ConsolidationMoves.WithLabelValues("approved", "p", string(v1.ConsolidationPolicyWhenEmptyOrUnderutilized)),
			"queue failures":     s.metrics.DisruptionQueueFailures.WithLabelValues(labels...),
			"failed validations": s.metrics.DisruptionFailedValidations.WithLabelValues("single"),
		})
	})
}

// Whether pools with policy Balanced want a move is counted and logged, each way.
func TestAMoveThatPoolsJudge(t *testing.T) {
	for decision, price := range map[string]float64{"approved": 0.2, "rejected": 0.93} {
		t.Run(decision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				s.pools["p"].Pool.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyBalanced
				s.api.Put(s.pools["p"].Pool)
				*s.pools["p"].Catalog = cloud.Catalog{Types: []*cloud.InstanceType{fakecloud.Kind("big", 16, 1, "z"), fakecloud.Kind("small", 4, price, "z")}}
				stop := s.run(t)
				time.Sleep(disrupt.SecondLook / 2)
				stop()
				line := said(t, s, "consolidation score")
				if line["level"] != "DEBUG" || fmt.Sprint(line["NodePool"]) != "map[name:p]" || line["approved"] != (decision == "approved") || line["threshold"] != 0.5 {
					t.Errorf("line = %v", line)
				}
				for _, other := range []string{"approved", "rejected"} {
					moves := testutil.ToFloat64(s.metrics.ConsolidationMoves.WithLabelValues(other, "p", "Balanced"))
					if (moves > 0) != (other == decision) {
						t.Errorf("%v moves were %s", moves, other)
					}
				}
				if n := testutil.CollectAndCount(s.metrics.ConsolidationScore); n != 1 {
					t.Errorf("scores of %d kinds", n)
				}
			})
		})
	}
}

// said returns the first line of the log with this message.
func said(t *testing.T, s *stage, message string) map[string]any {
	t.Helper()
	for text := range strings.Lines(s.log.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if line["message"] == message {
			return line
		}
	}
	t.Fatalf("nothing says %q:\n%s", message, s.log.String())
	return nil
}

// The lines that operators search for have the words and the fields that they know.
func TestACommandIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		stop := s.run(t)
		time.Sleep(disrupt.SecondLook + 5*time.Second)
		s.initialise(replacementName)
		time.Sleep(5 * time.Second)
		stop()
		line := said(t, s, "disrupting node(s)")
		got := map[string]any{}
		for _, field := range []string{"level", "controller", "reason", "decision", "disrupted-node-count", "replacement-node-count", "pod-count", "disrupted-nodes", "replacement-nodes"} {
			got[field] = line[field]
		}
		want := map[string]any{
			"level": "INFO", "controller": "disruption", "reason": "underutilized", "decision": "replace", "disrupted-node-count": 1.0, "replacement-node-count": 1.0, "pod-count": 3.0,
			"disrupted-nodes": []any{map[string]any{
				"Node": map[string]any{"name": "a"}, "NodeClaim": map[string]any{"name": "claim-a"}, "instance-type": "big", "capacity-type": "on-demand",
			}},
			"replacement-nodes": []any{map[string]any{"capacity-type": "on-demand", "instance-types": "small"}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if line := said(t, s, "command succeeded"); line["level"] != "DEBUG" {
			t.Errorf("line = %v", line)
		}
	})
}

func TestACommandThatFailsIsLoggedAsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		stop := s.run(t)
		time.Sleep(disrupt.SecondLook + leastTimeout + 10*time.Second)
		stop()
		line := said(t, s, "failed terminating nodes while executing a disruption command")
		if line["level"] != "ERROR" || line["error"] != "the replacements were not ready in time" {
			t.Errorf("line = %v", line)
		}
	})
}

func TestAReplacementThatIsNeverReadyIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		defer s.run(t)()
		time.Sleep(disrupt.SecondLook + leastTimeout + 10*time.Second)
		counts(t, map[string]float64{"queue failures": 1}, map[string]prometheus.Collector{
			"queue failures": s.metrics.DisruptionQueueFailures.WithLabelValues("replace", "underutilized", "single"),
		})
	})
}

func TestAStepThatNoLongerHoldsIsToldOf(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*stage)
		count float64 // scheduling is not counted: the nodes were not lost to anybody
	}{
		"a protected pod came": {func(s *stage) { s.api.Put(late(s, "late", "true")) }, 1},
		"a budget was closed":  {func(s *stage) { s.budget("0") }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				defer s.run(t)()
				time.Sleep(disrupt.SecondLook - 5*time.Second)
				tc.spoil(s)
				time.Sleep(10 * time.Second)
				if s.tainted("a") {
					t.Error("the step was carried out")
				}
				heard(t, s, "ConsolidationRejected Node a", "ConsolidationRejected NodeClaim claim-a")
				counts(t, map[string]float64{"failed validations": tc.count}, map[string]prometheus.Collector{
					"failed validations": s.metrics.DisruptionFailedValidations.WithLabelValues("single"),
				})
			})
		})
	}
}

// budget replaces the budgets of the pool.
func (s *stage) budget(nodes string) {
	input := s.pools["p"]
	input.Pool = input.Pool.DeepCopy()
	input.Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: nodes}}
	s.pools = map[string]engine.Pool{"p": input} // the loop may be reading the other map
	s.api.Put(input.Pool)
}

// late is a pod that comes to node a with an annotation.
func late(s *stage, name, doNotDisrupt string) *corev1.Pod {
	p := memapi.All[*corev1.Pod](s.api)[0].DeepCopy()
	p.Name, p.UID, p.ResourceVersion = name, types.UID(name), ""
	p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: doNotDisrupt}
	p.Status.StartTime = new(metav1.Now())
	return p
}

func TestBudgetsAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.budget("0")
		defer s.run(t)()
		time.Sleep(5 * time.Second)
		heard(t, s, "DisruptionBlocked NodePool p")
		counts(t, map[string]float64{"eligible": 1}, map[string]prometheus.Collector{
			"allowed":   s.metrics.PoolAllowedDisruptions.WithLabelValues("p", "Underutilized"),
			"consuming": s.metrics.PoolNodesConsumingBudgets.WithLabelValues("p", "Underutilized"),
			"eligible":  s.metrics.DisruptionEligibleNodes.WithLabelValues("underutilized"),
		})
	})
}

func TestProtectionsAreExplainedToTheOwnersOfPods(t *testing.T) {
	for name, tc := range map[string]struct {
		annotation string
		wait       time.Duration
		want       string
		blocked    bool
	}{
		"for ever needs no explanation":               {"true", 0, "", true},
		"a time that runs":                            {"1h", 0, "DoNotDisruptUntil Pod late", true},
		"a time that is over":                         {"1m", 2 * time.Minute, "DoNotDisruptGracePeriodElapsed Pod late", true},
		"one that means nothing, on a node that goes": {"yes", 0, "InvalidDoNotDisruptAnnotation Pod late", false},
		"the older name":                              {"old", 0, "DeprecatedAnnotation Pod late", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				pod := late(s, "late", tc.annotation)
				if tc.annotation == "old" {
					pod.Annotations = map[string]string{v1.DoNotEvictAnnotationKey: "true"}
				}
				s.api.Put(pod)
				defer s.run(t)()
				time.Sleep(5*time.Second + tc.wait)
				if tc.want != "" {
					heard(t, s, tc.want)
				}
				if got := s.heard("DisruptionBlocked Node a"); got != tc.blocked {
					t.Errorf("blocked: %v, want %v", got, tc.blocked)
				}
				for _, e := range []string{"DoNotDisruptUntil Pod late", "DoNotDisruptGracePeriodElapsed Pod late", "InvalidDoNotDisruptAnnotation Pod late"} {
					if s.heard(e) && e != tc.want && tc.wait == 0 {
						t.Errorf("event %q, want %q only", e, tc.want)
					}
				}
			})
		})
	}
}

// A drifted node that stays because of a limit is told of on node, claim and pool, with the numbers that somebody needs to choose another limit.
func TestALimitThatHoldsUpADriftIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		input := s.pools["p"]
		input.Pool = input.Pool.DeepCopy()
		input.Pool.Spec.Limits = v1.Limits{corev1.ResourceCPU: resource.MustParse("3")}
		s.pools["p"] = input
		s.api.Put(input.Pool)
		claim := s.claim("claim-a")
		condition.SetTrue(claim, v1.ConditionTypeDrifted, time.Now())
		s.api.Put(claim)
		defer s.run(t)()
		time.Sleep(5 * time.Second)
		numbers := "the limit cpu of the pool is reached (3, used 0; the smallest machine that would do has 4)"
		for _, about := range []string{"DisruptionBlocked Node a", "DisruptionBlocked NodeClaim claim-a", "DisruptionBlocked NodePool p"} {
			if !slices.ContainsFunc(s.said(about), func(m string) bool { return strings.Contains(m, numbers) }) {
				t.Errorf("%s says %q, want one with %q", about, s.said(about), numbers)
			}
		}
	})
}
