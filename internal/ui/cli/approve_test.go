package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/core/approval"
)

// waiting is a cluster with one plan that waits and one that is done with.
func waiting(t *testing.T) (c client.Client, open, done string) {
	t.Helper()
	scheme, err := planScheme()
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	step := func(node string) *v1alpha1.DisruptionStep {
		return &v1alpha1.DisruptionStep{Reason: v1.DisruptionReasonUnderutilized, Pods: 3, Saves: "0.8000",
			Remove: []v1alpha1.DisruptedNode{{Node: node, InstanceType: "m5.4xlarge"}}, Open: []v1alpha1.OpenedNode{{InstanceType: "m5.large"}}}
	}
	a, b := approval.PlanOf(step("a"), at), approval.PlanOf(step("b"), at)
	b.Status.Phase, b.Status.Message = v1alpha1.DisruptionExpired, "it was not approved in time"
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(a, b).WithStatusSubresource(a).Build(), a.Name, b.Name
}

func TestDecide(t *testing.T) {
	for name, v := range map[string]verdict{"yes": {decision: v1alpha1.DisruptionApproved}, "no": {decision: v1alpha1.DisruptionDenied}} {
		t.Run(name, func(t *testing.T) {
			c, open, done := waiting(t)
			var out bytes.Buffer
			if err := v.write(t.Context(), &out, c, open, "go on"); err != nil {
				t.Fatal(err)
			}
			var got v1alpha1.DisruptionPlan
			if err := c.Get(t.Context(), types.NamespacedName{Name: open}, &got); err != nil {
				t.Fatal(err)
			}
			if got.Spec.Decision != v.decision || got.Spec.Note != "go on" || !approval.Genuine(&got) || out.String() != open+": "+string(v.decision)+"\n" {
				t.Errorf("spec = %+v, said %q", got.Spec, out.String())
			}
			for plan, want := range map[string]string{done: "wait any more: Expired it was not approved in time", "none": "not found; without a name those that wait are listed"} {
				if err := v.write(t.Context(), &out, c, plan, ""); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: error = %v, want %q", plan, err, want)
				}
			}
		})
	}
}

func TestPlansAreListed(t *testing.T) {
	c, open, done := waiting(t)
	var out bytes.Buffer
	if err := listPlans(t.Context(), &out, c); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{open, "Underutilized", "a (m5.4xlarge)", "m5.large", "$0.8000/h", "3", "2026-05-01T20:00:00Z"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %s:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), done) {
		t.Errorf("it lists a plan that is done with:\n%s", out.String())
	}
}

// A flag that stands after the names is one, and no name.
func TestFlagsMayFollowNames(t *testing.T) {
	for _, args := range []string{"approve a b --kubeconfig /no/such/file --note why", "deny a --kubeconfig /no/such/file", "orphans adopt a --kubeconfig /no/such/file", "orphans --kubeconfig /no/such/file terminate --all"} {
		var errs bytes.Buffer
		if code := Run(t.Context(), Env{Out: &bytes.Buffer{}, Err: &errs}, strings.Fields(args)); code != exitBadInput || !strings.Contains(errs.String(), "/no/such/file") {
			t.Errorf("%s: code %d, %q", args, code, errs.String())
		}
	}
}
