package provision

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/tariff"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

func TestWindow(t *testing.T) {
	const s = time.Second
	type element struct {
		name string
		at   time.Duration
	}
	for name, tc := range map[string]struct {
		elements []element
		want     time.Duration // after the first element's time zero
	}{
		"one pod is planned for after the idle time":    {[]element{{"a", 0}}, 1 * s},
		"the same pod again does not extend the window": {[]element{{"a", 0}, {"a", s / 2}}, 1 * s},
		"another pod does":                                  {[]element{{"a", 0}, {"b", s / 2}}, s + s/2},
		"but not beyond the maximum":                        {[]element{{"a", 0}, {"b", 9 * s}, {"c", 9*s + s/2}}, 10 * s},
		"the maximum counts from the first pod, not a late": {[]element{{"a", 0}, {"b", s}, {"c", 2 * s}}, 3 * s},
	} {
		t.Run(name, func(t *testing.T) {
			zero := time.Unix(1000, 0)
			w := newWindow(s, 10*s)
			if !w.closes().IsZero() {
				t.Error("an empty window closes")
			}
			for _, e := range tc.elements {
				w.add(e.name, zero.Add(e.at))
			}
			if got := w.closes().Sub(zero); got != tc.want {
				t.Errorf("closes after %v, want %v", got, tc.want)
			}
		})
	}
}

// world is a loop on a store that the test fills, with an engine and an opener that the test can watch.
type world struct {
	t       *testing.T
	store   *cluster.Store
	loop    *Loop
	metrics *telemetry.Metrics

	mu     sync.Mutex
	events []string
	turns  []turnSeen // the last few
	answer func(engine.Question) *engine.Plan
	books  *commitment.Books
	fail   bool
}

type turnSeen struct {
	at   time.Time
	pods []string
}

func (w *world) Memory() engine.Memory { return engine.Memory{} }

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: cluster.NewStore()}
	w.metrics = telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
	events := telemetry.NewEvents(func(_ context.Context, e *corev1.Event) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e.Reason+" "+e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name+": "+e.Message)
		return nil
	}, w.metrics)
	w.answer = open1
	w.loop = New(Deps{
		Store: w.store, Engine: w, Catalogs: w, Opener: w, Metrics: w.metrics, Events: events, Times: telemetry.NewPodTimes(),
	}, Settings{Idle: time.Second, Max: 10 * time.Second})
	w.store.Update(func(d *cluster.Draft) {
		d.Synced(true)
		cluster.Pools.Put(d, readyPool("default"))
	})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { w.loop.Run(ctx) })
	wg.Go(func() { events.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
	return w
}

func readyPool(name string) *v1.NodePool {
	return &v1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Status:     v1.NodePoolStatus{Conditions: []metav1.Condition{{Type: v1.ConditionTypeReady, Status: metav1.ConditionTrue}}},
	}
}

// answerWith says how the engine answers from now on.
func (w *world) answerWith(answer func(engine.Question) *engine.Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// Plan is the engine.
func (w *world) Plan(in engine.Question) *engine.Plan {
	var names []string
	for _, p := range in.Pods {
		names = append(names, p.Name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turns = append(w.turns, turnSeen{in.Now, names})
	return w.answer(in)
}

// open1 opens one node for all pods that have no place yet, and leaves the others where they are planned.
func open1(in engine.Question) *engine.Plan {
	plan := &engine.Plan{}
	var open []*cluster.Pod
	for _, p := range in.Pods {
		if at, ok := in.Snap.Planned(p.PodKey); ok {
			if n := in.Snap.Target(at.Target); n != nil && !n.MarkedForRemoval {
				plan.Place = append(plan.Place, engine.Placement{Pod: p, Node: n.Name})
				continue
			}
		}
		open = append(open, p)
	}
	if len(open) > 0 {
		plan.Open = []engine.Opening{{Pool: "default", Pods: open, Claim: &v1.NodeClaim{}, Price: cloud.FromDollars(1)}}
	}
	return plan
}

func (w *world) Pools(_ context.Context, snap *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	pools, notReady := map[string]engine.Pool{}, map[string]bool{}
	for p := range cluster.Pools.All(snap) {
		pools[p.Name] = engine.Pool{Pool: p, Catalog: &cloud.Catalog{}}
		if !condition.IsTrue(p, v1.ConditionTypeReady) {
			notReady[p.Name] = true
		}
	}
	return pools, notReady
}

func (w *world) Commitments(context.Context, *cluster.Snapshot, time.Time) *commitment.Books {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.books
}

// Open is the opener: one claim for each opening, recorded like the real one does.
func (w *world) Open(_ context.Context, _, _ string, openings []engine.Opening) ([]*v1.NodeClaim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail {
		return make([]*v1.NodeClaim, len(openings)), fmt.Errorf("the API server says no")
	}
	out := make([]*v1.NodeClaim, len(openings))
	for i := range openings {
		name := fmt.Sprintf("claim-%s", openings[i].Pods[0].Name)
		out[i] = &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + fmt.Sprint(len(w.turns)))}}
		w.store.Update(func(d *cluster.Draft) {
			d.PutClaim(out[i])
			for _, p := range openings[i].Pods {
				d.Plan(p.PodKey, name, time.Now())
			}
		})
	}
	return out, nil
}

func (w *world) put(pods ...*corev1.Pod) {
	for _, p := range pods {
		w.store.Update(func(d *cluster.Draft) { d.PutPod(p) })
	}
}

// ready gives a claim a Node that is ready for pods. told is whether the claim says so already.
func (w *world) ready(claim string, told bool) {
	c := w.store.Snapshot().ClaimNode(claim).Claim.DeepCopy()
	w.store.Update(func(d *cluster.Draft) {
		c.Status.ProviderID = "id"
		if told {
			c.Status.Conditions = []metav1.Condition{{Type: v1.ConditionTypeInitialized, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		}
		d.PutClaim(c)
		d.PutNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{v1.NodeInitializedLabelKey: "true", v1.NodeRegisteredLabelKey: "true"}},
			Spec:       corev1.NodeSpec{ProviderID: "id"},
		})
	})
}

// seen returns the turns so far as "seconds: pods".
func (w *world) seen(since time.Time) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, turn := range w.turns {
		out = append(out, fmt.Sprintf("%v: %s", turn.at.Sub(since).Round(100*time.Millisecond), strings.Join(turn.pods, " ")))
	}
	return out
}

func (w *world) published(reason telemetry.Reason) []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, e := range w.events {
		if strings.HasPrefix(e, string(reason)+" ") {
			out = append(out, e)
		}
	}
	return out
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Now()},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
		}},
	}
}

func bound(name, node string) *corev1.Pod {
	p := pod(name)
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = nil
	return p
}

func key(name string) cluster.PodKey { return cluster.PodKey{Namespace: "default", Name: name} }

func TestTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		story func(w *world)
		want  []string
	}{
		"pods that come together are planned together": {
			func(w *world) {
				w.put(pod("a"))
				time.Sleep(900 * time.Millisecond)
				w.put(pod("b"))
				time.Sleep(30 * time.Second)
			},
			[]string{"1.9s: a b"},
		},
		"a pod whose node is on its way is not planned for again": {
			func(w *world) { w.put(pod("a")); time.Sleep(5 * time.Minute) },
			[]string{"1s: a"},
		},
		"a steady stream is cut at the maximum and nothing is lost": {
			func(w *world) {
				for i := range 24 {
					w.put(pod(string(rune('a' + i))))
					time.Sleep(510 * time.Millisecond)
				}
				time.Sleep(3 * time.Second)
			},
			[]string{"10s: a b c d e f g h i j k l m n o p q r s t", "12.7s: a b c d e f g h i j k l m n o p q r s t u v w x"},
		},
		"a pod that has no place is looked at every ten seconds": {
			func(w *world) { w.answerWith(refuse(reason.TooLarge)); w.put(pod("a")); time.Sleep(25 * time.Second) },
			[]string{"1s: a", "12s: a", "23s: a"},
		},
		"a pod that has no place is looked at once a pool changes": {
			func(w *world) {
				w.answerWith(refuse(reason.TooLarge))
				w.put(pod("a"))
				time.Sleep(5 * time.Second)
				w.store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, readyPool("another")) })
				time.Sleep(3 * time.Second)
			},
			[]string{"1s: a", "6s: a"},
		},
		"a pod whose claim is gone is planned for at once": {
			func(w *world) {
				w.put(pod("a"))
				time.Sleep(3 * time.Second)
				w.store.Update(func(d *cluster.Draft) { d.DeleteClaim("claim-a") })
				time.Sleep(3 * time.Second)
			},
			[]string{"1s: a", "4s: a"},
		},
		"a claim that cannot be created is tried again, later and later": {
			func(w *world) { w.fail = true; w.put(pod("a")); time.Sleep(18 * time.Second) },
			[]string{"1s: a", "3s: a", "6s: a", "11s: a"},
		},
		"nothing is done before everything has been read": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) { d.Synced(false) })
				w.put(pod("a"))
				time.Sleep(20 * time.Second)
				w.store.Update(func(d *cluster.Draft) { d.Synced(true) })
				time.Sleep(2 * time.Second)
			},
			[]string{"21s: a"},
		},
		"pods of a node that is to go are planned for before they are evicted": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) {
					d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"}})
					d.PutPod(bound("a", "old"))
					d.MarkForRemoval("old")
				})
				time.Sleep(30 * time.Second)
			},
			[]string{"1s: a"},
		},
		"a planned pod that does not bind to its ready node is looked at again": {
			func(w *world) {
				w.put(pod("a"))
				time.Sleep(2 * time.Second)
				w.ready("claim-a", true)
				time.Sleep(8 * time.Second)
			},
			[]string{"1s: a", "5s: a"},
		},
		"a planned pod waits while its claim is being told that the node is ready": {
			func(w *world) {
				w.put(pod("a"))
				time.Sleep(5 * time.Second)
				w.ready("claim-a", false)
				time.Sleep(time.Minute)
			},
			[]string{"1s: a"},
		},
		"a planned pod is not looked at again while kube-scheduler binds others": {
			func(w *world) {
				w.put(pod("a"), pod("b"), pod("c"), pod("d"))
				time.Sleep(2 * time.Second)
				w.ready("claim-a", true)
				for _, name := range []string{"b", "c", "d"} {
					time.Sleep(1500 * time.Millisecond)
					w.put(bound(name, "another"))
				}
				time.Sleep(8 * time.Second)
			},
			[]string{"1s: a b c d", "9.5s: a"},
		},
		"a planned pod does not wait for ever while kube-scheduler binds others": {
			func(w *world) {
				pods := []*corev1.Pod{pod("a")}
				for i := range 20 {
					pods = append(pods, pod(fmt.Sprint("b", i)))
				}
				w.put(pods...)
				time.Sleep(2 * time.Second)
				w.ready("claim-a", true)
				for i := range 20 {
					time.Sleep(1500 * time.Millisecond)
					w.put(bound(fmt.Sprint("b", i), "another"))
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				if len(w.turns) < 2 || w.turns[1].at.Sub(w.turns[0].at) > 23*time.Second {
					w.t.Errorf("%d turns, want a second one after 23 s at the latest", len(w.turns))
				}
				w.turns = nil
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				time.Sleep(time.Second) // its first look, at nothing, is over
				began := time.Now()
				tc.story(w)
				if got := w.seen(began); !slices.Equal(got, tc.want) {
					t.Errorf("turns = %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// refuse is an engine that has no place for anything.
func refuse(codes ...reason.Code) func(engine.Question) *engine.Plan {
	return func(in engine.Question) *engine.Plan {
		plan := &engine.Plan{}
		for _, p := range in.Pods {
			r := engine.Refused{Pod: p}
			for _, c := range codes {
				r.Reasons = append(r.Reasons, reason.Count{Code: c, Key: "cpu", Pool: "default"})
			}
			plan.Refused = append(plan.Refused, r)
		}
		return plan
	}
}

// Plans count on the commitments that are certain.
func TestTheEngineIsAskedWithCommitments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		certain := &tariff.Book{Region: "r"}
		var asked *tariff.Book
		w.mu.Lock()
		w.books = &commitment.Books{Certain: certain, All: &tariff.Book{}}
		w.mu.Unlock()
		w.answerWith(func(in engine.Question) *engine.Plan {
			asked = in.Commitments
			return open1(in)
		})
		w.put(pod("a"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if asked != certain {
			t.Errorf("the engine is asked with %v", asked)
		}
	})
}

func TestEveryPodWithoutPlaceHearsWhyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answerWith(refuse(reason.TooLarge))
		const pods = 200
		for i := range pods {
			w.put(pod(fmt.Sprintf("p%03d", i)))
		}
		time.Sleep(1100 * time.Millisecond)
		if got := w.published(telemetry.PodsUnschedulable); len(got) != 1 || !strings.Contains(got[0], "NodePool/default: 200 pod(s) cannot run") {
			t.Errorf("events of the pool at once = %q, want one that counts 200 pods", got)
		}
		time.Sleep(time.Second)
		if got := len(w.published(telemetry.FailedScheduling)); got < 19 || got > 25 {
			t.Errorf("%d events a second later, want about 20", got)
		}
		time.Sleep(10 * time.Second)
		if got := w.published(telemetry.FailedScheduling); len(got) != pods {
			t.Errorf("%d events in the end, want one for each of %d pods", len(got), pods)
		}
		if got := testutil.ToFloat64(w.metrics.SchedulingUnschedulablePods.WithLabelValues(name)); got != pods {
			t.Errorf("unschedulable pods = %v, want %d", got, pods)
		}
	})
}

// A pod may wait for a pool that is not ready: that pool is named, with what it lacks.
func TestPodsHearOfPoolsThatAreNotReady(t *testing.T) {
	broken := readyPool("gpu")
	broken.Status.Conditions = []metav1.Condition{
		{Type: v1.ConditionTypeReady, Status: metav1.ConditionFalse},
		{Type: v1.ConditionTypeNodeClassReady, Status: metav1.ConditionFalse, Message: `there is no EC2NodeClass named "gpu"`},
	}
	fresh := readyPool("gpu")
	fresh.Status.Conditions = nil
	for name, tc := range map[string]struct {
		pools []*v1.NodePool
		want  []string
	}{
		"beside a pool that cannot hold the pod": {
			[]*v1.NodePool{readyPool("default"), broken},
			[]string{`FailedScheduling Pod/a: pool "default": not enough cpu; pool "gpu" is not ready: there is no EC2NodeClass named "gpu"`},
		},
		"when there is no other": {
			[]*v1.NodePool{broken},
			[]string{`FailedScheduling Pod/a: no pool may open nodes; pool "gpu" is not ready: there is no EC2NodeClass named "gpu"`},
		},
		"before anybody has looked at it": {
			[]*v1.NodePool{fresh},
			[]string{`FailedScheduling Pod/a: no pool may open nodes; pool "gpu" is not ready yet`},
		},
		"a cluster without pools is no affair of ours": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.answerWith(refuse(reason.TooLarge))
				w.store.Update(func(d *cluster.Draft) {
					cluster.Pools.Delete(d, "default")
					for _, p := range tc.pools {
						cluster.Pools.Put(d, p)
					}
				})
				w.put(pod("a"))
				time.Sleep(2 * time.Second)
				if got := w.published(telemetry.FailedScheduling); !slices.Equal(got, tc.want) {
					t.Errorf("events = %q, want %q", got, tc.want)
				}
			})
		})
	}
}

func TestAPodThatGetsAPlaceMeanwhileHearsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answerWith(refuse(reason.TooLarge))
		for i := range 200 {
			w.put(pod(fmt.Sprintf("p%03d", i)))
		}
		time.Sleep(2 * time.Second)
		w.store.Update(func(d *cluster.Draft) {
			d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
			for i := range 200 {
				d.Plan(key(fmt.Sprintf("p%03d", i)), "n", time.Now())
			}
		})
		time.Sleep(10 * time.Second)
		if got := len(w.published(telemetry.FailedScheduling)); got > 25 {
			t.Errorf("%d pods were told that they have no place, want only the first 20 or so", got)
		}
	})
}

func TestRefusalsAreToldApart(t *testing.T) {
	for name, tc := range map[string]struct {
		code           reason.Code
		events         int
		ignored, stuck float64
	}{
		"a pod that nothing can hold":         {reason.TooLarge, 1, 0, 1},
		"a pod that asks for a wrong label":   {reason.RestrictedLabel, 1, 1, 0},
		"a pod whose volume is broken":        {reason.VolumeInvalid, 1, 1, 0},
		"a pod whose claim is wrong":          {reason.DeviceInvalid, 1, 1, 0},
		"a pod that avoids our nodes":         {reason.AvoidsManaged, 0, 1, 0},
		"a pod that waits for a reservation":  {reason.Reservation, 0, 0, 0},
		"a pod that nobody has looked at yet": {reason.NotReached, 0, 0, 0},
		"a pod whose constraints must wait":   {reason.Postponed, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.answerWith(refuse(tc.code))
				w.put(pod("a"))
				time.Sleep(2 * time.Second)
				if got := w.published(telemetry.FailedScheduling); len(got) != tc.events {
					t.Errorf("events = %q, want %d", got, tc.events)
				}
				if got := testutil.ToFloat64(w.metrics.SchedulingIgnoredPods); got != tc.ignored {
					t.Errorf("ignored pods = %v, want %v", got, tc.ignored)
				}
				if got := testutil.ToFloat64(w.metrics.SchedulingUnschedulablePods.WithLabelValues("provisioner")); got != tc.stuck {
					t.Errorf("unschedulable pods = %v, want %v", got, tc.stuck)
				}
			})
		})
	}
}

// The pool whose requirements exclude each other hears which.
func TestAPoolWithoutTypesHearsWhatIsToBlame(t *testing.T) {
	for key, want := range map[string]string{
		"arch and zone": "NoCompatibleInstanceTypes NodePool/default: NodePool requirements filtered out all compatible available instance types",
		"":              "NoCompatibleInstanceTypes NodePool/default: NodePool requirements filtered out all compatible available instance types",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.answerWith(func(in engine.Question) *engine.Plan {
				return &engine.Plan{Refused: []engine.Refused{{Pod: in.Pods[0], Reasons: []reason.Count{{Code: reason.NoTypes, Key: key, Pool: "default"}}}}}
			})
			w.put(pod("a"))
			time.Sleep(2 * time.Second)
			if got := w.published(telemetry.NoCompatibleInstanceTypes); !slices.Equal(got, []string{want}) {
				t.Errorf("events = %q, want %q", got, want)
			}
		})
	}
}

// The owners of a pool that is at its limit hear which and how much of it is used, as the pods do.
func TestAPoolAtItsLimitHearsNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answerWith(func(in engine.Question) *engine.Plan {
			plan := &engine.Plan{}
			for _, p := range in.Pods {
				plan.Refused = append(plan.Refused, engine.Refused{Pod: p, Reasons: []reason.Count{
					{Code: reason.TooLarge, Key: "cpu", Candidates: 1},
					{Code: reason.Limit, Key: "cpu", Pool: "default", Limit: "8", Used: "6", Least: "4"}}})
			}
			return plan
		})
		w.put(pod("a"), pod("b"))
		time.Sleep(2 * time.Second)
		want := []string{"PodsUnschedulable NodePool/default: 2 pod(s) cannot run on nodes of this pool: 2× PoolLimit (cpu) (8, used 6; the smallest machine that would do has 4)"}
		if got := w.published(telemetry.PodsUnschedulable); !slices.Equal(got, want) {
			t.Errorf("events = %q, want %q", got, want)
		}
	})
}

// TestAPoolHearsOfPodsThatMeanIt has a pod that nothing can hold, for one reason each.
func TestAPoolHearsOfPodsThatMeanIt(t *testing.T) {
	for name, tc := range map[string]struct {
		why  []reason.Count
		want []string
	}{
		"it is too large":               {[]reason.Count{{Code: reason.TooLarge, Key: "cpu"}}, []string{"PodsUnschedulable"}},
		"it tolerates no taint of it":   {[]reason.Count{{Code: reason.Taint, Key: "team"}}, nil},
		"it asks for an unknown label":  {[]reason.Count{{Code: reason.LabelUnknown, Key: "team"}}, nil},
		"it names another pool":         {[]reason.Count{{Code: reason.LabelMismatch, Key: v1.NodePoolLabelKey}}, nil},
		"it asks for another team":      {[]reason.Count{{Code: reason.LabelMismatch, Key: "team"}}, nil},
		"it asks for a zone":            {[]reason.Count{{Code: reason.LabelMismatch, Key: corev1.LabelTopologyZone}}, []string{"PodsUnschedulable"}},
		"it is of another team and big": {[]reason.Count{{Code: reason.TooLarge, Key: "cpu"}, {Code: reason.Taint, Key: "team"}}, nil},
		"minValues leave no type": {[]reason.Count{{Code: reason.MinValues, Key: corev1.LabelInstanceTypeStable}},
			[]string{"NoCompatibleInstanceTypes", "PodsUnschedulable"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.store.Update(func(d *cluster.Draft) {
					p := readyPool("default")
					p.Spec.Template.Labels = map[string]string{"team": "a"}
					cluster.Pools.Put(d, p)
				})
				for i := range tc.why {
					tc.why[i].Pool = "default"
				}
				w.answerWith(func(in engine.Question) *engine.Plan {
					return &engine.Plan{Refused: []engine.Refused{{Pod: in.Pods[0], Reasons: tc.why}}}
				})
				w.put(pod("a"))
				time.Sleep(2 * time.Second)
				synctest.Wait()
				var got []string
				w.mu.Lock()
				for _, e := range w.events {
					if reason, about, _ := strings.Cut(e, " "); strings.HasPrefix(about, "NodePool/") {
						got = append(got, reason)
					}
				}
				w.mu.Unlock()
				if slices.Sort(got); !slices.Equal(got, tc.want) {
					t.Errorf("the pool hears %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// Gauges about pods that wait do not outlive the pods: an alert on them would never end.
func TestNobodyIsCountedOnceNobodyWaits(t *testing.T) {
	for name, code := range map[string]reason.Code{"a pod that nothing can hold": reason.TooLarge, "a pod that asks for a wrong label": reason.RestrictedLabel} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.answerWith(refuse(code))
				w.put(pod("a"))
				time.Sleep(2 * time.Second)
				w.store.Update(func(d *cluster.Draft) { d.DeletePod(key("a")) })
				time.Sleep(time.Second)
				ignored := testutil.ToFloat64(w.metrics.SchedulingIgnoredPods)
				stuck := testutil.ToFloat64(w.metrics.SchedulingUnschedulablePods.WithLabelValues("provisioner"))
				if zones := testutil.CollectAndCount(w.metrics.SchedulingPendingPodsByZone); ignored != 0 || stuck != 0 || zones != 0 {
					t.Errorf("%v ignored, %v unschedulable, %d series of zones; want none", ignored, stuck, zones)
				}
			})
		})
	}
}

// The clock that cuts a plan runs from when the engine first asks it, so that what goes before takes nothing of it.
func TestTheClockCutsAPlanAfterTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var said []bool
		w.answerWith(func(in engine.Question) *engine.Plan {
			time.Sleep(time.Minute) // compiling on a starved machine
			for _, rest := range []time.Duration{0, planTime - time.Nanosecond, time.Nanosecond} {
				time.Sleep(rest)
				said = append(said, in.Stop())
			}
			plan := open1(in)
			plan.CutAt = 1000
			return plan
		})
		w.put(pod("a"))
		time.Sleep(30 * time.Second)
		if pods, age := testutil.ToFloat64(w.metrics.SchedulingQueueDepth), testutil.ToFloat64(w.metrics.SchedulingUnfinishedWork); pods != 1 || age < 20 || age > 30 {
			t.Errorf("within the plan metrics say that it has %v pods and is %v s old", pods, age)
		}
		time.Sleep(90 * time.Second)
		if n := testutil.CollectAndCount(w.metrics.SchedulingQueueDepth) + testutil.CollectAndCount(w.metrics.SchedulingUnfinishedWork); n > 0 {
			t.Errorf("%d series of a plan that has ended are left", n)
		}
		if want := []bool{false, false, true}; !slices.Equal(said, want) {
			t.Errorf("the clock said %v, want %v", said, want)
		}
		if got := testutil.ToFloat64(w.metrics.PlanPartial.WithLabelValues(name)); got != 1 {
			t.Errorf("%v plans counted as cut, want 1", got)
		}
	})
}

// Pods that a plan leaves out are asked about again at once, each time with more weight, until a plan comes to them.
func TestPodsThatAreLeftOutComeNext(t *testing.T) {
	for name, code := range map[string]reason.Code{"their constraints are too much at once": reason.Postponed, "a clock cut the plan": reason.NotReached} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				began := time.Now()
				var leftOut []int
				var at []time.Duration
				w.answerWith(func(in engine.Question) *engine.Plan {
					leftOut, at = append(leftOut, in.LeftOut[key("a")]), append(at, time.Since(began))
					switch len(at) {
					case 1, 2:
						return refuse(code)(in)
					case 3:
						return refuse(reason.TooLarge)(in)
					}
					return open1(in)
				})
				w.put(pod("a"))
				time.Sleep(time.Minute)
				synctest.Wait()
				if want := []int{0, 1, 2, 0}; !slices.Equal(leftOut, want) {
					t.Errorf("left out %v times before, want %v", leftOut, want)
				}
				if len(at) < 4 || at[1]-at[0] > 3*time.Second || at[2]-at[1] > 3*time.Second || at[3]-at[2] < 10*time.Second {
					t.Errorf("asked at %v", at)
				}
			})
		})
	}
}

// A burst that kube-scheduler has only begun to look at is planned for as a whole, and once.
func TestLikePodsAreOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		later := pod("b")
		later.Status.Conditions = nil
		w.put(pod("a"), later)
		time.Sleep(5 * time.Second)
		w.put(pod("b"))
		time.Sleep(5 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.turns) != 1 || !slices.Equal(w.turns[0].pods, []string{"a", "b"}) {
			t.Errorf("turns = %v, want one for both", w.turns)
		}
	})
}

// A machine that is bought because other pods took a planned place is counted, and what it costs.
func TestDisplacedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put(pod("a"))
		w.store.Update(func(d *cluster.Draft) {
			d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
			d.Plan(key("a"), "n", time.Now())
		})
		w.answerWith(func(in engine.Question) *engine.Plan {
			return &engine.Plan{Open: []engine.Opening{{Pool: "default", Pods: in.Pods, Claim: &v1.NodeClaim{}, Price: cloud.FromDollars(2)}}}
		})
		time.Sleep(10 * time.Second)
		if got := testutil.ToFloat64(w.metrics.MachinesForStraysCost.WithLabelValues("default")); got != 2 {
			t.Errorf("cost of machines for displaced pods = %v, want 2", got)
		}
	})
}

// A place is lost from when others can bind there, which is before the node is known to be initialized.
func TestWhoHasLostAPlace(t *testing.T) {
	ours := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c"}}
	ours.Status.NodeName, ours.Status.ProviderID = "n", "test:///n"
	registered := map[string]string{v1.NodeRegisteredLabelKey: "true"}
	for name, tc := range map[string]struct {
		claim  *v1.NodeClaim
		labels map[string]string
		want   int
	}{
		"a node of others": {want: 1},
		"a machine that boots has given no place away": {claim: ours},
		"kube-scheduler binds to what has registered":  {claim: ours, labels: registered, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			store, target := cluster.NewStore(), "n"
			store.Update(func(d *cluster.Draft) {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: tc.labels}}
				node.Spec.ProviderID = "test:///n"
				d.PutNode(node)
				if tc.claim != nil {
					d.PutClaim(tc.claim)
					target = tc.claim.Name
				}
				d.PutPod(pod("a"))
				d.Plan(key("a"), target, time.Now())
			})
			snap := store.Snapshot()
			if got := displacedPods(snap, []engine.Opening{{Pods: []*cluster.Pod{snap.Pod(key("a"))}}}); got[0] != tc.want {
				t.Errorf("%d pods have lost a place, want %d", got[0], tc.want)
			}
		})
	}
}

// A day of bursts, 30 s apart on average: from the last pod of a burst to the call that creates its claim. Bursts that come within
// the idle time of each other are one, as the settings say.
func TestBatchingOverADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		opened := map[string]time.Time{} // by name of the last pod of a burst
		w.answerWith(func(in engine.Question) *engine.Plan {
			for _, p := range in.Pods {
				if _, last := opened[p.Name]; last {
					opened[p.Name] = in.Now
				}
			}
			return open1(in)
		})
		type burst struct {
			last     string
			from, to time.Time
		}
		var bursts []burst
		rng := rand.New(rand.NewPCG(5, 5))
		began := time.Now()
		pods := 0
		for time.Since(began) < 24*time.Hour {
			time.Sleep(time.Duration(rng.ExpFloat64() * float64(30*time.Second)))
			size := 1 + rng.IntN(200)
			b := burst{from: time.Now(), last: fmt.Sprintf("p%07d", pods+size-1)}
			w.mu.Lock()
			opened[b.last] = time.Time{}
			w.mu.Unlock()
			for range size {
				w.put(pod(fmt.Sprintf("p%07d", pods)))
				pods++
				time.Sleep(300 * time.Millisecond / time.Duration(size))
			}
			b.to = time.Now()
			bursts = append(bursts, b)
			w.bindPlanned()
		}
		time.Sleep(20 * time.Second)
		var gaps []time.Duration
		for i, b := range bursts {
			if i+1 < len(bursts) && bursts[i+1].from.Before(b.to.Add(time.Second)) {
				continue
			}
			w.mu.Lock()
			gaps = append(gaps, opened[b.last].Sub(b.to))
			w.mu.Unlock()
		}
		slices.Sort(gaps)
		p99 := gaps[len(gaps)*99/100]
		t.Logf("%d bursts, %d pods: median %v, p99 %v, longest %v", len(gaps), pods, gaps[len(gaps)/2], p99, gaps[len(gaps)-1])
		if p99 > 1500*time.Millisecond || gaps[0] < 0 {
			t.Errorf("from the last pod of a burst to its claim: p99 %v, least %v; want at most 1.5 s, and none forgotten", p99, gaps[0])
		}
	})
}

// Pods that never stop coming wait for the longest batch at most.
func TestContinuousArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var worst time.Duration
		since := map[cluster.PodKey]time.Time{}
		for i := range 600 {
			w.put(pod(fmt.Sprintf("p%04d", i)))
			since[key(fmt.Sprintf("p%04d", i))] = time.Now()
			time.Sleep(500 * time.Millisecond)
			for k, at := range since {
				if !w.unplanned(k) {
					worst = max(worst, time.Since(at))
					delete(since, k)
				}
			}
		}
		if worst > 10500*time.Millisecond || worst < 9*time.Second {
			t.Errorf("the longest wait = %v, want the batch maximum of 10 s and at most half a second more", worst)
		}
	})
}

func (w *world) unplanned(k cluster.PodKey) bool {
	_, ok := w.store.Snapshot().Planned(k)
	return !ok
}

// bindPlanned removes the pods that have a place, and their claims, as if they had run and ended.
func (w *world) bindPlanned() {
	snap := w.store.Snapshot()
	w.store.Update(func(d *cluster.Draft) {
		for k, p := range snap.Plans() {
			d.DeletePod(k)
			d.DeleteClaim(p.Target)
		}
	})
}
