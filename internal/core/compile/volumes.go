package compile

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/volumes"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// bindCompleted is set by the volume controller once claim and volume belong to each other.
const bindCompleted = "pv.kubernetes.io/bind-completed"

// inTree maps provisioners that were once part of Kubernetes to the CSI drivers that took over.
var inTree = map[string]string{
	"kubernetes.io/aws-ebs":         "ebs.csi.aws.com",
	"kubernetes.io/gce-pd":          "pd.csi.storage.gke.io",
	"kubernetes.io/azure-disk":      "disk.csi.azure.com",
	"kubernetes.io/azure-file":      "file.csi.azure.com",
	"kubernetes.io/cinder":          "cinder.csi.openstack.org",
	"kubernetes.io/vsphere-volume":  "csi.vsphere.vmware.com",
	"kubernetes.io/portworx-volume": "pxd.portworx.com",
}

// VolumeNeeds are what the volumes of a cohort ask for.
type volumeNeeds struct {
	bad          reason.Count // Code 0 if the pods can be planned
	alternatives []label.Reqs // of which one must hold; nil: no condition
	mounts       []volumes.Volume
}

// A volumeReader turns volume claims into conditions on nodes and into what counts against the limits of drivers.
type volumeReader struct {
	snap    *cluster.Snapshot
	known   *apilabel.Vocabulary
	gone    map[string]bool // nodes that are treated as gone
	drivers numbers[string] // by name
	ids     numbers[volumeKey]
	disks   map[int]*diskKind // by number of their driver
	hosts   map[string]bool   // names of hosts that stay; nil until asked for
}

// readCohortVolumes works out what the volumes of a cohort ask for, from its first pod. It returns why the pods cannot be planned, Code 0
// if they can.
func (b *builder) readCohortVolumes(c *cohort, p *cluster.Pod) reason.Count {
	for _, name := range c.info.claimsOf(p.Name) {
		pvc := cluster.PVCs.Get(b.in.Snap, p.Namespace, name)
		if bad := b.volumes.checkClaim(pvc, name); bad.Code != 0 {
			return bad
		}
		if alts, any := b.volumes.claimTopology(pvc); any {
			c.volumes.alternatives = cross(c.volumes.alternatives, alts)
		}
		if b.volumes.wantsDisk(pvc) {
			c.volumes.mounts = append(c.volumes.mounts, b.volumes.mountsOfDisk(pvc)...)
		} else if driver := DriverOf(b.in.Snap, pvc); driver != "" {
			c.volumes.mounts = append(c.volumes.mounts, volumes.Volume{Driver: b.volumes.drivers.of(driver),
				ID: b.volumes.ids.of(volumeKey{p.Namespace, name, false})})
		}
	}
	for _, alt := range c.volumes.alternatives {
		b.mem.learn(alt, b.chosen)
	}
	return reason.Count{}
}

// checkClaim returns why pods with this volume claim cannot be planned; Code 0 if they can.
func (v *volumeReader) checkClaim(pvc *corev1.PersistentVolumeClaim, name string) reason.Count {
	bad := func(flaw reason.Flaw) reason.Count {
		return reason.Count{Code: reason.VolumeInvalid, Key: name, Flaw: flaw}
	}
	switch {
	case pvc == nil:
		return bad(reason.Missing)
	case pvc.DeletionTimestamp != nil:
		return bad(reason.Leaving)
	case pvc.Status.Phase == corev1.ClaimLost:
		return bad(reason.Lost)
	case pvc.Spec.VolumeName != "":
		pv := cluster.PVs.Get(v.snap, pvc.Spec.VolumeName)
		switch {
		case pv == nil:
			return bad(reason.VolumeMissing)
		case pv.DeletionTimestamp != nil:
			return bad(reason.VolumeLeaving)
		case pvc.Annotations[bindCompleted] == "":
			return bad(reason.NotBound)
		}
		return reason.Count{}
	}
	class := storageClassOf(pvc)
	if class == "" {
		return bad(reason.ClassNotNamed)
	}
	sc := cluster.StorageClasses.Get(v.snap, class)
	switch {
	case sc == nil:
		return reason.Count{Code: reason.VolumeInvalid, Key: name, Flaw: reason.ClassMissing, Detail: class}
	case sc.VolumeBindingMode == nil || *sc.VolumeBindingMode == storagev1.VolumeBindingImmediate:
		return bad(reason.BoundAtOnce)
	}
	return reason.Count{}
}

func storageClassOf(pvc *corev1.PersistentVolumeClaim) string {
	if pvc.Spec.StorageClassName != nil {
		return *pvc.Spec.StorageClassName
	}
	return ""
}

// claimTopology returns requirements on the node of which a volume claim needs one to be met, and false if there are none. A claim without
// a volume follows its storage class.
func (v *volumeReader) claimTopology(pvc *corev1.PersistentVolumeClaim) ([]label.Reqs, bool) {
	if pvc.Spec.VolumeName != "" {
		return v.volumeTopology(cluster.PVs.Get(v.snap, pvc.Spec.VolumeName))
	}
	sc := cluster.StorageClasses.Get(v.snap, storageClassOf(pvc))
	if sc == nil {
		return nil, false
	}
	var out []label.Reqs
	for _, term := range sc.AllowedTopologies {
		r := label.Reqs{}
		for _, x := range term.MatchLabelExpressions {
			r = r.With(v.known.Normalize(x.Key), label.Only(x.Values...))
		}
		if len(r) > 0 {
			out = append(out, r)
		}
	}
	return merged(out), len(out) > 0
}

// volumeTopology returns the same for a claim that is bound to a volume. A local disk names its host. If the host is gone, or about to go,
// its name is left out, because no other node could have it; what is left may ask for nothing.
func (v *volumeReader) volumeTopology(pv *corev1.PersistentVolume) ([]label.Reqs, bool) {
	terms := v.affinityOf(pv)
	if len(terms) == 0 {
		zone := v.zoneOf(pv)
		return []label.Reqs{zone}, len(zone) > 0
	}
	if pv.Spec.Local == nil && pv.Spec.HostPath == nil {
		return merged(terms), true
	}
	for i, term := range terms {
		if s, says := term.Get(corev1.LabelHostname); says && !v.stays(s) {
			terms[i] = term.Without(corev1.LabelHostname)
		}
	}
	return merged(terms), true
}

// affinityOf returns the terms of a volume's node affinity, each together with the zone and region on the volume's labels.
func (v *volumeReader) affinityOf(pv *corev1.PersistentVolume) []label.Reqs {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	var out []label.Reqs
	zone := v.zoneOf(pv)
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		r, _ := expressions(v.known, term.MatchExpressions) // no node meets an expression that is wrong
		out = append(out, zone.And(r))
	}
	return out
}

// stays reports whether one of these host names belongs to a node that stays.
func (v *volumeReader) stays(hosts label.Set) bool {
	if v.hosts == nil {
		v.hosts = map[string]bool{}
		for row := range v.snap.Nodes() {
			if !row.Incomplete && !row.MarkedForRemoval && !v.gone[row.Name] {
				v.hosts[row.Labels()[corev1.LabelHostname]] = true
			}
		}
	}
	return slices.ContainsFunc(hosts.Values(), func(h string) bool { return v.hosts[h] })
}

// placeLabels are the labels by which a volume may say where it is.
var placeLabels = []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
	corev1.LabelFailureDomainBetaRegion}

// zoneOf returns the zone and region on a volume's own labels. Old volumes, and some that users made, have labels instead of node affinity.
func (v *volumeReader) zoneOf(pv *corev1.PersistentVolume) label.Reqs {
	var out label.Reqs
	for _, key := range placeLabels {
		if value, ok := pv.Labels[key]; ok { // "a__b": it is in both zones
			out = out.With(v.known.Normalize(key), label.Only(strings.Split(value, "__")...))
		}
	}
	return out
}

// merged joins alternatives into one if all are about one key only, which lists values. Other alternatives are returned as they are.
func merged(alts []label.Reqs) []label.Reqs {
	if len(alts) < 2 || len(alts[0]) != 1 {
		return alts
	}
	key := alts[0][0].Key
	var values []string
	for _, a := range alts {
		if len(a) != 1 || a[0].Key != key || a[0].Set.Open() || a[0].Set.HasAbsent() {
			return alts
		}
		values = append(values, a[0].Set.Values()...)
	}
	return []label.Reqs{label.Reqs{}.With(key, label.Only(values...))}
}

// cross returns the alternatives of two volumes together: each of a with each of b, at most mostAlternatives. Combinations that contradict
// themselves are dropped. If all do, one is kept, so that the pod is refused for that reason. An empty a means no condition.
func cross(a, b []label.Reqs) []label.Reqs {
	if len(a) == 0 {
		return b[:min(len(b), mostAlternatives)]
	}
	var out []label.Reqs
	seen := map[string]bool{}
	for _, x := range a {
		for _, y := range b {
			r := x.And(y)
			if _, bad := r.Conflict(); bad || seen[r.Key()] || len(out) == mostAlternatives {
				continue
			}
			seen[r.Key()] = true
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return []label.Reqs{a[0].And(b[0])}
	}
	return out
}

// DriverOf returns the CSI driver that attaches a claim's volume; "" if it is not counted.
func DriverOf(snap *cluster.Snapshot, pvc *corev1.PersistentVolumeClaim) string {
	if pvc == nil {
		return ""
	}
	if pvc.Spec.VolumeName != "" {
		pv := cluster.PVs.Get(snap, pvc.Spec.VolumeName)
		switch {
		case pv == nil:
			return ""
		case pv.Spec.CSI != nil:
			return pv.Spec.CSI.Driver
		case pv.Spec.AWSElasticBlockStore != nil:
			return inTree["kubernetes.io/aws-ebs"]
		}
		return ""
	}
	sc := cluster.StorageClasses.Get(snap, storageClassOf(pvc))
	if sc == nil {
		return ""
	}
	if d, ok := inTree[sc.Provisioner]; ok {
		return d
	}
	return sc.Provisioner
}

// awaited returns the drivers that have to be registered on a node before kube-scheduler binds a pod with one of their volumes to it.
func (v *volumeReader) awaited() map[int]bool {
	var out map[int]bool
	for name, d := range v.drivers {
		if awaited(v.snap, name) {
			if out == nil {
				out = map[int]bool{}
			}
			out[d] = true
		}
	}
	return out
}

// awaited reports whether a driver has to be registered on a node first.
func awaited(snap *cluster.Snapshot, driver string) bool {
	d := cluster.CSIDrivers.Get(snap, driver)
	return d != nil && d.Spec.PreventPodSchedulingIfMissing != nil && *d.Spec.PreventPodSchedulingIfMissing
}

// driversOverdue reports whether a node has been initialised for so long that drivers which it lacks will not come. Until then they count
// as coming, so that no other node is bought for pods that wait for them. The time is twice seat.Longest, for which room is kept: after
// seat.Longest package bindfail decides what is tried, and needs to find the pods still planned for the node.
func (n *nodeInfo) driversOverdue(now time.Time) bool {
	if n.row.Node == nil || !n.initialized {
		return false
	}
	since, _ := n.row.InitializedSince()
	return ztime.Later(since, n.row.Node.CreationTimestamp.Time).Add(2 * seat.Longest).Before(now)
}

// AwaitsDriver reports whether kube-scheduler keeps a pod off a node until the driver of a volume has registered there.
func AwaitsDriver(snap *cluster.Snapshot, p *cluster.Pod, n *cluster.Node) bool {
	return slices.ContainsFunc(missingDrivers(snap, p, n), func(driver string) bool { return awaited(snap, driver) })
}

// HasDrivers reports whether a node has the drivers of all volumes of a pod.
func HasDrivers(snap *cluster.Snapshot, p *cluster.Pod, n *cluster.Node) bool {
	return len(missingDrivers(snap, p, n)) == 0
}

// missingDrivers returns the drivers of volumes of a pod that have not registered on a node.
func missingDrivers(snap *cluster.Snapshot, p *cluster.Pod, n *cluster.Node) (out []string) {
	for _, claim := range p.VolumeClaims() {
		driver := DriverOf(snap, cluster.PVCs.Get(snap, p.Namespace, claim))
		if _, ok := n.CSINode[driver]; driver != "" && !ok {
			out = append(out, driver)
		}
	}
	return out
}

// makeVolumes writes, for each node and driver, how many volumes are attached and how many may be. A driver without a known limit is not
// limited. A driver that pods must wait for has limit 0 on nodes where it is overdue. Disks are counted like the volumes of a driver.
func (b *builder) makeVolumes() {
	b.problem.Drivers = len(b.volumes.drivers)
	if len(b.volumes.drivers) == 0 {
		return
	}
	b.volumes.countDisks(b.w.nodes)
	b.promiseDisks()
	coming := map[string][]*expected{}
	for e := range b.withPlaces() {
		if len(e.info.claims)+len(e.info.ephemeral) > 0 {
			coming[e.target] = append(coming[e.target], e)
		}
	}
	awaited := b.volumes.awaited()
	for i, n := range b.w.nodes {
		if len(n.row.CSINode) == 0 && len(b.volumes.disks) == 0 && len(awaited) == 0 {
			continue
		}
		node := &b.problem.Nodes[i]
		node.Volumes = make([]volumes.Use, len(b.volumes.drivers))
		for name, d := range b.volumes.drivers {
			node.Volumes[d] = volumes.Use{Limit: -1}
			if limit, ok := n.row.CSINode[name]; ok {
				node.Volumes[d].Limit = int32(limit)
			} else if awaited[d] && n.driversOverdue(b.in.Now) {
				node.Volumes[d].Limit = 0
			}
		}
		for d, k := range b.volumes.disks {
			if n.row.Initialized() {
				node.Volumes[d].Limit = max(k.free[i], k.promised[i])
			}
		}
		b.volumes.countAttached(b.mem, n, coming[n.row.Name], node)
	}
}

// countAttached counts the distinct claims of the pods on a node, and of those that are expected there.
func (v *volumeReader) countAttached(m *Memory, n *nodeInfo, coming []*expected, node *problem.Node) {
	seen := map[volumeKey]bool{}
	for _, p := range n.pods {
		v.attach(node, p.Namespace, m.infoOf(p.Class).claimsOf(p.Name), seen)
	}
	for _, e := range coming {
		name := ""
		if e.pod != nil {
			name = e.pod.Name
		}
		v.attach(node, e.info.class.Namespace, e.info.claimsOf(name), seen)
	}
	slices.Sort(node.Mounted)
}

// attach counts the claims that were not seen before against their drivers, and notes in Mounted those that pods of this question use too.
func (v *volumeReader) attach(node *problem.Node, namespace string, claims []string, seen map[volumeKey]bool) {
	for _, name := range claims {
		key := volumeKey{namespace, name, false}
		if seen[key] {
			continue
		}
		seen[key] = true
		d, counted := v.drivers[DriverOf(v.snap, cluster.PVCs.Get(v.snap, namespace, name))]
		if !counted {
			continue
		}
		node.Volumes[d].Count++
		if id, shared := v.ids[key]; shared {
			node.Mounted = append(node.Mounted, id)
		}
	}
}

// claimsOf returns the names of the volume claims of a pod with this name: those that it names, and those made for its ephemeral volumes.
func (i *podInfo) claimsOf(pod string) []string {
	if len(i.ephemeral) == 0 {
		return i.claims
	}
	out := slices.Clone(i.claims)
	for _, v := range i.ephemeral {
		out = append(out, pod+"-"+v)
	}
	return out
}
