package cli

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

func TestNearestCommand(t *testing.T) {
	for word, want := range map[string]string{
		"pln": "plan", "statsu": "", "lnit": "lint", "histroy": "history", "wyh": "why", "plan": "plan", "resum": "resume", "frobnicate": "",
	} {
		if got := Nearest(word); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

func TestCompletion(t *testing.T) {
	ask := func(args ...string) []string {
		var out strings.Builder
		if code := Run(t.Context(), Env{Out: &out, Err: &out}, append([]string{"completion"}, args...)); code != exitFine {
			t.Errorf("%v: code %d", args, code)
		}
		return strings.Fields(out.String())
	}
	if got := ask("words"); !slices.Contains(got, "plan") || !slices.Contains(got, "controller") {
		t.Errorf("commands: %v", got)
	}
	if got := ask("words", "plan"); !slices.Contains(got, "--kubeconfig") || slices.Contains(got, "--pool") {
		t.Errorf("flags of plan: %v", got)
	}
	if got := ask("words", "pause"); !slices.Contains(got, "--pool") {
		t.Errorf("flags of pause: %v", got)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := ask(shell); !slices.Contains(got, "karpenter") {
			t.Errorf("%s: %v", shell, got)
		}
	}
	if code := Run(t.Context(), Env{Out: &strings.Builder{}, Err: &strings.Builder{}}, []string{"completion", "tcsh"}); code != exitBadInput {
		t.Errorf("an unknown shell: code %d", code)
	}
}

func TestLintOfAClustersClassesAndBudgets(t *testing.T) {
	pool := func(name, class string) *v1.NodePool {
		p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: awsv1.Group, Kind: "EC2NodeClass", Name: class}
		return p
	}
	broken := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "broken"}}
	broken.Status.Conditions = []metav1.Condition{{Type: condition.Ready, Status: metav1.ConditionFalse, Message: "no subnets"}}
	budget := func(name, app string) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	}
	o := &objects{
		pools:   []*v1.NodePool{pool("a", "there"), pool("b", "absent"), pool("c", "broken")},
		classes: []*awsv1.EC2NodeClass{{ObjectMeta: metav1.ObjectMeta{Name: "there"}}, broken},
		pods:    []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}}}},
		apps:    workloads{pdbs: []*policyv1.PodDisruptionBudget{budget("web", "web"), budget("old", "gone")}},
	}
	env := Env{CheckClass: func(*awsv1.EC2NodeClass) error { return nil }}
	var got []string
	for _, f := range append(badClasses(env, o), protectNothing(o)...) {
		got = append(got, f.Object+" "+f.Text)
	}
	want := []string{
		`NodePool/b there is no EC2NodeClass named "absent": create it, or change nodeClassRef`,
		`NodePool/c launches nothing, because EC2NodeClass "broken" is not ready: no subnets`,
		"PodDisruptionBudget/shop/old its selector matches no pod, so it protects none: compare it with the labels of the pods",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestPoolsThatOverlapAreOneFinding(t *testing.T) {
	pools := []*v1.NodePool{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}, {ObjectMeta: metav1.ObjectMeta{Name: "c"}}}
	if got := overlaps(pools); len(got) != 1 || !strings.Contains(got[0].Text, `"b", "c"`) || !strings.Contains(got[0].Text, "all but one") {
		t.Errorf("got %+v", got)
	}
}
