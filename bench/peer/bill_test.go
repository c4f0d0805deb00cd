package main

import (
	"strings"
	"testing"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

func TestABillTakesTheCheapestOfferingOfEachClaim(t *testing.T) {
	dear := &cloud.Offering{Price: cloud.FromDollars(2), Labels: map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand}}
	cheap := &cloud.Offering{Price: cloud.FromDollars(1), Labels: map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeSpot}}
	b := billOf([]bin{{pods: 2, offerings: []*cloud.Offering{dear, cheap}}, {pods: 1, offerings: []*cloud.Offering{dear}}})
	if b.Floor != cloud.FromDollars(3) || b.Cost != cloud.FromDollars(3.004) || b.Nodes != 2 {
		t.Errorf("bill = %+v", b)
	}
}

// TestBothSidesPlaceTheSamePods runs a small row on both sides, with prices that can be compared.
func TestBothSidesPlaceTheSamePods(t *testing.T) {
	for _, side := range []string{ours, theirs} {
		m, err := measure(side, "diverse 100")
		if err != nil {
			t.Fatal(err)
		}
		if m.Pods != 100 || m.Failed != 0 || m.Bill.Floor == 0 {
			t.Errorf("%s placed %d pods of 100 for %d", side, m.Pods, m.Bill.Floor)
		}
	}
}

func TestARowThatThePeerWinsIsPrinted(t *testing.T) {
	m := func(price float64, took time.Duration) measured {
		return measured{Took: took, Bill: bill{Nodes: 1, Floor: cloud.FromDollars(price)}}
	}
	ours := m(2, time.Second)
	ours.Failed = 3
	text := report([]compared{{row{name: "lost"}, ours, m(1, time.Millisecond)}}, 3)
	if !strings.Contains(text, "| lost | 1, 3 pods without |") || !strings.Contains(text, "**2.000**") {
		t.Errorf("report:\n%s", text)
	}
}
