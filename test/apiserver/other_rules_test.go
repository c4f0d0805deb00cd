//go:build apiserver

package apiserver

import (
	"fmt"
	"slices"
	"strings"
)

func nodeClaimRules() []rule {
	const kind = "NodeClaim"
	spec := func(field string) string { return "{spec: {" + field + ": %s}}" }
	r := func(on occasion, text string, ok []string, no ...[]refusal) rule {
		return rule{kind: kind, text: text, ok: ok, no: slices.Concat(no...), on: on}
	}
	// The whole spec is immutable, so its other rules can only be met on create.
	rules := []rule{
		r(createAndUpdate, "spec: required", nil, []refusal{no("{spec: null}", "spec", "Required value")}),
		r(updateOnly, "spec: immutable", []string{"{metadata: {labels: {a: b}, annotations: {c: d}}}", "{spec: {requirements: []}}"},
			each("{spec: {%s}}", "spec", "spec is immutable", "expireAfter: 1h", "requirements: [{key: a, operator: Exists}]", "terminationGracePeriod: 1m",
				"taints: [{key: a, effect: NoSchedule}]", "startupTaints: [{key: a, effect: NoSchedule}]", "resources: {requests: {cpu: 1}}", "nodeClassRef: {name: other}")),
		r(createOnly, "nodeClassRef: required", nil, []refusal{no("{spec: {nodeClassRef: null}}", "spec.nodeClassRef", "Required value")}),
		r(createOnly, "nodeClassRef.group: required, not empty, without slash", with(spec("nodeClassRef"), "{group: example.com}"),
			[]refusal{no("{spec: {nodeClassRef: {group: null}}}", "spec.nodeClassRef.group", "Required value"), no(`{spec: {nodeClassRef: {group: ""}}}`, "spec.nodeClassRef.group", "at least 1 chars long"),
				no("{spec: {nodeClassRef: {group: a/b}}}", "spec.nodeClassRef.group", "should match")}),
		r(createOnly, "nodeClassRef.kind: required, not empty", with(spec("nodeClassRef"), "{kind: Other}"),
			[]refusal{no("{spec: {nodeClassRef: {kind: null}}}", "spec.nodeClassRef.kind", "Required value"), no(`{spec: {nodeClassRef: {kind: ""}}}`, "spec.nodeClassRef.kind", "at least 1 chars long")}),
		r(createOnly, "nodeClassRef.name: required, not empty", with(spec("nodeClassRef"), "{name: other}"),
			[]refusal{no("{spec: {nodeClassRef: {name: null}}}", "spec.nodeClassRef.name", "Required value"), no(`{spec: {nodeClassRef: {name: ""}}}`, "spec.nodeClassRef.name", "at least 1 chars long")}),
		durationRules(kind, "spec.terminationGracePeriod", spec("terminationGracePeriod"), false, createOnly),
		durationRules(kind, "spec.expireAfter", spec("expireAfter"), true, createOnly),
		quantityRule(kind, "resources.requests: quantities of any resource", "spec.resources.requests.cpu", "{spec: {resources: {requests: {cpu: %s}}}}", createOnly),
		r(createOnly, "resources: any resource name, or none", []string{"{spec: {resources: {requests: {pods: 3, nvidia.com/gpu: 1}}}}", "{spec: {resources: {}}}"}),
		r(statusUpdate, "status: what became of the claim", []string{
			`{status: {nodeName: a, providerID: "aws:///a/i-1", imageID: ami-1, lastPodEventTime: "2025-01-02T03:04:05Z", capacity: {cpu: 4}, allocatable: {cpu: 3900m}}}`},
			each("{status: {lastPodEventTime: %s}}", "status.lastPodEventTime", "date-time", "now")),
		quantityRule(kind, "status.capacity: quantities", "status.capacity.cpu", "{status: {capacity: {cpu: %s}}}", statusUpdate),
		quantityRule(kind, "status.allocatable: quantities", "status.allocatable.cpu", "{status: {allocatable: {cpu: %s}}}", statusUpdate),
	}
	rules = append(rules, requirements{kind: kind, path: "spec.requirements", edit: spec("requirements"), on: createOnly}.rules()...)
	rules = append(rules, taintRules(kind, "spec.taints", "taints", spec("taints"), createOnly)...)
	rules = append(rules, taintRules(kind, "spec.startupTaints", "startupTaints", spec("startupTaints"), createOnly)...)
	return append(rules, conditionRules(kind, true)...)
}

func nodeOverlayRules() []rule {
	const kind = "NodeOverlay"
	spec := func(field string) string { return "{spec: {" + field + ": %s}}" }
	r := func(text string, ok []string, no ...[]refusal) rule {
		return rule{kind: kind, text: text, ok: ok, no: slices.Concat(no...)}
	}
	rules := []rule{
		r("spec: required", nil, []refusal{no("{spec: null}", "spec", "Required value")}),
		r("price: a decimal without sign", with(spec("price"), `"0"`, `"1"`, `"0.0104"`, `"12.5"`, `"007"`),
			each(spec("price"), "spec.price", "should match", `""`, `"+1"`, `"-1"`, `".5"`, `"1."`, `"1e3"`, `"1 "`, `" 1"`, `"1,5"`, `"abc"`, `"10%"`, `"$1"`)),
		r("priceAdjustment: a signed amount", with(spec("priceAdjustment"), `"+43"`, `"-43"`, `"+34.43"`, `"-34.43"`, `"+.5"`, `"-.5"`, `"+0"`),
			each(spec("priceAdjustment"), "spec.priceAdjustment", "should match", `""`, `"43"`, `"0.5"`, `"+"`, `"-"`, `"+1e3"`, `"+ 1"`, `"++1"`, `"+1."`, `"abc"`)),
		r("priceAdjustment: a signed percentage, not below -100%", with(spec("priceAdjustment"), `"+1%"`, `"-1%"`, `"-100%"`, `"+100.102%"`, `"+298%"`, `"-99.99%"`, `"+.5%"`, `"-5.25%"`),
			each(spec("priceAdjustment"), "spec.priceAdjustment", "should match", `"10%"`, `"-101%"`, `"-100.1%"`, `"-1000%"`, `"+%"`, `"-%"`, `"+10%%"`, `"-.5%"`)),
		r("price and priceAdjustment exclude each other", nil, []refusal{no(`{spec: {price: "1", priceAdjustment: "+1"}}`, "spec", "price and priceAdjustment may not both be set")}),
		r("capacity: extended resources only", with(spec("capacity"), "{smarter-devices/fuse: 1}", "{nvidia.com/gpu: 2, example.com/x: 1}", "{}"),
			each("{spec: {capacity: {%s: 1}}}", "spec.capacity", "capacity may not name cpu, memory, ephemeral-storage or pods", "cpu", "memory", "ephemeral-storage", "pods")),
		quantityRule(kind, "capacity: quantities", "spec.capacity.x", "{spec: {capacity: {x: %s}}}", createAndUpdate),
		r("price with capacity, or nothing at all", []string{`{spec: {price: "1", capacity: {x: 1}}}`, "{spec: {requirements: []}}"}),
		r("weight: 1 to 10000", with(spec("weight"), "1", "10000", "null"),
			each(spec("weight"), "spec.weight", "greater than or equal to 1", "0", "-1"), each(spec("weight"), "spec.weight", "less than or equal to 10000", "10001")),
	}
	rules = append(rules, requirements{kind: kind, path: "spec.requirements", edit: spec("requirements"), overlay: true}.rules()...)
	return append(rules, conditionRules(kind, false)...)
}

func capacityBufferRules() []rule {
	const kind = "CapacityBuffer"
	spec := func(field string) string { return "{spec: {" + field + ": %s}}" }
	r := func(text string, ok []string, no ...[]refusal) rule {
		return rule{kind: kind, text: text, ok: ok, no: slices.Concat(no...)}
	}
	rules := []rule{
		r("spec: required, may be empty", []string{"{}"}, []refusal{no("{spec: null}", "spec", "Required value")}),
		r("provisioningStrategy: free text", with(spec("provisioningStrategy"), "buffer.x-k8s.io/active-capacity", "other", `""`)),
		r("podTemplateRef.name: required, not empty", []string{"{spec: {replicas: 1, podTemplateRef: {name: a}}}"},
			[]refusal{no("{spec: {replicas: 1, podTemplateRef: {}}}", "spec.podTemplateRef.name", "Required value"), no(`{spec: {replicas: 1, podTemplateRef: {name: ""}}}`, "spec.podTemplateRef.name", "at least 1 chars long")}),
		r("podTemplateRef needs replicas or limits", []string{"{spec: {podTemplateRef: {name: a}, replicas: 0}}", "{spec: {podTemplateRef: {name: a}, limits: {cpu: 1}}}"},
			[]refusal{no("{spec: {podTemplateRef: {name: a}}}", "spec", "podTemplateRef needs replicas or limits"), no("{spec: {podTemplateRef: {name: a}, percentage: 10}}", "spec", "podTemplateRef needs replicas or limits")}),
		r("podTemplateRef and scalableRef exclude each other", nil,
			[]refusal{no("{spec: {replicas: 1, podTemplateRef: {name: a}, scalableRef: {kind: Deployment, name: b}}}", "spec", "podTemplateRef and scalableRef may not both be set")}),
		r("scalableRef.kind: required, not empty", []string{"{spec: {scalableRef: {kind: Deployment, name: a}}}"},
			[]refusal{no("{spec: {scalableRef: {name: a}}}", "spec.scalableRef.kind", "Required value"), no(`{spec: {scalableRef: {kind: "", name: a}}}`, "spec.scalableRef.kind", "at least 1 chars long")}),
		r("scalableRef.name: required, not empty", nil,
			[]refusal{no("{spec: {scalableRef: {kind: a}}}", "spec.scalableRef.name", "Required value"), no(`{spec: {scalableRef: {kind: a, name: ""}}}`, "spec.scalableRef.name", "at least 1 chars long")}),
		r("scalableRef.apiGroup: may be missing or empty", with("{spec: {scalableRef: {kind: Deployment, name: a%s}}}", "", `, apiGroup: ""`, ", apiGroup: apps")),
		r("replicas: zero or more", with(spec("replicas"), "0", "1", "2147483647"), each(spec("replicas"), "spec.replicas", "greater than or equal to 0", "-1")),
		r("percentage: zero or more, above 100 too", with(spec("percentage"), "0", "100", "250"), each(spec("percentage"), "spec.percentage", "greater than or equal to 0", "-1")),
		r("replicas and percentage together", []string{"{spec: {replicas: 1, percentage: 10, scalableRef: {kind: Deployment, name: a}}}"}),
		quantityRule(kind, "limits: quantities of any resource", "spec.limits.cpu", "{spec: {limits: {cpu: %s}}}", createAndUpdate),
		{kind: kind, text: "status: what became of the buffer", on: statusUpdate,
			ok: []string{"{status: {podTemplateRef: {name: a}, replicas: 3, podTemplateGeneration: 2, provisioningStrategy: x}}"},
			no: []refusal{no("{status: {podTemplateRef: {}}}", "status.podTemplateRef.name", "Required value"), no(`{status: {podTemplateRef: {name: ""}}}`, "status.podTemplateRef.name", "at least 1 chars long")}},
	}
	return append(rules, conditionRules(kind, false)...)
}

func capacityQuotaRules() []rule {
	const kind = "CapacityQuota"
	many := ""
	for i := range 21 {
		many += fmt.Sprintf("x%d: 1, ", i)
	}
	rules := []rule{
		{kind: kind, text: "spec: required", no: []refusal{no("{spec: null}", "spec", "Required value")}},
		{kind: kind, text: "limits.resources: required", ok: []string{"{spec: {limits: {resources: {}}}}"},
			no: []refusal{no("{spec: {limits: null}}", "spec.limits", "Required value"), no("{spec: {limits: {resources: null}}}", "spec.limits.resources", "Required value")}},
		{kind: kind, text: "limits.resources: at most twenty", no: []refusal{no("{spec: {limits: {resources: {"+many+"}}}}", "spec.limits.resources", "must have at most 20 items")}},
		quantityRule(kind, "limits.resources: quantities", "spec.limits.resources.x", "{spec: {limits: {resources: {x: %s}}}}", createAndUpdate),
		{kind: kind, text: "selector: as of every label selector", ok: []string{"{spec: {selector: {}}}", "{spec: {selector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}}}"},
			no: []refusal{no("{spec: {selector: {matchExpressions: [{operator: Exists}]}}}", "spec.selector.matchExpressions[0].key", "Required value"),
				no("{spec: {selector: {matchExpressions: [{key: a}]}}}", "spec.selector.matchExpressions[0].operator", "Required value")}},
		quantityRule(kind, "status.used.resources: quantities", "status.used.resources.x", "{status: {used: {resources: {x: %s}}}}", statusUpdate),
		{kind: kind, text: "status.used.resources: required, at most twenty", on: statusUpdate,
			no: []refusal{no("{status: {used: {}}}", "status.used.resources", "Required value"), no("{status: {used: {resources: {"+many+"}}}}", "status.used.resources", "must have at most 20 items")}},
	}
	return append(rules, conditionRules(kind, false)...)
}

func nodeClassRules() []rule {
	const kind = "EC2NodeClass"
	spec := func(field string) string { return "{spec: {" + field + ": %s}}" }
	r := func(text string, ok []string, no ...[]refusal) rule {
		return rule{kind: kind, text: text, ok: ok, no: slices.Concat(no...)}
	}
	status := func(text string, ok []string, no ...[]refusal) rule {
		return rule{kind: kind, text: text, ok: ok, no: slices.Concat(no...), on: statusUpdate}
	}
	rules := []rule{
		r("spec: required", nil, []refusal{no("{spec: null}", "spec", "Required value")}),
		r("exactly one of role and instanceProfile; either may replace the other", []string{"{spec: {role: other}}", "{spec: {role: path/to/role}}", "{spec: {role: null, instanceProfile: p}}"},
			[]refusal{no("{spec: {instanceProfile: p}}", "spec", "exactly one of role and instanceProfile"), no("{spec: {role: null}}", "spec", "exactly one of role and instanceProfile")}),
		r("role: not empty", nil, []refusal{no(`{spec: {role: ""}}`, "spec.role", "role may not be empty")}),
		r("instanceProfile: not empty", nil, []refusal{no(`{spec: {role: null, instanceProfile: ""}}`, "spec.instanceProfile", "instanceProfile may not be empty")}),
		r("userData, context, detailedMonitoring, associatePublicIPAddress: anything of their type",
			[]string{`{spec: {userData: ""}}`, `{spec: {userData: "#!/bin/bash"}}`, "{spec: {context: c, detailedMonitoring: true, associatePublicIPAddress: false}}"}),
		r("ipPrefixCount: zero or more", with(spec("ipPrefixCount"), "0", "1", "100"), each(spec("ipPrefixCount"), "spec.ipPrefixCount", "greater than or equal to 0", "-1")),
		r("instanceStorePolicy: RAID0", with(spec("instanceStorePolicy"), "RAID0"), each(spec("instanceStorePolicy"), "spec.instanceStorePolicy", "Unsupported value", "RAID1", `""`, "raid0")),
		r("tags: no empty key", with(spec("tags"), "{}", "{team: a, Name: b, x: \"\"}"), each(spec("tags"), "spec.tags", "tag keys may not be empty", `{"": a}`)),
	}
	for _, key := range []string{"eks:eks-cluster-name", "karpenter.sh/nodepool", "karpenter.sh/nodeclaim", "karpenter.k8s.aws/ec2nodeclass"} {
		rules = append(rules, r("tags: "+key+" is restricted", nil, []refusal{no("{spec: {tags: {"+quote(key)+": x}}}", "spec.tags", fmt.Sprintf("tag %q is set by the controller", key))}))
	}
	rules = append(rules, r("tags: prefix kubernetes.io/cluster is restricted", nil,
		each("{spec: {tags: {%s: owned}}}", "spec.tags", `tags that begin with "kubernetes.io/cluster"`, "kubernetes.io/cluster/x", "kubernetes.io/cluster", "kubernetes.io/clusters")))
	rules = append(rules, selectorRules()...)
	rules = append(rules, amiRules()...)
	rules = append(rules, kubeletRules()...)
	rules = append(rules, deviceRules()...)
	rules = append(rules,
		r("metadataOptions.httpEndpoint: enabled or disabled", with("{spec: {metadataOptions: {httpEndpoint: %s}}}", "enabled", "disabled"), each("{spec: {metadataOptions: {httpEndpoint: %s}}}", "spec.metadataOptions.httpEndpoint", "Unsupported value", "on", `""`)),
		r("metadataOptions.httpProtocolIPv6: enabled or disabled", with("{spec: {metadataOptions: {httpProtocolIPv6: %s}}}", "enabled", "disabled"), each("{spec: {metadataOptions: {httpProtocolIPv6: %s}}}", "spec.metadataOptions.httpProtocolIPv6", "Unsupported value", "on", `""`)),
		r("metadataOptions.httpPutResponseHopLimit: 1 to 64", with("{spec: {metadataOptions: {httpPutResponseHopLimit: %s}}}", "1", "64"),
			each("{spec: {metadataOptions: {httpPutResponseHopLimit: %s}}}", "spec.metadataOptions.httpPutResponseHopLimit", "greater than or equal to 1", "0", "-5"),
			each("{spec: {metadataOptions: {httpPutResponseHopLimit: %s}}}", "spec.metadataOptions.httpPutResponseHopLimit", "less than or equal to 64", "65")),
		r("metadataOptions.httpTokens: required or optional", with("{spec: {metadataOptions: {httpTokens: %s}}}", "required", "optional"), each("{spec: {metadataOptions: {httpTokens: %s}}}", "spec.metadataOptions.httpTokens", "Unsupported value", "Required", `""`)),
		r("connectionTracking: at least one timeout", with(spec("connectionTracking"), "{tcpEstablishedTimeout: 100, udpStreamTimeout: 100, udpTimeout: 40}"),
			each(spec("connectionTracking"), "spec.connectionTracking", "one of tcpEstablishedTimeout, udpStreamTimeout and udpTimeout must be set", "{}")),
		limits("connectionTracking.tcpEstablishedTimeout: 60 to 432000", "spec.connectionTracking.tcpEstablishedTimeout", "{spec: {connectionTracking: {tcpEstablishedTimeout: %s}}}", 60, 432000),
		limits("connectionTracking.udpStreamTimeout: 60 to 180", "spec.connectionTracking.udpStreamTimeout", "{spec: {connectionTracking: {udpStreamTimeout: %s}}}", 60, 180),
		limits("connectionTracking.udpTimeout: 30 to 60", "spec.connectionTracking.udpTimeout", "{spec: {connectionTracking: {udpTimeout: %s}}}", 30, 60),
		r("cpuOptions.nestedVirtualization: enabled or disabled, or nothing", with(spec("cpuOptions"), "{}", "{nestedVirtualization: enabled}", "{nestedVirtualization: disabled}"),
			each("{spec: {cpuOptions: {nestedVirtualization: %s}}}", "spec.cpuOptions.nestedVirtualization", "Unsupported value", "on", `""`)),

		status("status.subnets: id and zone required", with("{status: {subnets: [%s]}}", "{id: a, zone: b}", "{id: a, zone: b, zoneID: c}"),
			[]refusal{no("{status: {subnets: [{id: a}]}}", "status.subnets[0].zone", "Required value"), no("{status: {subnets: [{zone: a}]}}", "status.subnets[0].id", "Required value")}),
		status("status.securityGroups: id required", with("{status: {securityGroups: [%s]}}", "{id: a}", "{id: a, name: b}"), []refusal{no("{status: {securityGroups: [{name: a}]}}", "status.securityGroups[0].id", "Required value")}),
		status("status.amis: id and requirements required", with("{status: {amis: [%s]}}", "{id: a, requirements: []}", "{id: a, name: b, deprecated: true, requirements: [{key: a, operator: In, values: [b]}]}"),
			[]refusal{no("{status: {amis: [{id: a}]}}", "status.amis[0].requirements", "Required value"), no("{status: {amis: [{requirements: []}]}}", "status.amis[0].id", "Required value"),
				no("{status: {amis: [{id: a, requirements: [{operator: In}]}]}}", "status.amis[0].requirements[0].key", "Required value"), no("{status: {amis: [{id: a, requirements: [{key: a}]}]}}", "status.amis[0].requirements[0].operator", "Required value")}),
		status("status.recentAMIs: id, family and requirements required, at most fifty",
			with("{status: {recentAMIs: [%s]}}", "{id: a, family: Custom, requirements: []}", "{id: a, name: b, family: AL2023, requirements: [{key: a, operator: In, values: [b]}]}"),
			[]refusal{no("{status: {recentAMIs: [{id: a, family: b}]}}", "status.recentAMIs[0].requirements", "Required value"),
				no("{status: {recentAMIs: [{family: b, requirements: []}]}}", "status.recentAMIs[0].id", "Required value"),
				no("{status: {recentAMIs: [{id: a, requirements: []}]}}", "status.recentAMIs[0].family", "Required value"),
				no("{status: {recentAMIs: [{id: a, family: b, requirements: [{operator: In}]}]}}", "status.recentAMIs[0].requirements[0].key", "Required value"),
				no("{status: {recentAMIs: [{id: a, family: b, requirements: [{key: a}]}]}}", "status.recentAMIs[0].requirements[0].operator", "Required value"),
				no("{status: {recentAMIs: ["+strings.Repeat("{id: a, family: b, requirements: []}, ", 51)+"]}}", "status.recentAMIs", "must have at most 50 items")}),
		status("status.placementGroup: id and strategy required", with("{status: {placementGroup: %s}}", "{id: pg-1, strategy: cluster}", "{id: pg-1, name: a, strategy: partition, partitionCount: 3}"),
			[]refusal{no("{status: {placementGroup: {strategy: cluster}}}", "status.placementGroup.id", "Required value"),
				no("{status: {placementGroup: {id: pg-1}}}", "status.placementGroup.strategy", "Required value")}),
	)
	rules = append(rules, reservationStatusRules()...)
	return append(rules, conditionRules(kind, false)...)
}

// limits is the rule of a number between two bounds.
func limits(text, field, edit string, low, high int) rule {
	number := func(n int) string { return fmt.Sprint(n) }
	return rule{kind: "EC2NodeClass", text: text, ok: with(edit, number(low), number(high)),
		no: append(each(edit, field, fmt.Sprintf("greater than or equal to %d", low), number(low-1), "-1"), each(edit, field, fmt.Sprintf("less than or equal to %d", high), number(high+1))...)}
}

func reservationStatusRules() []rule {
	fields := map[string]string{"availabilityZone": "a", "id": "cr-0abc", "instanceMatchCriteria": "open", "instanceType": "m5.large", "ownerID": `"123456789012"`}
	build := func(name, value string) string {
		var parts []string
		for field, fallback := range fields {
			switch {
			case field != name:
				parts = append(parts, field+": "+fallback)
			case value != "":
				parts = append(parts, field+": "+value)
			}
		}
		if _, ok := fields[name]; !ok && name != "" {
			parts = append(parts, name+": "+value)
		}
		slices.Sort(parts)
		return fmt.Sprintf("{status: {capacityReservations: [%s]}}", "{"+joined(parts)+"}")
	}
	at := func(field string) string { return "status.capacityReservations[0]." + field }
	var required []refusal
	for _, field := range []string{"availabilityZone", "id", "instanceMatchCriteria", "instanceType", "ownerID"} {
		required = append(required, no(build(field, ""), at(field), "Required value"))
	}
	r := func(text string, ok []string, no []refusal) rule {
		return rule{kind: "EC2NodeClass", text: text, ok: ok, no: no, on: statusUpdate}
	}
	return []rule{
		r("status.capacityReservations: five fields required", []string{build("", "")}, required),
		r("status.capacityReservations: id, owner, criteria, type, state and end",
			[]string{build("instanceMatchCriteria", "targeted"), build("reservationType", "capacity-block"), build("reservationType", "default"), build("state", "active"), build("state", "expiring"), build("interruptible", "true"), build("endTime", `"2025-01-02T03:04:05Z"`)},
			[]refusal{no(build("id", "cr_1"), at("id"), "should match"), no(build("ownerID", `"1"`), at("ownerID"), "should match"), no(build("instanceMatchCriteria", "none"), at("instanceMatchCriteria"), "Unsupported value"),
				no(build("reservationType", "x"), at("reservationType"), "Unsupported value"), no(build("state", "ended"), at("state"), "Unsupported value"), no(build("endTime", "soon"), at("endTime"), "date-time")}),
	}
}
