package devices

import "slices"

const (
	mostSteps   = 20_000 // of one search; harder claims are refused as TooHard
	freeLooks   = 100    // devices that a step may look at; each further freeLooks count as a step
	mostDevices = 32     // of one claim, by the API
)

// A search looks for the devices of the claims of one pod.
type search struct {
	*State
	claims []*Claim
	all    map[*Option][]int // for options that want all devices: which these are
	rules  [][]rule          // by claim and constraint
	picks  []pick
	steps  int
	far    place    // the furthest request that it came to: the one named in a refusal
	no     *Refusal // set by what ends the whole search; nil while other devices may be tried
	spent  []int64  // by counter: what the picks draw
}

// A place is a request of a claim.
type place struct{ claim, request int }

// A pick is one device that a search has chosen.
type pick struct {
	place
	option *Option
	device int
	first  bool // it draws the counters of the device; further shares of a device do not
}

// A rule is the state of a constraint: the values of its attribute in the devices that were picked.
type rule struct{ seen []int32 }

func newSearch(s *State, claims []*Claim) *search {
	q := &search{State: s, claims: claims, all: map[*Option][]int{}, rules: make([][]rule, len(claims)),
		spent: make([]int64, len(s.counters))}
	for i, c := range claims {
		q.rules[i] = make([]rule, len(c.Constraints))
	}
	return q
}

// run searches, and leaves the devices of all claims in picks. It returns why that is not possible.
func (q *search) run() *Refusal {
	if q.findAll(); q.no != nil {
		return q.no
	}
	switch done := q.next(place{}); {
	case q.no != nil:
		return q.no
	case !done:
		return &Refusal{Why: TooFew, Request: q.nameOf(q.far)}
	}
	return nil
}

// nameOf returns a request as "claim/request".
func (q *search) nameOf(at place) string {
	c := q.claims[min(at.claim, len(q.claims)-1)]
	if at.request < len(c.Requests) {
		return c.Name + "/" + c.Requests[at.request].Name
	}
	return c.Name
}

// findAll lists the devices of each option that wants all, before any device is picked, as kube-scheduler does.
func (q *search) findAll() {
	for ci, c := range q.claims {
		for ri := range c.Requests {
			for oi := range c.Requests[ri].Options {
				if o := &c.Requests[ri].Options[oi]; o.All && q.no == nil {
					q.listAll(place{ci, ri}, o)
				}
			}
		}
	}
}

// listAll lists the devices of one option that wants all.
func (q *search) listAll(at place, o *Option) {
	if q.inventory.Unsure {
		q.refuse(at, &Refusal{Why: TooFew})
		return
	}
	var list []int
	for d := range q.inventory.Devices {
		if d%freeLooks == freeLooks-1 && !q.step(at) {
			return
		}
		if q.selects(at, o, d) && q.hasRoom(o, d) {
			list = append(list, d)
		}
	}
	q.all[o] = list
}

// refuse ends the search; the first reason stays.
func (q *search) refuse(at place, why *Refusal) {
	if q.no == nil {
		q.no = &Refusal{why.Why, q.nameOf(at), why.Detail}
	}
}

// next serves the requests from a place on, and reports whether it could. It tries the options of a request in their order.
func (q *search) next(at place) bool {
	if at.claim == len(q.claims) {
		return true
	}
	c := q.claims[at.claim]
	if at.request == len(c.Requests) {
		return q.next(place{claim: at.claim + 1})
	}
	if at.claim > q.far.claim || at.claim == q.far.claim && at.request > q.far.request {
		q.far = at
	}
	for oi := range c.Requests[at.request].Options {
		if q.serve(at, oi, 0, 0) {
			return true
		}
		if q.no != nil {
			return false
		}
	}
	return false
}

// serve picks the devices of option oi of a request, from its k-th on, and serves all requests after it. Only the devices from index from
// on are tried. It reports whether it could, and takes its picks back if not.
func (q *search) serve(at place, oi, k, from int) bool {
	if !q.step(at) {
		return false
	}
	o := &q.claims[at.claim].Requests[at.request].Options[oi]
	n := o.Count
	if o.All {
		n = len(q.all[o])
		if n == 0 {
			return false
		}
	}
	if k == n {
		return q.next(place{at.claim, at.request + 1})
	}
	if q.pickedBy(at.claim)+n-k > mostDevices {
		return false
	}
	if o.All {
		return q.try(at, oi, k, q.all[o][k])
	}
	for d := from; d < len(q.inventory.Devices); d++ {
		if (d-from)%freeLooks == freeLooks-1 && !q.step(at) {
			return false
		}
		if !q.free(at, o, d) || !q.selects(at, o, d) || !q.hasRoom(o, d) {
			if q.no != nil {
				return false
			}
			continue
		}
		if q.try(at, oi, k, d) {
			return true
		}
		if q.no != nil {
			return false
		}
	}
	return false
}

// step counts a step, and ends a search that has made too many. It reports whether the search goes on.
func (q *search) step(at place) bool {
	if q.steps++; q.steps > mostSteps {
		q.refuse(at, &Refusal{Why: TooHard})
	}
	return q.no == nil
}

// try picks device d as the k-th of an option, serves what is left, and reports whether it could. If not, the pick is taken back.
func (q *search) try(at place, oi, k, d int) bool {
	o := &q.claims[at.claim].Requests[at.request].Options[oi]
	if !q.free(at, o, d) || !o.Fits[q.inventory.Devices[d].Kind].Tolerated || !q.countersAllow(d) {
		return false
	}
	if !q.obeys(at, oi, d) {
		if o.All { // kube-scheduler gives up then, without trying other options
			q.refuse(at, &Refusal{Why: TooFew})
		}
		return false
	}
	if !q.hasRoom(o, d) {
		return false
	}
	q.picks = append(q.picks, pick{at, o, d, !q.inUse(d)})
	q.note(at, oi, d)
	q.countDraws(1)
	if q.serve(at, oi, k+1, d+1) {
		return true
	}
	q.countDraws(-1)
	q.forget(at, oi)
	q.picks = q.picks[:len(q.picks)-1]
	return false
}

// countDraws adds what the last pick draws to spent (times 1), or takes it off (times −1).
func (q *search) countDraws(times int64) {
	if p := q.picks[len(q.picks)-1]; p.first {
		for _, x := range q.inventory.Devices[p.device].Draws {
			q.spent[x.Counter] += times * x.Amount
		}
	}
}

// pickedBy counts the devices of a claim.
func (q *search) pickedBy(claim int) (n int) {
	for i := range q.picks {
		if q.picks[i].claim == claim {
			n++
		}
	}
	return n
}

// inUse reports whether a device that may be allocated several times is allocated, so that its counters are drawn already.
func (q *search) inUse(d int) bool {
	return q.inventory.Devices[d].Multiple && (q.shares[d] != nil ||
		slices.ContainsFunc(q.picks, func(p pick) bool { return p.device == d }))
}

// free reports whether an option may have a device, as far as other claims go. With administrator access a device may be in several claims,
// but only once in each.
func (q *search) free(at place, o *Option, d int) bool {
	if q.inventory.Devices[d].Multiple {
		return true
	}
	if q.used[d] && !o.Admin {
		return false
	}
	return !slices.ContainsFunc(q.picks, func(p pick) bool { return p.device == d && (!o.Admin || p.claim == at.claim) })
}

// selects reports whether the selectors of an option take a device. A selector that cannot be answered ends the search.
func (q *search) selects(at place, o *Option, d int) bool {
	f := &o.Fits[q.inventory.Devices[d].Kind]
	switch {
	case f.Bad != nil:
		q.refuse(at, f.Bad)
		return false
	case f.Selected && q.inventory.Devices[d].Mixed:
		q.refuse(at, &Refusal{Why: TooHard})
		return false
	}
	return f.Selected
}

// hasRoom reports whether one more share fits into the capacity of a device.
func (q *search) hasRoom(o *Option, d int) bool {
	dev := &q.inventory.Devices[d]
	f := &o.Fits[dev.Kind]
	if !f.Within {
		return false
	}
	if !dev.Multiple {
		return true
	}
	for i, most := range dev.Capacity {
		sum := f.Takes[i]
		if q.shares[d] != nil {
			sum += q.shares[d][i]
		}
		for _, p := range q.picks {
			if p.device == d {
				sum += p.option.Fits[dev.Kind].Takes[i]
			}
		}
		if sum > most {
			return false
		}
	}
	return true
}

// countersAllow reports whether enough is left of the counters that a device draws.
func (q *search) countersAllow(d int) bool {
	if q.inUse(d) {
		return true
	}
	for _, x := range q.inventory.Devices[d].Draws {
		if q.counters[x.Counter]-q.spent[x.Counter] < x.Amount {
			return false
		}
	}
	return true
}

// obeys reports whether the constraints of a claim allow one more device. An attribute that is not known ends the search.
func (q *search) obeys(at place, oi, d int) bool {
	c := q.claims[at.claim]
	kind := q.inventory.Devices[d].Kind
	for i := range c.Constraints {
		k := &c.Constraints[i]
		if !k.On[at.request][oi] {
			continue
		}
		if k.Bad != nil && k.Bad[kind] != "" {
			q.refuse(at, &Refusal{Why: Unknown, Detail: k.Bad[kind]})
			return false
		}
		seen := q.rules[at.claim][i].seen
		switch v := k.Values[kind]; {
		case v < 0, k.Distinct && slices.Contains(seen, v), !k.Distinct && len(seen) > 0 && seen[0] != v:
			return false
		}
	}
	return true
}

// note records the values of a picked device in the constraints of its claim.
func (q *search) note(at place, oi, d int) {
	c := q.claims[at.claim]
	for i := range c.Constraints {
		if c.Constraints[i].On[at.request][oi] {
			r := &q.rules[at.claim][i]
			r.seen = append(r.seen, c.Constraints[i].Values[q.inventory.Devices[d].Kind])
		}
	}
}

// forget takes back what the last note recorded.
func (q *search) forget(at place, oi int) {
	c := q.claims[at.claim]
	for i := range c.Constraints {
		if c.Constraints[i].On[at.request][oi] {
			r := &q.rules[at.claim][i]
			r.seen = r.seen[:len(r.seen)-1]
		}
	}
}

// allocated returns the state after the picks are allocated. Devices that an option with administrator access gets stay free.
func (q *search) allocated() *State {
	next := &State{inventory: q.inventory, effort: q.effort, used: slices.Clone(q.used),
		shares: slices.Clone(q.shares), counters: slices.Clone(q.counters),
		held: slices.Clone(q.held), drivers: slices.Clone(q.drivers)}
	for _, p := range q.picks {
		d := &q.inventory.Devices[p.device]
		if at, has := slices.BinarySearch(next.drivers, d.Driver); !has {
			next.drivers = slices.Insert(next.drivers, at, d.Driver)
		}
		if !p.option.Admin {
			next.Use(p.device, p.option.Fits[d.Kind].Takes)
		}
	}
	for _, c := range q.claims {
		if c.Shared {
			next.Hold(c)
		}
	}
	return next
}
