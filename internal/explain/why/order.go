package why

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/reason"
)

// fixes are the reasons in the order in which a person would deal with them: first what is wrong with the pod, then what a line of YAML
// settles, then what asks for other machines, last what only time or others can change.
var fixes = []reason.Code{
	reason.Invalid, reason.RestrictedLabel, reason.VolumeInvalid, reason.DeviceInvalid, reason.DeviceClaims,
	reason.DevicesUnread, reason.AvoidsManaged, reason.NoPools,
	reason.Limit, reason.Quota, reason.Taint, reason.LabelUnknown, reason.LabelMismatch, reason.NodeFeature,
	reason.NoTypes, reason.MinValues,
	reason.Spread, reason.AntiAffinity, reason.Affinity, reason.HostPort, reason.VolumeLimit, reason.DeviceAt,
	reason.Devices, reason.DeviceUnknown, reason.DeviceCEL, reason.DeviceHard,
	reason.TooLarge, reason.NoShape, reason.NoOffering, reason.Reservation, reason.Closed,
	reason.UninitializedOnly, reason.OnTrial, reason.Spurned, reason.Postponed, reason.NotReached, reason.LeftAside,
}

// InOrder sorts reasons by what a person would deal with first; of equal ones the reason that rules out most comes first.
func InOrder(counts []reason.Count) []reason.Count {
	return slices.SortedStableFunc(slices.Values(counts), func(a, b reason.Count) int {
		return cmp.Or(cmp.Compare(slices.Index(fixes, a.Code), slices.Index(fixes, b.Code)),
			cmp.Compare(b.Candidates, a.Candidates), cmp.Compare(a.Key, b.Key))
	})
}
