package podclass

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/internal/kit/identity"
)

// keyOf writes what identifies the class of a pod: everything that cut keeps. What nearly every pod has is written field by field,
// the rest in the API's own binary form, in which equal values give equal bytes. Each field is tagged and each list counted, so
// that two inputs never give one key.
func (in *Interner) keyOf(pod *corev1.Pod) []byte {
	k := &writer{b: in.buf[:0], names: in.keys}
	k.text(pod.Namespace)
	k.containers('i', pod.Spec.InitContainers, sizesOfInit(pod))
	k.containers('c', pod.Spec.Containers, sizesOf(pod))
	k.selector(pod.Spec.NodeSelector)
	k.text(pod.Spec.SchedulerName)
	k.text(pod.Spec.PriorityClassName)
	k.optional(pod.Spec.Priority != nil)
	if pod.Spec.Priority != nil {
		k.b = identity.Number(k.b, int64(*pod.Spec.Priority))
	}
	k.optional(pod.Spec.HostNetwork)
	if rest := restOf(pod); rest != nil {
		k.b = append(k.b, 'r')
		k.message(rest)
	}
	in.buf, in.keys = k.b, k.names
	return k.b
}

// restOf returns the fields that few pods set, nil if the pod sets none of them.
func restOf(pod *corev1.Pod) *corev1.PodSpec {
	s := &pod.Spec
	volumes := cutVolumes(s.Volumes)
	if s.Affinity == nil && len(volumes)+len(s.Tolerations)+len(s.TopologySpreadConstraints)+len(s.Overhead)+len(s.ResourceClaims) == 0 &&
		s.PreemptionPolicy == nil && s.Resources == nil && s.OS == nil && usersOnHost(s) == nil {
		return nil
	}
	return &corev1.PodSpec{
		Volumes: volumes, Affinity: cutAffinity(pod), Tolerations: s.Tolerations,
		PreemptionPolicy: s.PreemptionPolicy, Overhead: s.Overhead,
		TopologySpreadConstraints: s.TopologySpreadConstraints, ResourceClaims: s.ResourceClaims, Resources: podLevel(pod), OS: s.OS,
		HostUsers: usersOnHost(s),
	}
}

// A writer writes keys.
type writer struct {
	b     []byte
	names []string // scratch
}

func (w *writer) text(s string) { w.b = identity.Text(w.b, s) }

func (w *writer) optional(there bool) { w.b = identity.Flag(w.b, there) }

// containers writes what cutContainers keeps.
func (w *writer) containers(tag byte, list []corev1.Container, by sizes) {
	w.b = append(w.b, tag)
	w.b = identity.Count(w.b, len(list))
	for i := range list {
		c := &list[i]
		w.resources(by.of(c))
		w.resources(c.Resources.Limits)
		w.optional(c.RestartPolicy != nil)
		if c.RestartPolicy != nil {
			w.text(string(*c.RestartPolicy))
		}
		ports, rules := hostPorts(c.Ports), restartsAll(c)
		w.optional(len(ports)+len(c.Resources.Claims)+len(rules) > 0)
		if len(ports)+len(c.Resources.Claims)+len(rules) > 0 {
			w.message(&corev1.Container{Ports: ports, RestartPolicyRules: rules,
				Resources: corev1.ResourceRequirements{Claims: c.Resources.Claims}})
		}
	}
}

// resources writes a list of resources, sorted by name.
func (w *writer) resources(list corev1.ResourceList) {
	w.names = w.names[:0]
	for name := range list {
		w.names = append(w.names, string(name))
	}
	slices.Sort(w.names)
	w.b = identity.Count(w.b, len(w.names))
	for _, name := range w.names {
		w.text(name)
		q := list[corev1.ResourceName(name)]
		w.quantity(&q)
	}
}

// quantity writes an amount in units if it is whole, else in thousandths, so that equal amounts give equal bytes. Smaller fractions and
// amounts that are too large are written as text.
func (w *writer) quantity(q *resource.Quantity) {
	n, ok := q.AsInt64()
	if !ok {
		milli := q.MilliValue()
		if resource.NewMilliQuantity(milli, q.Format).Cmp(*q) != 0 {
			w.b = append(w.b, 't')
			w.text(q.String())
			return
		}
		if milli%1000 != 0 {
			w.b = identity.Number(append(w.b, 'm'), milli)
			return
		}
		n = milli / 1000
	}
	w.b = identity.Number(append(w.b, 'n'), n)
}

// selector writes a map of strings, sorted by key.
func (w *writer) selector(m map[string]string) {
	w.names = w.names[:0]
	for name := range m {
		w.names = append(w.names, name)
	}
	slices.Sort(w.names)
	w.b = identity.Count(w.b, len(w.names))
	for _, name := range w.names {
		w.text(name)
		w.text(m[name])
	}
}

// message writes something in the API's binary form. Fields come in a fixed order there and maps sorted by key. The target has the
// size that was asked for, so marshalling cannot fail.
func (w *writer) message(m interface {
	Size() int
	MarshalToSizedBuffer(b []byte) (int, error)
}) {
	size := m.Size()
	w.b = identity.Count(w.b, size)
	at := len(w.b)
	w.b = slices.Grow(w.b, size)[:at+size]
	m.MarshalToSizedBuffer(w.b[at:])
}
