package launchspec

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/bootstrap"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/core/shape"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func ptr[T any](v T) *T { return &v }

func demo() Cluster {
	return Cluster{
		Cluster: bootstrap.Cluster{Name: "demo", Endpoint: "https://demo.example", CABundle: "Q0E=", ServiceCIDR: "172.20.0.0/16"},
		Region:  "us-east-1", DNS: "172.20.0.10", Reservations: true,
	}
}

func class(edit func(*awsv1.EC2NodeClass)) *awsv1.EC2NodeClass {
	nc := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class-1"}}
	nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}}
	nc.Spec.MetadataOptions = &awsv1.MetadataOptions{
		HTTPEndpoint: ptr("enabled"), HTTPProtocolIPv6: ptr("disabled"), HTTPPutResponseHopLimit: ptr(int64(1)), HTTPTokens: ptr("required"),
	}
	nc.Spec.Tags = map[string]string{"team": "x"}
	for _, zone := range []string{"a", "b"} {
		nc.Status.Subnets = append(nc.Status.Subnets, awsv1.Subnet{ID: "subnet-" + zone, Zone: "us-east-1" + zone, ZoneID: "id-" + zone})
	}
	nc.Status.SecurityGroups = []awsv1.SecurityGroup{{ID: "sg-2"}, {ID: "sg-1"}}
	nc.Status.InstanceProfile = "profile"
	nc.Status.AMIs = []awsv1.AMI{image("ami-amd", "amd64"), image("ami-arm", "arm64")}
	edit(nc)
	return nc
}

func image(id, arch string) awsv1.AMI {
	return awsv1.AMI{ID: id, Requirements: []corev1.NodeSelectorRequirement{{Key: corev1.LabelArchStable, Operator: "In", Values: []string{arch}}}}
}

func claim(edit func(*v1.NodeClaim)) *v1.NodeClaim {
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-abc", UID: "claim-1", Labels: map[string]string{
		v1.NodePoolLabelKey: "default", awsv1.LabelNodeClass: "default", "tier": "web", corev1.LabelArchStable: "amd64",
	}}}
	c.Spec.Taints = []corev1.Taint{{Key: "team", Value: "x", Effect: "NoSchedule"}}
	c.Spec.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
	require(c, corev1.LabelInstanceTypeStable, "m5.large", "m5.xlarge", "m6g.large")
	edit(c)
	return c
}

func require(c *v1.NodeClaim, key string, values ...string) {
	c.Spec.Requirements = append(c.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: "In", Values: values})
}

// TestLaunches shows every launch template and CreateFleet call whole.
func TestLaunches(t *testing.T) {
	spot := func(c *v1.NodeClaim) { require(c, v1.CapacityTypeLabelKey, "spot") }
	onDemand := func(c *v1.NodeClaim) { require(c, v1.CapacityTypeLabelKey, "on-demand") }
	none := func(*awsv1.EC2NodeClass) {}
	for file, tc := range map[string]struct {
		class *awsv1.EC2NodeClass
		claim *v1.NodeClaim
	}{
		"al2023-spot.txt":      {class(none), claim(spot)},
		"al2023-on-demand.txt": {class(none), claim(onDemand)},
		"bottlerocket.txt": {class(func(nc *awsv1.EC2NodeClass) {
			nc.Spec.AMISelectorTerms[0].Alias = "bottlerocket@v1.46.0"
			nc.Spec.InstanceStorePolicy = ptr(awsv1.InstanceStorePolicyRAID0)
		}), claim(onDemand)},
		"windows2022.txt": {class(func(nc *awsv1.EC2NodeClass) {
			nc.Spec.AMISelectorTerms[0].Alias = "windows2022@latest"
		}), claim(onDemand)},
		"custom-everything.txt": {class(func(nc *awsv1.EC2NodeClass) {
			nc.Spec.AMISelectorTerms, nc.Spec.AMIFamily = []awsv1.AMISelectorTerm{{ID: "ami-amd"}}, ptr(awsv1.AMIFamilyCustom)
			nc.Spec.UserData = ptr("#!/bin/sh\njoin\n")
			nc.Spec.AssociatePublicIPAddress, nc.Spec.IPPrefixCount, nc.Spec.DetailedMonitoring = ptr(false), ptr(int32(2)), ptr(true)
			nc.Spec.BlockDeviceMappings = []*awsv1.BlockDeviceMapping{
				{DeviceName: ptr("/dev/xvda"), EBS: &awsv1.BlockDevice{
					VolumeSize: ptr(resource.MustParse("21G")), VolumeType: ptr("gp3"), IOPS: ptr(int64(4000)), Throughput: ptr(int64(0)),
					Encrypted: ptr(true), KMSKeyID: ptr("key"), SnapshotID: ptr("snap-1"), VolumeInitializationRate: ptr(int32(200)), DeleteOnTermination: ptr(true),
				}},
				{DeviceName: ptr("/dev/xvdz")},
			}
			nc.Spec.ConnectionTracking = &awsv1.ConnectionTracking{TCPEstablishedTimeout: ptr(int32(300))}
			nc.Spec.CPUOptions = &awsv1.CPUOptions{NestedVirtualization: ptr("disabled")}
			nc.Spec.Context = ptr("context-1")
			nc.Spec.Kubelet = kubelet(map[string]any{"maxPods": 20})
		}), claim(func(c *v1.NodeClaim) {
			onDemand(c)
			require(c, awsv1.LabelInstanceTenancy, "dedicated")
			c.Spec.Resources.Requests[awsv1.ResourceNitroSandbox] = resource.MustParse("1")
		})},
		"efa.txt": {class(none), claim(func(c *v1.NodeClaim) {
			c.Spec.Requirements = nil
			require(c, corev1.LabelInstanceTypeStable, "p4d.24xlarge")
			onDemand(c)
			c.Spec.Resources.Requests[awsv1.ResourceEFA] = resource.MustParse("4")
		})},
		"interfaces.txt": {class(func(nc *awsv1.EC2NodeClass) {
			nc.Spec.NetworkInterfaces = []*awsv1.NetworkInterface{
				{NetworkCardIndex: 0, DeviceIndex: 0, InterfaceType: "interface"}, {NetworkCardIndex: 1, DeviceIndex: 1, InterfaceType: "efa-only"},
			}
			nc.Spec.IPPrefixCount = ptr(int32(1))
		}), claim(func(c *v1.NodeClaim) {
			c.Spec.Requirements = nil
			require(c, corev1.LabelInstanceTypeStable, "p4d.24xlarge")
			onDemand(c)
		})},
	} {
		t.Run(file, func(t *testing.T) { golden(t, file, show(t, tc.class, tc.claim)) })
	}
}

func kubelet(fields map[string]any) *awsv1.KubeletConfiguration {
	k, err := awsv1.NewKubeletConfiguration(fields)
	if err != nil {
		panic(err)
	}
	return k
}

func chosen(t *testing.T, nc *awsv1.EC2NodeClass, c *v1.NodeClaim) fleet.Choice {
	t.Helper()
	catalog, err := offline.Catalog(offline.Options{Zones: []string{"us-east-1a", "us-east-1b"}, Class: nc})
	if err != nil {
		t.Fatal(err)
	}
	choice, err := fleet.Choose(catalog.Types, c, shape.DefaultBand)
	if err != nil {
		t.Fatal(err)
	}
	return choice
}

// show writes a launch for people: the call, then each template with its user data in plain text.
func show(t *testing.T, nc *awsv1.EC2NodeClass, c *v1.NodeClaim) string {
	t.Helper()
	r, err := Make(demo(), nc, c, chosen(t, nc, c))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	request := fleet.Request(r.Order, 1, map[string]string{"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}, "token")
	fmt.Fprintf(&b, "== CreateFleet ==\n%s\n", pretty(t, request))
	for _, template := range r.Templates {
		in := template.Request()
		data, err := base64.StdEncoding.DecodeString(*in.LaunchTemplateData.UserData)
		if err != nil {
			t.Fatal(err)
		}
		in.LaunchTemplateData.UserData = ptr("see below")
		fmt.Fprintf(&b, "== CreateLaunchTemplate ==\n%s\n== its user data ==\n%s\n", pretty(t, in), data)
	}
	return b.String()
}

// pretty writes a request as JSON without what is not set.
func pretty(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(clean(plain), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func clean(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if value == nil || value == "" {
				delete(v, key)
			} else {
				v[key] = clean(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = clean(v[i])
		}
	}
	return v
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got); run with -update if it is meant to:\n%s", path, d)
	}
}

func TestEqualClaimsShareAnOrder(t *testing.T) {
	nc := class(func(*awsv1.EC2NodeClass) {})
	key := func(edit func(*v1.NodeClaim)) string {
		c := claim(edit)
		r, err := Make(demo(), nc, c, chosen(t, nc, c))
		if err != nil {
			t.Fatal(err)
		}
		return r.Order.Key()
	}
	first := key(func(*v1.NodeClaim) {})
	for name, tc := range map[string]struct {
		edit func(*v1.NodeClaim)
		same bool
	}{
		"another name and UID":      {func(c *v1.NodeClaim) { c.Name, c.UID = "default-xyz", "claim-2" }, true},
		"requests that fit as well": {func(c *v1.NodeClaim) { c.Spec.Resources.Requests["cpu"] = resource.MustParse("1100m") }, true},
		"another pool":              {func(c *v1.NodeClaim) { c.Labels[v1.NodePoolLabelKey] = "other" }, false},
		"another label":             {func(c *v1.NodeClaim) { c.Labels["tier"] = "db" }, false},
		"another taint":             {func(c *v1.NodeClaim) { c.Spec.Taints = nil }, false},
		"fewer types":               {func(c *v1.NodeClaim) { c.Spec.Requirements[0].Values = []string{"m5.large"} }, false},
	} {
		if got := key(tc.edit) == first; got != tc.same {
			t.Errorf("%s: shares the order: %v, want %v", name, got, tc.same)
		}
	}
}

func TestClassesThatCannotBeLaunched(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*awsv1.EC2NodeClass)
		want error
	}{
		"no profile":       {func(nc *awsv1.EC2NodeClass) { nc.Status.InstanceProfile = "" }, ErrNoProfile},
		"no groups":        {func(nc *awsv1.EC2NodeClass) { nc.Status.SecurityGroups = nil }, ErrNoGroups},
		"no images":        {func(nc *awsv1.EC2NodeClass) { nc.Status.AMIs = nil }, ErrNoImages},
		"no image that is": {func(nc *awsv1.EC2NodeClass) { nc.Status.AMIs = []awsv1.AMI{image("ami-1", "riscv")} }, ErrNoImage},
	} {
		nc, c := class(tc.edit), claim(func(*v1.NodeClaim) {})
		if _, err := Make(demo(), nc, c, chosen(t, nc, c)); !errors.Is(err, tc.want) {
			t.Errorf("%s: error = %v, want %v", name, err, tc.want)
		}
	}
}

func TestMakeChangesNothing(t *testing.T) {
	nc, c := class(func(nc *awsv1.EC2NodeClass) {
		nc.Spec.Kubelet = kubelet(map[string]any{"clusterDNS": []string{"10.0.0.10"}})
	}), claim(func(*v1.NodeClaim) {})
	before, beforeClaim := nc.DeepCopy(), c.DeepCopy()
	if _, err := Make(demo(), nc, c, chosen(t, nc, c)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, nc) + cmp.Diff(beforeClaim, c); d != "" {
		t.Errorf("Make changed its input:\n%s", d)
	}
}

// TestMarkets holds what EC2 wants to be told of reservations that are not ordinary ones.
func TestMarkets(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string // of the offering, beside the reservation's id
		want   ec2types.MarketType
	}{
		"an ordinary reservation": {map[string]string{awsv1.LabelCapacityReservationType: "default", awsv1.LabelCapacityReservationInterruptible: "false"}, ""},
		"a capacity block":        {map[string]string{awsv1.LabelCapacityReservationType: "capacity-block", awsv1.LabelCapacityReservationInterruptible: "false"}, "capacity-block"},
		"one that may be taken back": {map[string]string{awsv1.LabelCapacityReservationType: "default", awsv1.LabelCapacityReservationInterruptible: "true"},
			"interruptible-capacity-reservation"},
	} {
		t.Run(name, func(t *testing.T) {
			nc, c := class(func(*awsv1.EC2NodeClass) {}), claim(func(*v1.NodeClaim) {})
			choice := chosen(t, nc, c)
			labels := map[string]string{corev1.LabelTopologyZone: choice.Candidates[0].Offerings[0].Zone(), v1.CapacityTypeLabelKey: v1.CapacityTypeReserved, awsv1.LabelCapacityReservationID: "cr-1"}
			maps.Copy(labels, tc.labels)
			choice.CapacityType = v1.CapacityTypeReserved
			choice.Candidates = []fleet.Candidate{{Type: choice.Candidates[0].Type, Offerings: []*cloud.Offering{{Labels: labels}}}}
			r, err := Make(demo(), nc, c, choice)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Templates[0].Market; got != tc.want || r.Templates[0].ReservationID != "cr-1" {
				t.Errorf("market %q of reservation %q, want %q", got, r.Templates[0].ReservationID, tc.want)
			}
		})
	}
}

func TestTenancy(t *testing.T) {
	requirement := func(operator corev1.NodeSelectorOperator, values ...string) []v1.NodeSelectorRequirementWithMinValues {
		return []v1.NodeSelectorRequirementWithMinValues{{Key: awsv1.LabelInstanceTenancy, Operator: operator, Values: values}}
	}
	for name, tc := range map[string]struct {
		requirements []v1.NodeSelectorRequirementWithMinValues
		want         string
	}{
		"nothing is asked for": {nil, "default"},
		"shared":               {requirement("In", "default"), "default"},
		"either":               {requirement("In", "dedicated", "default"), "default"},
		"of its own":           {requirement("In", "dedicated"), "dedicated"},
		"not shared":           {requirement("NotIn", "default"), "dedicated"},
		"any":                  {requirement("Exists"), "default"},
		"either by the pool, of its own by the pod": {append(requirement("In", "dedicated", "default"), requirement("In", "dedicated")...), "dedicated"},
	} {
		c := &v1.NodeClaim{Spec: v1.NodeClaimSpec{Requirements: tc.requirements}}
		if got := Tenancy(c); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestPlaceOf(t *testing.T) {
	parts := &awsv1.PlacementGroup{ID: "pg-1", Strategy: "partition", PartitionCount: 3}
	for name, tc := range map[string]struct {
		group *awsv1.PlacementGroup
		edit  func(*v1.NodeClaim)
		want  shortage.Place
	}{
		"no group":                        {nil, func(*v1.NodeClaim) {}, shortage.Place{}},
		"a group without partitions":      {&awsv1.PlacementGroup{ID: "pg-1", Strategy: "spread"}, func(*v1.NodeClaim) {}, shortage.Place{Group: "pg-1"}},
		"any partition":                   {parts, func(*v1.NodeClaim) {}, shortage.Place{Group: "pg-1"}},
		"one of two partitions":           {parts, func(c *v1.NodeClaim) { require(c, awsv1.LabelPlacementGroupPartition, "1", "2") }, shortage.Place{Group: "pg-1"}},
		"the partition that is asked for": {parts, func(c *v1.NodeClaim) { require(c, awsv1.LabelPlacementGroupPartition, "2") }, shortage.Place{Group: "pg-1", Partition: "2"}},
		"the last that two requirements allow": {parts, func(c *v1.NodeClaim) {
			require(c, awsv1.LabelPlacementGroupPartition, "2", "3")
			require(c, awsv1.LabelPlacementGroupPartition, "1", "3")
		}, shortage.Place{Group: "pg-1", Partition: "3"}},
	} {
		nc := class(func(nc *awsv1.EC2NodeClass) { nc.Status.PlacementGroup = tc.group })
		if got := placeOf(nc, claim(tc.edit)); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// EFA is on a claim only if its machine has the interfaces.
func TestEFAInterfaces(t *testing.T) {
	it := &cloud.InstanceType{Capacity: corev1.ResourceList{awsv1.ResourceEFA: resource.MustParse("4")}}
	plain, efaOnly := &awsv1.NetworkInterface{InterfaceType: "interface"}, &awsv1.NetworkInterface{DeviceIndex: 1, InterfaceType: "efa-only"}
	for name, tc := range map[string]struct {
		asked      bool
		interfaces []*awsv1.NetworkInterface
		want       int
	}{
		"nobody asks":                                 {false, nil, 0},
		"pods ask":                                    {true, nil, 4},
		"pods ask, an empty list of interfaces":       {true, []*awsv1.NetworkInterface{}, 4},
		"the class has such interfaces":               {false, []*awsv1.NetworkInterface{plain, efaOnly}, 4},
		"pods ask, the class's interfaces are others": {true, []*awsv1.NetworkInterface{plain}, 0},
	} {
		nc := class(func(nc *awsv1.EC2NodeClass) { nc.Spec.NetworkInterfaces = tc.interfaces })
		c := claim(func(c *v1.NodeClaim) {
			if tc.asked {
				c.Spec.Resources.Requests[awsv1.ResourceEFA] = resource.MustParse("1")
			}
		})
		if got := EFAInterfaces(nc, c, it); got != tc.want {
			t.Errorf("%s: %d interfaces, want %d", name, got, tc.want)
		}
	}
}

// Labels that could be several come from the offering, or not at all.
func TestLabelsOfALaunch(t *testing.T) {
	it := &cloud.InstanceType{Labels: map[string][]string{
		corev1.LabelArchStable: {"amd64"}, corev1.LabelTopologyZone: {"a", "b"}, awsv1.LabelInstanceGPUName: nil,
		awsv1.LabelInstanceTenancy: {"default", "dedicated"}, awsv1.LabelCapacityReservationID: {"cr-1"}, awsv1.LabelCapacityReservationType: {"default"},
	}}
	onDemand := &cloud.Offering{Labels: map[string]string{corev1.LabelTopologyZone: "b", v1.CapacityTypeLabelKey: "on-demand"}}
	reserved := &cloud.Offering{Labels: map[string]string{corev1.LabelTopologyZone: "a", v1.CapacityTypeLabelKey: "reserved", awsv1.LabelCapacityReservationID: "cr-1"}}
	want := map[string]string{
		corev1.LabelArchStable: "amd64", corev1.LabelTopologyZone: "b", v1.CapacityTypeLabelKey: "on-demand", awsv1.LabelInstanceTenancy: "dedicated",
	}
	if d := cmp.Diff(want, Labels(it, onDemand, "dedicated")); d != "" {
		t.Errorf("labels of a machine on demand differ (-want +got):\n%s", d)
	}
	want = map[string]string{
		corev1.LabelArchStable: "amd64", corev1.LabelTopologyZone: "a", v1.CapacityTypeLabelKey: "reserved", awsv1.LabelInstanceTenancy: "default",
		awsv1.LabelCapacityReservationID: "cr-1",
	}
	if d := cmp.Diff(want, Labels(it, reserved, "default")); d != "" {
		t.Errorf("labels of a reserved machine differ (-want +got):\n%s", d)
	}
}

func TestResourcesLeaveOutEFAThatIsNotThere(t *testing.T) {
	catalog, err := offline.Catalog(offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(catalog.Types, func(it *cloud.InstanceType) bool { return it.Name == "p4d.24xlarge" })
	for efa, want := range map[int]bool{0: false, 4: true} {
		capacity, allocatable := Resources(catalog.Types[i], efa)
		_, has := capacity[awsv1.ResourceEFA]
		_, free := allocatable[awsv1.ResourceEFA]
		if has != want || free != want {
			t.Errorf("with %d EFA interfaces: capacity lists EFA %v, allocatable %v, want %v", efa, has, free, want)
		}
	}
}

// A class with many reservations needs a template for each; EC2 takes fifty in a call.
func TestNoMoreTemplatesThanEC2Takes(t *testing.T) {
	nc, c := class(func(*awsv1.EC2NodeClass) {}), claim(func(*v1.NodeClaim) {})
	it := chosen(t, nc, c).Candidates[0].Type
	choice := fleet.Choice{CapacityType: v1.CapacityTypeReserved}
	for i := range 2 * fleet.MaxTemplates {
		choice.Candidates = append(choice.Candidates, fleet.Candidate{Type: it, Offerings: []*cloud.Offering{{
			Price: cloud.NanoUSD(1000 - i), Labels: map[string]string{
				corev1.LabelTopologyZone: "us-east-1a", awsv1.LabelCapacityReservationID: fmt.Sprintf("cr-%03d", i),
			},
		}}})
	}
	r, err := Make(demo(), nc, c, choice)
	if err != nil || len(r.Templates) != fleet.MaxTemplates || len(r.Order.Templates) != fleet.MaxTemplates {
		t.Fatalf("%d templates, %v; want %d", len(r.Templates), err, fleet.MaxTemplates)
	}
	for i, template := range r.Templates {
		if template.ReservationID < "cr-050" || r.Order.Templates[i].Reservation != template.ReservationID {
			t.Errorf("template %d is of %s and the order says %s; want the same, one of the cheaper half", i, template.ReservationID, r.Order.Templates[i].Reservation)
		}
	}
}

// TestMachinesWithOtherReservesHaveOtherTemplates: what depends on the machine is told to each, and equal machines share.
func TestMachinesWithOtherReservesHaveOtherTemplates(t *testing.T) {
	for name, tc := range map[string]struct {
		kubelet map[string]any
		want    []string // of each template: the types, and what is reserved
	}{
		"by cores": {map[string]any{"maxPods": 20, "kubeReserved": map[string]any{"cpu": "vcpus * 40", "memory": "1Gi"}},
			[]string{"c5.large m5.large: cpu: 80m memory: 1Gi", "m5.xlarge: cpu: 160m memory: 1Gi"}},
		"the same for all": {map[string]any{"maxPods": 20, "kubeReserved": map[string]any{"cpu": "max(vcpus, 8)"}},
			[]string{"c5.large m5.large m5.xlarge: cpu: 10m"}},
		"the system's": {map[string]any{"maxPods": 20, "systemReserved": map[string]any{"memory": "vcpus * 16"}},
			[]string{"c5.large m5.large: memory: 32Mi", "m5.xlarge: memory: 64Mi"}},
		"a number for all": {map[string]any{"maxPods": 20, "kubeReserved": map[string]any{"cpu": "80m"}},
			[]string{"c5.large m5.large m5.xlarge: cpu: 80m"}},
		"without a value on some": {map[string]any{"maxPods": 20, "kubeReserved": map[string]any{"cpu": "80 / (vcpus - 2)"}},
			[]string{"c5.large m5.large: ", "m5.xlarge: cpu: 40m"}},
		"pods": {map[string]any{"maxPods": "vcpus * 10"}, []string{"c5.large m5.large: ", "m5.xlarge: "}},
	} {
		t.Run(name, func(t *testing.T) {
			nc := class(func(nc *awsv1.EC2NodeClass) { nc.Spec.Kubelet = kubelet(tc.kubelet) })
			if got := reserves(t, nc); !slices.Equal(got, tc.want) {
				t.Errorf("templates %q, want %q", got, tc.want)
			}
		})
	}
}

// reserves are the types of each template that a launch makes, and what its user data reserves.
func reserves(t *testing.T, nc *awsv1.EC2NodeClass) []string {
	t.Helper()
	c, settings := demo(), hardware.Settings{Formulas: true}
	c.Hardware, c.Type = settings, func(name string) *awsdata.InstanceType {
		return awsdata.Types()[slices.IndexFunc(awsdata.Types(), func(known *awsdata.InstanceType) bool { return known.Name == name })]
	}
	three := claim(func(c *v1.NodeClaim) {
		c.Spec.Requirements = nil
		require(c, corev1.LabelInstanceTypeStable, "m5.large", "m5.xlarge", "c5.large")
		require(c, v1.CapacityTypeLabelKey, "on-demand")
	})
	catalog, err := offline.Catalog(offline.Options{Class: nc, Zones: []string{"us-east-1a"}, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	choice, err := fleet.Choose(catalog.Types, three, shape.DefaultBand)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := Make(c, nc, three, choice)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i, template := range spec.Templates {
		var types, kept []string
		for _, o := range spec.Order.Templates[i].Overrides {
			types = append(types, o.InstanceType)
		}
		for line := range strings.Lines(template.UserData) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "cpu:") || strings.HasPrefix(line, "memory:") {
				kept = append(kept, line)
			}
		}
		slices.Sort(types)
		out = append(out, strings.Join(types, " ")+": "+strings.Join(kept, " "))
	}
	slices.Sort(out)
	return out
}

// TestATypeThatIsNotKnownIsNotLaunched where its kubelet would have to be told numbers that depend on it.
func TestATypeThatIsNotKnownIsNotLaunched(t *testing.T) {
	for formula, known := range map[string]bool{"vcpus": false, "10m": true} {
		nc := class(func(nc *awsv1.EC2NodeClass) {
			nc.Spec.Kubelet = kubelet(map[string]any{"kubeReserved": map[string]any{"cpu": formula}})
		})
		c := demo()
		c.Hardware.Formulas, c.Type = true, func(string) *awsdata.InstanceType { return nil }
		anything := claim(func(*v1.NodeClaim) {})
		choice := chosen(t, class(func(*awsv1.EC2NodeClass) {}), anything)
		_, err := Make(c, nc, anything, choice)
		if unlisted, is := errors.AsType[*unlistedError](err); known && err != nil || !known && (!is || len(unlisted.Types) != len(choice.Candidates) || !strings.Contains(err.Error(), choice.Candidates[0].Type.Name)) {
			t.Errorf("%s: %v, want the types named that are not known", formula, err)
		}
		nc.Status.AMIs = []awsv1.AMI{image("ami-1", "riscv")}
		if _, err := Make(c, nc, anything, choice); !errors.Is(err, ErrNoImage) {
			t.Errorf("%s: %v, want that there is no image", formula, err)
		}
	}
}
