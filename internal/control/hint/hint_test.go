package hint_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/hint"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// api is the part of the API server that takes hints. It writes them into the store, as the watch would.
type api struct {
	client.Client
	store *cluster.Store
	mu    sync.Mutex
	got   []string
	fail  error
	wipe  bool          // kube-scheduler wipes every hint
	lag   time.Duration // how much later the watch tells of a hint
	begun int
	takes func(n int) time.Duration // how long the n-th hint takes
}

func (a *api) Status() client.SubResourceWriter { return status{a} }

type status struct{ *api }

func (s status) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return fmt.Errorf("not used")
}

func (s status) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return fmt.Errorf("not used")
}

func (s status) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return fmt.Errorf("not used")
}

func (s status) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	var patch struct {
		Metadata struct{ UID types.UID }
		Status   struct{ NominatedNodeName string }
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		return err
	}
	options := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	if s.takes != nil {
		s.mu.Lock()
		s.begun++
		n := s.begun
		s.mu.Unlock()
		select {
		case <-time.After(s.takes(n)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, fmt.Sprintf("%s=%s", o.GetName(), patch.Status.NominatedNodeName))
	if s.fail != nil {
		return s.fail
	}
	if options.FieldManager != cluster.HintManager || patch.Metadata.UID != uid(o.GetName()) {
		return fmt.Errorf("manager %q, uid %q", options.FieldManager, patch.Metadata.UID)
	}
	version := len(s.got) * 2
	o.SetResourceVersion(fmt.Sprint(version))
	name := patch.Status.NominatedNodeName
	if s.wipe {
		version++
		name = ""
	}
	tell := func() {
		pod := hinted(o.GetName(), name, cluster.HintManager)
		pod.ResourceVersion = fmt.Sprint(version)
		s.store.Update(func(d *cluster.Draft) { d.PutPod(pod) })
	}
	if s.lag > 0 {
		time.AfterFunc(s.lag, tell)
	} else {
		tell()
	}
	return nil
}

func (a *api) written() []string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	out := slices.Clone(a.got)
	slices.Sort(out)
	return out
}

func uid(name string) types.UID { return types.UID("uid-" + name) }

func hinted(name, node, manager string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid(name)}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonUnschedulable}}
	p.Status.NominatedNodeName = node
	if node != "" {
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:nominatedNodeName":{}}}`)}}
	}
	return p
}

func waiting(name string) *corev1.Pod { return hinted(name, "", "") }

// frequent are pods that wait and are of another class than those that stories are about, and more of them.
func frequent(d *cluster.Draft) {
	for i := range 4 {
		p := waiting(fmt.Sprint("frequent-", i))
		p.Spec.NodeSelector = map[string]string{"disk": "fast"}
		d.PutPod(p)
	}
}

func bound(name, node string) *corev1.Pod {
	p := waiting(name)
	p.Spec.NodeName = node
	return p
}

func key(name string) cluster.PodKey { return cluster.PodKey{Namespace: "default", Name: name} }

// Taints of machines.
var (
	notReady     = corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	startup      = corev1.Taint{Key: "startup", Effect: corev1.TaintEffectNoSchedule}
	unregistered = v1.UnregisteredTaint()
)

// machine puts a claim and, unless it has not come, its Node with some taints.
func machine(d *cluster.Draft, name string, ready bool, taints ...corev1.Taint) {
	d.PutClaim(&v1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name, UID: uid("claim-" + name)},
		Spec:       v1.NodeClaimSpec{StartupTaints: []corev1.Taint{startup}},
		Status:     v1.NodeClaimStatus{ProviderID: "id-" + name},
	})
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid(name), Labels: map[string]string{v1.NodeRegisteredLabelKey: "true"}},
		Spec:       corev1.NodeSpec{ProviderID: "id-" + name, Taints: taints},
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	d.PutNode(n)
}

type world struct {
	*api
	loop    *hint.Loop
	metrics *telemetry.Metrics
}

func run(t *testing.T, understood bool) *world {
	return runWith(t, func() (bool, error) { return understood, nil })
}

func runWith(t *testing.T, understood func() (bool, error)) *world {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) { d.Synced(true) })
	w := &world{api: &api{store: store}, metrics: telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())}
	w.loop = hint.New(store, w.api, w.metrics, understood)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.loop.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	synctest.Wait()
	return w
}

// An API server that does not answer as the program starts costs hints for a minute, not until the next restart.
func TestTheVersionIsAskedForUntilItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w := runWith(t, func() (bool, error) {
			if asked++; asked < 3 {
				return false, errors.New("the API server is busy")
			}
			return true, nil
		})
		w.store.Update(func(d *cluster.Draft) {
			frequent(d)
			d.PutPod(waiting("a"))
			machine(d, "n", true)
			d.Plan(key("a"), "claim-n", time.Now())
		})
		time.Sleep(90 * time.Second)
		if got := w.written(); len(got) > 0 {
			t.Errorf("hints %q were written though nobody knew whether they are understood", got)
		}
		time.Sleep(time.Hour)
		if got := w.written(); !slices.Equal(got, []string{"a=n"}) || asked != 3 {
			t.Errorf("hints = %q after the version was asked for %d times, want one after three", got, asked)
		}
	})
}

func TestHints(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		story func(w *world)
		want  []string
	}{
		"a pod is told its node once that is ready": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) {
					d.PutPod(waiting("a"))
					machine(d, "n", false, notReady)
					d.Plan(key("a"), "claim-n", now)
				})
				time.Sleep(time.Second)
				if got := w.written(); len(got) != 0 {
					panic(fmt.Sprint("too early: ", got))
				}
				w.store.Update(func(d *cluster.Draft) { machine(d, "n", true, notReady) })
			},
			[]string{"a=n"},
		},
		"a node with a startup taint is not ready": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) {
					d.PutPod(waiting("a"))
					machine(d, "n", true, startup)
					d.Plan(key("a"), "claim-n", now)
				})
			}, nil,
		},
		"a nomination of somebody else is left alone": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) {
					d.PutPod(hinted("a", "m", "kube-scheduler"))
					machine(d, "n", true)
					d.Plan(key("a"), "claim-n", now)
				})
			}, nil,
		},
		"a pod without plan is told nothing": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) { d.PutPod(waiting("a")); machine(d, "n", true) })
			}, nil,
		},
		"a hint that was wiped is written again only when the node has changed": {
			func(w *world) {
				w.wipe = true
				w.store.Update(func(d *cluster.Draft) {
					d.PutPod(waiting("a"))
					machine(d, "n", true, notReady)
					d.Plan(key("a"), "claim-n", now)
				})
				time.Sleep(10 * time.Second)
				w.store.Update(func(d *cluster.Draft) { machine(d, "n", true) })
			},
			[]string{"a=n", "a=n"},
		},
		"a hint is taken back when the plan changes": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) {
					d.PutPod(hinted("a", "n", cluster.HintManager))
					machine(d, "n", true)
					machine(d, "m", false)
					d.Plan(key("a"), "claim-m", now)
				})
			},
			[]string{"a="},
		},
		"a hint is taken back once, however late the watch tells of it": {
			func(w *world) {
				w.lag = 700 * time.Millisecond
				w.store.Update(func(d *cluster.Draft) { d.PutPod(hinted("a", "n", cluster.HintManager)) })
			},
			[]string{"a="},
		},
		"a hint is taken back once, however slow the API server is": {
			func(w *world) {
				w.takes = func(int) time.Duration { return 700 * time.Millisecond }
				w.store.Update(func(d *cluster.Draft) { d.PutPod(hinted("a", "n", cluster.HintManager)) })
			},
			[]string{"a="},
		},
		"what has just been told anew is not taken back because the watch still shows the old hint": {
			func(w *world) {
				w.lag = 700 * time.Millisecond
				w.store.Update(func(d *cluster.Draft) {
					d.PutPod(hinted("a", "n", cluster.HintManager))
					machine(d, "m", true)
					d.Plan(key("a"), "claim-m", now)
				})
			},
			[]string{"a=m"},
		},
		"which pods are the most frequent is not decided before there is a plan": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) {
					for i := range 4 {
						d.DeletePod(key(fmt.Sprint("frequent-", i)))
					}
					d.PutPod(waiting("a"))
				})
				time.Sleep(time.Second)
				w.store.Update(frequent)
				w.store.Update(func(d *cluster.Draft) {
					machine(d, "n", true)
					d.Plan(key("a"), "claim-n", now)
				})
			},
			[]string{"a=n"},
		},
		"a hint is taken back when its node goes": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) { d.PutPod(hinted("a", "n", cluster.HintManager)) })
			},
			[]string{"a="},
		},
		"a hint without plan stays while its node is there, as after a restart": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) { d.PutPod(hinted("a", "n", cluster.HintManager)); machine(d, "n", true) })
			}, nil,
		},
		"just before the last taint goes every planned pod is told": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) {
					machine(d, "n", true, unregistered)
					for _, p := range []string{"a", "b"} {
						d.PutPod(waiting(p))
						d.Plan(key(p), "claim-n", now)
					}
					d.PutPod(waiting("c"))
				})
				w.loop.Before(context.Background(), "n")
			},
			[]string{"a=n", "b=n"},
		},
		"before a node that is not ready loses our taint nobody is told: the hint would be wiped": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) {
					machine(d, "n", false, unregistered)
					d.PutPod(waiting("a"))
					d.Plan(key("a"), "claim-n", now)
				})
				w.loop.Before(context.Background(), "n")
			}, nil,
		},
		"while our taint keeps pods away nobody is told: the node's time comes": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) {
					machine(d, "n", true, unregistered)
					d.PutPod(waiting("a"))
					d.Plan(key("a"), "claim-n", now)
				})
			}, nil,
		},
		"a taint of our key that has another effect is not ours: nobody is going to open the node": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) {
					machine(d, "n", true, corev1.Taint{Key: v1.UnregisteredTaintKey, Effect: corev1.TaintEffectPreferNoSchedule})
					d.PutPod(waiting("a"))
					d.Plan(key("a"), "claim-n", now)
					frequent(d)
				})
			},
			[]string{"a=n"},
		},
		"what is wiped before the node opens is written again": {
			func(w *world) {
				w.wipe = true
				w.store.Update(func(d *cluster.Draft) {
					machine(d, "n", true, unregistered)
					d.PutPod(waiting("a"))
					d.Plan(key("a"), "claim-n", now)
				})
				w.loop.Before(context.Background(), "n")
			},
			[]string{"a=n", "a=n"},
		},
		"pods of the most frequent class may go where they like, to the last": {
			func(w *world) {
				w.store.Update(func(d *cluster.Draft) {
					machine(d, "n", true)
					d.PutPod(waiting("a"))
					for _, p := range []string{"a", "frequent-0", "frequent-1"} {
						d.Plan(key(p), "claim-n", now)
					}
				})
				w.loop.Before(context.Background(), "n")
				time.Sleep(time.Second)
				w.store.Update(func(d *cluster.Draft) {
					d.DeletePod(key("frequent-1"))
					d.DeletePod(key("frequent-2"))
					d.DeletePod(key("frequent-3"))
				})
				w.store.Update(func(d *cluster.Draft) { d.PutPod(waiting("b")); d.Plan(key("b"), "claim-n", now) })
			},
			[]string{"a=n", "b=n"},
		},
		"nobody is told anything where hints are forbidden": {
			func(w *world) {
				w.fail = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", nil)
				w.store.Update(func(d *cluster.Draft) {
					d.PutPod(waiting("a"))
					machine(d, "n", true)
					d.Plan(key("a"), "claim-n", now)
				})
				time.Sleep(time.Second)
				w.store.Update(func(d *cluster.Draft) { d.PutPod(waiting("b")); d.Plan(key("b"), "claim-n", now) })
			},
			[]string{"a=n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := run(t, true)
				w.store.Update(frequent)
				tc.story(w)
				time.Sleep(time.Second)
				if got := w.written(); !slices.Equal(got, tc.want) {
					t.Errorf("hints = %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// opening calls Before for a node and returns when, from now, it may open. -1 means that it is still held.
func (w *world) opening(ctx context.Context, node string) func() time.Duration {
	began, took := time.Now(), time.Duration(-1)
	go func() {
		w.loop.Before(ctx, node)
		took = time.Since(began)
	}()
	return func() time.Duration {
		synctest.Wait()
		return took
	}
}

func TestNodesOfOnePlanOpenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, true)
		w.store.Update(frequent)
		w.store.Update(func(d *cluster.Draft) {
			machine(d, "n", true, unregistered)
			machine(d, "m", false, unregistered)
			machine(d, "slow", false, unregistered)
			for _, p := range []string{"n", "m", "slow"} {
				d.PutPod(waiting("pod-" + p))
				d.Plan(key("pod-"+p), "claim-"+p, time.Now())
			}
		})
		n := w.opening(t.Context(), "n")
		time.Sleep(200 * time.Millisecond)
		if got := w.written(); !slices.Equal(got, []string{"pod-n=n"}) {
			t.Errorf("hints %q while the group gathers, want those of the node that is there", got)
		}
		w.store.Update(func(d *cluster.Draft) { machine(d, "m", true, unregistered) })
		m := w.opening(t.Context(), "m")
		time.Sleep(2 * time.Second)
		if n() != m()+200*time.Millisecond || n() < 0 || n() > 2*time.Second {
			t.Errorf("opened after %v and %v, want both at the same time, and soon", n(), m())
		}
		if got := w.written(); !slices.Equal(got, []string{"pod-m=m", "pod-n=n"}) {
			t.Errorf("hints %q, want those of the nodes that opened", got)
		}
		// The last one waits for nobody.
		w.store.Update(func(d *cluster.Draft) {
			machine(d, "n", true)
			machine(d, "m", true)
			d.PutPod(bound("pod-n", "n"))
			d.PutPod(bound("pod-m", "m"))
			machine(d, "slow", true, unregistered)
		})
		slow := w.opening(t.Context(), "slow")
		time.Sleep(100 * time.Millisecond)
		if slow() < 0 {
			t.Error("the last node of a plan waits for others")
		}
	})
}

// The room of the most frequent class is taken by pods whose own nodes come later, unless it is told to all.
func TestEverybodyIsToldWhileOthersWaitForLaterNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		later string // the pod whose node comes later
		want  []string
	}{
		"of another class":            {"a", []string{"frequent-0=n"}},
		"of the most frequent class":  {"frequent-1", nil},
		"which is not there any more": {"gone", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := run(t, true)
				w.store.Update(frequent)
				w.store.Update(func(d *cluster.Draft) {
					machine(d, "n", true, unregistered)
					machine(d, "m", false, unregistered)
					d.PutPod(waiting("a"))
					d.Plan(key("frequent-0"), "claim-n", time.Now())
					d.Plan(key(tc.later), "claim-m", time.Now())
				})
				w.opening(t.Context(), "n")
				time.Sleep(500 * time.Millisecond)
				if got := w.written(); len(got) > 0 {
					t.Errorf("hints %q while the later node may still come", got)
				}
				time.Sleep(5 * time.Second)
				if got := w.written(); !slices.Equal(got, tc.want) {
					t.Errorf("hints = %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// Under load the watch tells seconds later what was written.
func TestAHintIsWrittenOnceHoweverLateTheWatchTellsOfIt(t *testing.T) {
	for name, tc := range map[string]struct {
		wipe bool
		lag  time.Duration
		want []string
	}{
		"it stays":                       {false, time.Second, []string{"a=n"}},
		"it is wiped, which comes later": {true, time.Second, []string{"a=n"}},
		"it is wiped, which comes soon":  {true, 20 * time.Millisecond, []string{"a=n", "a=n"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := run(t, true)
				w.wipe, w.lag = tc.wipe, tc.lag
				w.store.Update(frequent)
				w.store.Update(func(d *cluster.Draft) {
					machine(d, "n", true, unregistered)
					d.PutPod(waiting("a"))
					d.Plan(key("a"), "claim-n", time.Now())
				})
				w.loop.Before(t.Context(), "n")
				if got := w.written(); !slices.Equal(got, tc.want) {
					t.Errorf("hints = %q, want %q", got, tc.want)
				}
				w.store.Update(func(d *cluster.Draft) { machine(d, "n", true) })
				time.Sleep(300 * time.Millisecond)
				if got := w.written(); tc.lag == time.Second && !slices.Equal(got, tc.want) {
					t.Errorf("once the node is open hints = %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// A leader that ends while its group gathers lets the nodes go that came with it, and those that come later are told of all the same.
func TestAGroupThatEndsEarlyHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, true)
		w.store.Update(frequent)
		w.store.Update(func(d *cluster.Draft) {
			for _, name := range []string{"n", "m", "late"} {
				machine(d, name, name != "late", unregistered)
				d.PutPod(waiting("pod-" + name))
				d.Plan(key("pod-"+name), "claim-"+name, time.Now())
			}
		})
		ctx, end := context.WithCancel(t.Context())
		first := w.opening(ctx, "n")
		synctest.Wait()
		second := w.opening(t.Context(), "m")
		time.Sleep(200 * time.Millisecond)
		end()
		time.Sleep(groupInterval)
		if first() < 0 || second() < 0 {
			t.Errorf("opened after %v and %v, want at once", first(), second())
		}
		w.store.Update(func(d *cluster.Draft) { machine(d, "late", true, unregistered) })
		w.loop.Before(t.Context(), "late")
		if got := w.written(); !slices.Contains(got, "pod-late=late") {
			t.Errorf("hints = %q, want that of the node that came later", got)
		}
	})
}

// groupInterval is as long as a group takes to see anything.
const groupInterval = 100 * time.Millisecond

// TestHowLongANodeWaitsForItsHints has API servers as they are under load, and dead ones.
func TestHowLongANodeWaitsForItsHints(t *testing.T) {
	always := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	for name, tc := range map[string]struct {
		takes  func(n int) time.Duration
		within [2]time.Duration
		told   int // of 1,000
	}{
		"a quick one":                    {takes: always(10 * time.Millisecond), within: [2]time.Duration{0, time.Second}, told: 1000},
		"a slow one, until all are told": {takes: always(500 * time.Millisecond), within: [2]time.Duration{7 * time.Second, 10 * time.Second}, told: 1000},
		"a very slow one, not for ever":  {takes: always(2 * time.Second), within: [2]time.Duration{15 * time.Second, 15 * time.Second}, told: 448},
		"a dead one":                     {takes: always(time.Hour), within: [2]time.Duration{3 * time.Second, 3 * time.Second}},
		"one that dies after some":       {takes: func(n int) time.Duration { return time.Duration(n/100) * time.Hour }, within: [2]time.Duration{6 * time.Second, 6 * time.Second}, told: 99},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := run(t, true)
				w.takes = tc.takes
				w.store.Update(func(d *cluster.Draft) {
					machine(d, "n", true, unregistered)
					for i := range 1001 {
						p := waiting(fmt.Sprint("frequent-", i))
						p.Spec.NodeSelector = map[string]string{"disk": "fast"}
						d.PutPod(p)
					}
					for i := range 1000 {
						d.PutPod(waiting(fmt.Sprint(i)))
						d.Plan(key(fmt.Sprint(i)), "claim-n", time.Now())
					}
				})
				opened := w.opening(t.Context(), "n")
				time.Sleep(time.Minute)
				if took := opened(); took < tc.within[0] || took > tc.within[1] {
					t.Errorf("it waited %v, want %v", took, tc.within)
				}
				if n := len(w.written()); n != tc.told {
					t.Errorf("%d hints, want %d", n, tc.told)
				}
			})
		})
	}
}

func TestAGroupIsNotGatheredForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, true)
		w.store.Update(frequent)
		w.store.Update(func(d *cluster.Draft) {
			for i := range 30 {
				name := fmt.Sprint("n", i)
				machine(d, name, true, unregistered)
				d.PutPod(waiting("pod-" + name))
				d.Plan(key("pod-"+name), "claim-"+name, time.Now())
			}
		})
		first := w.opening(t.Context(), "n0")
		for i := 1; i < 30; i++ {
			time.Sleep(200 * time.Millisecond)
			w.opening(t.Context(), fmt.Sprint("n", i))
		}
		if got := first(); got < 0 || got > 4*time.Second {
			t.Errorf("the first node waited %v for others that came one by one", got)
		}
	})
}

func TestOldSchedulersAreToldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, false)
		w.store.Update(func(d *cluster.Draft) {
			d.PutPod(waiting("a"))
			machine(d, "n", true)
			d.Plan(key("a"), "claim-n", time.Now())
		})
		w.loop.Before(t.Context(), "n")
		time.Sleep(time.Second)
		if got := w.written(); len(got) != 0 {
			t.Errorf("hints = %q, want none", got)
		}
	})
}

func TestPlannedPodsAreCountedWhereTheyBind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, false)
		w.store.Update(func(d *cluster.Draft) {
			machine(d, "n", true)
			machine(d, "m", true)
			for _, p := range []string{"a", "b", "c", "gone"} {
				d.PutPod(waiting(p))
				d.Plan(key(p), "claim-n", time.Now())
			}
		})
		time.Sleep(time.Second)
		w.store.Update(func(d *cluster.Draft) {
			d.PutPod(bound("a", "n"))
			d.PutPod(bound("b", "n"))
			d.PutPod(bound("c", "m"))
			d.DeletePod(key("gone"))
		})
		time.Sleep(time.Second)
		for place, want := range map[string]float64{"as_planned": 2, "elsewhere": 1} {
			if got := testutil.ToFloat64(w.metrics.PodsBound.WithLabelValues(place)); got != want {
				t.Errorf("%s = %v, want %v", place, got, want)
			}
		}
	})
}
