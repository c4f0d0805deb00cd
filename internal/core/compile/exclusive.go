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
	holder  *cluster.Pod // a pod that is not in this question and has the claim; nil: none
	first   *cluster.Pod // the pod of this question with the first right to it; see readExclusive
	planned bool         // first has a place from an earlier plan
	users   int          // pods of this question
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
			b.noteHolder(p)
		}
	}
	for row := range b.in.Snap.Nodes() {
		for _, p := range row.Pods {
			if !asked[p.PodKey] {
				b.noteHolder(p)
			}
		}
	}
}

// noteHolder notes a pod that is not in this question as the holder of the claims that it names.
func (b *builder) noteHolder(p *cluster.Pod) {
	for _, name := range b.mem.infoOf(p.Class).claims {
		if x := b.claims.exclusive[types.NamespacedName{Namespace: p.Namespace, Name: name}]; x != nil {
			x.holder = p
		}
	}
}

// heldFrom returns why a pod cannot have one of its volume claims now: another pod holds it. Code is 0 if none is held.
func (b *builder) heldFrom(p *cluster.Pod, claims []string) reason.Count {
	for _, name := range claims {
		if x := b.claims.exclusive[types.NamespacedName{Namespace: p.Namespace, Name: name}]; x != nil && x.holder != nil {
			return HeldBy(name, x.holder)
		}
	}
	return reason.Count{}
}

// HeldBy returns the refusal of a pod that needs a volume claim for one pod at a time, because another pod has it.
func HeldBy(claim string, by *cluster.Pod) reason.Count {
	return reason.Count{Code: reason.VolumeInvalid, Key: claim, Flaw: reason.InUseByAnother, Detail: by.Name}
}

// tieExclusive adds an anti-affinity over the whole cluster for each exclusive claim that several pods of this question want. So the plan
// places one of them. A cohort with the pod that has the first right is marked as first.
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
