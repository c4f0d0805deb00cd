package replay

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/history/recording"
	"karpenter.sh/karpenter/internal/testing/benchload"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
)

var start = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// variant sells machines of 2 and 8 cores at 0.1 and 0.4 dollars an hour.
func variant(edits ...func(*v1.NodePool)) Variant {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"}}
	p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "test", Kind: "Class", Name: "default"}
	p.Spec.Disruption.ConsolidateAfter = v1.After(0)
	p.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmptyOrUnderutilized
	p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
	for _, edit := range edits {
		edit(p)
	}
	c := &cloud.Catalog{Types: []*cloud.InstanceType{fakecloud.Kind("large", 8, 0.4, "a"), fakecloud.Kind("small", 2, 0.1, "a")}}
	return Variant{
		Name: "test", Store: cluster.NewStore(), Pools: []engine.Pool{{Pool: p, Catalog: c}}, Planner: disrupt.DefaultSettings(),
		Engine: engine.Settings{Search: work.Second / 10},
	}
}

func settings() Settings {
	return Settings{Boot: time.Minute, Stop: 30 * time.Second, BatchIdle: time.Second, BatchMax: 10 * time.Second, Pace: 10 * time.Second, Samples: 6}
}

// life is a pod from one second after start to another; to the end if that is 0.
func life(name, cpus string, from, to int, edits ...func(*corev1.Pod)) recording.Life {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}}}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: types.UID("web"), Controller: new(true)}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}}}}
	for _, edit := range edits {
		edit(p)
	}
	l := recording.Life{Pod: p, From: start.Add(time.Duration(from) * time.Second)}
	if to > 0 {
		l.To = start.Add(time.Duration(to) * time.Second)
	}
	return l
}

func record(t testing.TB, seconds int, lives ...recording.Life) *recording.Recording {
	t.Helper()
	r, err := recording.Of("test", lives, start.Add(time.Duration(seconds)*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func play(t testing.TB, rec *recording.Recording, v Variant, s Settings) *Result {
	t.Helper()
	out, err := Run(t.Context(), rec, v, s, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// One pod of a core and a half needs a machine of two cores: launched a second after it came (when its batch is complete), and gone 30
// seconds after somebody saw that it was empty.
func TestABillWorkedOutByHand(t *testing.T) {
	got := play(t, record(t, 7200, life("first", "1500m", 0, 0), life("web", "1500m", 900, 4500)), variant(), settings())
	// The first machine runs for 7199 s. The second from 901 s until its pod ends at 4500 s, is seen to be empty for a while, and takes 30 s to stop.
	least, most := (7199+3599+30)*0.1/3600, (7199+3599+30+40)*0.1/3600
	if got.Dollars < least-0.0001 || got.Dollars > most {
		t.Errorf("the bill is $%.4f, want %.4f to %.4f", got.Dollars, least, most)
	}
	if got.Launched != 2 || got.PeakNodes != 2 || got.Pods != 2 || got.Evictions != 0 || got.Unplaced != 0 || got.Steps["Empty"] != 1 {
		t.Errorf("%+v", got)
	}
	if want := (Waits{61, 61, 61}); got.WaitSeconds != want { // a second until the batch is complete, a minute to boot; the first pod was there
		t.Errorf("waited %+v, want %+v", got.WaitSeconds, want)
	}
	// The bound is proven in the middle of six parts of twenty minutes, in three of which there are two pods.
	if want := 0.1 * 2 * (1 + 3.0/6); got.Bound > want+0.0001 || got.Bound < want*0.99 {
		t.Errorf("the bound is $%.4f, want %.4f", got.Bound, want)
	}
	if got.Regret < 0 || got.Regret > 0.05 {
		t.Errorf("regret %.4f", got.Regret)
	}
}

// fewStay makes n pods, so many seconds after one another, of which one in every few stays. The others end at the same time.
func fewStay(n, every, end int, cpu string, apart int) []recording.Life {
	var out []recording.Life
	for i := range n {
		to := 0
		if i%every != 0 {
			to = end
		}
		out = append(out, life(fmt.Sprintf("web-%02d", i), cpu, apart*i, to))
	}
	return out
}

// Six pods of a core each are on three small machines or one large. When four of them end, what is left needs one small one.
func TestTheFleetShrinksWithItsPods(t *testing.T) {
	lives := fewStay(6, 3, 3600, "1", 0)
	got := play(t, record(t, 7200, lives...), variant(), settings())
	last := got.Curve[len(got.Curve)-1]
	if last.Nodes != 1 || last.Price != 0.1 || last.Pods != 2 || last.Waiting != 0 {
		t.Errorf("at last %+v", last)
	}
}

// A pool that only removes empty nodes keeps what is half empty: it is the dearer one.
func TestTheDearerOfTwoVariants(t *testing.T) {
	lives := fewStay(40, 4, 1800, "500m", 1)
	rec := record(t, 4*3600, lives...)
	free := play(t, rec, variant(), settings())
	kept := play(t, rec, variant(func(p *v1.NodePool) { p.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmpty }), settings())
	if free.Dollars >= 0.8*kept.Dollars || free.Bound != kept.Bound {
		t.Errorf("$%.2f with consolidation, $%.2f without; the bounds are %.4f and %.4f", free.Dollars, kept.Dollars, free.Bound, kept.Bound)
	}
	if kept.Evictions != 0 || free.Evictions == 0 {
		t.Errorf("%d evictions with consolidation, %d without", free.Evictions, kept.Evictions)
	}
}

func TestADisruptionBudgetOfPodsHolds(t *testing.T) {
	lives := fewStay(8, 4, 1800, "1500m", 0)
	v := variant(func(p *v1.NodePool) { // one pod a machine until they may share
		p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"large"}}}
	})
	v.Store.Update(func(d *cluster.Draft) {
		cluster.PDBs.Put(d, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}})
	})
	if got := play(t, record(t, 7200, lives...), v, settings()); got.Evictions != 0 {
		t.Errorf("%d evictions under a budget that allows none", got.Evictions)
	}
}

func TestAllowances(t *testing.T) {
	one, half, none := intstr.FromInt32(1), intstr.FromString("50%"), intstr.FromInt32(0)
	for name, tc := range map[string]struct {
		spec     policyv1.PodDisruptionBudgetSpec
		expected int
		want     int
	}{
		"a number that stays":                {policyv1.PodDisruptionBudgetSpec{MinAvailable: &one}, 5, 1},
		"half of five that stays is three":   {policyv1.PodDisruptionBudgetSpec{MinAvailable: &half}, 5, 3},
		"one of five may be missing":         {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one}, 5, 4},
		"half of five that may go is three":  {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &half}, 5, 2},
		"none may be missing":                {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none}, 5, 5},
		"a budget that says nothing holds":   {policyv1.PodDisruptionBudgetSpec{}, 5, 5},
		"one that nobody can read holds all": {policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromString("half"))}, 5, 5},
	} {
		t.Run(name, func(t *testing.T) {
			if got := desired(&policyv1.PodDisruptionBudget{Spec: tc.spec}, tc.expected); got != tc.want {
				t.Errorf("desired = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestMachinesExpire(t *testing.T) {
	v := variant(func(p *v1.NodePool) { p.Spec.Template.Spec.ExpireAfter = v1.After(time.Hour) })
	got := play(t, record(t, 3*3600, life("web", "1", 0, 0)), v, settings())
	if got.Launched != 3 || got.Evictions != 2 || got.Steps["Expired"] != 2 || got.WaitSeconds.Max != 61 {
		t.Errorf("%d machines, %d evictions, steps %v, waited %+v", got.Launched, got.Evictions, got.Steps, got.WaitSeconds)
	}
}

func TestPodsThatFitNowhere(t *testing.T) {
	got := play(t, record(t, 7200, life("ok", "1", 0, 0), life("huge", "64", 60, 0), life("short", "64", 60, 120)), variant(), settings())
	if got.Unplaced != 1 || got.Launched != 1 {
		t.Errorf("%d without a place, %d machines", got.Unplaced, got.Launched)
	}
}

// What the engine alone can place: pods that keep apart, and those that are kept off by selectors.
func TestEntangledPods(t *testing.T) {
	apart := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}}}
	}
	got := play(t, record(t, 3600, life("a", "100m", 0, 0, apart), life("b", "100m", 0, 0, apart), life("c", "100m", 60, 0, apart)), variant(), settings())
	if last := got.Curve[len(got.Curve)-1]; last.Nodes != 3 || got.Unplaced != 0 || last.Waiting != 0 {
		t.Errorf("at last %+v, %d without a place", last, got.Unplaced)
	}
	other := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelInstanceTypeStable: "large"} }
	got = play(t, record(t, 3600, life("a", "100m", 0, 0), life("b", "100m", 600, 0, other)), variant(), settings())
	if got.WaitSeconds.Max != 61 || got.Launched < 2 {
		t.Errorf("waited %+v, %d machines", got.WaitSeconds, got.Launched)
	}
}

// days makes pods that come and go for a while: half of them more by day than by night.
func days(seed uint64, length time.Duration, standing int) []recording.Life {
	random := rand.New(rand.NewPCG(seed, 1))
	cpus, memory := []string{"250m", "500m", "1", "1500m", "2"}, []string{"512Mi", "1Gi", "2Gi", "4Gi", "6Gi"}
	var out []recording.Life
	add := func(from, to time.Duration) {
		if to >= length {
			to = 0
		}
		m := memory[random.IntN(len(memory))]
		out = append(out, life(fmt.Sprintf("pod-%06d", len(out)), cpus[random.IntN(len(cpus))], int(from.Seconds()), int(to.Seconds()), func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(m)
		}))
	}
	lasts := func(mean time.Duration) time.Duration {
		return (time.Minute + time.Duration(random.ExpFloat64()*float64(mean))).Truncate(time.Second)
	}
	for range standing / 2 {
		add(0, length)
	}
	for range standing / 4 { // replaced about every other day
		for at := time.Duration(0); at < length; {
			to := at + lasts(48*time.Hour)
			add(at, to)
			at = to + time.Second
		}
	}
	for day := time.Duration(0); day < length; day += 24 * time.Hour { // by day only
		for range standing / 4 {
			from := day + 7*time.Hour + time.Duration(random.Float64()*float64(3*time.Hour)).Truncate(time.Second)
			if from < length {
				add(from, from+7*time.Hour+lasts(2*time.Hour))
			}
		}
	}
	return out
}

func TestTheSameBytesAgain(t *testing.T) {
	rec := record(t, 24*3600, days(1, 24*time.Hour, 120)...)
	s := settings()
	s.Pace = time.Minute
	first, _ := json.Marshal(play(t, rec, variant(), s))
	again, _ := json.Marshal(play(t, rec, variant(), s))
	if string(first) != string(again) {
		t.Errorf("\n%s\n%s", first, again)
	}
}

// A day of pods that come and go costs little more than it must, and nobody waits longer than two machines boot.
func TestADay(t *testing.T) {
	s := settings()
	s.Pace, s.Samples = 2*time.Minute, 12
	got := play(t, record(t, 24*3600, days(2, 24*time.Hour, 200)...), variant(), s)
	if got.Regret > 0.15 || got.Regret < 0 || got.Unplaced > 0 || got.WaitSeconds.P95 > 75 || got.WaitSeconds.Max > 200 || got.EvictionsByPodDay > 1 {
		got.Curve = nil
		t.Errorf("%+v", got)
	}
}

// BenchmarkReplay plays hours, a day and a week. With KARPENTER_SOAK=1 the latter two are of 2,000 nodes: about 27,000 pods by day and 21,000 by
// night. Without it there are the hours only.
func BenchmarkReplay(b *testing.B) {
	b.Run("four hours of 100 nodes", func(b *testing.B) { benchmarkReplay(b, 4*time.Hour, 1400) })
	if os.Getenv("KARPENTER_SOAK") == "" {
		return
	}
	b.Run("a day of 2000 nodes", func(b *testing.B) { benchmarkReplay(b, 24*time.Hour, 28_000) })
	b.Run("a week of 2000 nodes", func(b *testing.B) { benchmarkReplay(b, 7*24*time.Hour, 28_000) })
}

func benchmarkReplay(b *testing.B, length time.Duration, standing int) {
	v := variant()
	v.Pools[0].Catalog = &cloud.Catalog{Types: []*cloud.InstanceType{
		fakecloud.Kind("m08", 8, 0.384, "a"), fakecloud.Kind("m12", 12, 0.58, "a"), fakecloud.Kind("m16", 16, 0.768, "a"),
	}}
	s := settings()
	s.Pace, s.Samples = max(10*time.Second, (length/600).Truncate(time.Second)), 48
	rec := record(b, int(length.Seconds()), days(3, length, standing)...)
	defer debug.SetGCPercent(debug.SetGCPercent(GCPercent)) // as the program does
	for b.Loop() {
		v.Store = cluster.NewStore()
		busy := benchload.ProcessorTime()
		got := play(b, rec, v, s)
		b.ReportMetric((benchload.ProcessorTime() - busy).Seconds(), "cpu-s")
		b.ReportMetric(got.MeanNodes, "nodes")
		b.ReportMetric(float64(got.Pods), "pods")
		b.ReportMetric(got.Dollars, "$")
		b.ReportMetric(100*got.Regret, "regret%")
		b.ReportMetric(got.EvictionsByPodDay, "evictions/pod/day")
		b.ReportMetric(float64(got.WaitSeconds.P95), "p95-wait-s")
		text, _ := json.Marshal(got)
		b.ReportMetric(float64(crc32.ChecksumIEEE(text)), "output") // equal where the output is
	}
}

// Under a budget of one node the next step is found while the one before it goes, and begins as soon as that is over: a fleet that has lost half of its
// pods is small again within minutes.
func TestAStepIsReadyWhenItsTurnComes(t *testing.T) {
	const half = 30 * time.Minute // then half of the pods end
	lives := fewStay(24, 2, int(half.Seconds()), "1", 0)
	v := variant(func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "1"}} })
	v.Pools[0].Catalog.Types = v.Pools[0].Catalog.Types[1:] // small ones only
	s := settings()
	s.Stop, s.Pace, s.Samples = 20*time.Second, time.Second, 120
	got := play(t, record(t, 3600, lives...), v, s)
	small := got.Curve[slices.IndexFunc(got.Curve, func(p Point) bool { return p.At.Sub(start) > half && p.Nodes == 6 })].At.Sub(start) - half
	if want := 6*s.Stop + 60*time.Second; small > want { // each node takes its time to go; some are found empty first, and the first of the others waits for its look
		t.Errorf("the fleet is small after %v, want %v", small, want)
	}
}
