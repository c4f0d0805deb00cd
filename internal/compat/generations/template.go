package generations

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

// placeholderRole is written where no field says which role nodes have.
const placeholderRole = "REPLACE-WITH-THE-ROLE-OF-YOUR-NODES"

// mostTerms is how many terms a selector may have.
const mostTerms = 30

// template makes an EC2NodeClass of the spec of an AWSNodeTemplate, which stands at a path of the old object.
func (o Options) template(c *Converted, spec tree, from []string) *OfflineError {
	old := func(field string) []string { return append(slices.Clone(from), field) }
	if _, ok := at(spec, "launchTemplate"); ok {
		return &OfflineError{At: old("launchTemplate"),
			Text: "launchTemplate has no counterpart: write what the template does as userData, blockDeviceMappings, " +
				"metadataOptions, securityGroupSelectorTerms and role"}
	}
	if err := wrongSelector(spec, old); err != nil {
		return err
	}
	out := tree{}
	put(c.Object, out, "spec")
	for _, field := range []string{"userData", "tags", "blockDeviceMappings", "detailedMonitoring", "context", "instanceProfile"} {
		if value, ok := at(spec, field); ok {
			out[field] = value
			c.move(old(field), []string{"spec", field})
		}
	}
	for _, selector := range []string{"subnetSelector", "securityGroupSelector"} {
		out[selector+"Terms"] = c.terms(treeAt(spec, selector), old(selector), selector+"Terms")
	}
	c.images(spec, out, old)
	c.tags(out, old("tags"))
	c.volumes(out, old("blockDeviceMappings"))
	out["metadataOptions"] = metadataOptions(treeAt(spec, "metadataOptions"))
	c.move(old("metadataOptions"), path("spec.metadataOptions"))
	o.identity(c, out, from)
	return nil
}

// wrongSelector says which selector is missing or selects by something that is no text.
func wrongSelector(spec tree, old func(string) []string) *OfflineError {
	for _, selector := range []string{"subnetSelector", "securityGroupSelector", "amiSelector"} {
		keys := treeAt(spec, selector)
		if len(keys) == 0 && selector != "amiSelector" {
			return &OfflineError{At: old(selector), Text: selector + " is missing: without it a template finds nothing"}
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if textAt(keys, key) == "" {
				return &OfflineError{At: append(old(selector), key),
					Text: fmt.Sprintf("%s %q: %v is no text; put it into quotes", selector, key, keys[key])}
			}
		}
		if tooMany(keys) {
			return &OfflineError{At: old(selector),
				Text: fmt.Sprintf("%s: spelled out, its lists are more than the %d terms that a selector may have: "+
					"select by a common tag instead", selector, mostTerms)}
		}
	}
	return nil
}

// tooMany reports whether a selector is more terms than there may be. It counts without making them: ten lists of ten are ten billion.
func tooMany(selector tree) bool {
	if ids := idsOf(selector); len(ids) > 0 {
		return len(ids) > mostTerms
	}
	n := 1
	for key := range selector {
		n = min(n*max(len(words(textAt(selector, key))), 1), mostTerms+1)
	}
	return n > mostTerms
}

// idsOf are what a selector names by their ids; nothing else counts beside them.
func idsOf(selector tree) []string {
	return slices.Concat(words(textAt(selector, "aws-ids")), words(textAt(selector, "aws::ids")))
}

// images takes over family and selector.
func (c *Converted) images(spec, out tree, old func(string) []string) {
	family := textAt(spec, "amiFamily")
	if family == "" {
		family = awsv1.AMIFamilyAL2
		c.note(false, nil, path("spec.amiSelectorTerms"), "a template without amiFamily was of AL2")
	}
	out["amiFamily"] = family
	c.move(old("amiFamily"), path("spec.amiFamily"))
	if selector := treeAt(spec, "amiSelector"); len(selector) > 0 {
		out["amiSelectorTerms"] = c.terms(selector, old("amiSelector"), "amiSelectorTerms")
	} else {
		c.move(old("amiFamily"), path("spec.amiSelectorTerms"))
	}
	classUp(c.Object)
	c.aboutUbuntu(takeAnnotation(c.Object, awsv1.AnnotationUbuntu))
}

// terms spells a selector out: every combination of what lists of it name.
func (c *Converted) terms(selector tree, from []string, field string) []any {
	to := []string{"spec", field}
	c.move(from, to)
	if ids := idsOf(selector); len(ids) > 0 {
		out := make([]any, len(ids))
		for i, id := range ids {
			out[i] = tree{"id": id}
		}
		if slices.ContainsFunc(slices.Collect(maps.Keys(selector)), func(key string) bool {
			return key != "aws-ids" &&
				key != "aws::ids"
		}) {
			c.note(true, from, to, "ids may not be combined with anything else: the other keys of the selector are left out")
		}
		return out
	}
	combinations := []tree{{}}
	multiply := func(values []string, set func(term tree, value string)) {
		var next []tree
		for _, term := range combinations {
			for _, value := range values {
				term := clone(term).(tree)
				set(term, value)
				next = append(next, term)
			}
		}
		combinations = next
	}
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		values := words(textAt(selector, key))
		switch key {
		case "aws::name":
			multiply(values, func(term tree, value string) { term["name"] = value })
		case "aws::owners":
			multiply(values, func(term tree, value string) { term["owner"] = value })
		default:
			multiply(values, func(term tree, value string) { put(term, value, "tags", key) })
		}
	}
	out := make([]any, len(combinations))
	for i, term := range combinations {
		out[i] = term
	}
	return out
}

// tags leaves out those that Karpenter sets itself.
func (c *Converted) tags(out tree, from []string) {
	tags := treeAt(out, "tags")
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if awsv1.RestrictedTag(key) {
			c.note(true, from, path("spec.tags"), "the tag %s is left out: Karpenter sets it", key)
			delete(tags, key)
		}
	}
	if tags != nil && len(tags) == 0 {
		delete(out, "tags")
	}
}

// volumes writes sizes in the units that v1 takes.
func (c *Converted) volumes(out tree, from []string) {
	for _, device := range listAt(out, "blockDeviceMappings") {
		device, _ := device.(tree)
		ebs := treeAt(device, "ebs")
		size, ok := at(ebs, "volumeSize")
		if !ok {
			continue
		}
		written, exact := volumeSize(fmt.Sprint(size))
		if !exact {
			c.note(true, from, path("spec.blockDeviceMappings"), "volumeSize %v is written as %s, the next whole Gi", size, written)
		}
		ebs["volumeSize"] = written
	}
}

// volumeSize writes a quantity in whole Gi, G, Ti or T, rounded up, and reports whether it is the same amount. What is no quantity stays.
func volumeSize(text string) (written string, exact bool) {
	for _, unit := range []string{"Gi", "G", "Ti", "T"} {
		number, ok := strings.CutSuffix(text, unit)
		if _, err := strconv.ParseUint(number, 10, 64); ok && err == nil {
			return text, true
		}
	}
	q, err := bounded.ParseQuantity(text)
	if err != nil {
		return text, true
	}
	const gi, g = int64(1) << 30, int64(1e9)
	bytes := q.Value()
	if bytes%gi != 0 && bytes%g == 0 {
		return fmt.Sprintf("%dG", bytes/g), true
	}
	return fmt.Sprintf("%dGi", (bytes+gi-1)/gi), bytes%gi == 0
}

// metadataOptions writes down what a template meant: without the block Karpenter's defaults of its days, with part of it those of EC2.
func metadataOptions(given tree) tree {
	out := tree{"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": int64(2), "httpTokens": "required"}
	if given == nil {
		return out
	}
	out["httpPutResponseHopLimit"], out["httpTokens"] = int64(1), "optional"
	maps.Copy(out, given)
	return out
}

// identity says who the nodes are.
func (o Options) identity(c *Converted, out tree, from []string) {
	switch {
	case textAt(out, "instanceProfile") != "":
	case o.InstanceProfile != "":
		out["instanceProfile"] = o.InstanceProfile
	case o.Role != "":
		out["role"] = o.Role
	default:
		out["role"] = placeholderRole
		c.note(true, from, path("spec.role"), "the old installation's default instance profile is gone: write the role "+
			"of the nodes, or say --instance-profile or --role")
	}
}
