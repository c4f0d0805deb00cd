package cli

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster/podclass"
)

// expand adds the pods that controllers would create for the workloads in the files. Pods that a workload has
// already, in files or in the cluster, count towards its replicas. It returns an error if the workloads would have
// more than most pods.
func (o *objects) expand(most int) error {
	o.identifyAll()
	all := o.replicatedWorkloads()
	pods := 0
	for _, r := range all {
		if pods += r.pods; pods > most {
			return fmt.Errorf("%s %s/%s: with its %d replicas the files have more than %d pods; plan for fewer "+
				"replicas", r.kind, r.meta.Namespace, r.meta.Name, r.pods, most)
		}
	}
	for _, r := range all {
		if r.set != nil {
			o.addStatefulPods(r.set)
		} else {
			o.addReplicas(r.workload, r.pods)
		}
	}
	return nil
}

// A replicated is a workload with a fixed number of pods.
type replicated struct {
	workload
	pods int                 // that it should have in all; those that exist count towards them
	set  *appsv1.StatefulSet // the workload itself if it is a StatefulSet, else nil
}

// replicatedWorkloads lists the workloads whose pods a controller would create. ReplicaSets of a Deployment and
// suspended Jobs are left out. CronJobs are among the jobs already (oneRun); the planner itself places DaemonSets.
func (o *objects) replicatedWorkloads() []replicated {
	var out []replicated
	for _, d := range o.apps.deployments {
		out = append(out, replicated{workload: workload{"apps/v1", "Deployment", &d.ObjectMeta, &d.Spec.Template},
			pods: replicaCount(d.Spec.Replicas)})
	}
	for _, r := range o.apps.replicaSets {
		if metav1.GetControllerOf(r) == nil { // the Deployment creates the pods of its ReplicaSets
			out = append(out, replicated{workload: workload{"apps/v1", "ReplicaSet", &r.ObjectMeta, &r.Spec.Template},
				pods: replicaCount(r.Spec.Replicas)})
		}
	}
	for _, s := range o.apps.statefulSets {
		out = append(out, replicated{workload: workload{"apps/v1", "StatefulSet", &s.ObjectMeta, &s.Spec.Template},
			pods: replicaCount(s.Spec.Replicas), set: s})
	}
	for _, j := range o.apps.jobs {
		if j.Spec.Suspend != nil && *j.Spec.Suspend {
			continue
		}
		n := replicaCount(j.Spec.Parallelism)
		if j.Spec.Completions != nil {
			n = min(n, int(*j.Spec.Completions))
		}
		out = append(out, replicated{workload: workload{"batch/v1", "Job", &j.ObjectMeta, &j.Spec.Template}, pods: n})
	}
	return out
}

// oneRun returns the Job that a CronJob creates when its time has come.
func oneRun(c *batchv1.CronJob) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: *c.Spec.JobTemplate.ObjectMeta.DeepCopy(), Spec: *c.Spec.JobTemplate.Spec.DeepCopy()}
	j.Namespace, j.Name = c.Namespace, c.Name+"-run"
	if c.Spec.Suspend != nil && *c.Spec.Suspend {
		j.Spec.Suspend = c.Spec.Suspend
	}
	return j
}

// applyPodDefaults completes pods as the API server does, as far as placement depends on it: requests default to
// limits, ports of a pod on the host's network are ports of the host, and a RuntimeClass adds overhead, selector and
// tolerations.
func (o *objects) applyPodDefaults() {
	for _, p := range o.pods {
		o.applyRuntimeClass(p)
		for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			podclass.RequestLimits(list)
			for i := range list {
				for j := range list[i].Ports {
					if port := &list[i].Ports[j]; p.Spec.HostNetwork && port.HostPort == 0 {
						port.HostPort = port.ContainerPort
					}
				}
			}
		}
	}
}

// applyRuntimeClass adds the overhead, node selector and tolerations of the pod's RuntimeClass. It does nothing if
// the class is not known.
func (o *objects) applyRuntimeClass(p *corev1.Pod) {
	i := slices.IndexFunc(o.runtimeClasses, func(c *nodev1.RuntimeClass) bool {
		return p.Spec.RuntimeClassName != nil && c.Name == *p.Spec.RuntimeClassName
	})
	if i < 0 {
		return
	}
	class := o.runtimeClasses[i]
	if class.Overhead != nil && p.Spec.Overhead == nil {
		p.Spec.Overhead = class.Overhead.PodFixed
	}
	if class.Scheduling == nil {
		return
	}
	for key, value := range class.Scheduling.NodeSelector {
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = map[string]string{}
		}
		p.Spec.NodeSelector[key] = value
	}
	p.Spec.Tolerations = append(p.Spec.Tolerations, class.Scheduling.Tolerations...)
}

// replicaCount returns a number of replicas; nil is the default of one.
func replicaCount(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// identifyAll gives objects the namespace "default" and the UID that they lack in files. The store and the planner
// tell objects apart by these.
func (o *objects) identifyAll() {
	namespaced := func(m *metav1.ObjectMeta, kind string) {
		if m.Namespace == "" {
			m.Namespace = metav1.NamespaceDefault
		}
		identify(m, kind)
	}
	for _, p := range o.pods {
		namespaced(&p.ObjectMeta, "Pod")
	}
	for _, d := range o.apps.deployments {
		namespaced(&d.ObjectMeta, "Deployment")
	}
	for _, r := range o.apps.replicaSets {
		namespaced(&r.ObjectMeta, "ReplicaSet")
	}
	for _, s := range o.apps.statefulSets {
		namespaced(&s.ObjectMeta, "StatefulSet")
	}
	for _, j := range o.apps.jobs {
		namespaced(&j.ObjectMeta, "Job")
	}
	for _, d := range o.apps.daemonSets {
		namespaced(&d.ObjectMeta, "DaemonSet")
	}
	for _, b := range o.apps.pdbs {
		namespaced(&b.ObjectMeta, "PodDisruptionBudget")
	}
	for _, c := range o.volumes.pvcs {
		namespaced(&c.ObjectMeta, "PersistentVolumeClaim")
	}
	for _, s := range o.services {
		namespaced(&s.ObjectMeta, "Service")
	}
	for _, b := range o.buffers {
		namespaced(&b.ObjectMeta, "CapacityBuffer")
	}
	for _, t := range o.apps.podTemplates {
		namespaced(&t.ObjectMeta, "PodTemplate")
	}
	o.identifyDevices(namespaced)
	for _, p := range o.pools {
		identify(&p.ObjectMeta, "NodePool")
	}
	for _, n := range o.nodes {
		identify(&n.ObjectMeta, "Node")
	}
	for _, c := range o.claims {
		identify(&c.ObjectMeta, "NodeClaim")
	}
}

// identify gives an object without a UID a UID made of its kind, namespace and name.
func identify(m *metav1.ObjectMeta, kind string) {
	if m.UID == "" {
		m.UID = types.UID(kind + "/" + m.Namespace + "/" + m.Name)
	}
}

// A workload is an object whose controller creates pods from a template.
type workload struct {
	apiVersion, kind string
	meta             *metav1.ObjectMeta
	template         *corev1.PodTemplateSpec
}

// ownedPods returns the names of pods that belong to a workload, directly or through a ReplicaSet, and have not
// ended. Owners are compared by name too, because a workload in a file has another UID than the same workload in the
// cluster.
func (o *objects) ownedPods(w workload) map[string]bool {
	owners := map[types.UID]bool{w.meta.UID: true}
	for _, r := range o.apps.replicaSets {
		if ref := metav1.GetControllerOf(r); ref != nil && r.Namespace == w.meta.Namespace &&
			(ref.UID == w.meta.UID || ref.Kind == w.kind && ref.Name == w.meta.Name) {
			owners[r.UID] = true
		}
	}
	names := map[string]bool{}
	for _, p := range o.pods {
		ref := metav1.GetControllerOf(p)
		if ref != nil && p.Namespace == w.meta.Namespace && (owners[ref.UID] || ref.Kind == w.kind &&
			ref.Name == w.meta.Name) && !ended(p) {
			names[p.Name] = true
		}
	}
	return names
}

// ended reports whether a pod has run to its end or is being deleted.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil
}

// addReplicas adds the pods that a workload lacks to have as many as want.
func (o *objects) addReplicas(w workload, want int) {
	have := o.ownedPods(w)
	for i := 0; len(have) < want; i++ {
		if name := fmt.Sprintf("%s-%d", w.meta.Name, i); !have[name] {
			have[name] = true
			o.pods = append(o.pods, w.pod(name))
		}
	}
}

// pod returns one pod made of the template.
func (w workload) pod(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *w.template.ObjectMeta.DeepCopy(), Spec: *w.template.Spec.DeepCopy()}
	p.Name, p.Namespace, p.UID = name, w.meta.Namespace, types.UID("Pod/"+w.meta.Namespace+"/"+name)
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: w.apiVersion, Kind: w.kind, Name: w.meta.Name,
		UID: w.meta.UID, Controller: new(true)}}
	return p
}

// addStatefulPods adds the pods that a StatefulSet lacks, each with its fixed name, its labels, and the volume claims
// made from templates.
func (o *objects) addStatefulPods(s *appsv1.StatefulSet) {
	w := workload{"apps/v1", "StatefulSet", &s.ObjectMeta, &s.Spec.Template}
	have := o.ownedPods(w)
	claims := map[types.NamespacedName]bool{}
	for _, c := range o.volumes.pvcs {
		claims[nameOf(c)] = true
	}
	first := 0
	if s.Spec.Ordinals != nil {
		first = int(s.Spec.Ordinals.Start)
	}
	for i := first; i < first+replicaCount(s.Spec.Replicas); i++ {
		name := fmt.Sprintf("%s-%d", s.Name, i)
		if have[name] {
			continue
		}
		p := w.pod(name)
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[appsv1.StatefulSetPodNameLabel], p.Labels[appsv1.PodIndexLabel] = name, fmt.Sprint(i)
		for _, template := range s.Spec.VolumeClaimTemplates {
			claim := template.DeepCopy()
			claim.Name, claim.Namespace = template.Name+"-"+name, s.Namespace
			identify(&claim.ObjectMeta, "PersistentVolumeClaim")
			if !claims[nameOf(claim)] {
				o.volumes.pvcs = append(o.volumes.pvcs, claim)
			}
			p.Spec.Volumes = append(slices.DeleteFunc(p.Spec.Volumes,
				func(v corev1.Volume) bool { return v.Name == template.Name }), corev1.Volume{
				Name: template.Name, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}})
		}
		o.pods = append(o.pods, p)
	}
}

// fillPriorities sets the priority that the class name of each pod means, and returns the names of unknown classes,
// sorted. Pods with such a class get priority 0.
func (o *objects) fillPriorities() (unknown []string) {
	values := map[string]int32{"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}
	standard := int32(0)
	for _, c := range o.priorityClasses {
		values[c.Name] = c.Value
		if c.GlobalDefault {
			standard = c.Value
		}
	}
	for _, p := range o.pods {
		if p.Spec.Priority != nil {
			continue
		}
		value, ok := values[p.Spec.PriorityClassName]
		if p.Spec.PriorityClassName == "" {
			value, ok = standard, true
		}
		if !ok && !slices.Contains(unknown, p.Spec.PriorityClassName) {
			unknown = append(unknown, p.Spec.PriorityClassName)
		}
		p.Spec.Priority = &value
	}
	slices.Sort(unknown)
	return unknown
}

// addEphemeralClaims adds the volume claims that Kubernetes creates for generic ephemeral volumes.
func (o *objects) addEphemeralClaims() {
	have := map[types.NamespacedName]bool{}
	for _, c := range o.volumes.pvcs {
		have[nameOf(c)] = true
	}
	for _, p := range o.pods {
		for i := range p.Spec.Volumes {
			v := &p.Spec.Volumes[i]
			name := p.Name + "-" + v.Name
			if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil ||
				have[types.NamespacedName{Namespace: p.Namespace, Name: name}] {
				continue
			}
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.Namespace},
				Spec: *v.Ephemeral.VolumeClaimTemplate.Spec.DeepCopy()}
			claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID,
				Controller: new(true)}}
			identify(&claim.ObjectMeta, "PersistentVolumeClaim")
			o.volumes.pvcs = append(o.volumes.pvcs, claim)
		}
	}
}

// ebs is the driver that makes EBS volumes.
const ebs = "ebs.csi.aws.com"

// assumeStorageClasses adds the StorageClasses that claims name and no file holds: of EBS volumes that are created
// where their pod goes, as clusters on EC2 have them. It returns their names, sorted.
func (o *objects) assumeStorageClasses() (assumed []string) {
	known := map[string]bool{}
	for _, c := range o.volumes.storageClasses {
		known[c.Name] = true
	}
	for _, c := range o.volumes.pvcs {
		if c.Spec.VolumeName != "" {
			continue
		}
		if c.Spec.StorageClassName == nil {
			c.Spec.StorageClassName = new("default")
		}
		name := *c.Spec.StorageClassName
		if name == "" || known[name] {
			continue
		}
		known[name] = true
		assumed = append(assumed, name)
		o.volumes.storageClasses = append(o.volumes.storageClasses, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: ebs,
			VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
		})
	}
	slices.Sort(assumed)
	return assumed
}

// applyDefaultClass sets the default StorageClass on claims that name none.
func (o *objects) applyDefaultClass() {
	standard := ""
	for _, c := range o.volumes.storageClasses {
		if c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			standard = c.Name
		}
	}
	for _, c := range o.volumes.pvcs {
		if c.Spec.StorageClassName == nil && standard != "" {
			c.Spec.StorageClassName = &standard
		}
	}
}

// markUnschedulable gives pods without a node the condition that kube-scheduler gives them, because the engine plans
// only for such pods. It leaves out pods with scheduling gates, and returns their names.
func (o *objects) markUnschedulable() (gated []string) {
	for _, p := range o.pods {
		switch {
		case p.Spec.NodeName != "" || ended(p):
		case len(p.Spec.SchedulingGates) > 0:
			gated = append(gated, p.Namespace+"/"+p.Name)
		default:
			p.Status.Phase = corev1.PodPending
			p.Status.Conditions = append(slices.DeleteFunc(p.Status.Conditions,
				func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }),
				corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable})
		}
	}
	return gated
}
