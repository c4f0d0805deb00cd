package compile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// A shared claim is used by several waiting pods, and its volume is created where the first of them starts. All of them have to be in that
// zone, or on that host if it is a disk, although their specs do not say so.
type sharedClaim struct {
	claim   *corev1.PersistentVolumeClaim
	users   int
	cohorts []*cohort
	planned []string // nodes that pods outside of this batch were planned onto
	group   *group
}

// readShared ties the pods that share such a claim together, as if they asked to be near each other.
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

// readPlannedUsers notes the pods outside of this batch that will use a shared claim too.
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

// countPlannedUsers counts them in their zones.
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

// boundByPlace reports whether a claim gets its volume where its first pod is. A volume that many nodes may write
// at once is a file system, which has no place, unless it is a disk. A volume for one pod at a time is not shared.
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
