package open_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/open"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// market sells eight sizes on demand and as spot, in two zones, at prices of their own.
type market struct{ catalog *cloud.Catalog }

func (m market) Pools(_ context.Context, snap *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	pools := map[string]engine.Pool{}
	for p := range cluster.Pools.All(snap) {
		pools[p.Name] = engine.Pool{Pool: p, Catalog: m.catalog}
	}
	return pools, nil
}

func newMarket(r *rand.Rand) market {
	c := &cloud.Catalog{}
	for i := range 8 {
		it := &cloud.InstanceType{Name: fmt.Sprintf("t%d", i), Capacity: cpus(int64(1 + r.IntN(16))), Labels: map[string][]string{}}
		for _, zone := range []string{"a", "b"} {
			for _, ct := range []string{v1.CapacityTypeSpot, v1.CapacityTypeOnDemand} {
				it.Offerings = append(it.Offerings, cloud.Offering{Available: true, Price: cloud.NanoUSD(1e6 * (1 + r.Int64N(900))),
					Labels: map[string]string{corev1.LabelTopologyZone: zone, v1.CapacityTypeLabelKey: ct}})
			}
		}
		c.Types = append(c.Types, it)
	}
	return market{c}
}

// worst returns the dearest machine that a claim may become, and what it costs.
func (m market) worst(c *v1.NodeClaim) (o *cloud.Offering, it *cloud.InstanceType) {
	allows := func(key, value string) bool {
		return !slices.ContainsFunc(c.Spec.Requirements, func(r v1.NodeSelectorRequirementWithMinValues) bool {
			return r.Key == key && !slices.Contains(r.Values, value)
		})
	}
	for _, t := range m.catalog.Types {
		for i := range t.Offerings {
			at := &t.Offerings[i]
			if allows(corev1.LabelInstanceTypeStable, t.Name) && allows(corev1.LabelTopologyZone, at.Zone()) &&
				allows(v1.CapacityTypeLabelKey, at.CapacityType()) && (o == nil || at.Price > o.Price) {
				o, it = at, t
			}
		}
	}
	return o, it
}

func pick[T any](r *rand.Rand, from []T) []T {
	out := slices.DeleteFunc(slices.Clone(from), func(T) bool { return r.IntN(2) == 0 })
	if len(out) == 0 {
		return from[:1]
	}
	return out
}

// In a thousand worlds several loops open and replace machines at once. Whatever is launched of what the claims list, the machines that
// are not about to be replaced never cost more than the quota allows, nor do spot machines of the quota on these.
func TestQuotasHoldForConcurrentOpens(t *testing.T) {
	var opened, refused, replaced atomic.Int64
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w, m := &world{api: memapi.New(memapi.Scheme()), store: cluster.NewStore()}, newMarket(r)
			limit, spots := 500_000+r.Int64N(3_000_000), r.Int64N(6)
			w.store.Update(func(d *cluster.Draft) {
				d.Synced(true)
				for _, name := range []string{"default", "other"} {
					cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
				}
				cluster.Quotas.Put(d, quotaOf("dollars", nil, autoscalingv1beta1.ResourceDollars, limit))
				cluster.Quotas.Put(d, quotaOf("spots", map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeSpot}, "nodes", spots))
			})
			metrics := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
			w.service = open.New(w.store, w.api.Client("main"), m, metrics,
				telemetry.NewEvents(func(context.Context, *corev1.Event) error { return nil }, metrics))
			gone := map[string]bool{}
			for round := range 3 {
				var wait sync.WaitGroup
				for caller := range 3 {
					openings, of := randomOpenings(r, m, w, 1+r.IntN(4)), map[types.UID]bool{}
					for n := range w.store.Snapshot().Nodes() {
						if caller == 0 && r.IntN(2) == 0 && !gone[n.Name] {
							of[n.Claim.UID], gone[n.Name] = true, true
						}
					}
					wait.Go(func() {
						name := fmt.Sprint(round, caller)
						if len(of) > 0 {
							_, err := w.service.Replace(t.Context(), name, "drifted", engine.Replacement{Open: openings, Of: of}, nil)
							if err == nil {
								replaced.Add(1)
							}
							return
						}
						claims, err := w.service.Open(t.Context(), name, "provisioned", openings)
						var limit *open.LimitError
						if err != nil && !errors.As(err, &limit) {
							t.Errorf("seed %d: %v", seed, err)
						}
						for _, c := range claims {
							if c != nil {
								opened.Add(1)
							} else {
								refused.Add(1)
							}
						}
					})
				}
				wait.Wait()
				dollars, spotNodes := int64(0), int64(0)
				for n := range w.store.Snapshot().Nodes() {
					o, _ := m.worst(n.Claim)
					if ct := n.Claim.Labels[v1.CapacityTypeLabelKey]; !gone[n.Name] {
						dollars += (int64(o.Price) + 999) / 1000
						if ct == v1.CapacityTypeSpot || ct == "" && maySpot(n.Claim) {
							spotNodes++
						}
					}
				}
				if dollars > limit || spotNodes > spots {
					t.Fatalf("seed %d, round %d: %d micro-dollars of %d, %d spot machines of %d", seed, round, dollars, limit, spotNodes, spots)
				}
				launchSome(r, m, w)
			}
		})
	}
	if opened.Load() < 1000 || refused.Load() < 1000 || replaced.Load() < 100 {
		t.Errorf("%d opened, %d refused, %d steps: the worlds are too easy or too hard", opened.Load(), refused.Load(), replaced.Load())
	}
}

func maySpot(c *v1.NodeClaim) bool {
	return slices.ContainsFunc(c.Spec.Requirements, func(r v1.NodeSelectorRequirementWithMinValues) bool {
		return r.Key == v1.CapacityTypeLabelKey && slices.Contains(r.Values, v1.CapacityTypeSpot)
	})
}

func quotaOf(name string, selector map[string]string, of autoscalingv1beta1.ResourceName, limit int64) *autoscalingv1beta1.CapacityQuota {
	q := &autoscalingv1beta1.CapacityQuota{ObjectMeta: metav1.ObjectMeta{Name: name}}
	q.Spec.Limits.Resources = autoscalingv1beta1.QuotaAmounts{of: *resource.NewQuantity(limit, resource.DecimalSI)}
	if selector != nil {
		q.Spec.Selector = &metav1.LabelSelector{MatchLabels: selector}
	}
	return q
}

func randomOpenings(r *rand.Rand, m market, w *world, n int) []engine.Opening {
	var all []string
	for _, it := range m.catalog.Types {
		all = append(all, it.Name)
	}
	var out []engine.Opening
	for range n {
		o := w.opening(pick(r, all))
		o.Pool = []string{"default", "other"}[r.IntN(2)]
		o.Claim.Labels[v1.NodePoolLabelKey] = o.Pool
		for key, values := range map[string][]string{
			corev1.LabelTopologyZone: {"a", "b"}, v1.CapacityTypeLabelKey: {v1.CapacityTypeOnDemand, v1.CapacityTypeSpot}} {
			o.Claim.Spec.Requirements = append(o.Claim.Spec.Requirements,
				v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: pick(r, values)})
		}
		out = append(out, o)
	}
	return out
}

// launchSome launches about half of the claims as the dearest machine that each lists.
func launchSome(r *rand.Rand, m market, w *world) {
	w.store.Update(func(d *cluster.Draft) {
		for n := range w.store.Snapshot().Nodes() {
			if r.IntN(2) == 0 || len(n.Claim.Status.Capacity) > 0 {
				continue
			}
			o, it := m.worst(n.Claim)
			c := n.Claim.DeepCopy()
			c.Status.Capacity = it.Capacity
			c.Labels[corev1.LabelInstanceTypeStable] = it.Name
			for key, value := range o.Labels {
				c.Labels[key] = value
			}
			d.PutClaim(c)
		}
	})
}
