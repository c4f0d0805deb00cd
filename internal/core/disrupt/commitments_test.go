package disrupt

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/engine"
)

// savingsPlan is a Compute Savings Plan of so many dollars an hour that covers m for half its price.
func savingsPlan(dollars string, ends time.Duration) []*v1alpha1.CommitmentDiscount {
	d := &v1alpha1.CommitmentDiscount{ObjectMeta: metav1.ObjectMeta{Name: "sp"}}
	end := metav1.NewTime(noon.Add(ends))
	d.Spec = v1alpha1.CommitmentDiscountSpec{Category: v1alpha1.CommitmentSpend, Type: v1alpha1.ComputeSavingsPlan, Quantity: dollars, Share: "1", End: &end,
		Rates: []v1alpha1.CommitmentRate{{InstanceType: "m", Discount: "50%"}}}
	return []*v1alpha1.CommitmentDiscount{d}
}

func TestStepsAreJudgedByTheBill(t *testing.T) {
	const day = 24 * time.Hour
	onDemand := []string{"underutilized a -> m/spot"}
	for name, tc := range map[string]struct {
		runs        string
		commitments []*v1alpha1.CommitmentDiscount
		want        []string
	}{
		"without a commitment on-demand becomes spot":         {v1.CapacityTypeOnDemand, nil, onDemand},
		"a machine that is covered stays":                     {v1.CapacityTypeOnDemand, savingsPlan("1", 30*day), nil},
		"so does one whose commitment ends soon":              {v1.CapacityTypeOnDemand, savingsPlan("1", 2*day), nil},
		"after the end it may go":                             {v1.CapacityTypeOnDemand, savingsPlan("1", -day), onDemand},
		"a machine that is covered for a tenth may go":        {v1.CapacityTypeOnDemand, savingsPlan("0.01", 30*day), onDemand},
		"spot stays without a commitment":                     {v1.CapacityTypeSpot, nil, nil},
		"room in a commitment draws pods from spot":           {v1.CapacityTypeSpot, savingsPlan("1", 30*day), []string{"underutilized a -> m/on-demand"}},
		"room in a commitment that ends soon draws no pod":    {v1.CapacityTypeSpot, savingsPlan("1", 2*day), nil},
		"room that covers a part of the machine draws no pod": {v1.CapacityTypeSpot, savingsPlan("0.05", 30*day), nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("m", 4, 16, 0.2, 0.06)).pool("p").node("a", "p", "m", tc.runs).pods("a", "web", 1, "3", "1Gi")
			w := f.world()
			w.Commitments = commitment.Read(tc.commitments, w.Snap, []*cloud.Catalog{f.pools["p"].Catalog}, noon)
			if got := say(newPlanner(engine.New()).Propose(w)); !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// Two nodes share a commitment that covers one of them: one of them takes its price off the bill, and the other one nothing more.
func TestTheRestOfACommitmentCoversOthers(t *testing.T) {
	f := newFixture(shape("m", 4, 16, 0.2, 0)).pool("p").node("a", "p", "m", v1.CapacityTypeOnDemand).node("b", "p", "m", v1.CapacityTypeOnDemand)
	w := f.world()
	w.Commitments = commitment.Read(savingsPlan("0.1", 30*24*time.Hour), w.Snap, []*cloud.Catalog{f.pools["p"].Catalog}, noon)
	s := &search{survey: &survey{w: w}}
	part := func(names ...string) *part {
		p := &part{}
		for _, n := range names {
			p.remove = append(p.remove, &Candidate{Node: w.Snap.Node(n), Price: cloud.FromDollars(0.2)})
		}
		return p
	}
	one, both := s.leastSaved(part("a")).Dollars(), s.leastSaved(part("a", "b")).Dollars()
	if one != 0.2 || both < 0.2 || both > 0.201 {
		t.Errorf("one takes %v off the bill, both %v", one, both)
	}
}
