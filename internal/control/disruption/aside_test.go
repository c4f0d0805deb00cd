package disruption

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// A fragile engine panics over some questions, as long as it is broken.
type fragile struct {
	engine *engine.Engine
	over   func(engine.Question) bool
	broken bool
}

func (f *fragile) Plan(in engine.Question) *engine.Plan {
	if f.broken && f.over(in) {
		panic("index out of range")
	}
	return f.engine.Plan(in)
}

func TestWhatThePlannerPanicsOverIsLeftAlone(t *testing.T) {
	bug.Expect(t)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	for name, tc := range map[string]struct {
		over    func(engine.Question) bool
		spared  []string // nodes that are not touched while the bug lasts
		removed bool     // node a is
		event   string
	}{
		"a node": {
			func(in engine.Question) bool { return in.Gone["b"] }, []string{"b"}, true, "LeftOut Node b",
		},
		"a pool": {
			func(in engine.Question) bool {
				return slices.ContainsFunc(in.Pools, func(p engine.Pool) bool { return p.Pool.Name == "odd" })
			}, nil, true, "LeftOut NodePool odd",
		},
		"everything": {
			func(engine.Question) bool { return true }, []string{"a", "b"}, false, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before := bug.Count()
				s := newStage(t.Context())
				s.node("b", "big", true)
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-b", UID: "on-b"}}
				p.Spec.NodeName, p.Status.Phase = "b", corev1.PodRunning
				p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: fakecloud.Kind("", 6, 0, "z").Capacity[corev1.ResourceCPU]}}}}
				s.api.Put(p)
				odd := s.pools["p"].Pool.DeepCopy()
				odd.Name, odd.UID = "odd", types.UID("odd")
				s.pools["odd"] = engine.Pool{Pool: odd, Catalog: s.pools["p"].Catalog}
				engine := &fragile{engine.New(), tc.over, true}
				s.spoil = func(l *Loop) { l.engine = engine }
				defer s.run(t)()
				time.Sleep(disrupt.SecondLook + 20*time.Second)
				synctest.Wait()
				if n, panics := bug.Count()-before, testutil.ToFloat64(s.metrics.ReconcilePanics.WithLabelValues("disruption")); n != 1 || panics != 1 {
					t.Errorf("%d bugs were reported and %v panics counted, want one of each: it is told once", n, panics)
				}
				if got := s.tainted("a"); got != tc.removed {
					t.Errorf("node a is being removed = %v, want %v", got, tc.removed)
				}
				for _, name := range tc.spared {
					if s.tainted(name) {
						t.Errorf("node %s is being removed", name)
					}
				}
				if tc.event != "" && !s.heard(tc.event) {
					t.Errorf("events = %q, want %s", s.told, tc.event)
				}
				engine.broken = false
				time.Sleep(bug.AsideFor + disrupt.SecondLook + 20*time.Second)
				if !s.tainted("a") && !s.tainted("b") && s.claim("claim-a").DeletionTimestamp == nil {
					t.Error("nothing is removed although the bug is over")
				}
			})
		})
	}
}

// A command over which the loop panics does not keep another one from ending.
func TestAPanicOverOneCommandLeavesTheOthers(t *testing.T) {
	bug.Expect(t)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.node("b", "big", true)
		s.spoil = func(l *Loop) {
			r := steprecord.Record{ID: "first", Created: time.Now(), Deadline: time.Now().Add(time.Hour), Candidates: []steprecord.Member{{Name: "claim-b", UID: "claim-b"}}, Replacements: []string{"claim-a"}}
			first := &command{Record: r} // it has nowhere to note that its replacement is there
			for claim, role := range map[string]steprecord.Role{"claim-a": steprecord.Replacement, "claim-b": steprecord.Candidate} {
				memapi.Edit(s.api, "", claim, func(c *v1.NodeClaim) {
					c.Annotations = map[string]string{v1.DisruptionCommandAnnotationKey: first.As(role)}
				})
			}
			time.Sleep(10 * time.Millisecond) // the store has heard of them
			second := newCommand(steprecord.Record{ID: "second", Created: time.Now().Add(1), Candidates: []steprecord.Member{{Name: "gone", UID: "gone"}}})
			l.commands["first"], l.commands["second"] = first, second
		}
		stop := s.run(t)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := testutil.ToFloat64(s.metrics.ReconcilePanics.WithLabelValues("disruption.queue")); n == 0 {
			t.Error("no panic was counted")
		}
		stop()
		if !strings.Contains(s.log.String(), `"message":"command succeeded"`) {
			t.Errorf("the other command did not end; the log is\n%s", &s.log)
		}
	})
}

func TestAPanicOverOneNameLeavesTheOthers(t *testing.T) {
	bug.Expect(t)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	done := make([]bool, 3)
	errs := lookAfter([]string{"0", "1", "2"}, itself, func(name string) error {
		if name == "1" {
			panic("no")
		}
		done[name[0]-'0'] = true
		return nil
	})
	if got := fmt.Sprint(done, errs); got != "[true false true] [<nil> looking after 1 panicked: no <nil>]" {
		t.Error(got)
	}
}
