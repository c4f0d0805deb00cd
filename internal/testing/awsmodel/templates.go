package awsmodel

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// A template is one launch template with all its versions.
type template struct {
	Template ec2types.LaunchTemplate
	Versions []templateVersion // number i+1
	Hidden   time.Time         // calls may not know it before
}

type templateVersion struct {
	Description string
	Created     time.Time
	Data        *ec2types.RequestLaunchTemplateData
}

// templateName is the form that EC2 wants of the name of a launch template.
var templateName = regexp.MustCompile(`^[a-zA-Z0-9().\-/_]{3,128}$`)

// userDataLimit is EC2's, for user data before it is encoded.
const userDataLimit = 16384

func createLaunchTemplate(c *call, in *ec2.CreateLaunchTemplateInput) (*ec2.CreateLaunchTemplateOutput, error) {
	name := aws.ToString(in.LaunchTemplateName)
	if !templateName.MatchString(name) {
		return nil, refuse("InvalidLaunchTemplateName.MalformedException",
			"Launch template name must be between 3 and 128 characters: letters, digits and -_./() only.")
	}
	return idempotent(c, in.ClientToken, in, func() (*ec2.CreateLaunchTemplateOutput, error) {
		if t := c.world.templateNamed(name); t != nil {
			return nil, refuse("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
		}
		if err := checkTemplateData(c, in.LaunchTemplateData); err != nil {
			return nil, err
		}
		tags := tagsFor(in.TagSpecifications, ec2types.ResourceTypeLaunchTemplate)
		if err := checkTags(tags); err != nil {
			return nil, err
		}
		t := &template{Hidden: c.now.Add(c.world.lag(name)), Template: ec2types.LaunchTemplate{
			LaunchTemplateId: aws.String(c.world.newID("lt")), LaunchTemplateName: &name, CreateTime: aws.Time(c.now),
			CreatedBy:            &c.who.arn,
			DefaultVersionNumber: aws.Int64(1), LatestVersionNumber: aws.Int64(1), Tags: tags,
		}}
		t.Versions = []templateVersion{{aws.ToString(in.VersionDescription), c.now, in.LaunchTemplateData}}
		c.world.st.Templates[*t.Template.LaunchTemplateId] = t
		return &ec2.CreateLaunchTemplateOutput{LaunchTemplate: copyOf(t.Template)}, nil
	})
}

func copyOf[T any](v T) *T { return &v }

// actsOn lists the launch template members that the model acts on; others are refused rather than ignored.
var actsOn = []string{
	"ImageId", "InstanceType", "UserData", "IamInstanceProfile", "Monitoring", "BlockDeviceMappings", "MetadataOptions",
	"SecurityGroupIds", "NetworkInterfaces", "CpuOptions", "Placement", "EnclaveOptions", "TagSpecifications",
	"CapacityReservationSpecification", "InstanceMarketOptions", "EbsOptimized", "KeyName",
}

// checkTemplateData refuses what EC2 refuses when a template is made; the rest shows when it is launched.
func checkTemplateData(c *call, d *ec2types.RequestLaunchTemplateData) error {
	if d == nil {
		return refuse("MissingParameter", "The request must contain the parameter LaunchTemplateData")
	}
	if name := setOutside(d, actsOn); name != "" {
		return refuse("UnsupportedOperation", "The model does not act on LaunchTemplateData.%s.", name)
	}
	if err := checkUserData(aws.ToString(d.UserData)); err != nil {
		return err
	}
	if err := checkHops(d.MetadataOptions); err != nil {
		return err
	}
	for _, s := range d.TagSpecifications {
		if err := checkTags(s.Tags); err != nil {
			return err
		}
	}
	return checkInterfaces(d.NetworkInterfaces)
}

func checkHops(m *ec2types.LaunchTemplateInstanceMetadataOptionsRequest) error {
	if m == nil || m.HttpPutResponseHopLimit == nil {
		return nil
	}
	if hops := *m.HttpPutResponseHopLimit; hops < 1 || hops > 64 {
		return refuse("InvalidParameterValue",
			"Value (%d) for parameter HttpPutResponseHopLimit is invalid. Expected a value between 1 and 64", hops)
	}
	return nil
}

func checkUserData(encoded string) error {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return refuse("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	if len(raw) > userDataLimit {
		return refuse("InvalidUserData.Malformed", "User data is limited to %d bytes", userDataLimit)
	}
	return nil
}

func checkInterfaces(nics []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest) error {
	taken := map[string]bool{}
	for _, n := range nics {
		at := fmt.Sprintf("card %d device %d", aws.ToInt32(n.NetworkCardIndex), aws.ToInt32(n.DeviceIndex))
		if n.DeviceIndex == nil {
			return refuse("MissingParameter", "Each network interface requires a device index.")
		}
		if taken[at] {
			return refuse("InvalidParameterValue", "Each network interface requires a unique device index: %s", at)
		}
		taken[at] = true
		if aws.ToString(n.InterfaceType) == "efa-only" && (n.Ipv4PrefixCount != nil || n.AssociatePublicIpAddress != nil) {
			return refuse("InvalidParameterCombination", "Interfaces of type efa-only have no IP addresses.")
		}
		if len(nics) > 1 && aws.ToBool(n.AssociatePublicIpAddress) {
			return refuse("InvalidParameterCombination",
				"The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.")
		}
	}
	return nil
}

func (w *world) templateNamed(name string) *template {
	for _, t := range w.st.Templates {
		if *t.Template.LaunchTemplateName == name {
			return t
		}
	}
	return nil
}

// findTemplate finds a template as a call of this moment would: a template that was made just now may not be known yet.
func findTemplate(c *call, id, name *string) (*template, error) {
	var t *template
	switch {
	case id != nil && name != nil:
		return nil, refuse("InvalidParameterCombination", "You can specify either the launch template ID or its name.")
	case id != nil:
		t = c.world.st.Templates[*id]
		if t == nil || !c.world.sees(*t.Template.LaunchTemplateName, t.Hidden, c.now) {
			return nil, refuse("InvalidLaunchTemplateId.NotFound",
				"The specified launch template, with template ID %s, does not exist.", *id)
		}
	case name != nil:
		t = c.world.templateNamed(*name)
		if t == nil || !c.world.sees(*t.Template.LaunchTemplateName, t.Hidden, c.now) {
			return nil, refuse("InvalidLaunchTemplateName.NotFoundException",
				"At least one of the launch templates specified in the request does not exist: %s", *name)
		}
	default:
		return nil, refuse("MissingParameter", "The request must name a launch template.")
	}
	return t, nil
}

// version resolves "$Latest", "$Default", a number, or nothing.
func (t *template) version(want string) (int, error) {
	n := int(*t.Template.DefaultVersionNumber)
	switch want {
	case "", "$Default":
	case "$Latest":
		n = len(t.Versions)
	default:
		v, err := strconv.Atoi(want)
		if err != nil || v < 1 || v > len(t.Versions) {
			return 0, refuse("InvalidLaunchTemplateId.VersionNotFound",
				"Could not find the specified version %s for the launch template with ID %s.", want, *t.Template.LaunchTemplateId)
		}
		n = v
	}
	return n, nil
}

func createLaunchTemplateVersion(c *call, in *ec2.CreateLaunchTemplateVersionInput) (*ec2.CreateLaunchTemplateVersionOutput, error) {
	return idempotent(c, in.ClientToken, in, func() (*ec2.CreateLaunchTemplateVersionOutput, error) {
		t, err := findTemplate(c, in.LaunchTemplateId, in.LaunchTemplateName)
		if err != nil {
			return nil, err
		}
		if err := checkTemplateData(c, in.LaunchTemplateData); err != nil {
			return nil, err
		}
		t.Versions = append(t.Versions, templateVersion{aws.ToString(in.VersionDescription), c.now, in.LaunchTemplateData})
		t.Template.LatestVersionNumber = aws.Int64(int64(len(t.Versions)))
		v, err := describeVersion(c, t, len(t.Versions))
		return &ec2.CreateLaunchTemplateVersionOutput{LaunchTemplateVersion: v}, err
	})
}

func describeLaunchTemplates(c *call, in *ec2.DescribeLaunchTemplatesInput) (*ec2.DescribeLaunchTemplatesOutput, error) {
	for _, id := range in.LaunchTemplateIds {
		if _, err := findTemplate(c, &id, nil); err != nil {
			return nil, err
		}
	}
	for _, name := range in.LaunchTemplateNames {
		if _, err := findTemplate(c, nil, &name); err != nil {
			return nil, err
		}
	}
	var out []ec2types.LaunchTemplate
	for _, t := range c.world.st.Templates {
		if !known(in.LaunchTemplateIds, t.Template.LaunchTemplateId) || !known(in.LaunchTemplateNames, t.Template.LaunchTemplateName) {
			continue
		}
		named := len(in.LaunchTemplateIds)+len(in.LaunchTemplateNames) > 0
		ok, err := matches(in.Filters, t.Template, templateFilters, t.Template.Tags)
		if err != nil {
			return nil, err
		}
		if ok && (named || c.world.sees(*t.Template.LaunchTemplateName, t.Hidden, c.now)) {
			out = append(out, t.Template)
		}
	}
	out, next, err := page(out, in.MaxResults, in.NextToken, 1, 200, func(t ec2types.LaunchTemplate) string { return *t.LaunchTemplateId })
	return &ec2.DescribeLaunchTemplatesOutput{LaunchTemplates: out, NextToken: next}, err
}

var templateFilters = filters[ec2types.LaunchTemplate]{
	"launch-template-name": func(t ec2types.LaunchTemplate) []string { return []string{*t.LaunchTemplateName} },
	"create-time":          func(t ec2types.LaunchTemplate) []string { return []string{t.CreateTime.UTC().Format(time.RFC3339)} },
}

func describeLaunchTemplateVersions(c *call, in *ec2.DescribeLaunchTemplateVersionsInput) (
	*ec2.DescribeLaunchTemplateVersionsOutput, error) {
	if in.LaunchTemplateId == nil && in.LaunchTemplateName == nil {
		return describeTemplatesAt(c, in)
	}
	t, err := findTemplate(c, in.LaunchTemplateId, in.LaunchTemplateName)
	if err != nil {
		return nil, err
	}
	var wanted []int
	for _, v := range in.Versions {
		n, err := t.version(v)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, n)
	}
	out := []ec2types.LaunchTemplateVersion{}
	for n := len(t.Versions); n >= 1; n-- {
		if len(wanted) > 0 && !slices.Contains(wanted, n) {
			continue
		}
		v, err := describeVersion(c, t, n)
		if err != nil {
			return nil, err
		}
		out = append(out, *v)
	}
	return &ec2.DescribeLaunchTemplateVersionsOutput{LaunchTemplateVersions: out}, nil
}

// describeTemplatesAt lists one version of every template, as EC2 does where no template is named.
func describeTemplatesAt(c *call, in *ec2.DescribeLaunchTemplateVersionsInput) (*ec2.DescribeLaunchTemplateVersionsOutput, error) {
	if len(in.Versions) == 0 || slices.ContainsFunc(in.Versions, func(v string) bool { return v != "$Latest" && v != "$Default" }) {
		return nil, refuse("MissingParameter", "Without a launch template, Versions must be $Latest, $Default or both")
	}
	all := []ec2types.LaunchTemplateVersion{}
	for _, t := range c.world.st.Templates {
		var told []int
		for _, name := range in.Versions {
			n, err := t.version(name)
			if err != nil {
				return nil, err
			}
			if slices.Contains(told, n) {
				continue
			}
			told = append(told, n)
			v, err := describeVersion(c, t, n)
			if err != nil {
				return nil, err
			}
			all = append(all, *v)
		}
	}
	key := func(v ec2types.LaunchTemplateVersion) string {
		return fmt.Sprintf("%s/%06d", *v.LaunchTemplateId, *v.VersionNumber)
	}
	out, next, err := page(all, in.MaxResults, in.NextToken, 1, 200, key)
	return &ec2.DescribeLaunchTemplateVersionsOutput{LaunchTemplateVersions: out, NextToken: next}, err
}

func describeVersion(c *call, t *template, n int) (*ec2types.LaunchTemplateVersion, error) {
	v := t.Versions[n-1]
	raw, err := json.Marshal(v.Data) // the two shapes have the same members
	if err != nil {
		return nil, err
	}
	var data ec2types.ResponseLaunchTemplateData
	if err := json.Unmarshal(raw, &data); err != nil {
		return nil, err
	}
	out := &ec2types.LaunchTemplateVersion{
		LaunchTemplateId: t.Template.LaunchTemplateId, LaunchTemplateName: t.Template.LaunchTemplateName,
		VersionNumber: aws.Int64(int64(n)),
		CreateTime:    &v.Created, CreatedBy: t.Template.CreatedBy, DefaultVersion: aws.Bool(int64(n) == *t.Template.DefaultVersionNumber),
		LaunchTemplateData: &data,
	}
	if v.Description != "" {
		out.VersionDescription = &v.Description
	}
	return out, nil
}

func deleteLaunchTemplate(c *call, in *ec2.DeleteLaunchTemplateInput) (*ec2.DeleteLaunchTemplateOutput, error) {
	t, err := findTemplate(c, in.LaunchTemplateId, in.LaunchTemplateName)
	if err != nil {
		return nil, err
	}
	delete(c.world.st.Templates, *t.Template.LaunchTemplateId)
	return &ec2.DeleteLaunchTemplateOutput{LaunchTemplate: copyOf(t.Template)}, nil
}

// A Template is a launch template that exists.
type Template struct {
	ID, Name string
	Tags     map[string]string
	Data     *ec2types.RequestLaunchTemplateData // of the latest version
}

// Templates returns the launch templates that exist, by name.
func (c *Cloud) Templates() []Template {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Template
	for _, id := range slices.Sorted(maps.Keys(c.world.st.Templates)) {
		t := c.world.st.Templates[id]
		o := Template{ID: id, Name: *t.Template.LaunchTemplateName, Tags: map[string]string{}, Data: t.Versions[len(t.Versions)-1].Data}
		for _, tag := range t.Template.Tags {
			o.Tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b Template) int { return compare(a.Name, b.Name) })
	return out
}
