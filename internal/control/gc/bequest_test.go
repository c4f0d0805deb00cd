package gc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// estate is a cloud that knows machines of Provisioners, and nothing else.
type estate struct {
	cloud.Provider
	machines []cloud.Machine
}

func (e *estate) Inherited(context.Context) ([]cloud.Machine, error) { return e.machines, nil }

func (e *estate) NodeClassKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{{Group: "example.org", Version: "v1", Kind: "Class"}}
}

// oneMachine is a world with a machine of Provisioner web, which is an orphan too, and a pool that stands in for web.
type oneMachine struct {
	pool   *v1.NodePool
	claims []*v1.NodeClaim // of the API
	noNode bool
}

// machine is the one there is.
var machine = cloud.Machine{ProviderID: "id-1", Provisioner: "web", ClaimName: "old"}

func (w *oneMachine) start(t *testing.T) (*Loop, *memapi.Server) {
	t.Helper()
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	api, store := memapi.New(known), cluster.NewStore()
	for _, c := range w.claims {
		api.Put(c)
	}
	store.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, w.pool)
		if !w.noNode {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1.ProvisionerLabelKey: "web"}}}
			node.Spec.ProviderID = machine.ProviderID
			d.PutNode(node)
		}
	})
	return New(Deps{
		Store: store, Client: api.Client("gc"), Events: telemetry.NewEvents(nil, nil), Cloud: &estate{machines: []cloud.Machine{machine}},
	}), api
}

func heirOfWeb(edits ...func(*v1.NodePool)) *v1.NodePool {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "heir", Annotations: map[string]string{v1.ProvisionerAnnotationKey: "web"}}}
	p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "example.org", Kind: "Class", Name: "default"}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

// TestWhoseMachineItIs looks twice at a machine that a Provisioner had.
func TestWhoseMachineItIs(t *testing.T) {
	claim := func(name string, edit func(*v1.NodeClaim)) []*v1.NodeClaim {
		c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		edit(c)
		return []*v1.NodeClaim{c}
	}
	for name, tc := range map[string]struct {
		world  oneMachine
		claims int
		left   bool // to garbage collection
	}{
		"the heir's":                       {oneMachine{pool: heirOfWeb()}, 1, false},
		"nobody's":                         {oneMachine{pool: heirOfWeb(func(p *v1.NodePool) { p.Annotations = nil })}, 0, true},
		"a stranger's":                     {oneMachine{pool: heirOfWeb(func(p *v1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Group = "example.net" })}, 0, true},
		"another heir's":                   {oneMachine{pool: heirOfWeb(func(p *v1.NodePool) { p.Annotations[v1.ProvisionerAnnotationKey] = "batch" })}, 0, true},
		"a claim has it":                   {oneMachine{pool: heirOfWeb(), claims: claim("x", func(c *v1.NodeClaim) { c.Status.ProviderID = "id-1" })}, 0, false},
		"a claim is adopting it":           {oneMachine{pool: heirOfWeb(), claims: claim("x", func(c *v1.NodeClaim) { c.Annotations = map[string]string{v1.AdoptsAnnotationKey: "id-1"} })}, 0, false},
		"a claim of its name is":           {oneMachine{pool: heirOfWeb(), claims: claim("old", func(*v1.NodeClaim) {})}, 0, false},
		"it has no Node, for a short time": {oneMachine{pool: heirOfWeb(), noNode: true}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, api := tc.world.start(t)
				var orphans []cloud.Machine
				for range 2 {
					var err error
					if orphans, err = l.inherit(t.Context(), []cloud.Machine{machine}, claimIndex{}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(14 * time.Minute)
				}
				claims := len(memapi.All[*v1.NodeClaim](api)) - len(tc.world.claims)
				if claims != tc.claims || (len(orphans) > 0) != tc.left {
					t.Errorf("%d claims were made and %d machines left to garbage collection, want %d and left = %v", claims, len(orphans), tc.claims, tc.left)
				}
			})
		})
	}
}

// TestHowLongAMachineIsAloneIsCountedWhileItCanBeKnown: time in which the picture was not fed, or nobody stood in, does not count.
func TestHowLongAMachineIsAloneIsCountedWhileItCanBeKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := heirOfWeb()
		l, api := (&oneMachine{pool: pool, noNode: true}).start(t)
		made := func() int {
			if _, err := l.inherit(t.Context(), nil, claimIndex{}); err != nil {
				t.Fatal(err)
			}
			return len(memapi.All[*v1.NodeClaim](api))
		}
		for _, step := range []struct {
			edit func(d *cluster.Draft)
			then time.Duration
		}{
			{func(d *cluster.Draft) { d.FailedFeeds([]cluster.FailedFeed{{}}) }, time.Hour},
			{func(d *cluster.Draft) { d.FailedFeeds(nil) }, 10 * time.Minute},
			{func(d *cluster.Draft) { cluster.Pools.Delete(d, "heir") }, time.Hour},
			{func(d *cluster.Draft) { cluster.Pools.Put(d, pool) }, 10 * time.Minute},
		} {
			l.Store.Update(step.edit)
			if n := made(); n > 0 {
				t.Fatalf("%d claims, although it was alone for ten minutes at most", n)
			}
			time.Sleep(step.then)
		}
		if made() > 0 {
			t.Fatal("a claim after ten minutes")
		}
		time.Sleep(5 * time.Minute)
		if made() != 1 {
			t.Error("no claim after fifteen minutes")
		}
	})
}
