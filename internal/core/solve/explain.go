package solve

import (
	"maps"
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
)

// explain returns, for each class with pods left, how many nodes and machines each constraint ruled out. left is the number of pods without
// a place by class; partial means that the search was cut before it had tried all pods.
func (s *state) explain(left []int, partial bool) []reason.Explanation {
	out := make([]reason.Explanation, len(left))
	for ci, n := range left {
		if n > 0 {
			out[ci] = s.explainClass(problem.ClassID(ci), partial)
		}
	}
	return out
}

// explainClass explains why one pod more of a class has no place, with the preferences of the class dropped.
func (s *state) explainClass(ci problem.ClassID, partial bool) reason.Explanation {
	c := &s.facts.p.Classes[ci]
	if c.TooMuch != "" {
		return reason.Explanation{{Code: reason.TooLarge, Key: c.TooMuch}}
	}
	if partial {
		return reason.Explanation{{Code: reason.NotReached}}
	}
	s.begin(ci, 1)
	q := s.ask(s.read(ci, len(c.Variants)-1))
	out := s.explainNodes(q)
	for t := range s.facts.p.Templates {
		out = append(out, s.explainTemplate(q, problem.TemplateID(t))...)
	}
	if len(s.facts.p.Templates) == 0 {
		out = append(out, reason.Count{Code: reason.NoPools})
	}
	return out
}

// A cause is why a node was ruled out. Nodes with equal causes are counted together.
type cause struct {
	code   reason.Code
	key    string
	detail string
}

// explainNodes counts existing nodes by the constraint that ruled them out.
func (s *state) explainNodes(q *trial) reason.Explanation {
	counts := map[cause]int{}
	tol, on := s.facts.p.Labels.TolNode[q.v.Tol], s.facts.p.Labels.OnNode[q.v.Reqs]
	lack := &s.facts.p.Labels.Lacks[q.v.Tol]
	for bin := range s.facts.p.Nodes {
		why := cause{}
		switch {
		case s.facts.p.Nodes[bin].Closed:
			why.code = reason.Closed
		case lack.Node.Has(bin):
			why.code, why.key = reason.NodeFeature, lack.Features
		case !tol.Has(bin):
			why.code = reason.Taint
		case !on.Has(bin):
			why.code = reason.LabelMismatch
		default:
			why.code = s.fleet.try(q, problem.BinID(bin)).code
			why.key, why.detail = s.keyFor(why.code, q)
		}
		if why.code != 0 {
			counts[why]++
		}
	}
	var out reason.Explanation
	for _, why := range slices.SortedFunc(maps.Keys(counts), cause.compare) {
		out = append(out, reason.Count{Code: why.code, Key: why.key, Detail: why.detail, Candidates: counts[why]})
	}
	return out
}

// keyFor returns what a refusal with the given code was about: the resource that is short, the topology key, or the device request with a
// detail.
func (s *state) keyFor(code reason.Code, q *trial) (key, detail string) {
	switch code {
	case reason.TooLarge:
		for r, have := range s.fleet.bins.roomOf(q.bin) {
			if q.c.Need[r] > have && r < len(s.facts.p.Names) {
				return s.facts.p.Names[r], ""
			}
		}
	case reason.Spread, reason.Affinity, reason.AntiAffinity:
		return s.keyNamed(code, q.touches), ""
	case reason.Devices, reason.DeviceUnknown, reason.DeviceCEL, reason.DeviceHard, reason.DeviceAt:
		return s.whyNoDevices(q)
	}
	return "", ""
}

// explainTemplate explains why no new node of a template can take a pod of the class. It checks the constraints in the order below and
// stops at the first that rules out the template.
func (s *state) explainTemplate(q *trial, t problem.TemplateID) reason.Explanation {
	tmpl := &s.facts.p.Templates[t]
	pool := s.facts.p.Pools[tmpl.Pool].Name
	all := tmpl.Shapes.Count()
	if lack := &s.facts.p.Labels.Lacks[q.v.Tol]; lack.Tmpl.Has(int(t)) {
		return reason.Explanation{{Code: reason.NodeFeature, Key: lack.Features, Pool: pool, Candidates: all}}
	}
	if !s.facts.tolerates(q.v, t) {
		return reason.Explanation{{Code: reason.Taint, Pool: pool, Candidates: all}}
	}
	m := s.facts.match(q.v, t)
	if !m.OK {
		return reason.Explanation{{Code: m.Code, Key: m.Key, Pool: pool, Candidates: all}}
	}
	shapes := s.opener.candidatesOf(q.reading, t)
	if len(shapes) == 0 {
		return s.explainShapes(q.c, m, t)
	}
	if s.fleet.stock.exhausted(t, shapes) {
		return s.fleet.stock.explainLimit(t, shapes)
	}
	if q.bin = s.fleet.bins.next(); s.fleet.heldOff(q, q.bin) {
		key, _ := s.whyNoDevices(q)
		return reason.Explanation{{Code: reason.DeviceAt, Key: key, Pool: pool, Candidates: all}}
	}
	code := s.opener.newHostRefuses(q)
	var refused target
	if code == 0 { // try this template alone: another one of its tier may be refused for another reason
		refused, code = s.opener.targetFrom(q, run{t, t + 1}, 0)
	}
	key := s.keyNamed(code, q.touches)
	if code == reason.MinValues {
		key = tmpl.Min[refused.unmet].Key
	}
	return reason.Explanation{{Code: code, Key: key, Pool: pool, Candidates: all}}
}

// explainShapes explains why no shape of a template can hold a pod of class c. It counts how many shapes each constraint alone rules
// out, and adds NoShape if no constraint alone rules out all shapes. A shortage of an assumed request is left out if the request itself
// rules out as many shapes.
func (s *state) explainShapes(c *problem.Class, m *problem.Match, t problem.TemplateID) reason.Explanation {
	tmpl := &s.facts.p.Templates[t]
	all := tmpl.Shapes.Count()
	var out reason.Explanation
	add := func(code reason.Code, key string, n int) {
		if n > 0 {
			out = append(out, reason.Count{Code: code, Key: key, Pool: s.facts.p.Pools[tmpl.Pool].Name, Candidates: n})
		}
	}
	match, sold := matching(m, tmpl.Shapes), s.facts.sold(m, t)
	equipped := tmpl.CountShapes(func(sh int) bool { return fitsPorts(c, tmpl, sh) && fitsVolumes(c, tmpl, sh) })
	devices := s.explainDevices(c, tmpl, s.facts.p.Pools[tmpl.Pool].Name)
	add(reason.LabelMismatch, "", all-match)
	short := s.facts.shortOf(c.Need, t)
	for r, n := range short {
		if r < len(s.facts.p.Names) && !(quantity.Assumed(s.facts.p.Names[r]) && short[quantity.RequestedOf(s.facts.p.Names[r])] >= n) {
			add(reason.TooLarge, s.facts.p.Names[r], n)
		}
	}
	if len(c.Ports) > 0 {
		add(reason.HostPort, "", all-equipped)
	} else {
		add(reason.VolumeLimit, "", all-equipped)
	}
	out = append(out, devices...)
	add(reason.NoOffering, "", all-sold)
	bare := 0 // shapes without the devices that the pod needs
	for _, d := range devices {
		bare += d.Candidates
	}
	if len(out) == 0 || match > 0 && sold > 0 && equipped > 0 && bare < all && s.facts.fitting(c.Need, t) {
		add(reason.NoShape, "", all)
	}
	return out
}

// keyNamed returns the topology key of the constraint that refused a pod with the given code; "" if there is none.
func (s *state) keyNamed(code reason.Code, t *touches) string {
	named := func(to *touch) bool {
		return slices.ContainsFunc(to.owned, func(g int) bool { return codeOf(s.fleet.census.groups[g].Kind) == code }) ||
			code == reason.AntiAffinity && len(to.shunned) > 0
	}
	for i := range t.keys {
		if named(&t.keys[i]) {
			return s.facts.p.Keys[t.keys[i].key].Name
		}
	}
	if named(&t.host) {
		return "kubernetes.io/hostname"
	}
	return ""
}
