package buffer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

const learnedPods = 24

// ofShop is a pod of the ReplicaSet shop.
func ofShop(_ string, number int) *corev1.Pod {
	return sim.Pod(fmt.Sprintf("shop-%d", number), "1", func(p *corev1.Pod) { p.Labels["app"] = "shop" }, sim.OwnedBy("shop"))
}

// shopAtForty are 24 pods of shop at forty minutes past midnight, for an hour.
func shopAtForty(int) []sim.Change {
	at := 40 * time.Minute
	return []sim.Change{{At: at, App: "shop", Pods: learnedPods}, {At: at + time.Hour, App: "shop", Pods: -learnedPods}}
}

// simMidnight is when simulated time begins.
var simMidnight = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// learns annotates the pool.
func learns(w *sim.World) {
	memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Annotations = map[string]string{v1.LearnAnnotationKey: "true"} })
}

func restore(t *testing.T, k *sim.Karpenter, learned []byte) {
	t.Helper()
	if err := k.Learner.Restore(learned); err != nil {
		t.Fatal(err)
	}
}

// running waits until all pods of shop run, and returns how long that took.
func running(w *sim.World, n int) time.Duration {
	began := time.Now()
	for have := 0; have < n; {
		time.Sleep(100 * time.Millisecond)
		have = 0
		for _, p := range memapi.All[*corev1.Pod](w.API) {
			if p.Labels["app"] == "shop" && p.Status.Phase == corev1.PodRunning {
				have++
			}
		}
	}
	return time.Since(began)
}

func TestMachinesAreThereForPodsThatCameOnEarlierDays(t *testing.T) {
	learned := sim.Taught(t, 14, simMidnight, 1000, shopAtForty, ofShop)
	if len(learned) > 4<<10 {
		t.Errorf("what was learned has %d bytes", len(learned))
	}
	play := func(t *testing.T, annotated bool, before, after func(*testing.T, *sim.World, *sim.Karpenter)) (took time.Duration) {
		ko := sim.KarpenterOptions{Provision: true, Disrupt: true, Foresight: true}
		sim.Bubble(t, sim.Options{ReadyAfter: 40 * time.Second}, ko, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			restore(t, k, learned)
			if annotated {
				learns(w)
			}
			forty := simMidnight.Add(40 * time.Minute)
			time.Sleep(time.Until(forty.Add(-3 * time.Minute)))
			if len(claims(w)) != 0 {
				t.Error("machines are opened long before")
			}
			time.Sleep(time.Until(forty))
			before(t, w, k)
			for n := range learnedPods {
				sim.Create(t, w, ofShop("", n))
			}
			took = running(w, learnedPods)
			time.Sleep(time.Minute)
			after(t, w, k)
		})
		return took
	}
	with := play(t, true, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		if cpus(w) != learnedPods {
			t.Fatalf("there are %d CPUs before %d pods of one CPU come", cpus(w), learnedPods)
		}
		want := "opened at 00:38 for 8 pods of default/shop at 00:40 UTC, learned from 14 of the last 14 days"
		if text := claims(w)[0].Annotations[v1.OpenedAheadAnnotationKey]; text != want {
			t.Errorf("the claim says %q, want %q", text, want)
		}
		r := k.Learner.Report(time.Now(), time.Hour, time.Hour)[0]
		if r.Object.String() != "NodePool default" || r.Days != 15 || len(r.Hours) != 1 || r.Hours[0].Expected != learnedPods || r.Unused <= 0 || r.Saved != 0 {
			t.Errorf("the report is %+v", r)
		}
	}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		if cpus(w) != learnedPods {
			t.Errorf("for %d pods of one CPU there are %d CPUs", learnedPods, cpus(w))
		}
		if r := k.Learner.Report(time.Now(), time.Hour, time.Hour)[0]; r.Hours[0].Came != learnedPods || r.Saved <= 0 {
			t.Errorf("the report is %+v", r)
		}
	})
	without := play(t, false, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		if len(claims(w)) != 0 || len(k.Learner.Report(time.Now(), time.Hour, time.Hour)) != 0 {
			t.Errorf("without the annotation there are %d claims, and something learns", len(claims(w)))
		}
	}, nothing)
	t.Logf("all pods run after %v, and without the annotation after %v", with, without)
	if with > 3*time.Second || without < 30*time.Second {
		t.Errorf("all pods run after %v, and without the annotation after %v", with, without)
	}
}

// Room for pods that do not come is kept for as long as they used to take, and no longer.
func TestNothingIsKeptForPodsThatCameOnEarlierDaysOnly(t *testing.T) {
	learned := sim.Taught(t, 14, simMidnight, 1000, shopAtForty, ofShop)
	ko := sim.KarpenterOptions{Provision: true, Disrupt: true, Foresight: true}
	sim.Bubble(t, sim.Options{}, ko, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		restore(t, k, learned)
		learns(w)
		time.Sleep(time.Until(simMidnight.Add(40*time.Minute + 50*time.Second)))
		if cpus(w) != learnedPods {
			t.Errorf("%d CPUs are kept while the pods may come", cpus(w))
		}
		time.Sleep(2 * time.Minute)
		if cpus(w) != 0 {
			t.Errorf("%d CPUs are kept afterwards", cpus(w))
		}
	})
}

// Pods that are moved by a drain, and a leader that ends while it learns, teach nothing. What came before is there for the next leader.
func TestWhatIsLearnedOutlivesTheLeaderAndNoDrainTeaches(t *testing.T) {
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		learns(w)
		ko := sim.KarpenterOptions{Provision: true, Disrupt: true, Foresight: true}
		var kept []byte
		came := func(k *sim.Karpenter) (n int) {
			for _, h := range k.Learner.Report(time.Now(), 3*time.Hour, time.Hour)[0].Hours {
				n += h.Came
			}
			return n
		}
		w.With(t, ko, func(k *sim.Karpenter) {
			time.Sleep(time.Minute)
			for n := range 8 {
				sim.Create(t, w, ofShop("", n))
			}
			running(w, 8)
			time.Sleep(time.Minute)
			if n := came(k); n != 8 {
				t.Fatalf("%d pods came", n)
			}
			sim.Delete(t, w, claims(w)[0]) // its pods are evicted and come again
			time.Sleep(2 * time.Minute)
			again := 0
			for _, p := range memapi.All[*corev1.Pod](w.API) {
				if strings.Contains(p.Name, "again") {
					again++
				}
			}
			if n := came(k); n != 8 || again == 0 {
				t.Errorf("after %d pods were moved %d came", again, n)
			}
			var err error
			if kept, err = k.Learner.Kept(); err != nil {
				t.Fatal(err)
			}
		})
		w.With(t, ko, func(k *sim.Karpenter) {
			restore(t, k, kept)
			time.Sleep(time.Minute)
			if n := came(k); n != 8 {
				t.Errorf("the next leader knows of %d pods that came", n)
			}
		})
	})
}
