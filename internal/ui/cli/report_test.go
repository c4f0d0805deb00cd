package cli

import "testing"

func TestClaimsAreGroupedByEveryField(t *testing.T) {
	pods := []string{"shop/web"}
	r := &report{Claims: []claimReport{
		{Pool: "default", Type: "m7i.large", Zones: []string{"a", "b"}, PricePerHour: 0.1, Pods: pods},
		{Pool: "default", Type: "m7i.large", Zones: []string{"a", "b"}, PricePerHour: 0.1, Pods: pods},
		{Pool: "default", Type: "m7i.large", Zones: []string{"a b"}, PricePerHour: 0.1, Pods: pods},
		{Pool: "default", Type: "m7i.large", CapacityTypes: []string{"a"}, Zones: []string{"b"}, PricePerHour: 0.1, Pods: pods},
		{Pool: "default", Type: "m7i.large", Zones: []string{"a", "b"}, PricePerHour: 0.2, Pods: pods},
	}}
	var got []int
	for _, g := range r.groups() {
		got = append(got, g.count)
	}
	if len(got) != 4 || got[0] != 2 {
		t.Errorf("groups of %v claims, want the first two together and each other one alone", got)
	}
}
