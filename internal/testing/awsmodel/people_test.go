package awsmodel

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// What people look at with the aws command, and what they change by hand.
func TestWhatPeopleAskEC2(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		ctx := t.Context()
		template := w.prepare(t, al2023)
		made := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(ctx, w.fleetOf(t, template, spotTarget, 1, "m5.large/us-east-1a")))
		machine := made.Instances[0].InstanceIds[0]

		tags := must[*ec2.DescribeTagsOutput](t)(w.ec2.DescribeTags(ctx, &ec2.DescribeTagsInput{Filters: []ec2types.Filter{
			{Name: aws.String("resource-id"), Values: []string{machine}}, {Name: aws.String("key"), Values: []string{"pool"}},
		}})).Tags
		if len(tags) != 1 || *tags[0].Value != "default" || tags[0].ResourceType != ec2types.ResourceTypeInstance {
			t.Errorf("tags of the machine: %+v", tags)
		}
		data := must[*ec2.DescribeInstanceAttributeOutput](t)(w.ec2.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{
			InstanceId: &machine, Attribute: ec2types.InstanceAttributeNameUserData,
		})).UserData
		if text, err := base64.StdEncoding.DecodeString(*data.Value); err != nil || string(text) != al2023 {
			t.Errorf("user data = %q, %v", text, err)
		}
		fleets := must[*ec2.DescribeFleetsOutput](t)(w.ec2.DescribeFleets(ctx, &ec2.DescribeFleetsInput{FleetIds: []string{*made.FleetId}})).Fleets
		if len(fleets) != 1 || len(fleets[0].Instances) != 1 || fleets[0].Instances[0].Lifecycle != "spot" {
			t.Errorf("fleets = %+v", fleets)
		}
		if _, err := w.ec2.DescribeFleets(ctx, &ec2.DescribeFleetsInput{FleetIds: []string{"fleet-0"}}); code(err) != "InvalidFleetId.NotFound" {
			t.Errorf("a fleet that is not there: %v", err)
		}
		versions := must[*ec2.DescribeLaunchTemplateVersionsOutput](t)(w.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{Versions: []string{"$Latest"}})).LaunchTemplateVersions
		if len(versions) != 1 || *versions[0].LaunchTemplateName != template {
			t.Errorf("templates = %+v", versions)
		}
		if _, err := w.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{}); code(err) != "MissingParameter" {
			t.Errorf("versions of nothing: %v", err)
		}
		if _, err := w.ec2.RebootInstances(ctx, &ec2.RebootInstancesInput{InstanceIds: []string{machine}}); code(err) != "IncorrectInstanceState" {
			t.Errorf("reboot before it runs: %v", err)
		}
		time.Sleep(time.Minute)
		must[*ec2.RebootInstancesOutput](t)(w.ec2.RebootInstances(ctx, &ec2.RebootInstancesInput{InstanceIds: []string{machine}}))

		subnet := w.subnetIn(t, "us-east-1a")
		must[*ec2.ModifySubnetAttributeOutput](t)(w.ec2.ModifySubnetAttribute(ctx, &ec2.ModifySubnetAttributeInput{SubnetId: &subnet, MapPublicIpOnLaunch: &ec2types.AttributeBooleanValue{Value: aws.Bool(true)}}))
		if s := must[*ec2.DescribeSubnetsOutput](t)(w.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{subnet}})).Subnets[0]; !*s.MapPublicIpOnLaunch {
			t.Error("the subnet gives no public addresses")
		}
	})
}

func TestWhatPeopleMakeInEC2(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		ctx := t.Context()
		group := &ec2.CreateSecurityGroupInput{GroupName: aws.String("more"), Description: aws.String("x"), TagSpecifications: []ec2types.TagSpecification{
			{ResourceType: ec2types.ResourceTypeSecurityGroup, Tags: tagList(discoveryTag, "demo")},
		}}
		must[*ec2.CreateSecurityGroupOutput](t)(w.ec2.CreateSecurityGroup(ctx, group))
		if _, err := w.ec2.CreateSecurityGroup(ctx, group); code(err) != "InvalidGroup.Duplicate" {
			t.Errorf("a second group of the name: %v", err)
		}
		groups := must[*ec2.DescribeSecurityGroupsOutput](t)(w.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{
			Filters: []ec2types.Filter{{Name: aws.String("tag:" + discoveryTag), Values: []string{"demo"}}},
		})).SecurityGroups
		if len(groups) != 2 {
			t.Errorf("%d groups can be discovered, want the cluster's and the new one", len(groups))
		}
		source := w.newest(t, "x86_64")
		copied := must[*ec2.CopyImageOutput](t)(w.ec2.CopyImage(ctx, &ec2.CopyImageInput{Name: aws.String("mine"), SourceImageId: &source, SourceRegion: aws.String("us-east-1")})).ImageId
		must[*ec2.EnableImageDeprecationOutput](t)(w.ec2.EnableImageDeprecation(ctx, &ec2.EnableImageDeprecationInput{ImageId: copied, DeprecateAt: aws.Time(time.Now())}))
		image := must[*ec2.DescribeImagesOutput](t)(w.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{*copied}, IncludeDeprecated: aws.Bool(true)})).Images[0]
		if *image.Name != "mine" || *image.OwnerId != "123456789012" || image.DeprecationTime == nil || image.Architecture != "x86_64" {
			t.Errorf("the copy is %+v", image)
		}
		if _, err := w.ec2.EnableImageDeprecation(ctx, &ec2.EnableImageDeprecationInput{ImageId: &source, DeprecateAt: aws.Time(time.Now())}); code(err) != "AuthFailure" {
			t.Errorf("deprecating somebody's image: %v", err)
		}
	})
}

// The aws command before 2.13 and the SDKs of its time speak to SQS in forms and XML.
func TestQueuesInTheOlderProtocol(t *testing.T) {
	c, err := New(Config{Cluster: demo})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	ask := func(values ...string) (int, string) {
		t.Helper()
		form := url.Values{"Version": {"2012-11-05"}}
		for i := 0; i < len(values); i += 2 {
			form.Set(values[i], values[i+1])
		}
		answer, err := http.PostForm(server.URL, form)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	queue := c.world.queueURL("demo")
	for _, step := range []struct {
		ask  []string
		want []string // in the answer
	}{
		{[]string{"Action", "GetQueueUrl", "QueueName", "demo"}, []string{"<GetQueueUrlResult><QueueUrl>" + queue + "</QueueUrl></GetQueueUrlResult>"}},
		{[]string{"Action", "GetQueueUrl", "QueueName", "nobody"}, []string{"<Code>AWS.SimpleQueueService.NonExistentQueue</Code>"}},
		{[]string{"Action", "CreateQueue", "QueueName", "b"}, []string{"/b</QueueUrl>"}},
		{[]string{"Action", "ListQueues"}, []string{"<ListQueuesResult><QueueUrl>", "/b</QueueUrl><QueueUrl>", "/demo</QueueUrl></ListQueuesResult>"}},
		{[]string{"Action", "SendMessage", "QueueUrl", queue, "MessageBody", "<hello>", "MessageAttribute.1.Name", "kind", "MessageAttribute.1.Value.DataType", "String", "MessageAttribute.1.Value.StringValue", "test"},
			[]string{"<MD5OfMessageBody>", "<MessageId>"}},
		{[]string{"Action", "ReceiveMessage", "QueueUrl", queue, "AttributeName.1", "All", "MessageAttributeName.1", "All", "MaxNumberOfMessages", "10"},
			[]string{"<ReceiveMessageResult><Message>", "<Body>&lt;hello&gt;</Body>", "<Attribute><Name>ApproximateReceiveCount</Name><Value>1</Value></Attribute>",
				"<MessageAttribute><Name>kind</Name><Value><DataType>String</DataType><StringValue>test</StringValue></Value></MessageAttribute>", "<ReceiptHandle>"}},
		{[]string{"Action", "GetQueueAttributes", "QueueUrl", queue, "AttributeName.1", "QueueArn"}, []string{"<Attribute><Name>QueueArn</Name><Value>arn:aws:sqs:us-east-1:123456789012:demo</Value></Attribute>"}},
		{[]string{"Action", "ReceiveMessage", "QueueUrl", queue, "Nonsense", "1"}, []string{"Nonsense"}},
	} {
		status, body := ask(step.ask...)
		for _, want := range step.want {
			if !strings.Contains(body, want) {
				t.Errorf("%v: %d %s\nwant %s", step.ask, status, body, want)
			}
		}
	}
}
