//go:build apiserver

package apiserver

import (
	"fmt"
	"slices"
	"strings"
)

func nodePoolRules() []rule {
	const (
		kind     = "NodePool"
		template = "spec.template.spec"
		inSpec   = "{spec: {template: {spec: {%s}}}}"
	)
	tmpl := func(field string) string { return fmt.Sprintf(inSpec, field+": %s") }
	disruption := func(field string) string { return "{spec: {disruption: {" + field + ": %s}}}" }
	budget := func(fields string) string { return "{spec: {disruption: {budgets: [{" + fields + "}]}}}" }
	budgetAt := func(field string) string { return "spec.disruption.budgets[0]" + field }
	labels := "{spec: {template: {metadata: {labels: %s}}}}"
	label := func(key, value string) string { return fmt.Sprintf(labels, "{"+quote(key)+": "+quote(value)+"}") }
	refuseLabels := func(says string, keys ...string) []refusal {
		var out []refusal
		for _, key := range keys {
			out = append(out, no(label(key, "v"), "spec.template.metadata.labels", says))
		}
		return out
	}
	acceptLabels := func(keys ...string) []string {
		var out []string
		for _, key := range keys {
			out = append(out, label(key, "v"))
		}
		return out
	}
	r := func(text string, ok []string, no ...[]refusal) rule {
		return rule{kind: kind, text: text, ok: ok, no: slices.Concat(no...)}
	}
	only := func(on occasion, text string, ok []string, no ...[]refusal) rule {
		return rule{kind: kind, text: text, ok: ok, no: slices.Concat(no...), on: on}
	}
	entries := func(n int) string {
		return fmt.Sprintf(labels, mapping(n, func(i int) string { return fmt.Sprintf("k%d: v", i) }))
	}
	budgets := func(n int) string {
		return fmt.Sprintf("{spec: {disruption: {budgets: %s}}}", list(n, func(int) string { return `{nodes: "1"}` }))
	}
	const static = "{spec: {replicas: 1, %s}}"

	rules := []rule{
		r("spec: required", nil, []refusal{no("{spec: null}", "spec", "Required value")}),
		r("spec.template: required", nil, []refusal{no("{spec: {template: null}}", "spec.template", "Required value")}),
		r("spec.template.spec: required", nil, []refusal{no("{spec: {template: {spec: null}}}", template, "Required value")}),
		r("nodeClassRef: required", nil, []refusal{no(fmt.Sprintf(tmpl("nodeClassRef"), "null"), template+".nodeClassRef", "Required value")}),
		r("nodeClassRef.group: required, not empty, without slash",
			nil,
			[]refusal{no(fmt.Sprintf(tmpl("nodeClassRef"), "{group: null}"), template+".nodeClassRef.group", "Required value"),
				no(fmt.Sprintf(tmpl("nodeClassRef"), `{group: ""}`), template+".nodeClassRef.group", "at least 1 chars long")},
			each(tmpl("nodeClassRef"), template+".nodeClassRef.group", "should match", "{group: karpenter.k8s.aws/v1}", "{group: /}")),
		r("nodeClassRef.kind: required, not empty", nil,
			[]refusal{no(fmt.Sprintf(tmpl("nodeClassRef"), "{kind: null}"), template+".nodeClassRef.kind", "Required value"),
				no(fmt.Sprintf(tmpl("nodeClassRef"), `{kind: ""}`), template+".nodeClassRef.kind", "at least 1 chars long")}),
		r("nodeClassRef.name: required, not empty, mutable", with(tmpl("nodeClassRef"), "{name: other}", "{name: default}"),
			[]refusal{no(fmt.Sprintf(tmpl("nodeClassRef"), "{name: null}"), template+".nodeClassRef.name", "Required value"),
				no(fmt.Sprintf(tmpl("nodeClassRef"), `{name: ""}`), template+".nodeClassRef.name", "at least 1 chars long")}),
		only(createOnly, "nodeClassRef: any group and kind", with(tmpl("nodeClassRef"), "{group: example.com}", "{kind: Other}")),
		only(updateOnly, "nodeClassRef.group: immutable", nil, each(tmpl("nodeClassRef"), template+".nodeClassRef", "group is immutable", "{group: example.com}")),
		only(updateOnly, "nodeClassRef.kind: immutable", nil, each(tmpl("nodeClassRef"), template+".nodeClassRef", "kind is immutable", "{kind: Other}")),

		r("template labels: at most 100", []string{entries(100), fmt.Sprintf(labels, "{}")}, []refusal{no(entries(101), "spec.template.metadata.labels", "at most 100")}),
		r("template labels: values of at most 63 characters", []string{label("a", strings.Repeat("v", 63))},
			[]refusal{no(label("a", strings.Repeat("v", 64)), "spec.template.metadata.labels.a", "may not be more than 63")}),
		r("template labels: values are label values", []string{label("a", ""), label("a", "A"), label("a", "a-b_c.D")},
			[]refusal{no(label("a", "-"), "spec.template.metadata.labels.a", "should match"), no(label("a", "a b"), "spec.template.metadata.labels.a", "should match"), no(label("a", "a/b"), "spec.template.metadata.labels.a", "should match")}),
		r("template labels: keys are left to run time", acceptLabels(strings.Repeat("a", 64), "???")),
		r("template labels: karpenter.sh/nodepool may not be given", nil, refuseLabels("karpenter.sh/nodepool is set by Karpenter", "karpenter.sh/nodepool")),
		r("template labels: domain karpenter.sh is restricted, compared as text from its end", acceptLabels("karpenter.sh/capacity-type", "karpenter.sh.example.com/x", "example.com/karpenter.sh"),
			refuseLabels(`label domain "karpenter.sh" is restricted`, "karpenter.sh/custom", "a.karpenter.sh/x", "foo-karpenter.sh/x", "karpenter.sh")),
		r("template labels: kubernetes.io/hostname is restricted", nil, refuseLabels(`label "kubernetes.io/hostname" is restricted`, "kubernetes.io/hostname")),
		r("template labels: labels of the provider are allowed, others of its domain are not", acceptLabels(providerKeys()...),
			refuseLabels(`label domain "karpenter.k8s.aws" is restricted`, "karpenter.k8s.aws/custom", "a.karpenter.k8s.aws/instance-cpu")),
		r("template labels: domains of Kubernetes and kOps are free", acceptLabels("kubernetes.io/x", "k8s.io/x", "node.kubernetes.io/x", "node-restriction.kubernetes.io/x", "kops.k8s.io/instancegroup", "node-role.kubernetes.io/worker")),
		r("template annotations: anything", []string{`{spec: {template: {metadata: {annotations: {"karpenter.sh/do-not-disrupt": "true", "???": "a b"}}}}}`}),

		durationRules(kind, template+".terminationGracePeriod", tmpl("terminationGracePeriod"), false, createAndUpdate),
		durationRules(kind, template+".expireAfter", tmpl("expireAfter"), true, createAndUpdate),
		durationRules(kind, "spec.disruption.consolidateAfter", disruption("consolidateAfter"), true, createAndUpdate),
		r("consolidationPolicy: one of three, exactly so", with(disruption("consolidationPolicy"), "WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"),
			each(disruption("consolidationPolicy"), "spec.disruption.consolidationPolicy", "Unsupported value", "WhenUnderutilized", "whenEmpty", "balanced", `""`, `"1"`, "Always")),
		r("consolidationPolicy: any with any consolidateAfter", func() []string {
			var out []string
			for _, policy := range []string{"WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"} {
				out = append(out, with("{spec: {disruption: {consolidationPolicy: "+policy+", consolidateAfter: %s}}}", "Never", "0s", "30s")...)
			}
			return out
		}()),

		r("budgets: at most 50, none is fine", []string{budgets(50), budgets(0)}, []refusal{no(budgets(51), "spec.disruption.budgets", "must have at most 50 items")}),
		r("budgets.nodes: a number, or a percentage up to 100%", with(budget("nodes: %s"), `"0"`, `"7"`, `"100000000000"`, `"0%"`, `"5%"`, `"99%"`, `"100%"`, `"07"`),
			each(budget("nodes: %s"), budgetAt(".nodes"), "should match", `"101%"`, `"1000%"`, `"-1"`, `"-10%"`, `"10.5%"`, `""`, `"ten"`, `"10 %"`, `"%"`)),
		r("budgets.nodes: text, not a number", nil, []refusal{no(budget("nodes: 10"), budgetAt(".nodes"), "must be of type string")}),
		r("budgets.reasons: Underutilized, Empty, Drifted", with(budget(`nodes: "1", reasons: [%s]`), "", "Underutilized", "Empty", "Drifted", "Underutilized, Empty, Drifted"),
			each(budget(`nodes: "1", reasons: [%s]`), budgetAt(".reasons[0]"), "Unsupported value", "Expired", "expired", `""`, "underutilized")),
		r("budgets.reasons: at most 50, each once", nil,
			[]refusal{no(budget(`nodes: "1", reasons: [Empty, Empty]`), budgetAt(".reasons[1]"), "Duplicate value"),
				no(budget(`nodes: "1", reasons: `+list(51, func(int) string { return "Empty" })), budgetAt(".reasons"), "must have at most 50 items")}),
		r("budgets.schedule: starts with a macro, or ends with five pieces",
			with(budget(`nodes: "1", duration: 1h, schedule: %s`), `"@annually"`, `"@yearly"`, `"@monthly"`, `"@weekly"`, `"@daily"`, `"@midnight"`, `"@hourly"`, `"* * * * *"`, `"0 9 * * mon-fri"`, `"*/5 0-3 1,2 * 1"`, `"@dailyish"`, `"1 2 3 4 5 6"`),
			each(budget(`nodes: "1", duration: 1h, schedule: %s`), budgetAt(".schedule"), "should match", `"* * * *"`, `"@never"`, `"*"`, `""`, `"x @daily"`)),
		r("budgets.duration: hours and minutes", with(budget(`nodes: "1", schedule: "@daily", duration: %s`), "1h", "10m", "1h30m", "24h0m0s", "90m", "5m0s", "0m"),
			each(budget(`nodes: "1", schedule: "@daily", duration: %s`), budgetAt(".duration"), "should match", "30s", "1h30s", "-1h", "1d", `""`, "30m1h", "1.5h", "0s", "Never")),
		r("budgets: schedule and duration go together", []string{budget(`nodes: "1"`), budget(`nodes: "1", schedule: "@daily", duration: 1h`)},
			[]refusal{no(budget(`nodes: "1", schedule: "@daily"`), budgetAt(""), "schedule and duration must be set together"),
				no(budget(`nodes: "1", duration: 1h`), budgetAt(""), "schedule and duration must be set together"),
				no(`{spec: {disruption: {budgets: [{nodes: "1", schedule: "@daily", duration: 1h}, {nodes: "1"}, {nodes: "1", duration: 1h}]}}}`, "spec.disruption.budgets[2]", "schedule and duration must be set together")}),
		r("budgets: one bad item among good ones", nil,
			[]refusal{no(`{spec: {disruption: {budgets: [{nodes: "1"}, {nodes: "x"}]}}}`, "spec.disruption.budgets[1].nodes", "should match")}),

		quantityRule(kind, "limits: quantities of any resource", "spec.limits.cpu", "{spec: {limits: {cpu: %s}}}", createAndUpdate),
		r("limits: any resource name, nodes too, or none", []string{"{spec: {limits: {nodes: 10, memory: 1Ti, nvidia.com/gpu: 4, anything: 1}}}", "{spec: {limits: {}}}", "{spec: {limits: null}}"}),
		r("weight: 1 to 100", with("{spec: {weight: %s}}", "1", "100", "null"),
			each("{spec: {weight: %s}}", "spec.weight", "greater than or equal to 1", "0", "-1"), each("{spec: {weight: %s}}", "spec.weight", "less than or equal to 100", "101")),

		only(createOnly, "replicas: zero or more", with("{spec: {replicas: %s}}", "0", "1", "2147483647"),
			each("{spec: {replicas: %s}}", "spec.replicas", "greater than or equal to 0", "-1")),
		only(createOnly, "replicas: no limit but nodes", with(fmt.Sprintf(static, "limits: %s"), "{}", "{nodes: 5}"),
			each(fmt.Sprintf(static, "limits: %s"), "spec", "only limits.nodes may be set together with replicas", "{cpu: 1}", "{memory: 1Gi}", "{pods: 1}", "{ephemeral-storage: 1Gi}", "{nodes: 5, cpu: 1}")),
		only(createOnly, "replicas: no weight", nil, []refusal{no(fmt.Sprintf(static, "weight: 1"), "spec", "weight may not be set together with replicas")}),
		only(createOnly, "replicas: everything else is allowed", []string{
			fmt.Sprintf(static, `disruption: {budgets: [{nodes: "1"}], consolidateAfter: 5m, consolidationPolicy: WhenEmpty}`),
			fmt.Sprintf(static, "template: {metadata: {labels: {a: b}, annotations: {c: d}}}"),
			fmt.Sprintf(static, "template: {spec: {taints: [{key: a, effect: NoSchedule}], startupTaints: [{key: b, effect: NoSchedule}]}}"),
			fmt.Sprintf(static, "template: {spec: {requirements: [{key: a, operator: Exists}], expireAfter: 1h, terminationGracePeriod: 1m}}"),
		}),
		only(updateOnly, "replicas: a dynamic pool cannot become static", nil,
			each("{spec: {replicas: %s}}", "spec", "replicas cannot be added or removed", "0", "3")),

		only(statusUpdate, "status: numbers and quantities", []string{"{status: {nodes: 3, nodeClassObservedGeneration: 2, resources: {cpu: 1, memory: 2Gi, nodes: 3}}}"},
			each("{status: {nodes: %s}}", "status.nodes", "must be of type integer", `"3"`)),
		quantityRule(kind, "status.resources: quantities", "status.resources.cpu", "{status: {resources: {cpu: %s}}}", statusUpdate),
	}
	rules = append(rules, requirements{kind: kind, path: template + ".requirements", edit: tmpl("requirements"), pool: true}.rules()...)
	rules = append(rules, taintRules(kind, template+".taints", "taints", tmpl("taints"), createAndUpdate)...)
	rules = append(rules, taintRules(kind, template+".startupTaints", "startupTaints", tmpl("startupTaints"), createAndUpdate)...)
	return append(rules, conditionRules(kind, false)...)
}
