package ledger

import (
	"math/bits"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/cloud"
)

// Reference prices an hour: of a thousandth of a core and of a GiB, as OpenCost has them. They only divide; what is divided is what
// the machine costs. Fixed ones keep the cost of a workload from changing with what others ask for.
const (
	milliCore = 31_611
	gibibyte  = 4_237_000
)

// accelerators are resources that take what is left of the price of a machine once cores and memory are paid by reference.
var accelerators = []corev1.ResourceName{"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi",
	"aws.amazon.com/neuron", "aws.amazon.com/neurondevice", "aws.amazon.com/neuroncore"}

// A size is what a machine has, or a pod asks for.
type size struct {
	milli, bytes int64
	accelerators int64
}

func sizeOf(list corev1.ResourceList) size {
	s := size{milli: list.Cpu().MilliValue(), bytes: list.Memory().Value()}
	for _, name := range accelerators {
		if q, ok := list[name]; ok && s.accelerators == 0 {
			s.accelerators = q.Value()
		}
	}
	return s
}

// weight is the price of a size by reference, with the price of one accelerator.
func (s size) weight(accelerator int64) int64 {
	hi, lo := bits.Mul64(uint64(max(s.bytes, 0)), gibibyte)
	return max(s.milli, 0)*milliCore + int64(hi<<34|lo>>30) + max(s.accelerators, 0)*accelerator
}

// accelerator returns what one accelerator of a machine is worth: what is left of the list price, 0 where that is nothing.
func (s size) accelerator(list cloud.NanoUSD) int64 {
	if s.accelerators == 0 {
		return 0
	}
	return max(0, int64(list)-s.weight(0)) / s.accelerators
}

// Rates are what a machine costs by unit and hour, in dollars.
type Rates struct {
	Core, GiB, Accelerator    float64
	Cores, GiBs, Accelerators float64
}

// RatesOf splits the price of a machine with some capacity, for metrics of nodes: price = Cores × Core + GiBs × GiB + Accelerators ×
// Accelerator. Its price on demand says what its accelerators are worth.
func RatesOf(capacity corev1.ResourceList, price, onDemand cloud.NanoUSD) Rates {
	s := sizeOf(capacity)
	one := s.accelerator(onDemand)
	r := Rates{Cores: float64(s.milli) / 1000, GiBs: float64(s.bytes) / (1 << 30), Accelerators: float64(s.accelerators)}
	whole := r.Cores*milliCore*1000 + r.GiBs*gibibyte + r.Accelerators*float64(one)
	if whole == 0 {
		return r
	}
	scale := price.Dollars() / whole
	r.Core, r.GiB, r.Accelerator = milliCore*1000*scale, gibibyte*scale, float64(one)*scale
	return r
}
