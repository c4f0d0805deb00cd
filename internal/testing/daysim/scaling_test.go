package daysim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/testing/benchload"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestAfterAScaleDownTheBillFollows plays what bench/peer plays on a local cluster: 500 thin and 500 fat pods, of which 65 % go at once, under a budget of
// ten percent. How soon the fleet is small again is a matter of how well the budget is used: nodes take five seconds to go, and the next have
// to be ready by then.
func TestAfterAScaleDownTheBillFollows(t *testing.T) {
	const (
		each, left = 500, 175
		within     = 3 * time.Minute
		overBound  = 1.18 // times what a fleet that is bought anew costs, by then
		onTheWay   = 0.64 // of what the fleet cost at first, on the mean of these minutes
		mostMoved  = 0.9  // evictions of each pod that is left
	)
	types, err := offline.Catalog(offline.Options{Zones: benchload.Zones()})
	if err != nil {
		t.Fatal(err)
	}
	price := prices(types)
	options := sim.Options{Cloud: fakecloud.Options{Catalog: func(*v1.NodePool) (*cloud.Catalog, error) { return types, nil }}}
	sim.Bubble(t, options, sim.KarpenterOptions{Provision: true, Disrupt: true, Search: work.Second}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		consolidate := func(after v1.NillableDuration) {
			w.API.Put(pool(func(p *v1.NodePool) {
				p.Spec.Template.Spec.Requirements = benchload.Pool(false, false).Spec.Template.Spec.Requirements
				p.Spec.Disruption.ConsolidateAfter = after
				p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "10%"}}
			}))
		}
		consolidate(v1.MustParseNillableDuration(v1.Never))
		sizes := []struct{ app, cpu, memory string }{{"thin", "900m", "3100Mi"}, {"fat", "3500m", "28Gi"}}
		for i := range each {
			for _, size := range sizes {
				p := sim.Pod(fmt.Sprintf("%s-%03d", size.app, i), size.cpu, func(p *corev1.Pod) { p.Labels["app"] = size.app }, owned)
				p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(size.memory)
				sim.Create(t, w, p)
			}
		}
		settle(t, w, k, 10*time.Minute)
		evicted, before := watchEvictions(w), spending(w, price)
		consolidate(v1.After(10 * time.Second))
		for _, size := range sizes {
			shrink(t, w, size.app, left)
		}
		mean := 0.0
		for second := range int(within.Seconds()) {
			if second%30 == 0 {
				t.Logf("%3d s: $%.2f an hour, %d machines, %d evictions", second, spending(w, price), len(w.Cloud.Machines()), evicted.pods())
			}
			time.Sleep(time.Second)
			mean += spending(w, price) / within.Seconds()
		}
		after, least, moved := spending(w, price), bound(t, k, types), float64(evicted.pods())/(left*2)
		t.Logf("$%.2f an hour, then $%.2f, on the mean $%.2f; at least $%.2f; %d evictions", before, after, mean, least, evicted.pods())
		if after > overBound*least || mean > onTheWay*before || moved > mostMoved {
			t.Errorf("after %v the fleet costs %.2f times the bound, want %.2f; on the mean %.2f of what it was, want %.2f; %.2f evictions a pod, want %.2f",
				within, after/least, overBound, mean/before, onTheWay, moved, mostMoved)
		}
	})
}

// shrink scales a Deployment down as its ReplicaSet does: pods go first from where there are most of them.
func shrink(t *testing.T, w *sim.World, app string, to int) {
	t.Helper()
	var pods []*corev1.Pod
	beside := map[string]int{}
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		if p.Labels["app"] == app && p.DeletionTimestamp == nil {
			pods = append(pods, p)
			beside[p.Spec.NodeName]++
		}
	}
	chance := func(p *corev1.Pod) uint64 {
		h := fnv.New64a()
		h.Write([]byte(p.Name))
		return h.Sum64()
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(beside[b.Spec.NodeName], beside[a.Spec.NodeName]), cmp.Compare(chance(a), chance(b)))
	})
	for _, p := range pods[:len(pods)-to] {
		memapi.Edit(w.API, p.Namespace, p.Name, func(p *corev1.Pod) { p.OwnerReferences = nil })
		sim.Delete(t, w, p)
	}
}
