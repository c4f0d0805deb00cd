package v1_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
)

type requirement = v1.NodeSelectorRequirementWithMinValues

func vocabulary() *label.Vocabulary { return label.NewVocabulary(v1.Labels(), awsv1.Labels()) }

func poolWith(requirements ...requirement) *v1.NodePool {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.Template.Spec.Requirements = requirements
	return p
}

func labelled(labels map[string]string) *v1.NodePool {
	p := poolWith()
	p.Spec.Template.Labels = labels
	return p
}

func tainted(taints, startup []corev1.Taint) *v1.NodePool {
	p := poolWith()
	p.Spec.Template.Spec.Taints, p.Spec.Template.Spec.StartupTaints = taints, startup
	return p
}

func two() *int { n := 2; return &n }

func TestNodePoolValidate(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, tc := range map[string]struct {
		pool *v1.NodePool
		want string // part of the error; "" for none
	}{
		"no requirements":                                {poolWith(), ""},
		"every operator":                                 {poolWith(requirement{Key: "a", Operator: "In", Values: []string{"x"}}, requirement{Key: "a", Operator: "NotIn"}, requirement{Key: "a", Operator: "Exists"}, requirement{Key: "a", Operator: "DoesNotExist"}, requirement{Key: "a", Operator: "Gt", Values: []string{"0"}}, requirement{Key: "a", Operator: "Lt", Values: []string{"9"}}, requirement{Key: "a", Operator: "Gte", Values: []string{"1"}}, requirement{Key: "a", Operator: "Lte", Values: []string{"1"}}), ""},
		"unknown operator":                               {poolWith(requirement{Key: "a", Operator: "Near"}), `unknown operator "Near"`},
		"In without values":                              {poolWith(requirement{Key: "a", Operator: "In"}), "at least one value"},
		"Gt without values":                              {poolWith(requirement{Key: "a", Operator: "Gt"}), "exactly one value, has 0"},
		"Gt with two values":                             {poolWith(requirement{Key: "a", Operator: "Gt", Values: []string{"1", "2"}}), "exactly one value, has 2"},
		"Lte with a word":                                {poolWith(requirement{Key: "a", Operator: "Lte", Values: []string{"many"}}), `not "many"`},
		"Lt with a negative number":                      {poolWith(requirement{Key: "a", Operator: "Lt", Values: []string{"-1"}}), `not "-1"`},
		"key whose name part has 64 characters":          {poolWith(requirement{Key: long, Operator: "Exists"}), "requirements[0]: key"},
		"key whose name part has 63 characters":          {poolWith(requirement{Key: long[1:], Operator: "Exists"}), ""},
		"value of 64 characters":                         {poolWith(requirement{Key: "a", Operator: "In", Values: []string{long}}), "value"},
		"value with a blank":                             {poolWith(requirement{Key: "a", Operator: "In", Values: []string{"x y"}}), `value "x y"`},
		"hostname":                                       {poolWith(requirement{Key: corev1.LabelHostname, Operator: "Exists"}), "restricted"},
		"unknown label of the core's domain":             {poolWith(requirement{Key: v1.Group + "/custom", Operator: "Exists"}), `domain "karpenter.sh" belongs to Karpenter`},
		"label of a sub-domain":                          {poolWith(requirement{Key: "sub." + v1.Group + "/custom", Operator: "Exists"}), "restricted"},
		"label of a domain that merely ends the same":    {poolWith(requirement{Key: "foo-" + v1.Group + "/custom", Operator: "Exists"}), ""},
		"unknown label of the provider's domain":         {poolWith(requirement{Key: awsv1.Group + "/custom", Operator: "Exists"}), "restricted"},
		"well-known label of the provider":               {poolWith(requirement{Key: awsv1.LabelInstanceCPU, Operator: "Gt", Values: []string{"4"}}), ""},
		"node class label":                               {poolWith(requirement{Key: awsv1.LabelNodeClass, Operator: "Exists"}), ""},
		"labels of kubernetes.io":                        {poolWith(requirement{Key: "node-restriction.kubernetes.io/team", Operator: "Exists"}), ""},
		"pool label as a requirement":                    {poolWith(requirement{Key: v1.NodePoolLabelKey, Operator: "Exists"}), "may not be required"},
		"minValues above the number of values":           {poolWith(requirement{Key: "a", Operator: "In", Values: []string{"x"}, MinValues: two()}), "minValues 2 but lists only 1"},
		"capacity types none of which exists":            {poolWith(requirement{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: []string{"od"}}), "none of the values that exist"},
		"capacity types some of which exist":             {poolWith(requirement{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: []string{"od", "spot"}}), ""},
		"fewer capacity types that exist than minValues": {poolWith(requirement{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: []string{"od", "spot"}, MinValues: two()}), "only 1 of its values exist"},
		"capacity types that do not exist under NotIn":   {poolWith(requirement{Key: v1.CapacityTypeLabelKey, Operator: "NotIn", Values: []string{"od"}}), ""},
		"tenancies none of which exists":                 {poolWith(requirement{Key: awsv1.LabelInstanceTenancy, Operator: "In", Values: []string{"host"}}), "none of the values that exist"},
		"unknown value of a label that is not closed":    {poolWith(requirement{Key: awsv1.LabelInstanceCapabilityFlex, Operator: "In", Values: []string{"perhaps"}}), ""},
		"old name of the zone label":                     {poolWith(requirement{Key: corev1.LabelFailureDomainBetaZone, Operator: "In", Values: []string{"a"}}), ""},
		"template label":                                 {labelled(map[string]string{"team": "a"}), ""},
		"template label with the pool's key":             {labelled(map[string]string{v1.NodePoolLabelKey: "x"}), "may not be given"},
		"template label with a long key":                 {labelled(map[string]string{long: "x"}), "metadata.labels: key"},
		"template label with a bad value":                {labelled(map[string]string{"a": "-"}), `value "-" of "a"`},
		"template label in the core's domain":            {labelled(map[string]string{v1.Group + "/x": "x"}), "restricted"},
		"template label hostname":                        {labelled(map[string]string{corev1.LabelHostname: "x"}), "restricted"},
		"taints":                                         {tainted([]corev1.Taint{{Key: "a", Effect: "NoSchedule"}}, []corev1.Taint{{Key: "a", Effect: "NoExecute"}}), ""},
		"the same taint in both lists":                   {tainted([]corev1.Taint{{Key: "a", Effect: "NoSchedule"}}, []corev1.Taint{{Key: "a", Value: "b", Effect: "NoSchedule"}}), "startupTaints[0]: taint a:NoSchedule is given twice"},
		"the same taint twice in one list":               {tainted([]corev1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Effect: "NoSchedule"}}, nil), "taints[1]"},
		"taint without key":                              {tainted([]corev1.Taint{{Effect: "NoSchedule"}}, nil), "key is missing"},
		"taint with a long key":                          {tainted([]corev1.Taint{{Key: long, Effect: "NoSchedule"}}, nil), "taints[0]: key"},
		"taint with a bad value":                         {tainted([]corev1.Taint{{Key: "a", Value: "b c", Effect: "NoSchedule"}}, nil), `value "b c"`},
		"taint without effect":                           {tainted([]corev1.Taint{{Key: "a"}}, nil), ""},
		"taint with an unknown effect":                   {tainted([]corev1.Taint{{Key: "a", Effect: "Maybe"}}, nil), `effect "Maybe" is unknown`},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.pool.Validate(vocabulary())
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("Validate = %v, want no error", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("Validate = %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestValidateReportsAllViolationsTogether(t *testing.T) {
	p := poolWith(requirement{Key: "a", Operator: "In"}, requirement{Key: corev1.LabelHostname, Operator: "Exists"})
	p.Spec.Template.Labels = map[string]string{"x": "-"}
	err := p.Validate(vocabulary())
	for _, want := range []string{"requirements[0]", "requirements[1]", `value "-"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate = %v, want it to name %s", err, want)
		}
	}
}

func TestUnknownValuesNamesSpellingMistakes(t *testing.T) {
	p := poolWith(requirement{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: []string{"spot", "ondemand"}})
	if got := p.UnknownValues(vocabulary()); len(got) != 1 || got[0] != v1.CapacityTypeLabelKey+"=ondemand" {
		t.Errorf("UnknownValues = %v", got)
	}
}
