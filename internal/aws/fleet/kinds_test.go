package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/shape"
)

// reserving is a type with offerings of reservations, each "id kind price", and one on demand.
func reserving(name string, reservations ...string) *cloud.InstanceType {
	it := &cloud.InstanceType{
		Name: name, Labels: map[string][]string{corev1.LabelInstanceTypeStable: {name}},
		Capacity: corev1.ResourceList{"cpu": resource.MustParse("4")},
		Offerings: []cloud.Offering{{Available: true, Price: 1_000_000, Labels: map[string]string{
			v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand, corev1.LabelTopologyZone: "a",
		}}},
	}
	for _, text := range reservations {
		var id, kind string
		var price cloud.NanoUSD
		if _, err := fmt.Sscan(text, &id, &kind, &price); err != nil {
			panic(err)
		}
		labels := map[string]string{
			v1.CapacityTypeLabelKey: v1.CapacityTypeReserved, corev1.LabelTopologyZone: "a", awsv1.LabelCapacityReservationID: id,
			awsv1.LabelCapacityReservationType: "default", awsv1.LabelCapacityReservationInterruptible: "false",
		}
		switch kind {
		case "block":
			labels[awsv1.LabelCapacityReservationType] = "capacity-block"
		case "interruptible":
			labels[awsv1.LabelCapacityReservationInterruptible] = "true"
		}
		it.Offerings = append(it.Offerings, cloud.Offering{Available: true, Price: price, Labels: labels, Reservation: id, Reserved: 1})
	}
	return it
}

func TestKindsOfReservations(t *testing.T) {
	for name, tc := range map[string]struct {
		types []*cloud.InstanceType
		only  string // the only capacity type, if any
		kind  Kind
		want  []string // the reservations
	}{
		"without any, on demand":                      {[]*cloud.InstanceType{reserving("x")}, "", "", []string{""}},
		"the kind of the cheapest":                    {[]*cloud.InstanceType{reserving("x", "cr-1 plain 3"), reserving("y", "cr-2 interruptible 2")}, "", Interruptible, []string{"cr-2"}},
		"ordinary ones before blocks":                 {[]*cloud.InstanceType{reserving("x", "cr-1 block 2"), reserving("y", "cr-2 plain 2")}, "", "", []string{"cr-2"}},
		"blocks before what may be taken back":        {[]*cloud.InstanceType{reserving("x", "cr-1 interruptible 2"), reserving("y", "cr-2 block 2")}, "", Block, []string{"cr-2"}},
		"all of the kind":                             {[]*cloud.InstanceType{reserving("x", "cr-1 plain 2"), reserving("y", "cr-2 plain 3"), reserving("z", "cr-3 block 4")}, "", "", []string{"cr-1", "cr-2"}},
		"of blocks, one":                              {[]*cloud.InstanceType{reserving("x", "cr-1 block 3"), reserving("y", "cr-2 block 2")}, "", Block, []string{"cr-2"}},
		"none for a claim that wants none":            {[]*cloud.InstanceType{reserving("x", "cr-1 block 3")}, v1.CapacityTypeOnDemand, "", []string{""}},
		"several may be taken back, of several types": {[]*cloud.InstanceType{reserving("x", "cr-1 interruptible 3"), reserving("y", "cr-2 interruptible 2")}, "", Interruptible, []string{"cr-2", "cr-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &v1.NodeClaim{}
			if tc.only != "" {
				claim.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: []string{tc.only}}}
			}
			choice, err := Choose(tc.types, claim, shape.DefaultBand)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range choice.Candidates {
				for _, o := range c.Offerings {
					got = append(got, o.Labels[awsv1.LabelCapacityReservationID])
				}
			}
			if !slices.Equal(got, tc.want) || choice.Kind() != tc.kind {
				t.Errorf("chosen %q of kind %q, want %q of kind %q", got, choice.Kind(), tc.want, tc.kind)
			}
		})
	}
}

func TestCallsForKindsOfReservations(t *testing.T) {
	for kind, want := range map[Kind]string{
		"":            "on-demand lowest-price",
		Block:         "capacity-block",
		Interruptible: "reserved-capacity interruptible-capacity-reservation",
	} {
		o := &Order{CapacityType: v1.CapacityTypeReserved, Kind: kind, Templates: []Template{{Name: "t", Overrides: []Override{{InstanceType: "x", Zone: "a"}}}}}
		in := Request(o, 1, map[string]string{"a": "subnet-a"}, "token")
		got := []string{string(in.TargetCapacitySpecification.DefaultTargetCapacityType)}
		if in.OnDemandOptions != nil {
			got = append(got, string(in.OnDemandOptions.AllocationStrategy))
		}
		if in.SpotOptions != nil {
			got = append(got, string(in.SpotOptions.AllocationStrategy))
		}
		if in.ReservedCapacityOptions != nil {
			for _, r := range in.ReservedCapacityOptions.ReservationTypes {
				got = append(got, string(r))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", kind, got, want)
		}
	}
}
