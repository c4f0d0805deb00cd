package ami

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

func TestParameters(t *testing.T) {
	for name, tc := range map[string]struct {
		alias awsv1.Alias
		k8s   string
		want  []string
	}{
		"AL2023, latest": {awsv1.Alias{Family: awsv1.AMIFamilyAL2023, Version: "latest"}, "1.36", []string{
			"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id",
			"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/recommended/image_id",
			"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/recommended/image_id",
			"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/nvidia/recommended/image_id",
			"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/neuron/recommended/image_id",
		}},
		"AL2, pinned": {awsv1.Alias{Family: awsv1.AMIFamilyAL2, Version: "v20250101"}, "1.32", []string{
			"/aws/service/eks/optimized-ami/1.32/amazon-linux-2/amazon-eks-node-1.32-v20250101/image_id",
			"/aws/service/eks/optimized-ami/1.32/amazon-linux-2-arm64/amazon-eks-arm64-node-1.32-v20250101/image_id",
			"/aws/service/eks/optimized-ami/1.32/amazon-linux-2-gpu/amazon-eks-gpu-node-1.32-v20250101/image_id",
		}},
		"Bottlerocket, pinned": {awsv1.Alias{Family: awsv1.AMIFamilyBottlerocket, Version: "v1.46.0"}, "1.36", []string{
			"/aws/service/bottlerocket/aws-k8s-1.36/x86_64/1.46.0/image_id",
			"/aws/service/bottlerocket/aws-k8s-1.36/arm64/1.46.0/image_id",
			"/aws/service/bottlerocket/aws-k8s-1.36-nvidia/x86_64/1.46.0/image_id",
			"/aws/service/bottlerocket/aws-k8s-1.36-nvidia/arm64/1.46.0/image_id",
		}},
		"Windows 2022": {awsv1.Alias{Family: awsv1.AMIFamilyWindows2022, Version: "latest"}, "1.34", []string{
			"/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.34/image_id",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parametersOf(tc.alias, tc.k8s)
			if err != nil {
				t.Fatal(err)
			}
			var paths []string
			for _, p := range got {
				paths = append(paths, p.Path)
				if p.Mutable != (tc.alias.Version == "latest") {
					t.Errorf("%s is mutable: %v", p.Path, p.Mutable)
				}
			}
			if d := cmp.Diff(tc.want, paths); d != "" {
				t.Errorf("parameters differ (-want +got):\n%s", d)
			}
		})
	}
}

func TestAliasesEndAndBegin(t *testing.T) {
	for name, tc := range map[string]struct {
		family, k8s string
		ok          bool
	}{
		"AL2 on 1.32":          {awsv1.AMIFamilyAL2, "1.32", true},
		"AL2 on 1.33":          {awsv1.AMIFamilyAL2, "1.33", false},
		"AL2023 on 1.33":       {awsv1.AMIFamilyAL2023, "1.33", true},
		"Windows 2025 on 1.34": {awsv1.AMIFamilyWindows2025, "1.34", false},
		"Windows 2025 on 1.35": {awsv1.AMIFamilyWindows2025, "1.35", true},
		"an unknown family":    {"", "1.36", false},
	} {
		_, err := parametersOf(awsv1.Alias{Family: tc.family, Version: "latest"}, tc.k8s)
		var unsupported *UnsupportedAliasError
		if errors.As(err, &unsupported) == tc.ok {
			t.Errorf("%s: error = %v, want supported %v", name, err, tc.ok)
		}
	}
}

func TestSelect(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	amd := []Variant{{arch("amd64")}}
	img := func(id string, created time.Time, deprecated bool) Image {
		return Image{ID: id, Name: "name-" + id, Arch: "amd64", Created: created, Deprecated: deprecated, Variants: amd}
	}
	for name, tc := range map[string]struct {
		images []Image
		want   []string
	}{
		"the youngest wins":                      {[]Image{img("a", day(1), false), img("b", day(2), false)}, []string{"b"}},
		"a current image beats a deprecated one": {[]Image{img("a", day(1), false), img("b", day(2), true)}, []string{"a"}},
		"of deprecated ones the youngest":        {[]Image{img("a", day(1), true), img("b", day(2), true)}, []string{"b"}},
		"of equal age the last by name":          {[]Image{img("b", day(1), false), img("a", day(1), false)}, []string{"b"}},
		"one image for each kind of machine, youngest first": {[]Image{
			img("a", day(1), false), {ID: "c", Created: day(3), Variants: []Variant{{arch("arm64")}}},
		}, []string{"c", "a"}},
		"an image for two kinds is there twice": {[]Image{{ID: "a", Created: day(1), Variants: []Variant{standard("amd64"), neuron("amd64")}}}, []string{"a", "a"}},
		"nothing":                               {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, a := range bestOf(tc.images) {
				got = append(got, a.ID)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("bestOf = %v, want %v", got, tc.want)
			}
		})
	}
}

// spelled returns a query as a reader would write it.
func spelled(q *ec2.DescribeImagesInput) string {
	var b strings.Builder
	for _, f := range q.Filters {
		fmt.Fprintf(&b, "%s=%s;", aws.ToString(f.Name), strings.Join(f.Values, ","))
	}
	return b.String() + strings.Join(q.Owners, ",")
}

func TestQueriesHaveKeysOfTheirOwn(t *testing.T) {
	two := termQuery(awsv1.AMISelectorTerm{Tags: map[string]string{"a": "1", "b": "2"}, Owner: "self"})
	one := termQuery(awsv1.AMISelectorTerm{Tags: map[string]string{"a": "1;tag:b=2"}, Owner: "self"})
	if queryKey(one) == queryKey(two) {
		t.Error("a tag whose value looks like another tag has the key of two tags")
	}
}

func TestQueries(t *testing.T) {
	terms := []awsv1.AMISelectorTerm{
		{ID: "ami-2"}, {Name: "my-*"}, {Name: "their-*", Owner: "123456789012"}, {Tags: map[string]string{"b": "*", "a": "1"}},
		{Tags: map[string]string{"a": "1"}, Owner: "self"}, {Name: "x", Tags: map[string]string{"a": "1"}}, {SSMParameter: "/p"},
	}
	var got []string
	for _, q := range queriesOf(terms, []string{"ami-1"}) {
		got = append(got, spelled(q))
		if !aws.ToBool(q.IncludeDeprecated) {
			t.Error("deprecated images are left out")
		}
	}
	want := []string{
		"image-id=ami-1,ami-2;state=available;",
		"name=my-*;state=available;self,amazon",
		"name=their-*;state=available;123456789012",
		"tag:a=1;tag-key=b;state=available;",
		"tag:a=1;state=available;self",
		"name=x;tag:a=1;state=available;self,amazon",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("queries differ (-want +got):\n%s", d)
	}
}

func TestFor(t *testing.T) {
	images := []awsv1.AMI{
		{ID: "gpu", Requirements: gpu("amd64")}, {ID: "neuron", Requirements: neuron("amd64")},
		{ID: "plain", Requirements: standard("amd64")}, {ID: "arm", Requirements: standard("arm64")},
	}
	machine := func(arch, gpus, accelerators string) map[string][]string {
		l := map[string][]string{corev1.LabelArchStable: {arch}, awsv1.LabelInstanceGPUCount: nil, awsv1.LabelInstanceAcceleratorCount: nil}
		if gpus != "" {
			l[awsv1.LabelInstanceGPUCount] = []string{gpus}
		}
		if accelerators != "" {
			l[awsv1.LabelInstanceAcceleratorCount] = []string{accelerators}
		}
		return l
	}
	for name, tc := range map[string]struct {
		machine map[string][]string
		want    string
	}{
		"a plain machine":           {machine("amd64", "", ""), "plain"},
		"an arm64 machine":          {machine("arm64", "", ""), "arm"},
		"a machine with GPUs":       {machine("amd64", "4", ""), "gpu"},
		"a machine with Inferentia": {machine("amd64", "", "2"), "neuron"},
		"arm64 with GPUs":           {machine("arm64", "1", ""), ""},
	} {
		got, ok := For(images, tc.machine)
		if got.ID != tc.want || ok != (tc.want != "") {
			t.Errorf("%s boots %q, want %q", name, got.ID, tc.want)
		}
	}
}

func TestBottlerocketVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		terms []awsv1.AMISelectorTerm
		amis  []awsv1.AMI
		want  string
	}{
		"the alias":                  {[]awsv1.AMISelectorTerm{{Alias: "bottlerocket@v1.45.0"}}, nil, "1.45.0"},
		"the latest":                 {[]awsv1.AMISelectorTerm{{Alias: "bottlerocket@latest"}}, nil, "latest"},
		"the name that is selected":  {[]awsv1.AMISelectorTerm{{Name: "bottlerocket-aws-k8s-1.36-x86_64-v1.46.1-abc"}}, nil, "1.46.1"},
		"the image of an id":         {[]awsv1.AMISelectorTerm{{ID: "ami-1"}}, []awsv1.AMI{{ID: "ami-1", Name: "bottlerocket-aws-k8s-1.36-x86_64-v1.44.0-abc"}}, "1.44.0"},
		"any image":                  {[]awsv1.AMISelectorTerm{{Tags: map[string]string{"a": "b"}}}, []awsv1.AMI{{ID: "ami-1", Name: "bottlerocket-x-v1.44.0"}}, "1.44.0"},
		"a name that tells nothing":  {[]awsv1.AMISelectorTerm{{Name: "bottlerocket-*"}}, nil, ""},
		"the image of another maker": {[]awsv1.AMISelectorTerm{{ID: "ami-1"}}, []awsv1.AMI{{ID: "ami-1", Name: "mine-v2.0.0"}}, ""},
	} {
		nc := &awsv1.EC2NodeClass{}
		nc.Spec.AMISelectorTerms, nc.Status.AMIs = tc.terms, tc.amis
		if got := BottlerocketVersion(nc); got != tc.want {
			t.Errorf("%s: version = %q, want %q", name, got, tc.want)
		}
	}
}

// parameters is an SSM with parameters by path; paths with an error fail.
type parameters struct {
	values map[string]string
	errs   map[string]error
	calls  int
}

func (p *parameters) GetParameter(_ context.Context, in *ssm.GetParameterInput, _ ...func(*ssm.Options)) (*ssm.GetParameterOutput, error) {
	p.calls++
	name := aws.ToString(in.Name)
	if err := p.errs[name]; err != nil {
		return nil, err
	}
	value, ok := p.values[name]
	if !ok {
		return nil, &ssmtypes.ParameterNotFound{}
	}
	return &ssm.GetParameterOutput{Parameter: &ssmtypes.Parameter{Value: &value}}, nil
}

// images is an EC2 with images.
type imageStore []ec2types.Image

func (s imageStore) DescribeImages(_ context.Context, in *ec2.DescribeImagesInput, _ ...func(*ec2.Options)) (*ec2.DescribeImagesOutput, error) {
	out := &ec2.DescribeImagesOutput{}
	for _, i := range s {
		for _, f := range in.Filters {
			if aws.ToString(f.Name) == "image-id" && slices.Contains(f.Values, aws.ToString(i.ImageId)) {
				out.Images = append(out.Images, i)
			}
		}
	}
	return out, nil
}

func TestFinder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc := &awsv1.EC2NodeClass{}
		nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}}
		list, err := parametersOf(*nc.Alias(), "1.36")
		if err != nil {
			t.Fatal(err)
		}
		store := imageStore{
			{ImageId: aws.String("ami-1"), Architecture: "x86_64", CreationDate: aws.String("2026-01-01T00:00:00Z")},
			{ImageId: aws.String("ami-2"), Architecture: "x86_64", CreationDate: aws.String("2026-02-01T00:00:00Z")},
		}
		p := &parameters{values: map[string]string{list[0].Path: "ami-1"}, errs: map[string]error{}}
		f := NewFinder(store, p, time.Minute)
		find := func() string {
			t.Helper()
			amis, err := f.Find(t.Context(), nc, "1.36")
			if err != nil || len(amis) != 1 {
				t.Fatalf("found %v, %v; want one image although four parameters are missing", amis, err)
			}
			return amis[0].ID
		}
		if got := find(); got != "ami-1" {
			t.Errorf("found %s", got)
		}
		p.values[list[0].Path] = "ami-2"
		time.Sleep(time.Hour)
		if got := find(); got != "ami-1" {
			t.Errorf("an alias is asked for again after an hour: %s", got)
		}
		store[0].DeprecationTime = aws.String("2000-01-01T00:00:00Z")
		if err := f.Forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := find(); got != "ami-2" {
			t.Errorf("a deprecated image is not replaced: %s", got)
		}
		p.values[list[0].Path] = "ami-3"
		store[1].ImageId = aws.String("ami-3") // the second image was withdrawn, a third published
		time.Sleep(2 * time.Minute)
		if amis, err := f.Find(t.Context(), nc, "1.36"); err != nil || len(amis) > 0 {
			t.Errorf("found %v, %v, want nothing while the parameter is remembered", amis, err)
		}
		if got := find(); got != "ami-3" {
			t.Errorf("a withdrawn image is not replaced: %s", got)
		}
		time.Sleep(25 * time.Hour)
		p.errs[list[1].Path] = &smithy.GenericAPIError{Code: "ThrottlingException"}
		if amis, err := f.Find(t.Context(), nc, "1.36"); err == nil || !strings.Contains(err.Error(), list[1].Path) {
			t.Errorf("a throttled parameter gives a partial list %v, %v", amis, err)
		}
	})
}

// Parameters of the user: what is no image, or is missing, contributes nothing; other trouble is no partial answer.
func TestFinderReadsTheUsersParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := imageStore{
			{ImageId: aws.String("ami-1"), Architecture: "x86_64"}, {ImageId: aws.String("ami-2"), Architecture: "arm64"},
			{ImageId: aws.String("ami-3"), Architecture: "x86_64_mac"},
		}
		p := &parameters{values: map[string]string{"/mine/one": "ami-1", "/mine/text": "hello", "/mine/mac": "ami-3"}, errs: map[string]error{}}
		f := NewFinder(store, p, time.Minute)
		nc := &awsv1.EC2NodeClass{}
		nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{
			{SSMParameter: "/mine/one"}, {SSMParameter: "/mine/text"}, {SSMParameter: "/mine/missing"}, {SSMParameter: "/mine/mac"},
			{ID: "ami-2", SSMParameter: "/mine/ignored"},
		}
		find := func(want ...string) {
			t.Helper()
			amis, err := f.Find(t.Context(), nc, "1.36")
			var ids []string
			for _, a := range amis {
				ids = append(ids, a.ID)
			}
			if err != nil || !slices.Equal(ids, want) {
				t.Errorf("found %v, %v; want %v", ids, err, want)
			}
		}
		find("ami-1", "ami-2")
		p.values["/mine/one"] = "ami-2"
		find("ami-1", "ami-2")
		time.Sleep(customLife)
		find("ami-2")
		time.Sleep(customLife)
		p.errs["/mine/one"] = &smithy.GenericAPIError{Code: "AccessDeniedException"}
		if amis, err := f.Find(t.Context(), nc, "1.36"); err == nil {
			t.Errorf("a parameter that may not be read gives the partial list %v", amis)
		}
	})
}

func TestFinderWithoutAnyParameterFails(t *testing.T) {
	nc := &awsv1.EC2NodeClass{}
	nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@v1"}}
	if _, err := NewFinder(imageStore{}, &parameters{}, time.Minute).Find(t.Context(), nc, "1.36"); err == nil {
		t.Error("an alias without any image is no error")
	}
}
