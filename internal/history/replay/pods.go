package replay

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resources "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/history/kubescore"
	"karpenter.sh/karpenter/internal/history/recording"
)

// axes are the resources that pods request, each with its index in vectors.
type axes map[corev1.ResourceName]int

func (a axes) add(p *corev1.Pod) { a.addSpec(&p.Spec) }

func (a axes) addSpec(spec *corev1.PodSpec) {
	for name := range resources.PodRequests(&corev1.Pod{Spec: *spec}, resources.PodResourcesOptions{}) {
		if _, known := a[name]; !known {
			a[name] = len(a)
		}
	}
}

// vector returns amounts by axis, rounded up. Resources that no pod requests are left out.
func (a axes) vector(list corev1.ResourceList) []int64 {
	out := make([]int64, len(a))
	for name, q := range list {
		if i, ok := a[name]; !ok {
			continue
		} else if name == corev1.ResourceCPU {
			out[i] = q.MilliValue()
		} else {
			out[i] = q.Value()
		}
	}
	return out
}

// A pod is the present pod of a life. An eviction replaces it by one with another name.
type pod struct {
	life    *recording.Life
	key     cluster.PodKey
	class   *class
	volumes []corev1.Volume // only those with a known claim
	lot     uint32          // for the choice between equal nodes
	remade  int             // how often it was created anew
	on      *machine        // nil while it waits
	planned *machine        // the booting machine where it will go, nil for none
	made    time.Time       // creation; the planner counts new pods to see how long a move is worth something
	since   time.Time       // when it began to wait
	asked   time.Time       // when it was last planned for without success
	there   bool            // it existed when the recording began, so its first wait does not count
	gone    bool            // its life has ended
}

// A class is what pods with equal specs share.
type class struct {
	asks     []int64
	score    kubescore.Asked
	affinity *nodeaffinity.RequiredNodeAffinity // nil where any node would do
	tolerate []corev1.Toleration
	// entangled pods have rules about other pods, ports or volumes, so that only the engine knows where they may go.
	entangled bool
	allowed   map[*machine]bool // what admits found out
}

// classOf returns the class of a pod, which is created for the first pod with its spec.
func (r *run) classOf(p *corev1.Pod) *class {
	key := p.Spec.String()
	if c := r.classes[key]; c != nil {
		return c
	}
	c := &class{asks: r.axes.vector(resources.PodRequests(p, resources.PodResourcesOptions{})),
		score: kubescore.Of(p), tolerate: p.Spec.Tolerations, allowed: map[*machine]bool{}}
	affinity := p.Spec.Affinity
	if len(p.Spec.NodeSelector) > 0 || affinity != nil && affinity.NodeAffinity != nil {
		required := nodeaffinity.GetRequiredNodeAffinity(p)
		c.affinity = &required
	}
	c.entangled = len(p.Spec.TopologySpreadConstraints) > 0 || affinity != nil && (affinity.PodAffinity != nil ||
		affinity.PodAntiAffinity != nil) || hostPorts(p) || hasVolumes(p.Spec.Volumes)
	r.classes[key] = c
	return c
}

func hostPorts(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool { return port.HostPort > 0 })
	})
}

// admits reports whether the pods' required node affinity and tolerations allow a machine. It ignores room.
func (c *class) admits(m *machine) bool {
	if c.affinity == nil && len(m.node.Spec.Taints) == 0 {
		return true
	}
	known, ok := c.allowed[m]
	if !ok {
		known = c.tolerates(m.node.Spec.Taints)
		if c.affinity != nil {
			match, err := c.affinity.Match(m.node)
			known = known && err == nil && match
		}
		c.allowed[m] = known
	}
	return known
}

// tolerates reports whether the pods tolerate all taints, apart from PreferNoSchedule.
func (c *class) tolerates(taints []corev1.Taint) bool {
	for i := range taints {
		t := &taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(c.tolerate, func(o corev1.Toleration) bool { return tolerates(&o, t) }) {
			return false
		}
	}
	return true
}

func tolerates(o *corev1.Toleration, t *corev1.Taint) bool {
	return (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" && o.Operator == corev1.TolerationOpExists || o.Key == t.Key &&
		(o.Operator == corev1.TolerationOpExists || o.Value == t.Value))
}

// arrive creates the pod of a life, and schedules its end.
func (r *run) arrive(life *recording.Life) {
	p := &pod{life: life, made: cmp.Or(life.Made, r.now), since: r.now, there: r.now.Equal(r.meter.began)}
	p.key = cluster.PodKey{Namespace: life.Pod.Namespace, Name: life.Pod.Name}
	for n := 1; r.pods[p.key] != nil; n++ { // a trace may have a name twice
		p.key.Name = fmt.Sprintf("%s-%d", life.Pod.Name, n)
	}
	r.meter.pods++
	r.mount(p)
	p.class = r.classOf(p.object(r.now))
	r.bindOrWait(p)
	if !life.To.IsZero() {
		r.at(life.To, func() { r.depart(p) })
	}
}

// bindOrWait adds a pod to the run. It binds the pod where the recording had it when the run began (bindBack), or else to a
// node with room, or else adds it to the pods that wait.
func (r *run) bindOrWait(p *pod) {
	p.lot = lotOf(p.key.Name)
	r.pods[p.key] = p
	if r.bindBack(p) || r.schedule(p) {
		return
	}
	r.waiting = append(r.waiting, p)
	r.update(func(d *cluster.Draft) { d.PutPod(p.object(r.now)) })
	r.provisioner.podCame(r)
}

// lotOf returns a number that decides between equal nodes, by a hash of a name.
func lotOf(name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32()
}

// bindBack binds a pod to the machine on which it ran when the recording begins. It returns false if that is not
// known or not possible.
func (r *run) bindBack(p *pod) bool {
	if !p.there || p.life.On == "" {
		return false
	}
	m := r.machines[p.life.On]
	if m == nil || m.node == nil || m.leaving || !m.holds(p.class.asks) {
		return false
	}
	r.bind(p, m)
	return true
}

// object returns the pod as the API server would show it.
func (p *pod) object(now time.Time) *corev1.Pod {
	o := &corev1.Pod{ObjectMeta: p.life.Pod.ObjectMeta, Spec: p.life.Pod.Spec}
	o.Namespace, o.Name, o.UID = p.key.Namespace, p.key.Name, types.UID(p.key.Namespace+"/"+p.key.Name)
	o.CreationTimestamp, o.Spec.Volumes = metav1.NewTime(p.made), p.volumes
	if p.on == nil {
		o.Status = corev1.PodStatus{Phase: corev1.PodPending,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Reason: corev1.PodReasonUnschedulable}}}
		return o
	}
	at := metav1.NewTime(now)
	o.Spec.NodeName = p.on.node.Name
	o.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &at, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at},
	}}
	return o
}

// schedule binds a pod to the node that kube-scheduler would choose, and reports whether there is one.
func (r *run) schedule(p *pod) bool {
	if p.class.entangled {
		return false // the next plan says where
	}
	var best *machine
	var most int64
	var draw uint32
	for _, m := range r.open {
		if !m.holds(p.class.asks) || !p.class.admits(m) {
			continue
		}
		score, lot := m.load.Score(p.class.score), (m.lot^p.lot)*2654435761
		if !m.avoided {
			score += kubescore.TaintsWeight * kubescore.Welcome(0, 1)
		}
		if best == nil || score > most || score == most && lot > draw {
			best, most, draw = m, score, lot
		}
	}
	if best == nil {
		return false
	}
	r.bind(p, best)
	return true
}

// bind puts a pod on a machine.
func (r *run) bind(p *pod, m *machine) {
	p.on, p.planned = m, nil
	m.take(p, r.now)
	r.provision(p, m)
	r.meter.podBound(p, r.now)
	r.update(func(d *cluster.Draft) { d.PutPod(p.object(r.now)) })
	r.disruption.news(r)
}

// leave removes a pod from its machine.
func (r *run) leave(p *pod) {
	m := p.on
	p.on = nil
	m.release(p, r.now)
	r.meter.placed--
	r.disruption.podLeft(r, m)
}

// depart ends the pod of a life for good.
func (r *run) depart(p *pod) {
	p.gone = true
	delete(r.pods, p.key)
	r.unmount(p)
	r.update(func(d *cluster.Draft) { d.DeletePod(p.key) })
	if p.on != nil {
		r.leave(p)
	} else {
		r.waiting = slices.DeleteFunc(r.waiting, func(x *pod) bool { return x == p })
		r.meter.podUnplaced(p, r.now)
	}
	r.disruption.news(r)
}

// evict ends a pod and lets its owner create it anew, under another name.
func (r *run) evict(p *pod) {
	old := p.key
	delete(r.pods, old)
	r.update(func(d *cluster.Draft) { d.DeletePod(old) })
	r.unmount(p)
	r.leave(p)
	r.meter.evictions++
	p.remade++
	p.key.Name = fmt.Sprintf("%s-again-%d", p.life.Pod.Name, p.remade)
	for r.pods[p.key] != nil {
		p.remade++
		p.key.Name = fmt.Sprintf("%s-again-%d", p.life.Pod.Name, p.remade)
	}
	p.made, p.since, p.there, p.asked = r.now, r.now, false, time.Time{}
	r.mount(p)
	r.bindOrWait(p)
}
