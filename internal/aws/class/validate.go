package class

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ami"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/internal/aws/launch"
	"karpenter.sh/karpenter/internal/aws/launchspec"
	"karpenter.sh/karpenter/internal/aws/ttl"
	"karpenter.sh/karpenter/internal/core/need"
)

// dryRunAPI is the part of EC2 that reports whether a launch would be allowed.
type dryRunAPI interface {
	CreateFleet(context.Context, *ec2.CreateFleetInput, ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error)
	RunInstances(context.Context, *ec2.RunInstancesInput, ...func(*ec2.Options)) (*ec2.RunInstancesOutput, error)
}

// A Validator reports whether a class can be launched, by trying as much of a launch as costs nothing.
type Validator struct {
	EC2      dryRunAPI
	Profiles profiles
	// Ensure makes a launch template: creation has no dry run that looks at what the template says.
	Ensure func(context.Context, *launch.Template) (string, error)
	// Cluster returns what machines join; it fails while the service range cannot be found.
	Cluster func(ctx context.Context, family string) (launchspec.Cluster, error)
	Catalog func(*awsv1.EC2NodeClass) (*cloud.Catalog, error)
	Pools   interface{ All() []*v1.NodePool }
	// Hardware and Types are what formulas of the kubelet's configuration are tried with.
	Hardware hardware.Settings
	Types    func() []*awsdata.InstanceType
	// NoDryRun leaves the calls to AWS out.
	NoDryRun bool

	outcomes *ttl.Map[outcomeKey, finding]
}

const (
	outcomeLife   = 30 * time.Minute
	validateAgain = 10 * time.Minute
)

// NewValidator completes a Validator.
func NewValidator(v Validator) *Validator {
	v.outcomes = ttl.New[outcomeKey, finding](outcomeLife)
	return &v
}

// Forget drops what is remembered of a class that is gone.
func (v *Validator) Forget(class string) {
	for key := range v.outcomes.All() {
		if key.class == class {
			v.outcomes.Delete(key)
		}
	}
}

// validate checks a class in the order of cost: without any call, by formulas, then by dry runs, whose outcome is
// remembered.
func (v *Validator) validate(ctx context.Context, nc *awsv1.EC2NodeClass) finding {
	cluster, err := v.Cluster(ctx, nc.AMIFamily())
	if err != nil {
		if silent(err) {
			return untried(nc, err)
		}
		f := missing(awsv1.ReasonClusterCIDRResolutionFailed, ec2api.Explain(err), 0)
		f.err = err
		return f
	}
	class, f := checkStatic(nc, v.Hardware)
	if f.status != "" {
		return f
	}
	if f := dependencies(nc); f.status != "" {
		return f
	}
	if f := v.tryFormulas(class); f.status != "" {
		return f
	}
	key := outcomeKeyOf(nc)
	if f, ok := v.outcomes.Get(key); ok {
		return f
	}
	if v.NoDryRun {
		return v.remember(key, found(validateAgain))
	}
	return v.try(ctx, cluster, nc, key)
}

// remember keeps the outcome of a dry run, and returns it.
func (v *Validator) remember(key outcomeKey, f finding) finding {
	v.outcomes.Sweep()
	v.outcomes.Put(key, f)
	return f
}

// Check returns why a class would not be used, as far as that can be found without a call, with all feature gates on.
func Check(nc *awsv1.EC2NodeClass) error {
	if _, f := checkStatic(nc, hardware.Settings{Formulas: true}); f.status == metav1.ConditionFalse {
		return errors.New(f.message)
	}
	return nil
}

// mostUserData is more than can shrink to the 16 KiB that EC2 takes when Karpenter writes it anew without comments.
const mostUserData = 128 << 10

// checkStatic checks everything that needs no call. It also returns the class as package hardware reads it.
func checkStatic(nc *awsv1.EC2NodeClass, s hardware.Settings) (*hardware.Class, finding) {
	if text := nc.Spec.UserData; text != nil && len(*text) > mostUserData {
		return nil, missing(awsv1.ReasonUserDataSizeLimitExceeded,
			fmt.Sprintf("spec.userData has %d bytes; EC2 takes 16384, with what Karpenter adds", len(*text)), 0)
	}
	if bad := CheckKubelet(nc.Spec.Kubelet); len(bad) > 0 {
		return nil, missing(awsv1.ReasonInvalidKubeletConfiguration, strings.Join(bad, "; "), 0)
	}
	managed, err := nc.Spec.Kubelet.Managed()
	if err != nil {
		return nil, missing(awsv1.ReasonInvalidKubeletConfiguration, err.Error(), 0)
	}
	if fields := expressions(managed); len(fields) > 0 && !s.Formulas {
		return nil, missing(awsv1.ReasonKubeletExpressionsDisabled,
			"expressions in spec.kubelet need the feature gate NodeClassCEL, which is off: "+strings.Join(fields, ", "), 0)
	}
	class, err := hardware.ClassOf(nc, s)
	if err != nil {
		return nil, missing(awsv1.ReasonKubeletExpressionInvalid, err.Error(), 0)
	}
	if bad := checkFamily(nc.AMIFamily(), nc.Spec.Kubelet); len(bad) > 0 {
		return nil, missing(awsv1.ReasonUnsupportedKubeletConfiguration, strings.Join(bad, "; "), 0)
	}
	if key := restrictedTag(nc.Spec.Tags); key != "" {
		return nil, missing(awsv1.ReasonTagValidationFailed,
			fmt.Sprintf("tag %q is set by Karpenter and cannot be set in spec.tags", key), 0)
	}
	return class, finding{}
}

// tryFormulas returns a finding if a formula has no value for some type.
func (v *Validator) tryFormulas(class *hardware.Class) finding {
	if !class.HasFormulas() {
		return finding{}
	}
	if err := class.FormulaErrors(v.Types()); err != nil {
		return missing(awsv1.ReasonKubeletExpressionEvaluationFailed, err.Error(), 0)
	}
	return finding{}
}

var clusterTag = regexp.MustCompile(`^` + regexp.QuoteMeta(awsv1.TagClusterPrefix) + `[0-9A-Za-z][0-9A-Za-z\-_]*$`)

// restrictedTag returns a key that users may not set, "" if there is none.
func restrictedTag(tags map[string]string) string {
	own := []string{awsv1.TagClusterName, awsv1.TagNodePool, awsv1.TagNodeClaim, awsv1.TagNodeClass}
	var bad []string
	for key := range tags {
		if slices.Contains(own, key) || clusterTag.MatchString(key) {
			bad = append(bad, key)
		}
	}
	if len(bad) == 0 {
		return ""
	}
	return slices.Min(bad)
}

// dependencies returns a finding if other conditions are not True, because validation needs what they found.
func dependencies(nc *awsv1.EC2NodeClass) finding {
	var failed, unknown []string
	for _, t := range []string{
		awsv1.ConditionTypeAMIsReady, awsv1.ConditionTypeInstanceProfileReady, awsv1.ConditionTypeSecurityGroupsReady,
		awsv1.ConditionTypeSubnetsReady,
	} {
		switch c := condition.Get(nc, t); {
		case c == nil || c.Status == metav1.ConditionUnknown:
			unknown = append(unknown, t)
		case c.Status == metav1.ConditionFalse:
			failed = append(failed, t)
		}
	}
	switch {
	case len(failed) > 0:
		return missing(awsv1.ReasonDependenciesNotReady, "not ready: "+strings.Join(failed, ", "), validateAgain)
	case len(unknown) > 0:
		f := missing(awsv1.ReasonDependenciesNotReady, "not known yet: "+strings.Join(unknown, ", "), validateAgain)
		f.status = metav1.ConditionUnknown
		return f
	}
	return finding{}
}

// An outcomeKey is equal as long as nothing changed that a dry run depends on.
type outcomeKey struct{ class, facts string }

// outcomeKeyOf returns the key of a class.
func outcomeKeyOf(nc *awsv1.EC2NodeClass) outcomeKey {
	text, err := json.Marshal(struct {
		Spec        awsv1.EC2NodeClassSpec
		Subnets     []string
		Groups      []awsv1.SecurityGroup
		Placement   *awsv1.PlacementGroup
		AMIs        []awsv1.AMI
		Profile     string
		Annotations map[string]string
	}{nc.Spec, subnetIDs(nc), nc.Status.SecurityGroups, nc.Status.PlacementGroup, nc.Status.AMIs,
		nc.Status.InstanceProfile, nc.Annotations})
	if err != nil {
		return outcomeKey{nc.Name, err.Error()}
	}
	return outcomeKey{nc.Name, string(text)}
}

func subnetIDs(nc *awsv1.EC2NodeClass) []string {
	out := make([]string, len(nc.Status.Subnets))
	for i, s := range nc.Status.Subnets {
		out[i] = s.ID
	}
	slices.Sort(out)
	return out
}

// try makes a launch template, and asks EC2 by dry runs whether a fleet and a machine of it would be allowed.
func (v *Validator) try(ctx context.Context, cluster launchspec.Cluster, nc *awsv1.EC2NodeClass, key outcomeKey) finding {
	r, err := v.sample(cluster, nc)
	if err != nil {
		return unsure(err)
	}
	template := r.Templates[0]
	_, err = v.Ensure(ctx, template)
	if f, done := v.judge(nc, err, key, awsv1.ReasonCreateLaunchTemplateAuthCheckFailed); done {
		return f
	}
	in := fleet.Request(r.Order, 1, firstSubnets(nc), "")
	in.ClientToken, in.DryRun = nil, aws.Bool(true)
	_, err = v.EC2.CreateFleet(ctx, in, withoutRetries)
	if f, done := v.judge(nc, err, key, awsv1.ReasonCreateFleetAuthCheckFailed); done {
		return f
	}
	err = v.runInstances(ctx, nc, template, r.Order.Templates[0].Overrides[0].InstanceType)
	if ec2api.Code(err) == "InvalidParameterValue" && strings.Contains(err.Error(), "iamInstanceProfile.name") {
		if nc.Spec.InstanceProfile != nil {
			if exists, lookup := v.Profiles.Exists(ctx, *nc.Spec.InstanceProfile); lookup == nil && !exists {
				return missing(awsv1.ReasonInstanceProfileNotFound, fmt.Sprintf("instance profile %s does not exist",
					*nc.Spec.InstanceProfile), shortInterval)
			}
		}
		f := finding{again: 2 * time.Second} // EC2 sees a new profile after some seconds
		if !answered(nc, awsv1.ConditionTypeValidationSucceeded) {
			f.status, f.reason = metav1.ConditionUnknown, awsv1.ReasonLookupFailed
			f.message = fmt.Sprintf("EC2 does not see instance profile %s yet", nc.Status.InstanceProfile)
		}
		return f
	}
	if f, done := v.judge(nc, err, key, awsv1.ReasonRunInstancesAuthCheckFailed); done {
		return f
	}
	return v.remember(key, found(validateAgain))
}

func withoutRetries(o *ec2.Options) { o.Retryer = ec2api.Once() }

// judge returns the finding about the answer to a dry run; done is false if the launch would be allowed. reason is
// that of a denial.
func (v *Validator) judge(nc *awsv1.EC2NodeClass, err error, key outcomeKey, reason string) (f finding, done bool) {
	switch {
	case err == nil, ec2api.DryRunPassed(err):
		return finding{}, false
	case ec2api.Code(err) == "InvalidUserData.Malformed" && strings.Contains(err.Error(), "User data is limited to"):
		return v.remember(key, missing(awsv1.ReasonUserDataSizeLimitExceeded, ec2api.Message(err), validateAgain)), true
	case ec2api.IsDenied(err):
		return v.remember(key, missing(reason, ec2api.Denial(err), validateAgain)), true
	case silent(err):
		return untried(nc, err), true
	}
	return unsure(err), true
}

// silent reports whether AWS neither allowed nor refused a call.
func silent(err error) bool {
	return ec2api.IsServerFault(err) || ec2api.IsThrottled(err) || ec2api.IsUnknownOutcome(err)
}

// untried returns the finding about a class while AWS is silent: the last answer counts, also for a class that was
// edited since. Dry runs only find early what a launch would find, and the cluster must not stop because they cannot
// be made.
func untried(nc *awsv1.EC2NodeClass, err error) finding {
	f := unsure(err)
	if condition.IsTrue(nc, awsv1.ConditionTypeValidationSucceeded) {
		f.status, f.message = metav1.ConditionTrue, "AWS cannot be asked now, and what it said last counts: "+ec2api.Explain(err)
	}
	return f
}

// runInstances tries the class's subnets in turn until one is allowed; the first one's answer counts if none is.
func (v *Validator) runInstances(ctx context.Context, nc *awsv1.EC2NodeClass, t *launch.Template, instanceType string) error {
	var first error
	for _, s := range nc.Status.Subnets {
		_, err := v.EC2.RunInstances(ctx, runRequest(nc, t, instanceType, s.ID), withoutRetries)
		if err == nil || ec2api.DryRunPassed(err) {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// runRequest returns the dry run of one machine.
func runRequest(nc *awsv1.EC2NodeClass, t *launch.Template, instanceType, subnet string) *ec2.RunInstancesInput {
	groups := make([]string, len(nc.Status.SecurityGroups))
	for i, g := range nc.Status.SecurityGroups {
		groups[i] = g.ID
	}
	in := &ec2.RunInstancesInput{
		DryRun: aws.Bool(true), MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		ImageId: aws.String(t.ImageID), InstanceType: ec2types.InstanceType(instanceType),
		IamInstanceProfile: &ec2types.IamInstanceProfileSpecification{Name: aws.String(nc.Status.InstanceProfile)},
		Placement:          &ec2types.Placement{Tenancy: ec2types.Tenancy(t.Tenancy)},
		NetworkInterfaces: []ec2types.InstanceNetworkInterfaceSpecification{{
			DeviceIndex: aws.Int32(0), SubnetId: aws.String(subnet), Groups: groups,
		}},
	}
	for _, r := range []ec2types.ResourceType{ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume,
		ec2types.ResourceTypeNetworkInterface} {
		in.TagSpecifications = append(in.TagSpecifications, ec2types.TagSpecification{ResourceType: r, Tags: ec2api.Tags(t.Tags)})
	}
	return in
}

// firstSubnets returns one subnet of each zone.
func firstSubnets(nc *awsv1.EC2NodeClass) map[string]string {
	out := map[string]string{}
	for _, s := range nc.Status.Subnets {
		if _, ok := out[s.Zone]; !ok {
			out[s.Zone] = s.ID
		}
	}
	return out
}

// sample returns the launch that dry runs try: on demand, of a type that pools of the class would get if there is one (sampleType).
func (v *Validator) sample(cluster launchspec.Cluster, nc *awsv1.EC2NodeClass) (*launchspec.Spec, error) {
	catalog, err := v.Catalog(nc.DeepCopy()) // a copy, because Catalog keeps the class and nc will change
	if err != nil {
		return nil, err
	}
	pools := slices.DeleteFunc(v.Pools.All(), func(p *v1.NodePool) bool {
		ref := p.Spec.Template.Spec.NodeClassRef
		return ref == nil || ref.Group != awsv1.Group || ref.Name != nc.Name
	})
	it := sampleType(nc, catalog, pools)
	if it == nil {
		return nil, errors.New("no instance type can be launched with the class's images and subnets")
	}
	// The claim has no pool label, so the launch is tagged with an empty pool name: IAM policies may test that the tag exists, not what it
	// says.
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	for _, p := range pools {
		if dedicated(p) {
			claim.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{
				Key: awsv1.LabelInstanceTenancy, Operator: "In", Values: []string{awsv1.TenancyDedicated},
			}}
		}
	}
	zone := nc.Status.Subnets[0].Zone
	if zones := it.Labels[corev1.LabelTopologyZone]; len(zones) > 0 {
		zone = zones[0]
	}
	offering := &cloud.Offering{Labels: map[string]string{corev1.LabelTopologyZone: zone,
		v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand}}
	return launchspec.Make(cluster, nc, claim, fleet.Choice{
		CapacityType: v1.CapacityTypeOnDemand,
		Candidates:   []fleet.Candidate{{Type: it, Offerings: []*cloud.Offering{offering}}},
	})
}

// dedicated reports whether a pool may ask for dedicated hardware.
func dedicated(p *v1.NodePool) bool {
	needs, said := needsOf(p)[awsv1.LabelInstanceTenancy]
	return said && (!needs.Has(awsv1.TenancyDefault) || !needs.Open() && needs.Has(awsv1.TenancyDedicated))
}

// needsOf returns what a pool requires of its machines, by requirements and by labels.
func needsOf(p *v1.NodePool) need.Needs {
	reqs := slices.Clone(p.Spec.Template.Spec.Requirements)
	for key, value := range p.Spec.Template.Labels {
		reqs = append(reqs, v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	return need.Of(reqs)
}

// sampleType picks a type that has an image and zones, and that pools of the class allow; ordinary types and types in
// stock come first. Without such a type it picks m5.large or m6g.large.
func sampleType(nc *awsv1.EC2NodeClass, catalog *cloud.Catalog, pools []*v1.NodePool) *cloud.InstanceType {
	var types []*cloud.InstanceType
	for _, it := range catalog.Types {
		if _, ok := ami.For(nc.Status.AMIs, it.Labels); ok && len(it.Labels[corev1.LabelTopologyZone]) > 0 {
			types = append(types, it)
		}
	}
	if len(types) == 0 {
		return nil
	}
	buyable := slices.DeleteFunc(slices.Clone(types), func(it *cloud.InstanceType) bool {
		return !slices.ContainsFunc(it.Offerings, func(o cloud.Offering) bool {
			return o.Available &&
				o.CapacityType() == v1.CapacityTypeOnDemand
		})
	})
	for _, list := range [][]*cloud.InstanceType{buyable, types} { // if all are out of stock, one of these will do
		if it := ofPools(nc, list, pools); it != nil {
			return it
		}
	}
	for _, name := range []string{"m5.large", "m6g.large"} {
		if i := slices.IndexFunc(types, func(it *cloud.InstanceType) bool { return it.Name == name }); i >= 0 {
			return types[i]
		}
	}
	return types[0]
}

// ofPools returns the first type that any pool of the class allows, ordinary before exotic; nil if there is none.
func ofPools(nc *awsv1.EC2NodeClass, types []*cloud.InstanceType, pools []*v1.NodePool) *cloud.InstanceType {
	if strings.HasPrefix(nc.AMIFamily(), "Windows") {
		return nil
	}
	var exotic *cloud.InstanceType
	for _, p := range pools {
		needs := needsOf(p)
		for _, it := range types {
			switch {
			case !needs.Allow(it.Labels):
			case !it.Exotic:
				return it
			case exotic == nil:
				exotic = it
			}
		}
	}
	return exotic
}
