package lower

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/reason"
)

// An exclusive table says which pod has, or gets, each volume claim that one pod of the cluster may use at a time.
type exclusive map[string]*cluster.Pod

// readExclusive gives each claim of mode ReadWriteOncePod to the pod that runs with it or has a place already, else to the weightiest
// and oldest of those that ask for it and could be planned.
func (b *builder) readExclusive(pods []*cluster.Pod) exclusive {
	out := exclusive{}
	for _, p := range pods {
		for _, name := range b.mem.infoOf(p.Class).claims {
			if pvc := b.in.Snap.PVC(p.Namespace, name); pvc == nil || !slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteOncePod) || b.hopeless(p) {
				continue
			}
			key := p.Namespace + "/" + name
			if first := out[key]; first == nil || first.Priority < p.Priority {
				out[key] = p
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	for key := range b.in.Snap.Plans() {
		if p := b.in.Snap.Pod(key); p != nil {
			out.leaveTo(b, p)
		}
	}
	for row := range b.in.Snap.Nodes() {
		for _, p := range row.Pods {
			out.leaveTo(b, p)
		}
	}
	return out
}

// hopeless reports whether a pod cannot be planned whatever room there is, so that it needs no claim.
func (b *builder) hopeless(p *cluster.Pod) bool {
	info := b.mem.infoOf(p.Class)
	return len(info.invalid) > 0 || slices.ContainsFunc(info.claims, func(name string) bool { return b.checkClaim(b.in.Snap.PVC(p.Namespace, name), name).Code != 0 })
}

// leaveTo gives a pod that is not planned now the claims that it names.
func (x exclusive) leaveTo(b *builder, p *cluster.Pod) {
	if b.batch[p.PodKey] {
		return
	}
	for _, name := range b.mem.infoOf(p.Class).claims {
		if key := p.Namespace + "/" + name; x[key] != nil {
			x[key] = p
		}
	}
}

// refusal says why a pod has to do without a volume claim; Code 0 if it need not.
func (x exclusive) refusal(p *cluster.Pod, claims []string) reason.Count {
	for _, name := range claims {
		if has := x[p.Namespace+"/"+name]; has != nil && has.PodKey != p.PodKey {
			return reason.Count{Code: reason.VolumeInvalid, Key: name, Detail: "may be used by one pod at a time, and that is " + has.Name}
		}
	}
	return reason.Count{}
}
