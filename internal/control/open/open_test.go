package open_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/open"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// world is a service on an API in memory.
type world struct {
	api     *memapi.Server
	store   *cluster.Store
	service *open.Service
	pool    *v1.NodePool
}

func cpus(n int64) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(n, resource.DecimalSI)}
}

func catalog() *cloud.Catalog {
	return &cloud.Catalog{Types: []*cloud.InstanceType{{Name: "large", Capacity: cpus(8)}, {Name: "small", Capacity: cpus(2)}}}
}

type catalogs struct{ store *cluster.Store }

func (c catalogs) Pools(_ context.Context, snap *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	pools, notReady := map[string]engine.Pool{}, map[string]bool{}
	for p := range cluster.Pools.All(snap) {
		pools[p.Name] = engine.Pool{Pool: p, Catalog: catalog()}
		notReady[p.Name] = p.DeletionTimestamp != nil
	}
	return pools, notReady
}

func newWorld(t *testing.T, limits corev1.ResourceList) *world {
	t.Helper()
	w := &world{api: memapi.New(memapi.Scheme()), store: cluster.NewStore()}
	w.pool = &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"}, Spec: v1.NodePoolSpec{Limits: v1.Limits(limits)}}
	w.store.Update(func(d *cluster.Draft) { d.Synced(true); cluster.Pools.Put(d, w.pool) })
	m := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
	events := telemetry.NewEvents(func(context.Context, *corev1.Event) error { return nil }, m)
	w.service = open.New(w.store, w.api.Client("main"), catalogs{w.store}, m, events)
	return w
}

// opening is a new node of some types for some pods.
func (w *world) opening(types []string, pods ...string) engine.Opening {
	o := engine.Opening{Pool: "default", Types: types, Claim: &v1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.NodePoolLabelKey: "default"}},
		Spec: v1.NodeClaimSpec{
			NodeClassRef: &v1.NodeClassReference{Group: "g", Kind: "K", Name: "n"},
			Requirements: []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: types}},
		},
	}}
	if at := slices.Index(types, "2 of them"); at >= 0 {
		o.Claim.Spec.Requirements[0].Values, o.Claim.Spec.Requirements[0].MinValues = types[:at], new(2)
	}
	for _, name := range pods {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid(name)}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonUnschedulable}}
		w.store.Update(func(d *cluster.Draft) { d.PutPod(p) })
		o.Pods = append(o.Pods, w.store.Snapshot().Pod(cluster.PodKey{Namespace: "default", Name: name}))
	}
	return o
}

func uid(name string) types.UID { return types.UID("uid-" + name) }

func (w *world) claims(t *testing.T) []string {
	t.Helper()
	var list v1.NodeClaimList
	if err := w.api.Client("test").List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	slices.Sort(out)
	return out
}

func TestOpenRecordsWhatItCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		o := w.opening([]string{"small"}, "a", "b")
		claims, err := w.service.Replace(t.Context(), "seed", "drifted", engine.Replacement{Open: []engine.Opening{o}}, map[string]string{"note": "x"})
		if err != nil || claims[0] == nil {
			t.Fatalf("Open = %v, %v", claims, err)
		}
		c := claims[0]
		if c.Annotations["note"] != "x" || !slices.Contains(c.Finalizers, v1.TerminationFinalizer) {
			t.Errorf("claim has annotations %v, finalizers %v", c.Annotations, c.Finalizers)
		}
		snap := w.store.Snapshot()
		if snap.ClaimNode(c.Name) == nil {
			t.Fatal("the claim is not in the picture")
		}
		for _, p := range o.Pods {
			if got, _ := snap.Planned(p.PodKey); got.Target != c.Name {
				t.Errorf("pod %s is planned for %q, want %q", p.Name, got.Target, c.Name)
			}
		}
	})
}

func TestNamesFollowFromWhatAClaimIsFor(t *testing.T) {
	w := newWorld(t, nil)
	a, b := w.opening(nil, "a", "b"), w.opening(nil, "c")
	names := w.service.Names("seed", []engine.Opening{a, b})
	again := w.service.Names("seed", []engine.Opening{b, a})
	if names[0] != again[1] || names[1] != again[0] {
		t.Errorf("names %q depend on the order: %q", names, again)
	}
	if other := w.service.Names("other", []engine.Opening{a}); other[0] == names[0] {
		t.Errorf("another decision has the same name %q", other[0])
	}
	if twins := w.service.Names("seed", []engine.Opening{a, a}); twins[0] == twins[1] {
		t.Errorf("two claims of one plan share the name %q", twins[0])
	}
	if len(names[0]) != len("default-")+5 {
		t.Errorf("name %q, want the pool and five characters", names[0])
	}
}

// A create whose answer is lost is repeated under the same name and finds the claim.
func TestLostAnswersCreateNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cpus(4))
		o := []engine.Opening{w.opening([]string{"small"}, "a")}
		lost := &loseAnswers{Client: w.api.Client("main"), left: 2}
		m := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
		events := telemetry.NewEvents(func(context.Context, *corev1.Event) error { return nil }, m)
		s := open.New(w.store, lost, catalogs{w.store}, m, events)
		claims, err := s.Open(t.Context(), "seed", "provisioned", o)
		if err != nil || claims[0] == nil {
			t.Fatalf("Open = %v, %v", claims, err)
		}
		if got := w.claims(t); len(got) != 1 || got[0] != claims[0].Name {
			t.Errorf("claims = %q, want only %s", got, claims[0].Name)
		}
		// And so does a whole decision that is taken again.
		claims, err = s.Open(t.Context(), "seed", "provisioned", o)
		if err != nil || claims[0] == nil || len(w.claims(t)) != 1 {
			t.Errorf("the second Open = %v, %v; claims = %q", claims, err, w.claims(t))
		}
	})
}

// loseAnswers carries out creates and then says that they timed out.
type loseAnswers struct {
	client.Client
	mu   sync.Mutex
	left int
}

func (c *loseAnswers) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	err := c.Client.Create(ctx, o.DeepCopyObject().(client.Object), opts...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left > 0 {
		c.left--
		return context.DeadlineExceeded
	}
	if err != nil {
		return err
	}
	return c.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
}

func TestNamesOfOthersAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		o := []engine.Opening{w.opening([]string{"small"}, "a")}
		taken := w.service.Names("seed", o)[0]
		foreign := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: taken}}
		if err := w.api.Client("test").Create(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		claims, err := w.service.Open(t.Context(), "seed", "provisioned", o)
		if err != nil || claims[0] == nil || claims[0].Name == taken {
			t.Fatalf("Open = %v, %v; want a claim of another name than %s", claims, err, taken)
		}
		if got := w.claims(t); len(got) != 2 {
			t.Errorf("claims = %q, want two", got)
		}
	})
}

func TestRefusedCreatesAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		calls := 0
		w.api.SetFault(func(r memapi.Request) error {
			if r.Verb != "create" {
				return nil
			}
			calls++
			return apierrors.NewInvalid(schema.GroupKind{Kind: "NodeClaim"}, "x", nil)
		})
		began := time.Now()
		claims, err := w.service.Open(t.Context(), "seed", "provisioned", []engine.Opening{w.opening([]string{"small"}, "a")})
		if err == nil || claims[0] != nil || calls != 1 || time.Since(began) > 0 {
			t.Errorf("Open = %v, %v after %d calls and %v; want one refused call", claims, err, calls, time.Since(began))
		}
	})
}

// A create that the API server refuses for good is not sent again; one that it could not answer is.
func TestWhichErrorsEndACreate(t *testing.T) {
	kind, resource := schema.GroupKind{Kind: "NodeClaim"}, schema.GroupResource{Resource: "nodeclaims"}
	for _, tc := range []struct {
		err   error
		again bool
	}{
		{err: apierrors.NewInvalid(kind, "x", nil)},
		{err: apierrors.NewForbidden(resource, "x", nil)},
		{err: apierrors.NewBadRequest("no")},
		{err: apierrors.NewUnauthorized("no")},
		{err: apierrors.NewNotFound(resource, "x")},
		{err: apierrors.NewRequestEntityTooLargeError("no")},
		{err: apierrors.NewServerTimeout(resource, "create", 1), again: true},
		{err: apierrors.NewTooManyRequests("later", 1), again: true},
		{err: apierrors.NewInternalError(errors.New("etcd")), again: true},
		{err: errors.New("connection refused"), again: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, nil)
			calls := 0
			w.api.SetFault(func(r memapi.Request) error {
				if r.Verb != "create" || calls == 2 {
					return nil
				}
				calls++
				return tc.err
			})
			_, err := w.service.Open(t.Context(), "seed", "provisioned", []engine.Opening{w.opening([]string{"small"}, "a")})
			if (err == nil) != tc.again || (calls > 1) != tc.again {
				t.Errorf("%v: Open = %v after %d failed calls, want that it is asked again: %v", tc.err, err, calls, tc.again)
			}
		})
	}
}

// What the API server refuses is told where users look: on the pod, on the pool, and in the journal.
func TestARefusedCreateIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		var told []string
		m := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
		events := telemetry.NewEvents(func(_ context.Context, e *corev1.Event) error {
			told = append(told, e.Reason+" "+e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name+" "+e.Message)
			return nil
		}, m)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go events.Run(ctx)
		s := open.New(w.store, w.api.Client("main"), catalogs{w.store}, m, events)
		s.Journal = journal.New()
		w.api.SetFault(func(r memapi.Request) error {
			if r.Verb != "create" {
				return nil
			}
			return apierrors.NewInvalid(schema.GroupKind{Kind: "NodeClaim"}, "x", nil)
		})
		if _, err := s.Open(t.Context(), "seed", "provisioned", []engine.Opening{w.opening([]string{"small"}, "a")}); err == nil {
			t.Fatal("the claim was created")
		}
		time.Sleep(10 * time.Second)
		slices.Sort(told)
		if len(told) != 2 || !strings.HasPrefix(told[0], "NodeClaimNotCreated NodePool/default could not create a NodeClaim: ") ||
			!strings.HasPrefix(told[1], "NodeClaimNotCreated Pod/a could not create") {
			t.Errorf("events %q", told)
		}
		if got := s.Journal.Select(journal.Query{Act: journal.Refused}); len(got) != 1 || len(got[0].About) != 2 {
			t.Errorf("journal %+v", got)
		}
	})
}

func TestLimits(t *testing.T) {
	small, large, either := []string{"small"}, []string{"large"}, []string{"large", "small"}
	for name, tc := range map[string]struct {
		limits corev1.ResourceList
		before func(*cluster.Draft)
		types  [][]string
		want   int // how many are created
	}{
		"no limits":                           {nil, nil, [][]string{large, large, large}, 3},
		"exactly at the limit is allowed":     {cpus(4), nil, [][]string{small, small}, 2},
		"what would exceed it is not created": {cpus(4), nil, [][]string{small, small, small}, 2},
		"a claim is cut to what fits":         {cpus(4), nil, [][]string{either}, 1},
		"claims share what there is":          {cpus(4), nil, [][]string{either, either}, 2},
		"and no more than that":               {cpus(5), nil, [][]string{either, either, either}, 2},
		"a smaller one may still fit":         {cpus(4), nil, [][]string{large, small}, 1},
		"nodes are counted too":               {corev1.ResourceList{v1.ResourceNodes: resource.MustParse("1")}, nil, [][]string{small, small}, 1},
		"machines that run count with what they have": {cpus(4), func(d *cluster.Draft) {
			d.PutClaim(running("c", 3))
		}, [][]string{small}, 0},
		"machines that are being deleted do not": {cpus(4), func(d *cluster.Draft) {
			d.PutClaim(deleting("c", 3))
		}, [][]string{small}, 1},
		"machines that a disruption is about to remove do: it may be taken back": {cpus(4), func(d *cluster.Draft) {
			d.PutClaim(running("c", 3))
			d.MarkForRemoval("c")
		}, [][]string{small}, 0},
		"machines of other pools do not": {cpus(4), func(d *cluster.Draft) {
			c := running("c", 3)
			c.Labels[v1.NodePoolLabelKey] = "other"
			d.PutClaim(c)
		}, [][]string{small}, 1},
		"a claim that is not launched counts as the largest it lists": {cpus(8), func(d *cluster.Draft) {
			c := running("c", 0)
			c.Status.Capacity = nil
			c.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: either}}
			d.PutClaim(c)
		}, [][]string{small}, 0},
		"a claim that must keep a choice is not cut": {cpus(4), nil, [][]string{{"large", "small", "2 of them"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tc.limits)
				if tc.before != nil {
					w.store.Update(tc.before)
				}
				var openings []engine.Opening
				for i, types := range tc.types {
					openings = append(openings, w.opening(types, fmt.Sprint("pod", i)))
				}
				claims, err := w.service.Open(t.Context(), "seed", "provisioned", openings)
				created := len(slices.DeleteFunc(claims, func(c *v1.NodeClaim) bool { return c == nil }))
				if created != tc.want {
					t.Errorf("%d claims were created, want %d (%v)", created, tc.want, err)
				}
				if _, limited := errors.AsType[*open.LimitError](err); limited != (created < len(tc.types)) {
					t.Errorf("error = %v", err)
				}
			})
		})
	}
}

func running(name string, cpu int64) *v1.NodeClaim {
	return &v1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid(name), Labels: map[string]string{v1.NodePoolLabelKey: "default"}},
		Status:     v1.NodeClaimStatus{ProviderID: "id-" + name, Capacity: cpus(cpu)},
	}
}

func deleting(name string, cpu int64) *v1.NodeClaim {
	c := running(name, cpu)
	c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: time.Now()}, []string{v1.TerminationFinalizer}
	return c
}

// Whoever reads of a limit reads all that is needed to choose another one.
func TestALimitErrorHasNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cpus(4))
		w.store.Update(func(d *cluster.Draft) { d.PutClaim(running("c", 1)) })
		_, err := w.service.Open(t.Context(), "seed", "provisioned", []engine.Opening{w.opening([]string{"small"}, "first"), w.opening([]string{"large", "small"}, "second")})
		want := "pool default would exceed its limit of cpu: 4 are allowed, 3 used, and the smallest machine of the claim has 2"
		if err == nil || err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	})
}

// A step is asked as if what it replaces were gone, gets all of its claims or none, and what it gets counts from then on beside what is
// still there.
func TestSteps(t *testing.T) {
	small, large, either := []string{"small"}, []string{"large"}, []string{"large", "small"}
	for name, tc := range map[string]struct {
		limits corev1.ResourceList
		before func(*cluster.Draft)
		types  [][]string
		want   [][]string // what the claims list; nothing for none
	}{
		"a machine is replaced by its like at the limit": {cpus(8), func(d *cluster.Draft) { d.PutClaim(running("old", 8)) }, [][]string{large}, [][]string{large}},
		"the same of the number of nodes": {corev1.ResourceList{v1.ResourceNodes: resource.MustParse("1")}, func(d *cluster.Draft) { d.PutClaim(running("old", 8)) },
			[][]string{either}, [][]string{either}},
		"not by two where one is allowed": {corev1.ResourceList{v1.ResourceNodes: resource.MustParse("1")}, func(d *cluster.Draft) { d.PutClaim(running("old", 8)) },
			[][]string{small, small}, nil},
		"not by more than the limit leaves": {cpus(8), func(d *cluster.Draft) { d.PutClaim(running("old", 2)); d.PutClaim(running("other", 4)) }, [][]string{large}, nil},
		"a list is cut rather than refused": {cpus(8), func(d *cluster.Draft) { d.PutClaim(running("old", 2)); d.PutClaim(running("other", 4)) }, [][]string{either}, [][]string{small}},
		"lists are cut against each other":  {cpus(16), func(d *cluster.Draft) { d.PutClaim(running("old", 8)) }, [][]string{either, either}, [][]string{either, small}},
		"one claim too many and none is created": {cpus(8), func(d *cluster.Draft) { d.PutClaim(running("old", 8)) },
			[][]string{small, small, small, small, small}, nil},
		"what another step replaces does not count, what it has opened does": {cpus(10), func(d *cluster.Draft) {
			d.PutClaim(running("old", 2))
			d.PutClaim(running("theirs", 8))
			d.PutClaim(running("their replacement", 8))
			d.MarkForRemoval("theirs")
		}, [][]string{either}, [][]string{small}},
		"above the limit a step may still make it less": {cpus(8), func(d *cluster.Draft) { d.PutClaim(running("old", 8)); d.PutClaim(running("other", 4)) },
			[][]string{either}, [][]string{small}},
		"but not keep it above": {cpus(8), func(d *cluster.Draft) { d.PutClaim(running("old", 8)); d.PutClaim(running("other", 4)) }, [][]string{large}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tc.limits)
				w.store.Update(tc.before)
				step := engine.Replacement{Of: map[types.UID]bool{uid("old"): true}}
				for i, types := range tc.types {
					step.Open = append(step.Open, w.opening(types, fmt.Sprint("pod", i)))
				}
				claims, err := w.service.Replace(t.Context(), "step", "drifted", step, nil)
				var got [][]string
				for _, c := range claims {
					if c != nil {
						got = append(got, c.Spec.Requirements[0].Values)
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("claims (-want +got):\n%s (%v)", diff, err)
				}
				if _, limited := errors.AsType[*open.LimitError](err); limited != (tc.want == nil) || len(w.claims(t)) != len(tc.want) {
					t.Errorf("%d claims exist, want %d; error %v", len(w.claims(t)), len(tc.want), err)
				}
				// What was refused holds nothing back, and above the limit nothing opens for pods.
				w.store.Update(func(d *cluster.Draft) { d.MarkForRemoval("old") })
				after, _ := w.service.Open(t.Context(), "pods", "provisioned", []engine.Opening{w.opening(small, "late")})
				if tc.want != nil && after[0] != nil {
					t.Error("a machine was opened for a pod in a pool that is at its limit")
				}
				w.store.Update(func(d *cluster.Draft) {
					d.DeleteClaim("old")
					d.DeleteClaim("other")
					d.DeleteClaim("theirs")
					d.DeleteClaim("their replacement")
				})
				if tc.want == nil {
					if after, err := w.service.Open(t.Context(), "pods", "provisioned", []engine.Opening{w.opening(small, "late")}); after[0] == nil {
						t.Errorf("a step that was refused holds room back: %v", err)
					}
				}
			})
		})
	}
}

// Two loops that open at the same time share what the limit leaves.
func TestLimitsHoldForConcurrentOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cpus(10))
		slow := w.api.Client("main")
		slow.Delay = 100 * time.Millisecond
		m := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
		events := telemetry.NewEvents(func(context.Context, *corev1.Event) error { return nil }, m)
		s := open.New(w.store, slow, catalogs{w.store}, m, events)
		var plans [4][]engine.Opening
		for i := range plans {
			for j := range 3 {
				plans[i] = append(plans[i], w.opening([]string{"small"}, fmt.Sprintf("pod%d%d", i, j)))
			}
		}
		var wg sync.WaitGroup
		for i := range plans {
			wg.Go(func() { s.Open(t.Context(), fmt.Sprint("seed", i), "provisioned", plans[i]) })
		}
		wg.Wait()
		if got := w.claims(t); len(got) != 5 {
			t.Errorf("%d claims of 2 CPUs under a limit of 10, want 5", len(got))
		}
	})
}

// Claims that wait for their launch list large machines beside the small ones that were planned. They keep nobody from opening: three hundred
// claims of 2 CPUs fit under a limit of 700, and their lists together stay below it.
func TestListsOfWaitingClaimsRefuseNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cpus(700))
		for call := range 10 {
			var openings []engine.Opening
			for i := range 30 {
				openings = append(openings, w.opening([]string{"large", "small"}, fmt.Sprintf("pod-%d-%d", call, i)))
			}
			if _, err := w.service.Open(t.Context(), fmt.Sprint("seed", call), "provisioned", openings); err != nil {
				t.Fatalf("call %d: %v", call, err)
			}
		}
		large, most := 0, int64(0)
		for c := range w.store.Snapshot().Nodes() {
			if slices.Contains(c.Claim.Spec.Requirements[0].Values, "large") {
				large++
				most += 8
			} else {
				most += 2
			}
		}
		if large == 0 || most > 700 {
			t.Errorf("%d claims may become large, and all together %d CPUs under a limit of 700", large, most)
		}
	})
}

// A burst of a thousand claims is created in ten seconds, by an API server that takes a tenth of a second for each.
func TestAThousandClaimsAreCreatedInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		slow := w.api.Client("main")
		slow.Delay = 100 * time.Millisecond
		m := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
		s := open.New(w.store, slow, catalogs{w.store}, m, telemetry.NewEvents(func(context.Context, *corev1.Event) error { return nil }, m))
		openings := make([]engine.Opening, 1000)
		for i := range openings {
			openings[i] = w.opening([]string{"small"}, fmt.Sprint("pod-", i))
		}
		begun := time.Now()
		if _, err := s.Open(t.Context(), "seed", "provisioned", openings); err != nil {
			t.Fatal(err)
		}
		if took, n := time.Since(begun), len(w.claims(t)); took > 10*time.Second || n != len(openings) {
			t.Errorf("%d claims were created in %v, want %d within ten seconds", n, took, len(openings))
		}
	})
}

// meeting are catalogues that answer when two have asked.
type meeting struct {
	catalogs
	asked *sync.WaitGroup
}

func (m meeting) Pools(ctx context.Context, snap *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	m.asked.Done()
	m.asked.Wait()
	return m.catalogs.Pools(ctx, snap)
}

// Whoever asks a slow cloud what there is keeps nobody else from opening nodes.
func TestACloudThatIsSlowHoldsUpNobodyElse(t *testing.T) {
	w := newWorld(t, nil)
	both := meeting{catalogs{w.store}, &sync.WaitGroup{}}
	both.asked.Add(2)
	m := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
	service := open.New(w.store, w.api.Client("main"), both, m, telemetry.NewEvents(func(context.Context, *corev1.Event) error { return nil }, m))
	opened := make(chan error, 2)
	for _, pod := range []string{"a", "b"} {
		go func() {
			_, err := service.Open(context.Background(), "seed of "+pod, "provisioned", []engine.Opening{w.opening([]string{"small"}, pod)})
			opened <- err
		}()
	}
	for range 2 {
		select {
		case err := <-opened:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Minute):
			t.Fatal("one waits for the other")
		}
	}
}

// A pool with a fixed number of nodes never has more than its limit of nodes, not even while one is replaced by another.
func TestStaticPools(t *testing.T) {
	opening := func(w *world) engine.Opening {
		o := w.opening([]string{"small"})
		o.Static = true
		return o
	}
	static := func(t *testing.T, nodes string) *world {
		w := newWorld(t, corev1.ResourceList{v1.ResourceNodes: resource.MustParse(nodes)})
		w.store.Update(func(d *cluster.Draft) {
			p := w.pool.DeepCopy()
			p.Spec.Replicas = new(int64(1))
			cluster.Pools.Put(d, p)
			d.PutClaim(running("old", 2))
		})
		return w
	}
	old := map[types.UID]bool{running("old", 2).UID: true}
	t.Run("a node more within the limit", func(t *testing.T) {
		w := static(t, "2")
		if claims, err := w.service.Open(t.Context(), "seed", "provisioned", []engine.Opening{opening(w)}); err != nil || claims[0] == nil {
			t.Errorf("Open = %v, %v", claims, err)
		}
	})
	t.Run("a replacement within the limit", func(t *testing.T) {
		w := static(t, "2")
		if claims, err := w.service.Replace(t.Context(), "seed", "drifted", engine.Replacement{Open: []engine.Opening{opening(w)}, Of: old}, nil); err != nil || claims[0] == nil {
			t.Errorf("Replace = %v, %v", claims, err)
		}
	})
	t.Run("a replacement at the limit", func(t *testing.T) {
		w := static(t, "1")
		_, err := w.service.Replace(t.Context(), "seed", "drifted", engine.Replacement{Open: []engine.Opening{opening(w)}, Of: old}, nil)
		if _, refused := errors.AsType[*open.LimitError](err); !refused {
			t.Errorf("Replace says %v, want a LimitError", err)
		}
	})
	t.Run("a pool that is not static any more", func(t *testing.T) {
		w := newWorld(t, nil)
		_, err := w.service.Open(t.Context(), "seed", "provisioned", []engine.Opening{opening(w)})
		if _, refused := errors.AsType[*open.PoolError](err); !refused {
			t.Errorf("Open says %v, want a PoolError", err)
		}
	})
}

func TestPoolsThatMayNotGetNodes(t *testing.T) {
	for name, change := range map[string]func(*cluster.Draft, *v1.NodePool){
		"gone": func(d *cluster.Draft, p *v1.NodePool) { cluster.Pools.Delete(d, p.Name) },
		"deleting": func(d *cluster.Draft, p *v1.NodePool) {
			p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			cluster.Pools.Put(d, p)
		},
		"static, for pods": func(d *cluster.Draft, p *v1.NodePool) {
			three := int64(3)
			p.Spec.Replicas = &three
			cluster.Pools.Put(d, p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.store.Update(func(d *cluster.Draft) { change(d, w.pool.DeepCopy()) })
			claims, err := w.service.Open(t.Context(), "seed", "provisioned", []engine.Opening{w.opening([]string{"small"}, "a")})
			if _, refused := errors.AsType[*open.PoolError](err); !refused || claims[0] != nil {
				t.Errorf("Open = %v, %v; want a PoolError", claims, err)
			}
		})
	}
}
