package disrupt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// TestWhyANodeStays has a node n of type mid, empty or with pods, beside one that is full.
func TestWhyANodeStays(t *testing.T) {
	type edit = func(*corev1.Node, *v1.NodeClaim)
	drifted := func(_ *corev1.Node, c *v1.NodeClaim) {
		condition.SetTrue(c, v1.ConditionTypeDrifted, noon.Add(-time.Hour))
	}
	settling := func(_ *corev1.Node, c *v1.NodeClaim) {
		condition.Clear(c, v1.ConditionTypeConsolidatable, noon)
		c.Status.LastPodEventTime = metav1.NewTime(noon.Add(-10 * time.Second))
	}
	after := func(d time.Duration) func(*v1.NodePool) {
		return func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.After(d) }
	}
	busy := func(w *World, _ *Memory) { w.Busy = map[types.UID]bool{"claim-n": true} }
	failed := func(w *World, m *Memory) {
		*m = m.Failed(&Step{Remove: []*Candidate{{Node: w.Snap.Node("n")}}}, noon)
	}
	for name, tc := range map[string]struct {
		node  []edit
		pool  func(*v1.NodePool)
		pods  int // on n
		full  int // other nodes beside the first
		pod   func(*corev1.Pod)
		world func(*World, *Memory)
		want  string
	}{
		"an empty node goes":                                    {want: ""},
		"its pool keeps what is empty":                          {pool: func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration("Never") }, want: "Empty: ConsolidateNever p"},
		"its pool has a fixed number of nodes":                  {pool: func(p *v1.NodePool) { p.Spec.Replicas = new(int64(2)) }, want: "Empty: FixedNodes p"},
		"a pod has gone, and consolidateAfter is not over":      {node: []edit{settling}, pool: after(time.Minute), want: "Empty: Settling p 12:00:50"},
		"a pod has gone only just":                              {world: func(w *World, _ *Memory) { w.Vacant["claim-n"] = noon.Add(-time.Second) }, want: "Empty: JustVacated 12:00:14"},
		"budgets let none go":                                   {pool: allowing("0"), want: "Empty: Budget p"},
		"budgets let none go, and more":                         {node: []edit{settling}, pool: func(p *v1.NodePool) { allowing("0")(p); after(time.Minute)(p) }, want: "Empty: Settling p 12:00:50, Empty: Budget p"},
		"a budget cannot be read":                               {pool: allowing("lots"), want: "BudgetUnread p"},
		"a step with it is under way":                           {world: busy, want: "InStep"},
		"its last step failed":                                  {world: failed, want: "RecentlyFailed 12:01:00"},
		"somebody protects it":                                  {node: []edit{protectedNode}, want: "NodeDoNotDisrupt karpenter.sh/do-not-disrupt"},
		"it is protected, and budgets let none go":              {node: []edit{protectedNode}, pool: allowing("0"), want: "NodeDoNotDisrupt karpenter.sh/do-not-disrupt, Empty: Budget p"},
		"it is not ready for pods yet, so nothing else is said": {node: []edit{func(n *corev1.Node, _ *v1.NodeClaim) { delete(n.Labels, v1.NodeInitializedLabelKey) }}, pool: allowing("0"), want: "NotInitialized"},
		"a pod on it is protected, and nothing is cheaper":      {pods: 4, pod: protect, want: "PodDoNotDisrupt karpenter.sh/do-not-disrupt"},
		"it is what its pods need":                              {pods: 4, want: "Underutilized: NothingCheaper"},
		"its pods fit something cheaper":                        {pods: 1, want: ""},
		"they do, but the last search was a moment ago":         {pods: 1, world: func(_ *World, m *Memory) { m.search.waitUntil = noon.Add(time.Second) }, want: "Underutilized: SearchWaits 12:00:01"},
		"they do, and too many pods were moved today":           {pods: 1, full: 20, world: func(_ *World, m *Memory) { m.churn.moved = []departure{{at: noon, pods: 60}} }, want: "Underutilized: TooManyMoves"},
		"its pool lets only empty nodes go":                     {pods: 1, pool: func(p *v1.NodePool) { p.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmpty }, want: "Underutilized: OnlyWhenEmpty p"},
		"it has drifted, and goes":                              {node: []edit{drifted}, pods: 4, want: ""},
		"it has drifted, and no machine may be opened":          {node: []edit{drifted}, pods: 4, world: func(w *World, _ *Memory) { w.NotReady = map[string]bool{"p": true} }, want: "Drifted: NoPlace"},
		"it has drifted, has pods, and was looked at only just": {node: []edit{drifted}, pods: 4, world: func(w *World, _ *Memory) { w.Vacant["claim-n"] = noon }, want: ""},
		"it has drifted, and its last pod has only just gone":   {node: []edit{drifted}, world: func(w *World, _ *Memory) { w.Vacant["claim-n"] = noon }, want: "Drifted: JustVacated 12:00:15"},
		"it has drifted, and budgets let none go":               {node: []edit{drifted}, pods: 4, pool: allowing("0"), want: "Drifted: Budget p"},
	} {
		t.Run(name, func(t *testing.T) {
			var pools []func(*v1.NodePool)
			if tc.pool != nil {
				pools = append(pools, tc.pool)
			}
			var pods []func(*corev1.Pod)
			if tc.pod != nil {
				pods = append(pods, tc.pod)
			}
			f := newFixture(small()...).pool("p", pools...).node("n", "p", "mid", onDemand, tc.node...).pods("n", "web", tc.pods, "1", "1Gi", pods...).
				node("full", "p", "mid", onDemand).pods("full", "db", 4, "1", "1Gi")
			for i := range tc.full {
				other := fmt.Sprint("full-", i)
				f.node(other, "p", "mid", onDemand).pods(other, "db", 4, "1", "1Gi")
			}
			w, m := f.world(), Memory{}
			w.Engine = realEngine()
			if tc.world != nil {
				tc.world(w, &m)
			}
			got := strings.Join(short(WhyStays(w, m, "n")), ", ")
			if got != tc.want {
				t.Errorf("kept by %q, want %q", got, tc.want)
			}
			out, _ := Propose(w, m)
			goes := slices.ContainsFunc(out.Steps, func(s *Step) bool { return s.Remove[0].Name() == "n" })
			if goes != (tc.want == "") {
				t.Errorf("the pass removes it: %v, although it is kept by %q", goes, got)
			}
		})
	}
	// The pods of n would need a machine that a quota does not allow.
	f := newFixture(small()...).pool("p").node("n", "p", "mid", onDemand, drifted).pods("n", "web", 4, "1", "1Gi")
	f.store.Update(func(d *cluster.Draft) {
		q := &autoscalingv1beta1.CapacityQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"}}
		q.Spec.Limits.Resources = autoscalingv1beta1.QuotaAmounts{"nodes": resource.MustParse("0")}
		cluster.Quotas.Put(d, q)
	})
	held := f.world()
	held.Engine = realEngine()
	why := WhyStays(held, Memory{}, "n")
	if len(why) == 0 || why[0].Code != NoPlace || !slices.Equal(why[0].Quotas, []string{"full"}) {
		t.Errorf("kept by %+v, want the quota by name", why)
	}
	if got := WhyStays(newFixture().world(), Memory{}, "nobody"); len(got) != 1 || got[0].Code != NotOurs {
		t.Errorf("of a node that is not there: %v", got)
	}
}

// short says of each refusal for which reason, what, about what, and until when.
func short(refusals []Refusal) (out []string) {
	for _, r := range refusals {
		text := string(r.Code)
		if r.Reason != "" {
			text = fmt.Sprintf("%s: %s", r.Reason, r.Code)
		}
		if r.Name != "" {
			text += " " + r.Name
		}
		if !r.Until.IsZero() {
			text += " " + r.Until.Format(time.TimeOnly)
		}
		out = append(out, text)
	}
	return out
}
