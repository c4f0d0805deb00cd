package cli

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/rollout"
	"karpenter.sh/karpenter/internal/core/work"
)

// More time must never cost more: the GPU trace came to $5,150.70 with two seconds and to $5,147.24 without.
func TestMoreTimeNeverGivesADearerPlan(t *testing.T) {
	type answer struct {
		cost, bound cloud.NanoUSD
		refused     int
	}
	for name, tc := range map[string]struct {
		search      work.Units
		long, usual answer
		want        answer
		plans       int
	}{
		"the longer search is dearer": {search: 2 * work.Second, long: answer{103, 101, 0}, usual: answer{102, 99, 0},
			want: answer{102, 101, 0}, plans: 2},
		"it is cheaper": {search: 2 * work.Second, long: answer{101, 100, 0}, usual: answer{102, 99, 0}, want: answer{101, 100, 0}, plans: 2},
		"it places fewer pods": {search: 2 * work.Second, long: answer{90, 89, 1}, usual: answer{102, 99, 0},
			want: answer{102, 99, 0}, plans: 2},
		"it places more":          {search: 2 * work.Second, long: answer{103, 101, 0}, usual: answer{90, 89, 1}, want: answer{103, 101, 0}, plans: 2},
		"no more time than usual": {search: work.Second, long: answer{103, 101, 0}, want: answer{103, 101, 0}, plans: 1},
	} {
		t.Run(name, func(t *testing.T) {
			plans := 0
			in := engine.Question{}
			in.Settings.Search = tc.search
			got := bestPlan(in, func(in engine.Question) *engine.Plan {
				plans++
				a := tc.long
				if in.Settings.Search == 0 {
					a = tc.usual
				}
				return &engine.Plan{Cost: a.cost, ConfigBound: a.bound, Refused: make([]engine.Refused, a.refused)}
			})
			if have := (answer{got.Cost, got.ConfigBound, len(got.Refused)}); have != tc.want || plans != tc.plans {
				t.Errorf("the plan is %+v after %d plans, want %+v after %d", have, plans, tc.want, tc.plans)
			}
		})
	}
}

// Plans and answers of a pool whose rollout is stopped are about machines of the state that passed last, and the user is told so.
func TestAStoppedPoolIsPlannedWithWhatPassedLast(t *testing.T) {
	pool := &v1.NodePool{}
	pool.Name = "web"
	pool.Spec.Template.Labels = map[string]string{"image": "2"}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}
	policy := &v1alpha1.RolloutPolicy{}
	policy.Name, policy.Spec.OnFailure = "careful", v1alpha1.RolloutLastGood
	o := &objects{pools: []*v1.NodePool{pool}, alphaObjects: alphaObjects{rollouts: []*v1alpha1.RolloutPolicy{policy}}}
	plain := func(Market, *awsv1.EC2NodeClass) (*cloud.Catalog, error) { return &cloud.Catalog{}, nil }
	stopped := v1alpha1.RolloutPool{Name: "web", Revision: rollout.Revision(o.store().Snapshot(), pool), Tripped: &metav1.Time{Time: time.Unix(0, 0)},
		LastGood: &v1alpha1.RolloutState{Passed: metav1.Time{Time: time.Unix(0, 0)}, Images: []string{"ami-1"},
			Template: `{"metadata":{"labels":{"image":"1"}},"spec":{"nodeClassRef":{"group":"karpenter.k8s.aws","kind":"EC2NodeClass","name":"default"}}}`}}
	forgotten := stopped
	forgotten.LastGood = nil
	for name, tc := range map[string]struct {
		entry v1alpha1.RolloutPool
		label string
		said  string
	}{
		"stopped": {stopped, "1", `RolloutPolicy "careful" stopped the rollout of NodePool "web": new machines of NodePool web start with template `},
		"nothing is remembered": {forgotten, "2", `new machines of NodePool web start with its present template and images: ` +
			`no rollout of it that came to its end is remembered`},
		"not stopped": {v1alpha1.RolloutPool{Name: "web"}, "2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			policy.Status.Pools = []v1alpha1.RolloutPool{tc.entry}
			var said strings.Builder
			in, err := (&planFlags{}).input(Env{Err: &said, Catalog: plain}, o)
			if err != nil || in.Pools[0].Pool.Spec.Template.Labels["image"] != tc.label {
				t.Errorf("%v, %v", err, in.Pools)
			}
			if !strings.Contains(said.String(), tc.said) || tc.said == "" && strings.Contains(said.String(), "RolloutPolicy") {
				t.Errorf("said %s", said.String())
			}
		})
	}
}
