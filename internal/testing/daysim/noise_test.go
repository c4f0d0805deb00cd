//go:build bars

package daysim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestADayOfSteadyNoise replaces five percent of the pods each hour, by others of the same mix of sizes or each by its like. The
// fleet must stay close to the cheapest one that there can be, without moving pods about all the time. It takes minutes of computing, so it
// stands behind the build tag "bars".
func TestADayOfSteadyNoise(t *testing.T) {
	const (
		maxEvictions = 0.3 // per pod and day
		maxOverBound = 1.06
	)
	for name, like := range map[string]bool{"others of the same mix": false, "each by its like": true} {
		t.Run(name, func(t *testing.T) {
			d := playNoise(t, like)
			t.Logf("%d pods: %.2f evictions per pod before the noise; %.2f dollars in %d hours, at least %.2f: %.3f times the bound; %.2f evictions per pod and day, %d launches, %d taints",
				d.pods, d.calm, d.paid, d.hours, d.least, d.paid/d.least, d.evictions, d.launches, d.taints)
			if d.evictions > maxEvictions {
				t.Errorf("%.2f evictions per pod and day, want at most %.2f", d.evictions, maxEvictions)
			}
			if d.paid > maxOverBound*d.least {
				t.Errorf("the fleet cost %.3f times the bound, want at most %.2f", d.paid/d.least, maxOverBound)
			}
			if d.waiting > 1 {
				t.Errorf("%d pods wait at the end", d.waiting)
			}
		})
	}
}

// A noisyDay is what was measured.
type noisyDay struct {
	pods, hours int
	calm        float64 // evictions per pod before the noise
	paid, least float64
	evictions   float64 // per pod and day
	launches    int
	taints      int // changes of the taint that steers new pods
	waiting     int
}

func playNoise(t *testing.T, like bool) noisyDay {
	d := noisyDay{pods: fromEnvironment(t, "DAYSIM_PODS", 300), hours: fromEnvironment(t, "DAYSIM_HOURS", 6)}
	perHour := d.pods / 20
	offer := catalog()
	options := sim.Options{Cloud: fakecloud.Options{
		Catalog: func(*v1.NodePool) (*cloud.Catalog, error) { return offer, nil },
		Boot:    func(cloud.Machine) time.Duration { return 30 * time.Second },
	}}
	sim.Bubble(t, options, sim.KarpenterOptions{Provision: true, Disrupt: true, Search: search}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		w.API.Put(pool(func(p *v1.NodePool) {
			p.Spec.Disruption.ConsolidateAfter = v1.After(5 * time.Minute)
			p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "10%"}}
		}))
		load := &workload{random: rand.New(rand.NewPCG(1, 2))}
		evicted := watchEvictions(w)
		for range d.pods {
			sim.Create(t, w, load.pod())
		}
		settle(t, w, k, 10*time.Minute)
		time.Sleep(2 * time.Hour) // the first fleet finds its form; what is measured is the noise
		before, launched := evicted.pods(), w.Cloud.Launches()
		d.calm = float64(before) / float64(d.pods)
		price := prices(offer)
		steered := marked(w)
		for hour := range d.hours {
			for range perHour {
				replaceOne(t, w, load, like)
				time.Sleep(time.Hour / time.Duration(perHour))
				d.paid += spending(w, price) / float64(perHour)
				now := marked(w)
				d.taints += changes(steered, now)
				steered = now
			}
			d.least += bound(t, k, offer)
			t.Logf("after %d hours %d pods were evicted, %d machines launched, %d run, %.3f times the bound",
				hour+1, evicted.pods()-before, w.Cloud.Launches()-launched, len(w.Cloud.Machines()), d.paid/d.least)
		}
		d.evictions = float64(evicted.pods()-before) / float64(d.pods) * 24 / float64(d.hours)
		d.launches, d.waiting = w.Cloud.Launches()-launched, waiting(k.Store.Snapshot())
	})
	return d
}

// marked are the nodes that new pods are kept off.
func marked(w *sim.World) map[string]bool {
	out := map[string]bool{}
	for _, n := range memapi.All[*corev1.Node](w.API) {
		if disrupt.Avoided(n) {
			out[n.Name] = true
		}
	}
	return out
}

// changes counts what is in one set only.
func changes(a, b map[string]bool) (n int) {
	for name := range a {
		if !b[name] {
			n++
		}
	}
	for name := range b {
		if !a[name] {
			n++
		}
	}
	return n
}

// fromEnvironment is a number that an environment variable may change: more hours, more pods. Figures of fewer hours are scaled to a day.
func fromEnvironment(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, want a number", name, text)
	}
	return n
}

// replaceOne takes a running pod away, as its owner does, and asks for another one, perhaps of the same size.
func replaceOne(t *testing.T, w *sim.World, load *workload, like bool) {
	t.Helper()
	var running []*corev1.Pod
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		if p.DeletionTimestamp == nil && p.Spec.NodeName != "" {
			running = append(running, p)
		}
	}
	slices.SortFunc(running, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	victim := running[load.random.IntN(len(running))]
	memapi.Edit(w.API, victim.Namespace, victim.Name, func(p *corev1.Pod) { p.OwnerReferences = nil })
	sim.Delete(t, w, victim)
	next := load.pod()
	if like {
		next.Spec.Containers = victim.Spec.Containers
	}
	sim.Create(t, w, next)
}

// instance is a machine type, on demand in two zones.
func instance(name string, cpus, gib int64, dollars float64) *cloud.InstanceType {
	t := sim.Kind(name, cpus, dollars)
	t.Capacity[corev1.ResourceMemory] = *resource.NewQuantity(gib<<30, resource.BinarySI)
	return t
}

// catalog sells three families, for computing, for both and for memory, each in four sizes whose prices are in proportion.
func catalog() *cloud.Catalog {
	c := &cloud.Catalog{}
	for _, family := range []struct {
		name    string
		gib     int64 // per CPU
		dollars float64
	}{{"c", 2, 0.0425}, {"m", 4, 0.048}, {"r", 8, 0.063}} {
		for _, cpus := range []int64{2, 4, 8, 16} {
			c.Types = append(c.Types, instance(fmt.Sprintf("%s%02d", family.name, cpus), cpus, cpus*family.gib, float64(cpus)*family.dollars))
		}
	}
	return c
}

// workload makes pods of ever the same mix of sizes.
type workload struct {
	random *rand.Rand
	made   int
}

func (l *workload) pod() *corev1.Pod {
	l.made++
	cpu := []string{"250m", "500m", "1", "1500m", "2"}[l.random.IntN(5)]
	memory := []string{"512Mi", "1Gi", "2Gi", "4Gi", "6Gi"}[l.random.IntN(5)]
	p := sim.Pod(fmt.Sprintf("app-%04d", l.made), cpu, owned)
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(memory)
	return p
}
