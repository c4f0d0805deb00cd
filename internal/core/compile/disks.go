package compile

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/rule/volumes"
)

// noProvisioner marks storage classes without a provisioner: their volumes exist before the claim, or another program makes them. As a
// rule they are disks of one node.
const noProvisioner = "kubernetes.io/no-provisioner"

// A diskKind counts the disks that suit equal claims. A ready node offers its free disks. A new node is assumed to bring as many as needed,
// because users of such a class run a program that makes them. If none does, the first new node shows it (see package bindfail).
type diskKind struct {
	class  string
	claim  *corev1.PersistentVolumeClaim // one of them; nil: all of the class
	driver int
	// By bin: disks that are free, and claims of pods that an earlier plan put there and that still wait for one.
	free, promised []int32
}

// wantsDisk reports whether a claim waits for a volume that another program makes.
func (v *volumeReader) wantsDisk(pvc *corev1.PersistentVolumeClaim) bool {
	if pvc == nil || pvc.Spec.VolumeName != "" {
		return false
	}
	sc := cluster.StorageClasses.Get(v.snap, storageClassOf(pvc))
	return sc != nil && sc.Provisioner == noProvisioner
}

// mountsOfDisk returns the two counts that a claim takes part in: the disks that suit it, and all disks of its class. The second is needed
// because a disk that suits claims of several kinds can serve only one of them.
func (v *volumeReader) mountsOfDisk(pvc *corev1.PersistentVolumeClaim) []volumes.Volume {
	class, spec := storageClassOf(pvc), &pvc.Spec
	size := spec.Resources.Requests[corev1.ResourceStorage]
	wish := strings.Join([]string{string(modeOf(spec.VolumeMode)), strconv.FormatInt(size.Value(), 10),
		metav1.FormatLabelSelector(spec.Selector)}, " ")
	for _, mode := range spec.AccessModes {
		wish += " " + string(mode)
	}
	return []volumes.Volume{
		{Driver: v.diskKind(class, wish, pvc), ID: v.ids.of(volumeKey{pvc.Namespace, pvc.Name, false})},
		{Driver: v.diskKind(class, "", nil), ID: v.ids.of(volumeKey{pvc.Namespace, pvc.Name, true})},
	}
}

// diskKind returns the pseudo driver that counts the disks of a kind.
func (v *volumeReader) diskKind(class, wish string, claim *corev1.PersistentVolumeClaim) int {
	d := v.drivers.of("disk/" + class + "/" + wish)
	if v.disks[d] == nil {
		if v.disks == nil {
			v.disks = map[int]*diskKind{}
		}
		v.disks[d] = &diskKind{class: class, claim: claim, driver: d}
	}
	return d
}

func modeOf(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

// suits reports whether a volume is free and a claim of the kind could be bound to it.
func (k *diskKind) suits(pv *corev1.PersistentVolume) bool {
	if pv.Spec.StorageClassName != k.class || pv.Status.Phase != corev1.VolumeAvailable || pv.Spec.ClaimRef != nil ||
		pv.DeletionTimestamp != nil {
		return false
	}
	if k.claim == nil {
		return true
	}
	spec := &k.claim.Spec
	size := spec.Resources.Requests[corev1.ResourceStorage]
	if have := pv.Spec.Capacity[corev1.ResourceStorage]; have.Cmp(size) < 0 || modeOf(pv.Spec.VolumeMode) != modeOf(spec.VolumeMode) {
		return false
	}
	if slices.ContainsFunc(spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return !slices.Contains(pv.Spec.AccessModes, m)
	}) {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	return err == nil && (spec.Selector == nil || selector.Matches(labels.Set(pv.Labels)))
}

// floats reports whether some free volume that suits the claim is reached from more than one host.
func (v *volumeReader) floats(pvc *corev1.PersistentVolumeClaim) bool {
	kind := diskKind{class: storageClassOf(pvc), claim: pvc}
	for pv := range cluster.PVs.All(v.snap) {
		if kind.suits(pv) && v.hostsOf(pv) == nil {
			return true
		}
	}
	return false
}

// hostsOf returns the hosts that a volume's affinity names; nil if not every term names some.
func (v *volumeReader) hostsOf(pv *corev1.PersistentVolume) []string {
	var out []string
	for _, term := range v.affinityOf(pv) {
		s, says := term.Get(corev1.LabelHostname)
		if !says || s.Open() {
			return nil
		}
		out = append(out, s.Values()...)
	}
	return out
}

// countDisks counts the free disks of nodes that are ready.
func (v *volumeReader) countDisks(nodes []*nodeInfo) {
	if len(v.disks) == 0 {
		return
	}
	for _, k := range v.disks {
		k.free, k.promised = make([]int32, len(nodes)), make([]int32, len(nodes))
	}
	hosts := map[string][]int{}
	for i, n := range nodes {
		hosts[n.labels[corev1.LabelHostname]] = append(hosts[n.labels[corev1.LabelHostname]], i)
	}
	for pv := range cluster.PVs.All(v.snap) {
		var kinds []*diskKind
		for _, k := range v.disks {
			if k.suits(pv) {
				kinds = append(kinds, k)
			}
		}
		if len(kinds) == 0 {
			continue
		}
		for _, i := range v.reaching(pv, nodes, hosts) {
			for _, k := range kinds {
				k.free[i]++
			}
		}
	}
}

// reaching returns the bins from which a volume can be used.
func (v *volumeReader) reaching(pv *corev1.PersistentVolume, nodes []*nodeInfo, hosts map[string][]int) []int {
	terms := v.affinityOf(pv)
	var out []int
	add := func(i int) {
		if len(terms) == 0 || slices.ContainsFunc(terms, nodes[i].allows) {
			out = append(out, i)
		}
	}
	named := v.hostsOf(pv)
	for _, h := range named {
		for _, i := range hosts[h] {
			add(i)
		}
	}
	for i := 0; named == nil && i < len(nodes); i++ {
		add(i)
	}
	return out
}

// promiseDisks counts the disk claims of pods that an earlier plan put on a node. The program that makes disks may need a moment once the
// node is ready; until then these pods may stay planned for it.
func (b *builder) promiseDisks() {
	if len(b.volumes.disks) == 0 {
		return
	}
	type use struct {
		bin int
		of  volumes.Volume
	}
	seen := map[use]bool{}
	for _, c := range b.cohorts {
		for _, p := range c.pods {
			bin, ok := b.plannedTo(p)
			for _, v := range c.volumes.mounts {
				if k := b.volumes.disks[v.Driver]; ok && k != nil && !seen[use{bin, v}] {
					seen[use{bin, v}] = true
					k.promised[bin]++
				}
			}
		}
	}
}
