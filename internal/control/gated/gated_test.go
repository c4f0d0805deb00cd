package gated_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bufferv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/api/condition"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/control/gated"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

func server(t *testing.T) *memapi.Server {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, bufferv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return memapi.New(scheme)
}

// runFor runs the loop for a while and waits until it has stopped.
func runFor(t *testing.T, api *memapi.Server, g gated.Gates, d time.Duration) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := gated.New(api.Client("test"), g, nil).Run(ctx); err != nil {
			t.Error(err)
		}
	})
	wait.Wait()
}

func read[T client.Object](t *testing.T, api *memapi.Server, into T, namespace, name string) T {
	t.Helper()
	if err := api.Client("test").Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
		t.Fatal(err)
	}
	return into
}

func overlay(name string) *v1alpha1.NodeOverlay {
	return &v1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
}

func buffer(name string, edit func(*bufferv1beta1.CapacityBuffer)) *bufferv1beta1.CapacityBuffer {
	b := &bufferv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1, CreationTimestamp: metav1.Now()}}
	if edit != nil {
		edit(b)
	}
	return b
}

func TestOverlaysAreToldWhileTheirGateIsOff(t *testing.T) {
	for name, tc := range map[string]struct {
		gates gated.Gates
		want  bool
	}{
		"off": {gated.Gates{}, true},
		"on":  {gated.Gates{NodeOverlay: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := server(t)
				api.Put(overlay("a"))
				runFor(t, api, tc.gates, 3*time.Minute)
				got := read(t, api, &v1alpha1.NodeOverlay{}, "", "a")
				c := condition.Get(got, v1alpha1.ConditionTypeValidationSucceeded)
				if told := c != nil && c.Reason == v1alpha1.ReasonFeatureGateDisabled && condition.IsFalse(got, v1alpha1.ConditionTypeReady); told != tc.want {
					t.Errorf("conditions = %v, want told: %t", got.Status.Conditions, tc.want)
				}
			})
		})
	}
}

func TestAnOverlayIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := server(t)
		api.Put(overlay("a"))
		writes := 0
		api.SetFault(func(r memapi.Request) error {
			if r.Verb == "patch" {
				writes++
			}
			return nil
		})
		runFor(t, api, gated.Gates{}, 10*time.Minute)
		if writes != 1 {
			t.Errorf("%d writes in ten minutes, want one", writes)
		}
	})
}

func TestBuffers(t *testing.T) {
	foreign := "someone-elses/strategy"
	for name, tc := range map[string]struct {
		edit  func(*bufferv1beta1.CapacityBuffer)
		after time.Duration
		want  bool // ours is among the conditions
	}{
		"a buffer that nobody looks after is told":                  {nil, 5 * time.Minute, true},
		"a young buffer may still find another autoscaler":          {nil, 90 * time.Second, false},
		"a buffer with another strategy is not meant for Karpenter": {func(b *bufferv1beta1.CapacityBuffer) { b.Spec.ProvisioningStrategy = &foreign }, 5 * time.Minute, false},
		"a buffer that another autoscaler serves is left alone": {func(b *bufferv1beta1.CapacityBuffer) {
			b.Status.Conditions = []metav1.Condition{{Type: "ReadyForProvisioning", Status: "True", Reason: "Served", LastTransitionTime: metav1.Now()}}
		}, 5 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := server(t)
				api.Put(buffer("b", tc.edit))
				runFor(t, api, gated.Gates{}, tc.after)
				got := read(t, api, &bufferv1beta1.CapacityBuffer{}, "default", "b")
				c := condition.Get(got, bufferv1beta1.ConditionTypeReadyForProvisioning)
				if told := c != nil && c.Reason == bufferv1beta1.ReasonFeatureGateDisabled; told != tc.want {
					t.Errorf("conditions = %v, want told: %t", got.Status.Conditions, tc.want)
				}
				if condition.Get(got, bufferv1beta1.ConditionTypeProvisioning) != nil {
					t.Errorf("conditions = %v, want no word of room that was never looked for", got.Status.Conditions)
				}
			})
		})
	}
}

// A buffer that says that its room is there, because the gate was on, must not go on saying so.
func TestABufferWhoseGateWasSwitchedOffSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := server(t)
		api.Put(buffer("b", func(b *bufferv1beta1.CapacityBuffer) {
			condition.Set(b, metav1.Condition{Type: bufferv1beta1.ConditionTypeReadyForProvisioning, Status: "True", Reason: bufferv1beta1.ReasonResolved}, time.Now())
			condition.Set(b, metav1.Condition{Type: bufferv1beta1.ConditionTypeProvisioning, Status: "True", Reason: bufferv1beta1.ReasonFitsExistingCapacity}, time.Now())
			b.Status.Replicas = new(int32(3))
			b.Status.PodTemplateGeneration = new(int64(1))
			b.Status.PodTemplateRef = &bufferv1beta1.LocalObjectRef{Name: "t"}
		}))
		writes := 0
		api.SetFault(func(r memapi.Request) error {
			if r.Verb == "patch" {
				writes++
			}
			return nil
		})
		runFor(t, api, gated.Gates{}, 10*time.Minute)
		got := read(t, api, &bufferv1beta1.CapacityBuffer{}, "default", "b")
		for kind, reason := range map[string]string{
			bufferv1beta1.ConditionTypeReadyForProvisioning: bufferv1beta1.ReasonFeatureGateDisabled,
			bufferv1beta1.ConditionTypeProvisioning:         bufferv1beta1.ReasonNotReadyForProvisioning,
		} {
			if c := condition.Get(got, kind); c.Status != metav1.ConditionFalse || c.Reason != reason {
				t.Errorf("%s is %s because of %s, want False because of %s", kind, c.Status, c.Reason, reason)
			}
		}
		if s := got.Status; s.Replicas != nil || s.PodTemplateRef != nil || s.PodTemplateGeneration != nil {
			t.Errorf("status = %+v, want no word of pods", s)
		}
		if writes != 1 {
			t.Errorf("%d writes in ten minutes, want one", writes)
		}
	})
}

func TestKindsThatAreNotInstalledAreNoProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		api := memapi.New(scheme)
		api.Put(overlay("a"))
		runFor(t, api, gated.Gates{}, 3*time.Minute)
		if condition.Get(read(t, api, &v1alpha1.NodeOverlay{}, "", "a"), v1alpha1.ConditionTypeReady) == nil {
			t.Error("the overlay was not told because buffers are not installed")
		}
	})
}
