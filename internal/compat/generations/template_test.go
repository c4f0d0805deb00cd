package generations

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// counted are n different words of a selector's list.
func counted(prefix string, n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return strings.Join(words, ",")
}

func TestTermsOfAnOlderSelector(t *testing.T) {
	huge := tree{}
	for i := range 20 {
		huge[fmt.Sprintf("key%02d", i)] = counted("v", 10)
	}
	hugeAndID, hugeAndNothing := clone(huge).(tree), clone(huge).(tree)
	hugeAndID["aws-ids"] = "subnet-1"
	hugeAndNothing["last"] = ","
	for name, tc := range map[string]struct {
		selector tree
		terms    int
		refused  bool
	}{
		"as many ids as there may be":         {tree{"aws-ids": counted("subnet-", 30)}, 30, false},
		"one id more":                         {tree{"aws-ids": counted("subnet-", 31)}, 0, true},
		"ids by both names, together":         {tree{"aws-ids": counted("subnet-", 15), "aws::ids": counted("subnet-", 15)}, 30, false},
		"ids by both names, one more":         {tree{"aws-ids": counted("subnet-", 15), "aws::ids": counted("subnet-", 16)}, 0, true},
		"as many values as there may be":      {tree{"a": counted("v", 30)}, 30, false},
		"one value more":                      {tree{"a": counted("v", 31)}, 0, true},
		"lists that make as many terms":       {tree{"a": counted("v", 5), "b": counted("v", 6)}, 30, false},
		"lists that make more":                {tree{"a": counted("v", 4), "b": counted("v", 8)}, 0, true},
		"more terms than memory holds":        {huge, 0, true},
		"the same, beside an id":              {hugeAndID, 1, false},
		"the same, beside a list of nothing":  {hugeAndNothing, 0, true},
		"blanks and empty words do not count": {tree{"a": " , x ,, "}, 1, false},
	} {
		for _, field := range []string{"subnetSelector", "securityGroupSelector", "amiSelector"} {
			t.Run(name+": "+field, func(t *testing.T) {
				spec := tree{"subnetSelector": tree{"a": "b"}, "securityGroupSelector": tree{"a": "b"}, "instanceProfile": "p"}
				spec[field] = tc.selector
				made, err := Offline([]map[string]any{{"apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "metadata": tree{"name": "t"}, "spec": spec}}, Options{})
				if tc.refused {
					if wrong, ok := errors.AsType[*OfflineError](err); !ok || !strings.HasPrefix(wrong.Text, field+": ") || !strings.Contains(wrong.Text, "30 terms") || strings.Join(wrong.At, ".") != "spec."+field {
						t.Errorf("error = %v, want one about 30 terms of %s", err, field)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := len(listAt(made[0].Object, "spec", field+"Terms")); got != tc.terms {
					t.Errorf("%d terms, want %d", got, tc.terms)
				}
			})
		}
	}
}
