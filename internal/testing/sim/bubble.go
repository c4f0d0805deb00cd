package sim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// Bubble runs a test in a bubble of simulated time, with a cluster that has a pool and a node class named "default", and a Karpenter
// that has been running for a second. What the options leave open is quick: machines boot in two seconds, kubelets are
// ready in one, pods start and stop in one, machines stop in three.
func Bubble(t *testing.T, o Options, ko KarpenterOptions, test func(*testing.T, *World, *Karpenter)) {
	t.Helper()
	BubbleAlone(t, o, func(t *testing.T, w *World) {
		w.With(t, ko, func(k *Karpenter) {
			time.Sleep(time.Second)
			test(t, w, k)
		})
	})
}

// With runs a Karpenter while do does something.
func (w *World) With(t *testing.T, ko KarpenterOptions, do func(*Karpenter)) {
	ctx, stop := context.WithCancel(t.Context())
	if ko.Log != nil {
		ctx = telemetry.WithLog(ctx, ko.Log)
	}
	k := w.Karpenter(ko.withDefaults())
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	defer func() { stop(); <-done }()
	do(k)
}

// BubbleAlone is Bubble without a Karpenter.
func BubbleAlone(t *testing.T, o Options, test func(*testing.T, *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := New(o.withDefaults())
		if err != nil {
			t.Fatal(err)
		}
		w.API.Put(ReadyClass("default"))
		w.API.Put(Pool("default"))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		defer func() { stop(); <-done }()
		test(t, w)
	})
}

func (o Options) withDefaults() Options {
	if o.Cloud.Catalog == nil {
		o.Cloud.Catalog = Shop
	}
	if o.Cloud.Boot == nil {
		o.Cloud.Boot = func(cloud.Machine) time.Duration { return 2 * time.Second }
	}
	if o.Cloud.Shutdown == 0 {
		o.Cloud.Shutdown = 3 * time.Second
	}
	for _, d := range []*time.Duration{&o.ReadyAfter, &o.PodStart, &o.PodStop} {
		if *d == 0 {
			*d = time.Second
		}
	}
	return o
}

func (o KarpenterOptions) withDefaults() KarpenterOptions {
	if o.Name == "" {
		o.Name = "karpenter"
	}
	if o.Lag == 0 {
		o.Lag = 10 * time.Millisecond
	}
	return o
}

var shop = &cloud.Catalog{Types: []*cloud.InstanceType{Kind("large", 8, 0.4), Kind("small", 2, 0.1)}}

// Shop sells machines of 2 and of 8 CPUs, on demand, in zones a and b, to pools with the node class "default".
func Shop(p *v1.NodePool) (*cloud.Catalog, error) {
	if p.Spec.Template.Spec.NodeClassRef.Name != "default" {
		return nil, &cloud.ClassNotReadyError{Err: errors.New("no such class")}
	}
	return shop, nil
}

// Kind is an instance type with 16 GiB that is sold on demand in zones a and b.
func Kind(name string, cores int64, dollars float64) *cloud.InstanceType {
	t := fakecloud.Kind(name, cores, dollars, "a", "b")
	t.Capacity[corev1.ResourceMemory] = resource.MustParse("16Gi")
	return t
}

// Pool is a pool of the node class "default" whose nodes may be consolidated at once.
func Pool(name string) *v1.NodePool {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("pool-" + name)}}
	p.Spec.Template.Spec.NodeClassRef = Ref("default")
	p.Spec.Disruption.ConsolidateAfter = v1.After(0)
	p.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmptyOrUnderutilized
	return p
}

// Ref refers to a node class.
func Ref(class string) *v1.NodeClassReference {
	return &v1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: class}
}

// Claim is a claim of the pool "default" that any machine serves.
func Claim(name string, edits ...func(*v1.NodeClaim)) *v1.NodeClaim {
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			v1.NodePoolLabelKey: "default", "team": "a",
			v1.NodeClassLabelKey(awsv1.GroupVersion.WithKind(awsv1.Kind).GroupKind()): "default",
		},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1.GroupVersion.String(), Kind: "NodePool",
			Name: "default", UID: "pool-default"}},
	}}
	c.Spec.NodeClassRef = Ref("default")
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

// Pod is a pod that waits for a node.
func Pod(name, cpus string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)},
	}}}
	p.Status.Phase = corev1.PodPending
	for _, edit := range edits {
		edit(p)
	}
	return p
}

// OwnedBy makes a pod one of a ReplicaSet, so that it is made anew when it is evicted.
func OwnedBy(set string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set,
			UID: types.UID(set), Controller: new(true)}}
	}
}

// ScaleToZero deletes all pods for good.
func ScaleToZero(t *testing.T, w *World) {
	t.Helper()
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		memapi.Edit(w.API, p.Namespace, p.Name, func(p *corev1.Pod) { p.OwnerReferences = nil })
		Delete(t, w, p)
	}
}

// Create creates an object as a user does.
func Create(t *testing.T, w *World, o client.Object) {
	t.Helper()
	if err := w.API.Client("user").Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// Delete deletes an object as a user does.
func Delete(t *testing.T, w *World, o client.Object) {
	t.Helper()
	if err := w.API.Client("user").Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// Find returns the object of a name, the zero T if there is none.
func Find[T client.Object](w *World, name string) (found T, ok bool) {
	for _, o := range memapi.All[T](w.API) {
		if o.GetName() == name {
			return o, true
		}
	}
	return found, false
}

// Get returns the object of a name, and fails the test if there is none.
func Get[T client.Object](t *testing.T, w *World, name string) T {
	t.Helper()
	o, ok := Find[T](w, name)
	if !ok {
		t.Fatalf("there is no %T named %q", o, name)
	}
	return o
}

// WantNothing fails the test if a claim, a node or a machine is left.
func WantNothing(t *testing.T, w *World) {
	t.Helper()
	if claims, nodes, machines := len(memapi.All[*v1.NodeClaim](w.API)), len(memapi.All[*corev1.Node](w.API)),
		len(w.Cloud.Machines()); claims+nodes+machines > 0 {
		t.Errorf("%d claims, %d nodes and %d machines are left", claims, nodes, machines)
	}
}

// WantEvent fails the test if no event of a reason was published about an object.
func WantEvent(t *testing.T, k *Karpenter, reason, object string) {
	t.Helper()
	var have []string
	for _, e := range k.Events() {
		if e.Reason == reason && e.InvolvedObject.Name == object {
			return
		}
		have = append(have, e.Reason+" "+e.InvolvedObject.Name)
	}
	t.Errorf("no event %s of %s; there are %q", reason, object, have)
}
