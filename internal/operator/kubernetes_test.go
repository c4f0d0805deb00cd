package operator

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	apimachineryversion "k8s.io/apimachinery/pkg/version"

	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// nowhere is an API server that does not say its version.
type nowhere struct{ somewhere }

func (nowhere) ServerVersion() (*apimachineryversion.Info, error) {
	return nil, errors.New("not now")
}

func TestTheLogSaysWhichKubernetesThisIsAndWhatIsOff(t *testing.T) {
	const hints, devices = "hints to kube-scheduler (from 1.35 on)", "devices by resource claims (from 1.34 on)"
	both := func(s *Settings) { s.Hints.Enabled, s.Scheduling.Devices = true, true }
	none := func(s *Settings) { s.Hints.Enabled, s.Scheduling.Devices = false, false }
	for name, tc := range map[string]struct {
		server    server
		settings  func(*Settings)
		want, not []string
	}{
		"nothing is off in a new one":          {somewhere("v1.36.3"), both, []string{"INFO", "1.36.3"}, []string{hints, devices}},
		"hints need 1.35":                      {somewhere("v1.34.4-eks-1234"), both, []string{"WARN", "1.34.4", hints}, []string{devices}},
		"devices need 1.34":                    {somewhere("v1.33.13"), both, []string{"WARN", "1.33.13", hints, devices}, nil},
		"hints that nobody wants are not told": {somewhere("v1.33.13"), func(s *Settings) { both(s); s.Hints.Enabled = false }, []string{"WARN", devices}, []string{hints}},
		"nothing is wanted":                    {somewhere("v1.33.13"), none, []string{"INFO", "1.33.13"}, []string{hints, devices}},
		"it is not known":                      {nowhere{}, both, []string{"WARN", "not now"}, []string{hints, devices}},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			s := DefaultSettings()
			tc.settings(&s)
			(&clients{version: tc.server}).tellVersion(telemetry.WithLog(t.Context(), slog.New(slog.NewTextHandler(&log, nil))), &s)
			for _, want := range tc.want {
				if !strings.Contains(log.String(), want) {
					t.Errorf("%q is not in %s", want, log.String())
				}
			}
			for _, not := range tc.not {
				if strings.Contains(log.String(), not) {
					t.Errorf("%q is in %s", not, log.String())
				}
			}
			if strings.Count(log.String(), "\n") != 1 {
				t.Errorf("the log is %s, want one line", log.String())
			}
		})
	}
}

func TestHintsAreWrittenWhereTheyAreUnderstood(t *testing.T) {
	for version, want := range map[string]bool{"v1.33.13": false, "v1.34.4": false, "v1.35.0": true, "v1.37.2": true} {
		if got, err := (&clients{version: somewhere(version)}).understandsHints(); got != want || err != nil {
			t.Errorf("understandsHints in %s = %t, %v; want %t", version, got, err, want)
		}
	}
	if got, err := (&clients{version: nowhere{}}).understandsHints(); got || err == nil {
		t.Errorf("understandsHints = %t, %v where the version is not known", got, err)
	}
}
