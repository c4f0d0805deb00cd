package policy

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"

	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// What a controller's key would be good for in the wrong hands: everything here must be denied. Some tags are ours, in each case
// not all of them, or not with our value.
var (
	cluster  = tag{"kubernetes.io/cluster/demo", "owned"}
	eksName  = tag{"eks:eks-cluster-name", "demo"}
	pool     = tag{"karpenter.sh/nodepool", "default"}
	class    = tag{"karpenter.k8s.aws/ec2nodeclass", "default"}
	region   = tag{"topology.kubernetes.io/region", "us-east-1"}
	foreign  = tag{"kubernetes.io/cluster/other", "owned"}
	older    = tag{"karpenter.sh/provisioner-name", "web"}
	machines = [][]tag{{}, {cluster}, {pool, foreign}, {older, foreign}}
	profiles = [][]tag{{}, {cluster, region}, {cluster, class}, {class, region, foreign}}
)

type tag struct{ key, value string }

// An account has things of others in it, made anew for each caller that is tried.
type account struct {
	*awsmodel.Cloud
	t        *testing.T
	name     string // of the caller; keeps the names of things apart
	template string // its own launch template
	machine  string // its own
	others   []string
	profiles []string // of others
	profile  string   // its own
}

// A theft is a request that only somebody else would make.
type theft struct {
	name string
	try  func(a *account, caller aws.Config) error
}

func thefts() []theft {
	var out []theft
	add := func(name string, try func(a *account, caller aws.Config) error) { out = append(out, theft{name, try}) }
	for i, tags := range machines {
		add(fmt.Sprintf("terminate a machine tagged %v", tags), func(a *account, caller aws.Config) error {
			_, err := ec2.NewFromConfig(caller).TerminateInstances(a.t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{a.others[i]}, DryRun: aws.Bool(true)})
			return err
		})
		add(fmt.Sprintf("rename a machine tagged %v", tags), func(a *account, caller aws.Config) error { return a.tag(caller, a.others[i], tag{"Name", "x"}) })
		add(fmt.Sprintf("make a machine tagged %v ours", tags), func(a *account, caller aws.Config) error {
			return a.tag(caller, a.others[i], cluster, eksName, pool)
		})
		add(fmt.Sprintf("take over a machine tagged %v", tags), func(a *account, caller aws.Config) error { return a.tag(caller, a.others[i], eksName, pool) })
		add(fmt.Sprintf("launch from a template tagged %v", tags), func(a *account, caller aws.Config) error {
			return a.launch(caller, a.makeTemplate(fmt.Sprintf("%s-theirs-%d", a.name, i), tags), cluster, eksName, pool)
		})
	}
	for _, tags := range [][]tag{{}, {eksName, pool}, {cluster, pool}, {cluster, eksName}} {
		add(fmt.Sprintf("launch with tags %v", tags), func(a *account, caller aws.Config) error { return a.launch(caller, a.template, tags...) })
		add(fmt.Sprintf("make a template with tags %v", tags), func(a *account, caller aws.Config) error {
			_, err := ec2.NewFromConfig(caller).CreateLaunchTemplate(a.t.Context(), &ec2.CreateLaunchTemplateInput{
				LaunchTemplateName: aws.String(a.name + "-new"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: "m5.large"},
				TagSpecifications: specify(tags, ec2types.ResourceTypeLaunchTemplate), DryRun: aws.Bool(true),
			})
			return err
		})
	}
	add("put a tag of its own choice on its machine", func(a *account, caller aws.Config) error { return a.tag(caller, a.machine, tag{"team", "x"}) })
	add("move its machine to another cluster", func(a *account, caller aws.Config) error {
		return a.tag(caller, a.machine, tag{eksName.key, "other"})
	})
	add("rename its template", func(a *account, caller aws.Config) error { return a.tag(caller, a.templateID(), tag{"Name", "x"}) })
	for i, tags := range profiles {
		in := func(a *account) *string { return &a.profiles[i] }
		add(fmt.Sprintf("take the role out of a profile tagged %v", tags), func(a *account, caller aws.Config) error {
			_, err := iam.NewFromConfig(caller).RemoveRoleFromInstanceProfile(a.t.Context(), &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: in(a), RoleName: aws.String(nodeRole)})
			return err
		})
		add(fmt.Sprintf("claim a profile tagged %v", tags), func(a *account, caller aws.Config) error {
			_, err := iam.NewFromConfig(caller).TagInstanceProfile(a.t.Context(), &iam.TagInstanceProfileInput{InstanceProfileName: in(a), Tags: iamTags([]tag{cluster, eksName, region, class})})
			return err
		})
	}
	for i, tags := range [][]tag{{eksName, region, class}, {cluster, region, class}, {cluster, eksName, class}, {cluster, eksName, region}} {
		add(fmt.Sprintf("make a profile with tags %v", tags), func(a *account, caller aws.Config) error {
			_, err := iam.NewFromConfig(caller).CreateInstanceProfile(a.t.Context(), &iam.CreateInstanceProfileInput{
				InstanceProfileName: aws.String(fmt.Sprintf("%s-new-%d", a.name, i)), Tags: iamTags(tags),
			})
			return err
		})
		add(fmt.Sprintf("tag its profile with %v", tags), func(a *account, caller aws.Config) error {
			_, err := iam.NewFromConfig(caller).TagInstanceProfile(a.t.Context(), &iam.TagInstanceProfileInput{InstanceProfileName: &a.profile, Tags: iamTags(tags)})
			return err
		})
	}
	add("give machines another role", func(a *account, caller aws.Config) error {
		_, err := iam.NewFromConfig(caller).AddRoleToInstanceProfile(a.t.Context(), &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &a.profile, RoleName: aws.String("Admin")})
		return err
	})
	add("read somebody's queue", func(a *account, caller aws.Config) error {
		_, err := sqs.NewFromConfig(caller).GetQueueUrl(a.t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("orders")})
		return err
	})
	add("read a secret", func(a *account, caller aws.Config) error {
		_, err := ssm.NewFromConfig(caller).GetParameter(a.t.Context(), &ssm.GetParameterInput{Name: aws.String("/prod/password")})
		return err
	})
	add("look at the shifts of something else", func(a *account, caller aws.Config) error {
		_, err := arczonalshift.NewFromConfig(caller).GetManagedResource(a.t.Context(), &arczonalshift.GetManagedResourceInput{
			ResourceIdentifier: aws.String("arn:aws:eks:us-east-1:123456789012:cluster/other"),
		})
		return err
	})
	add("look at another cluster", func(a *account, caller aws.Config) error {
		_, err := eks.NewFromConfig(caller).DescribeCluster(a.t.Context(), &eks.DescribeClusterInput{Name: aws.String("other")})
		return err
	})
	return out
}

const nodeRole = "KarpenterNodeRole-demo"

// The policies deny every theft; and each key of a condition, and each resource that is not held by a condition, is there for a
// reason: without it, some theft succeeds. What is made with tags is held by two statements, one for making and one for tagging:
// there the key must matter once both lack it.
func TestPoliciesAllowNoMore(t *testing.T) {
	docs, err := Documents(Names{"aws", "us-east-1", "123456789012", "demo", nodeRole, "demo"})
	if err != nil {
		t.Fatal(err)
	}
	const shipped = "shipped"
	weakenings := weakened(t, docs)
	identities := map[string]awsmodel.Identity{}
	add := func(name string, policies map[string][]byte) {
		identities[name] = awsmodel.Identity{ARN: "arn:aws:sts::123456789012:assumed-role/karpenter/x", Policies: slices.Collect(maps.Values(policies))}
	}
	add(shipped, docs)
	for _, w := range weakenings {
		add(w.name, w.alone)
		add(w.name+everywhere, w.all)
	}
	synctest.Test(t, func(t *testing.T) {
		cloud, err := awsmodel.New(awsmodel.Config{Cluster: awsmodel.Cluster{Name: "demo"}, Types: []string{"m5.large"}, Identities: identities})
		if err != nil {
			t.Fatal(err)
		}
		cloud.AddRole("Admin")
		succeeding := func(caller, account string) (names []string) {
			a := newAccount(t, cloud, account)
			for _, theft := range thefts() {
				if err := theft.try(a, cloud.AWSConfigFor(caller)); !denied(err) {
					names = append(names, theft.name)
				}
			}
			return names
		}
		if names := succeeding(shipped, shipped); len(names) > 0 {
			t.Errorf("allowed: %s", strings.Join(names, "; "))
		}
		for i, w := range weakenings {
			gained := succeeding(w.name, fmt.Sprintf("alone-%d", i))
			if len(gained) == 0 {
				gained = succeeding(w.name+everywhere, fmt.Sprintf("all-%d", i))
			}
			if reason, excused := untried[w.name]; (len(gained) > 0) == excused {
				t.Errorf("%s: %d thefts succeed by it (%s); either it is not needed, or a request is missing here", w.name, len(gained), reason)
			}
		}
	})
}

// untried are the places whose weakening the model of AWS has no theft for, and why.
var untried = map[string]string{
	"AllowInstanceProfileReadActions: any resource":                      "there is nothing else to read by that action",
	"AllowPassingInstanceRole: without StringEquals iam:PassedToService": "the model has no other service that takes a role",
	"AllowRegionalReadActions: without StringEquals aws:RequestedRegion": "the model has one region",
}

const everywhere = " in every statement" // a name is an access key too, and ends at a comma

// A weakening is the policies with one thing less: in one statement, and in all of its document.
type weakening struct {
	name       string
	alone, all map[string][]byte
}

// weakened returns every weakening there is.
func weakened(t *testing.T, docs map[string][]byte) []weakening {
	t.Helper()
	var out []weakening
	for _, doc := range slices.Sorted(maps.Keys(docs)) {
		// without returns all policies, changed in the statements of doc that are meant.
		without := func(meant func(sid string) bool, change func(statement map[string]any)) map[string][]byte {
			var policy struct {
				Version   string
				Statement []map[string]any
			}
			if err := json.Unmarshal(docs[doc], &policy); err != nil {
				t.Fatal(err)
			}
			for _, s := range policy.Statement {
				if meant(s["Sid"].(string)) {
					change(s)
				}
			}
			text, err := json.Marshal(policy)
			if err != nil {
				t.Fatal(err)
			}
			changed := maps.Clone(docs)
			changed[doc] = text
			return changed
		}
		var policy struct {
			Statement []struct {
				Sid       string
				Resource  []string
				Condition map[string]map[string]any
			}
		}
		if err := json.Unmarshal(docs[doc], &policy); err != nil {
			t.Fatal(err)
		}
		for _, s := range policy.Statement {
			this, each := func(sid string) bool { return sid == s.Sid }, func(string) bool { return true }
			if len(s.Condition) == 0 && !slices.Equal(s.Resource, []string{"*"}) || s.Sid == "AllowPassingInstanceRole" {
				widen := func(statement map[string]any) { statement["Resource"] = "*" }
				out = append(out, weakening{s.Sid + ": any resource", without(this, widen), without(this, widen)})
			}
			for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
				for _, key := range slices.Sorted(maps.Keys(s.Condition[operator])) {
					drop := func(statement map[string]any) {
						conditions, _ := statement["Condition"].(map[string]any)
						keys, _ := conditions[operator].(map[string]any)
						delete(keys, key)
						if len(keys) == 0 {
							delete(conditions, operator)
						}
					}
					out = append(out, weakening{fmt.Sprintf("%s: without %s %s", s.Sid, operator, key), without(this, drop), without(each, drop)})
				}
			}
		}
	}
	return out
}

func denied(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && slices.Contains([]string{"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}, api.ErrorCode())
}

// newAccount makes what a caller has, and what others have.
func newAccount(t *testing.T, cloud *awsmodel.Cloud, name string) *account {
	t.Helper()
	a := &account{Cloud: cloud, t: t, name: name, profile: name + "-own"}
	a.makeProfile(a.profile, []tag{cluster, eksName, region, class})
	a.template = a.makeTemplate(name+"-own", []tag{cluster, eksName, pool})
	a.machine = a.makeMachine([]tag{cluster, eksName, pool})
	for _, tags := range machines {
		a.others = append(a.others, a.makeMachine(tags))
	}
	for i, tags := range profiles {
		a.profiles = append(a.profiles, fmt.Sprintf("%s-theirs-%d", name, i))
		a.makeProfile(a.profiles[i], tags)
	}
	return a
}

func (a *account) ec2() *ec2.Client { return ec2.NewFromConfig(a.AWSConfig()) }

func (a *account) check(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *account) makeProfile(name string, tags []tag) {
	a.t.Helper()
	client := iam.NewFromConfig(a.AWSConfig())
	_, err := client.CreateInstanceProfile(a.t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: &name, Tags: iamTags(tags)})
	a.check(err)
	if name != a.profile { // its own gets the role that a theft wants to give it
		_, err = client.AddRoleToInstanceProfile(a.t.Context(), &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &name, RoleName: aws.String(nodeRole)})
		a.check(err)
	}
}

// image returns any image, and subnet any subnet.
func (a *account) image() *string {
	a.t.Helper()
	out, err := a.ec2().DescribeImages(a.t.Context(), &ec2.DescribeImagesInput{Owners: []string{"amazon"}, Filters: []ec2types.Filter{
		{Name: aws.String("architecture"), Values: []string{"x86_64"}}, {Name: aws.String("name"), Values: []string{"amazon-eks-node-al2023-*"}},
	}})
	a.check(err)
	return out.Images[0].ImageId
}

func (a *account) subnet() *string {
	a.t.Helper()
	out, err := a.ec2().DescribeSubnets(a.t.Context(), &ec2.DescribeSubnetsInput{})
	a.check(err)
	return out.Subnets[0].SubnetId
}

func (a *account) makeTemplate(name string, tags []tag) string {
	a.t.Helper()
	_, err := a.ec2().CreateLaunchTemplate(a.t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: &name, TagSpecifications: specify(tags, ec2types.ResourceTypeLaunchTemplate),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId: a.image(), InstanceType: "m5.large", UserData: aws.String(base64.StdEncoding.EncodeToString([]byte("#!/bin/sh"))),
		},
	})
	a.check(err)
	return name
}

func (a *account) templateID() string {
	a.t.Helper()
	out, err := a.ec2().DescribeLaunchTemplates(a.t.Context(), &ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{a.template}})
	a.check(err)
	return *out.LaunchTemplates[0].LaunchTemplateId
}

func (a *account) makeMachine(tags []tag) string {
	a.t.Helper()
	out, err := a.ec2().RunInstances(a.t.Context(), &ec2.RunInstancesInput{
		ImageId: a.image(), InstanceType: "m5.large", SubnetId: a.subnet(), MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		TagSpecifications: specify(tags, ec2types.ResourceTypeInstance),
	})
	a.check(err)
	return *out.Instances[0].InstanceId
}

// launch tries to run a machine of a template as a caller, with the same tags on all that comes with it.
func (a *account) launch(caller aws.Config, template string, tags ...tag) error {
	_, err := ec2.NewFromConfig(caller).RunInstances(a.t.Context(), &ec2.RunInstancesInput{
		LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateName: &template}, SubnetId: a.subnet(),
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), DryRun: aws.Bool(true),
		TagSpecifications: specify(tags, ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume, ec2types.ResourceTypeNetworkInterface),
	})
	return err
}

func (a *account) tag(caller aws.Config, id string, tags ...tag) error {
	_, err := ec2.NewFromConfig(caller).CreateTags(a.t.Context(), &ec2.CreateTagsInput{Resources: []string{id}, Tags: ec2Tags(tags), DryRun: aws.Bool(true)})
	return err
}

func specify(tags []tag, kinds ...ec2types.ResourceType) []ec2types.TagSpecification {
	var out []ec2types.TagSpecification
	for _, kind := range kinds {
		if len(tags) > 0 {
			out = append(out, ec2types.TagSpecification{ResourceType: kind, Tags: ec2Tags(tags)})
		}
	}
	return out
}

func ec2Tags(tags []tag) []ec2types.Tag {
	var out []ec2types.Tag
	for _, t := range tags {
		out = append(out, ec2types.Tag{Key: &t.key, Value: &t.value})
	}
	return out
}

func iamTags(tags []tag) []iamtypes.Tag {
	var out []iamtypes.Tag
	for _, t := range tags {
		out = append(out, iamtypes.Tag{Key: &t.key, Value: &t.value})
	}
	return out
}
