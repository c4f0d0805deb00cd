package awsmodel

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

func decode(t *testing.T, text string) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestCatalogueIsPagedThrough(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		var types []string
		p := ec2.NewDescribeInstanceTypesPaginator(w.ec2, &ec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(100)})
		pages := 0
		for p.HasMorePages() {
			out := must[*ec2.DescribeInstanceTypesOutput](t)(p.NextPage(t.Context()))
			pages++
			for _, it := range out.InstanceTypes {
				types = append(types, string(it.InstanceType))
				if it.InstanceType == "p4d.24xlarge" && (*it.GpuInfo.Gpus[0].Count != 8 || len(it.NetworkInfo.NetworkCards) != 4 || *it.NetworkInfo.EfaInfo.MaximumEfaInterfaces != 4) {
					t.Errorf("p4d.24xlarge = %+v", it)
				}
			}
		}
		if len(types) < 1300 || pages != (len(types)+99)/100 || !slices.IsSorted(types) || len(slices.Compact(types)) != len(types) {
			t.Errorf("%d types on %d pages", len(types), pages)
		}
		offers := 0
		o := ec2.NewDescribeInstanceTypeOfferingsPaginator(w.ec2, &ec2.DescribeInstanceTypeOfferingsInput{LocationType: ec2types.LocationTypeAvailabilityZone, MaxResults: aws.Int32(1000)})
		for o.HasMorePages() {
			offers += len(must[*ec2.DescribeInstanceTypeOfferingsOutput](t)(o.NextPage(t.Context())).InstanceTypeOfferings)
		}
		if offers < 6000 {
			t.Errorf("%d offerings", offers)
		}
		arm := must[*ec2.DescribeInstanceTypesOutput](t)(w.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{
			InstanceTypes: []ec2types.InstanceType{"m5.large", "m6g.large"}, Filters: []ec2types.Filter{{Name: aws.String("processor-info.supported-architecture"), Values: []string{"arm64"}}},
		}))
		if len(arm.InstanceTypes) != 1 || arm.InstanceTypes[0].InstanceType != "m6g.large" {
			t.Errorf("arm64 gives %v", arm.InstanceTypes)
		}
	})
}

func TestSpotPricesFollowTheFormulaAndDrift(t *testing.T) {
	for pool, want := range map[string]float64{"m5.large/us-east-1a": 0.039780, "m6g.16xlarge/us-east-1a": 1.131427, "c7i-flex.2xlarge/us-east-1c": 0.216952} {
		inWorld(t, Config{}, func(t *testing.T, w *harness) {
			name, zone, _ := strings.Cut(pool, "/")
			price := func() float64 {
				out := must[*ec2.DescribeSpotPriceHistoryOutput](t)(w.ec2.DescribeSpotPriceHistory(t.Context(), &ec2.DescribeSpotPriceHistoryInput{
					InstanceTypes: []ec2types.InstanceType{ec2types.InstanceType(name)}, AvailabilityZone: &zone, ProductDescriptions: []string{"Linux/UNIX"}, StartTime: aws.Time(time.Now()),
				}))
				var f float64
				if _, err := fmt.Sscan(*out.SpotPriceHistory[0].SpotPrice, &f); err != nil {
					t.Fatal(err)
				}
				return f
			}
			if got := price(); got != want {
				t.Errorf("%s costs %v, want %v", pool, got, want)
			}
			time.Sleep(30 * time.Hour)
			if got := price(); got == want || math.Abs(got/want-1) > 0.101 {
				t.Errorf("a day later %s costs %v; want a little more or less than %v", pool, got, want)
			}
		})
	}
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		n := 0
		p := ec2.NewDescribeSpotPriceHistoryPaginator(w.ec2, &ec2.DescribeSpotPriceHistoryInput{ProductDescriptions: []string{"Linux/UNIX"}, StartTime: aws.Time(time.Now()), MaxResults: aws.Int32(1000)})
		for p.HasMorePages() {
			n += len(must[*ec2.DescribeSpotPriceHistoryOutput](t)(p.NextPage(t.Context())).SpotPriceHistory)
		}
		if n < 5000 {
			t.Errorf("%d spot prices", n)
		}
	})
}

func TestPriceListHasEveryPrice(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		client := pricing.NewFromConfig(w.AWSConfig())
		match := func(field, value string) pricingtypes.Filter {
			return pricingtypes.Filter{Field: &field, Value: &value, Type: pricingtypes.FilterTypeTermMatch}
		}
		for kind, want := range map[string]int{"Shared/Compute Instance": 1100, "Dedicated/Compute Instance (bare metal)": 100} {
			tenancy, family, _ := strings.Cut(kind, "/")
			n := 0
			p := pricing.NewGetProductsPaginator(client, &pricing.GetProductsInput{ServiceCode: aws.String("AmazonEC2"), MaxResults: aws.Int32(100), Filters: []pricingtypes.Filter{
				match("regionCode", "us-east-1"), match("serviceCode", "AmazonEC2"), match("preInstalledSw", "NA"), match("operatingSystem", "Linux"), match("capacitystatus", "Used"),
				match("marketoption", "OnDemand"), match("tenancy", tenancy), match("productFamily", family),
			}})
			for p.HasMorePages() {
				for _, text := range must[*pricing.GetProductsOutput](t)(p.NextPage(t.Context())).PriceList {
					n++
					var item struct {
						Product struct{ Attributes map[string]string }
						Terms   struct {
							OnDemand map[string]struct {
								PriceDimensions map[string]struct{ PricePerUnit map[string]string }
							}
						}
					}
					if err := json.Unmarshal([]byte(text), &item); err != nil {
						t.Fatal(err)
					}
					for _, term := range item.Terms.OnDemand {
						for _, d := range term.PriceDimensions {
							if item.Product.Attributes["instanceType"] == "m5.large" && d.PricePerUnit["USD"] != "0.0960000000" {
								t.Errorf("m5.large costs %s", d.PricePerUnit["USD"])
							}
						}
					}
				}
			}
			if n < want {
				t.Errorf("%s: %d products, want at least %d", kind, n, want)
			}
		}
	})
}

func TestImagesOfEveryFamilyAndMinor(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		client := ssm.NewFromConfig(w.AWSConfig())
		for _, minor := range []string{"1.31", "1.32", "1.33", "1.34", "1.35", "1.36"} {
			paths := []string{
				"eks/optimized-ami/%s/amazon-linux-2023/x86_64/standard/recommended/image_id", "eks/optimized-ami/%s/amazon-linux-2023/arm64/standard/recommended/image_id",
				"eks/optimized-ami/%s/amazon-linux-2023/x86_64/nvidia/recommended/image_id", "eks/optimized-ami/%s/amazon-linux-2023/x86_64/neuron/recommended/image_id",
				"eks/optimized-ami/%[1]s/amazon-linux-2023/x86_64/standard/amazon-eks-node-al2023-x86_64-standard-%[1]s-v20260715/image_id",
				"bottlerocket/aws-k8s-%s/x86_64/latest/image_id", "bottlerocket/aws-k8s-%s-nvidia/arm64/1.45.0/image_id",
				"ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-%s/image_id",
			}
			if minor <= "1.32" {
				paths = append(paths, "eks/optimized-ami/%s/amazon-linux-2-gpu/recommended/image_id", "eks/optimized-ami/%[1]s/amazon-linux-2-arm64/amazon-eks-arm64-node-%[1]s-v20260818/image_id")
			}
			for _, p := range paths {
				name := "/aws/service/" + fmt.Sprintf(p, minor)
				out := must[*ssm.GetParameterOutput](t)(client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &name}))
				must[*ec2.DescribeImagesOutput](t)(w.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ImageIds: []string{*out.Parameter.Value}}))
			}
		}
		name := aws.String("/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id")
		before := must[*ssm.GetParameterOutput](t)(client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: name}))
		if err := w.PublishImages("20260901", "1.47.0"); err != nil {
			t.Fatal(err)
		}
		after := must[*ssm.GetParameterOutput](t)(client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: name}))
		if *before.Parameter.Value == *after.Parameter.Value {
			t.Error("a new release does not move the recommended image")
		}
		if _, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String("/nothing")}); code(err) != "ParameterNotFound" {
			t.Errorf("an unknown parameter: %v", err)
		}
		some := must[*ssm.GetParametersOutput](t)(client.GetParameters(t.Context(), &ssm.GetParametersInput{Names: []string{*name, "/nothing"}}))
		if len(some.Parameters) != 1 || !slices.Equal(some.InvalidParameters, []string{"/nothing"}) {
			t.Errorf("GetParameters = %+v", some)
		}
		if err := w.DeprecateImage(*after.Parameter.Value); err != nil {
			t.Fatal(err)
		}
		shown := func(deprecated bool) int {
			out := must[*ec2.DescribeImagesOutput](t)(w.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{IncludeDeprecated: &deprecated, Filters: []ec2types.Filter{{Name: aws.String("image-id"), Values: []string{*after.Parameter.Value}}}}))
			return len(out.Images)
		}
		if shown(false) != 0 || shown(true) != 1 {
			t.Errorf("a deprecated image is shown %d and %d times", shown(false), shown(true))
		}
	})
}

func TestInstanceProfiles(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		client := iam.NewFromConfig(w.AWSConfig())
		ctx := t.Context()
		for i := range 5 {
			must[*iam.CreateInstanceProfileOutput](t)(client.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{
				InstanceProfileName: aws.String(fmt.Sprint("p", i)), Path: aws.String("/demo/"), Tags: []iamtypes.Tag{{Key: aws.String("a"), Value: aws.String("b")}},
			}))
		}
		name, role := aws.String("p0"), aws.String("KarpenterNodeRole-demo")
		for what, tc := range map[string]struct {
			call func() error
			want string
		}{
			"twice the same name": {func() error {
				_, err := client.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: name})
				return err
			}, "EntityAlreadyExists"},
			"a path that does not end": {func() error {
				_, err := client.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String("x"), Path: aws.String("/a")})
				return err
			}, "ValidationError"},
			"a role of nobody": {func() error {
				_, err := client.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: aws.String("nobody")})
				return err
			}, "NoSuchEntity"},
			"a profile of nobody": {func() error {
				_, err := client.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String("nobody")})
				return err
			}, "NoSuchEntity"},
		} {
			if err := tc.call(); code(err) != tc.want {
				t.Errorf("%s: %v, want %s", what, err, tc.want)
			}
		}
		must[*iam.AddRoleToInstanceProfileOutput](t)(client.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: role}))
		if _, err := client.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: role}); code(err) != "LimitExceeded" {
			t.Errorf("a second role: %v", err)
		}
		got := must[*iam.GetInstanceProfileOutput](t)(client.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: name})).InstanceProfile
		if *got.Roles[0].RoleName != *role || *got.Tags[0].Key != "a" || *got.Arn != "arn:aws:iam::123456789012:instance-profile/demo/p0" {
			t.Errorf("profile = %+v", got)
		}
		if _, err := client.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: name}); code(err) != "DeleteConflict" {
			t.Errorf("deleting a profile with a role: %v", err)
		}
		must[*iam.RemoveRoleFromInstanceProfileOutput](t)(client.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: name, RoleName: role}))
		must[*iam.DeleteInstanceProfileOutput](t)(client.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: name}))
		n, pages := 0, 0
		p := iam.NewListInstanceProfilesPaginator(client, &iam.ListInstanceProfilesInput{PathPrefix: aws.String("/demo/"), MaxItems: aws.Int32(3)})
		for p.HasMorePages() {
			n += len(must[*iam.ListInstanceProfilesOutput](t)(p.NextPage(ctx)).InstanceProfiles)
			pages++
		}
		if n != 4 || pages != 2 {
			t.Errorf("%d profiles on %d pages, want 4 on 2", n, pages)
		}
	})
}

func TestQueueDeliversAtLeastOnce(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		client := sqs.NewFromConfig(w.AWSConfig())
		ctx := t.Context()
		url := must[*sqs.GetQueueUrlOutput](t)(client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("demo")})).QueueUrl
		receive := func(wait int32) []sqstypes.Message {
			return must[*sqs.ReceiveMessageOutput](t)(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
				QueueUrl: url, MaxNumberOfMessages: 10, VisibilityTimeout: 20, WaitTimeSeconds: wait,
				MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{sqstypes.MessageSystemAttributeNameSentTimestamp},
			})).Messages
		}
		start := time.Now()
		if got := receive(20); len(got) != 0 || time.Since(start) != 20*time.Second {
			t.Errorf("an empty queue answers %d messages after %v, want none after 20 s", len(got), time.Since(start))
		}
		go func() {
			time.Sleep(3 * time.Second)
			w.SendRaw("hello")
		}()
		start = time.Now()
		first := receive(20)
		if len(first) != 1 || *first[0].Body != "hello" || time.Since(start) != 3*time.Second || first[0].Attributes["SentTimestamp"] == "" {
			t.Fatalf("received %+v after %v", first, time.Since(start))
		}
		if got := receive(0); len(got) != 0 {
			t.Error("a message that is being worked on is received again")
		}
		start = time.Now()
		second := receive(20)
		if len(second) != 1 || time.Since(start) != 20*time.Second {
			t.Fatalf("a message that was not deleted comes back %d times after %v", len(second), time.Since(start))
		}
		must[*sqs.DeleteMessageOutput](t)(client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: second[0].ReceiptHandle}))
		time.Sleep(time.Minute)
		if got := receive(0); len(got) != 0 {
			t.Error("a deleted message comes back")
		}
		w.SendRaw("old")
		time.Sleep(6 * time.Minute)
		if got := receive(0); len(got) != 0 {
			t.Error("a message outlives its retention")
		}
		_, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("nobody")})
		if c := code(err); c != "AWS.SimpleQueueService.NonExistentQueue" && c != "QueueDoesNotExist" {
			t.Errorf("a queue of nobody: %v", err)
		}
		attributes := must[*sqs.GetQueueAttributesOutput](t)(client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: url, AttributeNames: []sqstypes.QueueAttributeName{"All"}}))
		if attributes.Attributes["QueueArn"] != "arn:aws:sqs:us-east-1:123456789012:demo" {
			t.Errorf("attributes = %v", attributes.Attributes)
		}
	})
}

// A parameter may be named by its ARN, and a policy that allows the parameter allows it by both names.
func TestParametersByARN(t *testing.T) {
	inWorld(t, Config{Identities: map[string]Identity{"CONTROLLER": {ARN: "arn:aws:iam::123456789012:user/karpenter", Policies: [][]byte{[]byte(controller)}}}}, func(t *testing.T, w *harness) {
		client := ssm.NewFromConfig(w.AWSConfigFor("CONTROLLER"))
		const name = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id"
		for _, n := range []string{name, "arn:aws:ssm:us-east-1::parameter" + name} {
			out, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &n})
			if err != nil || !strings.HasPrefix(*out.Parameter.Value, "ami-") {
				t.Errorf("%s: %v", n, err)
			}
		}
		secret := "arn:aws:ssm:us-east-1:123456789012:parameter/secret"
		if _, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &secret}); code(err) != "AccessDeniedException" {
			t.Errorf("a parameter that is not allowed: %v", err)
		}
	})
}

func TestClusterAndCaller(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		client := eks.NewFromConfig(w.AWSConfig())
		got := must[*eks.DescribeClusterOutput](t)(client.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("demo")})).Cluster
		if *got.Version != "1.36" || *got.Endpoint != "https://k8s.example" || *got.CertificateAuthority.Data != "Q0E=" || *got.KubernetesNetworkConfig.ServiceIpv4Cidr != "10.100.0.0/16" {
			t.Errorf("cluster = %+v", got)
		}
		if _, err := client.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("other")}); code(err) != "ResourceNotFoundException" {
			t.Errorf("another cluster: %v", err)
		}
		who := must[*sts.GetCallerIdentityOutput](t)(sts.NewFromConfig(w.AWSConfig()).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}))
		if *who.Account != "123456789012" || *who.Arn != "arn:aws:iam::123456789012:user/admin" {
			t.Errorf("caller = %+v", who)
		}
	})
}

func TestTagsAndFilters(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, w.prepare(t, al2023), odTarget, 3, "m5.large/us-east-1a")))
		ids := out.Instances[0].InstanceIds
		must[*ec2.CreateTagsOutput](t)(w.ec2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: ids[:2], Tags: tagList("Name", "a-"+ids[0])}))
		for what, tc := range map[string]struct {
			name, value string
			want        int
		}{
			"a tag's value": {"tag:pool", "default", 3}, "a tag's value with wildcards": {"tag:Name", "a-i-*", 2}, "a tag's key": {"tag-key", "Name", 2},
			"the fleet that EC2 notes": {"tag-key", "aws:ec2:fleet-id", 3}, "a state": {"instance-state-name", "pending", 3}, "another state": {"instance-state-name", "stopped", 0},
			"an id": {"instance-id", ids[2], 1}, "a zone": {"availability-zone", "us-east-1b", 0},
		} {
			got := must[*ec2.DescribeInstancesOutput](t)(w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{{Name: &tc.name, Values: []string{tc.value}}}}))
			if len(got.Reservations) != tc.want {
				t.Errorf("filtering by %s gives %d, want %d", what, len(got.Reservations), tc.want)
			}
		}
		if _, err := w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{{Name: aws.String("colour"), Values: []string{"red"}}}}); code(err) != "InvalidParameterValue" {
			t.Errorf("an unknown filter: %v", err)
		}
		if _, err := w.ec2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{ids[0], "i-0"}, Tags: tagList("x", "y")}); code(err) != "InvalidInstanceID.NotFound" {
			t.Errorf("tagging nobody: %v", err)
		}
		if _, ok := tagValue(w.world.st.Machines[ids[0]].Now.Tags, "x"); ok {
			t.Error("a call that failed tagged half of its resources")
		}
		must[*ec2.DeleteTagsOutput](t)(w.ec2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: ids[:1], Tags: []ec2types.Tag{{Key: aws.String("Name")}}}))
		volumes := must[*ec2.DescribeVolumesOutput](t)(w.ec2.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{Filters: []ec2types.Filter{{Name: aws.String("attachment.instance-id"), Values: ids[:1]}}}))
		nics := must[*ec2.DescribeNetworkInterfacesOutput](t)(w.ec2.DescribeNetworkInterfaces(t.Context(), &ec2.DescribeNetworkInterfacesInput{Filters: []ec2types.Filter{{Name: aws.String("attachment.instance-id"), Values: ids[:1]}}}))
		if len(volumes.Volumes) != 1 || *volumes.Volumes[0].Size != 20 || len(nics.NetworkInterfaces) != 1 {
			t.Errorf("volumes %+v, interfaces %+v", volumes.Volumes, nics.NetworkInterfaces)
		}
		subnets := must[*ec2.DescribeSubnetsOutput](t)(w.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{{Name: aws.String("availability-zone"), Values: []string{"us-east-1a"}}}}))
		if got := *subnets.Subnets[0].AvailableIpAddressCount; got != 8187-3 {
			t.Errorf("the subnet has %d free addresses, want 3 fewer than 8187", got)
		}
	})
}

func TestStopAndStart(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, w.prepare(t, al2023), odTarget, 1, "m5.large/us-east-1a")))
		ids := out.Instances[0].InstanceIds
		time.Sleep(time.Minute)
		must[*ec2.StopInstancesOutput](t)(w.ec2.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: ids}))
		time.Sleep(time.Minute)
		if got := w.stateOf(t, ids[0]); got != "stopped" {
			t.Errorf("the machine is %s", got)
		}
		must[*ec2.StartInstancesOutput](t)(w.ec2.StartInstances(t.Context(), &ec2.StartInstancesInput{InstanceIds: ids}))
		time.Sleep(time.Minute)
		if got := w.stateOf(t, ids[0]); got != "running" || len(w.joins()) != 2 {
			t.Errorf("the machine is %s after %d joins", got, len(w.joins()))
		}
	})
}

// launchInGroup launches an m5.large of a template, which it makes unless it is there, and returns the code with which that is refused.
func (w *harness) launchInGroup(t *testing.T, template string, d *ec2types.RequestLaunchTemplateData, zone string) string {
	t.Helper()
	if d != nil {
		must[*ec2.CreateLaunchTemplateOutput](t)(w.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: &template, LaunchTemplateData: d}))
	}
	out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, template, odTarget, 1, "m5.large/"+zone)))
	if len(out.Errors) == 0 {
		return ""
	}
	return *out.Errors[0].ErrorCode
}

func TestPlacementGroups(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		w.prepare(t, al2023)
		g := must[*ec2.CreatePlacementGroupOutput](t)(w.ec2.CreatePlacementGroup(t.Context(), &ec2.CreatePlacementGroupInput{GroupName: aws.String("wide"), Strategy: ec2types.PlacementStrategySpread}))
		d := *w.Templates()[0].Data
		d.Placement = &ec2types.LaunchTemplatePlacementRequest{GroupId: g.PlacementGroup.GroupId}
		must[*ec2.CreateLaunchTemplateOutput](t)(w.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("wide"), LaunchTemplateData: &d}))
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, "wide", odTarget, 8, "m5.large/us-east-1a")))
		if len(out.Instances[0].InstanceIds) != 7 || !strings.Contains(*out.Errors[0].ErrorMessage, "limit of 7") {
			t.Errorf("outcome %v", outcome(out))
		}
		d.Placement = &ec2types.LaunchTemplatePlacementRequest{GroupId: g.PlacementGroup.GroupId, Tenancy: ec2types.TenancyDedicated}
		if got := w.launchInGroup(t, "own", &d, "us-east-1b"); got != "InvalidParameterCombination" {
			t.Errorf("a dedicated machine in a spread group: %s", got)
		}
		d.Placement = &ec2types.LaunchTemplatePlacementRequest{GroupId: g.PlacementGroup.GroupId, PartitionNumber: aws.Int32(1)}
		if got := w.launchInGroup(t, "part", &d, "us-east-1b"); got != "InvalidParameterCombination" {
			t.Errorf("a partition of a spread group: %s", got)
		}

		near := must[*ec2.CreatePlacementGroupOutput](t)(w.ec2.CreatePlacementGroup(t.Context(), &ec2.CreatePlacementGroupInput{GroupName: aws.String("near"), Strategy: ec2types.PlacementStrategyCluster}))
		d.Placement = &ec2types.LaunchTemplatePlacementRequest{GroupId: near.PlacementGroup.GroupId}
		if first, second := w.launchInGroup(t, "near", &d, "us-east-1a"), w.launchInGroup(t, "near", nil, "us-east-1b"); first != "" || second != "InvalidPlacementGroup.InUse" {
			t.Errorf("a cluster group in one zone and in another: %q, %q", first, second)
		}

		parts := must[*ec2.CreatePlacementGroupOutput](t)(w.ec2.CreatePlacementGroup(t.Context(), &ec2.CreatePlacementGroupInput{GroupName: aws.String("parts"), Strategy: ec2types.PlacementStrategyPartition}))
		d.Placement = &ec2types.LaunchTemplatePlacementRequest{GroupId: parts.PlacementGroup.GroupId}
		w.launchInGroup(t, "parts", &d, "us-east-1a")
		w.launchInGroup(t, "parts", nil, "us-east-1a")
		var numbers []int32
		for _, r := range must[*ec2.DescribeInstancesOutput](t)(w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})).Reservations {
			if p := r.Instances[0].Placement; aws.ToString(p.GroupId) == *parts.PlacementGroup.GroupId {
				numbers = append(numbers, aws.ToInt32(p.PartitionNumber))
			}
		}
		slices.Sort(numbers)
		if !slices.Equal(numbers, []int32{1, 2}) {
			t.Errorf("machines that name no partition are in %v, want one in each", numbers)
		}
		if _, err := w.ec2.CreatePlacementGroup(t.Context(), &ec2.CreatePlacementGroupInput{
			GroupName: aws.String("eight"), Strategy: ec2types.PlacementStrategyPartition, PartitionCount: aws.Int32(8),
		}); code(err) != "InvalidParameterValue" {
			t.Errorf("eight partitions: %v", err)
		}
		if _, err := w.ec2.DescribePlacementGroups(t.Context(), &ec2.DescribePlacementGroupsInput{GroupNames: []string{"nobody"}}); code(err) != "InvalidPlacementGroup.Unknown" {
			t.Errorf("a group of nobody: %v", err)
		}
	})
}
