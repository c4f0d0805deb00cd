package cluster

import (
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A Spare marks a row for a pod that does not exist: a CapacityBuffer keeps room for it, or another object announces it. Such a row is
// in no table of pods, has no seat, and does not count as a pod of a user.
type Spare struct {
	Buffer string // its name, or kind and name of another object, with a space; the namespace is the row's
	At     string // the claim or the node that has room for it, "" while there is none
	// Due is the time for which the pod is announced, zero for at once. A machine for it is opened in time to be ready then.
	Due time.Time
}

// Spares are the rows of one buffer.
type Spares struct {
	Namespace, Buffer string
	Pods              []*Pod
	// Placed says that it was worked out which machines have room for the spares. Before that it is not known which nodes must stay for
	// them.
	Placed bool
}

func (s *Spares) key() objectKey { return objectKey{s.Namespace, s.Buffer} }

// Name returns kind, namespace and name of the object that keeps the room.
func (s *Spare) Name(namespace string) string {
	kind, name, other := strings.Cut(s.Buffer, " ")
	if !other {
		kind, name = "CapacityBuffer", s.Buffer
	}
	return kind + " " + namespace + "/" + name
}

// PutSpares sets the pods that a buffer keeps room for. The first ones keep the places of the earlier spares.
func (d *Draft) PutSpares(namespace, buffer string, pods []*corev1.Pod) {
	d.AnnounceSpares(namespace, buffer, time.Time{}, pods)
}

// AnnounceSpares is PutSpares for pods that are expected at a time (due).
func (d *Draft) AnnounceSpares(namespace, buffer string, due time.Time, pods []*corev1.Pod) {
	old, _ := d.spares.get(objectKey{namespace, buffer})
	next := &Spares{Namespace: namespace, Buffer: buffer}
	for i, pod := range pods {
		row := d.newPod(pod)
		row.Priority, row.Spare = math.MinInt32, &Spare{Buffer: buffer, Due: due}
		if old != nil && i < len(old.Pods) {
			row.Spare.At = old.Pods[i].Spare.At
		}
		next.Pods = append(next.Pods, row)
	}
	d.spares.put(next)
	if old != nil {
		d.releaseAll(old.Pods)
	}
}

// PlaceSpares sets for each spare of a buffer which claim or node has room for it, "" for none.
func (d *Draft) PlaceSpares(namespace, buffer string, at []string) {
	old, ok := d.spares.get(objectKey{namespace, buffer})
	if !ok || len(at) != len(old.Pods) {
		return // the spares have changed meanwhile
	}
	next := &Spares{Namespace: namespace, Buffer: buffer, Pods: slices.Clone(old.Pods), Placed: true}
	for i, p := range next.Pods {
		if p.Spare.At != at[i] {
			moved := *p
			moved.Spare = &Spare{Buffer: buffer, At: at[i], Due: p.Spare.Due}
			next.Pods[i] = &moved
		}
	}
	d.spares.put(next)
}

// DropSpares removes the spares of a buffer.
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

// Spares yields the spares of each buffer, by namespace and name.
func (s *Snapshot) Spares() iter.Seq[*Spares] { return s.spares.all() }

// SparesOf returns the spares of a buffer, nil if they are not known yet.
func (s *Snapshot) SparesOf(namespace, buffer string) *Spares {
	out, _ := s.spares.get(objectKey{namespace, buffer})
	return out
}

// SparesPlaced reports whether it is known for all CapacityBuffers and announcements which machines have room for their spares. Before
// that no node may be taken for empty.
func (s *Snapshot) SparesPlaced() bool {
	for own := range s.Spares() {
		if !own.Placed && strings.Contains(own.Buffer, " ") {
			return false
		}
	}
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
