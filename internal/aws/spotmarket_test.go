package aws

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/hazard"
	"karpenter.sh/karpenter/internal/core/shape"
)

// A spotMarket takes machines back at rates of the published bands: each type has a band, and a zone is up to one band off.
type spotMarket struct {
	published map[string]float64 // by type
	truth     map[price.Pool]float64
	records   map[price.Pool]hazard.Record
}

func newSpotMarket(of *cloud.Catalog) *spotMarket {
	m := &spotMarket{published: map[string]float64{}, truth: map[price.Pool]float64{}, records: map[price.Pool]hazard.Record{}}
	rng := rand.New(rand.NewPCG(36, 3))
	for _, it := range of.Types {
		band := []int{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 4, 4}[rng.IntN(19)] // as often as in bands.txt
		m.published[it.Name] = hazard.OfBand(band)
		for _, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
			m.truth[price.Pool{Type: it.Name, Zone: zone}] = hazard.OfBand(band + rng.IntN(3) - 1)
		}
	}
	return m
}

// catalog returns what is sold with the hazards that are known at a time.
func (m *spotMarket) catalog(of *cloud.Catalog, now time.Time) *cloud.Catalog {
	return &cloud.Catalog{Types: withSpotChanged(of.Types, func(it *cloud.InstanceType, o *cloud.Offering) {
		o.Hazard = hazard.Nano(m.records[price.Pool{Type: it.Name, Zone: o.Zone()}].After(now).Rate(m.published[it.Name]))
	})}
}

// soldIn returns the types of ordinary sizes that the zones of a spot market sell.
func soldIn(t *testing.T) *cloud.Catalog {
	t.Helper()
	all, err := offline.Catalog(offline.Options{Zones: []string{"us-east-1a", "us-east-1b", "us-east-1c"}})
	if err != nil {
		t.Fatal(err)
	}
	out := &cloud.Catalog{}
	for _, it := range all.Types {
		family, size, _ := strings.Cut(it.Name, ".")
		if slices.Contains([]string{"large", "xlarge", "2xlarge", "4xlarge"}, size) && strings.Contains("cmr", family[:1]) && !it.Exotic {
			out.Types = append(out.Types, it)
		}
	}
	return out
}

// A month of a fleet on a spot market: what it pays and how many machines are expected to be taken back.
func (m *spotMarket) month(t *testing.T, of *cloud.Catalog, each float64) (dollars, interrupted float64) {
	t.Helper()
	const days, machines = 2, 100 // for each kind of pod
	rng, began := rand.New(rand.NewPCG(36, 4)), time.Unix(0, 0)
	e, store := engine.New(awsv1.Labels()), cluster.NewStore()
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "default"}}
	pool.Spec.Template.Spec.NodeClassRef = classRefTo("default")
	store.Update(func(d *cluster.Draft) {
		for i, need := range []string{"1500m 5Gi", "3500m 6Gi", "7 50Gi", "14 52Gi"} {
			cpu, memory, _ := strings.Cut(need, " ")
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint(i))}}
			p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}}}}
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{}}}}}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			d.PutPod(p)
		}
	})
	snap, run := store.Snapshot(), map[int][]price.Pool{}
	prices := map[price.Pool]float64{}
	for day := 0; day < 30; day += days {
		now := began.AddDate(0, 0, day)
		sold := m.catalog(of, now)
		plan := e.Plan(engine.Question{Snap: snap, Pools: []engine.Pool{{Pool: pool, Catalog: sold}}, Pods: snap.Provisionable(), Now: now,
			Settings: engine.Settings{InterruptionCost: cloud.FromDollars(each)}})
		if len(plan.Open) != 4 {
			t.Fatalf("%d nodes are planned, want one for each pod", len(plan.Open))
		}
		slices.SortFunc(plan.Open, func(a, b engine.Opening) int { return strings.Compare(a.Pods[0].Name, b.Pods[0].Name) })
		for i := range plan.Open {
			choice, err := fleet.Choose(asReckoned(sold.Types, plan.Open[i].Claim), plan.Open[i].Claim, shape.DefaultBand)
			if err != nil || choice.CapacityType != v1.CapacityTypeSpot {
				t.Fatalf("%s is bought, %v", choice.CapacityType, err)
			}
			var named []price.Pool
			for _, c := range choice.Candidates {
				for _, o := range c.Offerings {
					at := price.Pool{Type: c.Type.Name, Zone: o.Zone()}
					named = append(named, at)
					prices[at] = o.Price.Dollars()
					if each > 0 {
						prices[at] -= o.Risk(cloud.FromDollars(each)).Dollars()
					}
				}
			}
			for len(run[i]) < machines {
				run[i] = append(run[i], named[rng.IntN(len(named))]) // EC2 chooses
			}
			kept := run[i][:0]
			for _, at := range run[i] {
				p := -math.Expm1(-24 * days * m.truth[at])
				dollars += 24 * days * prices[at]
				interrupted += p
				m.records[at] = m.records[at].Ran(now.AddDate(0, 0, days), 24*days)
				if rng.Float64() < p {
					m.records[at] = m.records[at].Interrupted(now.AddDate(0, 0, days))
				} else if rng.IntN(2) == 0 { // the other half goes because pods come and go
					kept = append(kept, at)
				}
			}
			run[i] = kept
		}
	}
	return dollars, interrupted
}

// On a spot market that is driven by the published bands, reckoning with interruptions saves a fifth of them for three percent more at most.
func TestASpotMarketByBands(t *testing.T) {
	sold := soldIn(t)
	dollars, interrupted := newSpotMarket(sold).month(t, sold, 0)
	t.Logf("%d types; off: $%.0f a month, %.1f machines taken back", len(sold.Types), dollars, interrupted)
	more, fewer := newSpotMarket(sold).month(t, sold, 50)
	t.Logf("an interruption costs $50: $%.0f a month (%+.2f %%), %.1f machines taken back (%+.1f %%)", more, 100*(more/dollars-1), fewer, 100*(fewer/interrupted-1))
	if fewer > 0.8*interrupted || more > 1.03*dollars {
		t.Errorf("%.1f machines are taken back instead of %.1f, for $%.0f instead of $%.0f; want a fifth fewer for 3 %% more at most", fewer, interrupted, more, dollars)
	}
}
