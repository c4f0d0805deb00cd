package awsmodel

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"go.yaml.in/yaml/v3"
)

// CloudFormation, as far as the template of install/aws and "aws cloudformation deploy" need it: parameters, conditions, the short forms of
// Ref, Sub, GetAtt, If, Equals and Not, roles, instance profiles and queues. Policies and rules are accepted and change nothing: the model
// has its own. What the account has already is used unchanged and survives the stack, because the model's account has what a cluster needs
// from the start.

// A stack is what was made of a template. A change set that was not executed yet is Next.
type stack struct {
	ID, Name, Status    string
	Created             time.Time
	Template            string
	Parameters, Outputs map[string]string
	Made                []physical // what goes with the stack
	Next                map[string]*change
}

type physical struct{ Type, Name string }

type change struct {
	Template   string
	Parameters map[string]string
}

// Requests to CloudFormation and its answers. The model links no client of that service.
type (
	StackParameter struct {
		ParameterKey, ParameterValue *string
		UsePreviousValue             *bool
	}
	CreateChangeSetInput struct {
		StackName, ChangeSetName, ChangeSetType, TemplateBody, Description *string
		Parameters                                                         []StackParameter
		Capabilities                                                       []string
	}
	CreateChangeSetOutput   struct{ Id, StackId *string }
	DescribeChangeSetInput  struct{ StackName, ChangeSetName *string }
	DescribeChangeSetOutput struct{ ChangeSetName, StackId, StackName, Status, ExecutionStatus *string }
	ExecuteChangeSetInput   struct {
		StackName, ChangeSetName *string
		DisableRollback          *bool
	}
	DescribeStacksInput  struct{ StackName, NextToken *string }
	DescribeStacksOutput struct{ Stacks []Stack }
	DeleteStackInput     struct{ StackName, ClientRequestToken *string }
	Stack                struct {
		StackId, StackName, StackStatus *string
		CreationTime                    *time.Time
		Outputs                         []StackOutput
	}
	StackOutput struct{ OutputKey, OutputValue *string }
	Nothing     struct{} // the answer of operations that have none
)

func invalidStack(format string, args ...any) *fault {
	return refuse("ValidationError", format, args...)
}

// findStack finds a stack by its name or its id.
func (c *call) findStack(name *string) (*stack, error) {
	for _, s := range c.world.st.Stacks {
		if s.Name == aws.ToString(name) || s.ID == aws.ToString(name) {
			return s, nil
		}
	}
	return nil, invalidStack("Stack with id %s does not exist", aws.ToString(name))
}

// openStack finds a stack, or makes an empty stack.
func (c *call) openStack(name *string) *stack {
	if s, err := c.findStack(name); err == nil {
		return s
	}
	if c.world.st.Stacks == nil {
		c.world.st.Stacks = map[string]*stack{}
	}
	s := &stack{Name: *name, Created: c.now, Status: "REVIEW_IN_PROGRESS", Next: map[string]*change{}}
	s.ID = fmt.Sprintf("arn:aws:cloudformation:%s:%s:stack/%s/%s", c.world.cfg.Region, c.world.cfg.Account, s.Name, c.world.uuid())
	c.world.st.Stacks[s.Name] = s
	return s
}

func createChangeSet(c *call, in *CreateChangeSetInput) (*CreateChangeSetOutput, error) {
	if err := mayNameRoles(in.TemplateBody, in.Capabilities); err != nil {
		return nil, err
	}
	s := c.openStack(in.StackName)
	next := change{aws.ToString(in.TemplateBody), s.given(in.Parameters)}
	if _, err := newForm(c, s, next); err != nil {
		return nil, err
	}
	s.Next[*in.ChangeSetName] = &next
	return &CreateChangeSetOutput{aws.String(strings.Replace(s.ID, ":stack/", ":changeSet/", 1) + "/" + *in.ChangeSetName), &s.ID}, nil
}

func mayNameRoles(template *string, capabilities []string) error {
	if strings.Contains(aws.ToString(template), "RoleName:") && !slices.Contains(capabilities, "CAPABILITY_NAMED_IAM") {
		return refuse("InsufficientCapabilitiesException", "Requires capabilities : [CAPABILITY_NAMED_IAM]")
	}
	return nil
}

// given are the values of a request's parameters.
func (s *stack) given(list []StackParameter) map[string]string {
	out := map[string]string{}
	for _, p := range list {
		if out[*p.ParameterKey] = aws.ToString(p.ParameterValue); aws.ToBool(p.UsePreviousValue) {
			out[*p.ParameterKey] = s.Parameters[*p.ParameterKey]
		}
	}
	return out
}

// changeSet finds a change set by its name or its id; an id names the stack too.
func (c *call) changeSet(stackName, name *string) (*stack, string, error) {
	short, id := aws.ToString(name), aws.ToString(name)
	if strings.HasPrefix(id, "arn:") {
		end := strings.LastIndex(id, "/")
		short, stackName = id[end+1:], aws.String(strings.Replace(id[:end], ":changeSet/", ":stack/", 1))
	}
	s, err := c.findStack(stackName)
	if err == nil && s.Next[short] == nil {
		err = refuseWith(404, "ChangeSetNotFound", "ChangeSet [%s] does not exist", short)
	}
	return s, short, err
}

func describeChangeSet(c *call, in *DescribeChangeSetInput) (*DescribeChangeSetOutput, error) {
	s, name, err := c.changeSet(in.StackName, in.ChangeSetName)
	if err != nil {
		return nil, err
	}
	return &DescribeChangeSetOutput{&name, &s.ID, &s.Name, aws.String("CREATE_COMPLETE"), aws.String("AVAILABLE")}, nil
}

func executeChangeSet(c *call, in *ExecuteChangeSetInput) (*Nothing, error) {
	s, name, err := c.changeSet(in.StackName, in.ChangeSetName)
	if err != nil {
		return nil, err
	}
	next := *s.Next[name]
	s.Next = map[string]*change{}
	return &Nothing{}, s.apply(c, next)
}

func describeStacks(c *call, in *DescribeStacksInput) (*DescribeStacksOutput, error) {
	out := &DescribeStacksOutput{Stacks: []Stack{}}
	if in.StackName != nil {
		if _, err := c.findStack(in.StackName); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.world.st.Stacks)) {
		s := c.world.st.Stacks[name]
		if in.StackName != nil && s.Name != *in.StackName && s.ID != *in.StackName {
			continue
		}
		shown := Stack{StackId: &s.ID, StackName: &s.Name, StackStatus: &s.Status, CreationTime: &s.Created}
		for _, key := range slices.Sorted(maps.Keys(s.Outputs)) {
			shown.Outputs = append(shown.Outputs, StackOutput{&key, aws.String(s.Outputs[key])})
		}
		out.Stacks = append(out.Stacks, shown)
	}
	return out, nil
}

func deleteStack(c *call, in *DeleteStackInput) (*Nothing, error) {
	s, err := c.findStack(in.StackName)
	if err != nil {
		return &Nothing{}, nil // as CloudFormation answers
	}
	for _, p := range slices.Backward(s.Made) {
		switch p.Type {
		case "AWS::IAM::Role":
			delete(c.world.st.Roles, p.Name)
		case "AWS::IAM::InstanceProfile":
			delete(c.world.st.Profiles, p.Name)
		case "AWS::SQS::Queue":
			delete(c.world.st.Queues, p.Name)
		}
	}
	delete(c.world.st.Stacks, s.Name)
	return &Nothing{}, nil
}

// apply makes what a template lists. What it made before stays.
func (s *stack) apply(c *call, next change) error {
	f, err := newForm(c, s, next)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f.Resources)) {
		f.resource(name)
	}
	outputs := map[string]string{}
	for name, o := range f.Outputs {
		outputs[name] = f.text(&o.Value)
	}
	if f.err != nil {
		return f.err
	}
	done := "CREATE_COMPLETE"
	if s.Template != "" {
		done = "UPDATE_COMPLETE"
	}
	s.Status, s.Template, s.Parameters, s.Outputs = done, next.Template, f.values, outputs
	return nil
}

// A form is a template while it is filled in. The first error stays.
type form struct {
	Parameters map[string]struct {
		Default        *string `yaml:"Default"`
		AllowedPattern string  `yaml:"AllowedPattern"`
	} `yaml:"Parameters"`
	Conditions map[string]yaml.Node `yaml:"Conditions"`
	Resources  map[string]struct {
		Type       string               `yaml:"Type"`
		Condition  string               `yaml:"Condition"`
		Properties map[string]yaml.Node `yaml:"Properties"`
	} `yaml:"Resources"`
	Outputs map[string]struct {
		Value yaml.Node `yaml:"Value"`
	} `yaml:"Outputs"`

	c      *call
	stack  *stack
	values map[string]string            // of parameters
	made   map[string]map[string]string // by logical name: Ref and attributes; nil while it is being made
	err    error
}

func newForm(c *call, s *stack, next change) (*form, error) {
	f := &form{c: c, stack: s, values: map[string]string{}, made: map[string]map[string]string{}}
	if err := yaml.Unmarshal([]byte(next.Template), f); err != nil || len(f.Resources) == 0 {
		return nil, invalidStack("Template format error: At least one Resources member must be defined. %v", err)
	}
	for name, p := range f.Parameters {
		value, ok := next.Parameters[name]
		if !ok && p.Default == nil {
			return nil, invalidStack("Parameters: [%s] must have values", name)
		}
		if !ok {
			value = *p.Default
		}
		if fits, err := regexp.MatchString(p.AllowedPattern, value); err != nil || !fits {
			return nil, invalidStack("Parameter '%s' must match pattern %s", name, p.AllowedPattern)
		}
		f.values[name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(f.Resources)) {
		if r := f.Resources[name]; !slices.Contains(stackTypes, r.Type) {
			return nil, invalidStack("Template format error: Unrecognized resource types: [%s]", r.Type)
		}
	}
	return f, nil
}

var stackTypes = []string{"AWS::IAM::Role", "AWS::IAM::InstanceProfile", "AWS::IAM::ManagedPolicy", "AWS::SQS::Queue",
	"AWS::SQS::QueuePolicy", "AWS::Events::Rule"}

// resource makes what has a logical name, once, and returns what Ref and GetAtt say of it.
func (f *form) resource(name string) map[string]string {
	r, known := f.Resources[name]
	attributes, begun := f.made[name]
	if !known || begun && attributes == nil {
		f.fail(invalidStack("Template error: %s is not a resource, or needs itself", name))
		return nil
	}
	if begun || r.Condition != "" && !f.condition(r.Condition) {
		return attributes
	}
	f.made[name] = nil
	property := func(key string) string { n := r.Properties[key]; return f.text(&n) }
	cfg, out := f.c.world.cfg, map[string]string{"Ref": name}
	switch r.Type {
	case "AWS::IAM::Role":
		trust := property("AssumeRolePolicyDocument")
		out["Ref"], out["Arn"] = property("RoleName"), cfg.arn("iam", "role/"+property("RoleName"))
		f.keep(r.Type, out["Ref"], func() error {
			_, err := createRole(f.c, &iam.CreateRoleInput{RoleName: aws.String(out["Ref"]), AssumeRolePolicyDocument: &trust})
			return err
		})
	case "AWS::IAM::InstanceProfile":
		roles := r.Properties["Roles"]
		out["Ref"], out["Arn"] = property("InstanceProfileName"), cfg.arn("iam", "instance-profile/"+property("InstanceProfileName"))
		f.keep(r.Type, out["Ref"], func() error {
			_, err := createInstanceProfile(f.c, &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String(out["Ref"])})
			for i := 0; i < len(roles.Content) && err == nil; i++ {
				role := f.text(roles.Content[i])
				_, err = addRole(f.c, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: aws.String(out["Ref"]), RoleName: &role})
			}
			return err
		})
	case "AWS::SQS::Queue":
		queue := property("QueueName")
		out["Ref"], out["QueueName"], out["Arn"] = f.c.world.queueURL(queue), queue, cfg.arn("sqs", queue)
		if f.c.world.st.Queues[queue] == nil {
			f.keep(r.Type, queue, func() error {
				_, err := createQueue(f.c, &sqs.CreateQueueInput{QueueName: &queue})
				return err
			})
		}
	case "AWS::IAM::ManagedPolicy":
		out["Ref"] = cfg.arn("iam", "policy/"+property("ManagedPolicyName"))
	}
	f.made[name] = out
	return out
}

// keep makes something that goes with the stack. What is there already stays unchanged, and is not the stack's.
func (f *form) keep(kind, name string, create func() error) {
	err := create()
	if err == nil {
		f.stack.Made = append(f.stack.Made, physical{kind, name})
	} else if asFault(err).code != "EntityAlreadyExists" {
		f.fail(err)
	}
}

func (f *form) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *form) condition(name string) bool {
	n := f.Conditions[name]
	return f.text(&n) == "true"
}

var placeholder = regexp.MustCompile(`\$\{[\w:.]+\}`)

// text is what a value of a template comes to.
func (f *form) text(n *yaml.Node) string {
	switch n.Tag {
	case "!Ref", "!GetAtt":
		return f.look(n.Value)
	case "!Sub":
		return placeholder.ReplaceAllStringFunc(n.Value, func(hole string) string { return f.look(hole[2 : len(hole)-1]) })
	case "!If":
		if len(n.Content) == 3 && f.condition(n.Content[0].Value) {
			return f.text(n.Content[1])
		} else if len(n.Content) == 3 {
			return f.text(n.Content[2])
		}
	case "!Equals":
		return fmt.Sprint(len(n.Content) == 2 && f.text(n.Content[0]) == f.text(n.Content[1]))
	case "!Not":
		return fmt.Sprint(len(n.Content) == 1 && f.text(n.Content[0]) == "false")
	}
	if n.Kind != yaml.ScalarNode || strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") {
		f.fail(invalidStack("Template error: the model does not know %s in line %d", n.Tag, n.Line))
	}
	return n.Value
}

// look finds a parameter, a pseudo parameter, a resource or its attribute.
func (f *form) look(name string) string {
	cfg := f.c.world.cfg
	pseudo := map[string]string{"AWS::Partition": "aws", "AWS::URLSuffix": "amazonaws.com", "AWS::Region": cfg.Region,
		"AWS::AccountId": cfg.Account, "AWS::StackName": f.stack.Name, "AWS::StackId": f.stack.ID}
	if value, ok := pseudo[name]; ok {
		return value
	}
	if value, ok := f.values[name]; ok {
		return value
	}
	resource, attribute, _ := strings.Cut(name, ".")
	if attribute == "" {
		attribute = "Ref"
	}
	value, ok := f.resource(resource)[attribute]
	if !ok {
		f.fail(invalidStack("Template error: %s has no attribute %s", resource, attribute))
	}
	return value
}
