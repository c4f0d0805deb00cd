package lifecycle_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

func TestConsolidatable(t *testing.T) {
	pool := func(after string, edits ...func(*v1.NodePool)) *v1.NodePool {
		p := &v1.NodePool{}
		p.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration(after)
		for _, edit := range edits {
			edit(p)
		}
		return p
	}
	event := func(after time.Duration) func(*v1.NodeClaim) {
		return func(c *v1.NodeClaim) { c.Status.LastPodEventTime = metav1.NewTime(start.Add(after)) }
	}
	for name, tc := range map[string]struct {
		claim *v1.NodeClaim
		pool  *v1.NodePool
		after time.Duration
		want  bool
		again time.Duration
	}{
		"at once, with a quiet time of zero":           {claim(launched, registered, initialized), pool("0s"), 0, true, 0},
		"not before it is initialized":                 {claim(launched, registered), pool("0s"), time.Hour, false, 0},
		"never, if the pool says so":                   {claim(launched, registered, initialized), pool("Never"), time.Hour, false, 0},
		"after the quiet time since initialization":    {claim(launched, registered, initialized), pool("1m"), time.Minute, true, 0},
		"not before it":                                {claim(launched, registered, initialized), pool("1m"), 59 * time.Second, false, time.Minute},
		"pods start the quiet time anew":               {claim(launched, registered, initialized, event(time.Minute)), pool("1m"), 90 * time.Second, false, 2 * time.Minute},
		"until nothing has happened for long enough":   {claim(launched, registered, initialized, event(time.Minute)), pool("1m"), 2 * time.Minute, true, 0},
		"never in a pool with a fixed number of nodes": {claim(launched, registered, initialized), pool("0s", func(p *v1.NodePool) { p.Spec.Replicas = new(int64(1)) }), time.Hour, false, 0},
	} {
		for _, was := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				c := tc.claim.DeepCopy()
				if was {
					condition.SetTrue(c, v1.ConditionTypeConsolidatable, start)
				}
				again := lifecycle.Consolidatable(c, tc.pool, start.Add(tc.after))
				if got := condition.IsTrue(c, v1.ConditionTypeConsolidatable); got != tc.want {
					t.Errorf("consolidatable = %v (before: %v), want %v", got, was, tc.want)
				}
				if tc.again == 0 && !again.IsZero() || tc.again != 0 && !again.Equal(start.Add(tc.again)) {
					t.Errorf("look again at %v, want %v after the start", again, tc.again)
				}
			})
		}
	}
}

func TestPodEvent(t *testing.T) {
	now := start.Add(time.Hour)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	bound := func(name string, at time.Time) *cluster.Pod {
		return &cluster.Pod{PodKey: cluster.PodKey{Namespace: "default", Name: name}, PodTimes: cluster.PodTimes{Scheduled: at}}
	}
	daemon := bound("daemon", ago(0))
	daemon.DaemonSet = true
	ending := bound("a", ago(30*time.Minute))
	ending.Deleted, ending.Grace = now.Add(20*time.Second), 30*time.Second
	for name, tc := range map[string]struct {
		was, is []*cluster.Pod
		first   bool
		last    time.Duration // the claim's last event, ago; 0 for none
		want    time.Duration // ago; 0 for no event
	}{
		"a pod that was just bound":                             {nil, []*cluster.Pod{bound("a", ago(time.Second))}, false, 0, time.Second},
		"nothing new":                                           {[]*cluster.Pod{bound("a", ago(time.Minute))}, []*cluster.Pod{bound("a", ago(time.Minute))}, false, time.Minute, 0},
		"a pod that ended":                                      {[]*cluster.Pod{bound("a", ago(time.Minute))}, nil, false, time.Minute, 1},
		"a pod that began to leave":                             {[]*cluster.Pod{bound("a", ago(30*time.Minute))}, []*cluster.Pod{ending}, false, 30 * time.Minute, 10 * time.Second},
		"a pod that had begun to leave and is gone":             {[]*cluster.Pod{ending}, nil, false, 10 * time.Second, 0},
		"events within ten seconds are one":                     {nil, []*cluster.Pod{bound("a", ago(0))}, false, 9 * time.Second, 0},
		"pods of daemons do not count":                          {nil, []*cluster.Pod{daemon}, false, 0, 0},
		"a restart is no event":                                 {nil, []*cluster.Pod{bound("a", ago(time.Minute))}, true, time.Minute, 0},
		"what happened while nobody looked is known afterwards": {nil, []*cluster.Pod{bound("a", ago(time.Minute))}, true, time.Hour, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(launched)
			if tc.last != 0 {
				c.Status.LastPodEventTime = metav1.NewTime(ago(tc.last))
			}
			was := &cluster.Node{Claim: c, Pods: tc.was}
			if tc.first {
				was = nil
			}
			got := lifecycle.PodEvent(was, &cluster.Node{Claim: c, Pods: tc.is}, now)
			switch {
			case tc.want == 0 && !got.IsZero(), tc.want == 1 && !got.Equal(now), tc.want > 1 && !got.Equal(ago(tc.want)):
				t.Errorf("event at %v, want %v before %v", got, tc.want, now)
			}
		})
	}
}

func TestInconsistencies(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	for name, tc := range map[string]struct {
		edit func(*v1.NodeClaim)
		have corev1.ResourceList
		want string // resources that are named
	}{
		"a node as it was promised":                     {nil, list("4", "8Gi"), ""},
		"a little less is what machines are like":       {nil, list("4", "7500Mi"), ""},
		"less than nine tenths is not":                  {nil, list("4", "7Gi"), "memory"},
		"every resource is looked at":                   {nil, list("3", "7Gi"), "cpu memory"},
		"what was not asked for does not matter":        {func(c *v1.NodeClaim) { delete(c.Spec.Resources.Requests, corev1.ResourceCPU) }, list("1", "8Gi"), ""},
		"what was not promised does not matter":         {func(c *v1.NodeClaim) { delete(c.Status.Capacity, corev1.ResourceCPU) }, list("1", "8Gi"), ""},
		"a claim that is not initialized has no issues": {func(c *v1.NodeClaim) { c.Status.Conditions = nil }, list("1", "1Gi"), ""},
		"nor has one that is being deleted":             {func(c *v1.NodeClaim) { c.DeletionTimestamp = &metav1.Time{Time: start} }, list("1", "1Gi"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(launched, registered, initialized, func(c *v1.NodeClaim) {
				c.Spec.Resources.Requests, c.Status.Capacity = list("1", "1Gi"), list("4", "8Gi")
			})
			if tc.edit != nil {
				tc.edit(c)
			}
			n := node()
			n.Status.Capacity = tc.have
			var named []string
			for _, issue := range lifecycle.Inconsistencies(c, n) {
				named = append(named, string(issue.Resource))
			}
			if got := strings.Join(named, " "); got != tc.want {
				t.Errorf("issues about %q, want %q", got, tc.want)
			}
		})
	}
}
