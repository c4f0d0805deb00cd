package engine

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/compile"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/shape"
)

// mostTypes is how many instance types a claim lists at most.
const mostTypes = 600

// A raiser turns the numbers of one result back into objects.
type raiser struct {
	*compile.Compiled
	e      *Engine
	q      *Question
	orders []priceOrder
}

// raise turns a result into a plan.
func (e *Engine) raise(q *Question, compiled *compile.Compiled, r *problem.Result) *Plan {
	return (&raiser{Compiled: compiled, e: e, q: q}).plan(r)
}

// plan makes the plan: it picks the pods for each placement, opens the new nodes, and explains why the other pods have no place.
func (b *raiser) plan(r *problem.Result) *Plan {
	p := &Plan{
		Open: make([]Opening, 0, len(r.Bins)), Partial: r.Partial,
		Price: cloud.NanoUSD(r.Price), Floor: cloud.NanoUSD(r.Floor), Cost: cloud.NanoUSD(r.Cost),
		VolumeBound: cloud.NanoUSD(r.Volume), ConfigBound: cloud.NanoUSD(r.Config), Refused: b.Refused,
	}
	pods, holders := b.newPicker(), holders{}
	for _, put := range r.Placed {
		taken := pods.take(put.Class, put.Bin, put.Count)
		holders.note(b.Classes[put.Class].Exclusive, taken)
		b.notePlaced(p, taken, put.Bin)
	}
	for i := range r.Bins {
		var like *Opening
		if at := r.Bins[i].SameAs; at >= 0 {
			like = &p.Open[at]
		}
		o := b.opening(&r.Bins[i], like)
		for _, put := range r.Bins[i].Puts {
			taken := pods.take(put.Class, put.Bin, put.Count)
			holders.note(b.Classes[put.Class].Exclusive, taken)
			o.Pods = append(o.Pods, taken...)
		}
		noteWorkloads(&o, b.poolOf(&r.Bins[i]))
		p.Open = append(p.Open, o)
	}
	p.dropFalseBound()
	b.settle(p, r)
	for class := range b.Classes {
		left := pods.rest(problem.ClassID(class))
		if len(left) == 0 {
			continue
		}
		why := holders.refusal(b.Classes[class].Exclusive, left[0])
		if why == nil {
			why = b.withNumbers(b.withDropped(r.Why[class]))
		}
		for _, pod := range left {
			p.Refused = append(p.Refused, Refused{Pod: pod, Reasons: why})
		}
	}
	return p
}

// Holders are, by volume claim that one pod at a time may use, the pod that gets it in the plan.
type holders map[types.NamespacedName]*cluster.Pod

// note notes the first of some placed pods as the holder of their exclusive claims.
func (h holders) note(claims []string, pods []*cluster.Pod) {
	for _, name := range claims {
		h[types.NamespacedName{Namespace: pods[0].Namespace, Name: name}] = pods[0]
	}
}

// refusal returns that a pod has no place because another pod of the plan holds one of its claims; nil if none is held.
func (h holders) refusal(claims []string, pod *cluster.Pod) []reason.Count {
	for _, name := range claims {
		if by := h[types.NamespacedName{Namespace: pod.Namespace, Name: name}]; by != nil {
			return []reason.Count{compile.HeldBy(name, by)}
		}
	}
	return nil
}

// withDropped adds to an explanation why pools have no instance types. Plans that did not reach the pod say nothing about pools.
func (b *raiser) withDropped(why []reason.Count) []reason.Count {
	if len(b.Dropped) == 0 || len(why) == 1 && why[0].Code == reason.NotReached {
		return why
	}
	out := slices.DeleteFunc(slices.Clone(why), func(c reason.Count) bool { return c.Code == reason.NoPools })
	return append(out, b.Dropped...)
}

// withNumbers adds to each limit that is reached its amount, how much of it is used (with the nodes that the plan opens), and how much the
// smallest machine needs.
func (b *raiser) withNumbers(why []reason.Count) []reason.Count {
	about := func(c reason.Count) bool { return c.Code == reason.Limit || c.Code == reason.Quota }
	if !slices.ContainsFunc(why, about) {
		return why
	}
	out := slices.Clone(why)
	for i := range out {
		if c := &out[i]; about(*c) {
			b.Quantify(c)
		}
	}
	return merged(out)
}

// merged joins refusals of one pool because of one limit, which differ because the pool is planned in parts (see compile/quotas.go). It
// keeps the refusal with the smallest need.
func merged(why []reason.Count) []reason.Count {
	var out []reason.Count
	for _, c := range why {
		at := slices.IndexFunc(out, func(x reason.Count) bool {
			return c.Limit != "" && x.Code == c.Code && x.Pool == c.Pool && x.Detail == c.Detail && x.Key == c.Key
		})
		switch {
		case at < 0:
			out = append(out, c)
		case c.Needs < out[at].Needs:
			out[at] = c
		}
	}
	return out
}

// notePlaced adds pods on an existing node to the plan. In a what-if question, they are refused instead if the node is not initialised, or
// if kube-scheduler waits for a volume driver there.
func (b *raiser) notePlaced(p *Plan, pods []*cluster.Pod, bin problem.BinID) {
	n := b.Node(bin)
	for _, pod := range pods {
		if b.q.Simulation && (!n.Initialized() || compile.AwaitsDriver(b.q.Snap, pod, n)) {
			p.Refused = append(p.Refused, Refused{Pod: pod, Reasons: []reason.Count{{Code: reason.UninitializedOnly, Key: n.Name}}})
		} else {
			p.Place = append(p.Place, Placement{Pod: pod, Node: n.Name})
		}
	}
}

// A picker chooses, by class, which pods go to a place. Pods that an earlier plan put onto a node go there first.
type picker []*crowd

// A crowd is the pods of a class that were not picked yet.
type crowd struct {
	free    []*cluster.Pod // in no earlier plan
	planned []*cluster.Pod // put onto a node by an earlier plan
	onto    map[cluster.PodKey]problem.BinID
}

// newPicker returns a picker of all pods of the problem.
func (b *raiser) newPicker() picker {
	p := make(picker, 0, len(b.Classes))
	for _, c := range b.Classes {
		if len(c.Sticky) == 0 {
			p = append(p, &crowd{free: c.Pods})
			continue
		}
		left := &crowd{onto: c.Sticky}
		for _, pod := range c.Pods {
			if _, planned := c.Sticky[pod.PodKey]; planned {
				left.planned = append(left.planned, pod)
			} else {
				left.free = append(left.free, pod)
			}
		}
		p = append(p, left)
	}
	return p
}

// take picks n pods of a class for a bin: those that were planned onto it, then those in no earlier plan, then those planned elsewhere.
func (p picker) take(class problem.ClassID, bin problem.BinID, n int) []*cluster.Pod {
	c := p[class]
	var here, elsewhere []*cluster.Pod
	for _, pod := range c.planned {
		if c.onto[pod.PodKey] == bin {
			here = append(here, pod)
		} else {
			elsewhere = append(elsewhere, pod)
		}
	}
	out := here[:min(n, len(here))]
	c.planned = append(here[len(out):], elsewhere...)
	free := min(n-len(out), len(c.free))
	if len(out) == 0 {
		out = c.free[:free:free]
	} else {
		out = append(out[:len(out):len(out)], c.free[:free]...)
	}
	c.free = c.free[free:]
	rest := n - len(out)
	out = append(out, c.planned[:rest]...)
	c.planned = c.planned[rest:]
	return out
}

// rest returns the pods of a class that were not picked.
func (p picker) rest(class problem.ClassID) []*cluster.Pod {
	return slices.Concat(p[class].free, p[class].planned)
}

// opening returns the opening of a new node, with its claim but without its pods. like is an opening of the same machines, from which the
// lists are taken; nil if there is none.
func (b *raiser) opening(bin *problem.Bin, like *Opening) Opening {
	pool, _ := b.Template(bin.Template)
	cat := b.Problem.Templates[bin.Template].Catalog
	o := Opening{Pool: pool.Name, Price: cloud.NanoUSD(bin.Launch.Price), Floor: cloud.NanoUSD(bin.Launch.Floor),
		Worst: cloud.NanoUSD(bin.Launch.Worst), Risk: cloud.NanoUSD(bin.Launch.Risk), Sent: bin.Launch.Types, Offers: bin.Launch.Offers}
	if like != nil {
		o.Types, o.Zones, o.CapacityTypes = like.Types, like.Zones, like.CapacityTypes
	} else {
		o.Types = cat.Named(b.orderOf(cat, bin.Mask), bin.Shapes, mostTypes)
		o.Zones, o.CapacityTypes = b.offered(cat, bin)
	}
	o.Type = cat.Names[bin.Launch.First.Shape]
	first := cat.Offers[bin.Launch.First.Offer].Labels
	o.Zone, o.CapacityType = first[corev1.LabelTopologyZone], first[v1.CapacityTypeLabelKey]
	o.Claim = b.claimOf(bin, &o)
	return o
}

func (b *raiser) poolOf(bin *problem.Bin) *v1.NodePool {
	pool, _ := b.Template(bin.Template)
	return pool
}

// mostWorkloads is how many workloads a claim names at most, those with most pods.
const mostWorkloads = 20

// noteWorkloads writes onto a claim for which workloads it is opened and how many pods of each, if its pool limits the share of spot. The
// provider counts these shares when it launches.
func noteWorkloads(o *Opening, pool *v1.NodePool) {
	if pool.Annotations[v1.SpotMaxShareAnnotationKey] == "" {
		return
	}
	pods := map[types.NamespacedName]int{}
	for _, p := range o.Pods {
		if p.Owner != nil {
			pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Owner.Name}]++
		}
	}
	names := slices.SortedFunc(maps.Keys(pods), func(a, b types.NamespacedName) int {
		return cmp.Or(pods[b]-pods[a], cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var parts []string
	for _, name := range names[:min(len(names), mostWorkloads)] {
		parts = append(parts, name.String()+"="+strconv.Itoa(pods[name]))
	}
	if len(parts) > 0 {
		o.Claim.Annotations[v1.OpenedForAnnotationKey] = strings.Join(parts, ",")
	}
}

// orderOf returns the shapes of a catalogue by price under the choices of a bin. It is cached, because few masks occur again and again.
func (b *raiser) orderOf(cat *shape.Catalog, mask bits.Set) []int32 {
	for i := range b.orders {
		if o := &b.orders[i]; o.catalog == cat && o.mask.Equal(mask) {
			return o.shapes
		}
	}
	b.orders = append(b.orders, priceOrder{cat, mask, cat.Order(mask)})
	return b.orders[len(b.orders)-1].shapes
}

type priceOrder struct {
	catalog *shape.Catalog
	mask    bits.Set
	shapes  []int32
}

// offered returns the zones and capacity types in which some listed type can be bought.
func (b *raiser) offered(cat *shape.Catalog, bin *problem.Bin) (zones, types []string) {
	sold := bits.Make(64 * len(bin.Mask))
	for sh := range bin.Shapes.All() {
		sold.Or(cat.Sold[sh])
	}
	sold.And(bin.Mask)
	for at := range sold.All() {
		if at >= len(cat.Offers) {
			break
		}
		labels := cat.Offers[at].Labels
		zones = append(zones, labels[corev1.LabelTopologyZone])
		types = append(types, labels[v1.CapacityTypeLabelKey])
	}
	slices.Sort(zones)
	slices.Sort(types)
	return slices.Compact(zones), slices.Compact(types)
}
