package disrupt

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
)

// choosing demands that every claim of a pool can choose among n values of a label.
func choosing(key string, n int) func(*v1.NodePool) {
	return func(p *v1.NodePool) {
		p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements,
			v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpExists, MinValues: &n})
	}
}

func TestMinValuesHoldForWhatIsCheaper(t *testing.T) {
	for name, tc := range map[string]struct {
		values     int
		bestEffort bool
		want       []string
	}{
		"two cheaper types are two values":                     {2, false, []string{"underutilized a -> mid/on-demand"}},
		"they are not three":                                   {3, false, nil},
		"nor are they where launches may do with fewer":        {3, true, nil},
		"where there are enough, it does not matter who asked": {2, true, []string{"underutilized a -> mid/on-demand"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(append(small(), shape("even", 4, 16, 0.3, 0), shape("more", 16, 64, 1.2, 0))...).pool("p", choosing(corev1.LabelInstanceTypeStable, tc.values))
			f.node("a", "p", "big", onDemand).pods("a", "web", 1, "3", "1Gi")
			w := f.world()
			w.Terms.MinValuesBestEffort = tc.bestEffort
			p := newPlanner(engine.New()).Propose(w)
			if got := say(p); !slices.Equal(got, tc.want) {
				t.Errorf("steps %v, want %v; %v", got, tc.want, noteTexts(p))
			}
			for _, s := range p.Steps {
				if n := len(s.Open[0].Types); n < tc.values {
					t.Errorf("the claim lists %v, want %d types", s.Open[0].Types, tc.values)
				}
			}
		})
	}
}

// TestConsolidationLowersNoMinValues: a launch may do with fewer values where the settings say so, but nobody is moved for it.
func TestConsolidationLowersNoMinValues(t *testing.T) {
	for name, tc := range map[string]struct {
		edits []func(*corev1.Node, *v1.NodeClaim)
		want  []string
	}{
		"consolidation does not":   {nil, nil},
		"drift has no such choice": {[]func(*corev1.Node, *v1.NodeClaim){drift(-time.Hour)}, []string{"drifted a -> mid/on-demand"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(small()...).pool("p", choosing(corev1.LabelTopologyZone, 3)) // there are two zones
			f.node("a", "p", "big", onDemand, tc.edits...).pods("a", "web", 1, "3", "1Gi")
			w := f.world()
			w.Terms.MinValuesBestEffort = true
			if got := say(newPlanner(engine.New()).Propose(w)); !slices.Equal(got, tc.want) {
				t.Errorf("steps %v, want %v", got, tc.want)
			}
		})
	}
}

func TestSpotToSpotKeepsMinValues(t *testing.T) {
	for name, tc := range map[string]struct {
		values, want int
	}{
		"fewer than fifteen leave the fifteen cheapest": {5, 15},
		"seventeen need the seventeen cheapest":         {17, 17},
		"more than there are cheaper ones move nobody":  {20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(spots(20)...).pool("p", onlySpot, choosing(corev1.LabelInstanceTypeStable, tc.values))
			f.set.SpotToSpot = true
			f.node("a", "p", "s00", spot).pods("a", "web", 1, "1500m", "1Gi")
			p := f.propose(t)
			got := 0
			for _, s := range p.Steps {
				got = len(s.Open[0].Types)
			}
			if got != tc.want {
				t.Errorf("the replacement may be one of %d types, want %d; %v", got, tc.want, noteTexts(p))
			}
		})
	}
}

// priced is an instance type with one offering for each price: "zone/capacity type".
func priced(name string, prices map[string]float64, unavailable ...string) *cloud.InstanceType {
	it := shape(name, 2, 8, 0, 0)
	for where, price := range prices {
		var zone, ct string
		zone, ct = where[:1], where[2:]
		it.Offerings = append(it.Offerings, cloud.Offering{Labels: map[string]string{corev1.LabelTopologyZone: zone, v1.CapacityTypeLabelKey: ct},
			Price: cloud.FromDollars(price), Available: !slices.Contains(unavailable, where)})
	}
	return it
}

// The zones of an opening are printed and explained; they must be those that the claim allows.
func TestAnOpeningThatIsNarrowedToAZoneNamesThatZone(t *testing.T) {
	o := engine.Opening{Claim: &v1.NodeClaim{}, Zones: []string{"a", "b"}, Types: []string{"x"}}
	for zone, want := range map[string][]string{"b": {"b"}, "": {"a", "b"}} {
		w := way{capacityType: onDemand, zone: zone, options: []option{{it: priced("x", map[string]float64{"b/on-demand": 1})}}}
		if got := narrow(o, w, cloud.FromDollars(1)).Zones; !slices.Equal(got, want) {
			t.Errorf("narrowed to zone %q the opening names %v, want %v", zone, got, want)
		}
	}
}

// TestCheapestWay is about what an opening costs at the worst, which is what a step is judged by.
func TestCheapestWay(t *testing.T) {
	const plenty = 9.0
	in := func(key string, values ...string) v1.NodeSelectorRequirementWithMinValues {
		return v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	for name, tc := range map[string]struct {
		types    []*cloud.InstanceType
		requires []v1.NodeSelectorRequirementWithMinValues
		skip     string
		limit    float64
		want     string
	}{
		"the dearest zone counts": {
			types: []*cloud.InstanceType{priced("x", map[string]float64{"a/on-demand": 1, "b/on-demand": 2})}, limit: plenty, want: "on-demand : x 2.00"},
		"not one that the claim excludes": {
			types:    []*cloud.InstanceType{priced("x", map[string]float64{"a/on-demand": 1, "b/on-demand": 2})},
			requires: []v1.NodeSelectorRequirementWithMinValues{in(corev1.LabelTopologyZone, "a")}, limit: plenty, want: "on-demand : x 1.00"},
		"nor one where there is nothing to be had": {
			types: []*cloud.InstanceType{priced("x", map[string]float64{"a/on-demand": 1, "b/on-demand": 2}, "b/on-demand")}, limit: plenty, want: "on-demand : x 1.00"},
		"the cheapest type comes first": {
			types: []*cloud.InstanceType{priced("x", map[string]float64{"a/on-demand": 2}), priced("y", map[string]float64{"a/on-demand": 1})}, limit: plenty, want: "on-demand : y 1.00, x 2.00"},
		"spot is cheaper, and then it is spot only": {
			types: []*cloud.InstanceType{priced("x", map[string]float64{"a/on-demand": 2, "a/spot": 1})}, limit: plenty, want: "spot : x 1.00"},
		"where the claim cannot be spot it is not": {
			types:    []*cloud.InstanceType{priced("x", map[string]float64{"a/on-demand": 2, "a/spot": 1})},
			requires: []v1.NodeSelectorRequirementWithMinValues{in(v1.CapacityTypeLabelKey, onDemand)}, limit: plenty, want: "on-demand : x 2.00"},
		"nor where spot may not replace spot": {
			types: []*cloud.InstanceType{priced("x", map[string]float64{"a/on-demand": 2, "a/spot": 1})}, skip: spot, limit: plenty, want: "on-demand : x 2.00"},
		"a reservation is used": {
			types: []*cloud.InstanceType{priced("x", map[string]float64{"a/on-demand": 2, "a/spot": 1, "a/reserved": 0.1})}, limit: plenty, want: "reserved : x 0.10"},
		"a zone is chosen where only that makes it cheap enough": {
			types: []*cloud.InstanceType{priced("x", map[string]float64{"a/on-demand": 1, "b/on-demand": 3})}, limit: 2, want: "on-demand a: x 1.00"},
		"nothing to be had": {
			types: []*cloud.InstanceType{priced("x", map[string]float64{"a/on-demand": 1}, "a/on-demand")}, limit: plenty, want: " :"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &engine.Opening{Claim: &v1.NodeClaim{}, Zones: []string{"a", "b"}}
			o.Claim.Spec.Requirements = tc.requires
			for _, it := range tc.types {
				o.Types = append(o.Types, it.Name)
			}
			w := newPriceIndex(&cloud.Catalog{Types: tc.types}, 0).cheapestWay(o, tc.skip, cloud.FromDollars(tc.limit))
			got := w.capacityType + " " + w.zone + ":"
			for i, opt := range w.options {
				got += fmt.Sprintf("%s %s %.2f", map[bool]string{true: ",", false: ""}[i > 0], opt.it.Name, opt.worst.Dollars())
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
