package operator

import (
	"net/http"
	"sync"

	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// A storyteller returns the last question that the engine was asked, as a scenario.
type storyteller interface {
	Story(anonymous bool) ([]byte, error)
}

// serveSnapshot answers with the last question for which a plan was made, in the form that karpenter plan reads. One is written at a
// time, because for a large cluster it has many megabytes.
func serveSnapshot(asked storyteller) http.HandlerFunc {
	var one sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "a snapshot is only read", http.StatusMethodNotAllowed)
			return
		}
		if !one.TryLock() {
			http.Error(w, "another snapshot is being written; try again", http.StatusTooManyRequests)
			return
		}
		defer one.Unlock()
		story, err := asked.Story(r.URL.Query().Get("anonymous") == "true")
		switch {
		case err != nil:
			telemetry.Log(r.Context()).Error("could not write a snapshot", "error", err)
			http.Error(w, "the snapshot could not be written", http.StatusInternalServerError)
			return
		case story == nil:
			http.Error(w, "no plan has been made since this controller began to lead", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if _, err := w.Write(story); err != nil {
			telemetry.Log(r.Context()).Debug("a snapshot was not read to its end", "error", err)
		}
	}
}
