package overlay_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	control "karpenter.sh/karpenter/internal/control/overlay"
	"karpenter.sh/karpenter/internal/core/overlay"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// verdicts says what it is told to of every overlay.
type verdicts struct{ next overlay.Verdict }

func (v *verdicts) Verdicts(_ context.Context, snap *cluster.Snapshot) ([]*v1alpha1.NodeOverlay, []overlay.Verdict) {
	var objects []*v1alpha1.NodeOverlay
	var all []overlay.Verdict
	for o := range cluster.Overlays.All(snap) {
		objects, all = append(objects, o), append(all, v.next)
	}
	return objects, all
}

func TestOwnersHearWhatBecameOfTheirOverlay(t *testing.T) {
	for name, tc := range map[string]struct {
		verdict         overlay.Verdict
		status          metav1.ConditionStatus
		reason, message string
	}{
		"in force":  {overlay.Verdict{}, metav1.ConditionTrue, "ValidationSucceeded", ""},
		"senseless": {overlay.Verdict{Invalid: errors.New("spec.price: no")}, metav1.ConditionFalse, "RuntimeValidation", "spec.price: no"},
		"a price that another gives": {overlay.Verdict{Conflict: &v1alpha1.Conflict{With: "o", Pool: "p", Type: "t"}}, metav1.ConditionFalse, "Conflict",
			"conflict with another overlay of equal weight: NodeOverlay o gives the price of instance type t in NodePool p as well; give one of them another weight, or requirements that exclude each other"},
		"a resource that another gives": {overlay.Verdict{Conflict: &v1alpha1.Conflict{With: "o", Pool: "p", Type: "t", Resource: "example.com/x"}}, metav1.ConditionFalse, "Conflict",
			"conflict with another overlay of equal weight: NodeOverlay o gives the resource example.com/x of instance type t in NodePool p as well; give one of them another weight, or requirements that exclude each other"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				was := &v1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 3}}
				condition.SetFalse(was, v1alpha1.ConditionTypeValidationSucceeded, v1alpha1.ReasonFeatureGateDisabled, "the gate is off", time.Now())
				w.put(was)
				w.judge.next = tc.verdict
				w.runFor(3 * time.Second)
				got := w.read("a")
				c, ready := condition.Get(got, v1alpha1.ConditionTypeValidationSucceeded), condition.Get(got, v1alpha1.ConditionTypeReady)
				if c.Status != tc.status || c.Reason != tc.reason || c.Message != tc.message || c.ObservedGeneration != 3 || ready.Status != tc.status {
					t.Errorf("%+v, ready %+v", c, ready)
				}
				version := got.ResourceVersion
				w.runFor(time.Minute)
				if again := w.read("a"); again.ResourceVersion != version {
					t.Error("the same was written again")
				}
			})
		})
	}
}

// world is a server, the picture of it and the loop.
type world struct {
	t     *testing.T
	api   *memapi.Server
	store *cluster.Store
	judge *verdicts
}

func newWorld(t *testing.T) *world {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{t, memapi.New(scheme), cluster.NewStore(), &verdicts{}}
	w.store.Update(func(d *cluster.Draft) { d.Synced(true) })
	return w
}

func (w *world) put(o *v1alpha1.NodeOverlay) {
	w.api.Put(o)
	w.store.Update(func(d *cluster.Draft) { cluster.Overlays.Put(d, w.read(o.Name)) })
}

func (w *world) read(name string) *v1alpha1.NodeOverlay {
	w.t.Helper()
	o := &v1alpha1.NodeOverlay{}
	if err := w.api.Client("test").Get(w.t.Context(), client.ObjectKey{Name: name}, o); err != nil {
		w.t.Fatal(err)
	}
	return o
}

func (w *world) runFor(d time.Duration) {
	ctx, stop := context.WithTimeout(telemetry.WithLog(w.t.Context(), slog.New(slog.DiscardHandler)), d)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- control.New(w.store, w.api.Client("loop"), w.judge, nil).Run(ctx) }()
	if err := <-done; err != nil {
		w.t.Error(err)
	}
}

func TestAnOverlayThatGoesMeanwhileStopsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.Update(func(d *cluster.Draft) {
			cluster.Overlays.Put(d, &v1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "7"}})
		})
		w.put(&v1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
		w.runFor(3 * time.Second)
		if !condition.IsTrue(w.read("b"), v1alpha1.ConditionTypeReady) {
			t.Error("b was not told because a is gone")
		}
	})
}
