package aws

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
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
	"karpenter.sh/karpenter/internal/aws/spotshare"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/hazard"
	"karpenter.sh/karpenter/internal/core/shape"
)

// A spotMarket takes machines back at rates of the published bands. Each type has a band. The true rate of a type in a zone differs from
// that of its band by a factor whose mean is 1, and which is from 0.6 to 1.6 for two of three.
type spotMarket struct {
	seed      uint64
	published map[string]float64 // by type
	truth     map[price.Pool]float64
	records   map[price.Pool]hazard.Record
}

func newSpotMarket(of *cloud.Catalog, seed uint64) *spotMarket {
	const sigma = 0.5
	m := &spotMarket{seed: seed, published: map[string]float64{}, truth: map[price.Pool]float64{}, records: map[price.Pool]hazard.Record{}}
	rng := rand.New(rand.NewPCG(36, seed))
	for _, it := range of.Types {
		band := []int{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 4, 4}[rng.IntN(19)] // as often as in bands.txt
		m.published[it.Name] = hazard.OfBand(band)
		for _, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
			m.truth[price.Pool{Type: it.Name, Zone: zone}] = hazard.OfBand(band) * math.Exp(sigma*rng.NormFloat64()-sigma*sigma/2)
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

// left returns how many machines a pool has left: from 5 to 25, another number every three hours, without those that were just launched.
func (m *spotMarket) left(p price.Pool, hour int, launched map[price.Pool]int) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, p)
	return 5 + 20*rand.New(rand.NewPCG(m.seed+h.Sum64(), uint64(hour/3))).Float64() - float64(launched[p])
}

// An offered is one pool that a launch names, and its price without risk.
type offered struct {
	price.Pool
	dollars float64
}

// pick returns what EC2 launches: the cheapest of the named pools that have most left, as price-capacity-optimized does.
func (m *spotMarket) pick(named []offered, hour int, launched map[price.Pool]int) offered {
	most := 0.0
	for _, o := range named {
		most = max(most, m.left(o.Pool, hour, launched))
	}
	deep := slices.DeleteFunc(slices.Clone(named), func(o offered) bool { return m.left(o.Pool, hour, launched) < 0.6*most })
	got := slices.MinFunc(deep, func(a, b offered) int { return cmp.Compare(a.dollars, b.dollars) })
	launched[got.Pool]++
	return got
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

// A spotSetting is what a user sets.
type spotSetting struct {
	each  float64 // dollars that an interruption costs
	types int     // that a launch names at most; 0 for the default
	share string  // of one type in one zone; "" for no limit
}

// A spotDay is a fleet that is played against a spot market.
type spotDay struct {
	*spotMarket
	spotSetting
	t    *testing.T
	sold *cloud.Catalog

	work, chance *rand.Rand // separate, so that all fleets get the same pods
	engine       *engine.Engine
	ledger       *spotshare.Ledger
	on           []*spotMachine
	spotOutcome
}

// A spotOutcome is what a day came to. Interruptions are expected ones, by the true rates.
type spotOutcome struct{ dollars, interrupted, worst, loss, equal float64 }

type spotMachine struct {
	offered
	ends   []int // the hours in which its pods end
	counts spotshare.Weights
}

// arrivals returns the pods of an hour: of each of seven services some, more by day, that run from one to twelve hours. lives is by name.
func (d *spotDay) arrivals(hour int) (snap *cluster.Snapshot, lives map[string]int) {
	store, lives := cluster.NewStore(), map[string]int{}
	busy := 1.5 + math.Sin(2*math.Pi*float64(hour-8)/24)
	store.Update(func(draft *cluster.Draft) {
		for i, s := range []struct {
			cpu, memory string
			pods        float64
		}{{"250m", "512Mi", 20}, {"500m", "1Gi", 16}, {"1", "4Gi", 10}, {"2", "4Gi", 8}, {"500m", "4Gi", 8}, {"4", "14Gi", 3}, {"1", "8Gi", 6}} {
			hours, controls := 1+d.work.IntN(12), true
			for n := range int(s.pods * busy * (0.5 + d.work.Float64())) {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%d-%d", i, n)}}
				p.UID = types.UID(p.Name)
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprint("app-", i),
					UID: types.UID(fmt.Sprint("app-", i)), Controller: &controls}}
				p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					"cpu": resource.MustParse(s.cpu), "memory": resource.MustParse(s.memory)}}}}
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
					Reason: corev1.PodReasonUnschedulable}}
				lives[p.Name] = hours
				draft.PutPod(p)
			}
		}
	})
	return store.Snapshot(), lives
}

// launch plans the pods of an hour and launches what is planned.
func (d *spotDay) launch(hour int, now time.Time) {
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "default"}}
	if d.share != "" {
		pool.Annotations = map[string]string{v1.SpotMaxShareAnnotationKey: d.share}
	}
	pool.Spec.Template.Spec.NodeClassRef = classRefTo("default")
	snap, lives := d.arrivals(hour)
	sold := d.catalog(d.sold, now)
	plan := d.engine.Plan(engine.Question{Snap: snap, Pools: []engine.Pool{{Pool: pool, Catalog: sold}}, Pods: snap.Provisionable(), Now: now,
		Settings: engine.Settings{InterruptionCost: cloud.FromDollars(d.each), Band: shape.SpotBand(d.types)}})
	launched := map[price.Pool]int{}
	for i := range plan.Open {
		got := d.pick(d.named(sold, plan.Open[i:]), hour, launched)
		m := &spotMachine{offered: got, counts: weightsOf(plan.Open[i].Claim)}
		for _, p := range plan.Open[i].Pods {
			m.ends = append(m.ends, hour+lives[p.Name])
		}
		d.on = append(d.on, m)
	}
}

// named returns what the launch of the first of the openings names while the others wait.
func (d *spotDay) named(sold *cloud.Catalog, waiting []engine.Opening) (out []offered) {
	claim := waiting[0].Claim
	list := asReckoned(sold.Types, claim)
	choice, err := fleet.Choose(list, claim, shape.SpotBand(d.types))
	if share, no := v1.SpotMaxShare(d.share); no == nil {
		q := &spotshare.Question{NodePool: "default", Share: share, Near: choice.Offerings()}
		for _, m := range d.on {
			q.Running = append(q.Running, spotshare.Machine{Pool: m.Pool, Weights: m.counts})
		}
		for i := range waiting {
			q.Waiting = append(q.Waiting, weightsOf(waiting[i].Claim))
		}
		within, _, done := spotWithin(d.ledger, q, list, claim)
		done()
		choice, err = fleet.Choose(within, claim, shape.SpotBand(d.types))
	}
	if err != nil || choice.CapacityType != v1.CapacityTypeSpot {
		d.t.Fatalf("%s is bought, %v", choice.CapacityType, err)
	}
	for _, c := range choice.Candidates {
		for _, o := range c.Offerings {
			paid := o.Price
			if d.each > 0 {
				paid -= o.Risk(cloud.FromDollars(d.each))
			}
			out = append(out, offered{price.Pool{Type: c.Type.Name, Zone: o.Zone()}, paid.Dollars()})
		}
	}
	return out
}

// pass lets an hour pass. What is taken back counts, and is replaced by the same. average is the rate of which all predictions would be
// made if all offerings were equal.
func (d *spotDay) pass(hour int, now time.Time, average float64) {
	load, kept := map[price.Pool]int{}, d.on[:0]
	for _, m := range d.on {
		p := -math.Expm1(-d.truth[m.Pool])
		load[m.Pool] += len(m.ends)
		d.dollars += m.dollars
		d.interrupted += p * float64(len(m.ends))
		said := -math.Expm1(-d.records[m.Pool].After(now).Rate(d.published[m.Type]))
		all := -math.Expm1(-average)
		d.loss -= p*math.Log(said) + (1-p)*math.Log1p(-said)
		d.equal -= p*math.Log(all) + (1-p)*math.Log1p(-all)
		next := now.Add(time.Hour)
		d.records[m.Pool] = d.records[m.Pool].Ran(next, 1)
		if d.chance.Float64() < p {
			d.records[m.Pool] = d.records[m.Pool].Interrupted(next)
		}
		if m.ends = slices.DeleteFunc(m.ends, func(end int) bool { return end <= hour+1 }); len(m.ends) > 0 {
			kept = append(kept, m)
		}
	}
	for _, pods := range load {
		d.worst = max(d.worst, float64(pods))
	}
	clear(d.on[len(kept):])
	d.on = kept
}

// playSpot plays a day of a market with a seed.
func playSpot(t *testing.T, sold *cloud.Catalog, seed uint64, s spotSetting) spotOutcome {
	t.Helper()
	d := &spotDay{spotMarket: newSpotMarket(sold, seed), spotSetting: s, t: t, sold: sold, engine: engine.New(awsv1.Labels()),
		ledger: spotshare.New(), work: rand.New(rand.NewPCG(37, seed)), chance: rand.New(rand.NewPCG(38, seed))}
	average := 0.0
	for _, p := range spotPools(d.truth) {
		average += d.truth[p] / float64(len(d.truth))
	}
	for hour := range 24 {
		now := time.Unix(0, 0).Add(time.Duration(hour) * time.Hour)
		d.launch(hour, now)
		d.pass(hour, now, average)
	}
	return d.spotOutcome
}

// spotPools returns the keys in an order that is always the same, so that sums are too.
func spotPools(of map[price.Pool]float64) (out []price.Pool) {
	for p := range of {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b price.Pool) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Zone, b.Zone)) })
	return out
}

// TestASpotMarketByBands plays a day on some markets with an interruption cost and with a share. SPOT_DAYS=1 plays more markets and
// settings; their figures are in docs/spot.md.
func TestASpotMarketByBands(t *testing.T) {
	sold, seeds := soldIn(t), uint64(2)
	few, most := spotSetting{each: 250, types: 5}, spotSetting{each: 350, types: 5, share: "25%"}
	settings := []spotSetting{{}, few, most}
	if os.Getenv("SPOT_DAYS") != "" {
		seeds = 8
		settings = []spotSetting{{}, {types: 5}, {each: 2}, {each: 50}, {each: 250}, {each: 500}, {each: 50, types: 5},
			{each: 100, types: 5}, few, {each: 500, types: 5}, {share: "50%"}, {share: "33%"}, {share: "25%"}, {each: 350, types: 5, share: "50%"},
			{each: 350, types: 5, share: "33%"}, most}
	}
	var off spotOutcome
	for _, s := range settings {
		var sum spotOutcome
		for seed := range seeds {
			o := playSpot(t, sold, seed, s)
			sum.dollars, sum.interrupted, sum.worst = sum.dollars+o.dollars, sum.interrupted+o.interrupted, sum.worst+o.worst
			sum.loss, sum.equal = sum.loss+o.loss, sum.equal+o.equal
		}
		if s == (spotSetting{}) {
			off = sum
		}
		dollars, interrupted, worst := 100*(sum.dollars/off.dollars-1), 100*(sum.interrupted/off.interrupted-1), 100*(sum.worst/off.worst-1)
		t.Logf("cost $%.0f, types %d, share %q: $%.0f (%+.1f %%), %.1f pods interrupted (%+.0f %%), "+
			"the worst failure takes %.0f pods (%+.0f %%); log-loss %.3f, of one rate for all %.3f", s.each, s.types, s.share, sum.dollars/float64(seeds), dollars, sum.interrupted/float64(seeds),
			interrupted, sum.worst/float64(seeds), worst, sum.loss, sum.equal)
		if sum.loss > 0.97*sum.equal {
			t.Errorf("the log-loss is %.3f of that of one rate for all, want 0.97", sum.loss/sum.equal)
		}
		if s == few && (interrupted > -30 || dollars > 2) {
			t.Error("want 30 % fewer pods interrupted for 2 % more dollars at most")
		}
		if s == most && (interrupted > 0 || worst > -50 || dollars > 10) {
			t.Error("want half as many pods in the worst failure, for 10 % more dollars at most")
		}
	}
}
