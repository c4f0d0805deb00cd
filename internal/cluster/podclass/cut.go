package podclass

import (
	corev1 "k8s.io/api/core/v1"
)

// cut returns the part of a pod's spec that decides where it may run. The result shares memory with the pod. keyOf must write what cut
// keeps.
func cut(pod *corev1.Pod) corev1.PodSpec {
	in := &pod.Spec
	return corev1.PodSpec{
		Volumes:                   cutVolumes(in.Volumes),
		InitContainers:            cutContainers(in.InitContainers, sizesOfInit(pod)),
		Containers:                cutContainers(in.Containers, sizesOf(pod)),
		NodeSelector:              in.NodeSelector,
		Affinity:                  cutAffinity(pod),
		SchedulerName:             in.SchedulerName,
		Tolerations:               in.Tolerations,
		Priority:                  in.Priority,
		PriorityClassName:         in.PriorityClassName,
		PreemptionPolicy:          in.PreemptionPolicy,
		Overhead:                  in.Overhead,
		TopologySpreadConstraints: in.TopologySpreadConstraints,
		ResourceClaims:            in.ResourceClaims,
		Resources:                 podLevel(pod),
		HostNetwork:               in.HostNetwork,
		HostUsers:                 usersOnHost(in),
		OS:                        in.OS,
	}
}

// cutVolumes keeps the volumes that can tie a pod to a place. Of a generic ephemeral volume it keeps only the name: what it asks for is
// in the claim that the control plane creates for it.
func cutVolumes(in []corev1.Volume) []corev1.Volume {
	var out []corev1.Volume
	for i := range in {
		switch v := &in[i]; {
		case v.PersistentVolumeClaim != nil:
			out = append(out, corev1.Volume{Name: v.Name,
				VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: v.PersistentVolumeClaim}})
		case v.Ephemeral != nil:
			out = append(out, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
		}
	}
	return out
}

// cutContainers keeps resources, host ports and the restart rules that matter for placement.
func cutContainers(in []corev1.Container, by sizes) []corev1.Container {
	out := make([]corev1.Container, len(in))
	for i := range in {
		c := &in[i]
		out[i] = corev1.Container{
			Resources:     corev1.ResourceRequirements{Limits: c.Resources.Limits, Requests: by.of(c), Claims: c.Resources.Claims},
			Ports:         hostPorts(c.Ports),
			RestartPolicy: c.RestartPolicy, RestartPolicyRules: restartsAll(c),
		}
	}
	return out
}

// hostPorts keeps the ports that occupy a port of the node.
func hostPorts(in []corev1.ContainerPort) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, p := range in {
		if p.HostPort != 0 {
			out = append(out, corev1.ContainerPort{HostPort: p.HostPort, HostIP: p.HostIP, Protocol: p.Protocol})
		}
	}
	return out
}

// restartsAll keeps the restart rule that restarts all containers, because only a kubelet that knows this rule can run the pod.
func restartsAll(c *corev1.Container) []corev1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		if action := c.RestartPolicyRules[i].Action; action == corev1.ContainerRestartRuleActionRestartAllContainers {
			return []corev1.ContainerRestartRule{{Action: action}}
		}
	}
	return nil
}

// usersOnHost keeps hostUsers=false of pods with hostNetwork, because only a kubelet that supports this combination can run the pod.
func usersOnHost(in *corev1.PodSpec) *bool {
	if in.HostNetwork && in.HostUsers != nil && !*in.HostUsers {
		return in.HostUsers
	}
	return nil
}

// resizeRefused reports whether the node said that it can never hold the size that the spec asks for.
func resizeRefused(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodResizePending {
			return c.Reason == corev1.PodReasonInfeasible
		}
	}
	return false
}

// sizes finds what a container counts for while it is being resized. It counts as kube-scheduler does, which would otherwise refuse a
// node on which we found room.
type sizes struct {
	statuses []corev1.ContainerStatus
	sidecars bool // the containers are init containers, of which only sidecars are resized
	refused  bool // the node cannot hold the new size
}

func sizesOf(pod *corev1.Pod) sizes {
	return sizes{statuses: pod.Status.ContainerStatuses, refused: resizeRefused(pod)}
}

func sizesOfInit(pod *corev1.Pod) sizes {
	return sizes{statuses: pod.Status.InitContainerStatuses, sidecars: true, refused: resizeRefused(pod)}
}

// of returns what the container counts for: for each resource the largest of the request in the spec, the request in the status, and
// what is allocated. If the resize was refused, the spec does not count. Without sizes in the status only the spec counts.
func (s sizes) of(c *corev1.Container) corev1.ResourceList {
	asked := c.Resources.Requests
	if s.sidecars && (c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways) {
		return asked
	}
	for i := range s.statuses {
		if status := &s.statuses[i]; status.Name == c.Name && status.Resources != nil {
			return resized(asked, status.Resources.Requests, status.AllocatedResources, s.refused)
		}
	}
	return asked
}

// podLevel returns the pod-level resources. While they are being resized they count as those of a container (sizes.of).
func podLevel(pod *corev1.Pod) *corev1.ResourceRequirements {
	asked, status := pod.Spec.Resources, pod.Status.Resources
	if asked == nil || len(asked.Requests) == 0 || status == nil {
		return asked
	}
	counts := resized(asked.Requests, status.Requests, pod.Status.AllocatedResources, resizeRefused(pod))
	out := &corev1.ResourceRequirements{Limits: asked.Limits, Requests: corev1.ResourceList{}}
	for name := range asked.Requests {
		out.Requests[name] = counts[name]
	}
	return out
}

// resized returns what counts while something is being resized: the largest of asked, has and allocated, without asked if it was refused.
func resized(asked, has, allocated corev1.ResourceList, refused bool) corev1.ResourceList {
	if refused {
		return larger(has, allocated)
	}
	return larger(asked, has, allocated)
}

// larger returns the component-wise maximum, and the first list itself while nothing exceeds it.
func larger(lists ...corev1.ResourceList) corev1.ResourceList {
	out, shared := lists[0], true
	for _, list := range lists[1:] {
		for name, q := range list {
			if have, ok := out[name]; ok && have.Cmp(q) >= 0 {
				continue
			}
			if shared {
				out, shared = out.DeepCopy(), false
			}
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[name] = q
		}
	}
	return out
}

// cutAffinity returns the pod's affinity. For a pod of a DaemonSet the controller adds a match on the name of one node to
// each required term; that is taken out, because every such pod would be a class of its own.
func cutAffinity(pod *corev1.Pod) *corev1.Affinity {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil ||
		!OwnedBy(pod, "DaemonSet") {
		return a
	}
	required := &corev1.NodeSelector{}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		term.MatchFields = nil
		if len(term.MatchExpressions) > 0 {
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, term)
		}
	}
	if len(required.NodeSelectorTerms) == 0 {
		required = nil
	}
	return &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  required,
			PreferredDuringSchedulingIgnoredDuringExecution: a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
		},
		PodAffinity:     a.PodAffinity,
		PodAntiAffinity: a.PodAntiAffinity,
	}
}

// OwnedBy reports whether some owner of the pod is of this kind of the apps group's current version.
func OwnedBy(pod *corev1.Pod, kind string) bool {
	for i := range pod.OwnerReferences {
		if r := &pod.OwnerReferences[i]; r.Kind == kind && r.APIVersion == "apps/v1" {
			return true
		}
	}
	return false
}
