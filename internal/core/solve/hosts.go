package solve

import (
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// Groups with the host name as topology key: every bin is a domain of its own.

func (cs *census) admitHosts(q *trial) verdict {
	code := cs.refusesHost(q.touches, q.bin)
	return verdict{code, code != 0 && code != reason.Affinity} // a pod that the affinity looks for may still join the bin
}

// refusesHost returns the kind of the first host-level group that keeps a pod off a bin, 0 if none does.
func (cs *census) refusesHost(t *touches, bin problem.BinID) reason.Code {
	for _, g := range t.host.shunned {
		if cs.groups[g].Repels(int(bin)) {
			return reason.AntiAffinity
		}
	}
	return cs.refusesOwners(t, bin)
}

// refusesOwners does so for the groups that the pods own. It may be asked about the next bin before that is opened: no pod repels there.
func (cs *census) refusesOwners(t *touches, bin problem.BinID) reason.Code {
	for i, g := range t.host.owned {
		if group := &cs.groups[g]; !group.Admits(int(bin), t.host.self[i], nil) {
			return codeOf(group.Kind)
		}
	}
	return 0
}

// codeOf returns the code of a refusal by a group of kind k.
func codeOf(k spread.Kind) reason.Code {
	switch k {
	case spread.Spread:
		return reason.Spread
	case spread.Affinity:
		return reason.Affinity
	default:
		return reason.AntiAffinity
	}
}

func (cs *census) takeHosts(q *trial, n int) { cs.record(&q.host, int32(q.bin), q.bin, n) }
