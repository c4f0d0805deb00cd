package lower

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"karpenter.sh/karpenter/internal/core/rule/volumes"
)

// noProvisioner is the provisioner of storage classes whose volumes no provisioner makes for a claim. As a rule
// they are disks of one node.
const noProvisioner = "kubernetes.io/no-provisioner"

// A diskKind is claims that the same disks suit. A node that is ready has those that are free; a new one brings its
// own, as many as it takes: who uses such a class has something that makes them, and where nothing does, the first
// new node shows it (see package bindfail).
type diskKind struct {
	class  string
	claim  *corev1.PersistentVolumeClaim // one of them; nil: all of the class
	driver int
	// By bin: disks that are free, and claims of pods that an earlier plan put there and that still wait for one.
	free, promised []int32
}

// wantsDisk reports whether a claim waits for a volume that another program makes.
func (b *builder) wantsDisk(pvc *corev1.PersistentVolumeClaim) bool {
	if pvc == nil || pvc.Spec.VolumeName != "" {
		return false
	}
	sc := b.in.Snap.StorageClass(storageClassOf(pvc))
	return sc != nil && sc.Provisioner == noProvisioner
}

// mountsOfDisk makes a claim count against the disks that suit it, and against all of its class: a disk that suits
// several kinds is there once.
func (b *builder) mountsOfDisk(pvc *corev1.PersistentVolumeClaim) []volumes.Volume {
	class, spec := storageClassOf(pvc), &pvc.Spec
	size := spec.Resources.Requests[corev1.ResourceStorage]
	wish := strings.Join([]string{string(modeOf(spec.VolumeMode)), strconv.FormatInt(size.Value(), 10),
		metav1.FormatLabelSelector(spec.Selector)}, " ")
	for _, mode := range spec.AccessModes {
		wish += " " + string(mode)
	}
	return []volumes.Volume{
		{Driver: b.diskKind(class, wish, pvc), ID: b.volumes.of(volumeKey{pvc.Namespace, pvc.Name, false})},
		{Driver: b.diskKind(class, "", nil), ID: b.volumes.of(volumeKey{pvc.Namespace, pvc.Name, true})},
	}
}

// diskKind returns the pseudo driver that counts the disks of a kind.
func (b *builder) diskKind(class, wish string, claim *corev1.PersistentVolumeClaim) int {
	d := b.drivers.of("disk/" + class + "/" + wish)
	if b.disks[d] == nil {
		if b.disks == nil {
			b.disks = map[int]*diskKind{}
		}
		b.disks[d] = &diskKind{class: class, claim: claim, driver: d}
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
		return !slices.Contains(
			pv.Spec.AccessModes, m)
	}) {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	return err == nil && (spec.Selector == nil || selector.Matches(labels.Set(pv.Labels)))
}

// floats reports whether some free volume that suits the claim is reached from more than one host.
func (b *builder) floats(pvc *corev1.PersistentVolumeClaim) bool {
	kind := diskKind{class: storageClassOf(pvc), claim: pvc}
	for pv := range b.in.Snap.PVs() {
		if kind.suits(pv) && b.hostsOf(pv) == nil {
			return true
		}
	}
	return false
}

// hostsOf returns the hosts that a volume's affinity names; nil if not every term names some.
func (b *builder) hostsOf(pv *corev1.PersistentVolume) []string {
	var out []string
	for _, term := range b.affinityOf(pv) {
		s, says := term.Get(corev1.LabelHostname)
		if !says || s.Open() {
			return nil
		}
		out = append(out, s.Values()...)
	}
	return out
}

// countDisks counts the free disks of nodes that are ready, and those that pods are promised there.
func (b *builder) countDisks() {
	if len(b.disks) == 0 {
		return
	}
	for _, k := range b.disks {
		k.free, k.promised = make([]int32, len(b.nodes)), make([]int32, len(b.nodes))
	}
	hosts := map[string][]int{}
	for i, n := range b.nodes {
		hosts[n.labels[corev1.LabelHostname]] = append(hosts[n.labels[corev1.LabelHostname]], i)
	}
	for pv := range b.in.Snap.PVs() {
		var kinds []*diskKind
		for _, k := range b.disks {
			if k.suits(pv) {
				kinds = append(kinds, k)
			}
		}
		if len(kinds) == 0 {
			continue
		}
		for _, i := range b.reaching(pv, hosts) {
			for _, k := range kinds {
				k.free[i]++
			}
		}
	}
	b.promiseDisks()
}

// reaching returns the bins from which a volume can be used.
func (b *builder) reaching(pv *corev1.PersistentVolume, hosts map[string][]int) []int {
	terms := b.affinityOf(pv)
	var out []int
	add := func(i int) {
		if len(terms) == 0 || slices.ContainsFunc(terms, b.nodes[i].allows) {
			out = append(out, i)
		}
	}
	named := b.hostsOf(pv)
	for _, h := range named {
		for _, i := range hosts[h] {
			add(i)
		}
	}
	for i := 0; named == nil && i < len(b.nodes); i++ {
		add(i)
	}
	return out
}

// promiseDisks counts the claims of pods that have a plan: what makes disks may need a moment once the node is ready.
func (b *builder) promiseDisks() {
	type use struct {
		bin int
		of  volumes.Volume
	}
	seen := map[use]bool{}
	for _, c := range b.cohorts {
		for _, p := range c.pods {
			bin, ok := b.plannedTo(p)
			for _, v := range c.volumes.mounts {
				if k := b.disks[v.Driver]; ok && k != nil && !seen[use{bin, v}] {
					seen[use{bin, v}] = true
					k.promised[bin]++
				}
			}
		}
	}
}
