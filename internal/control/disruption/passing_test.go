package disruption

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// Every machine passes through some blocks while it boots. An event for each would bury what matters.
func TestBlocksThatPassAreToldWhenTheyLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		metrics := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
		events := telemetry.NewEvents(func(_ context.Context, e *corev1.Event) error {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e.Message)
			return nil
		}, metrics)
		go events.Run(t.Context())
		store := cluster.NewStore()
		store.Update(func(d *cluster.Draft) {
			d.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "booting", UID: "booting"}})
			d.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "protected", UID: "protected"}})
		})
		teller := newTeller(Telling{Metrics: metrics, Events: events})
		look := func(blocks ...disrupt.Refusal) {
			w := &disrupt.World{Snap: store.Snapshot(), Now: time.Now()}
			teller.proposal(t.Context(), w, &disrupt.Proposal{Blocks: blocks}, time.Millisecond)
			synctest.Wait()
		}
		want := func(when string, messages ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, messages) {
				t.Errorf("%s: told %q, want %q", when, told, messages)
			}
			told = nil
		}
		booting := disrupt.Refusal{Claim: "booting", Code: disrupt.NoNode}
		nominated := disrupt.Refusal{Claim: "booting", Code: disrupt.Nominated}
		protected := disrupt.Refusal{Claim: "protected", Code: disrupt.NodeProtected, Name: v1.DoNotDisruptAnnotationKey}
		look(booting, protected)
		want("at first", "the node has the annotation karpenter.sh/do-not-disrupt=true")
		time.Sleep(90 * time.Second)
		look(nominated)
		want("another state")
		time.Sleep(90 * time.Second)
		look(nominated)
		want("the second one for 90 s")
		time.Sleep(30 * time.Second)
		look(nominated)
		want("the second one for two minutes", "the node is promised to pods that wait for it")
	})
}
