//go:build apiserver

package apiserver

import (
	"fmt"
	"slices"
	"strings"
)

// A plan that says what it is about.
const plannedStatus = `{status: {phase: Pending, expiresAt: "2026-05-01T20:00:00Z", step: {reason: Empty, pods: 0, saves: "0.1000",
  remove: [{nodeClaim: a, uid: u, node: here, nodePool: p, price: "0.1000"}]}}}`

func disruptionPlanRules() []rule {
	const kind = "DisruptionPlan"
	rules := []rule{
		{kind: kind, text: "decision: yes, no or nothing", ok: with("{spec: {decision: %s}}", "Approved", "Denied", "null"),
			no: each("{spec: {decision: %s}}", "spec.decision", "Unsupported value", `""`, "yes", "approved")},
		{kind: kind, text: "note: not a book", ok: with("{spec: {note: %s}}", `""`, strings.Repeat("x", 1024)), no: each("{spec: {note: %s}}", "spec.note", "Too long", strings.Repeat("x", 1025))},
		{kind: kind, text: "phase: a known one", ok: with("{status: {phase: %s}}", "Pending", "CarriedOut", "Denied", "Expired", "Superseded"),
			no: each("{status: {phase: %s}}", "status.phase", "Unsupported value", "Approved"), on: statusUpdate},
		{kind: kind, text: "step: never changes", ok: []string{"{status: {step: {pods: 0}}}"}, no: append(
			each("{status: {step: {%s}}}", "status", "the step of a plan never changes", "pods: 1", `saves: "9"`, "reason: Drifted", "remove: []", "open: [{nodePool: p, instanceType: x, types: 1, capacityType: spot, price: \"1\"}]"),
			no("{status: {step: null}}", "status", "the step of a plan never changes")), on: statusUpdate},
		{kind: kind, text: "step.reason: a known one", no: each("{status: {step: {reason: %s}}}", "status.step.reason", "Unsupported value", "Expired", `""`), on: statusUpdate},
		{kind: kind, text: "expiresAt: never changes", no: each("{status: {expiresAt: %s}}", "status", "the expiry of a plan never changes", `"2026-05-02T20:00:00Z"`, "null"), on: statusUpdate},
	}
	for _, field := range []string{"reason", "remove", "pods", "saves"} {
		rules = append(rules, rule{kind: kind, text: "step." + field + ": required", no: []refusal{no(fmt.Sprintf("{status: {step: {%s: null}}}", field), "status.step."+field, "Required value")}, on: statusUpdate})
	}
	for list, fields := range map[string][]string{
		"remove":    {"nodeClaim: a", "uid: u", "node: here", "nodePool: p", `price: "1"`},
		"open":      {"nodePool: p", "instanceType: x", "types: 1", "capacityType: spot", `price: "1"`},
		"evictions": {"namespace: a", "kind: Pod", "name: b", "pods: 1"},
	} {
		r := rule{kind: kind, text: "step." + list + ": all of an entry", on: statusUpdate}
		for i, left := range fields {
			name, _, _ := strings.Cut(left, ":")
			others := append(append([]string{}, fields[:i]...), fields[i+1:]...)
			r.no = append(r.no, no(fmt.Sprintf("{status: {step: {%s: [{%s}]}}}", list, joined(others)), fmt.Sprintf("status.step.%s[0].%s", list, name), "Required value"))
		}
		rules = append(rules, r)
	}
	slices.SortStableFunc(rules, func(a, b rule) int { return strings.Compare(a.text, b.text) })
	return rules
}
