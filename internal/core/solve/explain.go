package solve

import (
	"cmp"
	"slices"
	"strings"

	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
)

// explain says, for each class with pods left, which constraint removed what.
func (s *state) explain(left []int, partial bool) []reason.Explanation {
	out := make([]reason.Explanation, len(left))
	for ci, n := range left {
		if n > 0 {
			out[ci] = s.explainClass(ci, partial)
		}
	}
	return out
}

func (s *state) explainClass(ci int, partial bool) reason.Explanation {
	c := &s.p.Classes[ci]
	if c.TooMuch != "" {
		return reason.Explanation{{Code: reason.TooLarge, Key: c.TooMuch}}
	}
	if partial {
		return reason.Explanation{{Code: reason.NotReached}}
	}
	vi := len(c.Variants) - 1
	s.begin(ci, 1)
	out := s.explainNodes(c, ci, vi)
	for t := range s.p.Templates {
		out = append(out, s.explainTemplate(c, ci, vi, t)...)
	}
	if len(s.p.Templates) == 0 {
		out = append(out, reason.Count{Code: reason.NoPools})
	}
	return out
}

// A cause is a constraint, as far as explanations tell them apart.
type cause struct {
	code reason.Code
	key  string
}

// explainNodes counts existing nodes by the constraint that removed them.
func (s *state) explainNodes(c *Class, ci, vi int) reason.Explanation {
	counts := map[cause]int{}
	v, t := &c.Variants[vi], s.touchesOf(ci, vi)
	tol, on := s.p.Labels.TolNode[v.Tol], s.p.Labels.OnNode[v.Reqs]
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
			why.code = s.try(c, v, t, bin).code
			why.key = s.keyFor(why.code, t, c.Need, s.roomOf(bin))
		}
		if why.code != 0 {
			counts[why]++
		}
	}
	var out reason.Explanation
	for why, n := range counts {
		out = append(out, reason.Count{Code: why.code, Key: why.key, Candidates: n})
	}
	slices.SortFunc(out, func(a, b reason.Count) int { return cmp.Or(cmp.Compare(a.Code, b.Code), strings.Compare(a.Key, b.Key)) })
	return out
}

// keyFor names what a constraint was about: the resource that is short, or the topology key.
func (s *state) keyFor(code reason.Code, t *touches, need, room quantity.Vec) string {
	switch code {
	case reason.TooLarge:
		for r := range need {
			if need[r] > room[r] && r < len(s.p.Names) {
				return s.p.Names[r]
			}
		}
	case reason.Spread, reason.Affinity, reason.AntiAffinity:
		return s.keyOf(code, t)
	}
	return ""
}

// explainTemplate says why no new node of a template could take the class: the first constraint that leaves no shape, with how
// many shapes each constraint alone removes.
func (s *state) explainTemplate(c *Class, ci, vi, t int) reason.Explanation {
	tmpl := &s.p.Templates[t]
	v := &c.Variants[vi]
	pool := s.p.Pools[tmpl.Pool].Name
	all := tmpl.Shapes.Count()
	if !s.p.Labels.TolTmpl[v.Tol].Has(t) {
		return reason.Explanation{{Code: reason.Taint, Pool: pool, Candidates: all}}
	}
	m := &s.p.Labels.OnTemplate[v.Reqs][t]
	if !m.OK {
		return reason.Explanation{{Code: m.Code, Key: m.Key, Pool: pool, Candidates: all}}
	}
	if len(s.candidatesOf(ci, vi, t)) == 0 {
		return s.explainShapes(c, m, t)
	}
	t2 := s.touchesOf(ci, vi)
	if s.exhausted(ci, vi, t) {
		return reason.Explanation{s.explainLimit(ci, vi, t)}
	}
	code := s.openHost(t2)
	var refused target
	if code == 0 { // of this template alone: another of its tier may be refused for what this one does not know
		refused, code = s.openFrom(ci, vi, run{t, t + 1}, t2, 0)
	}
	key := s.keyOf(code, t2)
	if code == reason.MinValues {
		key = tmpl.Min[refused.unmet].Key
	}
	return reason.Explanation{{Code: code, Key: key, Pool: pool, Candidates: all}}
}

// explainShapes says why no shape of a template could hold a pod: how many shapes each constraint alone removes.
func (s *state) explainShapes(c *Class, m *Match, t int) reason.Explanation {
	tmpl := &s.p.Templates[t]
	all := tmpl.Shapes.Count()
	var out reason.Explanation
	add := func(code reason.Code, key string, n int) {
		if n > 0 {
			out = append(out, reason.Count{Code: code, Key: key, Pool: s.p.Pools[tmpl.Pool].Name, Candidates: n})
		}
	}
	match, equipped, sold := matching(m, tmpl.Shapes), s.equipped(c, t), s.sold(m, t)
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
	add(reason.NoOffering, "", all-sold)
	if len(out) == 0 || match > 0 && sold > 0 && equipped > 0 && s.fitting(c.Need, t) {
		add(reason.NoShape, "", all)
	}
	return out
}

// explainLimit names the limit that keeps the smallest candidate out.
func (s *state) explainLimit(ci, vi, t int) reason.Count {
	tmpl := &s.p.Templates[t]
	limit := &s.limits[tmpl.Pool]
	c := reason.Count{Code: reason.Limit, Pool: s.p.Pools[tmpl.Pool].Name, Candidates: tmpl.Shapes.Count()}
	for _, sh := range s.candidatesOf(ci, vi, t) {
		capacity := tmpl.Catalog.Capacity[sh]
		r := limit.Exceeded(capacity)
		if r == -1 {
			c.Key, c.Left, c.Needs = "nodes", limit.Nodes, 1
			return c
		}
		if r < 0 || r >= len(s.p.Names) {
			continue
		}
		var needs int64
		if r < len(capacity) {
			needs = capacity[r]
		}
		if c.Key == "" || c.Key == s.p.Names[r] && needs < c.Needs {
			c.Key, c.Left, c.Needs = s.p.Names[r], limit.Left[r], needs
		}
	}
	return c
}

// keyOf names the topology key of the constraints that a variant has to do with.
func (s *state) keyOf(code reason.Code, t *touches) string {
	named := func(to *touch) bool {
		return slices.ContainsFunc(to.owned, func(g int) bool { return codeOf(s.groups[g].Kind) == code }) || code == reason.AntiAffinity && len(to.shunned) > 0
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
