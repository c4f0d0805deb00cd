package disrupt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// going is a step that removes nodes of pools, written "node/pool".
func going(nodes ...string) *Step {
	step := &Step{Method: MultiNode, Reason: v1.DisruptionReasonUnderutilized}
	for _, at := range nodes {
		name, pool, _ := strings.Cut(at, "/")
		claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		step.Remove = append(step.Remove, &Candidate{Node: &cluster.Node{Name: name, Claim: claim}, Pool: &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool}}})
		step.Place = append(step.Place, engine.Placement{Node: "beside-" + name})
	}
	return step
}

var (
	fullNow   = Refusal{Code: Budget, Have: 1, Need: 1} // they have room for it at another time
	fullEver  = Refusal{Code: Budget, Have: 0, Need: 1}
	noPlaces  = Refusal{Code: Scheduling}
	noneOfOur = Refusal{Code: Churn}
)

// TestARoundOfSecondLooks has steps that wait, each refused as it says or begun, and tells in which order they were looked at, which wait on, and the
// nodes of which are left alone after that.
func TestARoundOfSecondLooks(t *testing.T) {
	type waiting struct {
		step     *Step
		ago      time.Duration // since its second look was due
		approved bool
		why      Refusal // of its confirmation
	}
	for name, tc := range map[string]struct {
		steps []waiting
		want  string
	}{
		"before its time nobody looks": {[]waiting{{step: going("a/p"), ago: -time.Second}}, "looked at [], wait [a], failed []"},
		"the oldest first, of equals by name": {
			[]waiting{{step: going("c/p")}, {step: going("b/p")}, {step: going("d/p"), ago: time.Second}}, "looked at [d b c], wait [], failed []"},
		"nothing of its pool overtakes what waits for its turn": {
			[]waiting{{step: going("a/p", "b/q"), ago: time.Second, why: fullNow}, {step: going("c/q")}, {step: going("d/r")}}, "looked at [a d], wait [a c], failed []"},
		"what was approved stands in no line": {
			[]waiting{{step: going("a/p"), ago: time.Second, why: fullNow}, {step: going("b/p"), approved: true, why: fullNow}}, "looked at [a b], wait [a], failed []"},
		"what has waited for long is looked at once more, whatever waits": {
			[]waiting{{step: going("a/p"), ago: TurnWithin, why: fullNow}, {step: going("b/p"), ago: 2 * time.Second, why: fullNow}, {step: going("c/p"), ago: time.Second}},
			"looked at [a b], wait [b c], failed [a]"},
		"what has waited for long may still begin":        {[]waiting{{step: going("a/p"), ago: TurnWithin}}, "looked at [a], wait [], failed []"},
		"budgets that never let it go are not waited for": {[]waiting{{step: going("a/p"), why: fullEver}}, "looked at [a], wait [], failed []"},
		"a step without places is left alone":             {[]waiting{{step: going("a/p"), why: noPlaces}}, "looked at [a], wait [], failed [a]"},
		"one whose nodes are no candidates is forgotten":  {[]waiting{{step: going("a/p"), why: noneOfOur}}, "looked at [a], wait [], failed []"},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1e9, 0)
			q, why := Queue{}, map[string]Refusal{}
			for _, w := range tc.steps {
				q.Add(w.step, now.Add(-w.ago-SecondLook))
				why[w.step.ID()] = w.why
				if w.approved {
					q[w.step.ID()].Plan = &v1alpha1.DisruptionPlan{}
				}
			}
			var m Memory
			var looked, failed []string
			round, any := q.Round(now), false
			for id, p := range round.Due() {
				looked = append(looked, p.Step.Remove[0].Name())
				if q[id] != nil {
					t.Errorf("%s is in its own way", id)
				}
				if why := why[id]; why.Code != "" {
					var waits bool
					waits, m = round.Refused(id, p, why, m)
					if any = any || waits; waits != (q[id] == p) {
						t.Errorf("%s waits: %t, but is in the queue: %t", id, waits, q[id] == p)
					}
				}
			}
			for uid := range m.setbacks {
				failed = append(failed, string(uid))
			}
			slices.Sort(failed)
			var left []string
			for _, p := range q {
				left = append(left, p.Step.Remove[0].Name())
			}
			slices.Sort(left)
			if got := fmt.Sprintf("looked at %v, wait %v, failed %v", looked, left, failed); got != tc.want || round.Held() != any {
				t.Errorf("%s, held: %t\nwant %s", got, round.Held(), tc.want)
			}
		})
	}
}

// TestWhatWaitsHoldsItsNodesAndPlaces: but for what was approved, of which its plan does.
func TestWhatWaitsHoldsItsNodesAndPlaces(t *testing.T) {
	q := Queue{}
	q.Add(going("c/p", "d/q"), time.Unix(1e9, 0))
	q.Add(going("a/p"), time.Unix(1e9, 0))
	q["plan"] = &Waiting{Step: going("b/p"), Plan: &v1alpha1.DisruptionPlan{}}
	w := &World{Busy: map[types.UID]bool{"z": true}, Promised: map[string]int{"p": 1}}
	q.Hold(w)
	var coming []string
	for _, p := range w.Coming {
		coming = append(coming, p.Node)
	}
	if got, want := fmt.Sprint(w.Busy, w.Promised, coming), "map[a:true c:true d:true z:true] map[p:3 q:1] [beside-a beside-c beside-d]"; got != want {
		t.Errorf("held are %s\nwant %s", got, want)
	}
}
