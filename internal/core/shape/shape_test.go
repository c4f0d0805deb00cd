package shape

import (
	"fmt"
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
	spot := func(prices ...int64) *Catalog { // a type for each
		var out [][]TypeOffer
		for _, p := range prices {
			out = append(out, []TypeOffer{offer("x", Spot, p)})
		}
		return types(out...)
	}
	band := Band{Types: 60, Spot: 4, Fewest: 2, Permille: 500}
	for name, tc := range map[string]struct {
		catalog            *Catalog
		band               Band
		kind               Kind
		price, floor, sent int64
		cost               int64
	}{
		"on-demand pays the lowest price":              {types([]TypeOffer{offer("x", OnDemand, 300)}, []TypeOffer{offer("x", OnDemand, 200)}), band, OnDemand, 200, 200, 2, 200},
		"spot pays the mean of what is sent":           {spot(1000, 1010, 1020, 1030), band, Spot, 1015, 1000, 4, 1015},
		"spot dearer than the band is not sent":        {spot(1000, 1500, 1501, 1600), band, Spot, 1250, 1000, 2, 1375},
		"no more types of spot than that":              {spot(1000, 1010, 1020, 1030, 1040, 1050), band, Spot, 1015, 1000, 4, 1015},
		"a type is sent in all its zones of the band":  {types([]TypeOffer{offer("x", Spot, 1000), offer("y", Spot, 1400), offer("z", Spot, 1600)}, []TypeOffer{offer("x", Spot, 1200)}), band, Spot, 1200, 1000, 2, 1350},
		"a band with too few types begins at the next": {spot(1000, 3000, 4500, 4600), band, Spot, 2833, 1000, 3, 2833},
		"what is below stays, in all its zones": {types([]TypeOffer{offer("x", Spot, 1000), offer("y", Spot, 1700)}, []TypeOffer{offer("x", Spot, 3000)}), band, Spot, 1900, 1000, 2,
			1900},
		"the band does not begin where on-demand costs less": {types([]TypeOffer{offer("x", Spot, 1000), offer("x", OnDemand, 2999)}, []TypeOffer{offer("x", Spot, 3000)}), band, Spot, 1000, 1000, 1,
			1375},
		"types that are missing count as if sent at the band's edge": {spot(1000), band, Spot, 1000, 1000, 1, 1375},
		"but at no more than on-demand costs":                        {types([]TypeOffer{offer("x", Spot, 1000), offer("x", OnDemand, 1100)}), band, Spot, 1000, 1000, 1, 1075},
		"spot dearer than on-demand is not sent": {types([]TypeOffer{offer("x", Spot, 100), offer("x", OnDemand, 101)}, []TypeOffer{offer("x", Spot, 102)}),
			band, Spot, 100, 100, 1, 100},
		"all spot dearer than on-demand leaves on-demand": {types([]TypeOffer{offer("x", Spot, 200), offer("x", OnDemand, 101)}), band, OnDemand, 101, 101, 1, 101},
		"reserved goes before everything":                 {types([]TypeOffer{offer("x", Spot, 200), offer("x", Reserved, 900)}), band, Reserved, 900, 900, 1, 900},
		"at most so many types":                           {types([]TypeOffer{offer("x", OnDemand, 1)}, []TypeOffer{offer("x", OnDemand, 2)}, []TypeOffer{offer("x", OnDemand, 3)}), Band{Types: 2}, OnDemand, 1, 1, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			shapes, offers := all(tc.catalog)
			l, ok := tc.catalog.Launch(shapes, offers, nil, tc.band)
			if !ok || l.Kind != tc.kind || l.Price != tc.price || l.Floor != tc.floor || int64(l.Types) != tc.sent || l.Cost != tc.cost {
				t.Errorf("got %+v, want kind %d, price %d, floor %d, %d types, cost %d", l, tc.kind, tc.price, tc.floor, tc.sent, tc.cost)
			}
		})
	}
}

// A claim that may not run on demand is not sent to where spot costs more than on-demand costs others, unless all spot does.
func TestSpotAloneLooksAtOnDemandPrices(t *testing.T) {
	row := func(name string, spot, onDemand int64) Type {
		return Type{Name: name, Offers: []TypeOffer{offer("x", Spot, spot), offer("x", OnDemand, onDemand)}}
	}
	band := Band{Types: 60, Spot: 15, Fewest: 5, Permille: 500}
	for name, tc := range map[string]struct {
		catalog *Catalog
		types   int
		price   int64
	}{
		"the band moves up to where on-demand is cheaper": {catalog(row("a", 30, 100), row("b", 90, 200), row("c", 110, 300)), 2, 60},
		"where it begins it is not cut":                   {catalog(row("a", 90, 100), row("b", 120, 200), row("c", 140, 300)), 2, 105},
		"where all spot is dear":                          {catalog(row("a", 150, 100), row("b", 400, 200)), 1, 150},
	} {
		t.Run(name, func(t *testing.T) {
			shapes, _ := all(tc.catalog)
			l, ok := tc.catalog.Launch(shapes, tc.catalog.ByKind[Spot], nil, band)
			if !ok || l.Types != tc.types || l.Price != tc.price {
				t.Errorf("got %+v, want %d types, price %d", l, tc.types, tc.price)
			}
		})
	}
}

func TestALaunchNamesNoMoreThanEC2Takes(t *testing.T) {
	var types []Type
	for i := range 50 {
		row := Type{Name: fmt.Sprint("t", i)}
		for z := range 8 {
			row.Offers = append(row.Offers, offer(fmt.Sprint(z), Spot, int64(1000+8*i+z)), offer(fmt.Sprint(z), OnDemand, 9000))
		}
		types = append(types, row)
	}
	c := catalog(types...)
	shapes, _ := all(c)
	for _, kind := range []Kind{Spot, OnDemand} {
		if l, _ := c.Launch(shapes, c.ByKind[kind], nil, Band{Types: 60, Spot: 50, Fewest: 5, Permille: 500}); l.Offers != MostOverrides {
			t.Errorf("kind %d: %d offerings, want %d", kind, l.Offers, MostOverrides)
		}
	}
}

func TestExoticMachinesComeLast(t *testing.T) {
	family := map[string][]string{"family": {"f"}}
	c := catalog(Type{Name: "gpu", Exotic: true, Labels: family, Offers: []TypeOffer{offer("x", OnDemand, 1)}}, Type{Name: "plain", Labels: family, Offers: []TypeOffer{offer("x", OnDemand, 5)}})
	shapes, offers := all(c)
	if l, _ := c.Launch(shapes, offers, nil, DefaultBand); l.Price != 5 || l.Types != 1 {
		t.Errorf("got %+v", l)
	}
	if l, _ := c.Launch(shapes, offers, []MinValues{{"family", 1}}, DefaultBand); l.Price != 1 || l.Types != 2 {
		t.Errorf("with diversity demanded: %+v", l)
	}
	if l, ok := c.Launch(bits.Of(2, 0), offers, nil, DefaultBand); !ok || l.Price != 1 {
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
