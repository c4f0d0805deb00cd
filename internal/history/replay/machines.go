package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/history/kubescore"
)

// A machine is a claim and, once it has booted, its Node.
type machine struct {
	name  string // of its Node, and of its claim but where that was there before the recording
	claim *v1.NodeClaim
	node  *corev1.Node // nil while it boots
	price cloud.NanoUSD
	offer offerKey
	pods  map[*pod]bool
	due   []*pod // planned for it, to be bound when it has booted

	free  []int64 // room, by axis
	slots int64   // for pods
	load  kubescore.Load
	lot   uint32 // decides between equal nodes

	outdated                  string // why it drifts for its node class, whatever becomes of pools
	avoided, leaving, stopped bool
	stirred                   time.Time // when a pod last came or went
	restless                  bool      // its claim does not say yet that a pod came or went
	again                     time.Time // when its claim changes by itself: it becomes consolidatable
	ready                     []func()  // are called once it has booted
}

// launch creates the claim of an opening for a machine that was bought, and lets it boot.
func (r *run) launch(o *engine.Opening, it *cloud.InstanceType, offer *cloud.Offering) *machine {
	r.serial++
	c := o.Claim.DeepCopy()
	c.Name = fmt.Sprintf("%s-%05d", o.Pool, r.serial)
	c.UID, c.CreationTimestamp = types.UID(c.Name), metav1.NewTime(r.now)
	labels := map[string]string{}
	for key, values := range it.Labels {
		if len(values) == 1 {
			labels[key] = values[0]
		}
	}
	maps.Copy(labels, offer.Labels)
	c = lifecycle.Launched(c, cloud.Machine{
		ProviderID: "replay://" + c.Name, ClaimName: c.Name, PoolName: o.Pool, InstanceType: it.Name,
		Zone: offer.Zone(), CapacityType: offer.CapacityType(),
		Labels: labels, Capacity: it.CapacityAs(offer), Allocatable: it.Allocatable(offer),
	}, r.now, sentence.Lack)
	m := &machine{name: c.Name, claim: c, price: offer.Price, offer: offerKey{it.Name, offer.Zone(),
		offer.CapacityType()}, pods: map[*pod]bool{}, stirred: r.now, lot: lotOf(c.Name)}
	r.machines[c.Name] = m
	r.meter.launched(m)
	r.update(func(d *cluster.Draft) { d.PutClaim(c) })
	r.after(r.set.Boot, func() { r.booted(m) })
	return m
}

// offering returns the type and offering by which an opening was priced.
func (r *run) offering(o *engine.Opening) (*cloud.InstanceType, *cloud.Offering) {
	it := r.pools[o.Pool].Catalog.Type(o.Type)
	return it, cmp.Or(offered(it, o.Zone, o.CapacityType), &it.Offerings[0])
}

// booted creates the Node of a machine, binds the pods that were planned for it, and calls what waits for it.
func (r *run) booted(m *machine) {
	if m.stopped {
		return
	}
	m.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name, UID: types.UID("node/" + m.name),
		CreationTimestamp: metav1.NewTime(r.now)}}
	m.node.Spec.ProviderID = m.claim.Status.ProviderID
	m.node.Status.Capacity, m.node.Status.Allocatable = m.claim.Status.Capacity, m.claim.Status.Allocatable
	m.node.Spec.Taints = slices.Clone(m.claim.Spec.Taints)
	r.makeReady(m)
	for _, p := range m.due {
		if p.planned != m || p.gone {
			continue
		}
		p.planned = nil
		if !m.leaving && m.holds(p.class.asks) {
			r.waiting = slices.DeleteFunc(r.waiting, func(x *pod) bool { return x == p })
			r.bind(p, m)
		}
	}
	m.due = nil
	for _, do := range m.ready {
		do()
	}
	m.ready = nil
	r.provisioner.fill(r, m)
	r.disruption.news(r)
}

// measure reads what a node has for pods.
func (m *machine) measure(a axes) {
	have := m.node.Status.Allocatable
	m.free = a.vector(have)
	m.slots = 110
	if q, ok := have[corev1.ResourcePods]; ok {
		m.slots = q.Value()
	}
	m.load.Has = kubescore.Request{CPU: have.Cpu().MilliValue(), Memory: have.Memory().Value()}
}

// daemon starts the pod of a DaemonSet on a new node if its selector and tolerations allow it.
func (r *run) daemon(ds *appsv1.DaemonSet, m *machine) {
	t := &ds.Spec.Template
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, Name: ds.Name + "-" + m.node.Name,
		Labels: t.Labels, CreationTimestamp: metav1.NewTime(r.now)}, Spec: t.Spec}
	p.UID = types.UID(p.Namespace + "/" + p.Name)
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: ds.Name, UID: ds.UID,
		Controller: new(true)}}
	c := r.classOf(p)
	if !c.admits(m) {
		return
	}
	m.add(c, 1)
	p.Spec.NodeName = m.node.Name
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	r.update(func(d *cluster.Draft) { d.PutPod(p) })
}

// holds reports whether a machine has room for a pod.
func (m *machine) holds(asks []int64) bool {
	if m.slots < 1 {
		return false
	}
	for i, n := range asks {
		if n > m.free[i] {
			return false
		}
	}
	return true
}

// add counts pods of a class on the machine; times is 1 for a pod that comes and -1 for a pod that goes.
func (m *machine) add(c *class, times int64) {
	for i, n := range c.asks {
		m.free[i] -= times * n
	}
	m.slots -= times
	if times > 0 {
		m.load.Used, m.load.Guessed = m.load.Used.Plus(c.score.Request), m.load.Guessed.Plus(c.score.Guessed)
	} else {
		m.load.Used, m.load.Guessed = m.load.Used.Minus(c.score.Request), m.load.Guessed.Minus(c.score.Guessed)
	}
}

// take puts a pod on the machine.
func (m *machine) take(p *pod, now time.Time) {
	m.pods[p] = true
	m.add(p.class, 1)
	m.stir(now)
}

// release removes a pod from the machine.
func (m *machine) release(p *pod, now time.Time) {
	delete(m.pods, p)
	m.add(p.class, -1)
	m.stir(now)
}

// stir notes that a pod came or went.
func (m *machine) stir(now time.Time) { m.stirred, m.restless = now, true }

// close keeps further pods off a machine that will be removed.
func (r *run) close(m *machine) {
	m.leaving = true
	r.open = slices.DeleteFunc(r.open, func(x *machine) bool { return x == m })
	r.update(func(d *cluster.Draft) { d.MarkForRemoval(m.claim.Name) })
}

// drainEvery is how often pods that a budget holds are tried again.
const drainEvery = 10 * time.Second

// drain evicts pods until the machine is empty, and then stops it. It tries again after drainEvery while budgets hold
// pods.
func (r *run) drain(m *machine) {
	if m.stopped {
		return
	}
	if !m.leaving {
		r.close(m)
	}
	if r.evictFrom(m) {
		m.stopped = true
		r.after(r.set.Stop, func() { r.stop(m) })
		return
	}
	r.after(drainEvery, func() { r.drain(m) })
}

// evictFrom evicts the pods that budgets let go, and reports whether none is left.
func (r *run) evictFrom(m *machine) bool {
	if len(m.pods) == 0 {
		return true
	}
	budgets := r.compiledBudgets()
	snap := r.Store.Snapshot()
	left := false
	for _, p := range slices.SortedFunc(maps.Keys(m.pods), byKey) {
		row := snap.Pod(p.key)
		if held, _ := budgets.Blocking(row, r.now); held != nil {
			left = true
			continue
		}
		for _, b := range budgets.Of(row) {
			b.Allowed--
		}
		r.evict(p)
	}
	return !left
}

// stop removes a machine and its objects.
func (r *run) stop(m *machine) {
	delete(r.machines, m.name)
	for _, c := range r.classes {
		delete(c.allowed, m)
	}
	r.meter.ended(m)
	r.update(func(d *cluster.Draft) {
		for _, ds := range r.daemons {
			d.DeletePod(cluster.PodKey{Namespace: ds.Namespace, Name: ds.Name + "-" + m.name})
		}
		d.DeleteNode(m.name)
		d.DeleteClaim(m.claim.Name)
	})
	delete(r.disruption.busy, m.claim.UID)
	r.disruption.news(r)
}

// expire removes a machine that has reached its expireAfter.
func (r *run) expire(m *machine) {
	if m.leaving {
		return
	}
	r.meter.reasons["Expired"]++
	r.close(m)
	r.drain(m)
}
