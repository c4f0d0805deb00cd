package awsmodel

import (
	"fmt"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// A call that real EC2 refuses must fail here too. Otherwise a fault of the controller shows only in an account.
func TestMalformedCallsAreRefusedAsAWSRefusesThem(t *testing.T) {
	filter := func(values ...string) []ec2types.Filter {
		return []ec2types.Filter{{Name: aws.String("instance-type"), Values: values}}
	}
	describe := func(values ...string) func(*testing.T, *harness) error {
		return func(t *testing.T, w *harness) error {
			_, err := w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: filter(values...)})
			return err
		}
	}
	fleet := func(change func(*ec2.CreateFleetInput)) func(*testing.T, *harness) error {
		return func(t *testing.T, w *harness) error {
			in := w.fleetOf(t, w.prepare(t, al2023), spotTarget, 1, "m5.large/us-east-1a")
			change(in)
			_, err := w.ec2.CreateFleet(t.Context(), in)
			return err
		}
	}
	run := func(change func(*ec2.RunInstancesInput)) func(*testing.T, *harness) error {
		return func(t *testing.T, w *harness) error {
			in := &ec2.RunInstancesInput{MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: "m5.large",
				ImageId: aws.String(w.newest(t, "x86_64")), SubnetId: aws.String(w.subnetIn(t, "us-east-1a"))}
			change(in)
			_, err := w.ec2.RunInstances(t.Context(), in)
			return err
		}
	}
	gp3 := func(iops, throughput int32) func(in *ec2.RunInstancesInput) {
		return func(in *ec2.RunInstancesInput) {
			in.BlockDeviceMappings = []ec2types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"),
				Ebs: &ec2types.EbsBlockDevice{VolumeSize: aws.Int32(20), VolumeType: ec2types.VolumeTypeGp3,
					Iops: &iops, Throughput: &throughput}}}
		}
	}
	types := make([]string, 201)
	for i := range types {
		types[i] = fmt.Sprintf("m%d.large", i)
	}
	for name, tc := range map[string]struct {
		call func(*testing.T, *harness) error
		want string
	}{
		"200 values of filters": {describe(types[:200]...), ""},
		"201 values of filters": {describe(types...), "FilterLimitExceeded"},
		"51 filters": {func(t *testing.T, w *harness) error {
			_, err := w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: slices.Repeat(filter("m5.large"), 51)})
			return err
		}, "FilterLimitExceeded"},
		"a filter without values":                 {describe(), "InvalidParameterValue"},
		"a fleet with a pool twice":               {fleet(func(in *ec2.CreateFleetInput) { twice(&in.LaunchTemplateConfigs[0].Overrides) }), "InvalidFleetConfig"},
		"a fleet with a pool under two templates": {fleet(func(in *ec2.CreateFleetInput) { twice(&in.LaunchTemplateConfigs) }), "InvalidFleetConfig"},
		"an unknown strategy for spot":            {fleet(func(in *ec2.CreateFleetInput) { in.SpotOptions.AllocationStrategy = "nix" }), "InvalidParameterValue"},
		"an unknown strategy for on-demand": {fleet(func(in *ec2.CreateFleetInput) {
			in.OnDemandOptions.AllocationStrategy = "nix"
		}), "InvalidParameterValue"},
		"a fleet that tags a subnet": {fleet(func(in *ec2.CreateFleetInput) {
			in.TagSpecifications[0].ResourceType = ec2types.ResourceTypeSubnet
		}), "InvalidParameterValue"},
		"a fleet that tags itself, machines, volumes and interfaces": {fleet(func(in *ec2.CreateFleetInput) {
			for _, kind := range []ec2types.ResourceType{"fleet", "volume", "network-interface", "spot-instances-request"} {
				in.TagSpecifications = append(in.TagSpecifications, ec2types.TagSpecification{ResourceType: kind, Tags: tagList("a", "b")})
			}
		}), ""},
		"a fleet of an unknown template without overrides": {fleet(func(in *ec2.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].LaunchTemplateSpecification.LaunchTemplateName = aws.String("missing")
			in.LaunchTemplateConfigs[0].Overrides = nil
		}), "InvalidLaunchTemplateName.NotFoundException"},
		"a tag's key twice": {run(func(in *ec2.RunInstancesInput) {
			in.TagSpecifications = []ec2types.TagSpecification{{ResourceType: "instance", Tags: append(tagList("a", "b"), tagList("a", "c")...)}}
		}), "InvalidParameterValue"},
		"a machine that tags a subnet": {run(func(in *ec2.RunInstancesInput) {
			in.TagSpecifications = []ec2types.TagSpecification{{ResourceType: "subnet", Tags: tagList("a", "b")}}
		}), "InvalidParameterValue"},
		"a machine with 65 hops": {run(func(in *ec2.RunInstancesInput) {
			in.MetadataOptions = &ec2types.InstanceMetadataOptionsRequest{HttpPutResponseHopLimit: aws.Int32(65)}
		}), "InvalidParameterValue"},
		"gp3 with 3000 IOPS":                       {run(gp3(3000, 125)), ""},
		"gp3 with 100 IOPS":                        {run(gp3(100, 125)), "InvalidParameterValue"},
		"gp3 with 81000 IOPS":                      {run(gp3(81000, 125)), "InvalidParameterValue"},
		"gp3 with 100 MiB/s":                       {run(gp3(3000, 100)), "InvalidParameterValue"},
		"gp3 with 2001 MiB/s":                      {run(gp3(16000, 2001)), "InvalidParameterValue"},
		"a template named a space":                 {templateNamed("a b c"), "InvalidLaunchTemplateName.MalformedException"},
		"a template named with all that EC2 takes": {templateNamed("a(b).c/d_E-1"), ""},
		"a receipt that never was":                 {func(t *testing.T, w *harness) error { return w.forget(t, "no-such-receipt") }, "ReceiptHandleIsInvalid"},
		"a receipt that was used before": {func(t *testing.T, w *harness) error {
			queue, receipt := w.receipt(t)
			if err := w.delete(t, queue, receipt); err != nil {
				return err
			}
			return w.delete(t, queue, receipt)
		}, ""},
		"types by name in pages": {func(t *testing.T, w *harness) error {
			_, err := w.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{
				InstanceTypes: []ec2types.InstanceType{"m5.large"}, MaxResults: aws.Int32(5)})
			return err
		}, "InvalidParameterCombination"},
		"101 prices a page": {func(t *testing.T, w *harness) error {
			_, err := pricing.NewFromConfig(w.AWSConfig()).GetProducts(t.Context(), &pricing.GetProductsInput{
				ServiceCode: aws.String("AmazonEC2"), MaxResults: aws.Int32(101), Filters: []pricingtypes.Filter{}})
			return err
		}, "InvalidParameterException"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(t *testing.T, w *harness) {
				if got := code(tc.call(t, w)); got != tc.want {
					t.Errorf("AWS answers %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// overridesOf returns n overrides of types that do not exist.
func overridesOf(n int) []ec2types.FleetLaunchTemplateOverridesRequest {
	out := make([]ec2types.FleetLaunchTemplateOverridesRequest, n)
	for i := range out {
		out[i].InstanceType = ec2types.InstanceType(fmt.Sprintf("x%d.large", i))
	}
	return out
}

func twice[T any](list *[]T) { *list = append(*list, (*list)[0]) }

func templateNamed(name string) func(*testing.T, *harness) error {
	return func(t *testing.T, w *harness) error {
		_, err := w.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: &name,
			LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: "m5.large"}})
		return err
	}
}

// receipt sends a message and returns the queue and the receipt under which the message came.
func (w *harness) receipt(t *testing.T) (queue, receipt string) {
	t.Helper()
	c := sqs.NewFromConfig(w.AWSConfig())
	made := must[*sqs.CreateQueueOutput](t)(c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("q")}))
	must[*sqs.SendMessageOutput](t)(c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: made.QueueUrl, MessageBody: aws.String("x")}))
	got := must[*sqs.ReceiveMessageOutput](t)(c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: made.QueueUrl}))
	return *made.QueueUrl, *got.Messages[0].ReceiptHandle
}

func (w *harness) forget(t *testing.T, receipt string) error {
	queue, _ := w.receipt(t)
	return w.delete(t, queue, receipt)
}

func (w *harness) delete(t *testing.T, queue, receipt string) error {
	_, err := sqs.NewFromConfig(w.AWSConfig()).DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: &receipt})
	return err
}
