package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/shortage"
)

// An Order is a launch without the subnets and the number of machines. Equal orders can share a call.
type Order struct {
	CapacityType string
	Kind         Kind // of the reservations that it is for
	Templates    []Template
	Tags         map[string]string // of fleet, instances and volumes
	Context      string
	// Place is where in a placement group all machines of the order go.
	Place shortage.Place
	// Prioritized orders choose by the priority of overrides instead of by EC2's prices.
	Prioritized bool
	// Subnets are the class's subnets by zone.
	Subnets map[string][]string
	// Pods is, by zone, the least number of addresses that a machine of this order takes there.
	Pods map[string]int

	// InDoubt says that a machine may have been launched for the claim that EC2 does not show yet.
	InDoubt bool

	// Claim and Token are whom the order is for; they are sent to EC2 if the call is for this claim alone.
	Claim string `json:"-"`
	Token string `json:"-"`
}

// A Template is a launch template with what may be launched from it.
type Template struct {
	Name        string
	Reservation string // what its machines are launched into; "" for no reservation
	Overrides   []Override
}

// MaxTemplates is how many launch templates EC2 takes in one call.
const MaxTemplates = 50

// An Override is one type in one zone.
type Override struct {
	InstanceType string
	Zone         string
	ImageID      string
	Priority     float64 // the price in dollars
}

// Key returns a text that is equal for equal orders.
func (o *Order) Key() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("order cannot be written as JSON: %v", err)) // plain data; cannot happen
	}
	h := fnv.New128a()
	h.Write(text)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// forOne returns the order to send for one claim alone, with the claim's tag.
func (o *Order) forOne() *Order {
	one := *o
	one.Tags = maps.Clone(o.Tags)
	if o.Claim != "" {
		one.Tags[awsv1.TagNodeClaim] = o.Claim
	}
	return &one
}

// reservationOf returns the reservation that a type in a zone is launched into. A call never names two of them.
func (o *Order) reservationOf(instanceType, zone string) string {
	for _, t := range o.Templates {
		if slices.ContainsFunc(t.Overrides, func(x Override) bool { return x.InstanceType == instanceType && x.Zone == zone }) {
			return t.Reservation
		}
	}
	return ""
}

// sorted returns overrides in one order, each once.
func sorted(overrides []Override) []Override {
	out := slices.Clone(overrides)
	slices.SortFunc(out, func(a, b Override) int {
		return cmp.Or(strings.Compare(a.InstanceType, b.InstanceType), strings.Compare(a.Zone, b.Zone),
			cmp.Compare(a.Priority, b.Priority))
	})
	return slices.CompactFunc(out, func(a, b Override) bool { return a.InstanceType == b.InstanceType && a.Zone == b.Zone })
}

// Request returns the CreateFleet call for n machines of an order, each zone in the subnet given for it. Overrides in
// zones without a subnet are left out; it returns nil if none is left.
func Request(o *Order, n int, subnets map[string]string, token string) *ec2.CreateFleetInput {
	in := &ec2.CreateFleetInput{
		Type:        ec2types.FleetTypeInstant,
		ClientToken: aws.String(token),
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity:       aws.Int32(int32(n)),
			DefaultTargetCapacityType: ec2types.DefaultTargetCapacityTypeOnDemand,
		},
		TagSpecifications: tagged(o.Tags, ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume, ec2types.ResourceTypeFleet),
	}
	if o.Context != "" {
		in.Context = aws.String(o.Context)
	}
	switch {
	case o.Kind == Block:
		in.TargetCapacitySpecification.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeCapacityBlock
	case o.Kind == Interruptible:
		in.TargetCapacitySpecification.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeReservedCapacity
		in.ReservedCapacityOptions = &ec2types.ReservedCapacityOptionsRequest{
			ReservationTypes: []ec2types.FleetReservationType{ec2types.FleetReservationTypeInterruptibleCapacityReservation},
		}
	case o.CapacityType == v1.CapacityTypeSpot:
		in.TargetCapacitySpecification.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeSpot
		strategy := ec2types.SpotAllocationStrategyPriceCapacityOptimized
		if o.Prioritized {
			strategy = ec2types.SpotAllocationStrategyCapacityOptimizedPrioritized
		}
		in.SpotOptions = &ec2types.SpotOptionsRequest{AllocationStrategy: strategy}
	default:
		strategy := ec2types.FleetOnDemandAllocationStrategyLowestPrice
		if o.Prioritized {
			strategy = ec2types.FleetOnDemandAllocationStrategyPrioritized
		}
		in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{AllocationStrategy: strategy}
	}
	for _, t := range o.Templates {
		if overrides := requestOverrides(t, subnets); len(overrides) > 0 {
			in.LaunchTemplateConfigs = append(in.LaunchTemplateConfigs, ec2types.FleetLaunchTemplateConfigRequest{
				LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
					LaunchTemplateName: aws.String(t.Name), Version: aws.String("$Latest"),
				},
				Overrides: overrides,
			})
		}
	}
	if len(in.LaunchTemplateConfigs) == 0 {
		return nil
	}
	return in
}

// requestOverrides returns the overrides of a template in the form of the call.
func requestOverrides(t Template, subnets map[string]string) []ec2types.FleetLaunchTemplateOverridesRequest {
	var out []ec2types.FleetLaunchTemplateOverridesRequest
	for _, o := range sorted(t.Overrides) {
		subnet, ok := subnets[o.Zone]
		if !ok {
			continue
		}
		out = append(out, ec2types.FleetLaunchTemplateOverridesRequest{
			InstanceType:     ec2types.InstanceType(o.InstanceType),
			SubnetId:         aws.String(subnet),
			ImageId:          aws.String(o.ImageID),
			AvailabilityZone: aws.String(o.Zone),
			Priority:         aws.Float64(o.Priority),
		})
	}
	return out
}

func tagged(tags map[string]string, resources ...ec2types.ResourceType) []ec2types.TagSpecification {
	out := make([]ec2types.TagSpecification, len(resources))
	for i, r := range resources {
		out[i] = ec2types.TagSpecification{ResourceType: r, Tags: ec2api.Tags(tags)}
	}
	return out
}
