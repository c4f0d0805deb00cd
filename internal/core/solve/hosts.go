package solve

import (
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// Groups whose domain is the host: every bin is one of its own. No pod has been counted on a new node.

func (cs *census) admitHosts(q *trial) verdict {
	code := cs.refusesHost(q.touches, q.bin)
	return verdict{code, code != 0 && code != reason.Affinity} // a friend may still come
}

// refusesHost says which group keeps a pod off a bin, 0 if none does.
func (cs *census) refusesHost(t *touches, bin problem.BinID) reason.Code {
	for _, g := range t.host.shunned {
		if cs.groups[g].Repels(int(bin)) {
			return reason.AntiAffinity
		}
	}
	return cs.refusesOwners(t, bin)
}

// refusesOwners asks the groups that the pods own about a bin, or about a bin that is not there yet.
func (cs *census) refusesOwners(t *touches, bin problem.BinID) reason.Code {
	for i, g := range t.host.owned {
		if group := &cs.groups[g]; !group.Admits(int(bin), t.host.self[i], nil) {
			return codeOf(group.Kind)
		}
	}
	return 0
}

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
