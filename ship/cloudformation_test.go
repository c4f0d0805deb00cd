package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A formation evaluates a CloudFormation template as far as ours goes: !Ref, !Sub, !GetAtt, !If, !Not and !Equals.
type formation struct {
	t          *testing.T
	p          place
	parameters map[string]string
	conditions map[string]*yaml.Node
	resources  map[string]*yaml.Node
}

// formedProperties are those that are read of each type of resource.
var formedProperties = map[string][]string{
	"AWS::IAM::Role":            {"AssumeRolePolicyDocument", "ManagedPolicyArns", "Path", "RoleName"},
	"AWS::IAM::ManagedPolicy":   {"ManagedPolicyName", "PolicyDocument"},
	"AWS::IAM::InstanceProfile": {"InstanceProfileName", "Path", "Roles"},
	"AWS::SQS::Queue":           {"MessageRetentionPeriod", "QueueName", "SqsManagedSseEnabled"},
	"AWS::SQS::QueuePolicy":     {"PolicyDocument", "Queues"},
	"AWS::Events::Rule":         {"EventPattern", "Targets"},
}

func readCloudFormation(t *testing.T, p place) account {
	t.Helper()
	var template struct {
		Parameters map[string]struct{ Default string }
		Conditions map[string]*yaml.Node
		Resources  map[string]*yaml.Node
		Outputs    map[string]struct{ Value *yaml.Node }
	}
	var raw yaml.Node
	if err := yaml.Unmarshal(installFile(t, templateName), &raw); err != nil {
		t.Fatal(err)
	}
	sections := fields(raw.Content[0])
	template.Conditions, template.Resources = fields(sections["Conditions"]), fields(sections["Resources"])
	f := formation{t, p, map[string]string{}, template.Conditions, template.Resources}
	for name, about := range fields(sections["Parameters"]) {
		if def := fields(about)["Default"]; def != nil {
			f.parameters[name] = def.Value
		}
	}
	for name, given := range map[string]string{"ClusterName": p.cluster, "QueueName": p.queue, "OIDCProvider": p.oidc, "Namespace": p.namespace, "ServiceAccount": p.serviceAccount,
		"ImportCommitments": p.commitments} {
		if given != "" {
			f.parameters[name] = given
		}
	}
	for name, output := range fields(sections["Outputs"]) {
		if f.eval(fields(output)["Value"]) == "" {
			t.Errorf("output %s is empty", name)
		}
	}
	return f.account()
}

// fields are the members of a mapping.
func fields(n *yaml.Node) map[string]*yaml.Node {
	out := map[string]*yaml.Node{}
	for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
		out[n.Content[i].Value] = n.Content[i+1]
	}
	return out
}

func (f formation) account() account {
	a := account{Roles: map[string]role{}, Policies: map[string]any{}, Profiles: map[string]profile{}, Rules: map[string]rule{}}
	for id, resource := range f.resources {
		about := fields(resource)
		if only := about["Condition"]; only != nil && !f.holds(f.conditions[only.Value]) {
			continue
		}
		is := map[string]any{}
		for name, v := range fields(about["Properties"]) {
			is[name] = f.eval(v)
		}
		text := func(name string) string { return fmt.Sprint(is[name]) }
		kind := about["Type"].Value
		onlyRead(f.t, id+", "+kind, slices.Collect(maps.Keys(is)), formedProperties[kind])
		switch kind {
		case "AWS::IAM::Role":
			a.Roles[text("RoleName")] = role{value(f.t, text("AssumeRolePolicyDocument")), text("Path"), texts(is["ManagedPolicyArns"])}
		case "AWS::IAM::ManagedPolicy":
			a.Policies[text("ManagedPolicyName")] = value(f.t, text("PolicyDocument"))
		case "AWS::IAM::InstanceProfile":
			a.Profiles[text("InstanceProfileName")] = profile{text("Path"), texts(is["Roles"])[0]}
		case "AWS::SQS::Queue":
			a.Queue.Name, a.Queue.Retention, a.Queue.Encrypted = text("QueueName"), text("MessageRetentionPeriod"), text("SqsManagedSseEnabled")
		case "AWS::SQS::QueuePolicy":
			a.Queue.Policy, a.Queue.PolicyOf = value(f.t, text("PolicyDocument")), texts(is["Queues"])
		case "AWS::Events::Rule":
			target := is["Targets"].([]any)[0].(map[string]any)
			onlyRead(f.t, "the target of "+id, slices.Collect(maps.Keys(target)), []string{"Arn", "Id"})
			a.Rules[id] = rule{is["EventPattern"], fmt.Sprint(target["Id"]), fmt.Sprint(target["Arn"])}
		default:
			f.t.Errorf("%s is a %s, which nobody looks at", id, kind)
		}
	}
	return a
}

// noValue is what a list leaves out.
const noValue = "AWS::NoValue"

// eval is what CloudFormation makes of a value.
func (f formation) eval(n *yaml.Node) any {
	switch n.Tag {
	case "!Ref":
		return f.ref(n.Value)
	case "!GetAtt":
		return f.attribute(n.Value)
	case "!Sub":
		return regexp.MustCompile(`\$\{[^}]*\}`).ReplaceAllStringFunc(n.Value, func(in string) string {
			name := in[2 : len(in)-1]
			if strings.Contains(name, ".") {
				return f.attribute(name)
			}
			return f.ref(name)
		})
	case "!If":
		if f.holds(f.conditions[n.Content[0].Value]) {
			return f.eval(n.Content[1])
		}
		return f.eval(n.Content[2])
	}
	switch n.Kind {
	case yaml.SequenceNode:
		var all []any
		for _, item := range n.Content {
			if v := f.eval(item); v != noValue {
				all = append(all, v)
			}
		}
		return all
	case yaml.MappingNode:
		all := map[string]any{}
		for name, v := range fields(n) {
			all[name] = f.eval(v)
		}
		return all
	}
	return n.Value
}

func (f formation) holds(n *yaml.Node) bool {
	switch n.Tag {
	case "!Not":
		return !f.holds(n.Content[0])
	case "!Equals":
		return f.eval(n.Content[0]) == f.eval(n.Content[1])
	}
	f.t.Fatalf("condition %s", n.Tag)
	return false
}

func (f formation) ref(name string) string {
	if text, ok := map[string]string{"AWS::Partition": f.p.partition, "AWS::Region": f.p.region, "AWS::AccountId": accountID, "AWS::URLSuffix": f.p.suffix}[name]; ok {
		return text
	}
	if name == noValue {
		return noValue
	}
	if text, ok := f.parameters[name]; ok {
		return text
	}
	about := fields(f.resources[name])
	if about["Type"] == nil {
		f.t.Fatalf("nothing is called %s", name)
	}
	is := fields(about["Properties"])
	switch about["Type"].Value { // what a reference gives differs from type to type; managed policies are compared by name
	case "AWS::IAM::Role":
		return fmt.Sprint(f.eval(is["RoleName"]))
	case "AWS::IAM::ManagedPolicy":
		return fmt.Sprint(f.eval(is["ManagedPolicyName"]))
	case "AWS::SQS::Queue":
		return "https://queue/" + fmt.Sprint(f.eval(is["QueueName"]))
	}
	f.t.Fatalf("a reference to %s", name)
	return ""
}

func (f formation) attribute(name string) string {
	id, attribute, _ := strings.Cut(name, ".")
	is := fields(fields(f.resources[id])["Properties"])
	switch id + " " + attribute {
	case "KarpenterInterruptionQueue QueueName":
		return fmt.Sprint(f.eval(is["QueueName"]))
	case "KarpenterInterruptionQueue Arn":
		return "arn:" + f.p.partition + ":sqs:" + f.p.region + ":" + accountID + ":" + fmt.Sprint(f.eval(is["QueueName"]))
	case "KarpenterControllerRole Arn":
		return "arn:" + f.p.partition + ":iam::" + accountID + ":role/" + fmt.Sprint(f.eval(is["RoleName"]))
	}
	f.t.Fatalf("the attribute %s", name)
	return ""
}
