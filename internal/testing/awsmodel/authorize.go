package awsmodel

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
)

// A principal is a caller with its policies read.
type principal struct {
	arn        string
	restricted bool
	policies   []policy
	boundary   []policy
}

func principals(cfg Config) (map[string]*principal, error) {
	out := map[string]*principal{}
	for key, id := range cfg.Identities {
		p := &principal{arn: id.ARN, restricted: len(id.Policies) > 0}
		for _, raw := range id.Policies {
			doc, err := parsePolicy(raw)
			if err != nil {
				return nil, fmt.Errorf("identity %s: %w", key, err)
			}
			p.policies = append(p.policies, doc)
		}
		if len(id.Boundary) > 0 {
			doc, err := parsePolicy(id.Boundary)
			if err != nil {
				return nil, fmt.Errorf("identity %s, boundary: %w", key, err)
			}
			p.boundary = []policy{doc}
		}
		out[key] = p
	}
	return out, nil
}

func (w *world) principal(key string) *principal {
	if p, ok := w.callers[key]; ok {
		return p
	}
	return &principal{arn: w.cfg.arn("iam", "user/admin")}
}

func (w *world) withARN(arn string) *principal {
	for _, p := range w.callers {
		if p.arn == arn {
			return p
		}
	}
	return nil
}

// authorize refuses a call that the caller's policies do not allow, in the shape of the service.
func (k *call) authorize(in any) error {
	if !k.who.restricted && k.who.boundary == nil {
		return nil
	}
	for _, n := range k.needs(in) {
		if why := k.refusal(n); why != "" {
			return k.forbidden(n, why)
		}
	}
	return nil
}

// refusal says why a need is not met, "" if it is.
func (k *call) refusal(n need) string {
	if k.who.restricted {
		switch judge(k.who.policies, n) {
		case denied:
			return "with an explicit deny in an identity-based policy"
		case notAllowed:
			return "because no identity-based policy allows the " + n.action + " action"
		}
	}
	if k.who.boundary != nil && judge(k.who.boundary, n) != allowed {
		return "because no permissions boundary allows the " + n.action + " action"
	}
	return ""
}

func (k *call) forbidden(n need, why string) *fault {
	text := fmt.Sprintf("User: %s is not authorized to perform: %s on resource: %s %s", k.who.arn, n.action, n.resource, why)
	switch k.op.service {
	case "ec2":
		return refuseWith(http.StatusForbidden, "UnauthorizedOperation",
			"You are not authorized to perform this operation. %s. Encoded authorization failure message: %s", text, encoded(n))
	case "iam", "sts":
		return refuseWith(http.StatusForbidden, "AccessDenied", "%s", text)
	}
	return refuseWith(http.StatusBadRequest, "AccessDeniedException", "%s", text)
}

// encoded is the message that sts:DecodeAuthorizationMessage would open.
func encoded(n need) string {
	raw, err := json.Marshal(map[string]any{"allowed": false, "action": n.action, "resource": n.resource, "context": n.context})
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// needs lists every permission that a call needs.
func (k *call) needs(in any) []need {
	switch in := in.(type) {
	case *ec2.CreateFleetInput:
		return k.fleetNeeds(in)
	case *ec2.RunInstancesInput:
		return k.runNeeds(in)
	case *ec2.CreateLaunchTemplateInput:
		tags := tagsFor(in.TagSpecifications, ec2types.ResourceTypeLaunchTemplate)
		return k.creates("ec2:CreateLaunchTemplate", "launch-template", tags, nil)
	case *ec2.DeleteLaunchTemplateInput:
		if t, err := findTemplate(k, in.LaunchTemplateId, in.LaunchTemplateName); err == nil {
			return []need{k.on("ec2:DeleteLaunchTemplate", "launch-template/"+*t.Template.LaunchTemplateId, t.Template.Tags)}
		}
		return []need{k.on("ec2:DeleteLaunchTemplate", "launch-template/*", nil)}
	case *ec2.TerminateInstancesInput:
		return k.eachResource("ec2:TerminateInstances", in.InstanceIds, nil)
	case *ec2.RebootInstancesInput:
		return k.eachResource("ec2:RebootInstances", in.InstanceIds, nil)
	case *ec2.CreateTagsInput:
		return k.eachResource("ec2:CreateTags", in.Resources, in.Tags)
	case *ssm.GetParameterInput:
		name := aws.ToString(in.Name)
		if strings.HasPrefix(name, "arn:") {
			return []need{k.plain("ssm:GetParameter", name)}
		}
		return []need{k.plain("ssm:GetParameter", "arn:aws:ssm:"+k.world.cfg.Region+":"+k.parameterOwner(name)+
			":parameter/"+strings.TrimPrefix(name, "/"))}
	case *sqs.GetQueueUrlInput:
		return []need{k.plain("sqs:GetQueueUrl", k.world.cfg.arn("sqs", aws.ToString(in.QueueName)))}
	case *sqs.ReceiveMessageInput:
		return []need{k.plain("sqs:ReceiveMessage", k.queueARN(in.QueueUrl))}
	case *sqs.DeleteMessageInput:
		return []need{k.plain("sqs:DeleteMessage", k.queueARN(in.QueueUrl))}
	case *arczonalshift.GetManagedResourceInput:
		n := k.plain("arc-zonal-shift:GetManagedResource", "*")
		n.context["arc-zonal-shift:ResourceIdentifier"] = []string{aws.ToString(in.ResourceIdentifier)}
		return []need{n}
	case *eks.DescribeClusterInput:
		return []need{k.plain("eks:DescribeCluster", k.world.cfg.arn("eks", "cluster/"+aws.ToString(in.Name)))}
	}
	if k.op.service == "iam" {
		return k.profileNeeds(in)
	}
	return []need{k.plain(k.op.String(), "*")}
}

func (k *call) parameterOwner(name string) string {
	if strings.HasPrefix(name, "/aws/service/") {
		return ""
	}
	return k.world.cfg.Account
}

func (k *call) queueARN(url *string) string {
	text := aws.ToString(url)
	return k.world.cfg.arn("sqs", text[strings.LastIndex(text, "/")+1:])
}

// plain is a need without tags.
func (k *call) plain(action, resource string) need {
	return need{action, resource, map[string][]string{"aws:RequestedRegion": {k.world.cfg.Region}}}
}

// on is a need on an EC2 resource that exists.
func (k *call) on(action, resource string, tags []ec2types.Tag) need {
	arn := k.world.cfg.arn("ec2", resource)
	if strings.HasPrefix(resource, "image/") || strings.HasPrefix(resource, "snapshot/") {
		arn = "arn:aws:ec2:" + k.world.cfg.Region + "::" + resource
	}
	n := k.plain(action, arn)
	for _, t := range tags {
		n.context["aws:ResourceTag/"+aws.ToString(t.Key)] = []string{aws.ToString(t.Value)}
		n.context["ec2:ResourceTag/"+aws.ToString(t.Key)] = []string{aws.ToString(t.Value)}
	}
	return n
}

// requesting adds the tags that the request sets.
func (n need) requesting(tags []ec2types.Tag) need {
	for _, t := range tags {
		n.context["aws:RequestTag/"+aws.ToString(t.Key)] = []string{aws.ToString(t.Value)}
		n.context["aws:TagKeys"] = append(n.context["aws:TagKeys"], aws.ToString(t.Key))
	}
	return n
}

// creates are the needs to make a resource of a kind with tags: to make it, and to tag it on the way.
func (k *call) creates(action, kind string, tags, more []ec2types.Tag) []need {
	tags = withTags(more, tags)
	out := []need{k.on(action, kind+"/*", nil).requesting(tags)}
	if len(tags) > 0 {
		tag := k.on("ec2:CreateTags", kind+"/*", nil).requesting(tags)
		_, created, _ := strings.Cut(action, ":")
		tag.context["ec2:CreateAction"] = []string{created}
		out = append(out, tag)
	}
	return out
}

// kinds are EC2's kinds of resources by what their ids begin with.
var kinds = map[string]string{
	"i": "instance", "lt": "launch-template", "vol": "volume", "eni": "network-interface", "subnet": "subnet",
	"sg": "security-group", "ami": "image",
	"cr": "capacity-reservation", "pg": "placement-group",
}

func (k *call) eachResource(action string, ids []string, request []ec2types.Tag) []need {
	var out []need
	for _, id := range ids {
		kind, _, _ := strings.Cut(id, "-")
		var tags []ec2types.Tag
		if have, ok := tagged(k, id); ok {
			tags = *have
		}
		out = append(out, k.on(action, kinds[kind]+"/"+id, tags).requesting(request))
	}
	return out
}

// fleetNeeds are those of an instant fleet: to make the fleet, and to run machines with all that they are made of.
func (k *call) fleetNeeds(in *ec2.CreateFleetInput) []need {
	out := k.creates("ec2:CreateFleet", "fleet", tagsFor(in.TagSpecifications, ec2types.ResourceTypeFleet), nil)
	for _, l := range in.LaunchTemplateConfigs {
		ref := l.LaunchTemplateSpecification
		if ref == nil {
			continue
		}
		t, err := findTemplate(k, ref.LaunchTemplateId, ref.LaunchTemplateName)
		if err != nil {
			continue // the call itself will say that it does not exist
		}
		d := t.Versions[len(t.Versions)-1].Data
		for _, action := range []string{"ec2:CreateFleet", "ec2:RunInstances"} {
			out = append(out, k.on(action, "launch-template/"+*t.Template.LaunchTemplateId, t.Template.Tags))
		}
		for _, o := range l.Overrides {
			out = append(out, k.uses(d, aws.ToString(o.SubnetId), aws.ToString(o.ImageId))...)
		}
		out = append(out, k.makes(d, in.TagSpecifications, spotWanted(in))...)
		out = append(out, k.passes(d)...)
	}
	return unique(out)
}

func spotWanted(in *ec2.CreateFleetInput) bool {
	t := in.TargetCapacitySpecification
	return t != nil && t.DefaultTargetCapacityType == ec2types.DefaultTargetCapacityTypeSpot
}

func (k *call) runNeeds(in *ec2.RunInstancesInput) []need {
	d := &ec2types.RequestLaunchTemplateData{}
	var out []need
	if ref := in.LaunchTemplate; ref != nil {
		if t, err := findTemplate(k, ref.LaunchTemplateId, ref.LaunchTemplateName); err == nil {
			d = copyOf(*t.Versions[len(t.Versions)-1].Data)
			out = append(out, k.on("ec2:RunInstances", "launch-template/"+*t.Template.LaunchTemplateId, t.Template.Tags))
		}
	}
	if err := lay(d, in); err != nil {
		return nil // the call itself will say so
	}
	spot := d.InstanceMarketOptions != nil && d.InstanceMarketOptions.MarketType == ec2types.MarketTypeSpot
	out = append(out, k.uses(d, aws.ToString(in.SubnetId), "")...)
	out = append(out, k.makes(d, in.TagSpecifications, spot)...)
	return unique(append(out, k.passes(d)...))
}

// uses are the needs on what exists already: image, subnet, groups, reservation.
func (k *call) uses(d *ec2types.RequestLaunchTemplateData, subnetID, imageID string) []need {
	if imageID == "" {
		imageID = aws.ToString(d.ImageId)
	}
	var out []need
	img, _ := k.world.image(imageID)
	out = append(out, k.on("ec2:RunInstances", "image/"+imageID, img.Image.Tags))
	groups := d.SecurityGroupIds
	for _, n := range d.NetworkInterfaces {
		groups = append(slices.Clone(groups), n.Groups...)
		if subnetID == "" {
			subnetID = aws.ToString(n.SubnetId)
		}
	}
	if s, ok := k.world.subnet(subnetID); ok {
		out = append(out, k.on("ec2:RunInstances", "subnet/"+subnetID, s.Subnet.Tags))
	}
	out = append(out, k.eachResource("ec2:RunInstances", groups, nil)...)
	if r := d.CapacityReservationSpecification; r != nil && r.CapacityReservationTarget != nil &&
		r.CapacityReservationTarget.CapacityReservationId != nil {
		out = append(out, k.eachResource("ec2:RunInstances", []string{*r.CapacityReservationTarget.CapacityReservationId}, nil)...)
	}
	if p := d.Placement; p != nil && p.GroupId != nil {
		out = append(out, k.eachResource("ec2:RunInstances", []string{*p.GroupId}, nil)...)
	}
	return out
}

// makes are the needs on what a launch creates: instance, volumes, interfaces and, for spot, the request.
func (k *call) makes(d *ec2types.RequestLaunchTemplateData, request []ec2types.TagSpecification, spot bool) []need {
	kinds := []ec2types.ResourceType{ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume, ec2types.ResourceTypeNetworkInterface}
	if spot {
		kinds = append(kinds, ec2types.ResourceTypeSpotInstancesRequest)
	}
	var out []need
	for _, kind := range kinds {
		out = append(out, k.creates("ec2:RunInstances", string(kind), tagsFor(request, kind), templateTags(d, kind))...)
	}
	return out
}

// passes is the need to give the role of the template's profile to EC2.
func (k *call) passes(d *ec2types.RequestLaunchTemplateData) []need {
	if d.IamInstanceProfile == nil {
		return nil
	}
	p, ok := k.world.st.Profiles[aws.ToString(d.IamInstanceProfile.Name)]
	if !ok || p.Role == "" {
		return nil
	}
	return []need{k.passRole(p.Role)}
}

func (k *call) passRole(role string) need {
	n := k.plain("iam:PassRole", k.world.cfg.arn("iam", "role/"+role))
	n.context["iam:PassedToService"] = []string{"ec2.amazonaws.com"}
	return n
}

// profileNeeds are those of the calls about instance profiles.
func (k *call) profileNeeds(in any) []need {
	switch in := in.(type) {
	case *iam.CreateInstanceProfileInput:
		path := aws.ToString(in.Path)
		if path == "" {
			path = "/"
		}
		n := k.plain("iam:CreateInstanceProfile", k.world.cfg.arn("iam", "instance-profile"+path+aws.ToString(in.InstanceProfileName)))
		tag := k.plain("iam:TagInstanceProfile", n.resource)
		out := []need{n.requesting(ec2Tags(in.Tags))}
		if len(in.Tags) > 0 {
			tag = tag.requesting(ec2Tags(in.Tags))
			for _, t := range in.Tags { // a profile that is being made counts as having the tags that it is made with
				tag.context["aws:ResourceTag/"+aws.ToString(t.Key)] = []string{aws.ToString(t.Value)}
			}
			out = append(out, tag)
		}
		return out
	case *iam.TagInstanceProfileInput:
		return []need{k.onProfile(in.InstanceProfileName).requesting(ec2Tags(in.Tags))}
	case *iam.AddRoleToInstanceProfileInput:
		return []need{k.onProfile(in.InstanceProfileName), k.passRole(aws.ToString(in.RoleName))}
	case *iam.RemoveRoleFromInstanceProfileInput:
		return []need{k.onProfile(in.InstanceProfileName)}
	case *iam.DeleteInstanceProfileInput:
		return []need{k.onProfile(in.InstanceProfileName)}
	case *iam.GetInstanceProfileInput:
		return []need{k.onProfile(in.InstanceProfileName)}
	case *iam.GetRoleInput:
		return []need{k.plain("iam:GetRole", k.world.cfg.arn("iam", "role/"+aws.ToString(in.RoleName)))}
	}
	return []need{k.plain(k.op.String(), "*")}
}

func (k *call) onProfile(name *string) need {
	resource := "instance-profile/" + aws.ToString(name)
	var tags []iamtypes.Tag
	if p, ok := k.world.st.Profiles[aws.ToString(name)]; ok {
		resource = "instance-profile" + *p.Profile.Path + *name
		tags = p.Profile.Tags
	}
	n := k.plain(k.op.String(), k.world.cfg.arn("iam", resource))
	for _, t := range tags {
		n.context["aws:ResourceTag/"+aws.ToString(t.Key)] = []string{aws.ToString(t.Value)}
		n.context["iam:ResourceTag/"+aws.ToString(t.Key)] = []string{aws.ToString(t.Value)}
	}
	return n
}

func ec2Tags(tags []iamtypes.Tag) []ec2types.Tag {
	var out []ec2types.Tag
	for _, t := range tags {
		out = append(out, ec2types.Tag{Key: t.Key, Value: t.Value})
	}
	return out
}

// unique drops needs that were listed before.
func unique(needs []need) []need {
	seen := map[string]bool{}
	return slices.DeleteFunc(needs, func(n need) bool {
		key := fmt.Sprint(n)
		old := seen[key]
		seen[key] = true
		return old
	})
}
