package shape

import (
	"fmt"
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
)

// A claim with minValues is bought as the first kind that meets them by itself, or as the cheaper of two that meet them together.
func TestVariety(t *testing.T) {
	row := func(name, family string, offers ...TypeOffer) Type {
		return Type{Name: name, Labels: map[string][]string{"family": {family}, "size": {"large"}, "zone": {"x", "y"}}, Offers: offers}
	}
	reserved, spot, onDemand := offer("x", Reserved, 1), offer("x", Spot, 20), offer("x", OnDemand, 100)
	far := offer("y", OnDemand, 100)
	two := []MinValues{{"family", 2}}
	for name, tc := range map[string]struct {
		types  []Type
		zone   string // where the claim is bound to be; "" for anywhere
		want   []MinValues
		kind   Kind
		enough bool
		has    int // of the first of them
	}{
		"spot has enough":                         {[]Type{row("a", "f", spot, onDemand), row("b", "g", spot, onDemand)}, "", two, Spot, true, 2},
		"spot has too few, on-demand has enough":  {[]Type{row("a", "f", spot, onDemand), row("b", "g", onDemand)}, "", two, OnDemand, true, 2},
		"two kinds have enough together":          {[]Type{row("a", "f", spot), row("b", "g", onDemand)}, "", two, Spot, true, 2},
		"two kinds of which on-demand is cheaper": {[]Type{row("a", "f", offer("x", Spot, 200)), row("b", "g", onDemand)}, "", two, OnDemand, true, 2},
		"a reservation and spot together":         {[]Type{row("a", "f", reserved), row("b", "g", spot)}, "", two, Reserved, false, 1},
		"the kind that lacks least":               {[]Type{row("a", "f", spot), row("b", "g", onDemand), row("c", "h", onDemand)}, "", []MinValues{{"family", 4}}, OnDemand, false, 2},
		"reservations have enough":                {[]Type{row("a", "f", reserved, spot), row("b", "g", reserved, spot)}, "", two, Reserved, true, 2},
		"reservations have too few":               {[]Type{row("a", "f", reserved, spot), row("b", "g", spot)}, "", two, Spot, true, 2},
		"what is not sold there":                  {[]Type{row("a", "f", spot, onDemand), row("b", "g", far)}, "x", two, Spot, false, 1},
		"one kind meets one, another one the other": {[]Type{row("a", "f", spot), row("b", "f", spot), row("c", "g", onDemand)}, "", []MinValues{{"family", 2}, {"zone", 2}},
			Spot, true, 2},
		"zones are those of all that is listed":          {[]Type{row("a", "f", spot), row("b", "g", spot, far)}, "", []MinValues{{"zone", 2}}, Spot, true, 2},
		"capacity types are those of all that is listed": {[]Type{{Name: "a", Labels: map[string][]string{"how": {"1"}}, Offers: []TypeOffer{spot}}, {Name: "b", Labels: map[string][]string{"how": {"2"}}, Offers: []TypeOffer{onDemand}}}, "", []MinValues{{"how", 2}}, Spot, true, 2},
		"a kind that has nothing of one of them comes last": {[]Type{row("a", "f", spot), row("b", "g", spot), row("c", "h", spot), {Name: "d", Labels: map[string][]string{"family": {"f"}, "team": {"t"}}, Offers: []TypeOffer{onDemand}}},
			"", []MinValues{{"family", 4}, {"team", 1}}, OnDemand, false, 1},
		"a label that no type has": {[]Type{row("a", "f", spot)}, "", []MinValues{{"team", 1}}, Spot, false, 0},
		"nothing is sold":          {[]Type{row("a", "f")}, "", two, Kinds, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := catalog(tc.types...)
			shapes, offers := all(c)
			if tc.zone != "" {
				offers.Only(func(o int) bool { return c.Offers[o].Labels["zone"] == tc.zone })
			}
			v := c.Variety(shapes, offers, tc.want)
			if v.Kind != tc.kind || v.Enough() != tc.enough || v.Has[0] != tc.has {
				t.Errorf("kind %d with %v, enough: %v", v.Kind, v.Has, v.Enough())
			}
			if l, ok := c.Launch(shapes, offers, tc.want, DefaultBand); ok != tc.enough || ok && l.Kind != tc.kind {
				t.Errorf("launched as %d, %v", l.Kind, ok)
			}
		})
	}
}

// What minValues ask for has a place among what is sent, however dear it is.
func TestALaunchSendsWhatMinValuesAskFor(t *testing.T) {
	var types []Type
	for i := range 70 {
		row := Type{Name: fmt.Sprintf("t%02d", i), Labels: map[string][]string{"type": {fmt.Sprint(i)}, "family": {fmt.Sprint(i / 64)}}}
		for z := range 6 {
			row.Offers = append(row.Offers, offer(fmt.Sprint(z), OnDemand, int64(1000+100*i+z)))
		}
		types = append(types, row)
	}
	c := catalog(types...)
	shapes, offers := all(c)
	l, ok := c.Launch(shapes, offers, []MinValues{{"family", 2}, {"type", 50}}, DefaultBand)
	if !ok || l.Types != 60 || l.Offers != MostOverrides || l.First.Shape != 0 || l.Price != 1000 || l.Worst != 1000+6400 {
		t.Errorf("%+v, want 59 types and the first of the other family, in as many zones as there is room for", l)
	}
	if l, ok := c.Launch(shapes, bits.Of(len(c.Offers), 0), []MinValues{{"family", 2}}, Band{Types: 1}); !ok || l.Types != 2 || l.Price != 1000 {
		t.Errorf("%+v, want two types where minValues ask for so many", l)
	}
}
