package cli

import (
	"bytes"
	"strings"
	"testing"
)

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

// Beside nodes that are there the bound is about the pods that these do not take, also where they take none in this plan.
func TestTheBoundBesideNodesIsAboutOtherPods(t *testing.T) {
	for _, beside := range []bool{false, true} {
		r := &report{Claims: []claimReport{{Type: "m5.large", Pods: []string{"shop/web"}}}, beside: beside}
		var out bytes.Buffer
		if err := r.write(&out, "table"); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "no fleet for the pods that existing nodes do not take"); got != beside {
			t.Errorf("beside nodes %v: %s", beside, out.String())
		}
	}
}
