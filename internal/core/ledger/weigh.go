package ledger

import (
	"math/bits"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/cloud"
)

// Reference prices of a thousandth of a core and of a GiB for an hour, in nano-dollars, as OpenCost has them. They only divide the cost of
// a machine. Because they are fixed, the cost of a workload does not change with what other workloads request.
const (
	milliCore = 31_611
	gibibyte  = 4_237_000
)

// accelerators are resources that get the rest of a machine's price, after cores and memory at reference prices.
var accelerators = []corev1.ResourceName{"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi",
	"aws.amazon.com/neuron", "aws.amazon.com/neurondevice", "aws.amazon.com/neuroncore"}

// A size is what a machine has, or a pod requests.
type size struct {
	milli, bytes int64
	accelerators int64
}

// sizeOf reads a list of resources. Of several sorts of accelerators only the first one in accelerators counts.
func sizeOf(list corev1.ResourceList) size {
	s := size{milli: list.Cpu().MilliValue(), bytes: list.Memory().Value()}
	for _, name := range accelerators {
		if q, ok := list[name]; ok && s.accelerators == 0 {
			s.accelerators = q.Value()
		}
	}
	return s
}

// weight returns the price of a size at reference prices, with accelerator as the price of one accelerator.
func (s size) weight(accelerator int64) int64 {
	hi, lo := bits.Mul64(uint64(max(s.bytes, 0)), gibibyte)
	return max(s.milli, 0)*milliCore + int64(hi<<34|lo>>30) + max(s.accelerators, 0)*accelerator
}

// accelerator returns the price of one accelerator of a machine: the rest of the list price after cores and memory, at least 0, shared
// evenly.
func (s size) accelerator(list cloud.NanoUSD) int64 {
	if s.accelerators == 0 {
		return 0
	}
	return max(0, int64(list)-s.weight(0)) / s.accelerators
}

// Rates are what one core, GiB and accelerator of a machine cost, in dollars an hour, and how many of each the machine has.
type Rates struct {
	Core, GiB, Accelerator    float64
	Cores, GiBs, Accelerators float64
}

// RatesOf splits the price of a machine with this capacity, for metrics of nodes: price = Cores × Core + GiBs × GiB + Accelerators ×
// Accelerator. onDemand is its on-demand price, which decides the share of accelerators.
func RatesOf(capacity corev1.ResourceList, price, onDemand cloud.NanoUSD) Rates {
	s := sizeOf(capacity)
	perAccelerator := float64(s.accelerator(onDemand))
	r := Rates{Cores: float64(s.milli) / 1000, GiBs: float64(s.bytes) / (1 << 30), Accelerators: float64(s.accelerators)}
	reference := r.Cores*milliCore*1000 + r.GiBs*gibibyte + r.Accelerators*perAccelerator // price at reference prices
	if reference == 0 {
		return r
	}
	scale := price.Dollars() / reference // so that the rates add up to the price
	r.Core, r.GiB, r.Accelerator = milliCore*1000*scale, gibibyte*scale, perAccelerator*scale
	return r
}
