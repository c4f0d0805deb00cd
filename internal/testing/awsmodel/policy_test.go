package awsmodel

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
)

func TestPolicyEvaluation(t *testing.T) {
	tagged := map[string][]string{"aws:RequestTag/owner": {"me"}, "aws:TagKeys": {"owner", "Name"}, "aws:RequestedRegion": {"us-east-1"}}
	for name, tc := range map[string]struct {
		statements string
		action     string
		want       verdict
	}{
		"nothing allows":                     {`[]`, "ec2:RunInstances", notAllowed},
		"an action allowed by name":          {`{"Effect":"Allow","Action":"ec2:RunInstances","Resource":"*"}`, "ec2:RunInstances", allowed},
		"actions are compared without case":  {`{"Effect":"Allow","Action":"EC2:runinstances","Resource":"*"}`, "ec2:RunInstances", allowed},
		"an action allowed by pattern":       {`{"Effect":"Allow","Action":["ec2:Describe*"],"Resource":"*"}`, "ec2:DescribeImages", allowed},
		"another service":                    {`{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`, "iam:PassRole", notAllowed},
		"a denial wins":                      {`[{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":"ec2:RunInstances","Resource":"*"}]`, "ec2:RunInstances", denied},
		"all but one action":                 {`{"Effect":"Allow","NotAction":"iam:*","Resource":"*"}`, "ec2:RunInstances", allowed},
		"a resource by pattern":              {`{"Effect":"Allow","Action":"*","Resource":"arn:aws:ec2:*:*:instance/*"}`, "ec2:RunInstances", allowed},
		"another resource":                   {`{"Effect":"Allow","Action":"*","Resource":"arn:aws:ec2:*:*:volume/*"}`, "ec2:RunInstances", notAllowed},
		"a tag that is right":                {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:RequestTag/owner":"me"}}}`, "a:b", allowed},
		"a tag that is wrong":                {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:RequestTag/owner":["you","him"]}}}`, "a:b", notAllowed},
		"a tag that is missing":              {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringLike":{"aws:RequestTag/other":"*"}}}`, "a:b", notAllowed},
		"a tag that may be missing":          {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEqualsIfExists":{"aws:RequestTag/other":"x"}}}`, "a:b", allowed},
		"every tag key is listed":            {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"ForAllValues:StringEquals":{"aws:TagKeys":["Name","owner","more"]}}}`, "a:b", allowed},
		"one tag key is not":                 {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"ForAllValues:StringEquals":{"aws:TagKeys":["Name"]}}}`, "a:b", notAllowed},
		"some tag key is listed":             {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"ForAnyValue:StringEquals":{"aws:TagKeys":["Name"]}}}`, "a:b", allowed},
		"something else than this":           {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringNotEquals":{"aws:RequestTag/owner":"me"}}}`, "a:b", notAllowed},
		"a key that must be missing, is":     {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"Null":{"aws:RequestTag/other":"true"}}}`, "a:b", allowed},
		"a key that must be missing, is not": {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"Null":{"aws:RequestTag/owner":"true"}}}`, "a:b", notAllowed},
		"all conditions must hold":           {`{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:RequestTag/owner":"me","aws:RequestedRegion":"eu-west-2"}}}`, "a:b", notAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := parsePolicy([]byte(`{"Version":"2012-10-17","Statement":` + tc.statements + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if got := judge([]policy{p}, need{tc.action, "arn:aws:ec2:us-east-1:123456789012:instance/*", tagged}); got != tc.want {
				t.Errorf("verdict %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPolicyThatCannotBeJudgedIsRefused(t *testing.T) {
	for name, statement := range map[string]string{
		"an effect that is none":        `{"Effect":"Maybe","Action":"*","Resource":"*"}`,
		"a statement without action":    `{"Effect":"Allow","Resource":"*"}`,
		"an operator that is not known": `{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"DateLessThan":{"aws:CurrentTime":"2026"}}}`,
	} {
		if _, err := parsePolicy([]byte(`{"Statement":` + statement + `}`)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// controller is a small policy of the kind that a controller has: it may launch only with its tag, and touch only what has it.
const controller = `{"Version":"2012-10-17","Statement":[
 {"Sid":"Use","Effect":"Allow","Action":["ec2:RunInstances","ec2:CreateFleet"],"Resource":["arn:aws:ec2:us-east-1::image/*","arn:aws:ec2:us-east-1:*:security-group/*","arn:aws:ec2:us-east-1:*:subnet/*"]},
 {"Sid":"Template","Effect":"Allow","Action":["ec2:RunInstances","ec2:CreateFleet"],"Resource":"arn:aws:ec2:us-east-1:*:launch-template/*","Condition":{"StringEquals":{"aws:ResourceTag/owner":"test"}}},
 {"Sid":"Make","Effect":"Allow","Action":["ec2:RunInstances","ec2:CreateFleet","ec2:CreateLaunchTemplate"],
  "Resource":["arn:aws:ec2:us-east-1:*:fleet/*","arn:aws:ec2:us-east-1:*:instance/*","arn:aws:ec2:us-east-1:*:volume/*","arn:aws:ec2:us-east-1:*:network-interface/*","arn:aws:ec2:us-east-1:*:launch-template/*","arn:aws:ec2:us-east-1:*:spot-instances-request/*"],
  "Condition":{"StringEquals":{"aws:RequestTag/owner":"test"}}},
 {"Sid":"Tag","Effect":"Allow","Action":"ec2:CreateTags","Resource":["arn:aws:ec2:us-east-1:*:fleet/*","arn:aws:ec2:us-east-1:*:instance/*","arn:aws:ec2:us-east-1:*:volume/*","arn:aws:ec2:us-east-1:*:network-interface/*","arn:aws:ec2:us-east-1:*:launch-template/*","arn:aws:ec2:us-east-1:*:spot-instances-request/*"],
  "Condition":{"StringEquals":{"aws:RequestTag/owner":"test","ec2:CreateAction":["RunInstances","CreateFleet","CreateLaunchTemplate"]}}},
 {"Sid":"Retag","Effect":"Allow","Action":"ec2:CreateTags","Resource":"arn:aws:ec2:us-east-1:*:instance/*","Condition":{"StringEquals":{"aws:ResourceTag/owner":"test"},"ForAllValues:StringEquals":{"aws:TagKeys":["Name"]}}},
 {"Sid":"End","Effect":"Allow","Action":["ec2:TerminateInstances","ec2:DeleteLaunchTemplate"],"Resource":["arn:aws:ec2:us-east-1:*:instance/*","arn:aws:ec2:us-east-1:*:launch-template/*"],"Condition":{"StringEquals":{"aws:ResourceTag/owner":"test"}}},
 {"Sid":"Pass","Effect":"Allow","Action":"iam:PassRole","Resource":"arn:aws:iam::123456789012:role/KarpenterNodeRole-demo","Condition":{"StringEquals":{"iam:PassedToService":"ec2.amazonaws.com"}}},
 {"Sid":"Profile","Effect":"Allow","Action":["iam:CreateInstanceProfile","iam:TagInstanceProfile"],"Resource":"arn:aws:iam::123456789012:instance-profile/*","Condition":{"StringEquals":{"aws:RequestTag/owner":"test"}}},
 {"Sid":"Read","Effect":"Allow","Action":["ec2:Describe*"],"Resource":"*","Condition":{"StringEquals":{"aws:RequestedRegion":"us-east-1"}}},
 {"Sid":"Parameter","Effect":"Allow","Action":"ssm:GetParameter","Resource":"arn:aws:ssm:us-east-1::parameter/aws/service/*"},
 {"Sid":"Queue","Effect":"Allow","Action":["sqs:GetQueueUrl","sqs:ReceiveMessage"],"Resource":"arn:aws:sqs:us-east-1:123456789012:demo"}
]}`

func TestPolicyIsEnforcedOnEveryPartOfALaunch(t *testing.T) {
	owned := func(kinds ...ec2types.ResourceType) (out []ec2types.TagSpecification) {
		for _, k := range kinds {
			out = append(out, ec2types.TagSpecification{ResourceType: k, Tags: tagList("owner", "test")})
		}
		return out
	}
	all := []ec2types.ResourceType{"fleet", "instance", "volume", "network-interface", "spot-instances-request"}
	for name, tc := range map[string]struct {
		tags []ec2types.ResourceType
		role string
		want string // in the message
	}{
		"everything tagged":            {all, "KarpenterNodeRole-demo", ""},
		"an untagged fleet":            {all[1:], "KarpenterNodeRole-demo", "ec2:CreateFleet on resource: arn:aws:ec2:us-east-1:123456789012:fleet/*"},
		"an untagged volume":           {[]ec2types.ResourceType{"fleet", "instance", "network-interface", "spot-instances-request"}, "KarpenterNodeRole-demo", "ec2:RunInstances on resource: arn:aws:ec2:us-east-1:123456789012:volume/*"},
		"an untagged spot request":     {all[:4], "KarpenterNodeRole-demo", "spot-instances-request/*"},
		"a role that is not passed on": {all, "Admin", "iam:PassRole on resource: arn:aws:iam::123456789012:role/Admin"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{Identities: map[string]Identity{"CONTROLLER": {ARN: "arn:aws:sts::123456789012:assumed-role/karpenter/x", Policies: [][]byte{[]byte(controller)}}}}, func(t *testing.T, w *harness) {
				in := w.fleetOf(t, w.prepare(t, al2023), spotTarget, 1, "m5.large/us-east-1a")
				in.TagSpecifications = owned(tc.tags...)
				w.AddRole("Admin")
				w.world.st.Profiles["nodes"].Role = tc.role
				client := ec2.NewFromConfig(w.AWSConfigFor("CONTROLLER"))
				_, err := client.CreateFleet(t.Context(), in)
				if tc.want == "" {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				if code(err) != "UnauthorizedOperation" || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "Encoded authorization failure message: ") {
					t.Errorf("error %v, want one about %s", err, tc.want)
				}
				if len(w.Machines()) != 0 {
					t.Error("a call that is denied launched a machine")
				}
			})
		})
	}
}

func TestEveryServiceDeniesInItsOwnShape(t *testing.T) {
	inWorld(t, Config{Identities: map[string]Identity{"CONTROLLER": {ARN: "arn:aws:iam::123456789012:user/karpenter", Policies: [][]byte{[]byte(controller)}}}}, func(t *testing.T, w *harness) {
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, w.prepare(t, al2023), odTarget, 1, "m5.large/us-east-1a")))
		id := out.Instances[0].InstanceIds[0] // made by an administrator, without the controller's tag
		cfg := w.AWSConfigFor("CONTROLLER")
		ctx := t.Context()
		for name, tc := range map[string]struct {
			call func() error
			want string
		}{
			"terminating another's machine": {func() error {
				_, err := ec2.NewFromConfig(cfg).TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
				return err
			}, "UnauthorizedOperation"},
			"tagging another's machine": {func() error {
				_, err := ec2.NewFromConfig(cfg).CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: tagList("Name", "x")})
				return err
			}, "UnauthorizedOperation"},
			"deleting its own template": {func() error {
				_, err := ec2.NewFromConfig(cfg).DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String("nodes")})
				return err
			}, ""},
			"a dry run of what it may not do": {func() error {
				_, err := ec2.NewFromConfig(cfg).CreatePlacementGroup(ctx, &ec2.CreatePlacementGroupInput{GroupName: aws.String("g"), DryRun: aws.Bool(true)})
				return err
			}, "UnauthorizedOperation"},
			"a dry run of what it may do": {func() error {
				_, err := ec2.NewFromConfig(cfg).DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{DryRun: aws.Bool(true)})
				return err
			}, "DryRunOperation"},
			"an untagged profile": {func() error {
				_, err := iam.NewFromConfig(cfg).CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String("a")})
				return err
			}, "AccessDenied"},
			"a tagged profile": {func() error {
				_, err := iam.NewFromConfig(cfg).CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String("b"), Tags: []iamtypes.Tag{{Key: aws.String("owner"), Value: aws.String("test")}}})
				return err
			}, ""},
			"a parameter of the account's own": {func() error {
				_, err := ssm.NewFromConfig(cfg).GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String("/mine")})
				return err
			}, "AccessDeniedException"},
			"a cluster": {func() error {
				_, err := eks.NewFromConfig(cfg).DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String("demo")})
				return err
			}, "AccessDeniedException"},
			"the queue, to read its name": {func() error {
				_, err := sqs.NewFromConfig(cfg).GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("demo")})
				return err
			}, ""},
			"the queue, to send": {func() error {
				_, err := sqs.NewFromConfig(cfg).SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: aws.String(w.world.queueURL("demo")), MessageBody: aws.String("x")})
				return err
			}, "AccessDeniedException"},
		} {
			if err := tc.call(); code(err) != tc.want {
				t.Errorf("%s: %v, want %q", name, err, tc.want)
			}
		}
	})
}

func TestBoundaryLimitsWhatPoliciesAllow(t *testing.T) {
	everything := []byte(`{"Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}`)
	boundary := []byte(`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*"}}`)
	inWorld(t, Config{Identities: map[string]Identity{"K": {ARN: "arn:aws:iam::123456789012:role/k", Policies: [][]byte{everything}, Boundary: boundary}}}, func(t *testing.T, w *harness) {
		must[*ec2.DescribeVpcsOutput](t)(ec2.NewFromConfig(w.AWSConfigFor("K")).DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}))
		_, err := iam.NewFromConfig(w.AWSConfigFor("K")).GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("x")})
		if code(err) != "AccessDenied" || !strings.Contains(err.Error(), "no permissions boundary allows") {
			t.Errorf("error %v", err)
		}
	})
}

// FuzzParsePolicy looks for documents that are accepted but cannot be judged.
func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(controller))
	f.Add([]byte(`{"Statement":{"Effect":"Deny","NotAction":["a:b"],"NotResource":"*","Condition":{"ForAllValues:StringNotLikeIfExists":{"x":[true]}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if p, err := parsePolicy(raw); err == nil {
			judge([]policy{p}, need{"ec2:RunInstances", "*", map[string][]string{"x": {"y"}, "aws:TagKeys": {"a", "b"}}})
		}
	})
}
