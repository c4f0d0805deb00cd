package awsmodel

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// maxTemplates is EC2's limit for the launch templates of a fleet. Overrides are limited for other types of fleets only.
const maxTemplates = 50

// A choice is one override of a fleet and its outcome.
type choice struct {
	template  ec2types.FleetLaunchTemplateSpecification
	override  ec2types.FleetLaunchTemplateOverridesRequest
	spec      *spec
	err       error
	price     float64
	priority  float64
	room      int // machines that its pool still holds; endless is negative
	launched  []*machine
	lifecycle ec2types.InstanceLifecycle
}

func createFleet(c *call, in *ec2.CreateFleetInput) (*ec2.CreateFleetOutput, error) {
	return idempotent(c, in.ClientToken, in, func() (*ec2.CreateFleetOutput, error) { return fleet(c, in) })
}

func fleet(c *call, in *ec2.CreateFleetInput) (*ec2.CreateFleetOutput, error) {
	capacityType, want, err := checkFleet(in)
	if err != nil {
		return nil, err
	}
	if err := checkTagSpecs(in.TagSpecifications, append(machineTags, ec2types.ResourceTypeFleet)...); err != nil {
		return nil, err
	}
	for _, l := range in.LaunchTemplateConfigs {
		if ref := l.LaunchTemplateSpecification; ref != nil {
			if _, err := findTemplate(c, ref.LaunchTemplateId, ref.LaunchTemplateName); err != nil {
				return nil, err
			}
		}
	}
	if err := checkOverrides(c, in.LaunchTemplateConfigs); err != nil {
		return nil, err
	}
	id := c.world.newID("fleet")
	choices, err := choices(c, in, capacityType, id)
	if err != nil {
		return nil, err
	}
	if dryRun(in) {
		return nil, dryRunSucceeded()
	}
	rank(choices, strategy(in, capacityType), want)
	share := want
	if c.world.cfg.SpreadSpot {
		share = shareOf(choices, strategy(in, capacityType), want)
	}
	fulfil(c, choices, want, share)
	return &ec2.CreateFleetOutput{FleetId: &id, Instances: instancesOf(choices), Errors: errorsOf(choices)}, nil
}

// checkFleet refuses what is malformed, and what the model has no answer for.
func checkFleet(in *ec2.CreateFleetInput) (capacityType string, want int, err error) {
	if in.Type != ec2types.FleetTypeInstant {
		return "", 0, refuse("UnsupportedOperation", "The model has only fleets of type instant.")
	}
	t := in.TargetCapacitySpecification
	if t == nil || aws.ToInt32(t.TotalTargetCapacity) < 1 {
		return "", 0, refuse("InvalidParameterValue", "TotalTargetCapacity must be at least 1.")
	}
	if t.OnDemandTargetCapacity != nil || t.SpotTargetCapacity != nil || t.TargetCapacityUnitType != "" {
		return "", 0, refuse("UnsupportedOperation", "The model knows only a total target capacity, in machines.")
	}
	if err := checkStrategies(in); err != nil {
		return "", 0, err
	}
	switch t.DefaultTargetCapacityType {
	case ec2types.DefaultTargetCapacityTypeSpot:
		return spot, int(*t.TotalTargetCapacity), nil
	case ec2types.DefaultTargetCapacityTypeOnDemand:
		return onDemand, int(*t.TotalTargetCapacity), nil
	case ec2types.DefaultTargetCapacityTypeCapacityBlock:
		if len(in.LaunchTemplateConfigs) > 1 || countOverrides(in.LaunchTemplateConfigs) > 1 || in.ReservedCapacityOptions != nil {
			return "", 0, refuse("InvalidParameterCombination",
				"A fleet of type capacity-block takes one launch template with one instance type, and no options for reserved capacity.")
		}
		return onDemand, int(*t.TotalTargetCapacity), nil
	case ec2types.DefaultTargetCapacityTypeReservedCapacity:
		if o := in.ReservedCapacityOptions; o == nil || len(o.ReservationTypes) != 1 ||
			o.ReservationTypes[0] != ec2types.FleetReservationTypeInterruptibleCapacityReservation {
			return "", 0, refuse("InvalidParameterCombination",
				"A fleet of type reserved-capacity needs the reservation type interruptible-capacity-reservation.")
		}
		return onDemand, int(*t.TotalTargetCapacity), nil
	}
	return "", 0, refuse("UnsupportedOperation", "The model has no target capacity type %q.", t.DefaultTargetCapacityType)
}

// checkStrategies refuses allocation strategies that EC2 does not have.
func checkStrategies(in *ec2.CreateFleetInput) error {
	unknown := ""
	if o := in.SpotOptions; o != nil && o.AllocationStrategy != "" &&
		!slices.Contains(o.AllocationStrategy.Values(), o.AllocationStrategy) {
		unknown = string(o.AllocationStrategy)
	}
	if o := in.OnDemandOptions; o != nil && o.AllocationStrategy != "" &&
		!slices.Contains(o.AllocationStrategy.Values(), o.AllocationStrategy) {
		unknown = string(o.AllocationStrategy)
	}
	if unknown != "" {
		return refuse("InvalidParameterValue", "Allocation strategy '%s' is invalid", unknown)
	}
	return nil
}

func countOverrides(configs []ec2types.FleetLaunchTemplateConfigRequest) int {
	n := 0
	for _, l := range configs {
		n += len(l.Overrides)
	}
	return n
}

// checkOverrides refuses a fleet without overrides, with too many templates, and with a type twice in a zone.
func checkOverrides(c *call, configs []ec2types.FleetLaunchTemplateConfigRequest) error {
	n := countOverrides(configs)
	switch {
	case n == 0:
		return refuse("MissingParameter", "The fleet request needs a launch template and overrides.")
	case len(configs) > maxTemplates:
		return refuse("InvalidParameterValue",
			"The fleet request has %d launch template configs, at most %d are allowed.", len(configs), maxTemplates)
	}
	type place struct {
		instanceType ec2types.InstanceType
		zone         string
	}
	seen := map[place]bool{}
	for _, l := range configs {
		for _, o := range l.Overrides {
			p := place{o.InstanceType, aws.ToString(o.AvailabilityZone)}
			if s, ok := c.world.subnet(aws.ToString(o.SubnetId)); ok {
				p.zone = aws.ToString(s.Subnet.AvailabilityZone)
			}
			if seen[p] {
				return refuse("InvalidFleetConfig", "The fleet configuration contains duplicate instance pools.")
			}
			seen[p] = true
		}
	}
	return nil
}

// choices resolves every override. A template that does not exist fails the call; anything else fails only its override.
func choices(c *call, in *ec2.CreateFleetInput, capacityType, fleet string) ([]*choice, error) {
	used := c.world.used()
	var out []*choice
	for _, l := range in.LaunchTemplateConfigs {
		ref := l.LaunchTemplateSpecification
		if ref == nil {
			return nil, refuse("MissingParameter", "A launch template config names no launch template.")
		}
		t, err := findTemplate(c, ref.LaunchTemplateId, ref.LaunchTemplateName)
		if err != nil {
			return nil, err
		}
		n, err := t.version(aws.ToString(ref.Version))
		if err != nil {
			return nil, err
		}
		told := ec2types.FleetLaunchTemplateSpecification{
			LaunchTemplateId: t.Template.LaunchTemplateId, LaunchTemplateName: t.Template.LaunchTemplateName,
			Version: aws.String(fmt.Sprint(n)),
		}
		for _, o := range l.Overrides {
			if name := setOutside(o, fleetOverrides); name != "" {
				return nil, refuse("UnsupportedOperation", "The model does not act on override member %s.", name)
			}
			k := &choice{template: told, override: o, priority: aws.ToFloat64(o.Priority), lifecycle: ec2types.InstanceLifecycleOnDemand}
			if capacityType == spot {
				k.lifecycle = ec2types.InstanceLifecycleSpot
			}
			k.spec, k.err = c.resolve(t.Versions[n-1].Data, override{
				string(o.InstanceType), aws.ToString(o.SubnetId), aws.ToString(o.AvailabilityZone), aws.ToString(o.ImageId), capacityType,
			})
			if k.err == nil && k.spec.reservation != nil &&
				targetOf(marketOf(k.spec.reservation)) != in.TargetCapacitySpecification.DefaultTargetCapacityType &&
				k.spec.pool.capacityType == reserved {
				k.err = refuse("InvalidParameterCombination",
					"The target capacity type %s does not match that of the launch template's market.",
					in.TargetCapacitySpecification.DefaultTargetCapacityType)
			}
			if k.err == nil {
				k.spec.tags, k.spec.template, k.spec.version, k.spec.fleet = in.TagSpecifications, t, n, fleet
				k.spec.token, k.spec.context = fleet, aws.ToString(in.Context)
				k.price = price(c, k.spec.pool)
				k.room = roomIn(c, k.spec, used)
			}
			out = append(out, k)
		}
	}
	return out, nil
}

// targetOf is the target capacity type of a fleet that launches in a market of reservations.
func targetOf(m ec2types.MarketType) ec2types.DefaultTargetCapacityType {
	switch m {
	case ec2types.MarketTypeCapacityBlock:
		return ec2types.DefaultTargetCapacityTypeCapacityBlock
	case ec2types.MarketTypeInterruptibleCapacityReservation:
		return ec2types.DefaultTargetCapacityTypeReservedCapacity
	}
	return ec2types.DefaultTargetCapacityTypeOnDemand
}

var fleetOverrides = []string{"InstanceType", "SubnetId", "AvailabilityZone", "ImageId", "Priority"}

func price(c *call, p pool) float64 {
	if p.capacityType == spot {
		price, _ := c.world.spotPriceAt(p.instanceType, p.zone, c.now)
		return price
	}
	return c.world.data.onDemand(p)
}

// strategy is the allocation strategy that counts for the fleet's capacity type.
func strategy(in *ec2.CreateFleetInput, capacityType string) string {
	if capacityType == spot {
		if o := in.SpotOptions; o != nil && o.AllocationStrategy != "" {
			return string(o.AllocationStrategy)
		}
		return string(ec2types.SpotAllocationStrategyLowestPrice)
	}
	if o := in.OnDemandOptions; o != nil && o.AllocationStrategy != "" {
		return string(o.AllocationStrategy)
	}
	return string(ec2types.FleetOnDemandAllocationStrategyLowestPrice)
}

// rank orders the choices as the allocation strategy tries them. What AWS keeps to itself, how deep pools are, the model
// knows: strategies by capacity prefer pools that can hold the whole target, and order the rest by depth.
func rank(choices []*choice, strategy string, want int) {
	deep := func(k *choice) int { // the deepest first
		if k.room == endless || k.room >= want {
			return 0
		}
		return want - k.room
	}
	name := func(a, b *choice) int {
		return cmp.Or(cmp.Compare(a.override.InstanceType, b.override.InstanceType),
			cmp.Compare(aws.ToString(a.override.SubnetId), aws.ToString(b.override.SubnetId)))
	}
	slices.SortStableFunc(choices, func(a, b *choice) int {
		switch strategy {
		case string(ec2types.SpotAllocationStrategyPriceCapacityOptimized):
			return cmp.Or(cmp.Compare(deep(a), deep(b)), cmp.Compare(a.price, b.price), name(a, b))
		case string(ec2types.SpotAllocationStrategyCapacityOptimized):
			return cmp.Or(cmp.Compare(deep(a), deep(b)), name(a, b))
		case string(ec2types.SpotAllocationStrategyCapacityOptimizedPrioritized):
			return cmp.Or(cmp.Compare(deep(a), deep(b)), cmp.Compare(a.priority, b.priority), name(a, b))
		case string(ec2types.FleetOnDemandAllocationStrategyPrioritized):
			return cmp.Or(cmp.Compare(a.priority, b.priority), name(a, b))
		}
		return cmp.Or(cmp.Compare(a.price, b.price), name(a, b))
	})
}

// How far fleets that go by capacity spread. EC2 keeps its own rule to itself.
const (
	spreadPools = 4
	spreadPrice = 1.2 // price-capacity-optimized: pools that cost so many times the first at most
)

// shareOf returns how many machines each of the first choices gives: all of them if the strategy does not spread.
func shareOf(choices []*choice, strategy string, want int) int {
	byPrice := strategy == string(ec2types.SpotAllocationStrategyPriceCapacityOptimized)
	if !byPrice && strategy != string(ec2types.SpotAllocationStrategyCapacityOptimized) {
		return want
	}
	var pools []*choice
	for _, k := range choices {
		if k.err == nil && len(pools) < spreadPools && (len(pools) == 0 || !byPrice || k.price <= spreadPrice*pools[0].price) {
			pools = append(pools, k)
		}
	}
	return (want + len(pools) - 1) / max(1, len(pools))
}

// fulfil launches up to want machines, choice by choice: a share of each, and then as many as there are. Choices that are tried and cannot
// give what is asked get an error.
func fulfil(c *call, choices []*choice, want, share int) {
	granted := c.cloud.admitMachines("ec2:RunInstances", want, c.now)
	for i := range 2 * len(choices) {
		k, most := choices[i%len(choices)], share
		if i >= len(choices) {
			most = want
		}
		if want == 0 {
			break
		}
		for k.err == nil && want > 0 && most > 0 {
			most--
			if granted == 0 {
				k.err = throttled("ec2")
				break
			}
			if k.err = capacity(c, k.spec); k.err != nil {
				break
			}
			m, err := c.make(k.spec)
			if err != nil {
				k.err = err
				break
			}
			k.launched = append(k.launched, m)
			want--
			granted--
		}
	}
}

// capacity says why a pool gives no further machine, nil if it does.
func capacity(c *call, s *spec) error {
	if err := quota(c, s); err != nil {
		return err
	}
	if err := crowded(c, s); err != nil {
		return err
	}
	if s.reservation != nil {
		if *s.reservation.AvailableInstanceCount <= 0 {
			return refuse("ReservationCapacityExceeded",
				"The requested reservation does not have sufficient compatible and available capacity for this request.")
		}
		return nil
	}
	if s.subnet.Subnet.OutpostArn != nil && !slices.Contains(s.subnet.Outpost, s.facts.Name) {
		return refuseWith(500, "InsufficientInstanceCapacity",
			"There is not enough capacity on the Outpost to launch or start the instance of type %s.", s.facts.Name)
	}
	if room(c, s) == 0 {
		return insufficient(s)
	}
	return nil
}

func insufficient(s *spec) *fault {
	if s.pool.capacityType == spot {
		return refuseWith(500, "InsufficientInstanceCapacity",
			"There is no Spot capacity available that matches your request: %s in %s.", s.pool.instanceType, s.pool.zone)
	}
	return refuseWith(500, "InsufficientInstanceCapacity",
		"We currently do not have sufficient %s capacity in the Availability Zone you requested (%s). Our system will "+
			"be working on provisioning additional capacity.", s.pool.instanceType, s.pool.zone)
}

const plenty = 1 << 30

// room is how many machines the pool of s still gives.
func room(c *call, s *spec) int {
	if n := roomIn(c, s, c.world.used()); n != endless {
		return n
	}
	return plenty
}

func roomIn(c *call, s *spec, used map[pool]int) int {
	depth := c.world.faults.depth(s.pool)
	if depth == endless {
		return endless
	}
	return max(depth-used[s.pool], 0)
}

// quota keeps the account's limits of processors.
func quota(c *call, s *spec) error {
	limit, code := c.world.faults.OnDemandVCPUs, "VcpuLimitExceeded"
	if s.pool.capacityType == spot {
		limit, code = c.world.faults.SpotVCPUs, "MaxSpotInstanceCountExceeded"
	}
	if limit == 0 {
		return nil
	}
	total := s.facts.VCPU.Default
	for _, m := range c.world.st.Machines {
		if m.alive() && (m.Pool.capacityType == spot) == (s.pool.capacityType == spot) {
			total += c.world.data.facts[m.Pool.instanceType].VCPU.Default
		}
	}
	if total <= limit {
		return nil
	}
	if code == "VcpuLimitExceeded" {
		return refuse(code, "You have requested more vCPU capacity than your current vCPU limit of %d allows for the "+
			"instance bucket that the specified instance type belongs to.", limit)
	}
	return refuse(code, "Max spot instance count exceeded")
}

func told(k *choice) *ec2types.LaunchTemplateAndOverridesResponse {
	o := k.override
	if k.spec != nil && o.AvailabilityZone == nil {
		o.AvailabilityZone = &k.spec.pool.zone
	}
	return &ec2types.LaunchTemplateAndOverridesResponse{
		LaunchTemplateSpecification: &k.template,
		Overrides: &ec2types.FleetLaunchTemplateOverrides{
			InstanceType: o.InstanceType, SubnetId: o.SubnetId, AvailabilityZone: o.AvailabilityZone,
			ImageId: o.ImageId, Priority: o.Priority,
		},
	}
}

func instancesOf(choices []*choice) []ec2types.CreateFleetInstance {
	out := []ec2types.CreateFleetInstance{}
	for _, k := range choices {
		if len(k.launched) == 0 {
			continue
		}
		i := ec2types.CreateFleetInstance{LaunchTemplateAndOverrides: told(k), Lifecycle: k.lifecycle,
			InstanceType: ec2types.InstanceType(k.spec.facts.Name)}
		for _, m := range k.launched {
			i.InstanceIds = append(i.InstanceIds, m.id())
		}
		out = append(out, i)
	}
	return out
}

// errorsOf tells what failed: the choices that were malformed, and those that were tried in vain. When the target is
// missed, that is every one.
func errorsOf(choices []*choice) []ec2types.CreateFleetError {
	out := []ec2types.CreateFleetError{}
	for _, k := range choices {
		if k.err == nil {
			continue
		}
		f := asFault(k.err)
		out = append(out, ec2types.CreateFleetError{LaunchTemplateAndOverrides: told(k), Lifecycle: k.lifecycle,
			ErrorCode: &f.code, ErrorMessage: &f.message})
	}
	return out
}
