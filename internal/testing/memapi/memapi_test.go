package memapi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

func TestObjects(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *memapi.Server, *memapi.Client){
		"a created object has a uid, a generation, and no status": func(t *testing.T, s *memapi.Server, c *memapi.Client) {
			o := claim("c")
			o.Status.ProviderID = "id"
			must(t, c.Create(t.Context(), o))
			if o.UID == "" || o.Generation != 1 || o.ResourceVersion == "" || o.Status.ProviderID != "" {
				t.Errorf("object = %+v", o)
			}
			if err := c.Create(t.Context(), claim("c")); !apierrors.IsAlreadyExists(err) {
				t.Errorf("creating it again: %v", err)
			}
		},
		"a patch of an old version conflicts, if it is locked": func(t *testing.T, s *memapi.Server, c *memapi.Client) {
			o := claim("c")
			must(t, c.Create(t.Context(), o))
			old := o.DeepCopy()
			o.Labels = map[string]string{"a": "b"}
			must(t, c.Patch(t.Context(), o, client.MergeFrom(old)))
			next := old.DeepCopy()
			next.Labels = map[string]string{"c": "d"}
			if err := c.Patch(t.Context(), next.DeepCopy(), client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); !apierrors.IsConflict(err) {
				t.Errorf("locked patch: %v", err)
			}
			must(t, c.Patch(t.Context(), next, client.MergeFrom(old)))
			if next.Labels["a"] != "b" || next.Labels["c"] != "d" {
				t.Errorf("labels = %v", next.Labels)
			}
		},
		"status and the rest are written apart": func(t *testing.T, s *memapi.Server, c *memapi.Client) {
			o := claim("c")
			must(t, c.Create(t.Context(), o))
			both := func() *v1.NodeClaim {
				n := o.DeepCopy()
				n.Labels, n.Status.ProviderID = map[string]string{"a": "b"}, "id"
				return n
			}
			one := both()
			must(t, c.Patch(t.Context(), one, client.MergeFrom(o)))
			if one.Labels["a"] != "b" || one.Status.ProviderID != "" {
				t.Errorf("after a patch of the object: %+v", one)
			}
			two := both()
			two.Labels = nil
			must(t, c.Status().Patch(t.Context(), two, client.MergeFrom(o)))
			if two.Labels["a"] != "b" || two.Status.ProviderID != "id" || two.Generation != 1 {
				t.Errorf("after a patch of the status: %+v", two)
			}
		},
		"a change of the spec is a new generation": func(t *testing.T, s *memapi.Server, c *memapi.Client) {
			o := claim("c")
			must(t, c.Create(t.Context(), o))
			old := o.DeepCopy()
			o.Spec.Taints = []corev1.Taint{{Key: "k", Effect: "NoSchedule"}}
			must(t, c.Patch(t.Context(), o, client.MergeFrom(old)))
			if o.Generation != 2 {
				t.Errorf("generation = %d", o.Generation)
			}
		},
		"finalizers keep a deleted object, and it goes with the last": func(t *testing.T, s *memapi.Server, c *memapi.Client) {
			o := claim("c")
			o.Finalizers = []string{"x/y"}
			must(t, c.Create(t.Context(), o))
			must(t, c.Delete(t.Context(), o))
			must(t, c.Get(t.Context(), client.ObjectKey{Name: "c"}, o))
			if o.DeletionTimestamp == nil {
				t.Error("no deletion time")
			}
			old := o.DeepCopy()
			o.Finalizers = nil
			must(t, c.Patch(t.Context(), o, client.MergeFrom(old)))
			if err := c.Get(t.Context(), client.ObjectKey{Name: "c"}, o); !apierrors.IsNotFound(err) {
				t.Errorf("get: %v", err)
			}
		},
		"what an owner leaves behind is deleted": func(t *testing.T, s *memapi.Server, c *memapi.Client) {
			o := claim("c")
			must(t, c.Create(t.Context(), o))
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", OwnerReferences: []metav1.OwnerReference{{UID: o.UID, Kind: "NodeClaim", Name: "c"}}}}
			must(t, c.Create(t.Context(), n))
			must(t, c.Delete(t.Context(), o))
			if left := memapi.All[*corev1.Node](s); len(left) > 0 {
				t.Errorf("%d nodes are left", len(left))
			}
		},
		"what an owner lets go of stays": func(t *testing.T, s *memapi.Server, c *memapi.Client) {
			o := claim("c")
			must(t, c.Create(t.Context(), o))
			owners := []metav1.OwnerReference{{UID: o.UID, Kind: "NodeClaim", Name: "c"}, {UID: "another", Kind: "NodeClaim", Name: "d"}}
			must(t, c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", OwnerReferences: owners}}))
			must(t, c.Delete(t.Context(), o, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
			left := memapi.All[*corev1.Node](s)
			if len(left) != 1 || !slices.Equal(left[0].OwnerReferences, owners[1:]) {
				t.Errorf("nodes = %v", left)
			}
			if claims := memapi.All[*v1.NodeClaim](s); len(claims) > 0 {
				t.Errorf("claims = %v", claims)
			}
		},
		"a delete for another incarnation conflicts": func(t *testing.T, s *memapi.Server, c *memapi.Client) {
			o := claim("c")
			must(t, c.Create(t.Context(), o))
			other := o.UID + "x"
			if err := c.Delete(t.Context(), o, client.Preconditions{UID: &other}); !apierrors.IsConflict(err) {
				t.Errorf("delete: %v", err)
			}
		},
		"a fault refuses a request": func(t *testing.T, s *memapi.Server, c *memapi.Client) {
			boom := errors.New("boom")
			s.SetFault(func(r memapi.Request) error {
				if r.Verb == "create" && r.Kind == "NodeClaim" && r.Client == "test" {
					return boom
				}
				return nil
			})
			if err := c.Create(t.Context(), claim("c")); !errors.Is(err, boom) {
				t.Errorf("create: %v", err)
			}
		},
		"a fault is asked about one request at a time": func(t *testing.T, s *memapi.Server, c *memapi.Client) {
			var asked sync.Mutex
			s.SetFault(func(memapi.Request) error {
				if !asked.TryLock() {
					t.Error("it is asked about two")
					return nil
				}
				defer asked.Unlock()
				time.Sleep(time.Millisecond) // others come
				return nil
			})
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() { must(t, c.Create(t.Context(), claim(fmt.Sprint("c", i)))) })
			}
			all.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := memapi.New(memapi.Scheme())
			test(t, s, s.Client("test"))
		})
	}
}

func TestEviction(t *testing.T) {
	budget := func(name string, allowed int32) *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		b.Spec.Selector = &metav1.LabelSelector{}
		b.Status.DisruptionsAllowed = allowed
		return b
	}
	for name, tc := range map[string]struct {
		budgets []*policyv1.PodDisruptionBudget
		is      func(error) bool
		ends    bool
	}{
		"a free pod is told to end":           {nil, func(err error) bool { return err == nil }, true},
		"a budget that allows it":             {[]*policyv1.PodDisruptionBudget{budget("a", 1)}, func(err error) bool { return err == nil }, true},
		"a budget that does not":              {[]*policyv1.PodDisruptionBudget{budget("a", 0)}, apierrors.IsTooManyRequests, false},
		"two budgets are more than it can do": {[]*policyv1.PodDisruptionBudget{budget("a", 1), budget("b", 1)}, apierrors.IsInternalError, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := memapi.New(memapi.Scheme())
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
			p.Spec.NodeName = "n"
			s.Put(p)
			for _, b := range tc.budgets {
				s.Put(b)
			}
			if err := s.Client("test").SubResource("eviction").Create(t.Context(), p, &policyv1.Eviction{}); !tc.is(err) {
				t.Errorf("eviction: %v", err)
			}
			if got := memapi.All[*corev1.Pod](s)[0].DeletionTimestamp != nil; got != tc.ends {
				t.Errorf("the pod ends: %v, want %v", got, tc.ends)
			}
		})
	}
}

func TestWatchSeesEverythingInOrderAndLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memapi.New(memapi.Scheme())
		s.Put(claim("old"))
		ctx, stop := context.WithCancel(t.Context())
		var seen []string
		var at []time.Duration
		start := time.Now()
		done := make(chan struct{})
		go func() {
			s.Watch(ctx, time.Second, func(e memapi.Event) {
				text := e.Object.GetName()
				if e.Deleted {
					text += " gone"
				}
				seen, at = append(seen, text), append(at, time.Since(start))
			}, func() { seen, at = append(seen, "listed"), append(at, time.Since(start)) })
			close(done)
		}()
		synctest.Wait()
		s.Put(claim("new"))
		s.Remove(claim("old"))
		time.Sleep(2 * time.Second)
		stop()
		<-done
		want := []string{"old", "listed", "new", "old gone"}
		for i := range want {
			if i >= len(seen) || seen[i] != want[i] {
				t.Fatalf("seen %v, want %v", seen, want)
			}
		}
		if at[1] != 0 || at[2] != time.Second || at[3] != time.Second {
			t.Errorf("seen at %v", at)
		}
	})
}

func TestACallThatIsCutShortAfterItsActLosesTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memapi.New(memapi.Scheme())
		c := s.Client("test")
		c.Delay = time.Second
		ctx, stop := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer stop()
		if err := c.Create(ctx, claim("c")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("create: %v", err)
		}
		if n := len(memapi.All[*v1.NodeClaim](s)); n != 1 {
			t.Errorf("%d claims, want the one that was created", n)
		}
	})
}

func claim(name string) *v1.NodeClaim {
	return &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
