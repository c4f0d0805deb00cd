package ec2api

import (
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"karpenter.sh/karpenter/internal/kit/identity"
)

// AnyValue as the value of a tag selector means that the tag exists.
const AnyValue = "*"

// Filter makes one filter of a Describe call.
func Filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: aws.String(name), Values: values}
}

// TagFilters makes the filters of a tag selector, sorted by key: all must match.
func TagFilters(tags map[string]string) []ec2types.Filter {
	out := make([]ec2types.Filter, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if tags[key] == AnyValue {
			out = append(out, Filter("tag-key", key))
		} else {
			out = append(out, Filter("tag:"+key, tags[key]))
		}
	}
	return out
}

// FilterIdentity appends the identity of filters to b.
func FilterIdentity(b []byte, filters []ec2types.Filter) []byte {
	b = identity.Count(b, len(filters))
	for _, f := range filters {
		b = identity.Texts(identity.Text(b, aws.ToString(f.Name)), f.Values)
	}
	return b
}

// Tags makes the tags of a request, sorted by key.
func Tags(tags map[string]string) []ec2types.Tag {
	out := make([]ec2types.Tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, ec2types.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return out
}

// TagMap is the reverse of Tags.
func TagMap(tags []ec2types.Tag) map[string]string {
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		out[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return out
}
