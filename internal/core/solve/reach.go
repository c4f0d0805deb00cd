package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A reach is the domains in which pods of a class could get a new node. kube-scheduler knows a domain only once it has a node, but a spread
// must also count the domains where this plan may open one.
type reach struct {
	domains  []bits.Set // by topology key
	heldBack bool       // some machine was left out because it is exotic or large
}

// reachOf returns, by topology key, the domains in which pods of a class could get a new node: at the beginning of the run, some pool that
// the pods may use can launch a machine there that they accept. A spread counts these domains as well as those of existing nodes, but not a
// zone in which nothing can be bought. Preferences and volumes are ignored, as in kube-scheduler.
func (ti *ties) reachOf(class problem.ClassID) reach {
	c := &ti.facts.p.Classes[class]
	spreads := ti.spreadKeys(c)
	anyMachine, heldBack := ti.anyMachine.Has(int(class)), false
	key := reachKey(c, spreads, anyMachine)
	if out, ok := ti.reaches[key]; ok {
		return out
	}
	out := make([]bits.Set, len(ti.facts.p.Keys))
	for k := range out {
		out[k] = bits.Make(len(ti.facts.p.Keys[k].Values))
	}
	var shapes []int32
	for i := range ti.facts.p.Templates {
		t := problem.TemplateID(i)
		for _, reqs := range c.Terms {
			mask := ti.labelledMask(t, ti.facts.p.Labels.OnTemplate[reqs][t].Mask, spreads)
			found, left := ti.stock.suitable(shapes[:0], c, &problem.Variant{Reqs: reqs, Tol: c.Tol}, t, anyMachine)
			heldBack = heldBack || left
			shapes = ti.labelled(found, t, mask, spreads)
			ti.addReach(out, t, mask, shapes)
		}
	}
	if ti.reaches == nil {
		ti.reaches = map[string]reach{}
	}
	ti.reaches[key] = reach{out, heldBack}
	return ti.reaches[key]
}

// spreadKeys returns the topology keys of the required spreads of a class, sorted, without the host name. The pods cannot be on a node
// that lacks one of these labels.
func (ti *ties) spreadKeys(c *problem.Class) []int {
	var out []int
	for _, g := range c.Variants[len(c.Variants)-1].Owns {
		if group := &ti.facts.p.Groups[g]; group.Kind == spread.Spread && group.Key != spread.Host {
			out = append(out, group.Key)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// labelledMask narrows the choices of template t to those with which a new node has a label for each of the keys. mask nil stands for all
// choices.
func (ti *ties) labelledMask(t problem.TemplateID, mask bits.Set, keys []int) bits.Set {
	for _, key := range keys {
		of := ti.facts.keyOf(key, t)
		if of.Kind != problem.ByChoice {
			continue
		}
		domains, some := bits.Make(len(of.Choice)), bits.Make(64*len(ti.facts.p.Templates[t].Mask))
		addChoices(domains, of, func(choice bits.Set) bool {
			if choice == nil {
				return false
			}
			copy(some, ti.facts.p.Templates[t].Mask)
			some.Keep(mask)
			some.And(choice)
			return ti.facts.p.Templates[t].SellsAny(some)
		})
		clear(some)
		for d := range domains.All() {
			some.Or(of.Choice[d])
		}
		some.Keep(mask)
		mask = some
	}
	return mask
}

// labelled keeps the shapes of template t that have a label for each of the keys, and that can be bought under the mask that labelledMask
// returned.
func (ti *ties) labelled(shapes []int32, t problem.TemplateID, mask bits.Set, keys []int) []int32 {
	return slices.DeleteFunc(shapes, func(sh int32) bool {
		return mask != nil && !ti.facts.sells(&ti.facts.p.Templates[t], int(sh), mask) ||
			slices.ContainsFunc(keys, func(key int) bool { return ti.facts.keyOf(key, t).DomainOf(int(sh)) == problem.NoDomain })
	})
}

// reachKey returns the key under which reachOf caches its result: everything about a class on which the result depends. Classes with the
// same key share one result.
func reachKey(c *problem.Class, spreads []int, anyMachine bool) string {
	key := identity.Number(make([]byte, 0, 64), int64(c.Tol))
	key = identity.Flag(key, anyMachine)
	key = identity.Numbers(key, spreads)
	key = identity.Numbers(key, c.Terms)
	key = identity.Text(key, c.TooMuch)
	key = identity.Numbers(key, c.Need)
	key = identity.Numbers(key, c.Ports)
	key = identity.Count(key, len(c.Volumes))
	for _, v := range c.Volumes {
		key = identity.Number(key, int64(v.Driver))
	}
	key = identity.Count(key, len(c.Devices))
	for _, d := range c.Devices {
		key = identity.Number(key, int64(d.ID))
	}
	return string(key)
}

// addReach adds to out the domains in which a template can launch one of the given shapes within limits.
func (ti *ties) addReach(out []bits.Set, t problem.TemplateID, mask bits.Set, shapes []int32) {
	tmpl := &ti.facts.p.Templates[t]
	limit := &ti.facts.p.Pools[tmpl.Pool].Limit
	sold, one := bits.Make(64*len(tmpl.Mask)), bits.Make(64*len(tmpl.Mask))
	found := false
	for _, sh := range shapes {
		if counts := tmpl.Counts(int(sh)); !limit.Fits(counts) || slices.ContainsFunc(ti.facts.p.Quotas, func(q problem.Quota) bool {
			return q.Covers(t, int(sh)) && !q.Limit.Fits(counts)
		}) {
			continue
		}
		found = true
		sold.Or(tmpl.ShapeMask[sh])
		for k := range out {
			if of := ti.facts.keyOf(k, t).Shape; of != nil && of[sh] >= 0 {
				out[k].Add(int(of[sh]))
			}
		}
	}
	if !found {
		return
	}
	if mask != nil {
		sold.And(mask)
	}
	for k := range out {
		of := ti.facts.keyOf(k, t)
		switch of.Kind {
		case problem.ByChoice:
			addChoices(out[k], of, func(choice bits.Set) bool {
				if choice == nil {
					return false
				}
				copy(one, sold)
				one.And(choice)
				return tmpl.SellsAny(one)
			})
		case problem.Fixed:
			out[k].Add(int(of.Domain))
		}
	}
}

// addChoices adds to out the domains of a key whose choice can be bought, as open reports. A domain that a node gets only if a pod asks
// for it (of.Asked) is added only if no other domain, and no node without the label, can be had.
func addChoices(out bits.Set, of *problem.KeyOf, open func(choice bits.Set) bool) {
	unasked := open(of.None)
	for d, choice := range of.Choice {
		if !of.Asked.Has(d) && open(choice) {
			out.Add(d)
			unasked = true
		}
	}
	for d := range of.Asked.All() {
		if !unasked && open(of.Choice[d]) {
			out.Add(d)
		}
	}
}
