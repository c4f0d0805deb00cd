package operator

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// serveJournal answers with the records that are in memory, as lines of JSON: all of them, the records with a number above the parameter
// "after", or the newest as many as the parameter "last".
func serveJournal(j *journal.Journal) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "the journal is only read", http.StatusMethodNotAllowed)
			return
		}
		q, err := queryOf(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		if err := journal.Write(w, j.Select(q)); err != nil {
			telemetry.Log(r.Context()).Debug("the journal was not read to its end", "error", err)
		}
	}
}

// queryOf reads the parameters "after" and "last" of a request.
func queryOf(r *http.Request) (q journal.Query, err error) {
	values := r.URL.Query()
	if text := values.Get("after"); text != "" {
		if q.After, err = strconv.ParseUint(text, 10, 64); err != nil {
			return q, fmt.Errorf("after=%s is no number", text)
		}
	}
	if text := values.Get("last"); text != "" {
		if q.Last, err = strconv.Atoi(text); err != nil || q.Last < 0 {
			return q, fmt.Errorf("last=%s is no number", text)
		}
	}
	return q, nil
}

// keepEvery is how long records may be in memory only.
const keepEvery = time.Second

// keepJournal writes new records of the journal to its folder until ctx ends, and the rest then. A failure is logged once until writing
// works again, and affects nothing else.
func (p *parts) keepJournal(ctx context.Context) error {
	watched := p.metrics.Loop("journal", 1)
	defer p.metrics.End(watched)
	keeper := journal.NewKeeper(p.settings.Journal.Dir)
	defer keeper.Close()
	told := false
	keep := func(context.Context) error {
		err := keeper.Keep(p.journal)
		if err != nil && !told {
			telemetry.Log(ctx).Error("the journal is not written to its folder for now; what is in memory is tried again", "error", err)
		}
		told = err != nil
		return err
	}
	for ctx.Err() == nil {
		news := p.journal.News()
		watched.Turn(ctx, "writing the journal", keep)
		watched.Wait(ctx, time.Hour, news)
		sleep.For(ctx, keepEvery)
	}
	keep(ctx)
	return nil
}
