package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"karpenter.sh/karpenter/api/crds"
	"karpenter.sh/karpenter/internal/compat/generations"
)

const convertHelp = `usage: karpenter convert -f FILE_OR_DIR_OR_-… [-o yaml] [--instance-profile NAME | --role NAME]
       [--prefer role|instanceProfile] [--take-over]
       karpenter convert --values FILE_OR_-

Writes manifests of older Karpenters as karpenter.sh/v1 and karpenter.k8s.aws/v1: Provisioner and AWSNodeTemplate, and NodePool,
NodeClaim and EC2NodeClass of v1beta1. Give all files of a cluster at once: what pools say about the kubelet goes to the classes that
they name. Other objects are written as they are. Comments stay. With --values it is the values of an older chart that are
written for this one.

What has no equal is said in a comment where it stood, and on standard error.

Exit code: 0 nothing was lost, 1 something was, 2 the input is wrong.

`

// convertFlags are the flags of "karpenter convert".
type convertFlags struct {
	files   []string
	values  string
	options generations.Options
}

// parseConvert reads the flags and arguments of convert, and refuses values that do not go together.
func parseConvert(env Env, args []string) (convertFlags, error) {
	c := convertFlags{}
	output := ""
	fs := flag.NewFlagSet("convert", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, convertHelp); fs.PrintDefaults() }
	add := func(path string) error { c.files = append(c.files, path); return nil }
	fs.Func("f", "file or folder with manifests, - for standard input; may be given several times", add)
	fs.Func("filename", "the same as -f", add)
	fs.StringVar(&output, "o", "yaml", "yaml, the only form")
	fs.StringVar(&c.values, "values", "", "values of an older chart, - for standard input")
	fs.StringVar(&c.options.InstanceProfile, "instance-profile", "",
		"the old installation's default instance profile, for node templates without one")
	fs.StringVar(&c.options.Role, "role", "", "the role of nodes, for node templates without instance profile")
	fs.StringVar(&c.options.Prefer, "prefer", "", "role or instanceProfile: which of them an EC2NodeClass with both keeps")
	fs.BoolVar(&c.options.TakeOver, "take-over", false,
		"let pools take over the machines of the Provisioners that they are made of, and serve pods that choose those by label")
	fs.BoolVar(&c.options.IgnoreDefaults, "ignore-defaults", false,
		"leave out the requirements that Provisioners got when they had none about system, architecture, capacity type and family")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	c.files = append(c.files, fs.Args()...)
	switch {
	case output != "yaml":
		return c, fmt.Errorf("-o %s: use yaml", output)
	case !slices.Contains([]string{"", "role", "instanceProfile"}, c.options.Prefer):
		return c, fmt.Errorf("--prefer %s: use role or instanceProfile", c.options.Prefer)
	case c.values != "" && len(c.files) > 0:
		return c, errors.New("give either manifests with -f or values with --values")
	case c.values == "" && len(c.files) == 0:
		return c, errors.New("nothing to convert; give files with -f, or values with --values")
	}
	return c, nil
}

// convert runs "karpenter convert": it reads all documents, fills in the defaults of older objects, converts them,
// and writes all of them in their order.
func convert(ctx context.Context, env Env, args []string) (int, error) {
	c, err := parseConvert(env, args)
	if err != nil {
		return exitBadInput, err
	}
	if c.values != "" {
		return convertValues(env, c.values)
	}
	docs, others, err := readAll(env.In, c.files)
	if err != nil {
		return exitBadInput, err
	}
	if len(others) > 0 {
		fmt.Fprintf(env.Err, "no manifests, left out: %s\n", strings.Join(others, ", "))
	}
	if err := c.check(ctx, docs); err != nil {
		return exitBadInput, err
	}
	objects := make([]map[string]any, len(docs))
	for i, d := range docs {
		objects[i] = d.obj.Object
	}
	made, err := generations.Offline(objects, c.options)
	if refused, ok := errors.AsType[*generations.OfflineError](err); ok {
		d := docs[refused.Doc]
		return exitBadInput, d.at(d.lineOf(strings.Join(refused.At, ".")), "%s %q: %s", d.obj.GetKind(), d.obj.GetName(), refused.Text)
	}
	if err != nil {
		return exitBadInput, err
	}
	return writeConverted(env, docs, made)
}

// check fills in the defaults of objects of older versions, because a field that was left out meant the default. It
// returns an error for what the older API server would have refused, and if there is nothing to convert.
func (c *convertFlags) check(ctx context.Context, docs []*document) error {
	schemas, err := olderSchemas()
	if err != nil {
		return err
	}
	known := false
	var errs []error
	for _, d := range docs {
		gvk := d.obj.GroupVersionKind()
		known = known || generations.Known(gvk)
		if ours(gvk.Group) && gvk.Version != "v1" && !generations.Known(gvk) && gvk.Kind != "NodeOverlay" {
			errs = append(errs, d.at(d.line, "%s %s was never a kind of Karpenter", d.obj.GetAPIVersion(), gvk.Kind))
		}
		if s := schemas[gvk]; s != nil {
			delete(d.obj.Object, "status")
			errs = append(errs, s.check(ctx, c.withPreferred(d)))
			defaulting.Default(d.obj.Object, s.structural)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if !known {
		return errors.New("there is nothing to convert: no Provisioner, AWSNodeTemplate, or object of v1beta1")
	}
	return nil
}

// withPreferred returns a document without role or without instanceProfile, whichever --prefer does not name. The
// older API allowed only one of them. It returns d itself if --prefer is not given, or if the class lacks the
// preferred one.
func (c *convertFlags) withPreferred(d *document) *document {
	other := map[string]string{"role": "instanceProfile", "instanceProfile": "role"}[c.options.Prefer]
	_, preferred, _ := unstructured.NestedFieldNoCopy(d.obj.Object, "spec", c.options.Prefer)
	if other == "" || !preferred {
		return d
	}
	out := *d
	out.obj = d.obj.DeepCopy()
	unstructured.RemoveNestedField(out.obj.Object, "spec", other)
	return &out
}

// writeConverted writes every document in its place, the new objects instead of the old ones, and prints a line for
// each note. It returns exitLost if something has no equal.
func writeConverted(env Env, docs []*document, made []*generations.Converted) (int, error) {
	sources := make([]*yaml.Node, len(docs))
	for i, d := range docs {
		node, err := d.node()
		if err != nil {
			return exitBadInput, err
		}
		sources[i] = node
	}
	lost := false
	var parts [][]byte
	for i, d := range docs {
		if !generations.Known(d.obj.GroupVersionKind()) {
			parts = append(parts, d.asWritten(sources[i]))
			continue
		}
		for _, c := range made {
			if c.Doc != i {
				continue
			}
			for _, n := range c.Notes {
				lost = lost || n.Lost
				fmt.Fprintln(env.Err, d.at(d.lineOf(strings.Join(n.From, ".")), "%s %q: %s%s", d.obj.GetKind(),
					d.obj.GetName(), lostMark(n), n.Text))
			}
			if c.Object == nil {
				continue
			}
			text, err := writeTree(c, sources)
			if err != nil {
				return exitBadInput, d.at(d.line, "%v", err)
			}
			parts = append(parts, text)
		}
	}
	if _, err := env.Out.Write(bytes.Join(parts, []byte("---\n"))); err != nil {
		return exitBadInput, err
	}
	if lost {
		return exitLost, nil
	}
	return exitFine, nil
}

// lostMark returns the prefix of a note: "lost: " if something has no equal, else "".
func lostMark(n generations.Note) string {
	if n.Lost {
		return "lost: "
	}
	return ""
}

// node parses the document again as YAML nodes, which keep comments. For an item of a list it returns the node of the
// item.
func (d *document) node() (*yaml.Node, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(d.text, &root); err != nil {
		return nil, d.at(d.line, "not valid YAML: %v", err)
	}
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 && d.item == nil {
		top := root.Content[0]
		top.HeadComment = joinComments(root.HeadComment, top.HeadComment)
		return top, nil
	}
	if d.item != nil && len(root.Content) == 1 {
		if items := child(root.Content[0], "items"); items != nil && *d.item < len(items.Content) {
			return items.Content[*d.item], nil
		}
	}
	return &yaml.Node{Kind: yaml.MappingNode}, nil
}

// asWritten returns the document as it was written; an item of a list is written by itself.
func (d *document) asWritten(node *yaml.Node) []byte {
	if d.item == nil {
		return append(bytes.TrimRight(bytes.TrimPrefix(d.text, []byte("---\n")), "\n"), '\n')
	}
	return encodeYAML(node)
}

// olderSchemas returns the schemas of the embedded versions before v1.
func olderSchemas() (map[schema.GroupVersionKind]*crdSchema, error) {
	out := map[schema.GroupVersionKind]*crdSchema{}
	definitions, err := crds.Definitions()
	if err != nil {
		return nil, err
	}
	for _, crd := range definitions {
		v, err := crds.Older(crd.Name)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		s, err := newSchema(v)
		if err != nil {
			return nil, fmt.Errorf("CRD %s, version %s: %w", crd.Name, v.Name, err)
		}
		out[schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}] = s
	}
	return out, nil
}
