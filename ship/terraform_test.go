package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// A terraforming evaluates a Terraform module as far as ours goes: its resources stand in an order in which each knows those that it
// refers to.
type terraforming struct {
	t       *testing.T
	p       place
	context *hcl.EvalContext
	types   map[string]map[string]cty.Value // resources by type and name; one with for_each is a map
	made    []made
}

// made is one resource.
type made struct {
	kind, name, key string
	is              map[string]cty.Value
}

const moduleFolder = "../install/aws/terraform"

// terraformedArguments are those that are read of each type of resource, beside tags and those that every type has.
var terraformedArguments = map[string][]string{
	"aws_iam_role":                   {"assume_role_policy", "name", "path"},
	"aws_iam_role_policy_attachment": {"policy_arn", "role"},
	"aws_iam_policy":                 {"name", "policy"},
	"aws_iam_instance_profile":       {"name", "path", "role"},
	"aws_sqs_queue":                  {"message_retention_seconds", "name", "sqs_managed_sse_enabled"},
	"aws_sqs_queue_policy":           {"policy", "queue_url"},
	"aws_cloudwatch_event_rule":      {"event_pattern"},
	"aws_cloudwatch_event_target":    {"arn", "rule", "target_id"},
}

func readTerraform(t *testing.T, p place) account {
	t.Helper()
	f := &terraforming{t: t, p: p, types: map[string]map[string]cty.Value{}}
	f.context = &hcl.EvalContext{Functions: functions(), Variables: map[string]cty.Value{
		"path": object("module", moduleFolder),
		"data": cty.ObjectVal(map[string]cty.Value{
			"aws_partition":       cty.ObjectVal(map[string]cty.Value{"here": object("partition", p.partition, "dns_suffix", p.suffix)}),
			"aws_region":          cty.ObjectVal(map[string]cty.Value{"here": object("name", p.region)}),
			"aws_caller_identity": cty.ObjectVal(map[string]cty.Value{"here": object("account_id", accountID)}),
		}),
	}}
	blocks := map[string][]*hclsyntax.Block{}
	paths, err := filepath.Glob(moduleFolder + "/*.tf")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		parsed, diags := hclparse.NewParser().ParseHCLFile(path)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		for _, b := range parsed.Body.(*hclsyntax.Body).Blocks {
			blocks[b.Type] = append(blocks[b.Type], b)
		}
	}
	f.variables(blocks["variable"])
	f.locals(blocks["locals"][0])
	for _, b := range blocks["resource"] {
		f.resource(b)
	}
	for _, b := range blocks["output"] {
		if f.eval(b.Body.Attributes["value"]).AsString() == "" {
			t.Errorf("output %s is empty", b.Labels[0])
		}
	}
	return f.account()
}

func object(pairs ...string) cty.Value {
	out := map[string]cty.Value{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = cty.StringVal(pairs[i+1])
	}
	return cty.ObjectVal(out)
}

// functions are Terraform's, those that our module uses.
func functions() map[string]function.Function {
	text := func(name string) function.Parameter { return function.Parameter{Name: name, Type: cty.String} }
	read := func(path string) (string, error) {
		text, err := os.ReadFile(path)
		return string(text), err
	}
	return map[string]function.Function{
		"jsondecode": stdlib.JSONDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc, "regex": stdlib.RegexFunc,
		"merge": stdlib.MergeFunc,
		"toset": stdlib.MakeToFunc(cty.Set(cty.String)),
		"can":   function.New(&function.Spec{Params: []function.Parameter{{Name: "v", Type: cty.DynamicPseudoType, AllowUnknown: true}}, Type: function.StaticReturnType(cty.Bool), Impl: func([]cty.Value, cty.Type) (cty.Value, error) { return cty.True, nil }}),
		"file": function.New(&function.Spec{Params: []function.Parameter{text("path")}, Type: function.StaticReturnType(cty.String), Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			text, err := read(args[0].AsString())
			return cty.StringVal(text), err
		}}),
		"templatefile": function.New(&function.Spec{
			Params: []function.Parameter{text("path"), {Name: "vars", Type: cty.DynamicPseudoType}}, Type: function.StaticReturnType(cty.String),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				path := args[0].AsString()
				text, err := read(path)
				if err != nil {
					return cty.NilVal, err
				}
				expression, diags := hclsyntax.ParseTemplate([]byte(text), path, hcl.InitialPos)
				if diags.HasErrors() {
					return cty.NilVal, diags
				}
				v, diags := expression.Value(&hcl.EvalContext{Variables: args[1].AsValueMap()})
				if diags.HasErrors() {
					return cty.NilVal, diags
				}
				return v, nil
			},
		}),
	}
}

func (f *terraforming) eval(a *hclsyntax.Attribute) cty.Value {
	f.t.Helper()
	v, diags := a.Expr.Value(f.context)
	if diags.HasErrors() {
		f.t.Fatal(diags)
	}
	return v
}

func (f *terraforming) variables(blocks []*hclsyntax.Block) {
	given := map[string]string{"cluster_name": f.p.cluster, "queue_name": f.p.queue, "oidc_provider": f.p.oidc, "namespace": f.p.namespace, "service_account": f.p.serviceAccount,
		"import_commitments": f.p.commitments}
	out := map[string]cty.Value{}
	for _, b := range blocks {
		name := b.Labels[0]
		switch {
		case given[name] != "":
			out[name] = cty.StringVal(given[name])
		case b.Body.Attributes["default"] != nil:
			out[name] = f.eval(b.Body.Attributes["default"])
		default:
			f.t.Fatalf("nobody gives variable %s", name)
		}
	}
	f.context.Variables["var"] = cty.ObjectVal(out)
}

// locals are evaluated until all that refer to others are.
func (f *terraforming) locals(b *hclsyntax.Block) {
	out := map[string]cty.Value{}
	left := b.Body.Attributes
	for len(out) < len(left) {
		before := len(out)
		for name, a := range left {
			f.context.Variables["local"] = cty.ObjectVal(out)
			if v, diags := a.Expr.Value(f.context); !diags.HasErrors() {
				out[name] = v
			}
		}
		if len(out) == before {
			f.t.Fatalf("only %d of %d locals can be known", before, len(left))
		}
	}
	f.context.Variables["local"] = cty.ObjectVal(out)
}

func (f *terraforming) resource(b *hclsyntax.Block) {
	kind, name := b.Labels[0], b.Labels[1]
	var v cty.Value
	if every := b.Body.Attributes["for_each"]; every == nil {
		v = f.one(b, "")
	} else {
		all := map[string]cty.Value{}
		for it := f.eval(every).ElementIterator(); it.Next(); {
			key, item := it.Element()
			f.context.Variables["each"] = cty.ObjectVal(map[string]cty.Value{"key": key, "value": item})
			all[key.AsString()] = f.one(b, key.AsString())
		}
		delete(f.context.Variables, "each")
		v = cty.ObjectVal(all)
	}
	if f.types[kind] == nil {
		f.types[kind] = map[string]cty.Value{}
	}
	f.types[kind][name] = v
	f.context.Variables[kind] = cty.ObjectVal(f.types[kind])
}

// one makes one resource, with the attributes that AWS would add.
func (f *terraforming) one(b *hclsyntax.Block, key string) cty.Value {
	is := map[string]cty.Value{}
	for name, a := range b.Body.Attributes {
		if name != "for_each" && name != "depends_on" {
			is[name] = f.eval(a)
		}
	}
	kind := b.Labels[0]
	onlyRead(f.t, kind+"."+b.Labels[1], slices.Collect(maps.Keys(b.Body.Attributes)), slices.Concat(terraformedArguments[kind], []string{"for_each", "depends_on", "tags"}))
	for _, inner := range b.Body.Blocks {
		onlyRead(f.t, kind+"."+b.Labels[1], []string{inner.Type}, nil)
	}
	f.made = append(f.made, made{kind, b.Labels[1], key, is})
	if is["name"].IsNull() || is["name"] == cty.NilVal {
		is["name"] = cty.StringVal(key) // of a rule, which AWS names
	}
	text := is["name"].AsString()
	arns := map[string]string{
		"aws_iam_role":   "arn:" + f.p.partition + ":iam::" + accountID + ":role/" + text,
		"aws_iam_policy": text, // policies are compared by name
		"aws_sqs_queue":  "arn:" + f.p.partition + ":sqs:" + f.p.region + ":" + accountID + ":" + text,
	}
	if is["arn"] == cty.NilVal {
		is["arn"] = cty.StringVal(arns[kind])
	}
	is["url"] = cty.StringVal("https://queue/" + text)
	return cty.ObjectVal(is)
}

func (f *terraforming) account() account {
	a := account{Roles: map[string]role{}, Policies: map[string]any{}, Profiles: map[string]profile{}, Rules: map[string]rule{}}
	for _, m := range f.made {
		text := func(name string) string { return m.is[name].AsString() }
		switch m.kind {
		case "aws_iam_role":
			a.Roles[text("name")] = role{Trust: value(f.t, text("assume_role_policy")), Path: text("path")}
		case "aws_iam_role_policy_attachment":
			r := a.Roles[text("role")]
			r.Policies = append(r.Policies, text("policy_arn"))
			slices.Sort(r.Policies)
			a.Roles[text("role")] = r
		case "aws_iam_policy":
			a.Policies[text("name")] = value(f.t, text("policy"))
		case "aws_iam_instance_profile":
			a.Profiles[text("name")] = profile{text("path"), text("role")}
		case "aws_sqs_queue":
			encrypted := "false"
			if m.is["sqs_managed_sse_enabled"].True() {
				encrypted = "true"
			}
			a.Queue.Name, a.Queue.Retention, a.Queue.Encrypted = text("name"), m.is["message_retention_seconds"].AsBigFloat().String(), encrypted
		case "aws_sqs_queue_policy":
			a.Queue.Policy, a.Queue.PolicyOf = value(f.t, text("policy")), []string{text("queue_url")}
		case "aws_cloudwatch_event_rule":
			a.Rules[m.key] = rule{Pattern: value(f.t, text("event_pattern"))}
		case "aws_cloudwatch_event_target":
			r := a.Rules[text("rule")]
			r.TargetID, r.Queue = text("target_id"), text("arn")
			a.Rules[text("rule")] = r
		default:
			f.t.Errorf("%s.%s is of a type that nobody looks at", m.kind, m.name)
		}
	}
	return a
}

// What Terraform calls a validation is not evaluated above: both templates take the same names of clusters.
func TestBothTemplatesTakeTheSameNames(t *testing.T) {
	const pattern = "^[0-9A-Za-z][0-9A-Za-z_-]{0,39}$"
	for _, name := range []string{templateName, "terraform/variables.tf"} {
		if !strings.Contains(string(installFile(t, name)), pattern) {
			t.Errorf("%s does not check names by %s", name, pattern)
		}
	}
}
