package awsmodel

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzMatch compares patterns with a twin that is a regular expression.
func FuzzMatch(f *testing.F) {
	for _, seed := range [][2]string{{"amazon-eks-*-1.36-v*", "amazon-eks-node-1.36-v2"}, {"*", ""}, {"a?c", "abc"}, {"*a*b*", "xxaxxb"}, {`a\*b`, "a*b"}, {"", "a"}, {"**", "a"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if strings.ContainsAny(pattern+text, "\n\r") || strings.HasSuffix(pattern, `\`) {
			return // the twin's dot stops at a line's end
		}
		for _, r := range pattern + text {
			if r > 127 {
				return // the twin counts letters, a filter counts bytes
			}
		}
		var twin strings.Builder
		for i := 0; i < len(pattern); i++ {
			switch c := pattern[i]; c {
			case '*':
				twin.WriteString(".*")
			case '?':
				twin.WriteString(".")
			case '\\':
				i++
				twin.WriteString(regexp.QuoteMeta(string(pattern[i])))
			default:
				twin.WriteString(regexp.QuoteMeta(string(c)))
			}
		}
		if got, want := match(pattern, text), regexp.MustCompile("^"+twin.String()+"$").MatchString(text); got != want {
			t.Errorf("match(%q, %q) = %v, the twin says %v", pattern, text, got, want)
		}
	})
}

func TestPagesGoOnWhileItemsComeAndGo(t *testing.T) {
	self := func(s string) string { return s }
	size := int32(2)
	first, token, err := page([]string{"d", "b", "a", "c", "e"}, &size, nil, 1, 10, self)
	if err != nil || !slices.Equal(first, []string{"a", "b"}) || token == nil {
		t.Fatalf("first page %v, token %v, error %v", first, token, err)
	}
	rest, token, err := page([]string{"a", "aa", "d", "e", "f"}, nil, token, 1, 10, self) // b and c went, aa and f came
	if err != nil || token != nil {
		t.Fatalf("second page: token %v, error %v", token, err)
	}
	if diff := cmp.Diff([]string{"d", "e", "f"}, rest); diff != "" {
		t.Errorf("second page (-want +got):\n%s", diff)
	}
	bad := "nonsense"
	if _, _, err := page([]string{"a"}, nil, &bad, 1, 10, self); code(asFault(err)) == "" {
		t.Error("a token of nobody is accepted")
	}
	zero := int32(0)
	if _, _, err := page([]string{"a"}, &zero, nil, 1, 10, self); err == nil {
		t.Error("a page of no items is accepted")
	}
}
