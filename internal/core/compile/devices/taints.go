package devices

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"karpenter.sh/karpenter/internal/cluster"
)

// A tainting is the DeviceTaintRules that there are, and the slices with what the rules add. Each slice has one copy, since kinds
// of devices are remembered by slice.
type tainting struct {
	rules  []*resourcev1beta2.DeviceTaintRule
	copies map[*resourcev1.ResourceSlice]*resourcev1.ResourceSlice
}

// published returns the slices of a snapshot, with the taints of rules on their devices.
func (t *tainting) published(snap *cluster.Snapshot) []*resourcev1.ResourceSlice {
	all, rules := slices.Collect(cluster.ResourceSlices.All(snap)), slices.Collect(cluster.DeviceTaintRules.All(snap))
	if !slices.Equal(rules, t.rules) {
		t.rules, t.copies = rules, map[*resourcev1.ResourceSlice]*resourcev1.ResourceSlice{}
	}
	if len(rules) == 0 {
		return all
	}
	for i, s := range all {
		if t.copies[s] == nil {
			t.copies[s] = t.copyOf(s)
		}
		all[i] = t.copies[s]
	}
	return all
}

// copyOf returns a slice with the taints of rules, or the slice itself if there are none.
func (t *tainting) copyOf(s *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	out := s
	for i := range s.Spec.Devices {
		x := t.tainted(s.Spec.Driver, s.Spec.Pool.Name, &s.Spec.Devices[i])
		if x == &s.Spec.Devices[i] {
			continue
		}
		if out == s {
			out = s.DeepCopy()
		}
		out.Spec.Devices[i].Taints = x.Taints
	}
	return out
}

// tainted returns a device with the taints of rules, or the device itself if there are none. A machine that does not exist has no
// pool yet: a rule that names one is not about it.
func (t *tainting) tainted(driver, pool string, x *resourcev1.Device) *resourcev1.Device {
	out := x
	for _, r := range t.rules {
		if s := r.Spec.DeviceSelector; s != nil && (other(s.Driver, driver) || other(s.Pool, pool) || other(s.Device, x.Name)) {
			continue
		}
		if out == x {
			out = x.DeepCopy()
		}
		taint := &r.Spec.Taint
		out.Taints = append(out.Taints, resourcev1.DeviceTaint{Key: taint.Key, Value: taint.Value,
			Effect: resourcev1.DeviceTaintEffect(taint.Effect)})
	}
	return out
}

// other reports whether a selector asks for another value.
func other(want *string, have string) bool { return want != nil && *want != have }
