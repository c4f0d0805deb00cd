package replay

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/fakecloud"
	"karpenter.sh/karpenter/internal/memapi"
	"karpenter.sh/karpenter/internal/recording"
	"karpenter.sh/karpenter/internal/sim"
)

// machinesOf are the types of the nodes of a picture.
func machinesOf(snap *cluster.Snapshot) string {
	var out []string
	for n := range snap.Nodes() {
		out = append(out, n.Labels()[corev1.LabelInstanceTypeStable])
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// wave is so many pods of an app that come and go together.
func wave(n int, app, cpus string, from, to int) (out []recording.Life) {
	for i := range n {
		out = append(out, life(app+"-"+string(rune('a'+i)), cpus, from, to, func(p *corev1.Pod) { p.Labels["app"] = app }))
	}
	return out
}

// The same pods come and go under the controller's own loops and in a replay. Whenever it has been quiet for a while both have the same fleet.
func TestTheLoopsDecideTheSame(t *testing.T) {
	const search = work.Second / 10
	moments := []int{540, 1140, 1740, 2340, 2940, 3540}
	mixed := slices.Concat(wave(6, "web", "1500m", 0, 0), wave(5, "day", "900m", 600, 2400), wave(3, "job", "3", 1200, 1800), wave(1, "late", "200m", 3000, 0))
	for name, tc := range map[string]struct {
		edit  func(*v1.NodePool)
		lives []recording.Life
	}{
		"what is cheaper": {func(*v1.NodePool) {}, slices.Concat(wave(2, "web", "1", 0, 0), wave(6, "first", "1", 0, 600), wave(5, "day", "1", 1200, 1800), wave(6, "night", "1", 2400, 0))},
		"what is empty":   {func(p *v1.NodePool) { p.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmpty }, mixed},
		"nothing":         {func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0"}} }, mixed},
	} {
		t.Run(name, func(t *testing.T) {
			edit, lives := tc.edit, tc.lives
			cheap := &cloud.Catalog{Types: []*cloud.InstanceType{sim.Kind("large", 8, 0.3), sim.Kind("small", 2, 0.1)}} // for many pods the large one
			sold := func(*v1.NodePool) (*cloud.Catalog, error) { return cheap, nil }
			var live, replayed []string
			sim.BubbleAlone(t, sim.Options{Cloud: fakecloud.Options{Catalog: sold}}, func(t *testing.T, w *sim.World) {
				p := sim.Pool("default")
				edit(p)
				w.API.Put(p)
				w.With(t, sim.KarpenterOptions{Provision: true, Disrupt: true, Search: search}, func(k *sim.Karpenter) {
					time.Sleep(time.Second)
					begin := time.Now()
					for second := range moments[len(moments)-1] + 1 {
						time.Sleep(time.Until(begin.Add(time.Duration(second) * time.Second)))
						for _, l := range lives {
							if l.From.Equal(start.Add(time.Duration(second) * time.Second)) {
								sim.Create(t, w, l.Pod.DeepCopy())
							}
							if l.To.Equal(start.Add(time.Duration(second) * time.Second)) {
								for _, p := range memapi.All[*corev1.Pod](w.API) { // some have been made anew
									if p.Labels["app"] == l.Pod.Labels["app"] {
										memapi.Edit(w.API, p.Namespace, p.Name, func(p *corev1.Pod) { p.OwnerReferences = nil }) // nobody makes another one
										p.OwnerReferences = nil
										w.API.Remove(p)
									}
								}
							}
						}
						if slices.Contains(moments, second) {
							live = append(live, machinesOf(k.Store.Snapshot()))
						}
					}
				})
			})
			p := sim.Pool("default")
			edit(p)
			v := Variant{Name: "test", Store: cluster.NewStore(), Pools: []engine.Pool{{Pool: p, Catalog: cheap}}, Planner: disrupt.DefaultSettings(), Engine: engine.Settings{Search: search}}
			s := settings()
			s.Boot, s.Stop = 3*time.Second, 3*time.Second
			rec := record(t, 3600, lives...)
			r := newRun(rec, v, s)
			r.meter.begin(r, rec)
			defer r.meter.bounds.stop()
			for _, second := range moments {
				r.at(start.Add(time.Duration(second)*time.Second), func() { replayed = append(replayed, machinesOf(r.Store.Snapshot())) })
			}
			for len(r.next) > 0 && !r.next[0].at.After(r.end) {
				r.step()
			}
			if !slices.Equal(live, replayed) {
				t.Errorf("the loops had\n%s\nand the replay\n%s", strings.Join(live, "\n"), strings.Join(replayed, "\n"))
			}
		})
	}
}
