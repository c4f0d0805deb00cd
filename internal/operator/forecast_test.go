package operator

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/forecast"
	"karpenter.sh/karpenter/internal/ui/page"
)

// learning are parts that learn, and have looked once at a NodePool that is to.
func learning(t *testing.T) *parts {
	t.Helper()
	p := someParts(t)
	p.settings.Scheduling.Foresight = true
	p.settings.Journal.Dir, p.settings.Journal.ConfigMap, p.settings.LeaderElection.Namespace = "", "h", "n"
	p.loops()
	p.store.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: map[string]string{v1.LearnAnnotationKey: "true"}}})
	})
	return p
}

func (p *parts) look(t *testing.T) {
	t.Helper()
	p.learner.Turn(t.Context(), p.store.Snapshot(), time.Now(), time.Minute, time.Minute)
}

func TestAForecastIsServed(t *testing.T) {
	p := learning(t)
	p.look(t)
	for query, tc := range map[string]struct {
		code int
		want string
	}{
		"":          {http.StatusOK, `[{"object":{"kind":"NodePool","name":"default"},"days":1,`},
		"?hours=24": {http.StatusOK, `[{"object":{"kind":"NodePool","name":"default"},"days":1,`},
		"?hours=0":  {http.StatusBadRequest, "hours=0 is not between 1 and 24"},
		"?hours=25": {http.StatusBadRequest, "hours=25 is not between 1 and 24"},
		"?hours=x":  {http.StatusBadRequest, "hours=x is not between 1 and 24"},
	} {
		w := httptest.NewRecorder()
		if serveForecast(p.learner)(w, httptest.NewRequest(http.MethodGet, "/forecast"+query, nil)); w.Code != tc.code || !strings.HasPrefix(w.Body.String(), tc.want) {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	metricsHandler(nil, nobody{}, nil, nil, nil, false).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/forecast", nil))
	var all []forecast.Report
	if err := json.NewDecoder(w.Body).Decode(&all); err != nil || len(all) != 0 {
		t.Errorf("where nothing can learn %v is served: %v", all, err)
	}
}

// Without foresight and without CapacityBuffers there is nothing that could learn.
func TestNothingLearnsWhereItIsOff(t *testing.T) {
	p := someParts(t)
	if p.loops(); p.learner != nil {
		t.Error("something learns")
	}
}

func TestWhatIsLearnedSurvivesARestart(t *testing.T) {
	p := learning(t)
	p.look(t)
	of := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "h"}}
	if err := p.clients.main.Create(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	h, err := p.history(page.New(page.Deps{Journal: p.journal}))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.loops() // the next process
	if kept, _ := p.learner.Kept(); len(kept) != 0 {
		t.Fatal("it knows something before it has read anything")
	}
	again, err := p.history(page.New(page.Deps{Journal: p.journal}))
	if err != nil {
		t.Fatal(err)
	}
	again.restore(t.Context())
	if kept, _ := p.learner.Kept(); len(kept) == 0 {
		t.Error("it knows nothing of what the one before it learned")
	}
}
