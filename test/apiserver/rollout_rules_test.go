//go:build apiserver

package apiserver

import (
	"fmt"
	"strings"
)

func rolloutRules() []rule {
	const kind = "RolloutPolicy"
	spec := func(fields string) string { return "{spec: {" + fields + "}}" }
	step := func(field string) string { return spec("steps: [{nodes: 1, " + field + "}]") }
	window := func(fields string) string { return spec("windows: [{" + fields + "}]") }
	query := func(fields string) string {
		return spec("gates: {promQL: [{name: errors, address: \"https://p.example\", query: up, " + fields + "}]}")
	}
	hook := func(fields string) string { return spec("gates: {webhook: {" + fields + "}}") }
	repeat := func(n int, format string) string {
		out := make([]string, n)
		for i := range out {
			out[i] = strings.ReplaceAll(format, "#", fmt.Sprint(i))
		}
		return strings.Join(out, ", ")
	}
	r := func(text string, ok []string, no ...refusal) rule {
		return rule{kind: kind, text: text, ok: ok, no: no}
	}
	long := strings.Repeat("x", 70000)
	last := func(fields string) string { return "{status: {pools: [{name: a, lastGood: {" + fields + "}}]}}" }
	const at = "status.pools[0].lastGood"
	const (
		durations = "should match"
		places    = "should match"
	)
	return append([]rule{
		r("spec and nodePoolSelector: required", nil, no("{spec: null}", "spec", "Required value"), no(spec("nodePoolSelector: null"), "spec.nodePoolSelector", "Required value")),
		r("nodePoolSelector: as of every label selector", []string{spec("nodePoolSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}")},
			no(spec("nodePoolSelector: {matchExpressions: [{operator: Exists}]}"), "spec.nodePoolSelector.matchExpressions[0].key", "Required value"),
			no(spec("nodePoolSelector: {matchExpressions: [{key: a}]}"), "spec.nodePoolSelector.matchExpressions[0].operator", "Required value")),
		r("steps: at most 16", []string{spec("steps: [" + repeat(16, "{nodes: 1}") + "]")}, no(spec("steps: ["+repeat(17, "{nodes: 1}")+"]"), "spec.steps", "must have at most 16 items")),
		r("steps.nodes: required", nil, no(spec("steps: [{bake: 1m}]"), "spec.steps[0].nodes", "Required value")),
		r("steps.nodes: a number from 1 on, or a percentage", with(spec("steps: [{nodes: %s}]"), "1", "99999", `"3"`, `"10%"`, `"100%"`),
			append(each(spec("steps: [{nodes: %s}]"), "spec.steps[0].nodes", "nodes is a number from 1 on", "0", "-1", "100000"),
				append(each(spec("steps: [{nodes: %s}]"), "spec.steps[0].nodes", "should match", `""`, `"0%"`, `"101%"`, `"1.5"`, `"ten"`),
					no(spec("steps: [{nodes: \"100000\"}]"), "spec.steps[0].nodes", "Too long"))...)...),
		r("steps.bake: a duration", with(step("bake: %s"), "30s", "1h30m"), each(step("bake: %s"), "spec.steps[0].bake", durations, `""`, "1d", `"-1h"`)...),
		r("gates.readyWithin: a duration", with(spec("gates: {readyWithin: %s}"), "30s", "1h30m"), each(spec("gates: {readyWithin: %s}"), "spec.gates.readyWithin", durations, `""`, "1d")...),
		r("gates.promQL: at most 8, each with its name", nil,
			no(spec("gates: {promQL: ["+repeat(9, "{name: q#, address: \"https://p\", query: up}")+"]}"), "spec.gates.promQL", "must have at most 8 items"),
			no(spec("gates: {promQL: ["+repeat(2, "{name: q, address: \"https://p\", query: up}")+"]}"), "spec.gates.promQL[1]", "Duplicate value")),
		r("gates.promQL.name, address and query: required", nil,
			no(spec("gates: {promQL: [{address: \"https://p\", query: up}]}"), "spec.gates.promQL[0].name", "Required value"),
			no(spec("gates: {promQL: [{name: q, query: up}]}"), "spec.gates.promQL[0].address", "Required value"),
			no(spec("gates: {promQL: [{name: q, address: \"https://p\"}]}"), "spec.gates.promQL[0].query", "Required value")),
		r("gates.promQL.name: a name", nil, each(spec("gates: {promQL: [{name: %s, address: \"https://p\", query: up}]}"), "spec.gates.promQL[0].name", "should match", `""`, "A", "-a", strings.Repeat("a", 64))...),
		r("gates.promQL.address: https, or http within the cluster", with(spec("gates: {promQL: [{name: q, address: %s, query: up}]}"), `"https://p.example:9090/prom"`, `"http://prometheus.monitoring.svc:9090"`, `"http://p.m.svc.cluster.local"`),
			append(each(spec("gates: {promQL: [{name: q, address: %s, query: up}]}"), "spec.gates.promQL[0].address", places, `""`, `"http://p.example"`, `"https://user:password@p"`, `"https://p?x=y"`, `"ftp://p"`, `"http://169.254.169.254/latest"`),
				no(spec("gates: {promQL: [{name: q, address: \"https://"+long[:510]+"\", query: up}]}"), "spec.gates.promQL[0].address", "Too long"))...),
		r("gates.promQL.query: 1 to 4096 characters", nil, no(spec(`gates: {promQL: [{name: errors, address: "https://p.example", query: ""}]}`), "spec.gates.promQL[0].query", "should be at least 1 chars long"),
			no(spec("gates: {promQL: [{name: errors, address: \"https://p.example\", query: "+long[:4097]+"}]}"), "spec.gates.promQL[0].query", "Too long")),
		r("gates.promQL.atMost: a number", with(query("atMost: %s"), `"0"`, `"-1.5"`), each(query("atMost: %s"), "spec.gates.promQL[0].atMost", "should match", `""`, `"1e3"`, `".5"`)...),
		r("gates.promQL.atLeast: a number", with(query("atLeast: %s"), `"0"`, `"99.9"`), each(query("atLeast: %s"), "spec.gates.promQL[0].atLeast", "should match", `""`, `"x"`)...),
		r("gates.promQL.caBundle: of https", []string{query("caBundle: YQ==")},
			no(spec("gates: {promQL: [{name: q, address: \"http://p.m.svc\", query: up, caBundle: YQ==}]}"), "spec.gates.promQL[0]", "caBundle is for https"),
			no(query("caBundle: "+strings.Repeat("YWFh", 23000)), "spec.gates.promQL[0].caBundle", "Too long")),
		r("gates.webhook.url: required", nil, no(hook("caBundle: YQ=="), "spec.gates.webhook.url", "Required value")),
		r("gates.webhook.url: https, or http within the cluster", with(hook("url: %s"), `"https://h.example/allow?x=y"`, `"http://h.n.svc:8080/"`),
			append(each(hook("url: %s"), "spec.gates.webhook.url", places, `""`, `"http://h.example"`, `"https://a:b@h"`),
				no(hook("url: \"https://"+long[:510]+"\""), "spec.gates.webhook.url", "Too long"))...),
		r("gates.webhook.caBundle: of https", []string{hook("url: \"https://h\", caBundle: YQ==")},
			no(hook("url: \"http://h.n.svc\", caBundle: YQ=="), "spec.gates.webhook", "caBundle is for https"),
			no(hook("url: \"https://h\", caBundle: "+strings.Repeat("YWFh", 23000)), "spec.gates.webhook.caBundle", "Too long")),
		r("onFailure: Pause or LastGood", with(spec("onFailure: %s"), "Pause", "LastGood"),
			each(spec("onFailure: %s"), "spec.onFailure", "Unsupported value", "Rollback", `""`)...),
		r("windows: at most 16", nil, no(spec("windows: ["+repeat(17, "{schedule: \"@daily\", duration: 1h}")+"]"), "spec.windows", "must have at most 16 items")),
		r("windows.schedule and duration: required", nil, no(window("duration: 1h"), "spec.windows[0].schedule", "Required value"),
			no(window("schedule: \"@daily\""), "spec.windows[0].duration", "Required value")),
		r("windows.schedule: a cron expression", with(window("duration: 1h, schedule: %s"), `"@weekly"`, `"0 1 * * 1-5"`),
			each(window("duration: 1h, schedule: %s"), "spec.windows[0].schedule", "should match", `""`, `"@never"`, `"0 1 * *"`, `"TZ=UTC 0 1 * * *"`)...),
		r("windows.duration: hours and minutes", with(window("schedule: \"@daily\", duration: %s"), "4h", "1h30m"),
			each(window("schedule: \"@daily\", duration: %s"), "spec.windows[0].duration", durations, `""`, "30s", "1d")...),
		r("windows.timeZone: a name", with(window("schedule: \"@daily\", duration: 1h, timeZone: %s"), "UTC", "Europe/Berlin", "America/Argentina/Ushuaia"),
			append(each(window("schedule: \"@daily\", duration: 1h, timeZone: %s"), "spec.windows[0].timeZone", "should match", `""`, `"a b"`, "../etc"),
				no(window("schedule: \"@daily\", duration: 1h, timeZone: "+long[:65]), "spec.windows[0].timeZone", "Too long"))...),
		r("expiry.withinBudgets: required", []string{spec("expiry: {withinBudgets: true}")}, no(spec("expiry: {hardAfter: 1h}"), "spec.expiry.withinBudgets", "Required value")),
		r("expiry.hardAfter: a duration", with(spec("expiry: {withinBudgets: true, hardAfter: %s}"), "72h", "0s"),
			each(spec("expiry: {withinBudgets: true, hardAfter: %s}"), "spec.expiry.hardAfter", durations, `""`, "3d")...),
		{kind: kind, text: "status.pools: each with its name", on: statusUpdate,
			no: []refusal{no("{status: {pools: [{step: 1}]}}", "status.pools[0].name", "Required value"), no("{status: {pools: [{name: a}, {name: a}]}}", "status.pools[1]", "Duplicate value")}},
		{kind: kind, text: "status.pools.lastGood: passed and template required, all of it bounded", on: statusUpdate,
			ok: []string{last(`passed: "2025-01-02T03:04:05Z", template: "{}"`), last(`passed: "2025-01-02T03:04:05Z", template: "{}", images: [a, b]`)},
			no: []refusal{no(last(`template: "{}"`), at+".passed", "Required value"), no(last(`passed: "2025-01-02T03:04:05Z"`), at+".template", "Required value"),
				no(last(`passed: "2025-01-02T03:04:05Z", template: `+strings.Repeat("x", 262145)), at+".template", "Too long"),
				no(last(`passed: "2025-01-02T03:04:05Z", template: "{}", images: [`+repeat(33, "ami-#")+"]"), at+".images", "must have at most 32 items"),
				no(last(`passed: "2025-01-02T03:04:05Z", template: "{}", images: [`+long[:257]+"]"), at+".images[0]", "Too long")}},
	}, conditionRules(kind, false)...)
}
