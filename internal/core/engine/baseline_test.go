package engine_test

import (
	"cmp"
	"regexp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/shape"
)

// benchFamily matches the types of the bench's pool: categories c, m and r, generation 5 and later.
var benchFamily = regexp.MustCompile(`^[cmr]([5-9])[a-z-]*\.`)

// A machine is a type with its cheapest offering.
type machine struct {
	room     [3]int64 // CPU in thousandths, memory in bytes, pods
	price    cloud.NanoUSD
	spot     []cloud.NanoUSD // ascending
	onDemand cloud.NanoUSD
}

// machines lists what the baseline may buy, cheapest first.
func machines(tb testing.TB, spot bool, most int64) (all []machine) {
	for _, it := range catalogue(tb).Types {
		if it.Exotic || !benchFamily.MatchString(it.Name) || most > 0 && it.Capacity.Cpu().Value() > most {
			continue
		}
		m := machine{}
		for i, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
			q := it.Capacity[r].DeepCopy()
			for _, kept := range []corev1.ResourceList{it.Overhead.KubeReserved, it.Overhead.SystemReserved, it.Overhead.EvictionThreshold} {
				q.Sub(kept[r])
			}
			m.room[i] = q.Value()
			if r == corev1.ResourceCPU {
				m.room[i] = q.MilliValue()
			}
		}
		for i := range it.Offerings {
			o := &it.Offerings[i]
			kind := o.CapacityType()
			if (kind == v1.CapacityTypeOnDemand || spot && kind == v1.CapacityTypeSpot) && (m.price == 0 || o.Price < m.price) {
				m.price = o.Price
			}
			if spot && kind == v1.CapacityTypeSpot {
				m.spot = append(m.spot, o.Price)
			}
			if kind == v1.CapacityTypeOnDemand {
				m.onDemand = o.Price
			}
		}
		slices.Sort(m.spot)
		if m.price > 0 {
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b machine) int { return cmp.Compare(a.price, b.price) })
	return all
}

// distinct leaves out what a cheaper machine contains.
func distinct(all []machine) (kept []machine) {
	for _, m := range all {
		if !slices.ContainsFunc(kept, func(k machine) bool { return k.holds(m.room) }) {
			kept = append(kept, m)
		}
	}
	return kept
}

func (m *machine) holds(use [3]int64) bool {
	return use[0] <= m.room[0] && use[1] <= m.room[1] && use[2] <= m.room[2]
}

// paid is what a launch pays for a node that is used so much: the cheapest machine, or of spot the mean of all that is sent. cost is what
// decisions reckon with, where few types can be sent.
func paid(all []machine, use [3]int64) (price, cost cloud.NanoUSD) {
	var fit []machine
	onDemand := shape.Any
	for _, m := range all {
		if m.holds(use) {
			fit = append(fit, m)
			onDemand = min(onDemand, int64(m.onDemand))
		}
	}
	next := 0
	types, edge := shape.DefaultBand.Cut(func() (int64, bool) {
		if next == len(fit) || len(fit[next].spot) == 0 {
			return 0, false
		}
		next++
		return int64(fit[next-1].spot[0]), true
	}, onDemand, onDemand)
	sum, n := cloud.NanoUSD(0), cloud.NanoUSD(0)
	for _, m := range fit[:types] {
		for _, p := range m.spot {
			if int64(p) <= edge {
				sum, n = sum+p, n+1
			}
		}
	}
	if n == 0 {
		return fit[0].price, fit[0].price
	}
	price = sum / n
	missing := cloud.NanoUSD(max(0, shape.DefaultBand.Spot-types))
	atEdge := max(price, min(fit[0].spot[0]*3/2, cloud.NanoUSD(onDemand)))
	return price, (price*cloud.NanoUSD(types) + atEdge*missing) / (cloud.NanoUSD(types) + missing)
}

// firstFit is the baseline: pods by CPU, the largest first, each on the first node of which some machine still holds everything; the
// cheapest such machine is chosen when all pods are placed. Machines above most vCPU are not used (0: all are). It keeps to
// anti-affinity between the hosts of one application; spread and affinity do not bind it, which only makes it look cheaper.
func firstFit(tb testing.TB, pods []*corev1.Pod, spot bool, most int64) (price, cost cloud.NanoUSD) {
	type node struct {
		use  [3]int64
		apps map[string]bool
		from int // the cheapest machine that may still hold it
	}
	list, all := distinct(machines(tb, spot, most)), machines(tb, spot, 0)
	need := func(p *corev1.Pod) [3]int64 {
		r := p.Spec.Containers[0].Resources.Requests
		return [3]int64{r.Cpu().MilliValue(), r.Memory().Value(), 1}
	}
	order := slices.Clone(pods)
	slices.SortStableFunc(order, func(a, b *corev1.Pod) int {
		x, y := need(a), need(b)
		return cmp.Or(cmp.Compare(y[0], x[0]), cmp.Compare(y[1], x[1]))
	})
	join := func(n *node, p *corev1.Pod) bool {
		app := ""
		if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			app = p.Labels["app"]
		}
		if app != "" && n.apps[app] {
			return false
		}
		use := n.use
		for i, x := range need(p) {
			use[i] += x
		}
		at := slices.IndexFunc(list[n.from:], func(m machine) bool { return m.holds(use) })
		if at < 0 {
			return false
		}
		n.use, n.from, n.apps[app] = use, n.from+at, true
		return true
	}
	var open []*node
	for _, p := range order {
		if slices.ContainsFunc(open, func(n *node) bool { return join(n, p) }) {
			continue
		}
		n := &node{apps: map[string]bool{}}
		if !join(n, p) {
			tb.Fatalf("no machine holds %s", p.Name)
		}
		open = append(open, n)
	}
	for _, n := range open {
		p, c := paid(all, n.use)
		price, cost = price+p, cost+c+min(engine.DefaultNodePrice, p/20)
	}
	return price, cost
}
