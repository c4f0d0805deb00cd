package release

import (
	"io"
	"strings"
	"testing"

	"karpenter.sh/karpenter/internal/operator"
	"karpenter.sh/karpenter/internal/setting"
)

// A gate that works must not be refused by the chart, and one that has no code behind it must not reach the controller, which would not start.
func TestTheChartTakesTheGatesThatHaveCode(t *testing.T) {
	core := operator.DefaultSettings()
	for pair := range strings.SplitSeq(core.Gates.String(), ",") {
		name, _, _ := strings.Cut(pair, "=")
		t.Run(name, func(t *testing.T) {
			s := operator.DefaultSettings()
			if err := setting.Read("karpenter", s.List(), []string{"--feature-gates=" + name + "=true"}, func(string) (string, bool) { return "", false }, io.Discard); err != nil {
				t.Fatal(err)
			}
			hasCode := s.Validate() == nil
			value := strings.ToLower(name[:1]) + name[1:]
			_, err := render(t, "karpenter", named(values{"settings": values{"featureGates": values{value: true}}}))
			if (err == nil) != hasCode {
				t.Errorf("the controller has code for it: %v; the chart: %v", hasCode, err)
			}
		})
	}
}
