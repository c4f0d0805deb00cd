package operator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/ui/page"
)

// What one process decided and what its fleet cost is there for the next one, from the ConfigMap or, where there is a folder, from that.
func TestTheHistorySurvivesARestart(t *testing.T) {
	for name, folder := range map[string]bool{"from the ConfigMap": false, "from a folder": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := someParts(t)
				p.settings.Journal.ConfigMap, p.settings.LeaderElection.Namespace = "karpenter-history", "kube-system"
				if !folder {
					p.settings.Journal.Dir = ""
				}
				of := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "karpenter-history"}}
				if err := p.clients.main.Create(t.Context(), of); err != nil {
					t.Fatal(err)
				}
				run := func(decide string) {
					p.journal = journal.New()
					shown := page.New(page.Deps{Journal: p.journal})
					h, err := p.history(shown)
					if err != nil {
						t.Fatal(err)
					}
					ctx, stop := context.WithCancel(t.Context())
					h.restore(ctx)
					p.journal.Add(journal.Record{Act: journal.Opened, Text: decide})
					ended := make(chan error, 2)
					go func() { ended <- h.run(ctx) }()
					go func() {
						if folder {
							_ = p.keepJournal(ctx)
						}
						ended <- nil
					}()
					time.Sleep(historyEvery + time.Second)
					synctest.Wait()
					stop()
					if err := <-ended; err != nil {
						t.Fatal(err)
					}
					<-ended
				}
				for _, decide := range []string{"first", "second", "third"} {
					run(decide)
				}
				var got []string
				for i, r := range p.journal.Select(journal.Query{}) {
					got = append(got, r.Text)
					if r.Seq != uint64(i+1) {
						t.Errorf("record %d has number %d", i, r.Seq)
					}
				}
				if len(got) != 3 || got[0] != "first" || got[2] != "third" {
					t.Errorf("got %q, want what each process decided, once", got)
				}
			})
		})
	}
}

func TestNothingIsKeptWhereNothingIsAskedFor(t *testing.T) {
	p := someParts(t)
	p.settings.Journal.Dir = ""
	h, err := p.history(page.New(page.Deps{}))
	if err != nil {
		t.Fatal(err)
	}
	h.client = nil // any request would panic
	h.restore(t.Context())
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if err := together(ctx, h.run); err != nil {
			t.Errorf("%v: the other loops would end too", err)
		}
	})
}

// A missing or torn ConfigMap costs the history alone.
func TestAHistoryThatCannotBeRead(t *testing.T) {
	p := someParts(t)
	p.settings.Journal.Dir, p.settings.Journal.ConfigMap, p.settings.LeaderElection.Namespace = "", "h", "n"
	h, err := p.history(page.New(page.Deps{}))
	if err != nil {
		t.Fatal(err)
	}
	h.restore(t.Context())
	if err := h.write(t.Context()); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("got %v, want that there is none", err)
	}
	torn := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "h"}, BinaryData: map[string][]byte{historyKey: []byte("torn")}}
	if err := p.clients.main.Create(t.Context(), torn); err != nil {
		t.Fatal(err)
	}
	if h.restore(t.Context()); len(p.journal.Select(journal.Query{})) != 0 {
		t.Error("decisions come from nowhere")
	}
	if err := h.write(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAHistoryFitsIntoAConfigMap(t *testing.T) {
	var h keptHistory
	for range historyRecords {
		noise := make([]byte, 500)
		_, _ = rand.Read(noise)
		h.Records = append(h.Records, journal.Record{Act: journal.Opened, Text: hex.EncodeToString(noise)})
	}
	packed, err := pack(h)
	if err != nil || len(packed) > historyBytes || len(packed) < historyBytes/4 {
		t.Errorf("%d bytes, %v", len(packed), err)
	}
}
