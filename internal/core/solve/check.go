package solve

import (
	"errors"
	"fmt"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/devices"
	"karpenter.sh/karpenter/internal/core/rule/limits"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// Check returns everything that is wrong with a result, or nil. It is slow and simple: it checks each pod against the plain meaning of
// each rule, with none of the code that found the result. It also verifies the proof of the bound. Tests use it.
func Check(p *problem.Problem, r *problem.Result) error {
	c := &checker{p: p, r: r, facts: factsOf(p)}
	c.checkCounts()
	for i := range p.Nodes {
		c.checkNode(i)
	}
	for i := range r.Bins {
		c.checkBin(i)
	}
	c.checkPools()
	c.checkReservations()
	c.checkGroups()
	c.checkShared()
	c.checkPrice()
	return errors.Join(c.bad...)
}

type checker struct {
	p     *problem.Problem
	r     *problem.Result
	facts *facts
	bad   []error
}

// failf notes what is wrong. The functions below pass the place as an error that is wrapped, because the core makes no text but errors.
func (c *checker) failf(format string, args ...any) {
	c.bad = append(c.bad, fmt.Errorf(format, args...))
}

// checkCounts: every pod is in exactly one place.
func (c *checker) checkCounts() {
	n := make([]int, len(c.p.Classes))
	for _, p := range c.r.Placed {
		n[p.Class] += p.Count
	}
	for i := range c.r.Bins {
		for _, p := range c.r.Bins[i].Puts {
			n[p.Class] += p.Count
		}
	}
	for i := range n {
		if n[i]+c.r.Left[i] != c.p.Classes[i].Count || c.r.Left[i] < 0 {
			c.failf("class %s: %d placed, %d left of %d", c.p.Classes[i].Name, n[i], c.r.Left[i], c.p.Classes[i].Count)
		}
	}
}

// A resident is one pod somewhere.
type resident struct {
	class   *problem.Class
	variant *problem.Variant
}

// residents returns one entry for each pod of puts.
func (c *checker) residents(puts []problem.Put) []resident {
	var out []resident
	for _, p := range puts {
		for range p.Count {
			class := &c.p.Classes[p.Class]
			out = append(out, resident{class, &class.Variants[p.Variant]})
		}
	}
	return out
}

// onNode returns the pods that the plan puts on existing node i.
func (c *checker) onNode(i int) []resident {
	return c.residents(slices.DeleteFunc(slices.Clone(c.r.Placed), func(p problem.Put) bool { return p.Bin != problem.BinID(i) }))
}

func sumNeeds(pods []resident, n int) quantity.Vec {
	sum := make(quantity.Vec, n)
	for _, x := range pods {
		sum.Add(x.class.Need)
	}
	return sum
}

// checkNode: an existing node is open, suits each pod that the plan puts there, and has room, ports, devices and volumes for all of them.
func (c *checker) checkNode(i int) {
	n := &c.p.Nodes[i]
	pods := c.onNode(i)
	if len(pods) == 0 {
		return
	}
	if n.Closed {
		c.failf("node %s is closed but got pods", n.Name)
	}
	if !sumNeeds(pods, c.p.Resources).Fits(n.Room) {
		c.failf("node %s: %v does not fit into %v", n.Name, sumNeeds(pods, c.p.Resources), n.Room)
	}
	for _, x := range pods {
		if !c.p.Labels.OnNode[x.variant.Reqs].Has(i) || !c.p.Labels.TolNode[x.variant.Tol].Has(i) {
			c.failf("node %s does not suit %s", n.Name, x.class.Name)
		}
	}
	where := fmt.Errorf("node %s", n.Name)
	c.checkPorts(where, pods, n.Ports)
	c.checkDevices(where, n.Devices, pods)
	for d := range c.p.Drivers {
		if d < len(n.Volumes) && n.Volumes[d].Limit >= 0 {
			if k := int(n.Volumes[d].Count) + attached(pods, d, n.Mounted); k > int(n.Volumes[d].Limit) {
				c.failf("node %s: %d volumes of driver %d", n.Name, k, d)
			}
		}
	}
}

// attached counts the distinct volumes of a driver that pods bring, without those that the node has already.
func attached(pods []resident, driver int, has []int) int {
	seen := map[int]bool{}
	for _, id := range has {
		seen[id] = true
	}
	n := 0
	for _, x := range pods {
		for _, v := range x.class.Volumes {
			if v.Driver == driver && !seen[v.ID] {
				seen[v.ID] = true
				n++
			}
		}
	}
	return n
}

// checkPorts: no two pods on a node take conflicting host ports, nor ports that are taken there already.
func (c *checker) checkPorts(where error, pods []resident, taken []int) {
	all := slices.Clone(taken)
	for _, x := range pods {
		for _, p := range x.class.Ports {
			for _, q := range all {
				if c.p.Ports.Port(p).Conflict(c.p.Ports.Port(q)) {
					c.failf("%w: port %v is taken twice", where, c.p.Ports.Port(p))
				}
			}
		}
		all = append(all, x.class.Ports...)
	}
}

// checkBin: a new node suits each of its pods, has a choice left in each segment, lists only machines that hold the pods, and meets
// minValues.
func (c *checker) checkBin(i int) {
	b := &c.r.Bins[i]
	t := &c.p.Templates[b.Template]
	pods := c.residents(b.Puts)
	where := fmt.Errorf("new node %d (%s)", i, t.Name)
	used := sumNeeds(pods, c.p.Resources)
	if !slices.Equal(used, b.Used) {
		c.failf("%w: used %v, recorded %v", where, used, b.Used)
	}
	if !b.Shapes.Any() || !b.Shapes.Has(b.Target) {
		c.failf("%w lists no shape, or not its target", where)
	}
	for _, x := range pods {
		m := &c.p.Labels.OnTemplate[x.variant.Reqs][b.Template]
		if !m.OK || !c.p.Labels.TolTmpl[x.variant.Tol].Has(int(b.Template)) {
			c.failf("%w does not suit %s", where, x.class.Name)
		}
		if m.Mask != nil && !b.Mask.Within(m.Mask) {
			c.failf("%w could become something that %s excludes", where, x.class.Name)
		}
		if m.Shapes != nil && !b.Shapes.Within(m.Shapes) {
			c.failf("%w lists a shape that %s excludes", where, x.class.Name)
		}
	}
	for _, g := range t.Segments {
		if at := b.Mask.Next(g.From); at < 0 || at >= g.To {
			c.failf("%w: no choice left in bits %d to %d", where, g.From, g.To)
		}
	}
	for sh := range b.Shapes.All() {
		c.checkShape(where, b, t, sh, pods, used)
	}
	if !t.MeetsMinValues(b.Shapes, b.Mask, b.Relaxed) {
		c.failf("%w: bought as one kind it has too few values of %v, lowered to %v", where, t.Min, b.Relaxed)
	}
}

// checkShape: a machine that a new node lists is allowed and sold, and holds the pods: their needs, ports, devices and volumes.
func (c *checker) checkShape(where error, b *problem.Bin, t *problem.Template, sh int, pods []resident, used quantity.Vec) {
	name := t.Catalog.Names[sh]
	if !t.Shapes.Has(sh) {
		c.failf("%w lists %s, which the pool excludes", where, name)
		return
	}
	if !used.Fits(t.Room[sh]) {
		c.failf("%w lists %s, which cannot hold %v", where, name, used)
	}
	if !b.Mask.Meets3(t.ShapeMask[sh], bits.Full(len(t.Catalog.Offers))) {
		c.failf("%w lists %s, which the market does not sell there", where, name)
	}
	var ports []int
	if len(t.Daemons) > 0 {
		ports = t.Daemons[t.DaemonOf[sh]].Ports
	}
	as := fmt.Errorf("%w as %s", where, name)
	c.checkPorts(as, pods, ports)
	c.checkDevices(as, t.DevicesOf(sh), pods)
	for d := range t.Drivers {
		if t.Drivers[d] != nil && t.Drivers[d][sh] >= 0 && attached(pods, d, nil) > int(t.Drivers[d][sh]) {
			c.failf("%w lists %s, which takes no %d volumes", where, name, attached(pods, d, nil))
		}
	}
}

// checkDevices: each pod in turn gets its devices.
func (c *checker) checkDevices(where error, at []*devices.State, pods []resident) {
	for _, x := range pods {
		if len(x.class.Devices) == 0 {
			continue
		}
		next, no := devices.All(at, x.class.Devices)
		if no != nil || len(at) == 0 {
			c.failf("%w has no devices for %s: %+v", where, x.class.Name, no)
			return
		}
		at = next
	}
}

// checkShared: a claim for devices of a node is used on that node only.
func (c *checker) checkShared() {
	at := map[int]int{}
	for _, cr := range c.crowds() {
		for _, x := range cr.pods {
			for _, d := range x.class.Devices {
				if !d.Shared {
					continue
				}
				if d.At != devices.Nowhere {
					at[d.ID] = d.At
				}
				if bin, ok := at[d.ID]; ok && bin != cr.bin {
					c.failf("%s is on node %d, and its claim %s on node %d", x.class.Name, cr.bin, d.Name, bin)
				}
				at[d.ID] = cr.bin
			}
		}
	}
}

// checkPools: no limit is exceeded, even if each claim gets the largest machine that it lists.
func (c *checker) checkPools() {
	for i := range c.p.Pools {
		c.checkLimit(c.p.Pools[i].Name, &c.p.Pools[i].Limit,
			func(t problem.TemplateID, _ int) bool { return c.p.Templates[t].Pool == i })
	}
	for i := range c.p.Quotas {
		c.checkLimit(c.p.Quotas[i].Name, &c.p.Quotas[i].Limit, c.p.Quotas[i].Covers)
	}
}

// checkLimit: new nodes stay within one limit if each is launched as the largest machine that it lists and that counts. A limit that was
// exceeded before only must not get worse.
func (c *checker) checkLimit(name string, limit *limits.Pool, counts func(problem.TemplateID, int) bool) {
	left, before := limit.Clone(), limit.Clone()
	if left.Limited {
		for j := range c.r.Bins {
			b := &c.r.Bins[j]
			t := &c.p.Templates[b.Template]
			largest, counted := make(quantity.Vec, c.p.Resources), false
			for sh := range b.Shapes.All() {
				if counts(b.Template, sh) {
					counted = true
					largest.Max(t.Counts(sh))
				}
			}
			if counted {
				left.Take(largest)
			}
		}
		if left.Nodes < 0 && left.Nodes < before.Nodes {
			c.failf("limits of %s: %d nodes too many", name, -left.Nodes)
		}
		for r := range left.Left {
			if left.Left[r] < 0 && left.Left[r] < before.Left[r] {
				c.failf("limits of %s: %s exceeded by %d", name, c.p.Names[r], -left.Left[r])
			}
		}
	}
}

// checkReservations: no reservation has more machines in use than it has left.
func (c *checker) checkReservations() {
	used := make([]int, len(c.p.Reservations))
	for i := range c.r.Bins {
		if h := c.r.Bins[i].Held; h >= 0 {
			used[h]++
		}
	}
	for r, n := range used {
		if n > c.p.Reservations[r] {
			c.failf("reservation %d: %d machines of %d", r, n, c.p.Reservations[r])
		}
	}
}

// A crowd is the pods of one bin, with its domains.
type crowd struct {
	bin    int // nodes first, then new ones
	pods   []resident
	daemon []problem.Arrival // of a new node: the daemons that groups count
	domain func(key int) int // of a topology key, or spread.Host
}

// crowds returns the pods of each existing node that gets some, then those of each new node.
func (c *checker) crowds() []crowd {
	var out []crowd
	for i := range c.p.Nodes {
		if pods := c.onNode(i); len(pods) > 0 {
			out = append(out, crowd{i, pods, nil, func(key int) int {
				if key == spread.Host {
					return i
				}
				return int(c.p.Keys[key].Node[i])
			}})
		}
	}
	for i := range c.r.Bins {
		b := &c.r.Bins[i]
		out = append(out, crowd{len(c.p.Nodes) + i, c.residents(b.Puts), c.daemonsOn(b), func(key int) int {
			if key == spread.Host {
				return len(c.p.Nodes) + i
			}
			return int(b.Domain[key])
		}})
	}
	return out
}

// daemonsOn returns the daemons that groups count and that start on each machine that a new node's claim lists.
func (c *checker) daemonsOn(b *problem.Bin) []problem.Arrival {
	return slices.DeleteFunc(slices.Clone(c.p.Templates[b.Template].Arrivals(b.Target)), func(a problem.Arrival) bool {
		return a.Where != nil && !slices.ContainsFunc(a.Where, func(reqs int) bool {
			m := &c.p.Labels.OnTemplate[reqs][b.Template]
			return m.OK && (m.Shapes == nil || b.Shapes.Within(m.Shapes)) && (m.Mask == nil || b.Mask.Within(m.Mask))
		})
	})
}

// checkGroups: topology constraints hold once everything is placed.
func (c *checker) checkGroups() {
	crowds := c.crowds()
	for g := range c.p.Groups {
		c.checkGroup(g, &c.p.Groups[g], crowds)
	}
}

// A tally is what a group counts in one domain at the end.
type tally struct {
	before            int      // matching pods that ran already, and DaemonSet pods of new nodes
	daemons           int      // of before: the DaemonSet pods of new nodes
	matching          int      // matching pods of this batch that are counted
	owners, ownersOwn int      // owners of this batch, and those of them that match themselves
	sample            resident // one of the owners
}

// countDomains counts, for each domain of a group, what it sees there once everything is placed. It fails owners that are in no domain.
func (c *checker) countDomains(g int, group *spread.Group, crowds []crowd) map[int]*tally {
	out := map[int]*tally{}
	at := func(d int) *tally {
		if out[d] == nil {
			out[d] = &tally{before: int(group.At(d))}
		}
		return out[d]
	}
	for d := range group.Count {
		at(d)
	}
	for _, cr := range crowds {
		d := cr.domain(group.Key)
		for _, a := range cr.daemon {
			if a.Group == g && d >= 0 && c.countedOn(group, cr.bin) {
				at(d).before += a.Count
				at(d).daemons += a.Count
			}
		}
		for _, x := range cr.pods {
			matches, owns := slices.Contains(x.class.Groups, g) && c.facts.counts(x.variant, g), slices.Contains(x.variant.Owns, g)
			if d < 0 {
				if owns && group.Kind != spread.Anti {
					c.failf("%s carries a constraint over a label that its node does not have", x.class.Name)
				}
				continue
			}
			if matches && c.countedOn(group, cr.bin) {
				at(d).matching++
			}
			if owns {
				at(d).owners++
				at(d).sample = x
				if matches {
					at(d).ownersOwn++
				}
			}
		}
	}
	return out
}

// countedOn reports whether a group counts the pods of a bin: whether the bin passes the group's node filter.
func (c *checker) countedOn(group *spread.Group, bin int) bool {
	if bin < len(c.p.Nodes) {
		return group.Nodes == nil || group.Nodes.Has(bin)
	}
	b := &c.r.Bins[bin-len(c.p.Nodes)]
	if group.Templates != nil && !group.Templates.Has(int(b.Template)) || slices.ContainsFunc(group.Beside,
		func(key int) bool { return b.Domain[key] == problem.NoDomain }) {
		return false
	}
	return len(group.Filter) == 0 || slices.ContainsFunc(group.Filter, func(r int) bool { return c.p.Labels.OnTemplate[r][b.Template].OK })
}

// checkGroup: in each domain that got owners of a group, its constraint holds. For an affinity by host, the owners may begin in one place
// only: those that had no other pod to be near.
func (c *checker) checkGroup(g int, group *spread.Group, crowds []crowd) {
	domains := c.countDomains(g, group, crowds)
	alone := 0
	for d, t := range domains {
		if t.owners == 0 {
			continue
		}
		switch group.Kind {
		case spread.Spread:
			c.checkSkew(g, group, domains, d, t)
		case spread.Affinity:
			others := t.before + t.matching - t.ownersOwn
			if t.before+t.matching == 0 {
				c.failf("affinity %q: domain %d has owners and no pod to be near", group.Name, d)
			}
			if others == 0 {
				alone++
			}
		case spread.Anti:
			if group.Required && t.before+t.matching > min(t.ownersOwn, 1) {
				c.failf("anti-affinity %q: domain %d has %d owners and %d matching pods", group.Name, d, t.owners, t.before+t.matching)
			}
		}
	}
	if alone > 1 && group.Key == spread.Host {
		c.failf("affinity %q: owners began in %d hosts", group.Name, alone)
	}
	c.checkInverse(g, group, crowds)
}

// checkSkew: in each domain that got owners, these and what ran before are within the skew of the emptiest domain.
func (c *checker) checkSkew(g int, group *spread.Group, domains map[int]*tally, d int, t *tally) {
	least := 0
	if group.Key != spread.Host {
		known := 0
		class := slices.IndexFunc(c.p.Classes, func(x problem.Class) bool { return x.Name == t.sample.class.Name })
		reach := newState(c.facts).ties.reachOf(problem.ClassID(class)).domains[group.Key]
		for u := range c.p.Keys[group.Key].Values {
			if !group.Universe.Has(u) && !reach.Has(u) {
				continue
			}
			n := 0
			if domains[u] != nil {
				n = domains[u].before + domains[u].matching
			}
			if known == 0 || n < least {
				least = n
			}
			known++
		}
		if known < int(group.MinDomains) {
			least = 0
		}
	}
	before := t.before
	if !c.facts.strict.Has(g) {
		before -= t.daemons // nodes are opened although their daemons upset a mere preference of pods that are placed already
	}
	if t.ownersOwn == 0 {
		before = min(before, least+int(group.MaxSkew)) // owners that do not match do not raise the skew
	}
	if before+t.ownersOwn-least > int(group.MaxSkew) {
		c.failf("spread %q: domain %d has %d, the emptiest %d, skew %d", group.Name, d, before+t.ownersOwn, least, group.MaxSkew)
	}
}

// checkInverse: no pod is where running pods repel it.
func (c *checker) checkInverse(g int, group *spread.Group, crowds []crowd) {
	if group.Kind != spread.Anti || !group.Required {
		return
	}
	for _, cr := range crowds {
		d := cr.domain(group.Key)
		if d < 0 || group.OwnersAt(d) == 0 {
			continue
		}
		for _, x := range cr.pods {
			if slices.Contains(x.class.Groups, g) {
				c.failf("%s is in domain %d, where %q keeps it out", x.class.Name, d, group.Name)
			}
		}
	}
}

// checkPrice: prices are those of the listed shapes, and no bound is above them.
func (c *checker) checkPrice() {
	for i := range c.r.Bins {
		b := &c.r.Bins[i]
		t := &c.p.Templates[b.Template]
		l, ok := t.Catalog.Launch(b.Shapes, b.Mask, t.WantedMinValues(b.Relaxed), c.p.Settings.Terms.Band)
		if !ok || l != b.Launch {
			c.failf("new node %d: launch %+v, recorded %+v", i, l, b.Launch)
		}
		if l.Floor > l.Price || l.Price > l.Worst || l.Cost < l.Price {
			c.failf("new node %d: floor %d, price %d, worst %d, cost %d", i, l.Floor, l.Price, l.Worst, l.Cost)
		}
	}
	if got, want := billOf(c.p, c.r.Bins), (bill{c.r.Price, c.r.Floor, c.r.Cost}); got != want {
		c.failf("the bill is %+v, recorded %+v", got, want)
	}
	if bound := max(c.r.Volume, c.r.Config); bound > c.r.Cost {
		c.failf("the bound %d is above the cost %d", bound, c.r.Cost)
	}
	if c.r.Proof.Problem != nil {
		if err := verify.Verify(c.r.Proof.Problem, c.r.Proof.Certificate); err != nil {
			c.failf("the bound is not proven: %w", err)
		}
	}
}
