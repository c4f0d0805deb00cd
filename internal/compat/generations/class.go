package generations

import (
	"slices"
	"strings"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

// ubuntu is a family that v1 does not have. Its machines boot like those of AL2.
const ubuntu = "Ubuntu"

// ubuntuDevices is the disk that Ubuntu had by default.
func ubuntuDevices() []any {
	return []any{tree{"deviceName": "/dev/sda1", "rootVolume": true, "ebs": tree{"encrypted": true,
		"volumeType": "gp3", "volumeSize": "20Gi"}}}
}

// v1OnlyClassFields are the fields of a class that v1beta1 does not have.
var v1OnlyClassFields = []string{
	"capacityReservationSelectorTerms", "connectionTracking", "cpuOptions", "enclaveOptions", "ipPrefixCount", "kubelet",
	"networkInterfaces", "placementGroupSelector",
}

// aliasWord is what an alias calls a family, "" if none does.
func aliasWord(family string) string {
	for word, f := range awsv1.AliasFamilies() {
		if f == family {
			return word
		}
	}
	return ""
}

func classUp(o tree) {
	version := takeAnnotation(o, awsv1.AnnotationAliasVersion)
	takeAnnotation(o, awsv1.AnnotationUbuntu)
	spec := treeAt(o, "spec")
	family, terms := textAt(spec, "amiFamily"), listAt(spec, "amiSelectorTerms")
	if family == ubuntu {
		ubuntuUp(o, spec)
		return
	}
	word := aliasWord(family)
	if len(terms) > 0 || word == "" {
		return
	}
	if version == "" {
		version = awsv1.AliasVersionLatest
	}
	delete(spec, "amiFamily")
	spec["amiSelectorTerms"] = []any{tree{"alias": word + "@" + version}}
}

// ubuntuUp writes Ubuntu as what its machines need, and down what was made up.
func ubuntuUp(o, spec tree) {
	changed := []string{awsv1.UbuntuFamily}
	spec["amiFamily"] = awsv1.AMIFamilyAL2
	if len(listAt(spec, "blockDeviceMappings")) == 0 {
		changed = append(changed, awsv1.UbuntuDevices)
		spec["blockDeviceMappings"] = ubuntuDevices()
	}
	if len(listAt(spec, "amiSelectorTerms")) == 0 {
		changed = append(changed, awsv1.UbuntuIncompatible)
		spec["amiSelectorTerms"] = []any{tree{"id": awsv1.PlaceholderAMI}}
	}
	put(o, strings.Join(changed, ","), annotations(awsv1.AnnotationUbuntu)...)
}

func classDown(o tree) {
	spec := treeAt(o, "spec")
	for _, field := range v1OnlyClassFields {
		delete(spec, field)
	}
	for _, device := range listAt(spec, "blockDeviceMappings") {
		if device, ok := device.(tree); ok {
			delete(treeAt(device, "ebs"), "volumeInitializationRate")
		}
	}
	changed := takeAnnotation(o, awsv1.AnnotationUbuntu)
	if textAt(spec, "amiFamily") == awsv1.AMIFamilyAL2 && slices.Contains(strings.Split(changed, ","), awsv1.UbuntuFamily) {
		ubuntuDown(spec, strings.Split(changed, ","))
	}
	aliasDown(o, spec)
}

// ubuntuDown takes away what was made up, unless the user has changed it.
func ubuntuDown(spec tree, changed []string) {
	spec["amiFamily"] = ubuntu
	if slices.Contains(changed, awsv1.UbuntuDevices) && same(spec["blockDeviceMappings"], ubuntuDevices()) {
		delete(spec, "blockDeviceMappings")
	}
	if slices.Contains(changed, awsv1.UbuntuIncompatible) && same(spec["amiSelectorTerms"], []any{tree{"id": awsv1.PlaceholderAMI}}) {
		delete(spec, "amiSelectorTerms")
	}
}

// aliasDown writes an alias as the family that it names. v1beta1 knows neither aliases nor parameters: a term of nothing else goes.
func aliasDown(o, spec tree) {
	takeAnnotation(o, awsv1.AnnotationAliasVersion)
	var kept []any
	for _, t := range listAt(spec, "amiSelectorTerms") {
		term, ok := t.(tree)
		if !ok {
			kept = append(kept, t)
			continue
		}
		if word, version, isAlias := strings.Cut(textAt(term, "alias"), "@"); isAlias {
			if _, set := at(spec, "amiFamily"); !set && awsv1.AliasFamilies()[word] != "" {
				spec["amiFamily"] = awsv1.AliasFamilies()[word]
			}
			if version != awsv1.AliasVersionLatest {
				put(o, version, annotations(awsv1.AnnotationAliasVersion)...)
			}
		}
		delete(term, "alias")
		delete(term, "ssmParameter")
		if len(term) > 0 {
			kept = append(kept, term)
		}
	}
	switch {
	case len(kept) > 0:
		spec["amiSelectorTerms"] = kept
	case len(listAt(spec, "amiSelectorTerms")) > 0:
		delete(spec, "amiSelectorTerms")
	}
}
