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

func TestNamed(t *testing.T) {
	list := func(of ...v1.NodeSelectorRequirementWithMinValues) (map[string]bool, bool) { return Of(of).Named("k") }
	if values, any := list(req("NotIn", "c"), req("In", "a", "b")); any || len(values) != 2 || !values["a"] || !values["b"] {
		t.Errorf("values = %v, any = %v, want a and b", values, any)
	}
	if _, any := list(req("NotIn", "c"), req("Exists")); !any {
		t.Error("a label whose values are not listed is limited to some")
	}
}
