//go:build bars

package daysim

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/fakecloud"
	"karpenter.sh/karpenter/internal/memapi"
	"karpenter.sh/karpenter/internal/sim"
)

// TestADayOfSteadyNoise replaces five percent of the pods each hour by others of the same mix of sizes. The fleet must stay
// close to the cheapest one that there can be, without moving pods about all the time. It takes minutes of computing, so it stands
// behind the build tag "bars".
func TestADayOfSteadyNoise(t *testing.T) {
	const (
		pods            = 300
		replacedPerHour = pods / 20
		maxEvictions    = 0.3 // per pod and day
		maxOverBound    = 1.06
	)
	hours := hoursToPlay(t)
	offer := catalog()
	options := sim.Options{Cloud: fakecloud.Options{
		Catalog: func(*v1.NodePool) (*cloud.Catalog, error) { return offer, nil },
		Boot:    func(cloud.Machine) time.Duration { return 30 * time.Second },
	}}
	sim.Bubble(t, options, sim.KarpenterOptions{Provision: true, Disrupt: true, Trials: trials}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		w.API.Put(pool(func(p *v1.NodePool) {
			p.Spec.Disruption.ConsolidateAfter = v1.After(5 * time.Minute)
			p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "10%"}}
		}))
		load := &workload{random: rand.New(rand.NewPCG(1, 2))}
		for range pods {
			sim.Create(t, w, load.pod())
		}
		settle(t, w, k, 10*time.Minute)
		time.Sleep(2 * time.Hour) // the first fleet finds its form; what is measured is the noise
		evicted := watchEvictions(w)
		price := prices(offer)
		var paid, least float64
		for hour := range hours {
			for range replacedPerHour {
				replaceOne(t, w, load)
				time.Sleep(time.Hour / replacedPerHour)
				paid += spending(w, price) / replacedPerHour
			}
			least += bound(t, k, offer)
			t.Logf("after %d hours %d pods were evicted, %d machines launched, %d run", hour+1, evicted.pods(), w.Cloud.Launches(), len(w.Cloud.Machines()))
		}
		perPod := float64(evicted.pods()) / pods * 24 / float64(hours)
		t.Logf("%d pods, %d machines: paid %.2f dollars in %d hours, at least %.2f: %.3f times the bound; %.2f evictions per pod and day, %d launches",
			pods, len(w.Cloud.Machines()), paid, hours, least, paid/least, perPod, w.Cloud.Launches())
		if perPod > maxEvictions {
			t.Errorf("%.2f evictions per pod and day, want at most %.2f", perPod, maxEvictions)
		}
		if paid > maxOverBound*least {
			t.Errorf("the fleet cost %.3f times the bound, want at most %.2f", paid/least, maxOverBound)
		}
		if n := waiting(k.Store.Snapshot()); n > 1 {
			t.Errorf("%d pods wait at the end", n)
		}
	})
}

// hoursVariable names the environment variable that says how many hours to play: the figures of fewer are scaled to a day.
const hoursVariable = "DAYSIM_HOURS"

func hoursToPlay(t *testing.T) int {
	t.Helper()
	text := os.Getenv(hoursVariable)
	if text == "" {
		return 6
	}
	hours, err := strconv.Atoi(text)
	if err != nil || hours < 1 {
		t.Fatalf("%s is %q, want a number of hours", hoursVariable, text)
	}
	return hours
}

// replaceOne takes a running pod away, as its owner does, and asks for another one.
func replaceOne(t *testing.T, w *sim.World, load *workload) {
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
	sim.Create(t, w, load.pod())
}
