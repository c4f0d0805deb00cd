package operator

import (
	"context"
	"time"

	"karpenter.sh/karpenter/internal/history/recording"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// recordEvery is how often pods are compared with what is recorded of them. A pod that came and went in between is not recorded.
const recordEvery = 5 * time.Second

// record writes the pods of the cluster to a folder as they come and go, until ctx ends. A failure is logged once until writing works
// again, and affects nothing else.
func (p *parts) record(ctx context.Context) error {
	watched := p.metrics.Loop("recording", 1)
	defer p.metrics.End(watched)
	keeper := recording.NewKeeper(p.settings.RecordDir)
	defer keeper.Close()
	told := false
	keep := func(context.Context) error {
		err := keeper.Keep(p.store.Snapshot(), time.Now())
		if err != nil && !told {
			telemetry.Log(ctx).Error("pods are not recorded for now; a new file is tried again", "error", err)
		}
		told = err != nil
		return err
	}
	for sleep.For(ctx, recordEvery) {
		watched.Turn(ctx, "recording pods", keep)
	}
	keep(ctx)
	return nil
}
