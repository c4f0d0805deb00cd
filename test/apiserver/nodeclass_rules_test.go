//go:build apiserver

package apiserver

import (
	"fmt"
	"slices"
	"strings"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

func joined(parts []string) string { return strings.Join(parts, ", ") }

func classRule(text string, ok []string, no ...[]refusal) rule {
	return rule{kind: "EC2NodeClass", text: text, ok: ok, no: slices.Concat(no...)}
}

// terms describes one list of selector terms.
type terms struct {
	field     string
	edit      string // sets the list at %s
	valid     string // a term that is accepted
	optional  bool
	nothing   string // what the server says about a term that names nothing
	combining []string
}

func (s terms) list(items ...string) string { return fmt.Sprintf(s.edit, "["+joined(items)+"]") }

// rules are what all selector lists have in common: their length and their tags.
func (s terms) rules() []rule {
	name := lastPart(s.field)
	many := func(n int) string { return fmt.Sprintf(s.edit, list(n, func(int) string { return s.valid })) }
	tags := func(n int) string {
		return s.list("{tags: " + mapping(n, func(i int) string { return fmt.Sprintf("k%d: v", i) }) + "}")
	}
	length := classRule(name+": 1 to 30 terms", []string{many(1), many(30)}, []refusal{
		no(many(31), s.field, "must have at most 30 items"),
		no(many(0), s.field, "should have at least 1 items"),
		no(fmt.Sprintf(s.edit, "null"), s.field, "Required value"),
	})
	if s.optional {
		length = classRule(name+": at most 30 terms, may be missing or empty", []string{many(1), many(30), many(0), fmt.Sprintf(s.edit, "null")},
			[]refusal{no(many(31), s.field, "must have at most 30 items")})
	}
	return []rule{
		length,
		classRule(name+": a term must name something", []string{s.valid0()}, []refusal{
			no(s.list("{}"), s.field+"[0]", s.nothing),
			no(s.list(s.valid, "{}"), s.field+"[1]", s.nothing),
		}),
		classRule(name+".tags: not an empty map", nil, []refusal{
			no(s.list("{tags: {}}"), s.field+"[0].tags", "tags may not be an empty map"),
			no(s.list(s.valid, "{tags: {}}"), s.field+"[1].tags", "tags may not be an empty map"),
		}),
		classRule(name+".tags: keys and values not empty", []string{s.list(`{tags: {k: v}}`), s.list(`{tags: {k: "*", "karpenter.sh/discovery": c}}`)}, []refusal{
			no(s.list(`{tags: {"": v}}`), s.field+"[0].tags", "tag keys and values may not be empty"),
			no(s.list(`{tags: {k: ""}}`), s.field+"[0].tags", "tag keys and values may not be empty"),
			no(s.list(s.valid, `{tags: {a: b, k: ""}}`), s.field+"[1].tags", "tag keys and values may not be empty"),
		}),
		classRule(name+".tags: at most 20", []string{tags(20)}, []refusal{no(tags(21), s.field+"[0].tags", "at most 20")}),
	}
}

func (s terms) valid0() string { return s.list(s.valid) }

func selectorRules() []rule {
	subnets := terms{field: "spec.subnetSelectorTerms", edit: "{spec: {subnetSelectorTerms: %s}}", valid: "{id: subnet-0abc}", nothing: "one of tags and id must be set"}
	groups := terms{field: "spec.securityGroupSelectorTerms", edit: "{spec: {securityGroupSelectorTerms: %s}}", valid: "{id: sg-0abc}", nothing: "one of tags, id and name must be set"}
	reservations := terms{field: "spec.capacityReservationSelectorTerms", edit: "{spec: {capacityReservationSelectorTerms: %s}}", valid: "{id: cr-0abc}", optional: true, nothing: "one of tags, id and instanceMatchCriteria must be set"}
	rules := slices.Concat(subnets.rules(), groups.rules(), reservations.rules())

	rules = append(rules,
		classRule("subnetSelectorTerms.id: contains subnet-…", []string{subnets.list("{id: subnet-0a1b}"), subnets.list("{id: x-subnet-1-y}")},
			[]refusal{no(subnets.list("{id: vpc-1}"), subnets.field+"[0].id", "should match"), no(subnets.list("{id: subnet-}"), subnets.field+"[0].id", "should match"), no(subnets.list(`{id: ""}`), subnets.field+"[0].id", "should match")}),
		classRule("subnetSelectorTerms: id excludes tags, unless another term keeps to it",
			[]string{subnets.list("{id: subnet-1, tags: {a: b}}", "{id: subnet-2}")},
			[]refusal{no(subnets.list("{id: subnet-1, tags: {a: b}}"), subnets.field, "id may not be combined with tags"),
				no(subnets.list("{id: subnet-1, tags: {a: b}}", "{id: subnet-2, tags: {a: b}}"), subnets.field, "id may not be combined with tags")}),
		classRule("securityGroupSelectorTerms.id: contains sg-…", []string{groups.list("{id: sg-0a1b}"), groups.list("{id: x-sg-1-y}")},
			[]refusal{no(groups.list("{id: group-1}"), groups.field+"[0].id", "should match"), no(groups.list("{id: sg-}"), groups.field+"[0].id", "should match")}),
		classRule("securityGroupSelectorTerms.name: any", []string{groups.list("{name: a b}")}),
		classRule("securityGroupSelectorTerms: id excludes tags and name, unless another term keeps to it",
			[]string{groups.list("{id: sg-1, name: a}", "{id: sg-2}")},
			[]refusal{no(groups.list("{id: sg-1, tags: {a: b}}"), groups.field, "id may not be combined with tags or name"), no(groups.list("{id: sg-1, name: a}"), groups.field, "id may not be combined with tags or name")}),
		classRule("securityGroupSelectorTerms: name excludes tags and id, unless another term keeps to it",
			[]string{groups.list("{name: a, tags: {a: b}}", "{id: sg-2}")},
			[]refusal{no(groups.list("{name: a, tags: {a: b}}"), groups.field, "name may not be combined with tags or id"), no(groups.list("{id: sg-1, name: a}"), groups.field, "name may not be combined with tags or id")}),
		classRule("capacityReservationSelectorTerms.id: cr-…", []string{reservations.list("{id: cr-0a1b}")},
			[]refusal{no(reservations.list("{id: cr-}"), reservations.field+"[0].id", "should match"), no(reservations.list("{id: x-cr-1}"), reservations.field+"[0].id", "should match"), no(reservations.list("{id: cr-A}"), reservations.field+"[0].id", "should match"), no(reservations.list(`{id: ""}`), reservations.field+"[0].id", "should match")}),
		classRule("capacityReservationSelectorTerms.ownerID: twelve digits, not alone",
			[]string{reservations.list(`{ownerID: "123456789012", tags: {a: b}}`), reservations.list(`{ownerID: "123456789012", instanceMatchCriteria: open}`), reservations.list(`{ownerID: "123456789012", instanceMatchCriteria: open, tags: {a: b}}`)},
			[]refusal{no(reservations.list(`{ownerID: "12345678901", tags: {a: b}}`), reservations.field+"[0].ownerID", "should match"), no(reservations.list(`{ownerID: "1234567890123", tags: {a: b}}`), reservations.field+"[0].ownerID", "should match"),
				no(reservations.list(`{ownerID: self, tags: {a: b}}`), reservations.field+"[0].ownerID", "should match"), no(reservations.list(`{ownerID: "123456789012"}`), reservations.field+"[0]", "one of tags, id and instanceMatchCriteria must be set")}),
		classRule("capacityReservationSelectorTerms.instanceMatchCriteria: open or targeted",
			[]string{reservations.list("{instanceMatchCriteria: open}"), reservations.list("{instanceMatchCriteria: targeted}"), reservations.list("{instanceMatchCriteria: open, tags: {a: b}}")},
			[]refusal{no(reservations.list("{instanceMatchCriteria: closed}"), reservations.field+"[0].instanceMatchCriteria", "Unsupported value")}),
		classRule("capacityReservationSelectorTerms: id excludes all else, unless another term keeps to it",
			[]string{reservations.list("{id: cr-1, tags: {a: b}}", "{id: cr-2}")},
			[]refusal{no(reservations.list("{id: cr-1, tags: {a: b}}"), reservations.field, "id may not be combined"), no(reservations.list(`{id: cr-1, ownerID: "123456789012"}`), reservations.field, "id may not be combined"), no(reservations.list("{id: cr-1, instanceMatchCriteria: open}"), reservations.field, "id may not be combined")}),
		classRule("placementGroupSelector: exactly one of name and id", with("{spec: {placementGroupSelector: %s}}", "{name: a}", "{id: pg-0abc}", "{name: pg-looks-like-an-id}"),
			each("{spec: {placementGroupSelector: %s}}", "spec.placementGroupSelector", "exactly one of name and id must be set", "{}", "{name: a, id: pg-1}")),
		classRule("placementGroupSelector.name: not empty", nil, each("{spec: {placementGroupSelector: {name: %s}}}", "spec.placementGroupSelector.name", "at least 1 chars long", `""`)),
		classRule("placementGroupSelector.id: pg-…", nil, each("{spec: {placementGroupSelector: {id: %s}}}", "spec.placementGroupSelector.id", "should match", `""`, "pg-", "x-pg-1", "pg-A", "group")),
	)
	return rules
}

func amiRules() []rule {
	amis := terms{field: "spec.amiSelectorTerms", edit: "{spec: {amiSelectorTerms: %s}}", valid: "{id: ami-0abc}", nothing: "one of tags, id, name, alias and ssmParameter must be set"}
	item := amis.field + "[0]"
	alias := func(alias string) string {
		return fmt.Sprintf("{spec: {amiFamily: null, amiSelectorTerms: [{alias: %s}]}}", quote(alias))
	}
	aliases := func(words ...string) []string {
		var out []string
		for _, word := range words {
			out = append(out, alias(word))
		}
		return out
	}
	refuseAliases := func(says string, words ...string) []refusal {
		var out []refusal
		for _, word := range words {
			out = append(out, no(alias(word), item+".alias", says))
		}
		return out
	}
	refuseTerms := func(says string, items ...string) []refusal {
		var out []refusal
		for _, term := range items {
			out = append(out, no(fmt.Sprintf("{spec: {amiFamily: Custom, amiSelectorTerms: [%s]}}", term), item, says))
		}
		return out
	}
	families := []string{"AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025"}
	rules := append(amis.rules(),
		classRule("amiSelectorTerms: what a term may name",
			[]string{amis.list("{name: my-image}"), amis.list("{name: my-image, owner: self}"), amis.list(`{tags: {a: b}, owner: "123456789012"}`), amis.list("{name: a*, tags: {a: b}, owner: amazon}"),
				amis.list("{ssmParameter: /my/parameter}"), amis.list("{id: ami-1, ssmParameter: /p}"), amis.list("{id: ami-1}", "{name: a}", "{tags: {a: b}}")},
			refuseTerms(amis.nothing, "{owner: self}")),
		classRule("amiSelectorTerms.id: contains ami-…", []string{amis.list("{id: ami-0a1b}"), amis.list("{id: x-ami-1-y}")},
			[]refusal{no(amis.list("{id: image-1}"), item+".id", "should match"), no(amis.list("{id: ami-}"), item+".id", "should match")}),
		classRule("amiSelectorTerms: id excludes alias, tags, name and owner in each term", nil,
			refuseTerms("id may not be combined with alias, tags, name or owner", "{id: ami-1, alias: al2023@latest}", "{id: ami-1, tags: {a: b}}", "{id: ami-1, name: a}", "{id: ami-1, owner: self}", "{id: ami-1, name: a}, {id: ami-2}")),
		classRule("amiSelectorTerms: alias excludes id, tags, name and owner in each term", nil,
			refuseTerms("alias may not be combined with id, tags, name or owner", "{alias: al2023@latest, id: ami-1}", "{alias: al2023@latest, tags: {a: b}}", "{alias: al2023@latest, name: a}", "{alias: al2023@latest, owner: self}")),
		classRule("amiSelectorTerms: a term with alias must be the only one", nil,
			[]refusal{no("{spec: {amiSelectorTerms: [{alias: al2023@latest}, {id: ami-1}]}}", amis.field, "a term with alias must be the only term"), no("{spec: {amiSelectorTerms: [{alias: al2023@latest}, {alias: al2023@v1}]}}", amis.field, "a term with alias must be the only term")}),
		classRule("amiSelectorTerms.alias: family@version of a family that is known, exactly so",
			aliases("al2@latest", "al2@v20240807", "al2023@latest", "al2023@v20240807", "bottlerocket@latest", "bottlerocket@v1.10.0", "windows2019@latest", "windows2022@latest", "windows2025@latest"),
			refuseAliases("should match", "al2023", "al2023@", "@latest", "al2023-latest", "al 2023@latest", "al2023@v1@v2", ""),
			refuseAliases("the family of an alias must be", "AL2@latest", "ubuntu@latest", "al@latest", "windows@latest", "Bottlerocket@latest")),
		classRule("amiSelectorTerms.alias: at most 30 characters", aliases("al2023@"+strings.Repeat("v", 23)), refuseAliases("may not be more than 30", "al2023@"+strings.Repeat("v", 24))),
		classRule("amiSelectorTerms.alias: Windows knows latest only", nil, refuseAliases("the version of a Windows alias must be latest", "windows2019@v1", "windows2022@1.0.0", "windows2025@Latest", "windows2022@xlatest")),
		classRule("amiFamily: one of seven", with("{spec: {amiFamily: %s}}", families...), each("{spec: {amiFamily: %s}}", "spec.amiFamily", "Unsupported value", "Ubuntu", "al2023", `""`)),
		classRule("amiFamily: required without alias", aliases("al2023@latest"),
			[]refusal{no("{spec: {amiFamily: null}}", "spec", "amiFamily must be set if amiSelectorTerms has no alias"), no("{spec: {amiFamily: null, amiSelectorTerms: [{tags: {a: b}}]}}", "spec", "amiFamily must be set if amiSelectorTerms has no alias")}),
	)
	for word, family := range awsv1.AliasFamilies() {
		var ok []string
		var refused []refusal
		for _, other := range families {
			edit := fmt.Sprintf("{spec: {amiFamily: %s, amiSelectorTerms: [{alias: %s@latest}]}}", other, word)
			if other == family || other == "Custom" {
				ok = append(ok, edit)
			} else {
				refused = append(refused, no(edit, "spec", fmt.Sprintf("amiFamily must be %s or Custom with an alias of family %s", family, word)))
			}
		}
		rules = append(rules, classRule("amiFamily: with an alias of "+word+" only "+family+" or Custom", ok, refused))
	}
	slices.SortStableFunc(rules, func(a, b rule) int { return strings.Compare(a.text, b.text) })
	return rules
}

func kubeletRules() []rule {
	return []rule{classRule("kubelet: any object, also what the kubelet would refuse", with("{spec: {kubelet: %s}}",
		"{}", "{maxPods: 110, evictionHard: {memory.available: 5%}}", `{maxPods: "vcpus * 10"}`, "{unknown: {deeply: [nested, {a: null}]}}", "{imageGCHighThresholdPercent: 5, imageGCLowThresholdPercent: 90}", `{clusterDNS: "not-a-list"}`),
		each("{spec: {kubelet: %s}}", "spec.kubelet", "must be of type object", "5", "[]", "text"))}
}

func deviceRules() []rule {
	const mappings = "spec.blockDeviceMappings"
	devices := func(items ...string) string {
		return "{spec: {blockDeviceMappings: [" + joined(items) + "]}}"
	}
	ebs := func(fields string) string { return devices("{deviceName: /dev/xvda, ebs: {" + fields + "}}") }
	ebsAt := func(field string) string { return mappings + "[0].ebs" + field }
	sizes := func(values ...string) []string {
		var out []string
		for _, value := range values {
			out = append(out, ebs("volumeSize: "+value))
		}
		return out
	}
	refuseSizes := func(values ...string) []refusal {
		var out []refusal
		for _, value := range values {
			out = append(out, no(ebs("volumeSize: "+value), ebsAt(".volumeSize"), "should match"))
		}
		return out
	}
	manyDevices := func(n int) string {
		return fmt.Sprintf("{spec: {blockDeviceMappings: %s}}", list(n, func(i int) string { return fmt.Sprintf("{deviceName: /dev/sd%d}", i) }))
	}
	const nics = "spec.networkInterfaces"
	interfaces := func(items ...string) string { return "{spec: {networkInterfaces: [" + joined(items) + "]}}" }
	nic := func(card, device int, kind string) string {
		return fmt.Sprintf("{networkCardIndex: %d, deviceIndex: %d, interfaceType: %s}", card, device, kind)
	}
	manyNICs := func(n int) string {
		return fmt.Sprintf("{spec: {networkInterfaces: %s}}", list(n, func(i int) string { return nic(i, i%2, "interface") }))
	}
	primary := nic(0, 0, "interface")
	return []rule{
		classRule("blockDeviceMappings: at most 50", []string{manyDevices(50), devices()}, []refusal{no(manyDevices(51), mappings, "must have at most 50 items")}),
		classRule("blockDeviceMappings: deviceName and ebs may be missing", []string{devices("{}"), devices("{deviceName: /dev/xvda}"), devices("{ebs: {volumeSize: 1Gi}}")}),
		classRule("blockDeviceMappings.rootVolume: at most one", []string{devices("{rootVolume: true}", "{rootVolume: false}", "{}"), devices("{rootVolume: false}", "{rootVolume: false}")},
			[]refusal{no(devices("{rootVolume: true}", "{rootVolume: true}"), mappings, "at most one mapping may have rootVolume")}),
		classRule("blockDeviceMappings.ebs: snapshotID or volumeSize", []string{ebs("snapshotID: snap-1"), ebs("volumeSize: 1Gi"), ebs("snapshotID: snap-1, volumeSize: 1Gi")},
			[]refusal{no(ebs(""), ebsAt(""), "one of snapshotID and volumeSize must be set"), no(ebs("encrypted: true"), ebsAt(""), "one of snapshotID and volumeSize must be set")}),
		classRule("blockDeviceMappings.ebs: iops, throughput, encryption, key, deletion", []string{ebs("volumeSize: 1Gi, iops: 3000, throughput: 125, encrypted: true, kmsKeyID: k, deleteOnTermination: false")}),
		classRule("blockDeviceMappings.ebs.volumeSize: 1 to 59000 Gi", sizes("1Gi", "9Gi", "100Gi", "9999Gi", "10000Gi", "49999Gi", "50000Gi", "58999Gi", "59000Gi"), refuseSizes("0Gi", "59001Gi", "59999Gi", "60000Gi", "100000Gi", "01Gi", "1.5Gi", "-1Gi")),
		classRule("blockDeviceMappings.ebs.volumeSize: 1 to 64000 G", sizes("1G", "9999G", "10000G", "59999G", "60000G", "63999G", "64000G"), refuseSizes("0G", "64001G", "65000G", "70000G", "100000G", "01G")),
		classRule("blockDeviceMappings.ebs.volumeSize: 1 to 58 Ti", sizes("1Ti", "9Ti", "10Ti", "18Ti", "19Ti", "28Ti", "49Ti", "50Ti", "58Ti"), refuseSizes("0Ti", "59Ti", "60Ti", "100Ti", "Ti", "01Ti")),
		classRule("blockDeviceMappings.ebs.volumeSize: 1 to 64 T", sizes("1T", "9T", "10T", "59T", "60T", "64T"), refuseSizes("0T", "65T", "70T", "100T", "T", "01T")),
		classRule("blockDeviceMappings.ebs.volumeSize: text in those units only", nil, refuseSizes(`""`, `"100"`, "100M", "100Mi", "1Pi", "1P", "1k", `"1 Gi"`, "Gi", "G", "alatheia", "1Gib"),
			[]refusal{no(ebs("volumeSize: 100"), ebsAt(".volumeSize"), "must be of type string")}),
		classRule("blockDeviceMappings.ebs.volumeType: one of seven", func() []string {
			var out []string
			for _, kind := range []string{"standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"} {
				out = append(out, ebs("volumeSize: 1Gi, volumeType: "+kind))
			}
			return out
		}(), []refusal{no(ebs("volumeSize: 1Gi, volumeType: gp4"), ebsAt(".volumeType"), "Unsupported value"), no(ebs(`volumeSize: 1Gi, volumeType: ""`), ebsAt(".volumeType"), "Unsupported value")}),
		classRule("blockDeviceMappings.ebs.volumeInitializationRate: 100 to 300", []string{ebs("snapshotID: snap-1, volumeInitializationRate: 100"), ebs("snapshotID: snap-1, volumeInitializationRate: 300")},
			[]refusal{no(ebs("snapshotID: snap-1, volumeInitializationRate: 99"), ebsAt(".volumeInitializationRate"), "greater than or equal to 100"), no(ebs("snapshotID: snap-1, volumeInitializationRate: 301"), ebsAt(".volumeInitializationRate"), "less than or equal to 300")}),
		classRule("blockDeviceMappings.ebs.volumeInitializationRate: needs snapshotID", nil,
			[]refusal{no(ebs("volumeSize: 1Gi, volumeInitializationRate: 100"), ebsAt(""), "volumeInitializationRate needs snapshotID"), no(ebs(`snapshotID: "", volumeInitializationRate: 100`), ebsAt(""), "volumeInitializationRate needs snapshotID")}),

		classRule("enclaveOptions.enabled: required, true or false",
			[]string{"{spec: {enclaveOptions: {enabled: true}}}", "{spec: {enclaveOptions: {enabled: false}}}"},
			[]refusal{no("{spec: {enclaveOptions: {}}}", "spec.enclaveOptions.enabled", "Required value")}),

		classRule("networkInterfaces: at most 150, may be empty", []string{manyNICs(150), interfaces()}, []refusal{no(manyNICs(151), nics, "must have at most 150 items")}),
		classRule("networkInterfaces: three fields required", nil, []refusal{
			no(interfaces("{deviceIndex: 0, interfaceType: interface}"), nics+"[0].networkCardIndex", "Required value"),
			no(interfaces("{networkCardIndex: 0, interfaceType: interface}"), nics+"[0].deviceIndex", "Required value"),
			no(interfaces("{networkCardIndex: 0, deviceIndex: 0}"), nics+"[0].interfaceType", "Required value")}),
		classRule("networkInterfaces: indices zero or more", nil, []refusal{
			no(interfaces(primary, nic(-1, 0, "interface")), nics+"[1].networkCardIndex", "greater than or equal to 0"),
			no(interfaces(primary, nic(0, -1, "interface")), nics+"[1].deviceIndex", "greater than or equal to 0")}),
		classRule("networkInterfaces.interfaceType: interface or efa-only", []string{interfaces(primary, nic(0, 1, "efa-only")), interfaces(primary, nic(0, 1, "interface"))},
			[]refusal{no(interfaces(primary, nic(0, 1, "efa")), nics+"[1].interfaceType", "Unsupported value")}),
		classRule("networkInterfaces: card 0, device 0 is an interface", []string{interfaces(nic(1, 0, "interface"), primary)}, []refusal{
			no(interfaces(nic(1, 0, "interface")), nics, "at networkCardIndex 0, deviceIndex 0"),
			no(interfaces(nic(0, 0, "efa-only")), nics, "at networkCardIndex 0, deviceIndex 0"),
			no(interfaces(nic(0, 1, "interface")), nics, "at networkCardIndex 0, deviceIndex 0")}),
		classRule("networkInterfaces: each card and device once", []string{interfaces(primary, nic(0, 1, "interface"), nic(1, 0, "interface"), nic(1, 1, "interface"))},
			[]refusal{no(interfaces(primary, primary), nics, "each pair of networkCardIndex and deviceIndex may be used once"), no(interfaces(primary, nic(1, 1, "interface"), nic(1, 1, "efa-only")), nics, "each pair of networkCardIndex and deviceIndex may be used once")}),
		classRule("networkInterfaces: one efa-only per card", []string{interfaces(primary, nic(0, 1, "efa-only"), nic(1, 1, "efa-only"))},
			[]refusal{no(interfaces(primary, nic(1, 1, "efa-only"), nic(1, 2, "efa-only")), nics, "at most one efa-only interface")}),
	}
}
