// Package ami finds the machine images that a node class selects, and chooses the image that a type of machine boots.
//
// Pure functions say which images an alias names and which image is the best (ami.go). Finder (finder.go) turns selector
// terms into calls to AWS, and remembers the answers for a while.
package ami

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/core/need"
)

// A Variant is a set of requirements on machines that an image is for.
type Variant []corev1.NodeSelectorRequirement

// An Image is one image that was found.
type Image struct {
	ID, Name   string
	Arch       string // amd64 or arm64
	Created    time.Time
	Deprecated bool
	// Variants are the machines it is for; an image that was not found by alias is for all of its architecture.
	Variants []Variant
}

// A parameter is an SSM parameter that holds the id of an image.
type parameter struct {
	Path     string
	Mutable  bool // its value changes over time
	Variants []Variant
}

// An UnsupportedAliasError says that no image of this family exists for the cluster's version.
type UnsupportedAliasError struct{ Message string }

func (e *UnsupportedAliasError) Error() string { return e.Message }

// A NoAliasImagesError says that AWS has no image for an alias.
type NoAliasImagesError struct {
	Alias      awsv1.Alias
	Kubernetes string
}

func (e *NoAliasImagesError) Error() string {
	return fmt.Sprintf("there are no %s images of version %s for Kubernetes %s; choose another version, or latest",
		e.Alias.Family, e.Alias.Version, e.Kubernetes)
}

// parametersOf returns the SSM parameters that hold the images of an alias for a Kubernetes version such as "1.36".
func parametersOf(alias awsv1.Alias, version string) ([]parameter, error) {
	if err := supported(alias.Family, version); err != nil {
		return nil, err
	}
	var out []parameter
	switch alias.Family {
	case awsv1.AMIFamilyAL2:
		out = al2(alias.Version, version)
	case awsv1.AMIFamilyAL2023:
		out = al2023(alias.Version, version)
	case awsv1.AMIFamilyBottlerocket:
		out = bottlerocket(alias.Version, version)
	case awsv1.AMIFamilyWindows2019, awsv1.AMIFamilyWindows2022, awsv1.AMIFamilyWindows2025:
		out = windows(alias.Family, version)
	default:
		return nil, &UnsupportedAliasError{fmt.Sprintf("alias family %q is not known", alias.Family)}
	}
	for i := range out {
		out[i].Path = "/aws/service/" + out[i].Path + "/image_id"
		out[i].Mutable = alias.Version == awsv1.AliasVersionLatest
	}
	return out, nil
}

// supported returns an error if AWS publishes no images of a family for a Kubernetes version.
func supported(family, version string) error {
	minor := 0
	if _, err := fmt.Sscanf(version, "1.%d", &minor); err != nil {
		return fmt.Errorf("cluster version %q is not understood", version)
	}
	switch {
	case family == awsv1.AMIFamilyAL2 && minor >= 33:
		return &UnsupportedAliasError{fmt.Sprintf("there are no AL2 images for Kubernetes %s; they ended with 1.32. Use al2023", version)}
	case family == awsv1.AMIFamilyWindows2025 && minor < 35:
		return &UnsupportedAliasError{fmt.Sprintf("there are no Windows 2025 images for Kubernetes %s; they begin with 1.35", version)}
	}
	return nil
}

// arch requires an architecture. It and the functions below return the requirements that images of an alias put on
// machines.
func arch(name string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}
}

func with(key string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists}
}

func without(key string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist}
}

// standard returns the variant of machines without GPUs and accelerators.
func standard(archName string) Variant {
	return Variant{arch(archName), without(awsv1.LabelInstanceGPUCount), without(awsv1.LabelInstanceAcceleratorCount)}
}

func gpu(archName string) Variant { return Variant{arch(archName), with(awsv1.LabelInstanceGPUCount)} }

func neuron(archName string) Variant {
	return Variant{arch(archName), with(awsv1.LabelInstanceAcceleratorCount)}
}

// al2 returns the parameters of Amazon Linux 2 images. v is the version of the alias, k8s that of Kubernetes.
func al2(v, k8s string) []parameter {
	path := func(folder, image string) string {
		leaf := "recommended"
		if v != awsv1.AliasVersionLatest {
			leaf = fmt.Sprintf("%s-%s-%s", image, k8s, v)
		}
		return fmt.Sprintf("eks/optimized-ami/%s/%s/%s", k8s, folder, leaf)
	}
	return []parameter{
		{Path: path("amazon-linux-2", "amazon-eks-node"), Variants: []Variant{standard("amd64")}},
		{Path: path("amazon-linux-2-arm64", "amazon-eks-arm64-node"), Variants: []Variant{standard("arm64")}},
		{Path: path("amazon-linux-2-gpu", "amazon-eks-gpu-node"), Variants: []Variant{neuron("amd64"), gpu("amd64")}},
	}
}

// al2023 returns the parameters of Amazon Linux 2023 images.
func al2023(v, k8s string) []parameter {
	path := func(arch, kind string) string {
		leaf := "recommended"
		if v != awsv1.AliasVersionLatest {
			leaf = fmt.Sprintf("amazon-eks-node-al2023-%s-%s-%s-%s", arch, kind, k8s, v)
		}
		return fmt.Sprintf("eks/optimized-ami/%s/amazon-linux-2023/%s/%s/%s", k8s, arch, kind, leaf)
	}
	return []parameter{
		{Path: path("x86_64", "standard"), Variants: []Variant{standard("amd64")}},
		{Path: path("arm64", "standard"), Variants: []Variant{standard("arm64")}},
		{Path: path("x86_64", "nvidia"), Variants: []Variant{gpu("amd64")}},
		{Path: path("arm64", "nvidia"), Variants: []Variant{gpu("arm64")}},
		{Path: path("x86_64", "neuron"), Variants: []Variant{neuron("amd64")}},
	}
}

// bottlerocket returns the parameters of Bottlerocket images.
func bottlerocket(v, k8s string) []parameter {
	path := func(flavour, arch string) string {
		return fmt.Sprintf("bottlerocket/aws-k8s-%s%s/%s/%s", k8s, flavour, arch, strings.TrimPrefix(v, "v"))
	}
	return []parameter{
		{Path: path("", "x86_64"), Variants: []Variant{standard("amd64"), neuron("amd64")}},
		{Path: path("", "arm64"), Variants: []Variant{standard("arm64")}},
		{Path: path("-nvidia", "x86_64"), Variants: []Variant{gpu("amd64")}},
		{Path: path("-nvidia", "arm64"), Variants: []Variant{gpu("arm64")}},
	}
}

// windows returns the parameter of the image of a Windows family. Windows images have no versions.
func windows(family, k8s string) []parameter {
	build := map[string]string{
		awsv1.AMIFamilyWindows2019: "10.0.17763", awsv1.AMIFamilyWindows2022: "10.0.20348", awsv1.AMIFamilyWindows2025: "10.0.26100",
	}[family]
	year := strings.TrimPrefix(family, "Windows")
	return []parameter{{
		Path: fmt.Sprintf("ami-windows-latest/Windows_Server-%s-English-Core-EKS_Optimized-%s", year, k8s),
		Variants: []Variant{{
			arch("amd64"),
			{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{string(corev1.Windows)}},
			{Key: corev1.LabelWindowsBuild, Operator: corev1.NodeSelectorOpIn, Values: []string{build}},
		}},
	}}
}

// bestOf picks the best image for each variant: an image that is not deprecated, then the youngest, then the last by
// name. The result is what the node class's status shows, youngest first.
func bestOf(images []Image) []awsv1.AMI {
	type candidate struct {
		image   Image
		variant Variant
	}
	best := map[string]candidate{}
	for _, image := range images {
		for _, variant := range image.Variants {
			key := variant.key()
			if old, ok := best[key]; !ok || better(image, old.image) {
				best[key] = candidate{image, variant}
			}
		}
	}
	chosen := make([]candidate, 0, len(best))
	for _, c := range best {
		chosen = append(chosen, c)
	}
	slices.SortFunc(chosen, func(a, b candidate) int {
		return cmp.Or(b.image.Created.Compare(a.image.Created), strings.Compare(a.image.ID, b.image.ID),
			strings.Compare(a.variant.key(), b.variant.key()))
	})
	out := make([]awsv1.AMI, len(chosen))
	for i, c := range chosen {
		out[i] = awsv1.AMI{ID: c.image.ID, Name: c.image.Name, Deprecated: c.image.Deprecated, Requirements: c.variant.sorted()}
	}
	return out
}

// better reports whether image a is preferred to b.
func better(a, b Image) bool {
	if a.Deprecated != b.Deprecated {
		return b.Deprecated
	}
	created := func(i Image) time.Time { return i.Created.Truncate(time.Second) }
	return cmp.Or(created(a).Compare(created(b)), strings.Compare(a.Name, b.Name)) > 0
}

// sorted returns the requirements in the order of the status: by length of key, then by key.
func (v Variant) sorted() []corev1.NodeSelectorRequirement {
	out := slices.Clone(v)
	slices.SortFunc(out, func(a, b corev1.NodeSelectorRequirement) int {
		return cmp.Or(cmp.Compare(len(a.Key), len(b.Key)), strings.Compare(a.Key, b.Key))
	})
	return out
}

// key returns a text that is equal for equal variants.
func (v Variant) key() string {
	var b strings.Builder
	for _, r := range v.sorted() {
		fmt.Fprintf(&b, "%s %s %s;", r.Key, r.Operator, strings.Join(r.Values, ","))
	}
	return b.String()
}

// For returns the image that machines with these labels boot: the first image of the status whose requirements allow
// them.
func For(images []awsv1.AMI, machine map[string][]string) (awsv1.AMI, bool) {
	return Chooser(images)(machine)
}

// Chooser returns For with the images prepared, for many machines.
func Chooser(images []awsv1.AMI) func(machine map[string][]string) (awsv1.AMI, bool) {
	needs := make([]need.Needs, len(images))
	for i, image := range images {
		needs[i] = need.OfSelector(image.Requirements)
	}
	return func(machine map[string][]string) (awsv1.AMI, bool) {
		for i := range needs {
			if needs[i].Allow(machine) {
				return images[i], true
			}
		}
		return awsv1.AMI{}, false
	}
}

// BottlerocketVersion returns the version of Bottlerocket that a class's machines run: from its alias, else from the
// names of images; "" if neither has one.
func BottlerocketVersion(nc *awsv1.EC2NodeClass) string {
	if alias := nc.Alias(); alias != nil {
		return strings.TrimPrefix(alias.Version, "v")
	}
	var names []string
	for _, term := range nc.Spec.AMISelectorTerms {
		names = append(names, term.Name)
		for _, image := range nc.Status.AMIs {
			if term.ID != "" && image.ID == term.ID {
				names = append(names, image.Name)
			}
		}
	}
	for _, image := range nc.Status.AMIs {
		names = append(names, image.Name)
	}
	for _, name := range names {
		if v := versionIn(name); v != "" {
			return v
		}
	}
	return ""
}

// versionIn finds a version in a name such as bottlerocket-aws-k8s-1.36-x86_64-v1.46.0-abcdef.
func versionIn(name string) string {
	if !strings.HasPrefix(name, "bottlerocket") {
		return ""
	}
	for _, field := range strings.Split(name, "-") {
		if rest, ok := strings.CutPrefix(field, "v"); ok && strings.Count(rest, ".") >= 1 && rest[0] >= '0' && rest[0] <= '9' {
			return rest
		}
	}
	return ""
}
