package aws

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// useGroup makes a placement group and lets the class select it, and waits until the provider knows.
func (w *world) useGroup(t *testing.T, strategy ec2types.PlacementStrategy, partitions int32) (id string) {
	t.Helper()
	in := &ec2.CreatePlacementGroupInput{GroupName: aws.String("mine"), Strategy: strategy}
	if partitions > 0 {
		in.PartitionCount = &partitions
	}
	out, err := ec2.NewFromConfig(w.cloud.AWSConfig()).CreatePlacementGroup(t.Context(), in)
	check(t, err)
	w.editClass(t, func(s *awsv1.EC2NodeClassSpec) {
		s.PlacementGroupSelector = &awsv1.PlacementGroupSelector{Name: "mine"}
	})
	time.Sleep(2 * time.Minute)
	w.waitReady(t, "default")
	return *out.PlacementGroup.GroupId
}

// members are the machines of a group by zone and partition.
func (w *world) members(t *testing.T, group string) map[shortage.Place][]string {
	t.Helper()
	out, err := ec2.NewFromConfig(w.cloud.AWSConfig()).DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
	check(t, err)
	found := map[shortage.Place][]string{}
	for _, r := range out.Reservations {
		if p := placeOf(r.Instances[0]); p.Group == group {
			found[p] = append(found[p], *r.Instances[0].Placement.AvailabilityZone)
		}
	}
	return found
}

// All machines of a cluster group come up in one zone, also those that are launched at the same time, and although the first zone is out.
func TestMachinesOfAClusterGroupShareAZone(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		w.faults(t, func(f *awsmodel.Faults) {
			f.Pools = append(f.Pools, awsmodel.PoolRule{Match: "*/*/us-east-1a", Depth: 0})
		})
		group := w.useGroup(t, ec2types.PlacementStrategyCluster, 0)
		began := time.Now()
		var wg sync.WaitGroup
		for i, cpus := range []string{"1", "3", "7", "14"} { // four kinds, four calls
			wg.Go(func() {
				claim := newClaim(fmt.Sprint("c", i))
				claim.Spec.Resources.Requests["cpu"] = resource.MustParse(cpus)
				for {
					_, err := w.provider.Launch(t.Context(), claim)
					var dry *cloud.NoCapacityError
					if err == nil {
						return
					}
					if !errors.As(err, &dry) {
						t.Error(err)
						return
					}
					time.Sleep(time.Second)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took > homeLife/2 {
			t.Errorf("the group was tied to a zone that is out for %v", took)
		}
		zones := w.members(t, group)[shortage.Place{Group: group}]
		slices.Sort(zones)
		if len(zones) != 4 || len(slices.Compact(zones)) != 1 {
			t.Fatalf("machines are in %v, want four in one zone", zones)
		}
		catalog, err := w.provider.Catalog(t.Context(), defaultPool())
		check(t, err)
		for _, it := range catalog.Types {
			for _, o := range it.Offerings {
				if o.Available && o.Zone() != zones[0] {
					t.Fatalf("%s is offered in %s, and the group is in %s", it.Name, o.Zone(), zones[0])
				}
			}
		}
	})
}

// Partitions are filled evenly where nobody cares, and the one that a claim names is used.
func TestPartitions(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		group := w.useGroup(t, ec2types.PlacementStrategyPartition, 3)
		named := newClaim("named")
		named.Spec.Requirements = append(named.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{
			Key: awsv1.LabelPlacementGroupPartition, Operator: "In", Values: []string{"3"},
		})
		_, m := w.create(t, named)
		if got := m.Labels[awsv1.LabelPlacementGroupPartition]; got != "3" || m.Labels[awsv1.LabelPlacementGroupID] != group {
			t.Errorf("a claim for partition 3 of %s got labels %v", group, m.Labels)
		}
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if _, err := w.provider.Launch(t.Context(), newClaim(fmt.Sprint("p", i))); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got := map[string]int{}
		for place, zones := range w.members(t, group) {
			got[place.Partition] = len(zones)
		}
		if want := map[string]int{"1": 2, "2": 2, "3": 2}; !maps.Equal(got, want) {
			t.Errorf("machines by partition %v, want %v", got, want)
		}
		time.Sleep(time.Minute)
		listed, err := w.provider.List(t.Context())
		check(t, err)
		for _, m := range listed {
			if m.Labels[awsv1.LabelPlacementGroupPartition] == "" || m.Labels[awsv1.LabelPlacementGroupID] != group {
				t.Errorf("machine %s is listed with labels %v", m.ProviderID, m.Labels)
			}
		}
	})
}

// A spread group takes seven machines in a zone, whatever they are. The eighth goes elsewhere, and when all zones are full nothing is offered for
// the group, while other classes go on.
func TestASpreadGroupThatIsFull(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		group := w.useGroup(t, ec2types.PlacementStrategySpread, 0)
		zones := map[string]int{}
		launched := 0
		for i := range 50 {
			if _, err := w.provider.Launch(t.Context(), newClaim(fmt.Sprint("s", i))); err == nil {
				launched++
			}
		}
		for _, zone := range w.members(t, group)[shortage.Place{Group: group}] {
			zones[zone]++
		}
		if launched != 7*len(zones) || slices.Max(slices.Collect(maps.Values(zones))) != 7 {
			t.Errorf("%d machines were launched, by zone %v; want seven in each", launched, zones)
		}
		beside := newClaim("beside")
		w.editClass(t, func(s *awsv1.EC2NodeClassSpec) { s.PlacementGroupSelector = nil })
		time.Sleep(time.Second)
		w.waitReady(t, "default")
		if _, err := w.provider.Launch(t.Context(), beside); err != nil {
			t.Errorf("without the group: %v", err)
		}
	})
}

// Who installed definitions of another version must not get machines outside of the group.
func TestAGroupThatTheDefinitionDoesNotKeep(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		w.useGroup(t, ec2types.PlacementStrategySpread, 0)
		w.crash() // so that nobody finds it again
		nc := w.waitReady(t, "default").DeepCopy()
		nc.Status.PlacementGroup = nil
		w.provider.classes.objects.Note(nc)
		var unready *cloud.ClassNotReadyError
		if _, err := w.provider.classes.readyClass(t.Context(), "default"); !errors.As(err, &unready) {
			t.Errorf("the class: %v, want that it is not ready", err)
		}
	})
}

// What a machine is listed as follows from the machine, not from what its class says now.
func TestMachinesOutsideOfTheGroupOfTheirClass(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		claim, _ := w.create(t, newClaim("before"))
		w.useGroup(t, ec2types.PlacementStrategyCluster, 0)
		listed, err := w.provider.List(t.Context())
		check(t, err)
		if len(listed) != 1 || listed[0].Labels[awsv1.LabelPlacementGroupID] != "" || listed[0].Labels[corev1.LabelInstanceTypeStable] == "" {
			t.Errorf("listed %+v", listed)
		}
		if got, err := w.provider.Drifted(t.Context(), w.claim(t, claim.Name)); got != awsv1.DriftReasonNodeClass || err != nil {
			t.Errorf("drift = %q, %v", got, err)
		}
	})
}
