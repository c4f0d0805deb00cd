package awsmodel

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"

	"karpenter.sh/karpenter/internal/aws/awsdata"
)

// A world is a cloud with clients, and what it told about machines.
type harness struct {
	*Cloud
	ec2 *ec2.Client

	mu     sync.Mutex
	joined []Join
	left   []Gone
}

// joins are the machines that have joined so far, gone those that have left.
func (w *harness) joins() []Join { return noted(w, &w.joined) }
func (w *harness) gone() []Gone  { return noted(w, &w.left) }

func note[T any](w *harness, list *[]T, v T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*list = append(*list, v)
}

func noted[T any](w *harness, list *[]T) []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(*list)
}

var demo = Cluster{Name: "demo", Endpoint: "https://k8s.example", CA: "Q0E=", ServiceCIDR: "10.100.0.0/16", Version: "1.36"}

// inWorld runs a test in a bubble with a world in which time passes.
func inWorld(t *testing.T, cfg Config, test func(t *testing.T, w *harness)) {
	synctest.Test(t, func(t *testing.T) {
		w := &harness{}
		if cfg.Cluster.Name == "" {
			cfg.Cluster = demo
		}
		cfg.Join = func(j Join) { note(w, &w.joined, j) }
		cfg.Gone = func(g Gone) { note(w, &w.left, g) }
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.Cloud = c
		w.ec2 = ec2.NewFromConfig(c.AWSConfig())
		done := make(chan error)
		ctx := t.Context()
		go func() { done <- c.Run(ctx) }()
		t.Cleanup(func() {
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		test(t, w)
	})
}

// code returns AWS's code of an error, "" for none.
func code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

const al2023 = `MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

# generated
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
metadata: {}
spec:
  cluster: {name: demo, apiServerEndpoint: https://k8s.example, certificateAuthority: Q0E=, cidr: 10.100.0.0/16}
  kubelet:
    config:
      maxPods: 29
      registerWithTaints: [{effect: NoExecute, key: example.com/unregistered}]
    flags: ['--node-labels="example.com/capacity-type=spot,team=a"']
--//--
`

// prepare makes an instance profile and a launch template, and returns the template's name.
func (w *harness) prepare(t *testing.T, userData string) string {
	t.Helper()
	profiles := iam.NewFromConfig(w.AWSConfig())
	ctx := t.Context()
	must[*iam.CreateInstanceProfileOutput](t)(profiles.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String("nodes")}))
	must[*iam.AddRoleToInstanceProfileOutput](t)(profiles.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: aws.String("nodes"), RoleName: aws.String("KarpenterNodeRole-demo")}))
	return w.template(t, "nodes", userData, w.newest(t, "x86_64"))
}

func (w *harness) template(t *testing.T, name, userData, image string) string {
	t.Helper()
	groups := must[*ec2.DescribeSecurityGroupsOutput](t)(w.ec2.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{
		Filters: []ec2types.Filter{{Name: aws.String("tag:" + discoveryTag), Values: []string{"demo"}}},
	}))
	must[*ec2.CreateLaunchTemplateOutput](t)(w.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: &name,
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId: &image, UserData: aws.String(base64.StdEncoding.EncodeToString([]byte(userData))),
			IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("nodes")},
			NetworkInterfaces: []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{
				DeviceIndex: aws.Int32(0), Groups: []string{*groups.SecurityGroups[0].GroupId},
			}},
			BlockDeviceMappings: []ec2types.LaunchTemplateBlockDeviceMappingRequest{{DeviceName: aws.String("/dev/xvda"), Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{
				VolumeSize: aws.Int32(20), VolumeType: ec2types.VolumeTypeGp3, Encrypted: aws.Bool(true),
			}}},
		},
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeLaunchTemplate, Tags: tagList("owner", "test")}},
	}))
	return name
}

// newest returns the newest AL2023 image of an architecture.
func (w *harness) newest(t *testing.T, arch string) string {
	t.Helper()
	out := must[*ec2.DescribeImagesOutput](t)(w.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{
		Owners:  []string{"amazon"},
		Filters: []ec2types.Filter{{Name: aws.String("name"), Values: []string{"amazon-eks-node-al2023-" + arch + "-standard-1.36-v*"}}},
	}))
	best := out.Images[0]
	for _, i := range out.Images {
		if *i.CreationDate > *best.CreationDate {
			best = i
		}
	}
	return *best.ImageId
}

// subnetIn returns the subnet of a zone.
func (w *harness) subnetIn(t *testing.T, zone string) string {
	t.Helper()
	out := must[*ec2.DescribeSubnetsOutput](t)(w.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{
		Filters: []ec2types.Filter{{Name: aws.String("availability-zone"), Values: []string{zone}}},
	}))
	return *out.Subnets[0].SubnetId
}

// fleetOf asks for n machines of a capacity type; each pool is type/zone.
func (w *harness) fleetOf(t *testing.T, template string, kind ec2types.DefaultTargetCapacityType, n int32, pools ...string) *ec2.CreateFleetInput {
	t.Helper()
	in := &ec2.CreateFleetInput{
		Type:                        ec2types.FleetTypeInstant,
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{TotalTargetCapacity: &n, DefaultTargetCapacityType: kind},
		SpotOptions:                 &ec2types.SpotOptionsRequest{AllocationStrategy: ec2types.SpotAllocationStrategyPriceCapacityOptimized},
		OnDemandOptions:             &ec2types.OnDemandOptionsRequest{AllocationStrategy: ec2types.FleetOnDemandAllocationStrategyLowestPrice},
		TagSpecifications:           []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeInstance, Tags: tagList("pool", "default")}},
	}
	config := ec2types.FleetLaunchTemplateConfigRequest{LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: &template, Version: aws.String("$Latest")}}
	for _, p := range pools {
		name, zone, _ := strings.Cut(p, "/")
		config.Overrides = append(config.Overrides, ec2types.FleetLaunchTemplateOverridesRequest{
			InstanceType: ec2types.InstanceType(name), SubnetId: aws.String(w.subnetIn(t, zone)), AvailabilityZone: &zone,
		})
	}
	in.LaunchTemplateConfigs = []ec2types.FleetLaunchTemplateConfigRequest{config}
	return in
}

func TestMachineLivesAndJoinsThroughItsUserData(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		name := w.prepare(t, al2023)
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, name, spotTarget, 1, "m5.large/us-east-1a", "c5.large/us-east-1b")))
		if len(out.Instances) != 1 || len(out.Instances[0].InstanceIds) != 1 || len(out.Errors) != 0 {
			t.Fatalf("fleet = %+v, errors %+v; want one machine", out.Instances, out.Errors)
		}
		id := out.Instances[0].InstanceIds[0]
		for _, step := range []struct {
			after time.Duration
			state ec2types.InstanceStateName
			joins int
		}{{0, "pending", 0}, {6 * time.Second, "running", 0}, {20 * time.Second, "running", 1}} {
			time.Sleep(step.after)
			synctest.Wait()
			if got := w.stateOf(t, id); got != step.state || len(w.joins()) != step.joins {
				t.Fatalf("%v later the machine is %s with %d joins, want %s with %d", step.after, got, len(w.joins()), step.state, step.joins)
			}
		}
		j := w.joins()[0]
		if j.InstanceID != id || j.ProviderID != "aws:///"+j.Zone+"/"+id || j.Labels["team"] != "a" || len(j.Taints) != 1 || j.Labels["node.kubernetes.io/instance-type"] != j.InstanceType {
			t.Errorf("join = %+v", j)
		}
		must[*ec2.TerminateInstancesOutput](t)(w.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}}))
		if got := w.stateOf(t, id); got != "shutting-down" {
			t.Errorf("after terminate the machine is %s", got)
		}
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if got := w.stateOf(t, id); got != "terminated" {
			t.Errorf("at last the machine is %s", got)
		}
		if len(w.gone()) != 2 || w.gone()[0].State != "shutting-down" || w.gone()[1].State != "terminated" {
			t.Errorf("gone = %+v", w.gone())
		}
		time.Sleep(2 * time.Hour)
		_, err := w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
		if code(err) != "InvalidInstanceID.NotFound" {
			t.Errorf("an hour later the machine is still described: %v", err)
		}
	})
}

func TestTheDriverFindsRoomForVolumes(t *testing.T) {
	facts := map[string]*awsdata.InstanceType{}
	for _, it := range awsdata.Types() {
		facts[it.Name] = it
	}
	for name, tc := range map[string]struct {
		itype, os           string
		volumes, interfaces int
		want                int
	}{
		"the root volume and the spare interface go off": {"m5.large", "linux", 1, 1, 25},
		"a second volume and a second interface too":     {"m5.large", "linux", 2, 2, 23},
		"where all interfaces are there none is spare":   {"m5.large", "linux", 1, 3, 24},
		"Windows attaches no spare interface":            {"m5.large", "windows", 1, 1, 26},
		"interfaces do not count beside a limit apart":   {"m7i.large", "linux", 1, 3, 31},
		"there is no less than no room":                  {"m5.large", "linux", 40, 1, 0},
	} {
		m := &machine{Volumes: make([]ec2types.Volume, tc.volumes)}
		m.Now.NetworkInterfaces = make([]ec2types.InstanceNetworkInterface, tc.interfaces)
		if got := roomForVolumes(m, facts[tc.itype], tc.os); got != tc.want {
			t.Errorf("%s: %d volumes, want %d", name, got, tc.want)
		}
	}
}

const (
	spotTarget = ec2types.DefaultTargetCapacityTypeSpot
	odTarget   = ec2types.DefaultTargetCapacityTypeOnDemand
)

func (w *harness) stateOf(t *testing.T, id string) ec2types.InstanceStateName {
	t.Helper()
	out := must[*ec2.DescribeInstancesOutput](t)(w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}}))
	return out.Reservations[0].Instances[0].State.Name
}
