package awsmodel

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// resolveReservation finds the capacity reservation that a launch uses: the one it targets, or a fitting open one.
func (c *call) resolveReservation(s *spec, d *ec2types.RequestLaunchTemplateData) error {
	if s.pool.capacityType == spot {
		return nil
	}
	preference, target := ec2types.CapacityReservationPreferenceOpen, ""
	if r := d.CapacityReservationSpecification; r != nil {
		if r.CapacityReservationPreference != "" {
			preference = r.CapacityReservationPreference
		}
		if t := r.CapacityReservationTarget; t != nil {
			target = aws.ToString(t.CapacityReservationId)
		}
	}
	market := ec2types.MarketType("")
	if d.InstanceMarketOptions != nil {
		market = d.InstanceMarketOptions.MarketType
	}
	if target == "" && own[market] {
		return refuse("InvalidParameterCombination", "Instances of market type %s need a target Capacity Reservation.", market)
	}
	if target != "" {
		r, ok := c.world.st.Reservations[target]
		if !ok || r.State != ec2types.CapacityReservationStateActive {
			return refuse("InvalidCapacityReservationId.NotFound", "The capacity reservation '%s' does not exist", target)
		}
		if !fits(r, s) {
			return refuse("InvalidParameterValue",
				"The capacity reservation %s does not match the launch: it is for %s in %s", target, *r.InstanceType, *r.AvailabilityZone)
		}
		if want := marketOf(r); want != market && (own[want] || own[market]) {
			return refuse("InvalidParameterValue",
				"The market type %q cannot be used with capacity reservation %s, which is of type %q.", market, target, want)
		}
		s.reservation = r
		s.pool.capacityType = reserved
		return nil
	}
	if preference == ec2types.CapacityReservationPreferenceNone {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(c.world.st.Reservations)) {
		r := c.world.st.Reservations[id]
		if r.State == ec2types.CapacityReservationStateActive &&
			r.InstanceMatchCriteria == ec2types.InstanceMatchCriteriaOpen && fits(r, s) && *r.AvailableInstanceCount > 0 {
			s.reservation = r
			return nil
		}
	}
	if preference == ec2types.CapacityReservationPreferenceCapacityReservationsOnly {
		return refuse("ReservationCapacityExceeded", "There is no capacity reservation with available capacity for this request.")
	}
	return nil
}

// own are the markets of reservations that a launch must name as such.
var own = map[ec2types.MarketType]bool{ec2types.MarketTypeCapacityBlock: true, ec2types.MarketTypeInterruptibleCapacityReservation: true}

// marketOf is the market type with which machines are launched into a reservation, "" for ordinary ones.
func marketOf(r *ec2types.CapacityReservation) ec2types.MarketType {
	switch {
	case r.ReservationType == ec2types.CapacityReservationTypeCapacityBlock:
		return ec2types.MarketTypeCapacityBlock
	case aws.ToBool(r.Interruptible):
		return ec2types.MarketTypeInterruptibleCapacityReservation
	}
	return ""
}

// A Reservation is capacity that a cluster's owner has bought in a way that has no call here: a capacity block, or
// what others may take back.
type Reservation struct {
	InstanceType, Zone string
	Count              int32
	Block              bool
	Interruptible      bool
	End                time.Time // zero for none
	Tags               map[string]string
}

// Reserve adds a reservation and returns its id.
func (c *Cloud) Reserve(r Reservation) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	id := c.world.newID("cr")
	out := &ec2types.CapacityReservation{
		CapacityReservationId: &id, CapacityReservationArn: aws.String(c.world.cfg.arn("ec2", "capacity-reservation/"+id)),
		OwnerId:      &c.world.cfg.Account,
		InstanceType: &r.InstanceType, AvailabilityZone: &r.Zone, AvailabilityZoneId: aws.String(c.world.data.zoneID(r.Zone)),
		InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix, TotalInstanceCount: &r.Count,
		AvailableInstanceCount: aws.Int32(r.Count),
		State:                  ec2types.CapacityReservationStateActive, InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
		EndDateType: ec2types.EndDateTypeUnlimited,
		CreateDate:  &now, StartDate: &now, Tenancy: ec2types.CapacityReservationTenancyDefault,
		ReservationType: ec2types.CapacityReservationTypeDefault,
		Interruptible:   aws.Bool(r.Interruptible), EbsOptimized: aws.Bool(false), EphemeralStorage: aws.Bool(false),
	}
	if r.Block {
		out.ReservationType = ec2types.CapacityReservationTypeCapacityBlock
	}
	if !r.End.IsZero() {
		out.EndDate, out.EndDateType = &r.End, ec2types.EndDateTypeLimited
	}
	for k, v := range r.Tags {
		out.Tags = withTags(out.Tags, tagList(k, v))
	}
	c.world.st.Reservations[id] = out
	c.world.changed()
	return id
}

// Reclaim takes an interruptible reservation back: its machines get a notice, and stopped two minutes later.
func (c *Cloud) Reclaim(id string) error {
	c.mu.Lock()
	r := c.world.st.Reservations[id]
	var ids []string
	for _, m := range c.world.st.Machines {
		if m.alive() && aws.ToString(m.Now.CapacityReservationId) == id {
			ids = append(ids, m.id())
		}
	}
	if r == nil || !aws.ToBool(r.Interruptible) {
		c.mu.Unlock()
		return fmt.Errorf("%s is no interruptible reservation", id)
	}
	taken := copyOf(*r)
	taken.State, taken.AvailableInstanceCount = ec2types.CapacityReservationStateCancelled, aws.Int32(0)
	c.world.st.Reservations[id] = taken
	c.mu.Unlock()
	slices.Sort(ids)
	if err := c.ReservationWarning(ids...); err != nil {
		return err
	}
	return c.each(ids, func(w *world, m *machine, now time.Time) {
		w.at(now.Add(w.cfg.Timing.SpotNotice), m.id(), func(w *world, m *machine, now time.Time) {
			w.terminate(m, now, "Server.CapacityReservationInterruption",
				"Server.CapacityReservationInterruption: The capacity was reclaimed")
		})
	})
}

func fits(r *ec2types.CapacityReservation, s *spec) bool {
	return *r.InstanceType == s.facts.Name && *r.AvailabilityZone == s.pool.zone
}

// releaseReservation gives back the place of a machine that no longer holds it.
func (w *world) releaseReservation(m *machine) {
	if r, ok := w.st.Reservations[aws.ToString(m.Now.CapacityReservationId)]; ok {
		r.AvailableInstanceCount = aws.Int32(min(*r.AvailableInstanceCount+1, *r.TotalInstanceCount))
	}
}

func createCapacityReservation(c *call, in *ec2.CreateCapacityReservationInput) (*ec2.CreateCapacityReservationOutput, error) {
	name, zone := aws.ToString(in.InstanceType), aws.ToString(in.AvailabilityZone)
	if !c.world.data.offered[zone][name] {
		return nil, refuse("Unsupported", "The requested configuration is currently not supported: %s in %s", name, zone)
	}
	if aws.ToInt32(in.InstanceCount) < 1 {
		return nil, refuse("InvalidParameterValue", "InstanceCount must be at least 1")
	}
	return idempotent(c, in.ClientToken, in, func() (*ec2.CreateCapacityReservationOutput, error) {
		id := c.world.newID("cr")
		r := &ec2types.CapacityReservation{
			CapacityReservationId: &id, CapacityReservationArn: aws.String(c.world.cfg.arn("ec2", "capacity-reservation/"+
				id)), OwnerId: &c.world.cfg.Account,
			InstanceType: &name, AvailabilityZone: &zone, AvailabilityZoneId: aws.String(c.world.data.zoneID(zone)),
			InstancePlatform:   in.InstancePlatform,
			TotalInstanceCount: in.InstanceCount, AvailableInstanceCount: aws.Int32(*in.InstanceCount),
			State:                 ec2types.CapacityReservationStateActive,
			InstanceMatchCriteria: in.InstanceMatchCriteria, EndDate: in.EndDate, EndDateType: in.EndDateType,
			CreateDate: aws.Time(c.now), StartDate: aws.Time(c.now),
			Tenancy: ec2types.CapacityReservationTenancyDefault, ReservationType: ec2types.CapacityReservationTypeDefault,
			Tags:         tagsFor(in.TagSpecifications, ec2types.ResourceTypeCapacityReservation),
			EbsOptimized: aws.Bool(false), EphemeralStorage: aws.Bool(false),
		}
		if r.InstanceMatchCriteria == "" {
			r.InstanceMatchCriteria = ec2types.InstanceMatchCriteriaOpen
		}
		if r.EndDateType == "" {
			r.EndDateType = ec2types.EndDateTypeUnlimited
		}
		c.world.st.Reservations[id] = r
		return &ec2.CreateCapacityReservationOutput{CapacityReservation: copyOf(*r)}, nil
	})
}

func cancelCapacityReservation(c *call, in *ec2.CancelCapacityReservationInput) (*ec2.CancelCapacityReservationOutput, error) {
	id := aws.ToString(in.CapacityReservationId)
	r, ok := c.world.st.Reservations[id]
	if !ok {
		return nil, missing(id)
	}
	c.world.lapse(r, ec2types.CapacityReservationStateCancelled, c.now)
	return &ec2.CancelCapacityReservationOutput{Return: aws.Bool(true)}, nil
}

// lapse ends a reservation. Its machines run on, on demand.
func (w *world) lapse(r *ec2types.CapacityReservation, state ec2types.CapacityReservationState, now time.Time) {
	r.State, r.AvailableInstanceCount = state, aws.Int32(0)
	for _, m := range w.st.Machines {
		if aws.ToString(m.Now.CapacityReservationId) == *r.CapacityReservationId {
			m.Pool.capacityType = onDemand
			w.edit(m, now, func(i *ec2types.Instance) { i.CapacityReservationId = nil })
		}
	}
	w.changed()
}

// blockStops is how long before its end EC2 stops the machines of a capacity block.
const blockStops = 30 * time.Minute

// lapseExpired ends the reservations whose time has come, and stops the machines of blocks before.
func (w *world) lapseExpired(now time.Time) {
	for _, r := range w.st.Reservations {
		if r.EndDate != nil && r.State == ec2types.CapacityReservationStateActive && !r.EndDate.After(now) {
			w.lapse(r, ec2types.CapacityReservationStateExpired, *r.EndDate)
		}
		if r.EndDate != nil && marketOf(r) == ec2types.MarketTypeCapacityBlock && !r.EndDate.Add(-blockStops).After(now) {
			for _, m := range w.st.Machines {
				if m.alive() && aws.ToString(m.Now.CapacityReservationId) == *r.CapacityReservationId {
					w.terminate(m, now, "Server.CapacityBlockExpiration", "Server.CapacityBlockExpiration: The Capacity Block ends")
				}
			}
		}
	}
}

func describeCapacityReservations(c *call, in *ec2.DescribeCapacityReservationsInput) (*ec2.DescribeCapacityReservationsOutput, error) {
	if len(in.CapacityReservationIds) > 0 && in.MaxResults != nil {
		return nil, refuse("InvalidParameterCombination",
			"The parameter CapacityReservationIds cannot be used with the parameter MaxResults")
	}
	var out []ec2types.CapacityReservation
	for _, id := range in.CapacityReservationIds {
		if _, ok := c.world.st.Reservations[id]; !ok {
			return nil, missing(id)
		}
	}
	for _, r := range c.world.st.Reservations {
		ok, err := matches(in.Filters, *r, reservationFilters, r.Tags)
		if err != nil {
			return nil, err
		}
		if ok && known(in.CapacityReservationIds, r.CapacityReservationId) {
			out = append(out, *r)
		}
	}
	out, next, err := page(out, in.MaxResults, in.NextToken, 1, 1000,
		func(r ec2types.CapacityReservation) string { return *r.CapacityReservationId })
	return &ec2.DescribeCapacityReservationsOutput{CapacityReservations: out, NextToken: next}, err
}

var reservationFilters = filters[ec2types.CapacityReservation]{
	"state":                   func(r ec2types.CapacityReservation) []string { return []string{string(r.State)} },
	"instance-type":           func(r ec2types.CapacityReservation) []string { return []string{*r.InstanceType} },
	"owner-id":                func(r ec2types.CapacityReservation) []string { return []string{*r.OwnerId} },
	"availability-zone":       func(r ec2types.CapacityReservation) []string { return []string{*r.AvailabilityZone} },
	"instance-match-criteria": func(r ec2types.CapacityReservation) []string { return []string{string(r.InstanceMatchCriteria)} },
	"tenancy":                 func(r ec2types.CapacityReservation) []string { return []string{string(r.Tenancy)} },
}

// partitionFor is the partition of a new machine: the requested one, or the one with the fewest machines in the zone.
func partitionFor(c *call, s *spec) *int32 {
	if n := s.data.Placement.PartitionNumber; n != nil || s.placement.Strategy != ec2types.PlacementStrategyPartition {
		return n
	}
	members := make([]int, aws.ToInt32(s.placement.PartitionCount))
	for _, m := range c.world.st.Machines {
		if n := aws.ToInt32(m.Now.Placement.PartitionNumber); m.alive() && n > 0 && m.zone() == s.pool.zone &&
			aws.ToString(m.Now.Placement.GroupId) == *s.placement.GroupId {
			members[n-1]++
		}
	}
	return aws.Int32(int32(slices.Index(members, slices.Min(members))) + 1)
}

// spreadLimit is how many running machines a spread placement group may have in one zone.
const spreadLimit = 7

func (c *call) resolvePlacement(s *spec, d *ec2types.RequestLaunchTemplateData) error {
	p := d.Placement
	if p == nil || p.GroupId == nil && aws.ToString(p.GroupName) == "" {
		return nil
	}
	for _, g := range c.world.st.Groups {
		if p.GroupId != nil && *g.GroupId == *p.GroupId || p.GroupId == nil && *g.GroupName == *p.GroupName {
			s.placement = g
		}
	}
	if s.placement == nil {
		return refuse("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.",
			aws.ToString(p.GroupId)+aws.ToString(p.GroupName))
	}
	if !slices.Contains(s.facts.Placement.Strategies, string(s.placement.Strategy)) {
		return refuse("InvalidParameterCombination",
			"%s placement groups may not be used with instances of type '%s'.", s.placement.Strategy, s.facts.Name)
	}
	if s.placement.Strategy == ec2types.PlacementStrategySpread && p.Tenancy == ec2types.TenancyDedicated {
		return refuse("InvalidParameterCombination", "Spread placement groups do not support Dedicated Instances.")
	}
	if n := p.PartitionNumber; n != nil && s.placement.Strategy != ec2types.PlacementStrategyPartition {
		return refuse("InvalidParameterCombination", "A partition number may be specified only for a partition placement group.")
	}
	if n := p.PartitionNumber; n != nil && (*n < 1 || *n > aws.ToInt32(s.placement.PartitionCount)) {
		return refuse("InvalidParameterValue", "Partition number %d is not between 1 and %d", *n, aws.ToInt32(s.placement.PartitionCount))
	}
	return nil
}

// crowded keeps the limit of spread placement groups, and cluster groups in one zone.
func crowded(c *call, s *spec) error {
	if s.placement != nil && s.placement.Strategy == ec2types.PlacementStrategyCluster {
		for _, m := range c.world.st.Machines {
			if m.alive() && m.zone() != s.pool.zone && aws.ToString(m.Now.Placement.GroupId) == *s.placement.GroupId {
				return refuse("InvalidPlacementGroup.InUse",
					"The placement group '%s' is in use in another availability zone: %s", *s.placement.GroupName, m.zone())
			}
		}
	}
	if s.placement == nil || s.placement.Strategy != ec2types.PlacementStrategySpread ||
		s.placement.SpreadLevel == ec2types.SpreadLevelHost {
		return nil
	}
	n := 0
	for _, m := range c.world.st.Machines {
		if m.alive() && m.zone() == s.pool.zone && aws.ToString(m.Now.Placement.GroupId) == *s.placement.GroupId {
			n++
		}
	}
	if n >= spreadLimit {
		return refuse("InsufficientInstanceCapacity",
			"Spread placement group %s has reached its limit of %d running instances per Availability Zone.",
			*s.placement.GroupName, spreadLimit)
	}
	return nil
}

func createPlacementGroup(c *call, in *ec2.CreatePlacementGroupInput) (*ec2.CreatePlacementGroupOutput, error) {
	for _, g := range c.world.st.Groups {
		if *g.GroupName == aws.ToString(in.GroupName) {
			return nil, refuse("InvalidPlacementGroup.Duplicate", "The Placement Group '%s' already exists.", *g.GroupName)
		}
	}
	count := aws.ToInt32(in.PartitionCount)
	if in.Strategy == ec2types.PlacementStrategyPartition && in.PartitionCount == nil {
		in.PartitionCount, count = aws.Int32(2), 2
	}
	if partitioned := in.Strategy == ec2types.PlacementStrategyPartition; partitioned && (count < 1 || count > 7) ||
		!partitioned && in.PartitionCount != nil {
		return nil, refuse("InvalidParameterValue", "PartitionCount is from 1 to 7, and for the strategy partition only.")
	}
	id := c.world.newID("pg")
	g := &ec2types.PlacementGroup{
		GroupId: &id, GroupName: in.GroupName, GroupArn: aws.String(c.world.cfg.arn("ec2",
			"placement-group/"+aws.ToString(in.GroupName))), State: ec2types.PlacementGroupStateAvailable,
		Strategy: in.Strategy, PartitionCount: in.PartitionCount, SpreadLevel: in.SpreadLevel,
		Tags: tagsFor(in.TagSpecifications, ec2types.ResourceTypePlacementGroup),
	}
	if g.Strategy == ec2types.PlacementStrategySpread && g.SpreadLevel == "" {
		g.SpreadLevel = ec2types.SpreadLevelRack
	}
	c.world.st.Groups[id] = g
	return &ec2.CreatePlacementGroupOutput{PlacementGroup: copyOf(*g)}, nil
}

func describePlacementGroups(c *call, in *ec2.DescribePlacementGroupsInput) (*ec2.DescribePlacementGroupsOutput, error) {
	out := []ec2types.PlacementGroup{}
	seen := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(c.world.st.Groups)) {
		g := *c.world.st.Groups[id]
		seen[id], seen[*g.GroupName] = true, true
		ok, err := matches(in.Filters, g, placementFilters, g.Tags)
		if err != nil {
			return nil, err
		}
		if ok && known(in.GroupIds, g.GroupId) && known(in.GroupNames, g.GroupName) {
			out = append(out, g)
		}
	}
	for _, want := range slices.Concat(in.GroupIds, in.GroupNames) {
		if !seen[want] {
			return nil, refuse("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.", want)
		}
	}
	return &ec2.DescribePlacementGroupsOutput{PlacementGroups: out}, nil
}

var placementFilters = filters[ec2types.PlacementGroup]{
	"group-name": func(g ec2types.PlacementGroup) []string { return []string{*g.GroupName} },
	"state":      func(g ec2types.PlacementGroup) []string { return []string{strings.ToLower(string(g.State))} },
	"strategy":   func(g ec2types.PlacementGroup) []string { return []string{string(g.Strategy)} },
}
