package cluster

import (
	"iter"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"

	"karpenter.sh/karpenter/internal/kit/bounded"
)

// A Spare marks a row that stands for a pod that a CapacityBuffer keeps room for. Such a pod does not exist: it is in no table of
// pods, no plan is noted for it, and it is not counted among the pods of users.
type Spare struct {
	Buffer string // its name; the namespace is the row's
	At     string // the claim or the node that has room for it, "" while there is none
}

// Spares are the rows of one buffer.
type Spares struct {
	Namespace, Buffer string
	Pods              []*Pod
	// Placed reports whether it was worked out where there is room for them. Until then it is not known which nodes they rest on.
	Placed bool
}

func (s *Spares) key() objectKey { return objectKey{s.Namespace, s.Buffer} }

// PutBuffer adds or replaces a CapacityBuffer.
func (d *Draft) PutBuffer(b *autoscalingv1beta1.CapacityBuffer) { d.buffers.put(bounded.Object(b)) }

// DeleteBuffer removes a CapacityBuffer and its spares.
func (d *Draft) DeleteBuffer(namespace, name string) {
	d.buffers.delete(objectKey{namespace, name})
	d.DropSpares(namespace, name)
}

// PutPodTemplate adds or replaces a PodTemplate.
func (d *Draft) PutPodTemplate(t *corev1.PodTemplate) { d.templates.put(bounded.Object(t)) }

// DeletePodTemplate removes a PodTemplate.
func (d *Draft) DeletePodTemplate(namespace, name string) {
	d.templates.delete(objectKey{namespace, name})
}

// PutSpares says which pods a buffer keeps room for. The first ones keep the places that there were.
func (d *Draft) PutSpares(namespace, buffer string, pods []*corev1.Pod) {
	old, _ := d.spares.get(objectKey{namespace, buffer})
	next := &Spares{Namespace: namespace, Buffer: buffer}
	for i, pod := range pods {
		row := d.newPod(pod)
		row.Priority, row.Spare = math.MinInt32, &Spare{Buffer: buffer}
		if old != nil && i < len(old.Pods) {
			row.Spare = old.Pods[i].Spare
		}
		next.Pods = append(next.Pods, row)
	}
	d.spares.put(next)
	if old != nil {
		d.releaseAll(old.Pods)
	}
}

// PlaceSpares says for each spare of a buffer which claim or node has room for it, "" for none.
func (d *Draft) PlaceSpares(namespace, buffer string, at []string) {
	old, ok := d.spares.get(objectKey{namespace, buffer})
	if !ok || len(at) != len(old.Pods) {
		return // the buffer asks for others by now
	}
	next := &Spares{Namespace: namespace, Buffer: buffer, Pods: slices.Clone(old.Pods), Placed: true}
	for i, p := range next.Pods {
		if p.Spare.At != at[i] {
			moved := *p
			moved.Spare = &Spare{Buffer: buffer, At: at[i]}
			next.Pods[i] = &moved
		}
	}
	d.spares.put(next)
}

// DropSpares says that no room is kept for a buffer.
func (d *Draft) DropSpares(namespace, buffer string) {
	if old, ok := d.spares.delete(objectKey{namespace, buffer}); ok {
		d.releaseAll(old.Pods)
	}
}

func (d *Draft) releaseAll(rows []*Pod) {
	for _, row := range rows {
		d.release(row)
	}
}

// Buffers yields the CapacityBuffers by namespace and name.
func (s *Snapshot) Buffers() iter.Seq[*autoscalingv1beta1.CapacityBuffer] { return s.buffers.all() }

// PodTemplate returns a PodTemplate, or nil.
func (s *Snapshot) PodTemplate(namespace, name string) *corev1.PodTemplate {
	t, _ := s.templates.get(objectKey{namespace, name})
	return t
}

// Spares yields the spares of each buffer, by namespace and name.
func (s *Snapshot) Spares() iter.Seq[*Spares] { return s.spares.all() }

// SparesOf returns the spares of a buffer, nil if they are not known yet.
func (s *Snapshot) SparesOf(namespace, buffer string) *Spares {
	out, _ := s.spares.get(objectKey{namespace, buffer})
	return out
}

// SparesPlaced reports whether it is known of each CapacityBuffer what it rests on. Nothing may be taken for empty before.
func (s *Snapshot) SparesPlaced() bool {
	for b := range s.buffers.all() {
		if !b.Active() {
			continue
		}
		if own := s.SparesOf(b.Namespace, b.Name); own == nil || !own.Placed {
			return false
		}
	}
	return true
}

// PlaceOf returns the row that a pod is planned onto, or that has room for a spare; nil if there is none.
func (s *Snapshot) PlaceOf(p *Pod) *Node {
	if p.Spare != nil {
		if p.Spare.At == "" {
			return nil
		}
		return s.Target(p.Spare.At)
	}
	plan, ok := s.Planned(p.PodKey)
	if !ok {
		return nil
	}
	return s.Target(plan.Target)
}
