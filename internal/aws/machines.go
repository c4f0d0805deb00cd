package aws

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/launchspec"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/aws/spotshare"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// A machines launches, describes, tags and terminates machines.
type machines struct {
	env      *environment
	classes  *classes
	market   *market
	fleet    *fleet.Fleet
	launches *launches
	placing  *placing
	shares   *spotshare.Ledger
	listed   remembered
}

func newMachines(ctx context.Context, env *environment, c *classes, k *market, launches *launches,
	placing *placing) *machines {
	ms := &machines{env: env, classes: c, market: k, launches: launches, placing: placing, shares: spotshare.New()}
	ms.fleet = fleet.New(ctx, env.clients.EC2, c.network, k.stock, fleet.Settings{
		Cluster: env.settings.ClusterName, Token: rand.Text, Observe: env.batchSent, Failed: k.launchFailed, Zones: ms.zonesOf,
	})
	return ms
}

func providerID(zone, instance string) string { return fmt.Sprintf("aws:///%s/%s", zone, instance) }

var providerIDPattern = regexp.MustCompile(`^aws:///([^/]+)/(i-[0-9a-z]+)$`)

// instanceID returns the instance that a provider id names, "" if it is not an id of Karpenter's form.
func instanceID(providerID string) string {
	m := providerIDPattern.FindStringSubmatch(providerID)
	if m == nil {
		return ""
	}
	return m[2]
}

// Terminate begins to stop a machine. It returns ErrNotFound for a machine that is gone, or that has not Karpenter's
// tags. A machine that was just launched may be unknown to EC2 for a while, so it is tried again.
func (ms *machines) Terminate(ctx context.Context, providerID string) error {
	id := instanceID(providerID)
	if _, gone := ms.launches.gone.Get(id); id == "" || gone {
		return cloud.ErrNotFound
	}
	if ms.market.shifted(providerID) {
		return fmt.Errorf("stop %s: %w", id, errShifted)
	}
	i, err := ms.fleet.Describe(ctx, id)
	_, young := ms.launches.machines.Get(id) // EC2 may not show it yet, or not all of it
	_, leaving := ms.launches.leaving.Get(id)
	switch {
	case errors.Is(err, fleet.ErrGone):
		ms.launches.ended(providerID)
		ms.returned(providerID)
		return cloud.ErrNotFound
	case errors.Is(err, fleet.ErrUnknown):
		if leaving {
			return nil
		}
		if !young {
			return cloud.ErrNotFound
		}
	case err != nil:
		return err
	case stopping(i):
		return nil
	case !young && !ms.ours(i):
		telemetry.Log(ctx).WarnContext(ctx, "a machine without our tags is left running", "instance-id", id, "tags",
			[]string{awsv1.TagNodePool, awsv1.TagClusterName})
		return cloud.ErrNotFound
	}
	err = ms.fleet.Terminate(ctx, id)
	for wait := firstWait; young && errors.Is(err, fleet.ErrUnknown) && wait <= lastWait && sleep.For(ctx, wait); wait *= 2 {
		err = ms.fleet.Terminate(ctx, id)
	}
	switch {
	case errors.Is(err, fleet.ErrUnknown) && leaving:
		return nil
	case errors.Is(err, fleet.ErrUnknown) && young:
		return fmt.Errorf("terminate %s: EC2 does not know the machine yet", id)
	case errors.Is(err, fleet.ErrUnknown):
		return cloud.ErrNotFound
	}
	if err != nil {
		ms.terminationFailed(providerID)
		return err
	}
	ms.launches.stopped(providerID)
	return nil
}

// returned gives the place of a machine that is gone back to its reservation. The claim is removed after this answer,
// so the place is counted once.
func (ms *machines) returned(providerID string) {
	for claim := range ms.env.claims.Each() {
		if id := claim.Labels[awsv1.LabelCapacityReservationID]; id != "" && claim.Status.ProviderID == providerID {
			ms.market.reservations.Terminated(id)
		}
	}
}

// ours reports whether a machine has the tag that every launch gives, and is not of another cluster. A user who
// removes the tag wants to keep the machine.
func (ms *machines) ours(i ec2types.Instance) bool {
	tags := ec2api.TagMap(i.Tags)
	_, launched := tags[awsv1.TagNodePool]
	cluster, known := tags[awsv1.TagClusterName]
	return launched && (!known || cluster == ms.env.settings.ClusterName)
}

func stopping(i ec2types.Instance) bool {
	return i.State != nil && (i.State.Name == ec2types.InstanceStateNameShuttingDown ||
		i.State.Name == ec2types.InstanceStateNameTerminated)
}

// Values of the tag TagOrphan. The controller may set tags, and not take them away.
const (
	latchedValue  = "latched"
	releasedValue = "released"
)

// SetLatch tags a machine as latched or released. It does not look at the tags that EC2 shows, which may be old.
func (ms *machines) SetLatch(ctx context.Context, providerID string, latched bool) error {
	id := instanceID(providerID)
	if _, gone := ms.launches.gone.Get(id); id == "" || gone {
		return cloud.ErrNotFound
	}
	if ms.market.shifted(providerID) {
		return fmt.Errorf("tag %s: %w", id, errShifted)
	}
	_, err := ms.fleet.Describe(ctx, id)
	switch {
	case errors.Is(err, fleet.ErrGone):
		return cloud.ErrNotFound
	case errors.Is(err, fleet.ErrUnknown):
		if _, young := ms.launches.machines.Get(id); !young {
			return cloud.ErrNotFound
		}
	case err != nil:
		return err
	}
	value := releasedValue
	if latched {
		value = latchedValue
	}
	_, err = ms.env.clients.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id},
		Tags: ec2api.Tags(map[string]string{awsv1.TagOrphan: value})})
	if ec2api.IsDenied(err) {
		return fmt.Errorf("tag %s of %s: %s", awsv1.TagOrphan, id, ec2api.Denial(err))
	}
	return err
}

// Get returns one machine. For a machine that EC2 does not show yet, or that is in a shifted zone, it returns what is
// remembered.
func (ms *machines) Get(ctx context.Context, providerID string) (cloud.Machine, error) {
	id := instanceID(providerID)
	if _, gone := ms.launches.gone.Get(id); id == "" || gone {
		return cloud.Machine{}, cloud.ErrNotFound
	}
	if m, ok := ms.listed.get(providerID); ok && ms.market.shifted(providerID) {
		return m, nil
	}
	i, err := ms.fleet.Describe(ctx, id)
	switch {
	case errors.Is(err, fleet.ErrGone):
		ms.launches.ended(providerID)
		return cloud.Machine{}, cloud.ErrNotFound
	case errors.Is(err, fleet.ErrUnknown):
		// EC2 may not show a machine that it has just launched.
		if m, ok := ms.launches.machines.Get(id); ok {
			return m, nil
		}
		if m, ok := ms.launches.leaving.Get(id); ok {
			return m, nil
		}
		return cloud.Machine{}, cloud.ErrNotFound
	case err != nil:
		return cloud.Machine{}, err
	}
	return ms.machine(ctx, i, ms.claimsByMachine), nil
}

// List returns every machine of the cluster, also those that were just launched and that EC2 may not show yet.
func (ms *machines) List(ctx context.Context) ([]cloud.Machine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	young := ms.launches.machines.All()
	found, err := ms.fleet.List(ctx,
		ec2api.Filter("tag-key", awsv1.TagNodePool), ec2api.Filter("tag-key", awsv1.TagNodeClass),
		ec2api.Filter("tag:"+awsv1.TagClusterName, ms.env.settings.ClusterName))
	if err != nil {
		return nil, err
	}
	out := make([]cloud.Machine, 0, len(found)+len(young))
	launching := ms.launches.unanswered() // before claims are asked: a launch that ends between is among these
	claims := sync.OnceValue(ms.claimsByMachine)
	for _, i := range found {
		delete(young, aws.ToString(i.InstanceId))
		m := ms.machine(ctx, i, claims)
		m.Awaited = launching.awaits(&m)
		out = append(out, m)
	}
	for id, m := range young {
		if _, still := ms.launches.machines.Get(id); still { // not stopped meanwhile
			out = append(out, m)
		}
	}
	if ms.market.shifts == nil {
		return out, nil
	}
	return ms.listed.update(out, ms.market.shifted), nil
}

// machine describes an instance. What its class or type would add is left out if they are not known any more, because
// one odd machine must not hide the others. claims finds the claim of a machine whose tags name none.
func (ms *machines) machine(ctx context.Context, i ec2types.Instance, claims func() map[string]string) cloud.Machine {
	tags := ec2api.TagMap(i.Tags)
	m := cloud.Machine{
		ClaimName: tags[awsv1.TagNodeClaim], PoolName: tags[awsv1.TagNodePool], Provisioner: ms.provisioner(tags),
		InstanceType: string(i.InstanceType), ImageID: aws.ToString(i.ImageId), CapacityType: ms.capacityType(i),
		Labels: map[string]string{}, Created: aws.ToTime(i.LaunchTime), Deleting: stopping(i),
		Latched: tags[awsv1.TagOrphan] == latchedValue,
	}
	if i.Placement != nil {
		m.Zone = aws.ToString(i.Placement.AvailabilityZone)
	}
	place := placeOf(i)
	m.ProviderID = providerID(m.Zone, aws.ToString(i.InstanceId))
	if m.ClaimName == "" {
		m.ClaimName = claims()[m.ProviderID]
	}
	m.Labels[v1.CapacityTypeLabelKey] = m.CapacityType
	if m.PoolName != "" {
		m.Labels[v1.NodePoolLabelKey] = m.PoolName
	}
	if m.CapacityType == v1.CapacityTypeReserved {
		m.Labels[awsv1.LabelCapacityReservationID] = aws.ToString(i.CapacityReservationId)
		m.Labels[awsv1.LabelCapacityReservationType] = string(awsv1.CapacityReservationTypeDefault)
		m.Labels[awsv1.LabelCapacityReservationInterruptible] = "false"
		switch i.InstanceLifecycle {
		case ec2types.InstanceLifecycleTypeCapacityBlock:
			m.Labels[awsv1.LabelCapacityReservationType] = string(awsv1.CapacityReservationTypeCapacityBlock)
		case ec2types.InstanceLifecycleTypeInterruptibleCapacityReservation:
			m.Labels[awsv1.LabelCapacityReservationInterruptible] = "true"
		}
	}
	if place.Group != "" {
		m.Labels[awsv1.LabelPlacementGroupID] = place.Group
	}
	if place.Partition != "" {
		m.Labels[awsv1.LabelPlacementGroupPartition] = place.Partition
	}
	ms.describeBySort(ctx, &m, i, tags[awsv1.TagNodeClass])
	return m
}

// placeOf returns the placement group and partition of a machine.
func placeOf(i ec2types.Instance) shortage.Place {
	if i.Placement == nil || aws.ToString(i.Placement.GroupId) == "" {
		return shortage.Place{}
	}
	place := shortage.Place{Group: *i.Placement.GroupId}
	if n := aws.ToInt32(i.Placement.PartitionNumber); n > 0 {
		place.Partition = strconv.Itoa(int(n))
	}
	return place
}

// describeBySort adds labels and capacity that the machine's type and offering decide, if its class is still known.
func (ms *machines) describeBySort(ctx context.Context, m *cloud.Machine, i ec2types.Instance, className string) {
	if className == "" {
		return
	}
	m.Labels[awsv1.LabelNodeClass] = className
	nc, ok := ms.classes.objects.Get(className)
	if !ok {
		return
	}
	catalog, err := ms.market.catalogFor(ctx, nc, m.PoolName)
	if err != nil {
		return
	}
	tenancy := awsv1.TenancyDefault
	if i.Placement != nil && i.Placement.Tenancy == ec2types.TenancyDedicated {
		tenancy = awsv1.TenancyDedicated
	}
	it := typeNamed(catalog, m.InstanceType)
	if it == nil {
		return
	}
	o := &cloud.Offering{Labels: m.Labels}
	for n := range it.Offerings {
		if of := &it.Offerings[n]; of.Zone() == m.Zone && of.CapacityType() == m.CapacityType && !slices.ContainsFunc(
			[]string{awsv1.LabelCapacityReservationID, awsv1.LabelPlacementGroupID, awsv1.LabelPlacementGroupPartition},
			func(key string) bool { return of.Labels[key] != m.Labels[key] },
		) {
			o = of
		}
	}
	labels := launchspec.Labels(it, o, tenancy)
	for key, value := range m.Labels {
		labels[key] = value
	}
	m.Labels = labels
	m.Capacity, m.Allocatable = launchspec.Resources(it, efaInterfaces(i))
}

// typeNamed finds a type in a catalogue, which is sorted by name; nil if it is not there.
func typeNamed(catalog *cloud.Catalog, name string) *cloud.InstanceType {
	i, ok := slices.BinarySearchFunc(catalog.Types, name,
		func(it *cloud.InstanceType, name string) int { return strings.Compare(it.Name, name) })
	if !ok {
		return nil
	}
	return catalog.Types[i]
}

// efaInterfaces counts the EFA interfaces of an instance.
func efaInterfaces(i ec2types.Instance) int {
	n := 0
	for _, nic := range i.NetworkInterfaces {
		if t := aws.ToString(nic.InterfaceType); t == "efa" || t == "efa-only" {
			n++
		}
	}
	return n
}

// capacityType returns how a machine was bought. A machine that EC2 put into an open reservation by chance is
// on-demand.
func (ms *machines) capacityType(i ec2types.Instance) string {
	switch {
	case aws.ToString(i.SpotInstanceRequestId) != "":
		return v1.CapacityTypeSpot
	case ms.env.settings.ReservedCapacity && aws.ToString(i.CapacityReservationId) != "" && i.CapacityReservationSpecification != nil &&
		i.CapacityReservationSpecification.CapacityReservationPreference == ec2types.CapacityReservationPreferenceCapacityReservationsOnly:
		return v1.CapacityTypeReserved
	}
	return v1.CapacityTypeOnDemand
}

// claimsByMachine returns the names of claims by the provider ids of their machines. If one call launched machines
// for several claims, their tags name the claims only after registration.
func (ms *machines) claimsByMachine() map[string]string {
	out := map[string]string{}
	for claim := range ms.env.claims.Each() {
		if id := claim.Status.ProviderID; id != "" {
			out[id] = claim.Name
		}
	}
	for _, m := range ms.launches.done.All() {
		out[m.ProviderID] = m.ClaimName
	}
	return out
}
