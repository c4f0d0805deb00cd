package rollout_test

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/rollout"
)

var start = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func pool() *v1.NodePool {
	return &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"team": "a"}}}
}

func policy(name string, created time.Time, edits ...func(*v1alpha1.RolloutPolicy)) *v1alpha1.RolloutPolicy {
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Time{Time: created}}}
	p.Spec.Steps = []v1alpha1.RolloutStep{{Nodes: intstr.FromInt32(1), Bake: metav1.Duration{Duration: time.Hour}}, {Nodes: intstr.FromString("25%")}}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func claim(name string, created time.Time, drifted string) *v1.NodeClaim {
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.Time{Time: created},
		Labels: map[string]string{v1.NodePoolLabelKey: "default"}}}
	if drifted != "" {
		condition.Set(c, metav1.Condition{Type: v1.ConditionTypeDrifted, Status: metav1.ConditionTrue, Reason: drifted}, created)
	}
	return c
}

func snapshot(claims []*v1.NodeClaim, policies ...*v1alpha1.RolloutPolicy) *cluster.Snapshot {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, pool())
		for _, p := range policies {
			cluster.Rollouts.Put(d, p)
		}
		for _, c := range claims {
			d.PutClaim(c)
		}
	})
	return store.Snapshot()
}

func TestWithoutPoliciesNothingIsBound(t *testing.T) {
	if got := rollout.Allowances(snapshot([]*v1.NodeClaim{claim("a", start, "x")}), start); got != nil {
		t.Errorf("%v", got)
	}
}

func TestAllowances(t *testing.T) {
	revision := rollout.Revision(snapshot(nil), pool())
	under := func(edits ...func(*v1alpha1.RolloutPool)) func(*v1alpha1.RolloutPolicy) {
		e := v1alpha1.RolloutPool{Name: "default", Revision: revision, Since: &metav1.Time{Time: start}}
		for _, edit := range edits {
			edit(&e)
		}
		return func(p *v1alpha1.RolloutPolicy) { p.Status.Pools = []v1alpha1.RolloutPool{e} }
	}
	idle := under(func(e *v1alpha1.RolloutPool) { e.Since = nil })
	step := func(n int32) func(*v1alpha1.RolloutPool) { return func(e *v1alpha1.RolloutPool) { e.Step = n } }
	old := func(n int) (out []*v1.NodeClaim) {
		for i := range n {
			out = append(out, claim("old-"+string(rune('a'+i)), start.Add(-time.Hour), "AMIDrift"))
		}
		return out
	}
	fresh := claim("new", start.Add(time.Minute), "")
	window := func(schedule, zone string) func(*v1alpha1.RolloutPolicy) {
		return func(p *v1alpha1.RolloutPolicy) {
			p.Spec.Windows = []v1alpha1.RolloutWindow{{Schedule: schedule, TimeZone: zone, Duration: metav1.Duration{Duration: time.Hour}}}
		}
	}
	for name, tc := range map[string]struct {
		claims []*v1.NodeClaim
		edits  []func(*v1alpha1.RolloutPolicy)
		want   rollout.Allowance
	}{
		"no status yet":         {old(2), nil, rollout.Allowance{State: rollout.Starting, Still: true}},
		"drift after a while":   {old(2), []func(*v1alpha1.RolloutPolicy){idle}, rollout.Allowance{State: rollout.Starting}},
		"nothing drifts":        {[]*v1.NodeClaim{fresh}, []func(*v1alpha1.RolloutPolicy){idle}, rollout.Allowance{More: math.MaxInt32}},
		"age is no rollout":     {[]*v1.NodeClaim{claim("old", start, v1.ReasonExpired)}, []func(*v1alpha1.RolloutPolicy){idle}, rollout.Allowance{More: math.MaxInt32}},
		"a canary":              {old(8), []func(*v1alpha1.RolloutPolicy){under()}, rollout.Allowance{More: 1, Still: true}},
		"it boots":              {append(old(7), fresh), []func(*v1alpha1.RolloutPolicy){under()}, rollout.Allowance{State: rollout.Rolling, Still: true}},
		"it is watched":         {append(old(7), fresh), []func(*v1alpha1.RolloutPolicy){under(func(e *v1alpha1.RolloutPool) { e.BakingSince = &metav1.Time{Time: start} })}, rollout.Allowance{State: rollout.Baking, Until: start.Add(time.Hour), Still: true}},
		"a wave":                {append(old(7), fresh), []func(*v1alpha1.RolloutPolicy){under(step(1))}, rollout.Allowance{More: 2, Still: true}},
		"the rest":              {append(old(7), fresh), []func(*v1alpha1.RolloutPolicy){under(step(2))}, rollout.Allowance{More: math.MaxInt32}},
		"a new image meanwhile": {append(old(7), claim("new", start.Add(time.Minute), "AMIDrift")), []func(*v1alpha1.RolloutPolicy){under(step(1))}, rollout.Allowance{State: rollout.Starting, Still: true}},
		"tripped":               {old(8), []func(*v1alpha1.RolloutPolicy){under(func(e *v1alpha1.RolloutPool) { e.Tripped, e.Evidence = &metav1.Time{Time: start}, "why" })}, rollout.Allowance{State: rollout.Tripped, Detail: "why", Still: true}},
		"tripped in the rest":   {append(old(7), fresh), []func(*v1alpha1.RolloutPolicy){under(step(2), func(e *v1alpha1.RolloutPool) { e.Tripped = &metav1.Time{Time: start} })}, rollout.Allowance{State: rollout.Tripped, Still: true}},
		"another spec":          {old(8), []func(*v1alpha1.RolloutPolicy){under(func(e *v1alpha1.RolloutPool) { e.Revision, e.Tripped = "x", &metav1.Time{Time: start} })}, rollout.Allowance{State: rollout.Starting, Still: true}},
		"a window is open":      {old(8), []func(*v1alpha1.RolloutPolicy){under(), window("30 12 * * *", "Europe/Berlin"), window("30 11 * * *", "")}, rollout.Allowance{More: 1, Still: true}},
		"no window is open":     {old(8), []func(*v1alpha1.RolloutPolicy){under(), window("30 13 * * *", "Europe/Berlin")}, rollout.Allowance{State: rollout.Closed, Until: start.Add(30 * time.Minute), Still: true}},
		"a gate is silent": {old(8), []func(*v1alpha1.RolloutPolicy){under(step(2)), func(p *v1alpha1.RolloutPolicy) {
			condition.SetFalse(p, v1alpha1.ConditionTypeGatesAnswered, v1alpha1.ReasonNoAnswer, "webhook", start)
		}}, rollout.Allowance{State: rollout.Unanswered, Detail: "webhook"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.Policy = "careful"
			if got := rollout.Allowances(snapshot(tc.claims, policy("careful", start, tc.edits...)), start)["default"]; got != tc.want {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestWhatCannotBeReadHolds(t *testing.T) {
	bad := policy("bad", start, func(p *v1alpha1.RolloutPolicy) {
		p.Spec.Windows = []v1alpha1.RolloutWindow{{Schedule: "0 99 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
	})
	if got := rollout.Allowances(snapshot(nil, bad), start)["default"]; got.State != rollout.Unread || got.More != 0 || got.Detail == "" {
		t.Errorf("%+v", got)
	}
}

// The older of two policies holds, and a selector that selects nothing or cannot be read holds for nothing.
func TestWhichPolicyHolds(t *testing.T) {
	none := policy("none", start.Add(-2*time.Hour), func(p *v1alpha1.RolloutPolicy) { p.Spec.NodePoolSelector.MatchLabels = map[string]string{"team": "b"} })
	unread := policy("unread", start.Add(-2*time.Hour), func(p *v1alpha1.RolloutPolicy) {
		p.Spec.NodePoolSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Like"}}
	})
	all, of := rollout.Read(snapshot(nil, policy("younger", start), policy("older", start.Add(-time.Hour)), none, unread))
	if of["default"].Object.Name != "older" || len(all) != 4 || len(all[3].Overlap) != 1 || all[3].Object.Name != "younger" {
		t.Errorf("%v holds", of["default"].Object.Name)
	}
	for _, p := range all {
		if (p.Unread() != nil) != (p.Object.Name == "unread") {
			t.Errorf("%s: %v", p.Object.Name, p.Unread())
		}
	}
}

func TestExpiry(t *testing.T) {
	c := claim("a", start, "")
	c.Spec.ExpireAfter = v1.After(time.Hour)
	for name, tc := range map[string]struct {
		expiry *v1alpha1.RolloutExpiry
		hard   time.Duration
	}{
		"as without a policy": {nil, time.Hour},
		"switched off":        {&v1alpha1.RolloutExpiry{HardAfter: metav1.Duration{Duration: time.Hour}}, time.Hour},
		"within budgets":      {&v1alpha1.RolloutExpiry{WithinBudgets: true, HardAfter: metav1.Duration{Duration: time.Hour}}, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			soft, hard, ok := rollout.Expiry(snapshot(nil, policy("p", start, func(p *v1alpha1.RolloutPolicy) { p.Spec.Expiry = tc.expiry })), c)
			if !ok || soft.Sub(start) != time.Hour || hard.Sub(start) != tc.hard {
				t.Errorf("%v, %v, %t", soft, hard, ok)
			}
		})
	}
	if _, _, ok := rollout.Expiry(snapshot(nil), claim("b", start, "")); ok {
		t.Error("a claim without an age expires")
	}
}
