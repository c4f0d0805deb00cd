package compile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// An exclusiveClaim is a volume claim that one pod of the cluster may use at a time.
type exclusiveClaim struct {
	name    string
	holder  *cluster.Pod // has it already, and is not planned now
	first   *cluster.Pod // of the pods of this question, in the order of readExclusive
	planned bool         // first has a place from an earlier plan
	users   int
	cohorts []*cohort
}

// readExclusive finds the claims of mode ReadWriteOncePod that pods ask for, and the pods that run with them or have a place already. Among
// waiting pods the order is: highest priority, then a place from an earlier plan, then age. If the first finds no room, another gets it.
func (b *builder) readExclusive(pods []*cluster.Pod) {
	b.claims.exclusive = map[types.NamespacedName]*exclusiveClaim{}
	for _, p := range pods {
		for _, name := range b.mem.infoOf(p.Class).claims {
			pvc := cluster.PVCs.Get(b.in.Snap, p.Namespace, name)
			if pvc == nil || !slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteOncePod) {
				continue
			}
			planned := b.seats.seated[p.PodKey]
			key := types.NamespacedName{Namespace: p.Namespace, Name: name}
			x := b.claims.exclusive[key]
			if x == nil {
				x = &exclusiveClaim{name: name}
				b.claims.exclusive[key] = x
			}
			if x.first == nil || x.first.Priority < p.Priority || x.first.Priority == p.Priority && planned && !x.planned {
				x.first, x.planned = p, planned
			}
		}
	}
	if len(b.claims.exclusive) == 0 {
		return
	}
	asked := make(map[cluster.PodKey]bool, len(pods))
	for _, p := range pods {
		asked[p.PodKey] = true
	}
	for key := range b.in.Snap.Plans() {
		if p := b.in.Snap.Pod(key); p != nil && !asked[key] {
			b.leaveTo(p)
		}
	}
	for row := range b.in.Snap.Nodes() {
		for _, p := range row.Pods {
			if !asked[p.PodKey] {
				b.leaveTo(p)
			}
		}
	}
}

// leaveTo gives a pod that is not planned now the claims that it names.
func (b *builder) leaveTo(p *cluster.Pod) {
	for _, name := range b.mem.infoOf(p.Class).claims {
		if x := b.claims.exclusive[types.NamespacedName{Namespace: p.Namespace, Name: name}]; x != nil {
			x.holder = p
		}
	}
}

// heldFrom says why a pod has to do without a volume claim; Code 0 if it need not.
func (b *builder) heldFrom(p *cluster.Pod, claims []string) reason.Count {
	for _, name := range claims {
		if x := b.claims.exclusive[types.NamespacedName{Namespace: p.Namespace, Name: name}]; x != nil && x.holder != nil {
			return HeldBy(name, x.holder)
		}
	}
	return reason.Count{}
}

// HeldBy says that a pod has to do without a volume claim for one pod at a time, because another has it.
func HeldBy(claim string, by *cluster.Pod) reason.Count {
	return reason.Count{Code: reason.VolumeInvalid, Key: claim, Flaw: reason.InUseByAnother, Detail: by.Name}
}

// tieExclusive keeps pods that want such a claim apart, wherever they are.
func (b *builder) tieExclusive() {
	if len(b.claims.exclusive) == 0 {
		return
	}
	for _, c := range b.cohorts {
		for _, name := range c.info.claims {
			if x := b.claims.exclusive[types.NamespacedName{Namespace: c.info.class.Namespace, Name: name}]; x != nil {
				x.users += len(c.pods)
				x.cohorts = append(x.cohorts, c)
			}
		}
	}
	for _, key := range sortedClaims(b.claims.exclusive) {
		x := b.claims.exclusive[key]
		if x.users < 2 {
			continue
		}
		g := b.topology.groups.intern(group{kind: spread.Anti, key: everywhere, required: true, owned: true, claim: true,
			selector: usersOf(key)})
		for _, c := range x.cohorts {
			c.apart = append(slices.Clip(c.apart), g.id)
			c.groups = append(slices.Clip(c.groups), g.id)
			c.exclusive = append(c.exclusive, x.name)
			c.first = c.first || slices.Contains(c.pods, x.first)
		}
	}
}
