package shape

import (
	"slices"
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/quantity"
)

func offer(zone string, kind Kind, price int64) TypeOffer {
	return TypeOffer{Labels: map[string]string{"zone": zone, "how": string(rune('0' + kind))}, Kind: kind, Price: price}
}

func catalog(types ...Type) *Catalog {
	return Build(types, func(string) int { return 0 })
}

func all(c *Catalog) (bits.Set, bits.Set) { return bits.Full(c.Len()), bits.Full(len(c.Offers)) }

func TestLaunch(t *testing.T) {
	types := func(offers ...[]TypeOffer) *Catalog {
		var out []Type
		for i, o := range offers {
			out = append(out, Type{Name: string(rune('a' + i)), Alloc: quantity.Vec{1}, Capacity: quantity.Vec{1}, Offers: o})
		}
		return catalog(out...)
	}
	for name, tc := range map[string]struct {
		catalog            *Catalog
		band               Band
		kind               Kind
		price, floor, sent int64
	}{
		"on-demand pays the lowest price": {types([]TypeOffer{offer("x", OnDemand, 300)}, []TypeOffer{offer("x", OnDemand, 200)}), DefaultBand, OnDemand, 200, 200, 2},
		"spot pays the mean of what is sent": {types([]TypeOffer{offer("x", Spot, 1000)}, []TypeOffer{offer("x", Spot, 1010)}),
			Band{Types: 60, Permille: 10}, Spot, 1005, 1000, 2},
		"what would lift the mean beyond the band is not sent": {types([]TypeOffer{offer("x", Spot, 1000)}, []TypeOffer{offer("x", Spot, 1021)}),
			Band{Types: 60, Permille: 10}, Spot, 1000, 1000, 1},
		"spot dearer than on-demand is not sent": {types([]TypeOffer{offer("x", Spot, 100), offer("x", OnDemand, 101)}, []TypeOffer{offer("x", Spot, 102)}),
			Band{Types: 60, Permille: 500}, Spot, 100, 100, 1},
		"all spot dearer than on-demand leaves on-demand": {types([]TypeOffer{offer("x", Spot, 200), offer("x", OnDemand, 101)}), DefaultBand, OnDemand, 101, 101, 1},
		"reserved goes before everything":                 {types([]TypeOffer{offer("x", Spot, 200), offer("x", Reserved, 900)}), DefaultBand, Reserved, 900, 900, 1},
		"at most so many types":                           {types([]TypeOffer{offer("x", OnDemand, 1)}, []TypeOffer{offer("x", OnDemand, 2)}, []TypeOffer{offer("x", OnDemand, 3)}), Band{Types: 2}, OnDemand, 1, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			shapes, offers := all(tc.catalog)
			l, ok := tc.catalog.Launch(shapes, offers, false, tc.band)
			if !ok || l.Kind != tc.kind || l.Price != tc.price || l.Floor != tc.floor || int64(l.Types) != tc.sent {
				t.Errorf("got %+v, want kind %d, price %d, floor %d, %d types", l, tc.kind, tc.price, tc.floor, tc.sent)
			}
		})
	}
}

func TestExoticMachinesComeLast(t *testing.T) {
	c := catalog(Type{Name: "gpu", Exotic: true, Offers: []TypeOffer{offer("x", OnDemand, 1)}}, Type{Name: "plain", Offers: []TypeOffer{offer("x", OnDemand, 5)}})
	shapes, offers := all(c)
	if l, _ := c.Launch(shapes, offers, false, DefaultBand); l.Price != 5 || l.Types != 1 {
		t.Errorf("got %+v", l)
	}
	if l, _ := c.Launch(shapes, offers, true, DefaultBand); l.Price != 1 || l.Types != 2 {
		t.Errorf("with diversity demanded: %+v", l)
	}
	if l, ok := c.Launch(bits.Of(2, 0), offers, false, DefaultBand); !ok || l.Price != 1 {
		t.Errorf("nothing else will do: %+v", l)
	}
}

func TestColumns(t *testing.T) {
	c := catalog(
		Type{Name: "a", Labels: map[string][]string{"arch": {"amd"}, "gpu": {}}, Offers: []TypeOffer{offer("x", OnDemand, 1)}},
		Type{Name: "b", Labels: map[string][]string{"arch": {"arm"}, "gpu": {"t4"}}, Offers: []TypeOffer{offer("y", OnDemand, 2)}},
		Type{Name: "c", Offers: []TypeOffer{offer("y", Spot, 2)}},
	)
	for name, tc := range map[string]struct {
		key  string
		set  label.Set
		want []int
	}{
		"a value":                             {"arch", label.Only("arm"), []int{1, 2}},
		"every other value":                   {"arch", label.Except("arm"), []int{0, 2}},
		"a type that says nothing passes":     {"arch", label.Only("mips"), []int{2}},
		"a type that never has the label":     {"gpu", label.Absent(), []int{0, 2}},
		"a type that has it":                  {"gpu", label.Existing(), []int{1, 2}},
		"a key that no type mentions changes": {"team", label.Only("x"), []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			out := bits.Full(c.Len())
			c.Shapes(tc.key, tc.set, out)
			if got := slices.Collect(out.All()); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	offers := bits.Full(len(c.Offers))
	c.Admit("zone", label.Only("y"), offers)
	if offers.Count() != 2 {
		t.Errorf("%d offers in zone y", offers.Count())
	}
	if got := c.Distinct("arch", bits.Full(3), 9); got != 2 {
		t.Errorf("%d values", got)
	}
	if got := c.Named(c.Order(bits.Full(len(c.Offers))), bits.Of(3, 1, 0), 5); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("by price: %v", got)
	}
}

func TestOverridesAreShapesOfTheirOwn(t *testing.T) {
	more := offer("x", OnDemand, 7)
	more.Alloc = quantity.Vec{9}
	c := catalog(Type{Name: "a", Alloc: quantity.Vec{1}, Capacity: quantity.Vec{1}, Offers: []TypeOffer{offer("x", OnDemand, 5), more}})
	if c.Len() != 2 || c.Alloc[0][0] != 1 || c.Alloc[1][0] != 9 || c.Price[1][0] != 7 || c.Price[0][0] != 5 {
		t.Errorf("%+v", c)
	}
	if got := c.Named([]int32{1, 0}, bits.Full(2), 5); !slices.Equal(got, []string{"a"}) {
		t.Errorf("names %v", got)
	}
}
