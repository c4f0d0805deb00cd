package operator

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/control/learn"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/ui/page"
)

const (
	// historyEvery is how often the history is written; a crash loses what came since.
	historyEvery = 5 * time.Minute
	// historyPatience bounds one read or write, because the start of the loops and the end of the program wait for it.
	historyPatience = 5 * time.Second
	// historyRecords and historyBytes bound what is kept; a ConfigMap may have 1 MiB.
	historyRecords = 2000
	historyBytes   = 400 << 10
	historyKey     = "history.json.gz"
	forecastKey    = "forecast.json.gz"
)

// A history keeps the newest decisions, what the fleet cost and what was learned in a ConfigMap, for the next process that leads.
type history struct {
	configMap client.ObjectKey
	client    client.Client
	journal   *journal.Journal
	shown     *page.Service
	metrics   *telemetry.Metrics
	learner   *learn.Learner // nil if learning is off
	folder    string         // of the journal, "" for none; decisions are read from there if it is set
}

// A keptHistory is what the ConfigMap holds.
type keptHistory struct {
	Costs   json.RawMessage  `json:"costs,omitempty"`
	Records []journal.Record `json:"records,omitempty"`
}

// history makes the history. Without a ConfigMap in the settings it writes nothing.
func (p *parts) history(shown *page.Service) (*history, error) {
	h := &history{client: p.clients.main, learner: p.learner, journal: p.journal, shown: shown, metrics: p.metrics,
		folder: p.settings.Journal.Dir}
	if p.settings.Journal.ConfigMap != "" {
		namespace, err := leaseNamespace(p.settings.LeaderElection)
		if err != nil {
			return nil, err
		}
		h.configMap = client.ObjectKey{Namespace: namespace, Name: p.settings.Journal.ConfigMap}
	}
	return h, nil
}

// restore reads what an earlier process kept, for the journal and the page. Failures are only logged.
func (h *history) restore(ctx context.Context) {
	kept, err := h.read(ctx)
	if err != nil {
		telemetry.Log(ctx).Info("the history begins anew: the one that was kept cannot be read", "because", err)
	}
	if h.folder != "" {
		if kept.Records, _, err = journal.ReadFolder(h.folder); err != nil {
			telemetry.Log(ctx).Info("decisions of earlier processes are not shown", "because", err)
		}
	}
	h.journal.Restore(kept.Records)
	h.shown.Restore(kept.Costs)
}

// read returns the decisions and costs in the ConfigMap, and passes what was learned to the learner.
func (h *history) read(ctx context.Context) (kept keptHistory, err error) {
	if h.configMap.Name == "" {
		return kept, nil
	}
	ctx, cancel := context.WithTimeout(ctx, historyPatience)
	defer cancel()
	var from corev1.ConfigMap
	if err := h.client.Get(ctx, h.configMap, &from); err != nil {
		return kept, err
	}
	if h.learner != nil {
		if err := h.learner.Restore(from.BinaryData[forecastKey]); err != nil {
			telemetry.Log(ctx).Info("what was learned is forgotten: it cannot be read", "because", err)
		}
	}
	packed := from.BinaryData[historyKey]
	if len(packed) == 0 {
		return kept, nil
	}
	text, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return kept, fmt.Errorf("unpack: %w", err)
	}
	err = json.NewDecoder(text).Decode(&kept)
	return kept, err
}

// run writes the history every historyEvery, and once more when ctx ends.
func (h *history) run(ctx context.Context) error {
	if h.configMap.Name == "" {
		<-ctx.Done() // a loop that ends ends the controller
		return nil
	}
	watched := h.metrics.Loop("history", 1)
	defer h.metrics.End(watched)
	for watched.Wait(ctx, historyEvery, nil); ctx.Err() == nil; watched.Wait(ctx, historyEvery, nil) {
		watched.Turn(ctx, "keeping the history", h.write)
	}
	if err := h.write(context.WithoutCancel(ctx)); err != nil {
		telemetry.Log(ctx).Info("the newest history is not kept", "because", err)
	}
	return nil
}

// write writes the history into the ConfigMap, which must exist.
func (h *history) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, historyPatience)
	defer cancel()
	var into corev1.ConfigMap
	if err := h.client.Get(ctx, h.configMap, &into); err != nil {
		return fmt.Errorf("keep the history: %w", err)
	}
	packed, err := pack(keptHistory{h.shown.Kept(), h.journal.Select(journal.Query{Last: historyRecords})})
	if err != nil {
		return fmt.Errorf("keep the history: %w", err)
	}
	into.BinaryData = map[string][]byte{historyKey: packed}
	if h.learner != nil {
		learned, err := h.learner.Kept()
		if err != nil {
			return fmt.Errorf("keep what was learned: %w", err)
		}
		if len(learned) > 0 {
			into.BinaryData[forecastKey] = learned
		}
	}
	if err := h.client.Update(ctx, &into); err != nil {
		return fmt.Errorf("keep the history: %w", err)
	}
	return nil
}

// pack compresses a history. If it is too large, pack drops the older half of the decisions until it fits.
func pack(h keptHistory) ([]byte, error) {
	for {
		var packed bytes.Buffer
		zip := gzip.NewWriter(&packed)
		if err := json.NewEncoder(zip).Encode(h); err != nil {
			return nil, err
		}
		if err := zip.Close(); err != nil {
			return nil, err
		}
		if packed.Len() <= historyBytes || len(h.Records) == 0 {
			return packed.Bytes(), nil
		}
		h.Records = h.Records[(len(h.Records)+1)/2:]
	}
}
