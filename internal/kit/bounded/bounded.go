// Package bounded brings the quantities of users' objects within limits when the objects enter the program. Kubernetes accepts
// quantities such as 1e40000000; to compare or add one computes a number of forty million digits and takes many seconds. After Object
// or Pod no quantity of an object is larger than Most or finer than a billionth, so all other code may compare and add them.
package bounded

import (
	"math"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// Most replaces every larger amount. As bytes it is an exabyte; no machine has it.
const Most = 1_000_000_000_000_000_000

// Limits of quantities that are not changed: the power of ten of their scale, and the bits of their digits.
const (
	mostScale = 20
	mostBits  = 256
)

// Quantities between these sizes are not changed, and their digits are not looked at, which is fast.
const (
	usualLeast = 1e-6
	usualMost  = 1e15
)

// within returns a quantity that is within the limits, and whether q was outside of them and had to be changed.
func within(q resource.Quantity) (resource.Quantity, bool) {
	if !q.IsZero() { // a zero may hide a scale that AsInt64 counts down
		if _, whole := q.AsInt64(); whole {
			return q, false
		}
		// Parsing keeps no more digits than a number of such a size needs, so the size alone shows that it is within the limits.
		if size := math.Abs(q.AsApproximateFloat64()); usualLeast <= size && size <= usualMost {
			return q, false
		}
	}
	copied := q
	d := copied.AsDec()
	scale, bits := int64(d.Scale()), int64(d.UnscaledBig().BitLen())
	if -mostScale <= scale && scale <= mostScale && bits <= mostBits {
		return q, false
	}
	digits := bits*30103/100000 + 1
	switch magnitude := digits - scale; {
	case q.IsZero() || magnitude < -9:
		return *resource.NewQuantity(int64(d.Sign()), q.Format), true // finer than a billionth: rounded up to one, as Kubernetes does
	case magnitude > 18 && d.Sign() > 0:
		return *resource.NewQuantity(Most, q.Format), true
	case magnitude > 18:
		return *resource.NewQuantity(-Most, q.Format), true
	default: // many digits, but of a usual size
		return *resource.NewMilliQuantity(q.MilliValue(), q.Format), true
	}
}

// outside reports whether a quantity of a list is outside of the limits.
func outside(list corev1.ResourceList) bool {
	for _, q := range list {
		if _, bad := within(q); bad {
			return true
		}
	}
	return false
}

func containersOutside(list []corev1.Container) bool {
	for i := range list {
		if outside(list[i].Resources.Requests) || outside(list[i].Resources.Limits) {
			return true
		}
	}
	return false
}

// Pod returns a pod whose quantities are within the limits: the pod itself, or a copy. It is faster than Object, because it looks only
// where pods have quantities; a pod with ephemeral or emptyDir volumes is passed to Object.
func Pod(p *corev1.Pod) *corev1.Pod {
	bad := containersOutside(p.Spec.Containers) || containersOutside(p.Spec.InitContainers) ||
		outside(p.Spec.Overhead) || outside(p.Status.AllocatedResources)
	if r := p.Spec.Resources; r != nil {
		bad = bad || outside(r.Requests) || outside(r.Limits)
	}
	for i := range p.Spec.Volumes {
		bad = bad || p.Spec.Volumes[i].Ephemeral != nil || p.Spec.Volumes[i].EmptyDir != nil
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		bad = bad || outside(s.AllocatedResources) || s.Resources != nil && (outside(s.Resources.Requests) || outside(s.Resources.Limits))
	}
	for i := range p.Status.InitContainerStatuses {
		s := &p.Status.InitContainerStatuses[i]
		bad = bad || outside(s.AllocatedResources) || s.Resources != nil && (outside(s.Resources.Requests) || outside(s.Resources.Limits))
	}
	if !bad {
		return p
	}
	return Object(p)
}

// Object returns an object whose quantities are within the limits: the object itself, or a copy.
func Object[T runtime.Object](o T) T {
	if !walk(reflect.ValueOf(o), false) {
		return o
	}
	copied := o.DeepCopyObject().(T)
	walk(reflect.ValueOf(copied), true)
	return copied
}

var quantityType = reflect.TypeFor[resource.Quantity]()

// walk reports whether a value holds a quantity outside of the limits. With mend it brings such quantities within them, in place.
func walk(v reflect.Value, mend bool) (found bool) {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && walk(v.Elem(), mend)
	case reflect.Interface:
		if v.IsNil() {
			return false
		}
		in, bad := walkCopy(v.Elem(), mend)
		if bad && mend {
			v.Set(in)
		}
		return bad
	case reflect.Struct:
		if v.Type() == quantityType {
			q, bad := within(v.Interface().(resource.Quantity))
			if bad && mend {
				v.Set(reflect.ValueOf(q))
			}
			return bad
		}
		for i := range v.NumField() {
			if f := v.Field(i); f.CanInterface() && walk(f, mend) {
				found = true
			}
		}
	case reflect.Slice, reflect.Array:
		if !mayHold(v.Type().Elem()) {
			return false
		}
		for i := range v.Len() {
			if walk(v.Index(i), mend) {
				found = true
			}
		}
	case reflect.Map:
		if !mayHold(v.Type().Elem()) {
			return false
		}
		for all := v.MapRange(); all.Next(); {
			in, bad := walkCopy(all.Value(), mend)
			if bad && mend {
				v.SetMapIndex(all.Key(), in)
			}
			found = found || bad
		}
	}
	return found
}

// walkCopy walks through a value that cannot be changed in place, in a map or an interface. With mend it returns a changed copy.
func walkCopy(v reflect.Value, mend bool) (out reflect.Value, found bool) {
	if mend {
		in := reflect.New(v.Type()).Elem()
		in.Set(v)
		v = in
	}
	return v, walk(v, mend)
}

// mayHold reports whether values of a type can hold quantities.
func mayHold(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Slice, reflect.Array, reflect.Map:
		return true
	}
	return false
}
