package solve

import (
	"maps"
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
)

// explain says, for each class with pods left, which constraint removed what.
func (s *state) explain(left []int, partial bool) []reason.Explanation {
	out := make([]reason.Explanation, len(left))
	for ci, n := range left {
		if n > 0 {
			out[ci] = s.explainClass(problem.ClassID(ci), partial)
		}
	}
	return out
}

func (s *state) explainClass(ci problem.ClassID, partial bool) reason.Explanation {
	c := &s.p.Classes[ci]
	if c.TooMuch != "" {
		return reason.Explanation{{Code: reason.TooLarge, Key: c.TooMuch}}
	}
	if partial {
		return reason.Explanation{{Code: reason.NotReached}}
	}
	s.begin(ci, 1)
	q := s.ask(s.read(ci, len(c.Variants)-1))
	out := s.explainNodes(q)
	for t := range s.p.Templates {
		out = append(out, s.explainTemplate(q, problem.TemplateID(t))...)
	}
	if len(s.p.Templates) == 0 {
		out = append(out, reason.Count{Code: reason.NoPools})
	}
	return out
}

// A cause is a constraint, as far as explanations tell them apart.
type cause struct {
	code   reason.Code
	key    string
	detail string
}

// explainNodes counts existing nodes by the constraint that removed them.
func (s *state) explainNodes(q *trial) reason.Explanation {
	counts := map[cause]int{}
	tol, on := s.p.Labels.TolNode[q.v.Tol], s.p.Labels.OnNode[q.v.Reqs]
	for bin := range s.p.Nodes {
		why := cause{}
		switch {
		case s.p.Nodes[bin].Closed:
			why.code = reason.Closed
		case !tol.Has(bin):
			why.code = reason.Taint
		case !on.Has(bin):
			why.code = reason.LabelMismatch
		default:
			why.code = s.try(q, problem.BinID(bin)).code
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

// keyFor names what a constraint was about: the resource that is short, the topology key, or the request for devices, with a word more.
func (s *state) keyFor(code reason.Code, q *trial) (key, detail string) {
	switch code {
	case reason.TooLarge:
		for r, have := range s.roomOf(q.bin) {
			if q.c.Need[r] > have && r < len(s.p.Names) {
				return s.p.Names[r], ""
			}
		}
	case reason.Spread, reason.Affinity, reason.AntiAffinity:
		return s.keyNamed(code, q.touches), ""
	case reason.Devices, reason.DeviceUnknown, reason.DeviceCEL, reason.DeviceHard, reason.DeviceAt:
		return s.whyNoDevices(q)
	}
	return "", ""
}

// explainTemplate says why no new node of a template could take the class: the first constraint that leaves no shape, with how
// many shapes each constraint alone removes.
func (s *state) explainTemplate(q *trial, t problem.TemplateID) reason.Explanation {
	tmpl := &s.p.Templates[t]
	pool := s.p.Pools[tmpl.Pool].Name
	all := tmpl.Shapes.Count()
	if !s.tolerates(q.v, t) {
		return reason.Explanation{{Code: reason.Taint, Pool: pool, Candidates: all}}
	}
	m := s.match(q.v, t)
	if !m.OK {
		return reason.Explanation{{Code: m.Code, Key: m.Key, Pool: pool, Candidates: all}}
	}
	shapes := s.candidatesOf(q.reading, t)
	if len(shapes) == 0 {
		return s.explainShapes(q.c, m, t)
	}
	if s.exhausted(t, shapes) {
		return reason.Explanation{s.explainLimit(t, shapes)}
	}
	if q.bin = s.bins(); s.heldOff(q, q.bin) {
		key, _ := s.whyNoDevices(q)
		return reason.Explanation{{Code: reason.DeviceAt, Key: key, Pool: pool, Candidates: all}}
	}
	code := s.openHost(q)
	var refused target
	if code == 0 { // of this template alone: another of its tier may be refused for what this one does not know
		refused, code = s.openFrom(q, run{t, t + 1}, 0)
	}
	key := s.keyNamed(code, q.touches)
	if code == reason.MinValues {
		key = tmpl.Min[refused.unmet].Key
	}
	return reason.Explanation{{Code: code, Key: key, Pool: pool, Candidates: all}}
}

// explainShapes says why no shape of a template could hold a pod: how many shapes each constraint alone removes.
func (s *state) explainShapes(c *problem.Class, m *problem.Match, t problem.TemplateID) reason.Explanation {
	tmpl := &s.p.Templates[t]
	all := tmpl.Shapes.Count()
	var out reason.Explanation
	add := func(code reason.Code, key string, n int) {
		if n > 0 {
			out = append(out, reason.Count{Code: code, Key: key, Pool: s.p.Pools[tmpl.Pool].Name, Candidates: n})
		}
	}
	match, sold := matching(m, tmpl.Shapes), s.sold(m, t)
	equipped := tmpl.CountShapes(func(sh int) bool { return fitsPorts(c, tmpl, sh) && fitsVolumes(c, tmpl, sh) })
	devices := s.explainDevices(c, tmpl, s.p.Pools[tmpl.Pool].Name)
	add(reason.LabelMismatch, "", all-match)
	for r, n := range s.shortOf(c.Need, t) {
		if n > 0 && r < len(s.p.Names) {
			add(reason.TooLarge, s.p.Names[r], n)
		}
	}
	if len(c.Ports) > 0 {
		add(reason.HostPort, "", all-equipped)
	} else {
		add(reason.VolumeLimit, "", all-equipped)
	}
	out = append(out, devices...)
	add(reason.NoOffering, "", all-sold)
	if len(out) == 0 || match > 0 && sold > 0 && equipped > 0 && s.fitting(c.Need, t) {
		add(reason.NoShape, "", all)
	}
	return out
}

// keyNamed names the topology key of the constraints that a variant has to do with.
func (s *state) keyNamed(code reason.Code, t *touches) string {
	named := func(to *touch) bool {
		return slices.ContainsFunc(to.owned, func(g int) bool { return codeOf(s.groups[g].Kind) == code }) ||
			code == reason.AntiAffinity && len(to.shunned) > 0
	}
	for i := range t.keys {
		if named(&t.keys[i]) {
			return s.p.Keys[t.keys[i].key].Name
		}
	}
	if named(&t.host) {
		return "kubernetes.io/hostname"
	}
	return ""
}
