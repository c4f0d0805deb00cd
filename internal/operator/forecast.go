package operator

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"karpenter.sh/karpenter/internal/control/learn"
	"karpenter.sh/karpenter/internal/core/forecast"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// A forecast is served from forecastBack ago until forecastHours ahead. The parameter "hours" asks for another number of hours, at
	// most mostHours.
	forecastBack  = 3 * time.Hour
	forecastHours = 6
	mostHours     = 24
)

// serveForecast answers with the forecasts of the NodePools and CapacityBuffers that learn, as JSON. l is nil if learning is off.
func serveForecast(l *learn.Learner) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		hours := forecastHours
		if text := r.URL.Query().Get("hours"); text != "" {
			var err error
			if hours, err = strconv.Atoi(text); err != nil || hours < 1 || hours > mostHours {
				http.Error(w, "hours="+text+" is not between 1 and "+strconv.Itoa(mostHours), http.StatusBadRequest)
				return
			}
		}
		all := []forecast.Report{}
		if l != nil {
			all = l.Report(time.Now(), forecastBack, time.Duration(hours)*time.Hour)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(all); err != nil {
			telemetry.Log(r.Context()).Debug("the forecast was not read to its end", "error", err)
		}
	}
}
