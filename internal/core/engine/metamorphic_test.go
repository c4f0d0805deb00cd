package engine_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// renamed is the catalogue with other names, in another alphabetical order.
func renamed(tb testing.TB) *cloud.Catalog {
	out := &cloud.Catalog{}
	types := catalogue(tb).Types
	for i, it := range types {
		copied := *it
		copied.Name = fmt.Sprintf("type-%04d", len(types)-i)
		copied.Labels = map[string][]string{}
		for k, v := range it.Labels {
			copied.Labels[k] = v
		}
		copied.Labels[corev1.LabelInstanceTypeStable] = []string{copied.Name}
		out.Types = append(out.Types, &copied)
	}
	return out
}

// TestWhatHasNoMeaningDoesNotChangeThePrice renames pods, pools and types, and splits every class in two by a toleration of a taint
// that nobody has: the price stays where it is proven to be the lowest, and moves by no more than 0.5 % elsewhere.
func TestWhatHasNoMeaningDoesNotChangeThePrice(t *testing.T) {
	type world struct {
		pods  []*corev1.Pod
		pools []engine.Pool
	}
	for _, row := range []struct {
		name string
		pods int // the first so many; so few are packed in the best way
	}{{"few3", 0}, {"few2skew", 0}, {"few2complement", 0}, {"few5", 0}, {"classes20", 0}, {"few3", 6}, {"few5", 7}, {"many5000", 5}} {
		for _, spot := range []bool{false, true} {
			name := row.name
			fresh := func() *world {
				pods := workload(t, name)
				if row.pods > 0 {
					pods = pods[:row.pods]
				}
				return &world{pods, []engine.Pool{{Pool: benchload.Pool(spot, false), Catalog: catalogue(t)}}}
			}
			ask := func(w *world) *engine.Plan {
				settings := engine.Settings{}
				return solveFresh(prepared(w.pools, settings), w.pods, w.pools, settings)
			}
			want := ask(fresh())
			for what, edit := range map[string]func(w *world){
				"pods have other names": func(w *world) {
					for i, p := range w.pods {
						p.Name = fmt.Sprintf("renamed-%05d", len(w.pods)-i)
						p.UID = ""
					}
				},
				"the pool has another name":  func(w *world) { w.pools[0].Pool.Name = "another" },
				"the types have other names": func(w *world) { w.pools[0].Catalog = renamed(t) },
				"every class is two": func(w *world) {
					for i, p := range w.pods {
						if i%2 == 0 {
							p.Spec.Tolerations = []corev1.Toleration{{Key: "nobody", Operator: corev1.TolerationOpExists}}
						}
					}
				},
			} {
				w := fresh()
				edit(w)
				got := ask(w)
				allowed := 0.005
				if want.Gap() <= 0 || row.pods > 0 {
					allowed = 0
				}
				if off := float64(got.Price)/float64(want.Price) - 1; off > allowed || off < -allowed || len(got.Refused) > 0 {
					t.Errorf("%s spot=%v: when %s the price is %v instead of %v, %d refused", name, spot, what, got.Price, want.Price, len(got.Refused))
				}
			}
		}
	}
}
