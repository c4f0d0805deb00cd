package awsmodel

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"
)

// A profile is an instance profile and the name of its role, "" if it has none.
type profile struct {
	Profile iamtypes.InstanceProfile
	Role    string
	Hidden  time.Time // calls may not know it before
}

var profileName = regexp.MustCompile(`^[\w+=,.@-]{1,128}$`)

func noSuchEntity(kind, name string) *fault {
	return refuseWith(http.StatusNotFound, "NoSuchEntity", "%s %s cannot be found.", kind, name)
}

func findProfile(c *call, name *string) (*profile, error) {
	p, ok := c.world.st.Profiles[aws.ToString(name)]
	if !ok {
		return nil, noSuchEntity("Instance Profile", aws.ToString(name))
	}
	return p, nil
}

// tell returns a profile as IAM shows it.
func (w *world) tell(p *profile) iamtypes.InstanceProfile {
	out := p.Profile
	out.Roles = []iamtypes.Role{}
	if r, ok := w.st.Roles[p.Role]; ok {
		out.Roles = append(out.Roles, *r)
	}
	return out
}

func createInstanceProfile(c *call, in *iam.CreateInstanceProfileInput) (*iam.CreateInstanceProfileOutput, error) {
	name, path := aws.ToString(in.InstanceProfileName), aws.ToString(in.Path)
	if path == "" {
		path = "/"
	}
	if !profileName.MatchString(name) {
		return nil, refuse("ValidationError", "The specified value for instanceProfileName is invalid. It must contain "+
			"only alphanumeric characters and/or the following: +=,.@_-")
	}
	if !strings.HasPrefix(path, "/") || !strings.HasSuffix(path, "/") || len(path) > 512 {
		return nil, refuse("ValidationError", "The specified value for path is invalid. It must begin and end with / "+
			"and contain only alphanumeric characters and/or / characters.")
	}
	if _, ok := c.world.st.Profiles[name]; ok {
		return nil, refuseWith(http.StatusConflict, "EntityAlreadyExists", "Instance Profile %s already exists.", name)
	}
	if len(in.Tags) > maxTags {
		return nil, refuseWith(http.StatusConflict, "LimitExceeded", "The number of tags has reached the maximum limit.")
	}
	p := &profile{Hidden: c.now.Add(c.world.lag(profiles)), Profile: iamtypes.InstanceProfile{
		InstanceProfileName: &name, Path: &path, InstanceProfileId: aws.String("AIPA" + strings.ToUpper(fmt.Sprintf("%016x", hash(name)))),
		Arn:        aws.String(c.world.cfg.arn("iam", "instance-profile"+path+name)),
		CreateDate: aws.Time(c.now.Truncate(time.Second)), Tags: in.Tags,
	}}
	c.world.st.Profiles[name] = p
	return &iam.CreateInstanceProfileOutput{InstanceProfile: copyOf(c.world.tell(p))}, nil
}

func getInstanceProfile(c *call, in *iam.GetInstanceProfileInput) (*iam.GetInstanceProfileOutput, error) {
	p, err := findProfile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if !c.world.sees(profiles, p.Hidden, c.now) {
		return nil, noSuchEntity("Instance Profile", aws.ToString(in.InstanceProfileName))
	}
	return &iam.GetInstanceProfileOutput{InstanceProfile: copyOf(c.world.tell(p))}, nil
}

func listInstanceProfiles(c *call, in *iam.ListInstanceProfilesInput) (*iam.ListInstanceProfilesOutput, error) {
	var all []iamtypes.InstanceProfile
	for _, p := range c.world.st.Profiles {
		if strings.HasPrefix(*p.Profile.Path, aws.ToString(in.PathPrefix)) && c.world.sees(profiles, p.Hidden, c.now) {
			shown := c.world.tell(p)
			shown.Tags = nil // IAM tells tags only of single profiles
			all = append(all, shown)
		}
	}
	out, next, err := page(all, in.MaxItems, in.Marker, 1, 1000, func(p iamtypes.InstanceProfile) string { return *p.InstanceProfileName })
	return &iam.ListInstanceProfilesOutput{InstanceProfiles: out, Marker: next, IsTruncated: next != nil}, err
}

func listInstanceProfileTags(c *call, in *iam.ListInstanceProfileTagsInput) (*iam.ListInstanceProfileTagsOutput, error) {
	p, err := findProfile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	return &iam.ListInstanceProfileTagsOutput{Tags: append([]iamtypes.Tag{}, p.Profile.Tags...)}, nil
}

func tagInstanceProfile(c *call, in *iam.TagInstanceProfileInput) (*iam.TagInstanceProfileOutput, error) {
	p, err := findProfile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	for _, t := range in.Tags {
		p.Profile.Tags = slices.DeleteFunc(slices.Clone(p.Profile.Tags), func(o iamtypes.Tag) bool { return *o.Key == *t.Key })
		p.Profile.Tags = append(p.Profile.Tags, t)
	}
	return &iam.TagInstanceProfileOutput{}, nil
}

func addRole(c *call, in *iam.AddRoleToInstanceProfileInput) (*iam.AddRoleToInstanceProfileOutput, error) {
	p, err := findProfile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if _, ok := c.world.st.Roles[aws.ToString(in.RoleName)]; !ok {
		return nil, refuseWith(http.StatusNotFound, "NoSuchEntity", "The role with name %s cannot be found.", aws.ToString(in.RoleName))
	}
	if p.Role != "" {
		return nil, refuseWith(http.StatusConflict, "LimitExceeded", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
	}
	p.Role = *in.RoleName
	return &iam.AddRoleToInstanceProfileOutput{}, nil
}

func removeRole(c *call, in *iam.RemoveRoleFromInstanceProfileInput) (*iam.RemoveRoleFromInstanceProfileOutput, error) {
	p, err := findProfile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if p.Role != aws.ToString(in.RoleName) {
		return nil, refuseWith(http.StatusNotFound, "NoSuchEntity", "The role with name %s cannot be found.", aws.ToString(in.RoleName))
	}
	p.Role = ""
	return &iam.RemoveRoleFromInstanceProfileOutput{}, nil
}

func deleteInstanceProfile(c *call, in *iam.DeleteInstanceProfileInput) (*iam.DeleteInstanceProfileOutput, error) {
	p, err := findProfile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if p.Role != "" {
		return nil, refuseWith(http.StatusConflict, "DeleteConflict",
			"Cannot delete entity, must remove roles from instance profile first.")
	}
	delete(c.world.st.Profiles, *in.InstanceProfileName)
	return &iam.DeleteInstanceProfileOutput{}, nil
}

func getRole(c *call, in *iam.GetRoleInput) (*iam.GetRoleOutput, error) {
	r, ok := c.world.st.Roles[aws.ToString(in.RoleName)]
	if !ok {
		return nil, refuseWith(http.StatusNotFound, "NoSuchEntity", "The role with name %s cannot be found.", aws.ToString(in.RoleName))
	}
	return &iam.GetRoleOutput{Role: copyOf(*r)}, nil
}

func createRole(c *call, in *iam.CreateRoleInput) (*iam.CreateRoleOutput, error) {
	name := aws.ToString(in.RoleName)
	if _, ok := c.world.st.Roles[name]; ok {
		return nil, refuseWith(http.StatusConflict, "EntityAlreadyExists", "Role with name %s already exists.", name)
	}
	c.world.addRoleNamed(name)
	if path := aws.ToString(in.Path); path != "" {
		c.world.st.Roles[name].Path, c.world.st.Roles[name].Arn = &path, aws.String(c.world.cfg.arn("iam", "role"+path+name))
	}
	if trust := aws.ToString(in.AssumeRolePolicyDocument); trust != "" {
		c.world.st.Roles[name].AssumeRolePolicyDocument = aws.String(url.QueryEscape(trust))
	}
	return &iam.CreateRoleOutput{Role: copyOf(*c.world.st.Roles[name])}, nil
}

// simulatePrincipalPolicy judges one action on each resource by the policies of a caller. A role that is none may do everything.
func simulatePrincipalPolicy(c *call, in *iam.SimulatePrincipalPolicyInput) (*iam.SimulatePrincipalPolicyOutput, error) {
	who := c.world.withARN(aws.ToString(in.PolicySourceArn))
	if who == nil {
		who = &principal{}
	}
	as := *c
	as.who = who
	out := &iam.SimulatePrincipalPolicyOutput{}
	for _, action := range in.ActionNames {
		for _, resource := range in.ResourceArns {
			n := c.plain(action, resource)
			for _, e := range in.ContextEntries {
				n.context[aws.ToString(e.ContextKeyName)] = e.ContextKeyValues
			}
			decision := iamtypes.PolicyEvaluationDecisionTypeAllowed
			if as.refusal(n) != "" {
				decision = iamtypes.PolicyEvaluationDecisionTypeImplicitDeny
			}
			out.EvaluationResults = append(out.EvaluationResults, iamtypes.EvaluationResult{EvalActionName: &action,
				EvalResourceName: &resource, EvalDecision: decision})
		}
	}
	return out, nil
}

func (w *world) addRoleNamed(name string) {
	w.st.Roles[name] = &iamtypes.Role{
		RoleName: &name, RoleId: aws.String("AROA" + strings.ToUpper(fmt.Sprintf("%016x", hash(name)))), Path: aws.String("/"),
		Arn: aws.String(w.cfg.arn("iam", "role/"+name)), CreateDate: aws.Time(time.Now().Truncate(time.Second)),
		AssumeRolePolicyDocument: aws.String("%7B%7D"),
	}
}

// AddRole adds a role; the cluster admits it as a node's only if it is Config.NodeRole or was added here.
func (c *Cloud) AddRole(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.world.addRoleNamed(name)
	c.world.changed()
}

// AddTrusted adds a role with the policy that says who may take it.
func (c *Cloud) AddTrusted(name, trust string) {
	c.AddRole(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.world.st.Roles[name].AssumeRolePolicyDocument = aws.String(url.QueryEscape(trust))
}

func listRoles(c *call, _ *iam.ListRolesInput) (*iam.ListRolesOutput, error) {
	out := &iam.ListRolesOutput{Roles: []iamtypes.Role{}}
	for _, name := range slices.Sorted(maps.Keys(c.world.st.Roles)) {
		out.Roles = append(out.Roles, *c.world.st.Roles[name])
	}
	return out, nil
}

// admitted reports whether a machine has a role at the time it boots. Which roles the cluster maps to nodes is not modelled
// further: every role of the account is.
func (w *world) admitted(m *machine) bool {
	if m.Now.IamInstanceProfile == nil {
		return false
	}
	for _, p := range w.st.Profiles {
		if aws.ToString(p.Profile.Arn) == aws.ToString(m.Now.IamInstanceProfile.Arn) {
			return p.Role != ""
		}
	}
	return false
}

// A Profile is an instance profile that exists.
type Profile struct {
	Name, Path, Role string
	Tags             map[string]string
}

// Profiles returns the instance profiles that exist, by name.
func (c *Cloud) Profiles() []Profile {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Profile
	for _, name := range slices.Sorted(maps.Keys(c.world.st.Profiles)) {
		p := c.world.st.Profiles[name]
		o := Profile{Name: name, Path: *p.Profile.Path, Role: p.Role, Tags: map[string]string{}}
		for _, t := range p.Profile.Tags {
			o.Tags[*t.Key] = *t.Value
		}
		out = append(out, o)
	}
	return out
}

func getCallerIdentity(c *call, _ *sts.GetCallerIdentityInput) (*sts.GetCallerIdentityOutput, error) {
	return &sts.GetCallerIdentityOutput{Account: &c.world.cfg.Account, Arn: &c.who.arn,
		UserId: aws.String("AIDA" + strings.ToUpper(fmt.Sprintf("%016x", hash(c.who.arn))))}, nil
}

func assumeRole(c *call, in *sts.AssumeRoleInput) (*sts.AssumeRoleOutput, error) {
	cred, user := session(c, aws.ToString(in.RoleArn), aws.ToString(in.RoleSessionName))
	return &sts.AssumeRoleOutput{Credentials: cred, AssumedRoleUser: user}, nil
}

func assumeRoleWithWebIdentity(c *call, in *sts.AssumeRoleWithWebIdentityInput) (*sts.AssumeRoleWithWebIdentityOutput, error) {
	if aws.ToString(in.WebIdentityToken) == "" {
		return nil, refuse("InvalidIdentityToken", "The web identity token that was passed is empty.")
	}
	cred, user := session(c, aws.ToString(in.RoleArn), aws.ToString(in.RoleSessionName))
	return &sts.AssumeRoleWithWebIdentityOutput{Credentials: cred, AssumedRoleUser: user,
		Audience: aws.String("sts.amazonaws.com"), SubjectFromWebIdentityToken: aws.String("system:serviceaccount")}, nil
}

// session gives credentials whose access key id stands for the role: a caller that Config.Identities lists under the
// role's ARN gets that identity's rights.
func session(c *call, role, name string) (*ststypes.Credentials, *ststypes.AssumedRoleUser) {
	key := "ASIA" + strings.ToUpper(fmt.Sprintf("%016x", hash(role)))
	if p := c.world.withARN(role); p != nil {
		c.world.callers[key] = p
	}
	short := role[strings.LastIndex(role, "/")+1:]
	return &ststypes.Credentials{
			AccessKeyId: &key, SecretAccessKey: aws.String("secret"), SessionToken: aws.String("session"),
			Expiration: aws.Time(c.now.Add(time.Hour)),
		}, &ststypes.AssumedRoleUser{
			Arn: aws.String(c.world.cfg.arn("sts", "assumed-role/"+short+"/"+name)), AssumedRoleId: aws.String(key + ":" + name),
		}
}
