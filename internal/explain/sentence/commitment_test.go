package sentence

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/commitment"
)

func TestHowMuchOfCommitmentsIsUsed(t *testing.T) {
	v := func(name string, state commitment.State, used, unused float64, takers bool) commitment.Verdict {
		return commitment.Verdict{Object: &v1alpha1.CommitmentDiscount{ObjectMeta: metav1.ObjectMeta{Name: name}}, State: state, Used: used,
			Unused: cloud.FromDollars(unused), Takers: takers}
	}
	full := v("full", commitment.Certain, 1, 0, true)
	for want, books := range map[string]*commitment.Books{
		"": nil,
		"1 commitment: 100% used on average, $0.0000/h unused, 70% of on-demand machines covered": {Coverage: 0.7, Verdicts: []commitment.Verdict{full}},
		"1 commitment: none counts; new: it has not begun":                                        {Verdicts: []commitment.Verdict{v("new", commitment.NotStarted, 0, 0, false)}},
		"5 commitments: 50% used on average, $3.0000/h unused, 0% of on-demand machines covered; " +
			"idle: $2.0000/h unused, no on-demand machine of the cluster is of a type that it covers; " +
			"half: $1.0000/h unused, the on-demand machines that it covers use 50%; gone: it has ended; 1 more": {Verdicts: []commitment.Verdict{
			full, v("half", commitment.Ending, 0.5, 1, true), v("gone", commitment.Ended, 0, 0, false), v("over", commitment.Ended, 0, 0, false),
			v("idle", commitment.Certain, 0, 2, false)}},
	} {
		if got := Commitments(books); got != want {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
}
