package provision

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// sized is a pod of a class of its own: no other asks for so much.
func sized(name string, milli int64) *corev1.Pod {
	p := pod(name)
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)},
	}}}
	return p
}

// panicsOver answers like open1, unless it is asked about a pod of this name together with a pool of that one; "" is any.
func panicsOver(pod, pool string) func(engine.Question) *engine.Plan {
	return func(in engine.Question) *engine.Plan {
		hasPool := slices.ContainsFunc(in.Pools, func(p engine.Pool) bool { return pool == "" || p.Pool.Name == pool })
		hasPod := slices.ContainsFunc(in.Pods, func(p *cluster.Pod) bool { return strings.HasPrefix(p.Name, pod) })
		if hasPool && hasPod {
			panic("index out of range")
		}
		return open1(in)
	}
}

// quietBugs makes bugs what they are in production, without their stacks in the output.
func quietBugs(t *testing.T) {
	bug.Expect(t)
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.DiscardHandler))
}

func TestWhatTheEnginePanicsOverIsLeftOut(t *testing.T) {
	quietBugs(t)
	for name, tc := range map[string]struct {
		answer func(engine.Question) *engine.Plan
		pools  []string
		story  func(w *world)
		placed string
		events []string // of pods, and of pools
	}{
		"one class of many": {
			panicsOver("bad", ""), nil, func(*world) {}, "a b c d e f",
			[]string{"FailedScheduling Pod/bad-1: Karpenter runs into a bug", "FailedScheduling Pod/bad-2: Karpenter runs into a bug"},
		},
		"a pool, if no class is innocent": {
			panicsOver("", "odd"), []string{"odd"}, func(*world) {}, "a b bad-1 bad-2 c d e f", []string{"LeftOut NodePool/odd: Karpenter runs into a bug"},
		},
		"everything, if nothing is": {
			panicsOver("", ""), []string{"odd"}, func(*world) {}, "", []string{"FailedScheduling Pod/a: Karpenter runs into a bug"},
		},
		"until the bug is over": {
			panicsOver("bad", ""), nil, func(w *world) { w.answerWith(open1); time.Sleep(bug.AsideFor) }, "a b bad-1 bad-2 c d e f", nil,
		},
		"and sooner if it concerned everything": {
			panicsOver("", ""), nil, func(w *world) { w.answerWith(open1); time.Sleep(bug.AllAsideFor) }, "a b bad-1 bad-2 c d e f", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.answerWith(tc.answer)
				for _, name := range tc.pools {
					w.store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, readyPool(name)) })
				}
				before := bug.Count()
				for i, name := range strings.Fields("a b c bad-1 d e f") {
					w.put(sized(name, int64(100+i)))
				}
				w.put(sized("bad-2", 103)) // of the class of the other
				time.Sleep(30 * time.Second)
				synctest.Wait()
				if n := bug.Count() - before; n != 1 {
					t.Errorf("%d bugs were reported, want one: it is told once", n)
				}
				if got := testutil.ToFloat64(w.metrics.ReconcilePanics.WithLabelValues(loopName)); got != 1 {
					t.Errorf("%v panics were counted, want one", got)
				}
				tc.story(w)
				time.Sleep(15 * time.Second)
				var placed []string
				for key := range w.store.Snapshot().Plans() {
					placed = append(placed, key.Name)
				}
				slices.Sort(placed)
				if got := strings.Join(placed, " "); got != tc.placed {
					t.Errorf("placed = %q, want %q", got, tc.placed)
				}
				told := append(w.published(telemetry.FailedScheduling), w.published(telemetry.LeftOut)...)
				for _, want := range tc.events {
					if !slices.ContainsFunc(told, func(e string) bool { return strings.HasPrefix(e, want) && strings.Contains(e, "index out of range") }) {
						t.Errorf("events = %q, want %q", told, want)
					}
				}
			})
		})
	}
}

// loopName is name where that is something else.
const loopName = name

// Hundreds of classes, of which one makes the engine panic: the others have their nodes at the first turn.
func TestAPanicIsFoundAmongManyClassesInOneTurn(t *testing.T) {
	quietBugs(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answerWith(panicsOver("pod-333", ""))
		for i := range 500 {
			w.put(sized(fmt.Sprintf("pod-%d", i), int64(i+1)))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		placed := 0
		for range w.store.Snapshot().Plans() {
			placed++
		}
		if placed != 499 {
			t.Errorf("%d pods have a place, want 499", placed)
		}
	})
}

// A search that takes too long leaves the rest to the next turn, and plans what it knows to be good.
func TestTheSearchForAPanicEnds(t *testing.T) {
	quietBugs(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		answer := panicsOver("pod-2", "") // 200 to 299 and a few: no halving helps
		w.answerWith(func(in engine.Question) *engine.Plan { time.Sleep(5 * time.Second); return answer(in) })
		for i := range 500 {
			w.put(sized(fmt.Sprintf("pod-%d", i), int64(i+1)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		placed := 0
		for range w.store.Snapshot().Plans() {
			placed++
		}
		if placed == 0 {
			t.Error("nothing was planned within a minute")
		}
	})
}

// What panics outside of the engine costs the turn, and the loop goes on.
func TestALoopSurvivesItsTurns(t *testing.T) {
	quietBugs(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		healthy := false
		w.loop.Catalogs = catalogsFunc(func(ctx context.Context, snap *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
			if !healthy {
				panic("no catalogue")
			}
			return w.Pools(ctx, snap)
		})
		w.put(pod("a"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := testutil.ToFloat64(w.metrics.ReconcilePanics.WithLabelValues(loopName)); n < 2 || n > 7 {
			t.Errorf("%v panics in a minute, want one in about ten seconds", n)
		}
		healthy = true
		time.Sleep(15 * time.Second)
		if _, ok := w.store.Snapshot().Planned(key("a")); !ok {
			t.Error("the pod has no plan although the trouble is over")
		}
	})
}

type catalogsFunc func(context.Context, *cluster.Snapshot) (map[string]engine.Pool, map[string]bool)

func (f catalogsFunc) Pools(ctx context.Context, snap *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	return f(ctx, snap)
}

func (f catalogsFunc) Commitments(context.Context, *cluster.Snapshot, time.Time) *commitment.Books {
	return nil
}
