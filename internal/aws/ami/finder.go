package ami

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/ttl"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// imagesAPI is the part of EC2 that finding images needs.
type imagesAPI interface {
	DescribeImages(context.Context, *ec2.DescribeImagesInput, ...func(*ec2.Options)) (*ec2.DescribeImagesOutput, error)
}

// parametersAPI is the part of SSM that finding images needs.
type parametersAPI interface {
	GetParameter(context.Context, *ssm.GetParameterInput, ...func(*ssm.Options)) (*ssm.GetParameterOutput, error)
}

// Lives of remembered SSM parameters.
const (
	aliasLife  = 24 * time.Hour
	customLife = 5 * time.Minute
)

// A Finder finds images. It may be used concurrently.
type Finder struct {
	ec2     imagesAPI
	ssm     parametersAPI
	aliases *ttl.Map[string, parameterValue]
	customs *ttl.Map[string, parameterValue]
	answers *ttl.Map[answerKey, []ec2types.Image]
}

type parameterValue struct {
	image   string
	mutable bool
}

// NewFinder returns a Finder that asks EC2 for images again after refresh.
func NewFinder(ec2 imagesAPI, ssm parametersAPI, refresh time.Duration) *Finder {
	return &Finder{
		ec2: ec2, ssm: ssm,
		aliases: ttl.New[string, parameterValue](aliasLife),
		customs: ttl.New[string, parameterValue](customLife),
		answers: ttl.New[answerKey, []ec2types.Image](refresh),
	}
}

// Find returns the images that a class selects, as its status shows them. An UnsupportedAliasError means that waiting
// does not help.
func (f *Finder) Find(ctx context.Context, nc *awsv1.EC2NodeClass, version string) ([]awsv1.AMI, error) {
	variants, err := f.known(ctx, nc, version)
	if err != nil {
		return nil, err
	}
	var images []Image
	missing := maps.Clone(variants)
	now := time.Now()
	for i, query := range queriesOf(nc.Spec.AMISelectorTerms, slices.Sorted(maps.Keys(variants))) {
		answer, err := f.describe(ctx, answerKey{nc.UID, nc.Generation, i, queryKey(query)}, query)
		if err != nil {
			return nil, fmt.Errorf("describe images: %w", err)
		}
		for _, image := range answer {
			delete(missing, aws.ToString(image.ImageId))
			if found, ok := imageOf(image, variants, now); ok {
				images = append(images, found)
			}
		}
	}
	f.forgetWithdrawn(missing)
	return bestOf(images), nil
}

// forgetWithdrawn drops the remembered parameters that hold images which EC2 no longer has, so that they are read
// again next time.
func (f *Finder) forgetWithdrawn(missing map[string][]Variant) {
	for _, cache := range []*ttl.Map[string, parameterValue]{f.aliases, f.customs} {
		for path, v := range cache.All() {
			if _, ok := missing[v.image]; ok {
				cache.Delete(path)
			}
		}
	}
}

// known reads the SSM parameters that a class names. It returns the image ids in them, with the variants of each; no
// variants means that an image is for all machines of its architecture.
func (f *Finder) known(ctx context.Context, nc *awsv1.EC2NodeClass, version string) (map[string][]Variant, error) {
	out := map[string][]Variant{}
	if alias := nc.Alias(); alias != nil {
		parameters, err := parametersOf(*alias, version)
		if err != nil {
			return nil, err
		}
		for _, p := range parameters {
			id, err := f.parameter(ctx, f.aliases, p.Path, p.Mutable)
			if ec2api.IsNotFound(err) {
				continue // no image of this kind for this version
			}
			if err != nil {
				return nil, fmt.Errorf("read SSM parameter %s: %w", p.Path, err)
			}
			out[id] = append(out[id], p.Variants...)
		}
		if len(out) == 0 {
			return nil, &NoAliasImagesError{*alias, version}
		}
		return out, nil
	}
	for _, term := range nc.Spec.AMISelectorTerms {
		if term.SSMParameter == "" || term.ID != "" {
			continue
		}
		id, err := f.parameter(ctx, f.customs, term.SSMParameter, true)
		if err != nil && !ec2api.IsNotFound(err) {
			return nil, fmt.Errorf("read SSM parameter %s: %w", term.SSMParameter, err)
		}
		if strings.HasPrefix(id, "ami-") {
			out[id] = nil
		}
	}
	return out, nil
}

// parameter returns the value of an SSM parameter, from the cache if it is there.
func (f *Finder) parameter(ctx context.Context, cache *ttl.Map[string, parameterValue], path string, mutable bool) (string, error) {
	if v, ok := cache.Get(path); ok {
		return v.image, nil
	}
	out, err := f.ssm.GetParameter(ctx, &ssm.GetParameterInput{Name: &path})
	if err != nil {
		return "", err
	}
	id := aws.ToString(out.Parameter.Value)
	cache.Put(path, parameterValue{id, mutable})
	return id, nil
}

// Forget drops remembered parameters of "latest" aliases whose image has been deprecated since, so that a withdrawn
// image is replaced before the cache runs out.
func (f *Finder) Forget(ctx context.Context) error {
	ids := map[string][]string{}
	for path, v := range f.aliases.All() {
		if v.mutable {
			ids[v.image] = append(ids[v.image], path)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	images, err := f.ask(ctx, queriesOf(nil, slices.Sorted(maps.Keys(ids)))[0])
	if err != nil {
		return err
	}
	now := time.Now()
	for _, image := range images {
		if deprecated(image, now) {
			for _, path := range ids[aws.ToString(image.ImageId)] {
				f.aliases.Delete(path)
			}
		}
	}
	return nil
}

// describe returns the images of a query, from the cache if they are there.
func (f *Finder) describe(ctx context.Context, key answerKey, query *ec2.DescribeImagesInput) ([]ec2types.Image, error) {
	if images, ok := f.answers.Get(key); ok {
		return images, nil
	}
	images, err := f.ask(ctx, query)
	if err != nil {
		return nil, err
	}
	f.answers.Sweep()
	f.answers.Put(key, images)
	return images, nil
}

// ask returns the images of a query from EC2.
func (f *Finder) ask(ctx context.Context, query *ec2.DescribeImagesInput) ([]ec2types.Image, error) {
	var images []ec2types.Image
	pages := ec2.NewDescribeImagesPaginator(f.ec2, query)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		images = append(images, page.Images...)
	}
	return images, nil
}

// queriesOf returns the calls for selector terms and ids that are known already: one call for all ids, one for each
// other term.
func queriesOf(terms []awsv1.AMISelectorTerm, known []string) []*ec2.DescribeImagesInput {
	ids := slices.Clone(known)
	var out []*ec2.DescribeImagesInput
	for _, term := range terms {
		switch {
		case term.Alias != "":
		case term.ID != "":
			ids = append(ids, term.ID)
		case term.SSMParameter != "":
		default:
			out = append(out, termQuery(term))
		}
	}
	if len(ids) > 0 {
		slices.Sort(ids)
		q := newQuery(ec2api.Filter("image-id", slices.Compact(ids)...))
		out = append([]*ec2.DescribeImagesInput{q}, out...)
	}
	return out
}

// termQuery returns the call for a term by name, owner or tags.
func termQuery(term awsv1.AMISelectorTerm) *ec2.DescribeImagesInput {
	var filters []ec2types.Filter
	if term.Name != "" {
		filters = append(filters, ec2api.Filter("name", term.Name))
	}
	q := newQuery(append(filters, ec2api.TagFilters(term.Tags)...)...)
	switch {
	case term.Owner != "":
		q.Owners = []string{term.Owner}
	case term.Name != "":
		// Anybody may publish an image under any name.
		q.Owners = []string{"self", "amazon"}
	}
	return q
}

// newQuery returns a call for available images, deprecated ones too.
func newQuery(filters ...ec2types.Filter) *ec2.DescribeImagesInput {
	return &ec2.DescribeImagesInput{
		Filters:           append(filters, ec2api.Filter("state", "available")),
		IncludeDeprecated: aws.Bool(true),
		MaxResults:        aws.Int32(1000),
	}
}

// An answerKey identifies one query of one generation of a node class.
type answerKey struct {
	class      types.UID
	generation int64
	at         int
	query      string
}

func queryKey(q *ec2.DescribeImagesInput) string {
	return string(identity.Texts(ec2api.FilterIdentity(nil, q.Filters), q.Owners))
}

// imageOf reads an image of EC2; false if Kubernetes does not run on its architecture. variants says which machines
// images of an alias are for.
func imageOf(image ec2types.Image, variants map[string][]Variant, now time.Time) (Image, bool) {
	out := Image{ID: aws.ToString(image.ImageId), Name: aws.ToString(image.Name), Deprecated: deprecated(image, now)}
	switch image.Architecture {
	case ec2types.ArchitectureValuesX8664:
		out.Arch = "amd64"
	case ec2types.ArchitectureValuesArm64:
		out.Arch = "arm64"
	default:
		return out, false
	}
	// An image without a readable date counts as the oldest.
	out.Created, _ = time.Parse(time.RFC3339, aws.ToString(image.CreationDate))
	out.Variants = variants[out.ID]
	if len(out.Variants) == 0 {
		out.Variants = []Variant{{arch(out.Arch)}}
	}
	return out, true
}

// deprecated reports whether an image's deprecation time has passed.
func deprecated(image ec2types.Image, now time.Time) bool {
	at, err := time.Parse(time.RFC3339, aws.ToString(image.DeprecationTime))
	return err == nil && !at.After(now)
}
