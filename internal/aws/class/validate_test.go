package class

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/bootstrap"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/internal/aws/launch"
	"karpenter.sh/karpenter/internal/aws/launchspec"
	"karpenter.sh/karpenter/internal/aws/offline"
)

// pool makes a pool of the class "default" that asks for the values of one label.
func pool(key string, values ...string) *v1.NodePool {
	p := &v1.NodePool{}
	p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: awsv1.Group, Kind: "EC2NodeClass", Name: "default"}
	if key != "" {
		p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: key, Operator: "In", Values: values}}
	}
	return p
}

type poolList []*v1.NodePool

func (l poolList) All() []*v1.NodePool { return l }

func readyClass(edit func(*awsv1.EC2NodeClass)) *awsv1.EC2NodeClass {
	nc := &awsv1.EC2NodeClass{}
	nc.Name = "default"
	nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}}
	nc.Status.Subnets = []awsv1.Subnet{{ID: "subnet-a", Zone: "us-east-1a"}}
	nc.Status.SecurityGroups = []awsv1.SecurityGroup{{ID: "sg-1"}}
	nc.Status.InstanceProfile = "profile"
	for _, arch := range []string{"amd64", "arm64"} {
		nc.Status.AMIs = append(nc.Status.AMIs, awsv1.AMI{ID: "ami-" + arch, Requirements: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelArchStable, Operator: "In", Values: []string{arch}}}})
	}
	edit(nc)
	return nc
}

func validCluster(context.Context, string) (launchspec.Cluster, error) {
	return launchspec.Cluster{Cluster: bootstrap.Cluster{Name: "demo", Endpoint: "https://x", ServiceCIDR: "10.100.0.0/16"}}, nil
}

// catalog is what the provider sells for a class, with the types that the class cannot use.
func catalog(nc *awsv1.EC2NodeClass) (*cloud.Catalog, error) {
	class, err := hardware.ClassOf(nc, hardware.Settings{})
	if err != nil {
		return nil, err
	}
	nc.Spec.NetworkInterfaces = nil
	all, err := offline.Catalog(offline.Options{Zones: []string{"us-east-1a"}, Class: nc})
	if err != nil {
		return nil, err
	}
	unusable := map[string]bool{}
	for _, t := range awsdata.Types() {
		unusable[t.Name] = hardware.Compatible(t, class, hardware.Wishes{}) != ""
	}
	out := &cloud.Catalog{}
	for _, it := range all.Types {
		one := *it
		one.Offerings = slices.Clone(it.Offerings)
		for i := range one.Offerings {
			one.Offerings[i].Available = !unusable[it.Name]
		}
		out.Types = append(out.Types, &one)
	}
	return out, nil
}

// The launch that is tried stands for those to come.
func TestWhatIsTried(t *testing.T) {
	none := func(*awsv1.EC2NodeClass) {}
	only := func(arch string) func(*awsv1.EC2NodeClass) {
		return func(nc *awsv1.EC2NodeClass) {
			for i := range nc.Status.AMIs {
				nc.Status.AMIs[i].Requirements[0].Values = []string{arch}
			}
		}
	}
	const itype, tenancy = corev1.LabelInstanceTypeStable, awsv1.LabelInstanceTenancy
	ofOther := pool(itype, "c5.large")
	ofOther.Spec.Template.Spec.NodeClassRef.Name = "other"
	notShared, anyBut, labelled := pool(tenancy, "default"), pool(tenancy, "host"), pool(itype, "c5.large", "r5.large")
	anyBut.Spec.Template.Spec.Requirements[0].Operator = corev1.NodeSelectorOpNotIn
	notShared.Spec.Template.Spec.Requirements[0].Operator = corev1.NodeSelectorOpNotIn
	labelled.Spec.Template.Labels = map[string]string{tenancy: "dedicated", itype: "r5.large", "team": "a"}
	for name, tc := range map[string]struct {
		class   func(*awsv1.EC2NodeClass)
		pools   poolList
		want    string // type
		tenancy string
	}{
		"a type of the class's pool":                                            {none, poolList{pool(itype, "c5.large")}, "c5.large", "default"},
		"no type of another class's pool":                                       {none, poolList{ofOther}, "m5.large", "default"},
		"without a pool a type that every region has":                           {none, nil, "m5.large", "default"},
		"and one that has an image":                                             {only("arm64"), nil, "m6g.large", "default"},
		"a pool whose types have no image":                                      {only("arm64"), poolList{pool(itype, "c5.large")}, "m6g.large", "default"},
		"a type without GPU before one with":                                    {none, poolList{pool(itype, "g5.xlarge", "r5.large")}, "r5.large", "default"},
		"GPUs where the pool has nothing else":                                  {none, poolList{pool(itype, "g5.xlarge")}, "g5.xlarge", "default"},
		"an ordinary type of the second pool before an exotic one of the first": {none, poolList{pool(itype, "g5.xlarge"), pool(itype, "r5.large")}, "r5.large", "default"},
		"Windows is tried on what every region has": {func(nc *awsv1.EC2NodeClass) {
			nc.Spec.AMISelectorTerms[0].Alias = "windows2022@latest"
		}, poolList{pool(itype, "c5.large")}, "m5.large", "default"},
		"a type that has the interfaces which the class asks for": {func(nc *awsv1.EC2NodeClass) {
			nc.Spec.NetworkInterfaces = []*awsv1.NetworkInterface{{InterfaceType: "interface"}, {DeviceIndex: 7, InterfaceType: "interface"}}
		}, poolList{pool(itype, "c5.large", "c5.9xlarge")}, "c5.9xlarge", "default"},
		"interfaces that no type of the pool has": {func(nc *awsv1.EC2NodeClass) {
			nc.Spec.NetworkInterfaces = []*awsv1.NetworkInterface{{InterfaceType: "interface"}, {DeviceIndex: 7, InterfaceType: "interface"}}
		}, poolList{pool(itype, "c5.large")}, "c5.large", "default"},
		"hardware of its own":                    {none, poolList{pool(tenancy, "dedicated")}, "", "dedicated"},
		"hardware of its own, or shared":         {none, poolList{pool(tenancy, "default", "dedicated")}, "", "dedicated"},
		"hardware of its own, for the next pool": {none, poolList{pool(itype, "c5.large"), pool(tenancy, "dedicated")}, "c5.large", "dedicated"},
		"hardware that is not shared":            {none, poolList{notShared}, "", "dedicated"},
		"hardware that nobody asked for":         {none, poolList{anyBut}, "", "default"},
		"what the labels of a pool say":          {none, poolList{labelled}, "r5.large", "dedicated"},
		"shared hardware":                        {none, poolList{pool(tenancy, "default")}, "", "default"},
	} {
		t.Run(name, func(t *testing.T) {
			nc := readyClass(tc.class)
			v := &Validator{Pools: tc.pools, Catalog: catalog}
			cluster, _ := validCluster(t.Context(), "")
			r, err := v.sample(cluster, nc)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Order.Templates[0].Overrides[0].InstanceType; tc.want != "" && got != tc.want || r.Templates[0].Tenancy != tc.tenancy {
				t.Errorf("tried %s with tenancy %s, want %s with %s", got, r.Templates[0].Tenancy, tc.want, tc.tenancy)
			}
			if r.Order.CapacityType != v1.CapacityTypeOnDemand || r.Order.Tags[awsv1.TagNodePool] != "" {
				t.Errorf("tried as %s for pool %q, want on demand for none", r.Order.CapacityType, r.Order.Tags[awsv1.TagNodePool])
			}
			if fleet.Request(r.Order, 1, firstSubnets(nc), "") == nil {
				t.Error("what is tried has no subnet")
			}
		})
	}
}

// tries is an EC2 and an IAM that answer what they are told, and permit every dry run else.
type tries struct {
	template, fleet error
	run             map[string]error // by subnet
	profile         bool             // exists
	calls           int
}

func permitted() error { return &smithy.GenericAPIError{Code: "DryRunOperation"} }

func (e *tries) ensure(context.Context, *launch.Template) (string, error) {
	e.calls++
	return "", e.template
}

func (e *tries) CreateFleet(context.Context, *ec2.CreateFleetInput, ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error) {
	return nil, cmp.Or(e.fleet, permitted())
}

func (e *tries) RunInstances(_ context.Context, in *ec2.RunInstancesInput, _ ...func(*ec2.Options)) (*ec2.RunInstancesOutput, error) {
	return nil, cmp.Or(e.run[aws.ToString(in.NetworkInterfaces[0].SubnetId)], permitted())
}

func (e *tries) Ensure(context.Context, *awsv1.EC2NodeClass) (string, error) { return "", nil }
func (e *tries) DeleteFor(context.Context, *awsv1.EC2NodeClass) error        { return nil }
func (e *tries) Exists(context.Context, string) (bool, error)                { return e.profile, nil }

func refused(code, message string) error {
	return &smithy.GenericAPIError{Code: code, Message: message}
}

func TestValidate(t *testing.T) {
	none := func(*awsv1.EC2NodeClass) {}
	depend := func(of string, status metav1.ConditionStatus) func(*awsv1.EC2NodeClass) {
		return func(nc *awsv1.EC2NodeClass) {
			condition.Set(nc, metav1.Condition{Type: of, Status: status, Reason: "x"}, time.Now())
		}
	}
	const denied = "UnauthorizedOperation"
	noProfile := refused("InvalidParameterValue", "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name")
	own := func(nc *awsv1.EC2NodeClass) { nc.Spec.InstanceProfile = aws.String("mine") }
	broken := &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: 500}}, Err: refused("InternalError", "")}
	unreached := &smithy.OperationError{ServiceID: "EC2", OperationName: "CreateFleet", Err: errors.New("dial tcp: no route to host")}
	untold := depend(awsv1.ConditionTypeValidationSucceeded, metav1.ConditionUnknown)
	const yes, no, unknown, unchanged = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown, ""
	for name, tc := range map[string]struct {
		class   func(*awsv1.EC2NodeClass)
		aws     tries
		cidr    error // of the cluster
		noTries bool
		status  metav1.ConditionStatus
		reason  string
		says    string // in its message
		again   time.Duration
		fails   bool
		calls   int // of the template, when asked twice
	}{
		"all is allowed":                  {class: none, status: yes, again: validateAgain, calls: 1},
		"nothing is tried":                {class: none, aws: tries{template: refused(denied, "")}, noTries: true, status: yes, again: validateAgain},
		"images are not known":            {class: depend(awsv1.ConditionTypeAMIsReady, unknown), status: unknown, reason: awsv1.ReasonDependenciesNotReady, again: validateAgain},
		"no images":                       {class: depend(awsv1.ConditionTypeAMIsReady, no), status: no, reason: awsv1.ReasonDependenciesNotReady, again: validateAgain},
		"no profile yet":                  {class: depend(awsv1.ConditionTypeInstanceProfileReady, no), status: no, reason: awsv1.ReasonDependenciesNotReady, again: validateAgain},
		"no groups":                       {class: depend(awsv1.ConditionTypeSecurityGroupsReady, no), status: no, reason: awsv1.ReasonDependenciesNotReady, again: validateAgain},
		"no subnets":                      {class: depend(awsv1.ConditionTypeSubnetsReady, no), status: no, reason: awsv1.ReasonDependenciesNotReady, again: validateAgain},
		"subnets are not known":           {class: depend(awsv1.ConditionTypeSubnetsReady, unknown), status: unknown, reason: awsv1.ReasonDependenciesNotReady, again: validateAgain},
		"EKS may not be asked":            {class: none, cidr: refused("AccessDeniedException", ""), status: no, reason: awsv1.ReasonClusterCIDRResolutionFailed, fails: true},
		"EKS is broken":                   {class: none, cidr: broken, status: yes, says: "InternalError", fails: true},
		"EKS is broken, and was before":   {class: untold, cidr: broken, status: unchanged, fails: true},
		"templates may not be made":       {class: none, aws: tries{template: refused(denied, "")}, status: no, reason: awsv1.ReasonCreateLaunchTemplateAuthCheckFailed, again: validateAgain, calls: 1},
		"too much user data":              {class: none, aws: tries{template: refused("InvalidUserData.Malformed", "User data is limited to 16384 bytes")}, status: no, reason: awsv1.ReasonUserDataSizeLimitExceeded, again: validateAgain, calls: 1},
		"user data of a megabyte":         {class: func(nc *awsv1.EC2NodeClass) { nc.Spec.UserData = new(strings.Repeat("a", 1<<20)) }, status: no, reason: awsv1.ReasonUserDataSizeLimitExceeded},
		"user data that is odd otherwise": {class: none, aws: tries{template: refused("InvalidUserData.Malformed", "Invalid BASE64 encoding")}, status: unchanged, fails: true, calls: 2},
		"EC2 is broken":                   {class: none, aws: tries{template: broken}, status: yes, says: "InternalError", fails: true, calls: 2},
		"EC2 is broken, and was before":   {class: untold, aws: tries{template: broken}, status: unchanged, fails: true, calls: 2},
		"EC2 is broken after it refused":  {class: depend(awsv1.ConditionTypeValidationSucceeded, no), aws: tries{template: broken}, status: unchanged, fails: true, calls: 2},
		"EC2 asks to slow down":           {class: none, aws: tries{fleet: refused("RequestLimitExceeded", "")}, status: yes, says: "RequestLimitExceeded", fails: true, calls: 2},
		"EC2 cannot be reached":           {class: none, aws: tries{fleet: unreached}, status: yes, says: "does not answer CreateFleet", fails: true, calls: 2},
		"EC2 finds a parameter odd":       {class: none, aws: tries{fleet: refused("InvalidParameterCombination", "")}, status: unchanged, fails: true, calls: 2},
		"fleets may not be made":          {class: none, aws: tries{fleet: refused(denied, "")}, status: no, reason: awsv1.ReasonCreateFleetAuthCheckFailed, again: validateAgain, calls: 1},
		"machines may not be run in any subnet": {class: none, aws: tries{run: map[string]error{"subnet-a": refused(denied, ""), "subnet-b": broken}},
			status: no, reason: awsv1.ReasonRunInstancesAuthCheckFailed, again: validateAgain, calls: 1},
		"machines may be run in the second subnet": {class: none, aws: tries{run: map[string]error{"subnet-a": broken}}, status: yes, again: validateAgain, calls: 1},
		"a profile of the user that does not exist": {class: own, aws: tries{run: map[string]error{"subnet-a": noProfile, "subnet-b": noProfile}},
			status: no, reason: awsv1.ReasonInstanceProfileNotFound, again: shortInterval, calls: 2},
		"a profile of the user that EC2 does not show yet": {class: own, aws: tries{profile: true, run: map[string]error{"subnet-a": noProfile, "subnet-b": noProfile}},
			status: unchanged, again: 2 * time.Second, calls: 2},
		"a profile that EC2 does not show yet, of a class that is new": {class: depend(awsv1.ConditionTypeValidationSucceeded, unknown), aws: tries{run: map[string]error{"subnet-a": noProfile, "subnet-b": noProfile}},
			status: unknown, reason: awsv1.ReasonLookupFailed, again: 2 * time.Second, calls: 2},
		"a profile of ours that EC2 does not show yet": {class: none, aws: tries{run: map[string]error{"subnet-a": noProfile, "subnet-b": noProfile}},
			status: unchanged, again: 2 * time.Second, calls: 2},
	} {
		t.Run(name, func(t *testing.T) {
			nc := readyClass(func(nc *awsv1.EC2NodeClass) {
				nc.Status.Subnets = append(nc.Status.Subnets, awsv1.Subnet{ID: "subnet-b", Zone: "us-east-1b"})
				for _, of := range nc.ConditionRules().Dependents {
					condition.SetTrue(nc, of, time.Now())
				}
				tc.class(nc)
			})
			v := NewValidator(Validator{EC2: &tc.aws, Profiles: &tc.aws, Ensure: tc.aws.ensure, Catalog: catalog, Pools: poolList{}, NoDryRun: tc.noTries,
				Cluster: func(ctx context.Context, family string) (launchspec.Cluster, error) {
					cluster, _ := validCluster(ctx, family)
					return cluster, tc.cidr
				}})
			for range 2 {
				got := v.validate(t.Context(), nc)
				if got.status != tc.status || got.reason != tc.reason || got.again != tc.again || (got.err != nil) != tc.fails || !strings.Contains(got.message, tc.says) {
					t.Errorf("found %+v, want status %q, reason %q, %q in what it says, again in %v, an error: %v", got, tc.status, tc.reason, tc.says, tc.again, tc.fails)
				}
			}
			if tc.aws.calls != tc.calls {
				t.Errorf("asked twice, EC2 was called %d times, want %d", tc.aws.calls, tc.calls)
			}
		})
	}
}

// An outcome is remembered for half an hour, unless something changed that it depends on.
func TestWhenAValidationIsRepeated(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Validator, *awsv1.EC2NodeClass)
		again  bool
	}{
		"nothing changed":           {func(*Validator, *awsv1.EC2NodeClass) { time.Sleep(outcomeLife - time.Second) }, false},
		"half an hour later":        {func(*Validator, *awsv1.EC2NodeClass) { time.Sleep(outcomeLife) }, true},
		"an annotation":             {func(_ *Validator, nc *awsv1.EC2NodeClass) { nc.Annotations = map[string]string{"try": "again"} }, true},
		"a tag":                     {func(_ *Validator, nc *awsv1.EC2NodeClass) { nc.Spec.Tags = map[string]string{"a": "b"} }, true},
		"another image":             {func(_ *Validator, nc *awsv1.EC2NodeClass) { nc.Status.AMIs[0].ID = "ami-9" }, true},
		"another group":             {func(_ *Validator, nc *awsv1.EC2NodeClass) { nc.Status.SecurityGroups[0].ID = "sg-9" }, true},
		"another profile":           {func(_ *Validator, nc *awsv1.EC2NodeClass) { nc.Status.InstanceProfile = "other" }, true},
		"another subnet":            {func(_ *Validator, nc *awsv1.EC2NodeClass) { nc.Status.Subnets[0].ID = "subnet-9" }, true},
		"more room in a subnet":     {func(_ *Validator, nc *awsv1.EC2NodeClass) { slices.Reverse(nc.Status.Subnets) }, false},
		"the class was made anew":   {func(v *Validator, _ *awsv1.EC2NodeClass) { v.Forget("default") }, true},
		"another class was deleted": {func(v *Validator, _ *awsv1.EC2NodeClass) { v.Forget("defaul") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &tries{}
				nc := readyClass(func(nc *awsv1.EC2NodeClass) {
					nc.Status.Subnets = append(nc.Status.Subnets, awsv1.Subnet{ID: "subnet-b", Zone: "us-east-1b"})
					for _, of := range nc.ConditionRules().Dependents {
						condition.SetTrue(nc, of, time.Now())
					}
				})
				v := NewValidator(Validator{EC2: e, Profiles: e, Ensure: e.ensure, Catalog: catalog, Pools: poolList{},
					Cluster: validCluster})
				v.validate(t.Context(), nc)
				tc.change(v, nc)
				v.validate(t.Context(), nc)
				if again := e.calls == 2; again != tc.again {
					t.Errorf("tried again: %v, want %v", again, tc.again)
				}
			})
		})
	}
}
