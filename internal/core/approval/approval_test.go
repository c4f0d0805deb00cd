package approval_test

import (
	"testing"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/core/approval"
)

// step removes two nodes for two others, moves three pods of one owner, and saves a dollar.
func step() *v1alpha1.DisruptionStep {
	return &v1alpha1.DisruptionStep{
		Reason: v1.DisruptionReasonUnderutilized, Pods: 3, Saves: "1.0000",
		Remove:    []v1alpha1.DisruptedNode{{NodeClaim: "a", UID: "1", NodePool: "p"}, {NodeClaim: "b", UID: "2", NodePool: "p"}},
		Open:      []v1alpha1.OpenedNode{{NodePool: "p", InstanceType: "x", CapacityType: "spot"}, {NodePool: "o", InstanceType: "x", CapacityType: "spot"}},
		Evictions: []v1alpha1.DisruptedWorkload{{Namespace: "n", Kind: "ReplicaSet", Name: "web", Pods: 3}},
	}
}

func TestCompare(t *testing.T) {
	for name, tc := range map[string]struct {
		now  func(*v1alpha1.DisruptionStep)
		want approval.Difference
	}{
		"nothing has changed":              {func(*v1alpha1.DisruptionStep) {}, approval.None},
		"the nodes in another order":       {func(s *v1alpha1.DisruptionStep) { s.Remove[0], s.Remove[1] = s.Remove[1], s.Remove[0] }, approval.None},
		"the machines in another order":    {func(s *v1alpha1.DisruptionStep) { s.Open[0], s.Open[1] = s.Open[1], s.Open[0] }, approval.None},
		"a node of another name":           {func(s *v1alpha1.DisruptionStep) { s.Remove[1].NodeClaim = "c" }, approval.Nodes},
		"a machine less":                   {func(s *v1alpha1.DisruptionStep) { s.Open = s.Open[:1] }, approval.Machines},
		"another type of machine":          {func(s *v1alpha1.DisruptionStep) { s.Open[0].InstanceType = "y" }, approval.None},
		"fewer pods":                       {func(s *v1alpha1.DisruptionStep) { s.Evictions[0].Pods = 1 }, approval.None},
		"nine tenths of the saving":        {func(s *v1alpha1.DisruptionStep) { s.Saves = "0.9000" }, approval.None},
		"less than that":                   {func(s *v1alpha1.DisruptionStep) { s.Saves = "0.8990" }, approval.Saving},
		"another reason":                   {func(s *v1alpha1.DisruptionStep) { s.Reason = v1.DisruptionReasonDrifted }, approval.Why},
		"a node less":                      {func(s *v1alpha1.DisruptionStep) { s.Remove = s.Remove[:1] }, approval.Nodes},
		"a node that got the name":         {func(s *v1alpha1.DisruptionStep) { s.Remove[1].UID = "3" }, approval.Nodes},
		"a machine more":                   {func(s *v1alpha1.DisruptionStep) { s.Open = append(s.Open, s.Open[0]) }, approval.Machines},
		"a machine of another pool":        {func(s *v1alpha1.DisruptionStep) { s.Open[0].NodePool = "q" }, approval.Machines},
		"a machine that is paid otherwise": {func(s *v1alpha1.DisruptionStep) { s.Open[0].CapacityType = "on-demand" }, approval.Machines},
		"a pod more of the owner":          {func(s *v1alpha1.DisruptionStep) { s.Evictions[0].Pods = 4 }, approval.Pods},
		"a pod of another owner": {func(s *v1alpha1.DisruptionStep) {
			s.Evictions = append(s.Evictions, v1alpha1.DisruptedWorkload{Namespace: "n", Kind: "Job", Name: "web", Pods: 1})
		}, approval.Pods},
	} {
		t.Run(name, func(t *testing.T) {
			now := step()
			tc.now(now)
			if got := approval.Compare(step(), now); got != tc.want {
				t.Errorf("difference %q, want %q", got, tc.want)
			}
		})
	}
}

// What drifted may cost more than it did: then a tenth more is as good as nothing.
func TestCompareStepsThatCost(t *testing.T) {
	for now, want := range map[string]approval.Difference{"-1.0000": approval.None, "-1.0990": approval.None, "-1.1100": approval.Saving, "2.0000": approval.None} {
		a, b := step(), step()
		a.Saves, b.Saves = "-1.0000", now
		if got := approval.Compare(a, b); got != want {
			t.Errorf("%s: difference %q, want %q", now, got, want)
		}
	}
	unread := step()
	unread.Saves = "much"
	if got := approval.Compare(unread, step()); got != approval.Saving {
		t.Errorf("a saving that cannot be read is as good as any: %q", got)
	}
}

func TestGenuine(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	plan := approval.PlanOf(step(), now)
	if !approval.Genuine(plan) || approval.PlanOf(step(), now).Name != plan.Name || approval.PlanOf(step(), now.Add(time.Minute)).Name == plan.Name {
		t.Error("a plan is not known by its name, or an old one is taken for a new one")
	}
	if got := plan.Status.ExpiresAt.Sub(now); got != 8*time.Hour || plan.Status.Phase != v1alpha1.DisruptionPending || plan.Spec.Decision != "" || plan.Status.Rule != "" {
		t.Errorf("it can be approved for %v and begins as %+v, %+v", got, plan.Spec, plan.Status)
	}
	plan.Status.Step.Evictions[0].Pods = 1
	if approval.Genuine(plan) || approval.Genuine(&v1alpha1.DisruptionPlan{}) {
		t.Error("what was changed, or says nothing, passes")
	}
}
