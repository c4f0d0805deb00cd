package compile

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/quota"
)

// up returns a quantity in the unit of its resource (thousandths for CPU), rounded up; down rounds down. Both stay within ±quantity.Max, so
// that absurd quantities are only too large and cannot overflow.
func up(name corev1.ResourceName, q *resource.Quantity) int64 { return amount(name, q, true) }

func down(name corev1.ResourceName, q *resource.Quantity) int64 { return amount(name, q, false) }

// amount is up if roundUp is set, else down.
func amount(name corev1.ResourceName, q *resource.Quantity, roundUp bool) int64 {
	if q.CmpInt64(quantity.Max/1000) > 0 && (name == corev1.ResourceCPU || q.CmpInt64(quantity.Max) > 0) {
		return quantity.Max
	}
	if q.CmpInt64(-quantity.Max/1000) < 0 {
		return -quantity.Max
	}
	var v int64
	unit := resource.Scale(0)
	if name == corev1.ResourceCPU {
		v, unit = q.MilliValue(), resource.Milli
	} else {
		v = q.Value()
	}
	if !roundUp && q.Cmp(*resource.NewScaledQuantity(v, unit)) < 0 { // Value and MilliValue round away from zero
		v--
	}
	return quantity.Clamp(v)
}

// written returns an amount in the unit of its resource as people write it, such as "500m", "2Gi" or "$1.5".
func written(name corev1.ResourceName, n int64) string {
	switch {
	case name == quota.Dollars:
		return "$" + strconv.FormatFloat(float64(n)/1e6, 'f', -1, 64)
	case name == corev1.ResourceCPU:
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(name),
		corev1.ResourceHugePagesPrefix):
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return resource.NewQuantity(n, resource.DecimalSI).String()
}

// A table gives resources their columns. Names that no machine has get none.
type table struct {
	names *quantity.Names
	had   map[corev1.ResourceName]bool // what some machine has
}

// capacity turns what a machine has into a vector. Assumed requests share the machine's CPU and memory.
func (t *table) capacity(list corev1.ResourceList) quantity.Vec {
	v := make(quantity.Vec, t.names.Len())
	for name, q := range list {
		if c := t.names.Lookup(string(name)); c >= 0 {
			v[c] = down(name, &q)
		}
	}
	t.setAssumed(v, v[quantity.CPU], v[quantity.Memory])
	return v
}

// setAssumed fills the columns of assumed requests, if there are any.
func (t *table) setAssumed(v quantity.Vec, cpu, memory int64) {
	if c := t.names.Lookup(quantity.AssumedCPU); c >= 0 {
		v[c] = cpu
	}
	if c := t.names.Lookup(quantity.AssumedMemory); c >= 0 {
		v[c] = memory
	}
}

// requests turns what a pod asks for into a vector. It also returns the first name, in alphabetical order, of a
// resource that no machine has.
func (t *table) requests(list corev1.ResourceList) (quantity.Vec, string) {
	v := make(quantity.Vec, t.names.Len())
	unknown := ""
	for name, q := range list {
		n := up(name, &q)
		if c := t.names.Lookup(string(name)); c >= 0 {
			v[c] = max(n, 0)
		} else if n > 0 && (unknown == "" || string(name) < unknown) {
			unknown = string(name)
		}
	}
	return v, unknown
}

// withSlot adds one of the resource "pods" to requests, in place: each pod takes one of those that its node may run.
func withSlot(requests corev1.ResourceList) corev1.ResourceList {
	requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return requests
}
