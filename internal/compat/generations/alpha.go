package generations

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
)

// The kinds before v1beta1.
var (
	provisionerKind = schema.GroupVersionKind{Group: v1.Group, Version: "v1alpha5", Kind: "Provisioner"}
	machineKind     = schema.GroupVersionKind{Group: v1.Group, Version: "v1alpha5", Kind: "Machine"}
	templateKind    = schema.GroupVersionKind{Group: awsv1.Group, Version: "v1alpha1", Kind: "AWSNodeTemplate"}
)

// AlphaKinds are the kinds before v1beta1 that people write.
func AlphaKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{provisionerKind, templateKind}
}

// provisioner makes a NodePool, and an EC2NodeClass where the Provisioner holds its template itself.
func (o Options) provisioner(doc int, old tree) ([]*Converted, *OfflineError) {
	spec := treeAt(old, "spec")
	c := &Converted{Doc: doc, Object: freshObject(old, v1.GroupVersion.String(), "NodePool"), origin: path("spec.kubeletConfiguration")}
	for _, m := range []struct{ from, to string }{
		{"labels", "spec.template.metadata.labels"}, {"annotations", "spec.template.metadata.annotations"},
		{"taints", "spec.template.spec.taints"}, {"startupTaints", "spec.template.spec.startupTaints"}, {"weight", "spec.weight"},
	} {
		if value, ok := at(spec, m.from); ok {
			put(c.Object, value, path(m.to)...)
			c.move([]string{"spec", m.from}, path(m.to))
		}
	}
	if value, ok := at(spec, "limits", "resources"); ok {
		put(c.Object, value, "spec", "limits")
		c.move(path("spec.limits.resources"), path("spec.limits"))
	}
	o.requirements(c, spec)
	if err := c.disruption(spec); err != nil {
		return nil, err
	}
	if o.TakeOver {
		c.standIn(old)
	}
	c.kubeletOf(spec)
	return o.reference(c, old, spec)
}

// requirements takes over what was required, with what the admission of Provisioners added.
func (o Options) requirements(c *Converted, spec tree) {
	to := path("spec.template.spec.requirements")
	known := label.NewVocabulary(v1.Labels(), awsv1.Labels())
	out := []any{}
	asked := map[string]bool{}
	for _, r := range listAt(spec, "requirements") {
		r, ok := r.(tree)
		if !ok {
			continue
		}
		key := known.Normalize(textAt(r, "key"))
		if key == awsv1.Group+"/instance-pods" {
			c.note(true, path("spec.requirements"), to,
				"the label %s is gone: %s is left out; choose sizes or instance-cpu instead", key, asJSON(r))
			continue
		}
		if key != "" {
			r["key"] = key
		}
		asked[key] = true
		out = append(out, r)
	}
	if !o.IgnoreDefaults {
		for _, r := range defaultRequirements(asked) {
			c.note(false, nil, to, "%s %s %s: what a Provisioner without such a requirement got", r["key"],
				r["operator"], asJSON(r["values"]))
			out = append(out, r)
		}
	}
	put(c.Object, out, to...)
	c.move(path("spec.requirements"), to)
}

// defaultRequirements are what Provisioners got for what they did not ask about.
func defaultRequirements(asked map[string]bool) []tree {
	var out []tree
	add := func(key, operator string, values ...any) {
		out = append(out, tree{"key": key, "operator": operator, "values": values})
	}
	if !asked[corev1.LabelOSStable] {
		add(corev1.LabelOSStable, "In", "linux")
	}
	if !asked[corev1.LabelArchStable] {
		add(corev1.LabelArchStable, "In", "amd64")
	}
	if !asked[v1.CapacityTypeLabelKey] {
		add(v1.CapacityTypeLabelKey, "In", v1.CapacityTypeOnDemand)
	}
	about := []string{corev1.LabelInstanceTypeStable, awsv1.LabelInstanceFamily, awsv1.LabelInstanceCategory,
		awsv1.LabelInstanceGeneration}
	if !slices.ContainsFunc(about, func(key string) bool { return asked[key] }) {
		add(awsv1.LabelInstanceCategory, "In", "c", "m", "r")
		add(awsv1.LabelInstanceGeneration, "Gt", "2")
	}
	return out
}

// disruption takes over when nodes went. A Provisioner that said nothing never removed a node.
func (c *Converted) disruption(spec tree) *OfflineError {
	consolidation, _ := at(spec, "consolidation", "enabled")
	empty, emptyThere := at(spec, "ttlSecondsAfterEmpty")
	out := tree{"consolidationPolicy": string(v1.ConsolidationPolicyWhenEmpty), "consolidateAfter": v1.Never}
	switch {
	case consolidation == true && emptyThere:
		return &OfflineError{At: path("spec.ttlSecondsAfterEmpty"),
			Text: "spec.consolidation.enabled and spec.ttlSecondsAfterEmpty exclude each other; delete one"}
	case consolidation == true:
		out = tree{"consolidationPolicy": string(v1.ConsolidationPolicyWhenEmptyOrUnderutilized), "consolidateAfter": atOnce}
	case emptyThere:
		out["consolidateAfter"] = seconds(empty)
	default:
		c.note(false, nil, path("spec.disruption"), "without consolidation and ttlSecondsAfterEmpty a Provisioner never removed nodes")
	}
	put(c.Object, out, "spec", "disruption")
	c.move(path("spec.consolidation"), path("spec.disruption"))
	c.move(path("spec.consolidation.enabled"), path("spec.disruption.consolidationPolicy"))
	c.move(path("spec.ttlSecondsAfterEmpty"), path("spec.disruption.consolidateAfter"))

	to := path("spec.template.spec.expireAfter")
	expired, ok := at(spec, "ttlSecondsUntilExpired")
	switch {
	case !ok:
		put(c.Object, v1.Never, to...)
	case fmt.Sprint(expired) == "0":
		return &OfflineError{At: path("spec.ttlSecondsUntilExpired"),
			Text: "spec.ttlSecondsUntilExpired is 0, which removes every node as it comes; delete it to keep nodes, or write an age"}
	default:
		put(c.Object, seconds(expired), to...)
		c.move(path("spec.ttlSecondsUntilExpired"), to)
		c.aboutExpiry(path("spec.ttlSecondsUntilExpired"))
	}
	return nil
}

// standIn lets the pool stand in for its Provisioner. Its machines were launched before there was drift, so that
// none goes for that until the user wants it.
func (c *Converted) standIn(old tree) {
	put(c.Object, textAt(old, "metadata", "name"), annotations(v1.ProvisionerAnnotationKey)...)
	budgets := path("spec.disruption.budgets")
	put(c.Object, []any{tree{"nodes": "10%"}, tree{"nodes": "0", "reasons": []any{string(v1.DisruptionReasonDrifted)}}}, budgets...)
	c.note(false, nil, budgets, "nodes that are taken over are not replaced for drift, such as a newer image, while "+
		"the second budget stands")
}

// seconds writes a number of seconds as people write durations.
func seconds(value any) string {
	n, ok := value.(int64)
	switch {
	case !ok:
		return fmt.Sprintf("%vs", value)
	case n > 0 && n%3600 == 0:
		return fmt.Sprintf("%dh", n/3600)
	}
	return fmt.Sprintf("%ds", n)
}

func (c *Converted) kubeletOf(spec tree) {
	kubelet := treeAt(spec, "kubeletConfiguration")
	if runtime, ok := take(kubelet, "containerRuntime"); ok {
		c.note(runtime == "dockerd", path("spec.kubeletConfiguration.containerRuntime"), path("spec.template.spec"),
			"containerRuntime %v is left out: nodes run containerd", runtime)
	}
	if len(kubelet) > 0 {
		c.kubelet = kubelet
	}
}

// reference names the class, and makes it where the Provisioner holds the template.
func (o Options) reference(c *Converted, old, spec tree) ([]*Converted, *OfflineError) {
	name, inline := textAt(spec, "providerRef", "name"), treeAt(spec, "provider")
	switch {
	case name == "" && inline == nil:
		return nil, &OfflineError{At: []string{"spec"},
			Text: "spec.providerRef is missing: name the AWSNodeTemplate that the nodes are built from"}
	case name != "" && inline != nil:
		return nil, &OfflineError{At: path("spec.provider"), Text: "spec.provider and spec.providerRef are both set; delete one"}
	}
	all := []*Converted{c}
	if inline != nil {
		name = textAt(old, "metadata", "name")
		class := &Converted{Doc: c.Doc, Object: tree{"apiVersion": awsv1.GroupVersion.String(), "kind": awsv1.Kind,
			"metadata": tree{"name": name}}}
		delete(inline, "apiVersion")
		delete(inline, "kind")
		if err := o.template(class, inline, path("spec.provider")); err != nil {
			return nil, err
		}
		all = append(all, class)
	}
	put(c.Object, tree{"group": awsv1.Group, "kind": awsv1.Kind, "name": name}, path("spec.template.spec.nodeClassRef")...)
	c.move(path("spec.providerRef"), path("spec.template.spec.nodeClassRef"))
	return all, nil
}

// words returns the parts of a text between commas, without blanks and without empty parts.
func words(text string) []string {
	var out []string
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			out = append(out, word)
		}
	}
	return out
}
