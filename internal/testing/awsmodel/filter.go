package awsmodel

import (
	"cmp"
	"encoding/base64"
	"reflect"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func compare(a, b string) int { return cmp.Compare(a, b) }

// filters are the names that a describe call can filter by, and the values that an item has under each.
type filters[T any] map[string]func(T) []string

// matches reports whether an item passes every filter. Every resource can also be filtered by its tags.
func matches[T any](want []ec2types.Filter, item T, known filters[T], tags []ec2types.Tag) (bool, error) {
	for _, f := range want {
		have, err := valuesOf(aws.ToString(f.Name), item, known, tags)
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(f.Values, func(pattern string) bool {
			return slices.ContainsFunc(have, func(v string) bool { return match(pattern, v) })
		}) {
			return false, nil
		}
	}
	return true, nil
}

// EC2's limits for the filters of a call, and for the values of all of them.
const (
	maxFilters   = 50
	filterValues = 200
)

// checkFilters refuses a call with too many filters or values of filters, and a filter without values.
func checkFilters(in any) error {
	f := reflect.ValueOf(in).Elem().FieldByName("Filters")
	if !f.IsValid() {
		return nil
	}
	list, _ := f.Interface().([]ec2types.Filter)
	n := 0
	for _, f := range list {
		if len(f.Values) == 0 {
			return refuse("InvalidParameterValue", "The filter '%s' has no values", aws.ToString(f.Name))
		}
		n += len(f.Values)
	}
	if len(list) > maxFilters {
		return refuse("FilterLimitExceeded", "The maximum number of filters specified on a single call is %d", maxFilters)
	}
	if n > filterValues {
		return refuse("FilterLimitExceeded", "The maximum number of filter values specified on a single call is %d", filterValues)
	}
	return nil
}

func valuesOf[T any](name string, item T, known filters[T], tags []ec2types.Tag) ([]string, error) {
	if key, ok := strings.CutPrefix(name, "tag:"); ok {
		if v, ok := tagValue(tags, key); ok {
			return []string{v}, nil
		}
		return nil, nil
	}
	if name == "tag-key" {
		var keys []string
		for _, t := range tags {
			keys = append(keys, aws.ToString(t.Key))
		}
		return keys, nil
	}
	get, ok := known[name]
	if !ok {
		return nil, refuse("InvalidParameterValue", "The filter '%s' is invalid", name)
	}
	return get(item), nil
}

// match reports whether text has the form of pattern, in which * stands for any characters and ? for one; a backslash takes
// their meaning away.
func match(pattern, text string) bool {
	star, mark := -1, 0 // where the last star is, and how much of text it has eaten
	p, t := 0, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && pattern[p] == '\\' && p+1 < len(pattern) && pattern[p+1] == text[t]:
			p += 2
			t++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '\\':
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// page cuts one page out of a list. Items come sorted by their key, and a token names the last key of the page before, so
// that paging goes on where it stopped while items come and go.
func page[T any](items []T, size *int32, token *string, least, most int, key func(T) string) ([]T, *string, error) {
	slices.SortFunc(items, func(a, b T) int { return compare(key(a), key(b)) })
	if token != nil && *token != "" {
		raw, err := base64.RawURLEncoding.DecodeString(*token)
		if err != nil || !strings.HasPrefix(string(raw), "after ") {
			return nil, nil, refuse("InvalidNextToken", "The token '%s' is invalid", *token)
		}
		last := strings.TrimPrefix(string(raw), "after ")
		items = slices.DeleteFunc(items, func(i T) bool { return key(i) <= last })
	}
	n := most
	if size != nil {
		n = int(*size)
		if n < least {
			return nil, nil, refuse("InvalidParameterValue",
				"Value ( %d ) for parameter maxResults is invalid. Expecting a value greater than %d.", n, least)
		}
		n = min(n, most)
	}
	if items == nil {
		items = []T{}
	}
	if len(items) <= n {
		return items, nil, nil
	}
	next := base64.RawURLEncoding.EncodeToString([]byte("after " + key(items[n-1])))
	return items[:n], &next, nil
}

func known(ids []string, id *string) bool {
	return len(ids) == 0 || slices.Contains(ids, aws.ToString(id))
}
