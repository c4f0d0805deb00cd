//go:build apiserver

package apiserver

import (
	"fmt"
	"slices"
	"strings"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

// requirements says where a kind keeps its requirements, and what is different about them.
type requirements struct {
	kind, path string
	edit       string // sets the list at %s
	on         occasion
	pool       bool // the pool's own label may not be required
	overlay    bool // NodeOverlay: no minValues, NotIn needs values, the provider's domain is free
}

// rules are the rules of a list of requirements.
func (q requirements) rules() []rule {
	set := func(items ...string) string { return fmt.Sprintf(q.edit, "["+strings.Join(items, ", ")+"]") }
	many := func(n int) string {
		return fmt.Sprintf(q.edit, list(n, func(i int) string { return fmt.Sprintf("{key: k%d, operator: Exists}", i) }))
	}
	item := q.path + "[0]"
	key := item + ".key"
	sets := func(format string, values ...string) []string {
		out := make([]string, len(values))
		for i, value := range values {
			out[i] = set(fmt.Sprintf(format, value))
		}
		return out
	}
	refuse := func(field, says, format string, values ...string) []refusal {
		var out []refusal
		for _, edit := range sets(format, values...) {
			out = append(out, no(edit, field, says))
		}
		return out
	}
	r := func(text string, ok []string, no ...[]refusal) rule {
		return rule{kind: q.kind, text: text, ok: ok, no: slices.Concat(no...), on: q.on}
	}
	const exists = "{key: %s, operator: Exists}"
	letters := func(n int) string { return strings.Repeat("a", n) }

	rules := []rule{
		r("requirements: required, may be empty", []string{set()}, []refusal{no(fmt.Sprintf(q.edit, "null"), q.path, "Required value")}),
		r("requirements: at most 100", []string{many(100)}, []refusal{no(many(101), q.path, "must have at most 100 items")}),
		r("requirements.key: required", []string{set("{key: a, operator: Exists}")}, []refusal{no(set("{operator: Exists}"), key, "Required value")}),
		r("requirements.key: at most 316 characters; the limits of name and prefix are left to run time",
			sets(exists, letters(316), letters(64)), refuse(key, "may not be more than 316", exists, letters(317))),
		r("requirements.key: qualified name, prefix in lower case",
			sets(exists, "a", "A", `"1"`, "a-b_c.d", "a.b/C", "a-1.b/c_d", "x/y"),
			refuse(key, "should match", exists, `""`, "/a", "a/", "A.b/c", "a_b/c", "-a", "a-", "a b", "a/b/c", ".a", "a..b/c", `"a\n"`, "ä")),
		r("requirements.operator: required", nil, []refusal{no(set("{key: a}"), item+".operator", "Required value")}),
		r("requirements.operator: one of eight",
			append(sets("{key: a, operator: %s, values: [x]}", "In", "NotIn"),
				append(sets("{key: a, operator: %s}", "Exists", "DoesNotExist"), sets(`{key: a, operator: %s, values: ["1"]}`, "Gt", "Lt", "Gte", "Lte")...)...),
			refuse(item+".operator", "Unsupported value", "{key: a, operator: %s}", "in", `""`, "Near", "EXISTS", "Equals")),
		r("requirements: In needs at least one value", []string{set("{key: a, operator: In, values: [x]}"), set("{key: a, operator: In, values: [p, q]}")},
			refuse(item, "operator In", "{key: a, operator: In%s}", "", ", values: []")),
		r("requirements: Gt, Lt, Gte and Lte need one whole number, zero or more",
			slices.Concat(sets(`{key: a, operator: %s, values: ["0"]}`, "Gt", "Lt", "Gte", "Lte"), sets(`{key: a, operator: Gt, values: [%s]}`, `"1"`, `"2147483648"`, `"007"`, `"9223372036854775807"`)),
			refuse(item, "exactly one value", "{key: a, operator: %s}", "Gt", "Lt", "Gte", "Lte"),
			refuse(item, "exactly one value", "{key: a, operator: %s, values: []}", "Gt", "Lt", "Gte", "Lte"),
			refuse(item, "exactly one value", `{key: a, operator: %s, values: ["1", "2"]}`, "Gt", "Lt", "Gte", "Lte"),
			refuse(item, "exactly one value", `{key: a, operator: %s, values: ["-1"]}`, "Gt", "Lt", "Gte", "Lte"),
			refuse(item, "exactly one value", `{key: a, operator: %s, values: [many]}`, "Gt", "Lt", "Gte", "Lte"),
			refuse(item, "exactly one value", `{key: a, operator: Gt, values: [%s]}`, `"1.5"`, `""`, `"1e3"`, `"1 "`, `"99999999999999999999"`)),
		r("requirements: Exists and DoesNotExist may carry values", sets("{key: a, operator: %s, values: [x]}", "Exists", "DoesNotExist")),
		r("requirements.values: length and characters are left to run time", sets("{key: a, operator: In, values: [%s]}", letters(64), `"x y"`, `""`, `"-"`)),
		r("requirements: more than 50 values", []string{set(fmt.Sprintf("{key: a, operator: In, values: %s}", list(500, func(i int) string { return fmt.Sprintf("v%d", i) })))}),
		r("requirements: one key several times, In and NotIn overlapping",
			[]string{set("{key: a, operator: In, values: [p, q]}", "{key: a, operator: NotIn, values: [x]}", "{key: a, operator: In, values: [p, q]}")}),
		r("requirements.key: domain karpenter.sh is restricted, compared as text from its end",
			sets(exists, "karpenter.sh/capacity-type", "karpenter.sh.example.com/x", "foo/karpenter.sh", "example.com/karpenter.sh"),
			refuse(key, `label domain "karpenter.sh" is restricted`, exists, "karpenter.sh/custom", "karpenter.sh/registered", "karpenter.sh/initialized",
				"karpenter.sh/nodepool-hash", "a.karpenter.sh/x", "foo-karpenter.sh/x", "karpenter.sh", "foo.karpenter.sh", "a.karpenter.sh/capacity-type")),
		r("requirements.key: kubernetes.io/hostname is restricted", nil, refuse(key, `label "kubernetes.io/hostname" is restricted`, exists, "kubernetes.io/hostname")),
		r("requirements.key: domains of Kubernetes and kOps are free",
			sets(exists, "kubernetes.io/x", "k8s.io/x", "node.kubernetes.io/x", "node-restriction.kubernetes.io/x", "kops.k8s.io/x", "sub.kops.k8s.io/x",
				"kubernetes.io/arch", "kubernetes.io/os", "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
				"node.kubernetes.io/instance-type", "node.kubernetes.io/windows-build", "beta.kubernetes.io/arch", "failure-domain.beta.kubernetes.io/zone", "topology.k8s.aws/zone-id")),
		r("requirements.key: labels of the provider are allowed", sets(exists, providerKeys()...)),
	}
	if q.pool {
		rules = append(rules, r("requirements.key: karpenter.sh/nodepool may not be required", nil,
			[]refusal{no(set("{key: karpenter.sh/nodepool, operator: Exists}"), q.path, "key karpenter.sh/nodepool is set by Karpenter")}))
	} else {
		rules = append(rules, r("requirements.key: karpenter.sh/nodepool is allowed", sets(exists, "karpenter.sh/nodepool")))
	}
	if q.overlay {
		return append(rules,
			r("requirements: NotIn needs at least one value", []string{set("{key: a, operator: NotIn, values: [x]}")},
				refuse(item, "operator In or NotIn", "{key: a, operator: NotIn%s}", "", ", values: []")),
			rule{kind: q.kind, text: "requirements: there is no minValues", on: createOnly,
				no: []refusal{no(set("{key: a, operator: Exists, minValues: 1}"), "", `unknown field "spec.requirements[0].minValues"`)}},
			r("requirements.key: the provider's domain is free", sets(exists, "karpenter.k8s.aws/custom")),
		)
	}
	fifty := fmt.Sprintf("{key: a, operator: In, minValues: 50, values: %s}", list(50, func(i int) string { return fmt.Sprintf("v%d", i) }))
	return append(rules,
		r("requirements: NotIn without values means Exists", sets("{key: a, operator: NotIn%s}", "", ", values: []")),
		r("requirements.minValues: 1 to 50",
			append(sets("{key: a, operator: Exists, minValues: %s}", "1", "50"), set(fifty)),
			refuse(item+".minValues", "greater than or equal to 1", "{key: a, operator: Exists, minValues: %s}", "0", "-1"),
			refuse(item+".minValues", "less than or equal to 50", "{key: a, operator: Exists, minValues: %s}", "51")),
		r("requirements.minValues: In needs as many values",
			[]string{set("{key: a, operator: In, values: [p, q], minValues: 2}"), set("{key: a, operator: In, values: [p, q, r], minValues: 2}"), set("{key: a, operator: NotIn, values: [x], minValues: 2}")},
			[]refusal{no(set("{key: a, operator: In, values: [x], minValues: 2}"), item, "at least as many values as minValues")}),
		r("requirements.key: other labels of domain karpenter.k8s.aws are restricted, compared as text from its end", nil,
			refuse(key, `label domain "karpenter.k8s.aws" is restricted`, exists, "karpenter.k8s.aws/custom", "a.karpenter.k8s.aws/instance-cpu", "foo-karpenter.k8s.aws/x", "karpenter.k8s.aws")),
	)
}

// providerKeys are the provider's labels that may be asked for.
func providerKeys() []string {
	var keys []string
	for _, l := range awsv1.Labels().Labels {
		keys = append(keys, l.Key)
	}
	return keys
}

// taintRules are the rules of a list of taints.
func taintRules(kind, path, name, edit string, on occasion) []rule {
	set := func(items ...string) string { return fmt.Sprintf(edit, "["+strings.Join(items, ", ")+"]") }
	field := path + "[0]"
	refuse := func(field, says, format string, values ...string) []refusal {
		var out []refusal
		for _, value := range values {
			out = append(out, no(set(fmt.Sprintf(format, value)), field, says))
		}
		return out
	}
	sets := func(format string, values ...string) []string {
		var out []string
		for _, value := range values {
			out = append(out, set(fmt.Sprintf(format, value)))
		}
		return out
	}
	r := func(text string, ok []string, no ...[]refusal) rule {
		return rule{kind: kind, text: name + text, ok: ok, no: slices.Concat(no...), on: on}
	}
	return []rule{
		r(".key: required, not empty", []string{set("{key: a, effect: NoSchedule}")},
			[]refusal{no(set("{effect: NoSchedule}"), field+".key", "Required value"), no(set(`{key: "", effect: NoSchedule}`), field+".key", "at least 1 chars long")}),
		r(".key: qualified name; its length is left to run time",
			sets("{key: %s, effect: NoSchedule}", "a", "A", "a.b/C", "a_b", strings.Repeat("a", 64), "kubernetes.io/hostname"),
			refuse(field+".key", "should match", "{key: %s, effect: NoSchedule}", "/a", "a/", "A.b/c", "a b", "-a", `"???"`)),
		r(".value: absent, or like a qualified name",
			sets("{key: a, effect: NoSchedule, value: %s}", "v", "V", "a/b", "a.b/c_d", strings.Repeat("a", 64)),
			refuse(field+".value", "should match", "{key: a, effect: NoSchedule, value: %s}", `""`, `"b c"`, "-b", "a/b/c")),
		r(".effect: required, one of three",
			sets("{key: a, effect: %s}", "NoSchedule", "PreferNoSchedule", "NoExecute"),
			[]refusal{no(set("{key: a}"), field+".effect", "Required value")},
			refuse(field+".effect", "Unsupported value", "{key: a, effect: %s}", `""`, "noschedule", "Never")),
		r(".timeAdded: a date-time", []string{set("{key: a, effect: NoSchedule, timeAdded: \"2025-01-02T03:04:05Z\"}")},
			[]refusal{no(set("{key: a, effect: NoSchedule, timeAdded: yesterday}"), field+".timeAdded", "date-time")}),
		r(": one key with several effects, and the same taint twice, are left to run time",
			[]string{set("{key: a, effect: NoSchedule}", "{key: a, effect: NoExecute}"), set("{key: a, effect: NoSchedule}", "{key: a, effect: NoSchedule}")}),
	}
}

// durationRules are the rules of a duration, which may or may not be Never.
func durationRules(kind, field, edit string, never bool, on occasion) rule {
	r := rule{kind: kind, text: lastPart(field) + ": digits and s, m or h, one or more times", on: on,
		ok: with(edit, "0s", "30s", "10m", "1h30m5s", "720h", "1s1s", "0010m"),
		no: each(edit, field, "should match", "-1s", "1hr", `""`, "1d", "1.5h", "500ms", `"1h 5m"`, `" 1h"`, "1h-", "never", "NeverEver", "xNever", "h", "+1h"),
	}
	if never {
		r.text += ", or Never"
		r.ok = append(r.ok, with(edit, "Never")...)
		return r
	}
	r.no = append(r.no, each(edit, field, "should match", "Never")...)
	return r
}

func lastPart(field string) string { return field[strings.LastIndexByte(field, '.')+1:] }

// quantityRule is the rule of a map of quantities.
func quantityRule(kind, text, field, edit string, on occasion) rule {
	return rule{kind: kind, text: text, on: on,
		ok: with(edit, "1", `"1"`, "100m", `"1.5"`, "10Gi", `"1e3"`, "0", `"-1"`, `".5"`),
		no: each(edit, field, "should match", "ten", "10GB", `""`, `"1 Gi"`, `"1_000"`),
	}
}

// conditionRules are the rules of status conditions; sparse ones need no reason and no message.
func conditionRules(kind string, sparse bool) []rule {
	const full = `{type: %s, status: "%s", reason: %s, message: %s, observedGeneration: %s, lastTransitionTime: %s}`
	set := func(items ...string) string {
		return fmt.Sprintf("{status: {conditions: [%s]}}", strings.Join(items, ", "))
	}
	fields := map[string]string{"type": "Ready", "status": "True", "reason": "Ready", "message": `""`, "observedGeneration": "1", "lastTransitionTime": `"2025-01-02T03:04:05Z"`}
	one := func(name, value string) string {
		get := func(field string) string {
			if field == name {
				return value
			}
			return fields[field]
		}
		return set(fmt.Sprintf(full, get("type"), get("status"), get("reason"), get("message"), get("observedGeneration"), get("lastTransitionTime")))
	}
	without := func(name string) string {
		var parts []string
		for field, value := range fields {
			if field != name {
				parts = append(parts, field+": "+quoteStatus(field, value))
			}
		}
		slices.Sort(parts)
		return set("{" + strings.Join(parts, ", ") + "}")
	}
	at := func(field string) string { return "status.conditions[0]." + field }
	refuse := func(field, says string, values ...string) []refusal {
		var out []refusal
		for _, value := range values {
			out = append(out, no(one(field, value), at(field), says))
		}
		return out
	}
	accept := func(field string, values ...string) []string {
		var out []string
		for _, value := range values {
			out = append(out, one(field, value))
		}
		return out
	}
	r := func(text string, ok []string, no ...[]refusal) rule {
		return rule{kind: kind, text: text, ok: ok, no: slices.Concat(no...), on: statusUpdate}
	}
	letters := func(n int) string { return strings.Repeat("a", n) }
	rules := []rule{
		r("conditions.type: required, like a qualified name, at most 316 characters", accept("type", "Ready", "example.com/Ready", letters(316)),
			[]refusal{no(without("type"), at("type"), "Required value")}, refuse("type", "should match", `""`, `"a b"`, "-a"), refuse("type", "may not be more than 316", letters(317))),
		r("conditions.status: required, True, False or Unknown", accept("status", "True", "False", "Unknown"),
			[]refusal{no(without("status"), at("status"), "Required value")}, refuse("status", "Unsupported value", "", "true", "Maybe")),
		r("conditions.observedGeneration: zero or more", append(accept("observedGeneration", "0", "7"), without("observedGeneration")), refuse("observedGeneration", "greater than or equal to 0", "-1")),
		r("conditions.lastTransitionTime: required, a date-time", accept("lastTransitionTime", `"2025-01-02T03:04:05Z"`),
			[]refusal{no(without("lastTransitionTime"), at("lastTransitionTime"), "Required value")}, refuse("lastTransitionTime", "date-time", "now")),
		r("conditions: one of each type", []string{set(`{type: A, status: "True", reason: A, message: "", lastTransitionTime: "2025-01-02T03:04:05Z"}`, `{type: B, status: "True", reason: B, message: "", lastTransitionTime: "2025-01-02T03:04:05Z"}`)},
			[]refusal{no(set(`{type: A, status: "True", reason: A, message: "", lastTransitionTime: "2025-01-02T03:04:05Z"}`, `{type: A, status: "False", reason: B, message: "", lastTransitionTime: "2025-01-02T03:04:05Z"}`), "status.conditions[1]", "Duplicate value")}),
	}
	reasons := refuse("reason", "should match", "a-b", "1a", `"a "`, "_a", "a:", `"a,"`)
	tooLong := refuse("reason", "may not be more than 1024", letters(1025))
	words := accept("reason", "a", "A_b", "a1", "A,b:c", letters(1024), "a_")
	if sparse {
		return append(rules,
			r("conditions.reason: may be missing or empty, at most 1024 characters", append(words, one("reason", `""`), without("reason")), reasons, tooLong),
			r("conditions.message: may be missing, at most 32768 characters", append(accept("message", `""`, letters(32768)), without("message")), refuse("message", "may not be more than 32768", letters(32769))))
	}
	return append(rules,
		r("conditions.reason: required, not empty, at most 1024 characters", words,
			[]refusal{no(without("reason"), at("reason"), "Required value")}, refuse("reason", "at least 1 chars long", `""`), reasons, tooLong),
		r("conditions.message: required, may be empty, at most 32768 characters", accept("message", `""`, letters(32768)),
			[]refusal{no(without("message"), at("message"), "Required value")}, refuse("message", "may not be more than 32768", letters(32769))))
}

func quoteStatus(field, value string) string {
	if field == "status" {
		return `"` + value + `"`
	}
	return value
}
