package why

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/scenario"
	"karpenter.sh/karpenter/internal/testing/stories"
)

// worldOf reads a story.
func worldOf(t *testing.T, story []byte) engine.Question {
	t.Helper()
	s, err := scenario.Parse(story)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.World()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Enter(s, 1); err != nil {
		t.Fatal(err)
	}
	in := w.Input()
	in.Settings.Search = work.Second / 100
	return in
}

func fresh() Planner { return engine.New() }

// every lists the whole space of changes, one value at a time, without any thought about which of them could help.
func every(in engine.Question, pod *cluster.Pod) []Change {
	var out []Change
	for _, c := range changesOf(in, nil, pod) {
		switch c.Kind {
		case LowerRequest:
			for _, parts := range []int64{0, 8, 16, 32, 48, 63} {
				c.parts = parts
				out = append(out, c)
			}
		case RaiseLimit, LowerMinValues, AllowValue: // by pool, below
		default:
			out = append(out, c)
		}
	}
	for _, p := range in.Pools {
		values := map[string][]string{}
		var sizes []string
		for _, it := range p.Catalog.Types {
			for k, v := range it.Labels {
				values[k] = append(values[k], v...)
			}
			q := it.Capacity[corev1.ResourceCPU]
			for n := range int64(4) {
				sizes = append(sizes, strconv.FormatInt(q.Value()*(n+1)+used(in, p.Pool.Name), 10))
			}
		}
		for name := range p.Pool.Spec.Limits {
			for _, value := range append(sizes, "") {
				out = append(out, Change{Kind: RaiseLimit, Pool: p.Pool.Name, Key: string(name), Value: value})
			}
		}
		own := map[string]bool{}
		for _, q := range p.Pool.Spec.Template.Spec.Requirements {
			if q.Operator != corev1.NodeSelectorOpExists { // which forbids nothing
				own[q.Key] = true
				values[q.Key] = append(values[q.Key], "")
			}
			if q.MinValues != nil {
				for n := range *q.MinValues {
					out = append(out, Change{Kind: LowerMinValues, Pool: p.Pool.Name, Key: q.Key, Value: strconv.Itoa(n)})
				}
			}
		}
		for _, w := range askedLabels(pod.Class.Spec) {
			values[w.key] = append(values[w.key], w.value)
			own[w.key] = own[w.key] || w.key == "team" // which no type has
		}
		for key, list := range values {
			slices.Sort(list)
			for _, v := range slices.Compact(list) {
				if own[key] {
					out = append(out, Change{Kind: AllowValue, Pool: p.Pool.Name, Key: key, Value: v})
				}
			}
		}
	}
	return out
}

func used(in engine.Question, pool string) int64 {
	var sum resource.Quantity
	for n := range in.Snap.Nodes() {
		if n.Pool() == pool {
			sum.Add(n.Capacity()[corev1.ResourceCPU])
		}
	}
	return sum.Value()
}

// TestWhatHelpsIsFound compares with an exhaustive search. Of refusals that a single change can cure, 99 in a hundred are told one, and
// whatever is named really gives the pod a place.
func TestWhatHelpsIsFound(t *testing.T) {
	curable, found, several, ways, named := 0, 0, 0, 0, 0
	for seed := range uint64(worlds()) {
		in := worldOf(t, stories.Of(seed))
		asked := map[string]bool{}
		for _, r := range engine.New().Plan(in).Refused {
			key := fmt.Sprint(r.Pod.Class.ID, r.Pod.Owner)
			if asked[key] {
				continue
			}
			asked[key] = true
			q := Question{In: in, Pod: r.Pod, New: fresh}
			answer := Ask(q)
			like := (&search{Question: q}).like
			places := func(changes ...Change) bool {
				return placeOf(fresh().Plan(withChanges(in, nil, like, changes)), r.Pod.PodKey) != nil
			}
			for _, c := range answer.Cures {
				if !places(c.Changes...) {
					t.Errorf("world %d, pod %s: %+v does not help", seed, r.Pod.Name, c.Changes)
				}
				if len(c.Changes) > 1 {
					several++
				}
			}
			helps := slices.DeleteFunc(every(in, r.Pod), func(c Change) bool { return !places(c) })
			if len(helps) == 0 {
				continue
			}
			curable++
			if len(answer.Cures) > 0 && len(answer.Cures[0].Changes) == 1 {
				found++
			} else {
				t.Logf("world %d, pod %s: %+v helps and is not found: %v", seed, r.Pod.Name, helps[0], r.Reasons)
			}
			for _, h := range helps {
				ways++
				if !slices.ContainsFunc(answer.Cures, func(c Cure) bool { return len(c.Changes) == 1 && sameWay(c.Changes[0], h) }) {
					t.Logf("world %d, pod %s: %+v helps and is not named: %v", seed, r.Pod.Name, h, r.Reasons)
					continue
				}
				named++
			}
		}
	}
	t.Logf("%d refusals that one change cures, %d found; %d that take more; of %d ways to help %d are named", curable, found, several, ways, named)
	if named*100 < ways*99 {
		t.Errorf("%d of %d ways to help are named", named, ways)
	}
	if curable < 2*worlds() || found*100 < curable*99 {
		t.Errorf("%d of %d refusals are told what helps", found, curable)
	}
}

// sameWay tells whether two changes edit the same thing, though to another value.
func sameWay(a, b Change) bool {
	return a.Kind == b.Kind && a.Pool == b.Pool && a.Key == b.Key && a.at == b.at
}

// worlds is how many there are: few in a hurry.
func worlds() int {
	if os.Getenv("KARPENTER_SOAK") != "" {
		return 200
	}
	return 15
}
