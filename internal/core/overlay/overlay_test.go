package overlay

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	vocabulary "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
)

var known = vocabulary.NewVocabulary(v1.Labels())

const (
	typeKey = corev1.LabelInstanceTypeStable
	zoneKey = corev1.LabelTopologyZone
	wayKey  = v1.CapacityTypeLabelKey
)

// overlayOf reads "name weight=2 price=0.5 adjust=+10% cap=example.com/x:2 key=a,b !key=c key key! key>3".
func overlayOf(text string) *v1alpha1.NodeOverlay {
	words := strings.Fields(text)
	o := &v1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: words[0]}}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "weight":
			var n int32
			fmt.Sscan(value, &n)
			o.Spec.Weight = &n
		case "price":
			o.Spec.Price = &value
		case "adjust":
			o.Spec.PriceAdjustment = &value
		case "cap":
			name, amount, _ := strings.Cut(value, ":")
			if o.Spec.Capacity == nil {
				o.Spec.Capacity = corev1.ResourceList{}
			}
			o.Spec.Capacity[corev1.ResourceName(name)] = resource.MustParse(amount)
		default:
			o.Spec.Requirements = append(o.Spec.Requirements, requirementOf(w))
		}
	}
	return o
}

var keys = map[string]string{"type": typeKey, "zone": zoneKey, "way": wayKey, "pool": v1.NodePoolLabelKey, "arch": corev1.LabelArchStable, "team": "team", "cores": "example.com/cores", "block": "example.com/block"}

func requirementOf(w string) v1alpha1.NodeSelectorRequirement {
	key, values, listed := strings.Cut(w, "=")
	r := v1alpha1.NodeSelectorRequirement{Operator: corev1.NodeSelectorOpIn, Values: strings.Split(values, ",")}
	switch {
	case strings.Contains(key, ">"):
		key, values, _ = strings.Cut(key, ">")
		r.Operator, r.Values = corev1.NodeSelectorOpGt, []string{values}
	case strings.HasPrefix(key, "!") && listed:
		key, r.Operator = key[1:], corev1.NodeSelectorOpNotIn
	case strings.HasPrefix(key, "!"):
		key, r.Operator, r.Values = key[1:], corev1.NodeSelectorOpDoesNotExist, nil
	case !listed:
		r.Operator, r.Values = corev1.NodeSelectorOpExists, nil
	}
	r.Key = keys[key]
	return r
}

// typeOf makes a type that costs a dollar on demand and 40 cents on spot in zones a and b.
func typeOf(name, arch string) *cloud.InstanceType {
	it := &cloud.InstanceType{
		Name:     name,
		Labels:   map[string][]string{typeKey: {name}, corev1.LabelArchStable: {arch}, zoneKey: {"a", "b"}, wayKey: {"on-demand", "spot"}, "example.com/cores": {"4"}, "example.com/none": nil},
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
	}
	for _, zone := range []string{"a", "b"} {
		for way, price := range map[string]float64{"on-demand": 1, "spot": 0.4} {
			it.Offerings = append(it.Offerings, cloud.Offering{Labels: map[string]string{zoneKey: zone, wayKey: way}, Price: cloud.FromDollars(price), Available: true})
		}
	}
	slices.SortFunc(it.Offerings, func(a, b cloud.Offering) int { return strings.Compare(offerName(a), offerName(b)) })
	return it
}

func offerName(o cloud.Offering) string { return o.Zone() + "/" + o.CapacityType() }

func poolOf(name string, labels map[string]string) *v1.NodePool {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Template.Labels = labels
	p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "example.com", Kind: "Class", Name: "gold"}
	return p
}

func world() []Pool {
	c := &cloud.Catalog{Types: []*cloud.InstanceType{typeOf("big", "amd64"), typeOf("small", "arm64")}}
	return []Pool{{poolOf("one", map[string]string{"team": "blue"}), c}, {poolOf("two", nil), c}}
}

// told prints what a pool's corrected catalogue says: only what is not the cloud's.
func told(b *Book, p Pool) []string {
	var out []string
	for _, it := range b.Apply(p.Pool, p.Catalog, nil).Catalog().Types {
		for _, o := range it.Offerings {
			if o.Overlaid {
				out = append(out, fmt.Sprintf("%s/%s/%s=%v", p.Pool.Name, it.Name, offerName(o), o.Price.Dollars()))
			}
		}
		if it.Overlaid {
			for _, name := range []corev1.ResourceName{"example.com/x", "example.com/y"} {
				if amount, ok := it.Capacity[name]; ok {
					out = append(out, fmt.Sprintf("%s/%s %s=%s", p.Pool.Name, it.Name, name, amount.String()))
				}
			}
		}
	}
	return out
}

func TestJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		overlays []string
		refused  map[string]string // name → "invalid" or with whom it disagrees
		want     []string          // nil: not looked at
	}{
		"no overlay changes nothing":                          {},
		"one that selects nothing changes nothing":            {overlays: []string{"o price=2 type=none"}, want: nil},
		"a price for one way to buy one type in one pool":     {overlays: []string{"o price=2 type=big way=spot zone=a pool=one"}, want: []string{"one/big/a/spot=2"}},
		"an empty list selects everything":                    {overlays: []string{"o price=3"}, want: all(func(string) string { return "3" })},
		"an adjustment is of the price of each offering":      {overlays: []string{"o adjust=+10% type=big pool=two zone=b"}, want: []string{"two/big/b/on-demand=1.1", "two/big/b/spot=0.44"}},
		"a label of the pool's template":                      {overlays: []string{"o price=2 team=blue type=big zone=a way=spot"}, want: []string{"one/big/a/spot=2"}},
		"a pool without the label is met by its absence only": {overlays: []string{"o price=2 !team=blue type=big zone=a way=spot"}, want: []string{"two/big/a/spot=2"}},
		"a label that nothing has":                            {overlays: []string{"o price=2 block"}, want: nil},
		"the absence of a label that nothing has":             {overlays: []string{"o price=2 !block type=big zone=a way=spot pool=one"}, want: []string{"one/big/a/spot=2"}},
		"a number":                                              {overlays: []string{"o price=2 cores>3 type=big zone=a way=spot pool=one"}, want: []string{"one/big/a/spot=2"}},
		"a number that is too small":                            {overlays: []string{"o price=2 cores>4"}, want: nil},
		"capacity goes to the whole type":                       {overlays: []string{"o cap=example.com/x:2 type=big zone=a pool=one"}, want: []string{"one/big example.com/x=2"}},
		"price and capacity at once":                            {overlays: []string{"o price=2 cap=example.com/x:2 type=big zone=a way=spot pool=one"}, want: []string{"one/big/a/spot=2", "one/big example.com/x=2"}},
		"a price never falls below zero":                        {overlays: []string{"o adjust=-2 type=big zone=a way=spot pool=one"}, want: []string{"one/big/a/spot=0"}},
		"the heavier price wins, without a conflict":            {overlays: []string{"light price=2 type=big zone=a way=spot pool=one", "heavy weight=5 price=3 type=big zone=a way=spot pool=one"}, want: []string{"one/big/a/spot=3"}},
		"the heavier wins for what it speaks of only":           {overlays: []string{"light price=2 type=big zone=a pool=one", "heavy weight=5 price=3 type=big zone=a way=spot pool=one"}, want: []string{"one/big/a/on-demand=2", "one/big/a/spot=3"}},
		"a heavier capacity wins for each resource":             {overlays: []string{"light cap=example.com/x:1 cap=example.com/y:1 type=big pool=one", "heavy weight=1 cap=example.com/x:9 type=big pool=one"}, want: []string{"one/big example.com/x=9", "one/big example.com/y=1"}},
		"equal weights: the earlier name loses":                 {overlays: []string{"a price=2 type=big zone=a way=spot pool=one", "b price=3 type=big zone=a way=spot pool=one"}, refused: map[string]string{"a": "b"}, want: []string{"one/big/a/spot=3"}},
		"equal values contradict too":                           {overlays: []string{"a price=2 type=big zone=a way=spot pool=one", "b price=2 type=big zone=a way=spot pool=one"}, refused: map[string]string{"a": "b"}, want: []string{"one/big/a/spot=2"}},
		"who loses loses everywhere":                            {overlays: []string{"a price=2 zone=a way=spot", "b price=3 type=big zone=a way=spot pool=one"}, refused: map[string]string{"a": "b"}, want: []string{"one/big/a/spot=3"}},
		"who loses does not stand in the way of the next":       {overlays: []string{"a price=1 type=small zone=a way=spot pool=one", "b price=2 zone=a way=spot pool=one", "c price=3 type=big zone=a way=spot pool=one"}, refused: map[string]string{"b": "c"}, want: []string{"one/big/a/spot=3", "one/small/a/spot=1"}},
		"zones that exclude each other":                         {overlays: []string{"a price=2 type=big way=spot zone=a pool=one", "b price=3 type=big way=spot zone=b pool=one"}, want: []string{"one/big/a/spot=2", "one/big/b/spot=3"}},
		"pools that exclude each other":                         {overlays: []string{"a price=2 type=big way=spot zone=a pool=one", "b price=3 type=big way=spot zone=a pool=two"}, want: []string{"one/big/a/spot=2", "two/big/a/spot=3"}},
		"two light ones contradict in the shadow of a heavy":    {overlays: []string{"a price=2 type=big", "b price=3 type=big", "h weight=9 price=4 type=big zone=a way=spot pool=one"}, refused: map[string]string{"a": "b"}},
		"a price and a capacity do not contradict":              {overlays: []string{"a price=2 type=big zone=a way=spot pool=one", "b cap=example.com/x:1 type=big pool=one"}, want: []string{"one/big/a/spot=2", "one/big example.com/x=1"}},
		"one resource of equal weight twice":                    {overlays: []string{"a cap=example.com/x:1 type=big", "b cap=example.com/x:1 type=big"}, refused: map[string]string{"a": "b"}},
		"capacities of one type, though their offerings differ": {overlays: []string{"a cap=example.com/x:1 type=big zone=a", "b cap=example.com/x:1 type=big zone=b"}, refused: map[string]string{"a": "b"}},
		"different resources merge":                             {overlays: []string{"a cap=example.com/x:1 type=big pool=one", "b cap=example.com/y:2 type=big pool=one"}, want: []string{"one/big example.com/x=1", "one/big example.com/y=2"}},
		"the third sees the first, not only the second":         {overlays: []string{"a cap=example.com/x:1 type=big", "b cap=example.com/y:1 type=big", "c cap=example.com/x:3 type=big"}, refused: map[string]string{"a": "c"}},
		"a wrong one is refused, the others are not":            {overlays: []string{"bad price=2 cap=cpu:1", "good price=2 type=big zone=a way=spot pool=one"}, refused: map[string]string{"bad": "invalid"}, want: []string{"one/big/a/spot=2"}},
		"less than nothing":                                     {overlays: []string{"o price=2 cap=example.com/x:-1"}, refused: map[string]string{"o": "invalid"}},
		"what the schema would not have let in":                 {overlays: []string{"a adjust=5", "b price=-1", "c price=1 adjust=+1", "d price=NaN", "e adjust=+1e9", "f price=0x10", "g price=1/3", "h adjust=%"}, refused: map[string]string{"a": "invalid", "b": "invalid", "c": "invalid", "d": "invalid", "e": "invalid", "f": "invalid", "g": "invalid", "h": "invalid"}},
		"neither price nor capacity is legal and does nothing":  {overlays: []string{"o type=big"}, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			var overlays []*v1alpha1.NodeOverlay
			for _, text := range tc.overlays {
				overlays = append(overlays, overlayOf(text))
			}
			pools := world()
			before := fmt.Sprint(dump(pools))
			book, verdicts := Judge(overlays, pools, known)
			refused := map[string]string{}
			for i, v := range verdicts {
				switch {
				case v.Invalid != nil:
					refused[overlays[i].Name] = "invalid"
				case v.Conflict != nil:
					refused[overlays[i].Name] = v.Conflict.With
				}
			}
			if diff := cmp.Diff(tc.refused, refused, equateEmpty); diff != "" {
				t.Error("refused:", diff)
			}
			if tc.want != nil || tc.refused == nil {
				if diff := cmp.Diff(tc.want, slices.Concat(told(book, pools[0]), told(book, pools[1]))); diff != "" {
					t.Error(diff)
				}
			}
			if after := fmt.Sprint(dump(pools)); after != before {
				t.Error("the provider's catalogue was changed")
			}
		})
	}
}

var equateEmpty = cmp.Transformer("empty", func(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
})

func all(price func(string) string) []string {
	var out []string
	for _, p := range []string{"one", "two"} {
		for _, it := range []string{"big", "small"} {
			for _, o := range []string{"a/on-demand", "a/spot", "b/on-demand", "b/spot"} {
				out = append(out, p+"/"+it+"/"+o+"="+price(o))
			}
		}
	}
	return out
}

func dump(pools []Pool) []string {
	var out []string
	for _, p := range pools {
		for _, it := range p.Catalog.Types {
			out = append(out, fmt.Sprint(it.Name, it.Labels, it.Capacity, it.Overlaid, it.Offerings))
		}
	}
	return out
}

func TestPrices(t *testing.T) {
	for _, tc := range []struct {
		spec  string
		price float64
		want  float64
	}{
		{"price=0.25", 10, 0.25}, {"price=0", 10, 0}, {"price=99999999999999999999", 1, 1e6},
		{"adjust=-10%", 10, 9}, {"adjust=+100%", 10, 20}, {"adjust=-100%", 10, 0}, {"adjust=-25%", 1.5, 1.125}, {"adjust=+100.102%", 1, 2.00102},
		{"adjust=-15", 10, 0}, {"adjust=+.5", 1, 1.5}, {"adjust=-0.000000001", 1, 0.999999999}, {"adjust=+34.43", 0, 34.43}, {"adjust=-50%", 0.000000003, 0.000000002},
	} {
		t.Run(tc.spec, func(t *testing.T) {
			c, err := changeOf(&overlayOf("o " + tc.spec).Spec)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.apply(cloud.FromDollars(tc.price)).Dollars(); got != tc.want {
				t.Errorf("%v → %v, want %v", tc.price, got, tc.want)
			}
		})
	}
}

func TestPricesForWhatHasNone(t *testing.T) {
	preview := func() []Pool {
		pools := world()
		for _, it := range pools[0].Catalog.Types {
			if it.Name == "big" {
				for i := range it.Offerings {
					o := &it.Offerings[i]
					o.Price, o.Available, o.NeedsPrice = 0, false, o.Zone() == "a"
				}
			}
		}
		return pools
	}
	for name, tc := range map[string]struct {
		overlay string
		want    string
	}{
		"a price for the type":                     {"o price=2 type=big,other", "[a/on-demand=2 true a/spot=2 true b/on-demand=2 false b/spot=2 false]"},
		"an adjustment is of nothing":              {"o adjust=+2 type=big", "[b/on-demand=2 false b/spot=2 false]"},
		"a price for more than a type":             {"o price=2 type=big zone=a", "[b/on-demand=0 false b/spot=0 false]"},
		"a price for all types but one":            {"o price=2 !type=small", "[b/on-demand=2 false b/spot=2 false]"},
		"nothing says a price: it is not on offer": {"o price=2 type=small", "[b/on-demand=0 false b/spot=0 false]"},
	} {
		t.Run(name, func(t *testing.T) {
			pools := preview()
			book, _ := Judge([]*v1alpha1.NodeOverlay{overlayOf(tc.overlay)}, pools, known)
			var got []string
			for _, o := range book.Apply(pools[0].Pool, pools[0].Catalog, nil).Catalog().Types[0].Offerings {
				got = append(got, fmt.Sprintf("%s=%v %v", offerName(o), o.Price.Dollars(), o.Available))
				if o.NeedsPrice {
					t.Errorf("%s still needs a price", offerName(o))
				}
			}
			if diff := cmp.Diff(tc.want, fmt.Sprint(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatDidNotChangeKeepsItsPointers(t *testing.T) {
	pools := world()
	one := pools[0]
	overlays := []*v1alpha1.NodeOverlay{overlayOf("o price=2 type=big")}
	book, _ := Judge(overlays, pools, known)
	first := book.Apply(one.Pool, one.Catalog, nil)
	if again := book.Apply(one.Pool, one.Catalog, first); again.Catalog() != first.Catalog() {
		t.Error("another catalogue though nothing changed")
	}
	if first.Catalog().Types[1] != one.Catalog.Types[1] {
		t.Error("a type of which nobody speaks was copied")
	}
	counted := one.Pool.DeepCopy()
	counted.Status.Nodes++
	if again := book.Apply(counted, one.Catalog, first); again.Catalog() != first.Catalog() {
		t.Error("another catalogue because the pool has a node more")
	}
	moved := one.Pool.DeepCopy()
	moved.Spec.Template.Labels["team"] = "red"
	if again := book.Apply(moved, one.Catalog, first); again.Catalog() == first.Catalog() {
		t.Error("the same catalogue although the pool's nodes get another label")
	}
	stocked := &cloud.Catalog{Types: []*cloud.InstanceType{one.Catalog.Types[0], typeOf("small", "arm64")}}
	next := book.Apply(one.Pool, stocked, first)
	if next.Catalog().Types[0] != first.Catalog().Types[0] {
		t.Error("a type that is as it was got another pointer because its neighbour changed")
	}
	second, _ := Judge([]*v1alpha1.NodeOverlay{overlayOf("o price=3 type=big")}, pools, known)
	if got := second.Apply(one.Pool, one.Catalog, first).Catalog().Types[0].Offerings[0].Price.Dollars(); got != 3 {
		t.Errorf("the price is still %v after the overlay changed", got)
	}
	if got := book.Apply(pools[1].Pool, one.Catalog, first).Catalog().Types[0]; got == first.Catalog().Types[0] {
		t.Error("a pool got what was corrected for another")
	}
}

func TestWhatCountsOfAPool(t *testing.T) {
	one := world()[0]
	with := func(edit func(*Pool)) Pool {
		p := Pool{one.Pool.DeepCopy(), one.Catalog}
		edit(&p)
		return p
	}
	for name, tc := range map[string]struct {
		other Pool
		want  bool
	}{
		"the same":          {one, true},
		"a node more":       {with(func(p *Pool) { p.Pool.Status.Nodes++ }), true},
		"another catalogue": {with(func(p *Pool) { p.Catalog = &cloud.Catalog{} }), false},
		"another name":      {with(func(p *Pool) { p.Pool.Name = "other" }), false},
		"another label":     {with(func(p *Pool) { p.Pool.Spec.Template.Labels["team"] = "red" }), false},
		"another class": {with(func(p *Pool) {
			p.Pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "g", Kind: "Class", Name: "other"}
		}), false},
	} {
		if got := one.Same(tc.other, known); got != tc.want {
			t.Errorf("%s: the same %v, want %v", name, got, tc.want)
		}
	}
}

func TestABookOfTheSameOverlaysIsEqual(t *testing.T) {
	with := func(generation int64) *Book {
		o := overlayOf("o price=2")
		o.Generation = generation
		b, _ := Judge([]*v1alpha1.NodeOverlay{o}, world(), known)
		return b
	}
	if !with(1).Equal(with(1)) {
		t.Error("a new status makes another book")
	}
	if with(1).Equal(with(2)) {
		t.Error("a changed overlay makes no other book")
	}
}

// TestAgainstTheNaiveTwin compares with a judgement that asks each offering for itself and knows nothing of sets, places and shortcuts.
func TestAgainstTheNaiveTwin(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		pools := randomPools(r)
		var overlays []*v1alpha1.NodeOverlay
		for i := range 1 + r.IntN(5) {
			overlays = append(overlays, overlayOf(randomOverlay(r, i)))
		}
		book, verdicts := Judge(overlays, pools, known)
		wantTold, wantForce := naive(overlays, pools)
		var got []string
		for _, p := range pools {
			got = append(got, told(book, p)...)
		}
		slices.Sort(got)
		for i, v := range verdicts {
			if got := v == (Verdict{}); got != wantForce[i] {
				t.Fatalf("seed %d: overlay %s in force: %v, the twin says %v\n%v", seed, overlays[i].Name, got, wantForce[i], texts(overlays))
			}
		}
		if diff := cmp.Diff(wantTold, got); diff != "" {
			t.Fatalf("seed %d: %s\n%v", seed, diff, texts(overlays))
		}
	}
}

func texts(overlays []*v1alpha1.NodeOverlay) (out []string) {
	for _, o := range overlays {
		out = append(out, fmt.Sprintf("%s %d %v %v %v %v\n", o.Name, o.Weight(), o.Spec.Requirements, deref(o.Spec.Price), deref(o.Spec.PriceAdjustment), o.Spec.Capacity))
	}
	return out
}

func deref(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func randomPools(r *rand.Rand) []Pool {
	c := &cloud.Catalog{}
	for _, name := range []string{"big", "small", "tiny"}[:1+r.IntN(3)] {
		it := typeOf(name, []string{"amd64", "arm64"}[r.IntN(2)])
		for i := range it.Offerings {
			if r.IntN(3) == 0 {
				it.Offerings[i].Labels["example.com/block"] = "b1"
				it.Labels["example.com/block"] = []string{"b1"}
			}
		}
		c.Types = append(c.Types, it)
	}
	pools := []Pool{{poolOf("one", map[string]string{"team": "blue"}), c}, {poolOf("two", nil), c}}
	return pools[:1+r.IntN(2)]
}

func randomOverlay(r *rand.Rand, i int) string {
	words := []string{fmt.Sprintf("o%d", i)}
	if r.IntN(3) == 0 {
		words = append(words, fmt.Sprintf("weight=%d", 1+r.IntN(2)))
	}
	for _, w := range []string{"type=big", "type=small,tiny", "!type=big", "zone=a", "!zone=a", "way=spot", "pool=one", "team=blue", "!team=blue", "!team", "block", "!block", "block=b1", "!block=b1", "cores>3", "cores>4"} {
		if r.IntN(9) == 0 {
			words = append(words, w)
		}
	}
	switch r.IntN(4) {
	case 0:
		words = append(words, "price=2")
	case 1:
		words = append(words, "adjust=+50%")
	case 2:
		words = append(words, "adjust=-0.1", "cap=example.com/x:1")
	case 3:
		words = append(words, "cap=example.com/y:1", "cap=example.com/x:2")
	}
	return strings.Join(words, " ")
}

// naive says what pools are told, sorted, and which overlays are in force.
func naive(overlays []*v1alpha1.NodeOverlay, pools []Pool) ([]string, []bool) {
	force := make([]bool, len(overlays))
	var accepted []*v1alpha1.NodeOverlay
	order := slices.Clone(overlays)
	slices.SortFunc(order, func(a, b *v1alpha1.NodeOverlay) int {
		if a.Weight() != b.Weight() {
			return int(b.Weight() - a.Weight())
		}
		return strings.Compare(b.Name, a.Name)
	})
	for _, o := range order {
		clash := false
		for _, a := range accepted {
			clash = clash || a.Weight() == o.Weight() && clashes(a, o, pools)
		}
		if !clash {
			accepted = append(accepted, o)
			force[slices.Index(overlays, o)] = true
		}
	}
	var out []string
	for _, p := range pools {
		for _, it := range p.Catalog.Types {
			for _, offer := range it.Offerings {
				for _, o := range accepted {
					if (o.Spec.Price != nil || o.Spec.PriceAdjustment != nil) && speaks(o, p, it, offer) {
						out = append(out, fmt.Sprintf("%s/%s/%s=%v", p.Pool.Name, it.Name, offerName(offer), naivePrice(o, offer.Price.Dollars())))
						break
					}
				}
			}
			for _, name := range []corev1.ResourceName{"example.com/x", "example.com/y"} {
				for _, o := range accepted {
					if amount, ok := o.Spec.Capacity[name]; ok && slices.ContainsFunc(it.Offerings, func(of cloud.Offering) bool { return speaks(o, p, it, of) }) {
						out = append(out, fmt.Sprintf("%s/%s %s=%s", p.Pool.Name, it.Name, name, amount.String()))
						break
					}
				}
			}
		}
	}
	slices.Sort(out)
	return out, force
}

func naivePrice(o *v1alpha1.NodeOverlay, price float64) float64 {
	switch deref(o.Spec.PriceAdjustment) {
	case "+50%":
		price *= 1.5
	case "-0.1":
		price -= 0.1
	default:
		price = 2
	}
	f, _ := big.NewRat(int64(price*1e9+0.5), 1e9).Float64()
	return f
}

func clashes(a, b *v1alpha1.NodeOverlay, pools []Pool) bool {
	priced := func(o *v1alpha1.NodeOverlay) bool { return o.Spec.Price != nil || o.Spec.PriceAdjustment != nil }
	for _, p := range pools {
		for _, it := range p.Catalog.Types {
			some := func(o *v1alpha1.NodeOverlay) bool {
				return slices.ContainsFunc(it.Offerings, func(of cloud.Offering) bool { return speaks(o, p, it, of) })
			}
			for _, of := range it.Offerings {
				if priced(a) && priced(b) && speaks(a, p, it, of) && speaks(b, p, it, of) {
					return true
				}
			}
			for name := range a.Spec.Capacity {
				if _, ok := b.Spec.Capacity[name]; ok && some(a) && some(b) {
					return true
				}
			}
		}
	}
	return false
}

// speaks asks what label a node bought this way would have.
func speaks(o *v1alpha1.NodeOverlay, p Pool, it *cloud.InstanceType, of cloud.Offering) bool {
	for _, q := range o.Spec.Requirements {
		value, has := of.Labels[q.Key]
		if !has && q.Key != "example.com/block" { // which offerings decide here
			if values := it.Labels[q.Key]; len(values) > 0 {
				value, has = values[0], true
			} else if q.Key == v1.NodePoolLabelKey {
				value, has = p.Pool.Name, true
			} else {
				value, has = p.Pool.Spec.Template.Labels[q.Key]
			}
		}
		ok := false
		switch q.Operator {
		case corev1.NodeSelectorOpIn:
			ok = has && slices.Contains(q.Values, value)
		case corev1.NodeSelectorOpNotIn:
			ok = !has || !slices.Contains(q.Values, value)
		case corev1.NodeSelectorOpExists:
			ok = has
		case corev1.NodeSelectorOpDoesNotExist:
			ok = !has
		case corev1.NodeSelectorOpGt:
			ok = has && value > q.Values[0]
		}
		if !ok {
			return false
		}
	}
	return true
}

func TestMarks(t *testing.T) {
	pools := world()
	book, _ := Judge([]*v1alpha1.NodeOverlay{overlayOf("p price=2 type=big zone=a way=spot"), overlayOf("c cap=example.com/x:1 type=small")}, pools, known)
	c := book.Apply(pools[0].Pool, pools[0].Catalog, nil).Catalog()
	price, capacity := map[string]string{v1.PriceOverlayAppliedAnnotationKey: "true"}, map[string]string{v1.CapacityOverlayAppliedAnnotationKey: "true"}
	for name, tc := range map[string]struct {
		options Options
		want    map[string]string
	}{
		"a price among the options":               {Options{[]string{"big"}, []string{"a", "b"}, []string{"spot"}}, price},
		"a price in a zone that is no option":     {Options{[]string{"big"}, []string{"b"}, []string{"spot"}}, nil},
		"a price of a way that is no option":      {Options{[]string{"big"}, []string{"a"}, []string{"on-demand"}}, nil},
		"a capacity":                              {Options{[]string{"small"}, []string{"b"}, []string{"on-demand"}}, capacity},
		"a type of which only others were spoken": {Options{[]string{"none"}, []string{"a"}, []string{"spot"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Marks(c, tc.options)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// BenchmarkJudge is twenty overlays, ten pools and EC2's number of types and offerings.
func BenchmarkJudge(b *testing.B) {
	c := &cloud.Catalog{}
	for i := range 800 {
		it := typeOf(fmt.Sprintf("type-%d", i), []string{"amd64", "arm64"}[i%2])
		it.Offerings = append(it.Offerings, typeOf("", "").Offerings...)
		c.Types = append(c.Types, it)
	}
	var pools []Pool
	for i := range 10 {
		pools = append(pools, Pool{poolOf(fmt.Sprintf("pool-%d", i), nil), c})
	}
	var overlays []*v1alpha1.NodeOverlay
	for i := range 20 {
		overlays = append(overlays, overlayOf(fmt.Sprintf("o%d weight=%d price=2 type=type-%d,type-%d", i, 1+i%3, i, i+1)))
	}
	overlays = append(overlays, overlayOf("all adjust=-10%"))
	b.ReportAllocs()
	for b.Loop() {
		book, _ := Judge(overlays, pools, known)
		for _, p := range pools {
			book.Apply(p.Pool, p.Catalog, nil)
		}
	}
}
