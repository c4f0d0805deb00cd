package buffer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// A leadership plays pods that come at forty minutes past midnight, while leaders come and go around that time.
type leadership struct {
	*sim.World
	rand *rand.Rand
	kept []byte // what was learned, as it was stored last
}

// lead runs a leader for some time, which begins with what was stored. Of two leaders one ends before it has stored what it learned.
func (l *leadership) lead(t *testing.T, lasts time.Duration) {
	ctx, stop := context.WithCancel(t.Context())
	k := l.Karpenter(sim.KarpenterOptions{Name: "karpenter", Lag: 10 * time.Millisecond, Provision: true, Disrupt: true, Foresight: true})
	restore(t, k, l.kept)
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	defer func() { stop(); <-done }()
	time.Sleep(lasts)
	if l.rand.IntN(2) == 0 {
		return
	}
	var err error
	if l.kept, err = k.Learner.Kept(); err != nil {
		t.Fatal(err)
	}
}

// between returns a random time.
func (l *leadership) between(least, most time.Duration) time.Duration {
	return least + time.Duration(l.rand.Int64N(int64(most-least)))
}

// Announced and learned room is bought once, and pods find it, at whatever moments leaders end.
func TestLeadersThatEndBuyRoomOnce(t *testing.T) {
	learned := sim.Taught(t, 14, simMidnight, 1000, shopAtForty, ofShop)
	for _, learns := range []bool{false, true} {
		machines := roomOfLeaders(t, nil, learns, learned)
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("learned %v, seed %d", learns, seed), func(t *testing.T) {
				if n := roomOfLeaders(t, rand.New(rand.NewPCG(seed, 36)), learns, learned); n != machines {
					t.Errorf("%d machines were launched, one leader launches %d", n, machines)
				}
			})
		}
	}
}

// roomOfLeaders returns how many machines leaders launch for 24 pods. Without random numbers there is one leader.
func roomOfLeaders(t *testing.T, random *rand.Rand, learned bool, history []byte) (launched int) {
	t.Helper()
	sim.BubbleAlone(t, sim.Options{ReadyAfter: 40 * time.Second}, func(t *testing.T, w *sim.World) {
		l := &leadership{World: w, rand: random}
		forty, owner := simMidnight.Add(40*time.Minute), sim.OwnedBy("shop")
		if learned {
			learns(w)
			l.kept = history
		} else {
			c := report(learnedPods)
			c.Spec.Schedule = "40 0 * * *"
			sim.Create(t, w, c)
			owner = func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: fmt.Sprintf("report-%d", forty.Unix()/60),
					UID: "job", Controller: new(true)}}
			}
		}
		came := make(chan time.Duration)
		go func() {
			time.Sleep(time.Until(forty))
			for n := range learnedPods {
				p := ofShop("", n)
				owner(p)
				sim.Create(t, w, p)
			}
			came <- running(w, learnedPods)
		}()
		if random == nil {
			l.rand = rand.New(rand.NewPCG(0, 0))
			l.lead(t, time.Until(forty.Add(time.Minute)))
		} else {
			l.lead(t, time.Until(forty)-l.between(2*time.Minute, 4*time.Minute))
			for time.Now().Before(forty.Add(30 * time.Second)) {
				time.Sleep(l.between(0, 8*time.Second))
				l.lead(t, l.between(0, 20*time.Second))
			}
		}
		l.lead(t, 10*time.Minute)
		if took := <-came; took > 5*time.Second {
			t.Errorf("all pods run after %v", took)
		}
		launched = w.Cloud.Launches()
		if n := len(memapi.All[*v1.NodeClaim](w.API)); n != launched {
			t.Errorf("%d machines were launched, and %d claims are there", launched, n)
		}
	})
	return launched
}
