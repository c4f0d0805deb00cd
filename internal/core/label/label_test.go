package label

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A twin is the same set, spelled out over a small world: these values, and absence.
type twin struct {
	in     map[string]bool
	absent bool
}

var world = []string{"A", "B", "zz", "-7", "-1", "0", "1", "2", "3", "5", "8", "9", "10", "77"}

func twinOf(op Op, values []string) twin {
	t := twin{in: map[string]bool{}}
	for _, v := range world {
		n, err := strconv.Atoi(v)
		var bound int
		if len(values) > 0 {
			bound, _ = strconv.Atoi(values[0])
		}
		switch op {
		case In:
			t.in[v] = slices.Contains(values, v)
		case NotIn:
			t.in[v] = !slices.Contains(values, v)
		case Exists:
			t.in[v] = true
		case DoesNotExist:
		case Gt:
			t.in[v] = err == nil && n > bound
		case Lt:
			t.in[v] = err == nil && n < bound
		case Gte:
			t.in[v] = err == nil && n >= bound
		case Lte:
			t.in[v] = err == nil && n <= bound
		}
	}
	t.absent = op == NotIn && len(values) > 0 || op == DoesNotExist
	return t
}

func (t twin) and(u twin) twin {
	r := twin{in: map[string]bool{}, absent: t.absent && u.absent}
	for _, v := range world {
		r.in[v] = t.in[v] && u.in[v]
	}
	return r
}

// takes spells out that a label has one of some values, or is absent if there are none.
func (t twin) takes(values []string) bool {
	if len(values) == 0 {
		return t.absent
	}
	for _, v := range values {
		if t.in[v] {
			return true
		}
	}
	return false
}

func (t twin) any() bool {
	for _, ok := range t.in {
		if ok {
			return true
		}
	}
	return t.absent
}

func randomTerm(r *rand.Rand) (Op, []string) {
	ops := []Op{In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte}
	op := ops[r.IntN(len(ops))]
	switch op {
	case In, NotIn:
		var values []string
		for range r.IntN(4) {
			values = append(values, world[r.IntN(len(world))])
		}
		return op, values
	case Gt, Lt, Gte, Lte:
		return op, []string{world[3+r.IntN(len(world)-3)]}
	}
	return op, nil
}

// TestSetsEqualTheirTwins narrows sets by random operators and compares every answer with the spelled-out twin.
func TestSetsEqualTheirTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		var story string
		build := func() (Set, twin) {
			s, w := Anything(), twinOf(Exists, nil)
			w.absent = true
			for range 1 + r.IntN(3) {
				op, values := randomTerm(r)
				story += fmt.Sprintf(" %s%v", op, values)
				n, ok := New(op, values)
				if !ok {
					t.Fatalf("New(%s, %v) failed", op, values)
				}
				s, w = s.Intersect(n), w.and(twinOf(op, values))
			}
			return s, w
		}
		a, aw := build()
		story += " ×"
		b, bw := build()
		both, bothw := a.Intersect(b), aw.and(bw)
		for _, v := range world {
			if a.Has(v) != aw.in[v] || both.Has(v) != bothw.in[v] {
				t.Fatalf("%s: value %s: got %v %v, want %v %v", story, v, a.Has(v), both.Has(v), aw.in[v], bothw.in[v])
			}
		}
		if some := world[:r.IntN(3)]; a.Takes(some...) != aw.takes(some) {
			t.Fatalf("%s: Takes(%v) = %v", story, some, a.Takes(some...))
		}
		if a.HasAbsent() != aw.absent || both.HasAbsent() != bothw.absent {
			t.Fatalf("%s: absence differs", story)
		}
		if a.Meets(b) != !both.Empty() || a.Meets(b) != b.Meets(a) {
			t.Fatalf("%s: Meets %v, but the intersection is %v", story, a.Meets(b), both)
		}
		if bothw.any() && both.Empty() {
			t.Fatalf("%s: empty, but the twin is not", story)
		}
		again := Anything()
		for _, term := range both.Terms() {
			s, ok := New(term.Op, term.Values)
			if !ok {
				t.Fatalf("%s: cannot read back %v", story, term)
			}
			again = again.Intersect(s)
		}
		for _, v := range world {
			if again.Has(v) != both.Has(v) {
				t.Fatalf("%s: %v written and read back differs at %s", story, both, v)
			}
		}
	}
}

func TestTermsOfBoundedSets(t *testing.T) {
	for name, tc := range map[string]struct {
		ops  []Term
		want string
	}{
		"Gt 1 is written as Gte 2":                          {[]Term{{Op: Gt, Values: []string{"1"}}}, "Gte [2]"},
		"Lt 9 is written as Lte 8":                          {[]Term{{Op: Lt, Values: []string{"9"}}}, "Lte [8]"},
		"both bounds are two entries":                       {[]Term{{Op: Gt, Values: []string{"1"}}, {Op: Lt, Values: []string{"9"}}}, "Gte [2] Lte [8]"},
		"the tighter of two bounds stays":                   {[]Term{{Op: Gt, Values: []string{"1"}}, {Op: Gte, Values: []string{"5"}}}, "Gte [5]"},
		"excluded values within the bounds are kept":        {[]Term{{Op: Gt, Values: []string{"1"}}, {Op: NotIn, Values: []string{"4", "x"}}}, "Gte [2] NotIn [4]"},
		"contradictory bounds are the empty set":            {[]Term{{Op: Gt, Values: []string{"9"}}, {Op: Lt, Values: []string{"1"}}}, "In"},
		"Gt of the largest integer is the empty set":        {[]Term{{Op: Gt, Values: []string{"9223372036854775807"}}}, "In"},
		"Exists narrowed by NotIn must still exist":         {[]Term{{Op: Exists}, {Op: NotIn, Values: []string{"a"}}}, "NotIn [a] Exists"},
		"Exists with DoesNotExist is the empty set":         {[]Term{{Op: Exists}, {Op: DoesNotExist}}, "In"},
		"In a with NotIn a is the empty set":                {[]Term{{Op: In, Values: []string{"a"}}, {Op: NotIn, Values: []string{"a"}}}, "In"},
		"NotIn with NotIn excludes both and allows absence": {[]Term{{Op: NotIn, Values: []string{"a"}}, {Op: NotIn, Values: []string{"b"}}}, "NotIn [a b]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Anything()
			for _, o := range tc.ops {
				n, ok := New(o.Op, o.Values)
				if !ok {
					t.Fatalf("New(%v) failed", o)
				}
				s = s.Intersect(n)
			}
			if got := said(s); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMinValuesKeepTheLarger(t *testing.T) {
	a, b := Existing(), Only("x", "y")
	a.Min, b.Min = 2, 1
	if got := a.Intersect(b).Min; got != 2 {
		t.Errorf("Min = %d, want 2", got)
	}
}

func TestReqsMerge(t *testing.T) {
	a := Reqs{}.With("kubernetes.io/arch", Only("arm64", "amd64")).With("b", Existing())
	b := Reqs{}.With("kubernetes.io/arch", Only("arm64")).With("a", Absent())
	if got, want := saidAll(a.And(b)), "a DoesNotExist, b Exists, kubernetes.io/arch In [arm64]"; got != want {
		t.Errorf("And = %q, want %q", got, want)
	}
	if key, bad := a.And(Reqs{}.With("b", Absent())).Conflict(); !bad || key != "b" {
		t.Errorf("Conflict = %q, %v", key, bad)
	}
	if _, ok := b.Allow(map[string]string{"kubernetes.io/arch": "arm64"}); !ok {
		t.Error("a node with the right value and without the absent label is refused")
	}
	if key, ok := b.Allow(map[string]string{"kubernetes.io/arch": "arm64", "a": "x"}); ok || key != "a" {
		t.Errorf("Allow = %q, %v", key, ok)
	}
}

func FuzzNew(f *testing.F) {
	f.Add("In", "a", "b")
	f.Add("Gt", "5", "")
	f.Fuzz(func(t *testing.T, op, v, w string) {
		s, ok := New(Op(op), []string{v})
		if !ok {
			return
		}
		u, _ := New(NotIn, []string{w})
		r := s.Intersect(u)
		if r.Has(w) || (r.Has(v) && !s.Has(v)) {
			t.Errorf("%s %q without %q has too much: %v", op, v, w, r)
		}
	})
}

// said prints the operator and the values.
func said(s Set) string {
	var parts []string
	for _, t := range s.Terms() {
		parts = append(parts, string(t.Op))
		if len(t.Values) > 0 {
			parts = append(parts, fmt.Sprint(t.Values))
		}
	}
	return strings.Join(parts, " ")
}

// saidAll prints requirements, joined by commas.
func saidAll(r Reqs) string {
	var parts []string
	for _, q := range r {
		parts = append(parts, q.Key+" "+said(q.Set))
	}
	return strings.Join(parts, ", ")
}

// A value is in a set or in its complement, and so is absence.
func TestComplement(t *testing.T) {
	for name, s := range map[string]Set{"In": Only("a", "b"), "NotIn": Except("a"), "Exists": Existing(), "DoesNotExist": Absent(), "anything": Anything(), "nothing": Nothing()} {
		c, ok := s.Complement()
		if !ok || c.HasAbsent() == s.HasAbsent() {
			t.Errorf("%s: absence is in both or in neither", name)
		}
		for _, v := range []string{"a", "b", "7"} {
			if c.Has(v) == s.Has(v) {
				t.Errorf("%s: %s is in both or in neither", name, v)
			}
		}
	}
	if s, _ := New(Gt, []string{"3"}); s.bounded() {
		if _, ok := s.Complement(); ok {
			t.Error("bounds have a complement")
		}
	}
}

func TestOf(t *testing.T) {
	got := Of([]Req{{Key: "zone", Set: Only("b", "a")}, {Key: "arch", Set: Only("arm64")}, {Key: "zone", Set: Only("a", "c")}})
	want := Reqs{}.With("zone", Only("b", "a")).With("arch", Only("arm64")).With("zone", Only("a", "c"))
	if got.Key() != want.Key() {
		t.Errorf("Of = %v, want %v", got, want)
	}
	if zone, _ := got.Get("zone"); len(got) != 2 || !slices.Equal(zone.Values(), []string{"a"}) {
		t.Errorf("zone may be %v", zone.Values())
	}
}
