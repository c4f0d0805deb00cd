package need

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

func req(op corev1.NodeSelectorOperator, values ...string) v1.NodeSelectorRequirementWithMinValues {
	return v1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: op, Values: values}
}

func TestAllow(t *testing.T) {
	type reqs = []v1.NodeSelectorRequirementWithMinValues
	has := func(values ...string) map[string][]string { return map[string][]string{"k": values} }
	for name, tc := range map[string]struct {
		needs   reqs
		machine map[string][]string
		want    bool
	}{
		"nothing is asked":                         {nil, has("a"), true},
		"In with a common value":                   {reqs{req("In", "a", "b")}, has("b", "c"), true},
		"In without a common value":                {reqs{req("In", "a")}, has("b"), false},
		"In where the label never is":              {reqs{req("In", "a")}, has(), false},
		"In where nothing is said":                 {reqs{req("In", "a")}, nil, true},
		"NotIn with another value":                 {reqs{req("NotIn", "a")}, has("a", "b"), true},
		"NotIn with only the excluded value":       {reqs{req("NotIn", "a")}, has("a"), false},
		"NotIn where the label never is":           {reqs{req("NotIn", "a")}, has(), true},
		"NotIn without values asks for the label":  {reqs{req("NotIn")}, has(), false},
		"Exists where it is":                       {reqs{req("Exists")}, has("x"), true},
		"Exists where it never is":                 {reqs{req("Exists")}, has(), false},
		"DoesNotExist where it is":                 {reqs{req("DoesNotExist")}, has("x"), false},
		"DoesNotExist where it never is":           {reqs{req("DoesNotExist")}, has(), true},
		"Gt above":                                 {reqs{req("Gt", "4")}, has("5"), true},
		"Gt equal":                                 {reqs{req("Gt", "4")}, has("4"), false},
		"Gte equal":                                {reqs{req("Gte", "4")}, has("4"), true},
		"Lt below":                                 {reqs{req("Lt", "4")}, has("3"), true},
		"Lt equal":                                 {reqs{req("Lt", "4")}, has("4"), false},
		"Lte equal":                                {reqs{req("Lte", "4")}, has("4"), true},
		"Gt with text":                             {reqs{req("Gt", "4")}, has("x"), false},
		"all requirements of a key must hold once": {reqs{req("Gt", "2"), req("Lt", "8"), req("NotIn", "4")}, has("1", "4", "9"), false},
		"one value satisfies all":                  {reqs{req("Gt", "2"), req("Lt", "8"), req("NotIn", "4")}, has("1", "6"), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Of(tc.needs).Allow(tc.machine); got != tc.want {
				t.Errorf("Allow = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAllowLabels(t *testing.T) {
	n := Of([]v1.NodeSelectorRequirementWithMinValues{req("In", "a", "b")})
	for value, want := range map[string]bool{"a": true, "c": false} {
		if got := n.AllowLabels(map[string]string{"k": value, "other": "x"}); got != want {
			t.Errorf("AllowLabels(k=%s) = %v, want %v", value, got, want)
		}
		if got := n.AllowValue("k", value); got != want {
			t.Errorf("AllowValue(%s) = %v, want %v", value, got, want)
		}
	}
	if !n.AllowLabels(nil) {
		t.Error("labels that say nothing are refused")
	}
}

func TestMinValues(t *testing.T) {
	three, five := 3, 5
	a, b := req("Exists"), req("In", "x")
	a.MinValues, b.MinValues = &three, &five
	n := Of([]v1.NodeSelectorRequirementWithMinValues{a, b})
	if got := n.MinValues("k"); got != 5 || !n.HasMinValues() {
		t.Errorf("MinValues = %d, HasMinValues = %v", got, n.HasMinValues())
	}
	if Of([]v1.NodeSelectorRequirementWithMinValues{req("Exists")}).HasMinValues() {
		t.Error("a requirement without minValues has some")
	}
}

func TestWhatCannotBeReadLeavesNothing(t *testing.T) {
	for name, r := range map[string]v1.NodeSelectorRequirementWithMinValues{
		"an operator that there is not":  req("Like", "a"),
		"a bound that is no number":      req("Gt", "a"),
		"a bound of more than one value": req("Lt", "1", "2"),
		"one of nothing":                 req("In"),
	} {
		t.Run(name, func(t *testing.T) {
			if s := Set(&r); !s.Empty() {
				t.Errorf("it leaves %v", s)
			}
		})
	}
}

// Several requirements of one label are one need: the twin asks each requirement about each value.
func TestNeedsEqualTheirTwins(t *testing.T) {
	values := []string{"1", "4", "7", "a"}
	all := []v1.NodeSelectorRequirementWithMinValues{
		req("In", "1", "a"), req("In"), req("NotIn", "4"), req("NotIn"), req("Exists"), req("DoesNotExist"), req("Gt", "1"), req("Lt", "7"), req("Gte", "4"), req("Lte", "4"),
	}
	for i := range all {
		for j := range all {
			both := Of([]v1.NodeSelectorRequirementWithMinValues{all[i], all[j]})
			may := map[string][]string{"k": nil}
			if got, want := both.Allow(may), Set(&all[i]).HasAbsent() && Set(&all[j]).HasAbsent(); got != want {
				t.Errorf("%v and %v allow no label: %t, want %t", all[i], all[j], got, want)
			}
			for _, v := range values {
				want := Set(&all[i]).Has(v) && Set(&all[j]).Has(v)
				may["k"] = []string{v}
				if both.AllowValue("k", v) != want || both.AllowLabels(map[string]string{"k": v}) != want || both.Allow(may) != want {
					t.Errorf("%v and %v: of %s they say other than %t", all[i], all[j], v, want)
				}
			}
		}
	}
}
