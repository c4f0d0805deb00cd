package compile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// A sharedClaim is a volume claim that several waiting pods use, and that gets its volume where the first of them starts. All of them have
// to be in that zone, or on that host if it is a disk, although their specs do not say so.
type sharedClaim struct {
	claim   *corev1.PersistentVolumeClaim
	users   int // of this batch, and those in planned
	cohorts []*cohort
	planned []string // for each expected pod that will use the claim: the node onto which it was planned
	group   *group   // ties the users together; nil if there is no need
}

// readShared ties the pods that share such a claim together, by a group like that of required pod affinity. A claim with one user needs
// none, and neither does a claim that may get a disk which several hosts reach.
func (b *builder) readShared() {
	b.claims.shared = map[types.NamespacedName]*sharedClaim{}
	for _, c := range b.cohorts {
		for _, name := range c.info.claims {
			pvc := cluster.PVCs.Get(b.in.Snap, c.info.class.Namespace, name)
			if !b.volumes.boundByPlace(pvc) {
				continue
			}
			key := types.NamespacedName{Namespace: c.info.class.Namespace, Name: name}
			if b.claims.shared[key] == nil {
				b.claims.shared[key] = &sharedClaim{claim: pvc}
			}
			b.claims.shared[key].users += len(c.pods)
			b.claims.shared[key].cohorts = append(b.claims.shared[key].cohorts, c)
		}
	}
	if len(b.claims.shared) == 0 {
		return
	}
	b.readPlannedUsers()
	for _, key := range sortedClaims(b.claims.shared) {
		s := b.claims.shared[key]
		place := corev1.LabelTopologyZone
		if b.volumes.wantsDisk(s.claim) {
			place = corev1.LabelHostname
		}
		if s.users < 2 || place == corev1.LabelHostname && b.volumes.floats(s.claim) {
			continue
		}
		s.group = b.topology.groups.intern(group{kind: spread.Affinity, key: place, required: true, owned: true, claim: true,
			selector: usersOf(key)})
		for _, c := range s.cohorts {
			c.near = append(c.near, s.group.id)
			c.groups = append(slices.Clip(c.groups), s.group.id)
		}
	}
}

// readPlannedUsers notes the expected pods that wait for a node and will use a shared claim, too.
func (b *builder) readPlannedUsers() {
	for i := range b.seats.expected {
		e := &b.seats.expected[i]
		if e.pod == nil || e.pod.NodeName != "" {
			continue
		}
		for _, name := range e.info.claims {
			if s := b.claims.shared[types.NamespacedName{Namespace: e.pod.Namespace, Name: name}]; s != nil {
				s.users++
				s.planned = append(s.planned, e.target)
			}
		}
	}
}

// countPlannedUsers counts these pods in the group of each shared claim: in the zone of the node onto which they were planned, or on that
// node if the volume is a disk. Otherwise pods of this batch could be planned for another zone than a pod that is on its way.
func (b *builder) countPlannedUsers(cr *counter) {
	for _, s := range b.claims.shared {
		if s.group == nil {
			continue
		}
		out := &b.problem.Groups[s.group.id]
		for _, node := range s.planned {
			if d, ok := cr.domainOf(s.group, out.Key, node); ok {
				out.Add(d, 1)
			}
		}
	}
}

// boundByPlace reports whether a claim has no volume yet and gets it where its first pod is. It leaves out ReadWriteMany volumes, which are
// network file systems that every node can reach, unless they are disks; and ReadWriteOncePod volumes, which are never shared.
func (v *volumeReader) boundByPlace(pvc *corev1.PersistentVolumeClaim) bool {
	if pvc == nil || pvc.Spec.VolumeName != "" || slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteOncePod) {
		return false
	}
	if slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteMany) && !v.wantsDisk(pvc) {
		return false
	}
	sc := cluster.StorageClasses.Get(v.snap, storageClassOf(pvc))
	return sc != nil && sc.VolumeBindingMode != nil && *sc.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}
