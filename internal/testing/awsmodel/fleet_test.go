package awsmodel

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

// outcome is a fleet's answer in words: "m5.large/us-east-1a x2" and "c5.large/us-east-1b InsufficientInstanceCapacity".
func outcome(out *ec2.CreateFleetOutput) []string {
	var got []string
	for _, i := range out.Instances {
		o := i.LaunchTemplateAndOverrides.Overrides
		got = append(got, string(i.InstanceType)+"/"+*o.AvailabilityZone+" x"+string(rune('0'+len(i.InstanceIds))))
	}
	for _, e := range out.Errors {
		o := e.LaunchTemplateAndOverrides.Overrides
		got = append(got, string(o.InstanceType)+"/"+*o.AvailabilityZone+" "+*e.ErrorCode)
	}
	return got
}

func TestFleetTakesPoolsInTheOrderOfItsStrategy(t *testing.T) {
	const a, b, c = "m5.large/us-east-1a", "c5.large/us-east-1a", "r5.large/us-east-1a" // 0.096, 0.085, 0.126 on demand
	for name, tc := range map[string]struct {
		kind     ec2types.DefaultTargetCapacityType
		spread   bool
		pools    []string // a, b and c
		spot     ec2types.SpotAllocationStrategy
		onDemand ec2types.FleetOnDemandAllocationStrategy
		n        int32
		rules    []PoolRule
		priority []float64
		want     []string
	}{
		"on demand, the cheapest type first": {kind: odTarget, n: 2, want: []string{"c5.large/us-east-1a x2"}},
		"on demand, the next type when the cheapest is dry": {
			kind: odTarget, n: 1, rules: []PoolRule{{"on-demand/c5.*/*", 0}},
			want: []string{"m5.large/us-east-1a x1", "c5.large/us-east-1a InsufficientInstanceCapacity"},
		},
		"what a shallow pool holds, and the rest from the next": {
			kind: odTarget, n: 3, rules: []PoolRule{{"*/c5.large/*", 1}},
			want: []string{"c5.large/us-east-1a x1", "m5.large/us-east-1a x2", "c5.large/us-east-1a InsufficientInstanceCapacity"},
		},
		"everything dry names every pool": {
			kind: odTarget, n: 1, rules: []PoolRule{{"*/*/*", 0}},
			want: []string{"c5.large/us-east-1a InsufficientInstanceCapacity", "m5.large/us-east-1a InsufficientInstanceCapacity", "r5.large/us-east-1a InsufficientInstanceCapacity"},
		},
		"the later rule wins": {kind: odTarget, n: 1, rules: []PoolRule{{"*/*/*", 0}, {"on-demand/r5.large/us-east-1a", 1}},
			want: []string{"r5.large/us-east-1a x1", "c5.large/us-east-1a InsufficientInstanceCapacity", "m5.large/us-east-1a InsufficientInstanceCapacity"}},
		"prioritized, by number": {
			kind: odTarget, onDemand: ec2types.FleetOnDemandAllocationStrategyPrioritized, n: 1, priority: []float64{2, 3, 1}, want: []string{"r5.large/us-east-1a x1"},
		},
		"spot by capacity and price passes the pool that cannot hold all": {
			kind: spotTarget, spot: ec2types.SpotAllocationStrategyPriceCapacityOptimized, n: 2, rules: []PoolRule{{"spot/c5.large/*", 1}}, want: []string{"m5.large/us-east-1a x2"},
		},
		"spot by price alone does not": {
			kind: spotTarget, spot: ec2types.SpotAllocationStrategyLowestPrice, n: 2, rules: []PoolRule{{"spot/c5.large/*", 1}},
			want: []string{"c5.large/us-east-1a x1", "m5.large/us-east-1a x1", "c5.large/us-east-1a InsufficientInstanceCapacity"},
		},
		"spot by capacity and price spreads over pools that cost about the same": {
			kind: spotTarget, spread: true, spot: ec2types.SpotAllocationStrategyPriceCapacityOptimized, n: 3,
			pools: []string{a, b, "c5.large/us-east-1b", "c5.large/us-east-1c"}, want: []string{"c5.large/us-east-1a x1", "c5.large/us-east-1b x1", "c5.large/us-east-1c x1"},
		},
		"spot by capacity spreads over all": {
			kind: spotTarget, spread: true, spot: ec2types.SpotAllocationStrategyCapacityOptimized, n: 3,
			want: []string{"c5.large/us-east-1a x1", "m5.large/us-east-1a x1", "r5.large/us-east-1a x1"},
		},
		"what a pool has not of its share the others give": {
			kind: spotTarget, spread: true, spot: ec2types.SpotAllocationStrategyCapacityOptimized, n: 6, rules: []PoolRule{{"spot/m5.large/*", 1}},
			want: []string{"c5.large/us-east-1a x3", "r5.large/us-east-1a x2", "m5.large/us-east-1a x1", "m5.large/us-east-1a InsufficientInstanceCapacity"},
		},
		"one machine comes from the first pool": {
			kind: spotTarget, spread: true, spot: ec2types.SpotAllocationStrategyPriceCapacityOptimized, n: 1, want: []string{"c5.large/us-east-1a x1"},
		},
		"spot by price alone does not spread": {
			kind: spotTarget, spread: true, spot: ec2types.SpotAllocationStrategyLowestPrice, n: 3, want: []string{"c5.large/us-east-1a x3"},
		},
		"on demand does not spread": {kind: odTarget, spread: true, n: 3, want: []string{"c5.large/us-east-1a x3"}},
		"spot by capacity and priority": {
			kind: spotTarget, spot: ec2types.SpotAllocationStrategyCapacityOptimizedPrioritized, n: 1, priority: []float64{2, 3, 1}, want: []string{"r5.large/us-east-1a x1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.pools == nil {
				tc.pools = []string{a, b, c}
			}
			inWorld(t, Config{Faults: Faults{Pools: tc.rules}, SpreadSpot: tc.spread}, func(t *testing.T, w *harness) {
				in := w.fleetOf(t, w.prepare(t, al2023), tc.kind, tc.n, tc.pools...)
				if tc.spot != "" {
					in.SpotOptions.AllocationStrategy = tc.spot
				}
				if tc.onDemand != "" {
					in.OnDemandOptions.AllocationStrategy = tc.onDemand
				}
				for i, p := range tc.priority {
					in.LaunchTemplateConfigs[0].Overrides[i].Priority = &p
				}
				out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), in))
				if diff := cmp.Diff(tc.want, outcome(out)); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestFleetRefusesWhatCannotBeLaunched(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, w *harness, in *ec2.CreateFleetInput)
		call   string // code of the whole call
		each   string // code of the override
	}{
		"a template that does not exist": {call: "InvalidLaunchTemplateName.NotFoundException", change: func(_ *testing.T, _ *harness, in *ec2.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].LaunchTemplateSpecification.LaunchTemplateName = aws.String("nobody")
		}},
		"a version that does not exist": {call: "InvalidLaunchTemplateId.VersionNotFound", change: func(_ *testing.T, _ *harness, in *ec2.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].LaunchTemplateSpecification.Version = aws.String("7")
		}},
		"a fleet without overrides": {call: "MissingParameter", change: func(_ *testing.T, _ *harness, in *ec2.CreateFleetInput) { in.LaunchTemplateConfigs[0].Overrides = nil }},
		"more templates than a fleet takes": {call: "InvalidParameterValue", change: func(_ *testing.T, _ *harness, in *ec2.CreateFleetInput) {
			for range 50 {
				in.LaunchTemplateConfigs = append(in.LaunchTemplateConfigs, in.LaunchTemplateConfigs[0])
			}
		}},
		"a fleet that is kept": {call: "UnsupportedOperation", change: func(_ *testing.T, _ *harness, in *ec2.CreateFleetInput) { in.Type = ec2types.FleetTypeMaintain }},
		"a member that the model does not act on": {call: "UnsupportedOperation", change: func(_ *testing.T, _ *harness, in *ec2.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].Overrides[0].MaxPrice = aws.String("1")
		}},
		"tags that AWS keeps to itself": {call: "InvalidParameterValue", change: func(_ *testing.T, _ *harness, in *ec2.CreateFleetInput) {
			in.TagSpecifications[0].Tags = tagList("aws:mine", "x")
		}},
		"a subnet that does not exist": {each: "InvalidSubnetID.NotFound", change: func(_ *testing.T, _ *harness, in *ec2.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].Overrides[0].SubnetId = aws.String("subnet-0")
		}},
		"an image that does not exist": {each: "InvalidAMIID.NotFound", change: func(_ *testing.T, _ *harness, in *ec2.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].Overrides[0].ImageId = aws.String("ami-0")
		}},
		"an image of another architecture": {each: "InvalidParameterValue", change: func(t *testing.T, w *harness, in *ec2.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].Overrides[0].ImageId = aws.String(w.newest(t, "arm64"))
		}},
		"a type that its zone does not offer": {each: "Unsupported", change: func(t *testing.T, w *harness, in *ec2.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].Overrides[0] = ec2types.FleetLaunchTemplateOverridesRequest{InstanceType: "m5.large", SubnetId: aws.String(w.subnetIn(t, "us-east-1e")), AvailabilityZone: aws.String("us-east-1e")}
		}},
		"a subnet without free addresses": {each: "InsufficientFreeAddressesInSubnet", change: func(_ *testing.T, w *harness, in *ec2.CreateFleetInput) {
			small := w.AddSubnet("us-east-1a", "10.0.255.0/28", nil)
			in.LaunchTemplateConfigs[0].Overrides[0].SubnetId = &small
			in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(12)
		}},
		"a quota of processors": {each: "VcpuLimitExceeded", change: func(t *testing.T, w *harness, in *ec2.CreateFleetInput) {
			if err := w.SetFaults(func(f *Faults) { f.OnDemandVCPUs = 1 }); err != nil {
				t.Fatal(err)
			}
		}},
		"a zone that is down": {each: "InsufficientInstanceCapacity", change: func(t *testing.T, w *harness, in *ec2.CreateFleetInput) {
			if err := w.SetFaults(func(f *Faults) { f.ZonesDown = []string{"us-east-1a"} }); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(t *testing.T, w *harness) {
				in := w.fleetOf(t, w.prepare(t, al2023), odTarget, 1, "m5.large/us-east-1a")
				tc.change(t, w, in)
				client := ec2.NewFromConfig(w.AWSConfig(), func(o *ec2.Options) { o.RetryMaxAttempts = 1 })
				out, err := client.CreateFleet(t.Context(), in)
				if code(err) != tc.call {
					t.Fatalf("error %v, want code %q", err, tc.call)
				}
				if tc.each == "" {
					return
				}
				if len(out.Errors) != 1 || *out.Errors[0].ErrorCode != tc.each {
					t.Errorf("outcome %v, want %s", outcome(out), tc.each)
				}
			})
		})
	}
}

// EC2 limits the overrides of fleets that are kept, not of instant ones: sixty types in six zones are 360.
func TestAnInstantFleetTakesManyOverrides(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		in := w.fleetOf(t, w.prepare(t, al2023), odTarget, 1, "m5.large/us-east-1a")
		l := &in.LaunchTemplateConfigs[0]
		for _, o := range overridesOf(359) {
			o.SubnetId = l.Overrides[0].SubnetId
			l.Overrides = append(l.Overrides, o)
		}
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), in))
		if len(out.Instances) != 1 || out.Instances[0].InstanceType != "m5.large" {
			t.Errorf("machines %+v, want one m5.large", out.Instances)
		}
	})
}

func TestTemplatesAreCheckedWhenTheyAreMadeOrLaunched(t *testing.T) {
	type data = ec2types.RequestLaunchTemplateData
	nic := func(n ...ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest) func(*data) {
		return func(d *data) { d.NetworkInterfaces = n }
	}
	for name, tc := range map[string]struct {
		change       func(*data)
		made, launch string
	}{
		"user data that is too large":   {change: func(d *data) { d.UserData = aws.String(strings.Repeat("QUJD", 6000)) }, made: "InvalidUserData.Malformed"},
		"user data that is not base64":  {change: func(d *data) { d.UserData = aws.String("#!/bin/bash") }, made: "InvalidUserData.Malformed"},
		"a member that is not modelled": {change: func(d *data) { d.RamDiskId = aws.String("ari-1") }, made: "UnsupportedOperation"},
		"a hop limit out of range": {change: func(d *data) {
			d.MetadataOptions = &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{HttpPutResponseHopLimit: aws.Int32(65)}
		}, made: "InvalidParameterValue"},
		"an interface without device index": {change: nic(ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{Description: aws.String("x")}), made: "MissingParameter"},
		"a public address on one interface of two": {change: nic(
			ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{DeviceIndex: aws.Int32(0), AssociatePublicIpAddress: aws.Bool(true)},
			ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{DeviceIndex: aws.Int32(1)}), made: "InvalidParameterCombination"},
		"prefixes on an interface without addresses": {change: nic(
			ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{DeviceIndex: aws.Int32(1), InterfaceType: aws.String("efa-only"), Ipv4PrefixCount: aws.Int32(1)}), made: "InvalidParameterCombination"},
		"EFA on a type that has none":        {change: nic(ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{DeviceIndex: aws.Int32(0), InterfaceType: aws.String("efa")}), launch: "InvalidParameterCombination"},
		"a network card that the type lacks": {change: nic(ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{DeviceIndex: aws.Int32(0), NetworkCardIndex: aws.Int32(3)}), launch: "InvalidParameterValue"},
		"a profile that does not exist":      {change: func(d *data) { d.IamInstanceProfile.Name = aws.String("nobody") }, launch: "InvalidParameterValue"},
		"a group of nobody":                  {change: func(d *data) { d.NetworkInterfaces[0].Groups = []string{"sg-0"} }, launch: "InvalidGroup.NotFound"},
		"a root volume below its image":      {change: func(d *data) { d.BlockDeviceMappings[0].Ebs.VolumeSize = aws.Int32(10) }, launch: "InvalidBlockDeviceMapping"},
		"io1 without operations":             {change: func(d *data) { d.BlockDeviceMappings[0].Ebs.VolumeType = ec2types.VolumeTypeIo1 }, launch: "MissingParameter"},
		"throughput on gp2": {change: func(d *data) {
			d.BlockDeviceMappings[0].Ebs.VolumeType, d.BlockDeviceMappings[0].Ebs.Throughput = ec2types.VolumeTypeGp2, aws.Int32(125)
		}, launch: "InvalidParameterCombination"},
		"metadata tags with keys that they cannot have": {change: func(d *data) {
			d.MetadataOptions = &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{InstanceMetadataTags: ec2types.LaunchTemplateInstanceMetadataTagsStateEnabled}
			d.TagSpecifications = []ec2types.LaunchTemplateTagSpecificationRequest{{ResourceType: ec2types.ResourceTypeInstance, Tags: tagList("a/b", "c")}}
		}, launch: "InvalidParameterValue"},
		"IPv6 in a subnet without": {change: func(d *data) {
			d.NetworkInterfaces = []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{DeviceIndex: aws.Int32(0), Ipv6AddressCount: aws.Int32(1)}}
			d.SecurityGroupIds = nil
		}, launch: "InvalidParameterValue"},
		"a placement group of nobody": {change: func(d *data) { d.Placement = &ec2types.LaunchTemplatePlacementRequest{GroupId: aws.String("pg-0")} }, launch: "InvalidPlacementGroup.Unknown"},
		"a reservation of nobody": {change: func(d *data) {
			d.CapacityReservationSpecification = &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{CapacityReservationTarget: &ec2types.CapacityReservationTarget{CapacityReservationId: aws.String("cr-0")}}
		}, launch: "InvalidCapacityReservationId.NotFound"},
		"only reservations, without one": {change: func(d *data) {
			d.CapacityReservationSpecification = &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{CapacityReservationPreference: ec2types.CapacityReservationPreferenceCapacityReservationsOnly}
		}, launch: "ReservationCapacityExceeded"},
		"nested virtualization where there is none": {change: func(d *data) {
			d.CpuOptions = &ec2types.LaunchTemplateCpuOptionsRequest{NestedVirtualization: ec2types.NestedVirtualizationSpecificationEnabled}
		}, launch: "Unsupported"},
		"nothing wrong": {change: func(*data) {}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(t *testing.T, w *harness) {
				w.prepare(t, al2023)
				d := *w.Templates()[0].Data
				d.NetworkInterfaces = slices.Clone(d.NetworkInterfaces)
				tc.change(&d)
				_, err := w.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("second"), LaunchTemplateData: &d})
				if code(err) != tc.made {
					t.Fatalf("making it: %v, want code %q", err, tc.made)
				}
				if tc.made != "" {
					return
				}
				out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, "second", odTarget, 1, "m5.large/us-east-1a")))
				got := ""
				if len(out.Errors) > 0 {
					got = *out.Errors[0].ErrorCode
				}
				if got != tc.launch {
					t.Errorf("launching it: %v, want %q", outcome(out), tc.launch)
				}
			})
		})
	}
}

func TestClientTokenMakesACallIdempotent(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		in := w.fleetOf(t, w.prepare(t, al2023), odTarget, 2, "m5.large/us-east-1a")
		in.ClientToken = aws.String("once")
		first := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), in))
		second := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), in))
		if !slices.Equal(first.Instances[0].InstanceIds, second.Instances[0].InstanceIds) || *first.FleetId != *second.FleetId {
			t.Errorf("the second call launched %v, the first %v", second.Instances[0].InstanceIds, first.Instances[0].InstanceIds)
		}
		if n := len(w.Alive()); n != 2 {
			t.Errorf("%d machines live, want 2", n)
		}
		in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(3)
		if _, err := w.ec2.CreateFleet(t.Context(), in); code(err) != "IdempotentParameterMismatch" {
			t.Errorf("the same token for something else: %v", err)
		}
		time.Sleep(25 * time.Hour)
		in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(1)
		must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), in))
	})
}

// Reservations that are bought in a market of their own take only launches that name it, in template and fleet.
func TestMarketsOfReservations(t *testing.T) {
	type target = ec2types.DefaultTargetCapacityType
	block, interruptible := target(ec2types.DefaultTargetCapacityTypeCapacityBlock), target(ec2types.DefaultTargetCapacityTypeReservedCapacity)
	for name, tc := range map[string]struct {
		of     Reservation
		market ec2types.MarketType
		target target
		types  []string
		want   string
	}{
		"a block":                                {Reservation{Block: true}, "capacity-block", block, nil, "m5.large/us-east-1a x1"},
		"a block, as if it were an ordinary one": {Reservation{Block: true}, "", odTarget, nil, "m5.large/us-east-1a InvalidParameterValue"},
		"a block in a fleet on demand":           {Reservation{Block: true}, "capacity-block", odTarget, nil, "m5.large/us-east-1a InvalidParameterCombination"},
		"a block, with a choice":                 {Reservation{Block: true}, "capacity-block", block, []string{"m5.xlarge/us-east-1a"}, "InvalidParameterCombination"},
		"an ordinary one as a block":             {Reservation{}, "capacity-block", block, nil, "m5.large/us-east-1a InvalidParameterValue"},
		"an interruptible one":                   {Reservation{Interruptible: true}, "interruptible-capacity-reservation", interruptible, nil, "m5.large/us-east-1a x1"},
		"an interruptible one as a block":        {Reservation{Interruptible: true}, "capacity-block", block, nil, "m5.large/us-east-1a InvalidParameterValue"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(t *testing.T, w *harness) {
				w.prepare(t, al2023)
				tc.of.InstanceType, tc.of.Zone, tc.of.Count = "m5.large", "us-east-1a", 1
				id := w.Reserve(tc.of)
				d := *w.Templates()[0].Data
				d.CapacityReservationSpecification = &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
					CapacityReservationPreference: ec2types.CapacityReservationPreferenceCapacityReservationsOnly, CapacityReservationTarget: &ec2types.CapacityReservationTarget{CapacityReservationId: &id},
				}
				if tc.market != "" {
					d.InstanceMarketOptions = &ec2types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: tc.market}
				}
				must[*ec2.CreateLaunchTemplateOutput](t)(w.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("reserved"), LaunchTemplateData: &d}))
				in := w.fleetOf(t, "reserved", odTarget, 1, append([]string{"m5.large/us-east-1a"}, tc.types...)...)
				in.TargetCapacitySpecification.DefaultTargetCapacityType, in.OnDemandOptions = tc.target, nil
				if tc.target == interruptible {
					in.ReservedCapacityOptions = &ec2types.ReservedCapacityOptionsRequest{ReservationTypes: []ec2types.FleetReservationType{"interruptible-capacity-reservation"}}
				}
				out, err := w.ec2.CreateFleet(t.Context(), in)
				got := code(err)
				if err == nil {
					got = strings.Join(outcome(out), ", ")
				}
				if got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestReservationsHoldWhatTheyHold(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		w.prepare(t, al2023)
		cr := must[*ec2.CreateCapacityReservationOutput](t)(w.ec2.CreateCapacityReservation(t.Context(), &ec2.CreateCapacityReservationInput{
			InstanceType: aws.String("m5.large"), AvailabilityZone: aws.String("us-east-1a"), InstanceCount: aws.Int32(1), InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix,
			InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
		}))
		id := cr.CapacityReservation.CapacityReservationId
		d := *w.Templates()[0].Data
		d.CapacityReservationSpecification = &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: ec2types.CapacityReservationPreferenceCapacityReservationsOnly, CapacityReservationTarget: &ec2types.CapacityReservationTarget{CapacityReservationId: id},
		}
		must[*ec2.CreateLaunchTemplateOutput](t)(w.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("reserved"), LaunchTemplateData: &d}))
		left := func() int32 {
			out := must[*ec2.DescribeCapacityReservationsOutput](t)(w.ec2.DescribeCapacityReservations(t.Context(), &ec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{*id}}))
			return *out.CapacityReservations[0].AvailableInstanceCount
		}
		launch := func() []string {
			return outcome(must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, "reserved", odTarget, 1, "m5.large/us-east-1a"))))
		}
		if got := launch(); !slices.Equal(got, []string{"m5.large/us-east-1a x1"}) || left() != 0 {
			t.Fatalf("first launch %v, %d left", got, left())
		}
		if got := launch(); !slices.Equal(got, []string{"m5.large/us-east-1a ReservationCapacityExceeded"}) {
			t.Errorf("second launch %v", got)
		}
		m := w.Alive()[0]
		if m.CapacityType != "reserved" {
			t.Errorf("the machine is %s", m.CapacityType)
		}
		must[*ec2.TerminateInstancesOutput](t)(w.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{m.ID}}))
		time.Sleep(time.Minute)
		if got := left(); got != 1 {
			t.Errorf("after the machine is gone %d are left, want 1", got)
		}
		launch()
		must[*ec2.CancelCapacityReservationOutput](t)(w.ec2.CancelCapacityReservation(t.Context(), &ec2.CancelCapacityReservationInput{CapacityReservationId: id}))
		if m := w.Alive()[0]; m.CapacityType != "on-demand" {
			t.Errorf("after the reservation ended the machine is %s", m.CapacityType)
		}
	})
}

func TestRunInstancesByHandAndDry(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		name := w.prepare(t, al2023)
		in := &ec2.RunInstancesInput{
			LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateName: &name}, MinCount: aws.Int32(1), MaxCount: aws.Int32(2),
			InstanceType: "t3.medium", SubnetId: aws.String(w.subnetIn(t, "us-east-1b")), DryRun: aws.Bool(true),
		}
		if _, err := w.ec2.RunInstances(t.Context(), in); code(err) != "DryRunOperation" || len(w.Machines()) != 0 {
			t.Fatalf("dry run: %v, %d machines", err, len(w.Machines()))
		}
		in.DryRun = nil
		out := must[*ec2.RunInstancesOutput](t)(w.ec2.RunInstances(t.Context(), in))
		if len(out.Instances) != 2 || out.Instances[0].InstanceType != "t3.medium" || *out.Instances[0].Placement.AvailabilityZone != "us-east-1b" {
			t.Errorf("instances = %+v", out.Instances)
		}
		in.ClientToken = nil // the client keeps the one that it made up
		in.DryRun, in.IamInstanceProfile = aws.Bool(true), &ec2types.IamInstanceProfileSpecification{Name: aws.String("nobody")}
		if _, err := w.ec2.RunInstances(t.Context(), in); code(err) != "InvalidParameterValue" {
			t.Errorf("dry run with a profile of nobody: %v", err)
		}
	})
}
