//go:build apiserver

package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// older is what these tests call a kind of v1beta1.
func older(kind string) string { return kind + " v1beta1" }

// olderBases are the smallest objects of v1beta1 that are accepted.
var olderBases = map[string]string{
	older("NodePool"): `
apiVersion: karpenter.sh/v1beta1
kind: NodePool
spec:
  template:
    spec:
      requirements: []
      nodeClassRef: {name: default}
`,
	older("NodeClaim"): `
apiVersion: karpenter.sh/v1beta1
kind: NodeClaim
spec:
  requirements: []
  nodeClassRef: {name: default}
`,
	older("EC2NodeClass"): `
apiVersion: karpenter.k8s.aws/v1beta1
kind: EC2NodeClass
spec:
  role: node-role
  amiFamily: AL2023
  subnetSelectorTerms: [{id: subnet-0abc}]
  securityGroupSelectorTerms: [{id: sg-0abc}]
`,
}

// TestOlderRules runs every rule of v1beta1: whoever applies what was written for it hears what he heard then.
func TestOlderRules(t *testing.T) {
	runRules(t, olderBases, slices.Concat(olderPoolRules(t), olderClaimRules(t), olderClassRules(t)), "rules-v1beta1.txt")
}

// kept are those rules of v1 that v1beta1 has as well, told by how their sentences begin.
func kept(t *testing.T, kind string, rules []rule, beginnings ...string) []rule {
	t.Helper()
	var out []rule
	for _, beginning := range beginnings {
		before := len(out)
		for _, r := range rules {
			if strings.HasPrefix(r.text, beginning) {
				r.kind = kind
				out = append(out, r)
			}
		}
		if len(out) == before {
			t.Errorf("no rule of v1 for %s begins with %q", kind, beginning)
		}
	}
	return out
}

func olderPoolRules(t *testing.T) []rule {
	const template = "spec.template.spec"
	kind := older("NodePool")
	inSpec := func(field string) string { return "{spec: {template: {spec: {" + field + ": %s}}}}" }
	disruption := func(fields string) string { return "{spec: {disruption: {" + fields + "}}}" }
	budget := func(fields string) string { return disruption("budgets: [" + fields + "]") }
	r := func(text string, ok []string, no ...[]refusal) rule {
		return rule{kind: kind, text: text, ok: ok, no: slices.Concat(no...)}
	}
	const waits = "consolidateAfter must be specified with consolidationPolicy=WhenEmpty"
	rules := []rule{
		r("nodeClassRef: its absence says what to write", nil, each(inSpec("nodeClassRef"), template, "write nodeClassRef: {name: default}", "null")),
		r("nodeClassRef: kind and apiVersion may be missing, and be any", with(inSpec("nodeClassRef"), "{kind: EC2NodeClass}", "{kind: EC2NodeClass, apiVersion: karpenter.k8s.aws/v1beta1}", "{kind: Other, apiVersion: example.com/v1}")),
		r("template labels: what is below a domain that is free is free", []string{`{spec: {template: {metadata: {labels: {"sub.node.kubernetes.io/x": v, "a.b.node-restriction.kubernetes.io/x": v, "sub.kops.k8s.io/x": v}}}}}`}),
		r("resources: refused", nil, each(inSpec("resources"), template, "resources may not be set in a NodePool", "{requests: {cpu: 1}}", "{}"),
			each(inSpec("resources"), template+".resources.requests.cpu", "should match", "{requests: {cpu: ten}}")),
		r("expireAfter: in disruption, a duration, Never, or missing", []string{disruption("expireAfter: null")}),
		durationRules(kind, "spec.disruption.expireAfter", "{spec: {disruption: {expireAfter: %s}}}", true, createAndUpdate),
		r("consolidationPolicy: one of two, exactly so", []string{disruption("consolidationPolicy: WhenUnderutilized"), disruption("consolidationPolicy: WhenEmpty, consolidateAfter: 30s")},
			each(disruption("consolidateAfter: 30s, consolidationPolicy: %s"), "spec.disruption.consolidationPolicy", "Unsupported value", "WhenEmptyOrUnderutilized", "Balanced", "whenEmpty", `""`)),
		r("consolidationPolicy: WhenEmpty says how long", with(disruption("consolidationPolicy: WhenEmpty, consolidateAfter: %s"), "0s", "30s", "Never"),
			each(disruption("consolidationPolicy: WhenEmpty, consolidateAfter: %s"), "spec.disruption", waits, "null")),
		r("consolidationPolicy: WhenUnderutilized with Never, with nothing, and with a time, which is kept for v1",
			with(disruption("consolidationPolicy: WhenUnderutilized, consolidateAfter: %s"), "Never", "null", "30s")),
		r("budgets: schedule and duration go together, and the one that is missing is named", []string{budget(`{nodes: "1"}`), budget(`{nodes: "1", schedule: "0 9 * * mon-fri", duration: 8h}`)},
			[]refusal{no(budget(`{nodes: "1", schedule: "0 9 * * mon-fri"}`), "spec.disruption.budgets[0]", "duration is missing"),
				no(budget(`{nodes: "1", duration: 8h}`), "spec.disruption.budgets[0]", "schedule is missing"),
				no(budget(`{nodes: "1"}, {nodes: "1", schedule: "@daily", duration: 1h}, {nodes: "1", duration: 1h}`), "spec.disruption.budgets[2]", "schedule is missing")}),
		{kind: kind, text: "budgets: there are no reasons", on: createOnly,
			no: []refusal{no(budget(`{nodes: "1", reasons: [Empty]}`), "", `unknown field "spec.disruption.budgets[0].reasons"`)}},
		{kind: kind, text: "what came with v1 is not known", on: createOnly, no: []refusal{
			no("{spec: {replicas: 1}}", "", `unknown field "spec.replicas"`),
			no("{spec: {template: {spec: {expireAfter: 1h}}}}", "", `unknown field "spec.template.spec.expireAfter"`),
			no("{spec: {template: {spec: {terminationGracePeriod: 1h}}}}", "", `unknown field "spec.template.spec.terminationGracePeriod"`)}},
	}
	rules = append(rules, olderKubeletRules(kind, template+".kubelet", inSpec("kubelet"), createAndUpdate)...)
	return append(rules, kept(t, kind, nodePoolRules(), "spec", "nodeClassRef.name", "template labels", "template annotations", "requirements", "taints", "startupTaints", "consolidateAfter",
		"budgets: at most 50", "budgets.nodes", "budgets.schedule", "budgets.duration", "budgets: one bad item", "limits", "weight", "status", "conditions")...)
}

func olderClaimRules(t *testing.T) []rule {
	kind := older("NodeClaim")
	rules := []rule{
		{kind: kind, text: "spec: immutable", on: updateOnly, ok: []string{"{metadata: {labels: {a: b}, annotations: {c: d}}}", "{spec: {requirements: []}}"},
			no: each("{spec: {%s}}", "spec", "spec is immutable", "requirements: [{key: a, operator: Exists}]", "taints: [{key: a, effect: NoSchedule}]",
				"startupTaints: [{key: a, effect: NoSchedule}]", "resources: {requests: {cpu: 1}}", "nodeClassRef: {name: other}", "kubelet: {maxPods: 5}")},
		{kind: kind, text: "nodeClassRef: kind and apiVersion may be missing, and be any", on: createOnly,
			ok: with("{spec: {nodeClassRef: %s}}", "{kind: EC2NodeClass}", "{kind: Other, apiVersion: example.com/v1}")},
		{kind: kind, text: "what came with v1 is not known", on: createOnly, no: []refusal{
			no("{spec: {expireAfter: 1h}}", "", `unknown field "spec.expireAfter"`),
			no("{spec: {terminationGracePeriod: 1h}}", "", `unknown field "spec.terminationGracePeriod"`)}},
	}
	rules = append(rules, olderKubeletRules(kind, "spec.kubelet", "{spec: {kubelet: %s}}", createOnly)...)
	return append(rules, kept(t, kind, nodeClaimRules(), "spec: required", "nodeClassRef: required", "nodeClassRef.name", "resources", "requirements", "taints", "startupTaints", "status", "conditions")...)
}

// olderKubeletRules are the rules of the kubelet's configuration, which v1beta1 has beside the requirements.
func olderKubeletRules(kind, field, edit string, on occasion) []rule {
	set := func(fields string) string { return fmt.Sprintf(edit, "{"+fields+"}") }
	r := func(text string, ok []string, no ...[]refusal) rule {
		return rule{kind: kind, text: "kubelet" + text, ok: ok, no: slices.Concat(no...), on: on}
	}
	rules := []rule{
		r(": nothing, and what has no rule", []string{set(""), set("clusterDNS: [10.0.0.10], cpuCFSQuota: false, evictionMaxPodGracePeriod: 30")}),
		r(".imageGCHighThresholdPercent: above the lower one", []string{set("imageGCHighThresholdPercent: 51, imageGCLowThresholdPercent: 50"), set("imageGCHighThresholdPercent: 1"), set("imageGCLowThresholdPercent: 99")},
			[]refusal{no(set("imageGCHighThresholdPercent: 50, imageGCLowThresholdPercent: 50"), field, "must be greater than imageGCLowThresholdPercent"),
				no(set("imageGCHighThresholdPercent: 49, imageGCLowThresholdPercent: 50"), field, "must be greater than imageGCLowThresholdPercent")}),
		r(".evictionSoft: each signal with its grace period", []string{set("evictionSoft: {memory.available: 5%, nodefs.available: 1Gi}, evictionSoftGracePeriod: {memory.available: 1m, nodefs.available: 2m30s}")},
			[]refusal{no(set("evictionSoft: {memory.available: 5%}"), field, "each evictionSoft needs an evictionSoftGracePeriod"),
				no(set("evictionSoft: {memory.available: 5%}, evictionSoftGracePeriod: {nodefs.available: 1m}"), field, "each evictionSoft needs an evictionSoftGracePeriod"),
				no(set("evictionSoftGracePeriod: {memory.available: 1m}"), field, "each evictionSoftGracePeriod needs an evictionSoft"),
				no(set("evictionSoft: {memory.available: 5%}, evictionSoftGracePeriod: {memory.available: 1m, nodefs.available: 1m}"), field, "each evictionSoftGracePeriod needs an evictionSoft")}),
	}
	for _, name := range []string{"maxPods", "podsPerCore"} {
		rules = append(rules, r("."+name+": zero or more", with(set(name+": %s"), "0", "110"), each(set(name+": %s"), field+"."+name, "greater than or equal to 0", "-1")))
	}
	for _, name := range []string{"imageGCHighThresholdPercent", "imageGCLowThresholdPercent"} {
		rules = append(rules, r("."+name+": 0 to 100", with(set(name+": %s"), "0", "100"),
			each(set(name+": %s"), field+"."+name, "greater than or equal to 0", "-1"), each(set(name+": %s"), field+"."+name, "less than or equal to 100", "101")))
	}
	for _, name := range []string{"systemReserved", "kubeReserved"} {
		rules = append(rules, quantityRule(kind, "kubelet."+name+": quantities", field+"."+name+".cpu", set(name+": {cpu: %s}"), on),
			r("."+name+": four resources", []string{set(name + ": {cpu: 100m, memory: 1Gi, ephemeral-storage: 1Gi, pid: 1000}")},
				each(set(name+": {%s: 1}"), field+"."+name, "only cpu, memory, ephemeral-storage and pid can be reserved", "pods", "nvidia.com/gpu", "CPU")))
	}
	for _, name := range []string{"evictionHard", "evictionSoft"} {
		rules = append(rules, r("."+name+": six signals", nil, each(set(name+": {%s: 5%%}"), field+"."+name, "the signals are memory.available", "memory", "cpu.available", "nodefs.inodesfree")))
	}
	return append(rules, r(".evictionHard: each of the signals", []string{
		set("evictionHard: {memory.available: 5%, nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 1Gi, imagefs.inodesFree: 5%, pid.available: 1000m}")}))
}

func olderClassRules(t *testing.T) []rule {
	kind := older("EC2NodeClass")
	r := func(text string, ok []string, no ...[]refusal) rule {
		return rule{kind: kind, text: text, ok: ok, no: slices.Concat(no...)}
	}
	const switches = "changing between role and instanceProfile is not supported"
	images := terms{field: "spec.amiSelectorTerms", edit: "{spec: {amiSelectorTerms: %s}}", valid: "{id: ami-0abc}", optional: true, nothing: "one of tags, id and name must be set"}
	rules := []rule{
		{kind: kind, text: "exactly one of role and instanceProfile, and the line to delete or to add", on: createOnly, ok: []string{"{spec: {role: null, instanceProfile: p}}"},
			no: []refusal{no("{spec: {instanceProfile: p}}", "spec", "must specify exactly one of ['role', 'instanceProfile']: delete the line instanceProfile"),
				no("{spec: {role: null}}", "spec", "must specify exactly one of ['role', 'instanceProfile']: add role")}},
		{kind: kind, text: "role: immutable, and no instanceProfile instead", on: updateOnly, ok: []string{"{spec: {role: node-role}}"},
			no: []refusal{no("{spec: {role: other}}", "spec.role", "role is immutable in v1beta1"), no("{spec: {role: null, instanceProfile: p}}", "spec", switches)}},
		r("amiFamily: one of eight", append(with("{spec: {amiFamily: %s}}", "AL2", "AL2023", "Bottlerocket", "Ubuntu", "Windows2019", "Windows2022", "Windows2025"), "{spec: {amiFamily: Custom, amiSelectorTerms: [{id: ami-1}]}}"),
			each("{spec: {amiFamily: %s}}", "spec.amiFamily", "Unsupported value", "al2", "Windows", `""`)),
		r("amiFamily: required", nil, each("{spec: {amiFamily: %s, amiSelectorTerms: [{id: ami-1}]}}", "spec.amiFamily", "Required value", "null")),
		r("amiFamily: Custom needs terms", nil, each("{spec: {amiFamily: Custom, amiSelectorTerms: %s}}", "spec", "amiSelectorTerms is required when amiFamily == 'Custom'", "null", "[]")),
		r("amiSelectorTerms: what a term may name", []string{images.list("{name: my-image}"), images.list("{name: a*, tags: {a: b}, owner: amazon}"), images.list(`{tags: {a: b}, owner: "123456789012"}`), images.list("{id: ami-1}", "{name: a}", "{tags: {a: b}}")},
			[]refusal{no(images.list("{owner: self}"), images.field+"[0]", images.nothing), no(images.list("{tags: {}}"), images.field+"[0]", images.nothing), no(images.list(images.valid, "{tags: {}}"), images.field+"[1]", images.nothing)}),
		r("amiSelectorTerms: id excludes tags, name and owner in each term", nil,
			each("{spec: {amiSelectorTerms: [%s]}}", images.field, "id may not be combined with tags, name or owner", "{id: ami-1, tags: {a: b}}", "{id: ami-1, name: a}", "{id: ami-1, owner: self}", "{id: ami-1, name: a}, {id: ami-2}")),
		{kind: kind, text: "what came with v1 is not known", on: createOnly, no: []refusal{
			no("{spec: {kubelet: {maxPods: 5}}}", "", `unknown field "spec.kubelet"`),
			no("{spec: {amiSelectorTerms: [{alias: al2023@latest}]}}", "", `unknown field "spec.amiSelectorTerms[0].alias"`)}},
	}
	rules = append(rules, kept(t, kind, images.rules(), "amiSelectorTerms: at most", "amiSelectorTerms: a term", "amiSelectorTerms.tags: keys", "amiSelectorTerms.tags: at most")...)
	return append(rules, kept(t, kind, nodeClassRules(), "spec: required", "role: not empty", "instanceProfile: not empty", "userData", "instanceStorePolicy", "tags: ",
		"subnetSelectorTerms", "securityGroupSelectorTerms", "amiSelectorTerms.id", "blockDeviceMappings: ", "blockDeviceMappings.rootVolume", "blockDeviceMappings.ebs: ",
		"blockDeviceMappings.ebs.volumeSize", "blockDeviceMappings.ebs.volumeType", "metadataOptions", "status.", "conditions")...)
}

// TestOlderDefaults says what v1beta1 fills in: two hops to the metadata service, as its releases did.
func TestOlderDefaults(t *testing.T) {
	options := func(hops int64) map[string]any {
		return map[string]any{"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": hops, "httpTokens": "required"}
	}
	for name, tc := range map[string]struct {
		kind, edit string
		path       []string
		want       any
	}{
		"a budget without a number": {"NodePool", `{spec: {disruption: {budgets: [{schedule: "@daily", duration: 1h}]}}}`, []string{"spec", "disruption", "budgets"},
			[]any{map[string]any{"nodes": "10%", "schedule": "@daily", "duration": "1h"}}},
		"a class that says nothing of metadata":   {"EC2NodeClass", "{}", []string{"spec", "metadataOptions"}, options(2)},
		"a class with an empty block of metadata": {"EC2NodeClass", "{spec: {metadataOptions: {}}}", []string{"spec", "metadataOptions"}, options(2)},
		"a class with its own number of hops":     {"EC2NodeClass", "{spec: {metadataOptions: {httpPutResponseHopLimit: 1}}}", []string{"spec", "metadataOptions"}, options(1)},
	} {
		t.Run(name, func(t *testing.T) {
			object := edited(t, older(tc.kind), "defaulted", tc.edit)
			if err := kube.Create(t.Context(), object, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			got, _, _ := unstructured.NestedFieldNoCopy(object.Object, tc.path...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%v (-want +got):\n%s", tc.path, diff)
			}
		})
	}
}
