//go:build bars

package daysim

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// A curve is how many pods there are of each application, day after day.
type curve struct {
	sizes map[string][2]string // CPU and memory by application
	day   func(day int) []sim.Change
}

// repeating is a day that repeats: services that are larger by day than by night and are scaled every ten minutes, and batches of pods that come
// at the same times. How many pods a service has differs by some percent from day to day, and the times by half a minute. Jobs come at random.
func repeating(from, to time.Duration, services, jobsAnHour int) curve {
	fixed := rand.New(rand.NewPCG(7, 7))
	c := curve{sizes: map[string][2]string{"job": {"500m", "1Gi"}}}
	base, phase, offset := make([]int, services), make([]float64, services), make([]time.Duration, services)
	for s := range services {
		c.sizes[name(s)] = size(fixed)
		base[s], phase[s], offset[s] = 4+fixed.IntN(24), fixed.Float64(), time.Duration(fixed.Int64N(int64(9*time.Minute)))
	}
	batches := map[string]time.Duration{"report": 9 * time.Hour, "import": 12*time.Hour + 30*time.Minute, "backup": 18 * time.Hour}
	for b := range batches {
		c.sizes[b] = [2]string{"1", "2Gi"}
	}
	c.day = func(day int) (out []sim.Change) {
		random := rand.New(rand.NewPCG(uint64(day), 18))
		jitter := func() time.Duration { return time.Duration(random.NormFloat64() * float64(15*time.Second)) }
		for s := range services {
			have := 0
			for at := from; at < to; at += 10 * time.Minute {
				wave := 1 + 0.6*math.Sin(2*math.Pi*(at.Hours()/24+0.2*phase[s]-0.25)) + 0.03*random.NormFloat64()
				want := max(1, int(math.Round(float64(base[s])*wave)))
				when := at + offset[s] + 30*time.Second + jitter()
				if at == from {
					when = from
				}
				out = append(out, sim.Change{At: max(from, when), App: name(s), Pods: want - have})
				have = want
			}
		}
		for _, b := range slices.Sorted(maps.Keys(batches)) {
			at := batches[b]
			if at >= from && at < to {
				n := 60 + random.IntN(7)
				at += 2*time.Minute + jitter()
				out = append(out, sim.Change{At: at, App: b, Pods: n}, sim.Change{At: at + 25*time.Minute, App: b, Pods: -n})
			}
		}
		for at := from; jobsAnHour > 0; {
			at += time.Duration(random.ExpFloat64() * float64(time.Hour) / float64(jobsAnHour))
			if at >= to {
				break
			}
			out = append(out, sim.Change{At: at, App: "job", Pods: 1}, sim.Change{At: at + time.Minute + time.Duration(random.ExpFloat64()*float64(15*time.Minute)), App: "job", Pods: -1})
		}
		slices.SortStableFunc(out, func(a, b sim.Change) int { return int(a.At - b.At) })
		return slices.DeleteFunc(out, func(c sim.Change) bool { return c.At >= to || c.Pods == 0 })
	}
	return c
}

// traced is days whose services follow recorded numbers of requests: a line for each day, the last one is day 0, with a number for each
// half hour from the time from on. Every ten minutes a service gets as many pods as there are requests for.
func traced(text string, from time.Duration, services int) (c curve, to time.Duration) {
	var days [][]float64
	sum, count := 0.0, 0
	for line := range strings.Lines(text) {
		var day []float64
		for _, f := range strings.Fields(line) {
			n, err := strconv.ParseFloat(f, 64)
			if err != nil {
				panic(err)
			}
			day, sum, count = append(day, n), sum+n, count+1
		}
		days = append(days, day)
	}
	fixed := rand.New(rand.NewPCG(7, 7))
	c.sizes = map[string][2]string{}
	base, offset := make([]float64, services), make([]time.Duration, services)
	for s := range services {
		c.sizes[name(s)] = size(fixed)
		base[s], offset[s] = float64(4+fixed.IntN(24)), time.Duration(fixed.Int64N(int64(9*time.Minute)))
	}
	c.day = func(day int) (out []sim.Change) {
		random := rand.New(rand.NewPCG(uint64(day), 18))
		values := days[len(days)-1+day]
		for s := range services {
			have := 0
			for step := range 3 * (len(values) - 1) {
				i, part := step/3, float64(step%3)/3
				requests := values[i]*(1-part) + values[i+1]*part
				want := max(1, int(math.Round(base[s]*requests/(sum/float64(count)))))
				at := from + time.Duration(step)*10*time.Minute
				if step > 0 {
					at += offset[s] + 30*time.Second + time.Duration(random.NormFloat64()*float64(15*time.Second))
				}
				out = append(out, sim.Change{At: max(from, at), App: name(s), Pods: want - have})
				have = want
			}
		}
		slices.SortStableFunc(out, func(a, b sim.Change) int { return int(a.At - b.At) })
		return slices.DeleteFunc(out, func(c sim.Change) bool { return c.Pods == 0 })
	}
	return c, from + time.Duration(len(days[0])-1)*30*time.Minute
}

func name(service int) string { return fmt.Sprintf("service-%02d", service) }

func size(random *rand.Rand) [2]string {
	return [2]string{[]string{"100m", "250m", "500m", "1", "2"}[random.IntN(5)], []string{"256Mi", "512Mi", "1Gi", "2Gi", "4Gi"}[random.IntN(5)]}
}

func (c *curve) pod(app string, number int) *corev1.Pod {
	return sim.Pod(fmt.Sprintf("%s-%05d", app, number), c.sizes[app][0], func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(c.sizes[app][1])
		p.Labels["app"] = app
		if app != "job" {
			sim.OwnedBy(app)(p)
		}
	})
}

var simMidnight = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// A measured day.
type measured struct {
	dollars       float64
	p50, p95, max time.Duration
	pods          int
}

func (m measured) String() string {
	return fmt.Sprintf("$%.2f, %d pods waited %v in the middle, %v at 95 %%, %v at most", m.dollars, m.pods, m.p50, m.p95, m.max)
}

// live plays the day from one time to another.
func (c *curve) live(t *testing.T, from, to time.Duration, annotate bool, learned []byte, spare int32) (m measured) {
	offer := smallCatalog()
	options := sim.Options{ReadyAfter: 38 * time.Second, Cloud: fakecloud.Options{Catalog: func(*v1.NodePool) (*cloud.Catalog, error) { return offer, nil }}}
	ko := sim.KarpenterOptions{Provision: true, Disrupt: true, Buffers: true, Search: search}
	price := prices(offer)
	sim.Bubble(t, options, ko, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		if err := k.Learner.Restore(learned); err != nil {
			t.Fatal(err)
		}
		midnight := time.Now().UTC().Truncate(24 * time.Hour)
		w.API.Put(pool(func(p *v1.NodePool) {
			p.Spec.Disruption.ConsolidateAfter = v1.After(time.Minute)
			p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "10%"}}
			if annotate {
				p.Annotations = map[string]string{v1.LearnAnnotationKey: "true"}
			}
		}))
		time.Sleep(time.Until(midnight.Add(from - 10*time.Minute)))
		if spare > 0 {
			one := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spare"}}
			one.Template.Spec = c.pod("report", 0).Spec
			sim.Create(t, w, one)
			b := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spare"}}
			b.Spec.PodTemplateRef, b.Spec.Replicas = &autoscalingv1beta1.LocalObjectRef{Name: "spare"}, &spare
			sim.Create(t, w, b)
		}
		waits := map[types.UID]time.Duration{}
		began := map[types.UID]time.Time{}
		alive := map[string][]*corev1.Pod{}
		made := 0
		all := c.day(0)
		first := all[0].At
		for now := midnight.Add(from - 10*time.Minute); now.Before(midnight.Add(to)); now = now.Add(time.Second) {
			time.Sleep(time.Until(now))
			for ; len(all) > 0 && midnight.Add(all[0].At).Before(now); all = all[1:] {
				for range all[0].Pods {
					p := c.pod(all[0].App, made)
					made++
					sim.Create(t, w, p)
					p = sim.Get[*corev1.Pod](t, w, p.Name)
					if all[0].At > first {
						began[p.UID] = p.CreationTimestamp.Time
					}
				}
				if all[0].Pods < 0 {
					alive[all[0].App] = runningOf(w, all[0].App)
					for _, p := range alive[all[0].App][:min(-all[0].Pods, len(alive[all[0].App]))] {
						memapi.Edit(w.API, p.Namespace, p.Name, func(p *corev1.Pod) { p.OwnerReferences = nil })
						sim.Delete(t, w, p)
					}
				}
			}
			if len(began) > 0 {
				for _, p := range memapi.All[*corev1.Pod](w.API) {
					if since, ok := began[p.UID]; ok && p.Spec.NodeName != "" {
						waits[p.UID] = time.Since(since)
						delete(began, p.UID)
					}
				}
			}
			m.dollars += spending(w, price) / 3600
		}
		var list []time.Duration
		for _, d := range waits {
			list = append(list, d.Truncate(100*time.Millisecond))
		}
		slices.Sort(list)
		m.pods = len(list)
		m.p50, m.p95, m.max = list[len(list)/2], list[len(list)*95/100], list[len(list)-1]
	})
	return m
}

func runningOf(w *sim.World, app string) (out []*corev1.Pod) {
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		if p.Labels["app"] == app && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return out
}

// smallCatalog sells machines of three shapes.
func smallCatalog() *cloud.Catalog { return catalog() }

// Learning makes pods wait a few seconds where they waited for a machine, and costs little. A fixed buffer that costs more does not.
func TestADayThatRepeats(t *testing.T) {
	from, to := 8*time.Hour, time.Duration(fromEnvironment(t, "DAYSIM_UNTIL", 20))*time.Hour
	c := repeating(from, to, fromEnvironment(t, "DAYSIM_SERVICES", 12), fromEnvironment(t, "DAYSIM_JOBS", 1))
	without := c.live(t, from, to, false, nil, 0)
	t.Logf("without: %v", without)
	learned := sim.Taught(t, 14, simMidnight, without.dollars, c.day, c.pod)
	t.Logf("%d bytes are learned", len(learned))
	with := c.live(t, from, to, true, learned, 0)
	t.Logf("with:    %v, %+.1f %%", with, 100*(with.dollars/without.dollars-1))
	if with.p95 > 5*time.Second || with.dollars > 1.03*without.dollars {
		t.Error("learning is to make 95 of 100 pods wait 5 s at most, for 3 % more dollars at most")
	}
	for _, n := range []int32{2, 8} {
		fixed := c.live(t, from, to, false, nil, n)
		t.Logf("fixed buffer of %d: %v, %+.1f %%", n, fixed, 100*(fixed.dollars/without.dollars-1))
		if fixed.dollars >= with.dollars && fixed.p95 <= with.p95 {
			t.Errorf("a fixed buffer of %d pods is as good", n)
		}
	}
}

// Days on which pods come at random are not dearer with learning, whichever times they came at before.
func TestADayWithoutPattern(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to time.Duration
		most     float64 // of what the day costs without learning
	}{
		"all day":      {0, 24 * time.Hour, 1.03},
		"working time": {8 * time.Hour, 16 * time.Hour, 1.03},
		// A day that costs a dollar: one machine that is opened in vain and removed after minutes is more than three cents.
		"one hour": {9 * time.Hour, 10 * time.Hour, 1.10},
	} {
		t.Run(name, func(t *testing.T) {
			c := repeating(tc.from, tc.to, 0, fromEnvironment(t, "DAYSIM_JOBS", 60))
			without := c.live(t, tc.from, tc.to, false, nil, 0)
			with := c.live(t, tc.from, tc.to, true, sim.Taught(t, 14, simMidnight, without.dollars, c.day, c.pod), 0)
			t.Logf("without: %v", without)
			t.Logf("with:    %v, %+.1f %%", with, 100*(with.dollars/without.dollars-1))
			if with.dollars > tc.most*without.dollars {
				t.Errorf("learning makes a day without a pattern dearer than %.0f %%", 100*(tc.most-1))
			}
		})
	}
}

// TestADayOfATrace plays the last day of the file DAYSIM_TRACE, and learns from those before. See traced for its lines.
func TestADayOfATrace(t *testing.T) {
	file := os.Getenv("DAYSIM_TRACE")
	if file == "" {
		t.Skip("DAYSIM_TRACE names no file")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	from := 8 * time.Hour
	c, to := traced(string(text), from, fromEnvironment(t, "DAYSIM_SERVICES", 12))
	without := c.live(t, from, to, false, nil, 0)
	with := c.live(t, from, to, true, sim.Taught(t, strings.Count(string(text), "\n")-1, simMidnight, without.dollars, c.day, c.pod), 0)
	t.Logf("without: %v", without)
	t.Logf("with:    %v, %+.1f %%", with, 100*(with.dollars/without.dollars-1))
	if with.dollars > 1.03*without.dollars {
		t.Error("learning makes the day dearer than 3 %")
	}
}
