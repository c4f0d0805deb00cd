package aws

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"karpenter.sh/karpenter/internal/kit/setting"
)

func TestSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*Settings)
		want string // part of the error, "" for none
	}{
		"the defaults with a name":        {func(*Settings) {}, ""},
		"no name":                         {func(s *Settings) { s.ClusterName = "" }, "cluster-name"},
		"an endpoint without scheme":      {func(s *Settings) { s.ClusterEndpoint = "k8s.example" }, "cluster-endpoint"},
		"a bundle that is not base64":     {func(s *Settings) { s.ClusterCABundle = "%%" }, "cluster-ca-bundle"},
		"negative memory overhead":        {func(s *Settings) { s.VMMemoryOverheadPercent = -0.1 }, "vm-memory-overhead-percent"},
		"no memory overhead":              {func(s *Settings) { s.VMMemoryOverheadPercent = 0 }, ""},
		"negative interfaces":             {func(s *Settings) { s.ReservedENIs = -1 }, "reserved-enis"},
		"zonal shift":                     {func(s *Settings) { s.EnableZonalShift = true }, ""},
		"images too often":                {func(s *Settings) { s.AMIRefreshInterval = time.Second }, "ami-refresh-interval"},
		"subnets too often":               {func(s *Settings) { s.SubnetRefreshInterval = time.Second }, "subnet-refresh-interval"},
		"groups too often":                {func(s *Settings) { s.GroupRefreshInterval = time.Second }, "security-group-refresh-interval"},
		"an endpoint with scheme and all": {func(s *Settings) { s.ClusterEndpoint = "https://k8s.example" }, ""},
	} {
		s := DefaultSettings()
		s.ClusterName = "demo"
		tc.edit(&s)
		err := s.Validate()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error = %v, want one about %q", name, err, tc.want)
		}
	}
	s := DefaultSettings()
	if got := len(s.List()); got != 17 {
		t.Errorf("there are %d settings, want the fourteen of Karpenter for AWS, and price-file, replace-on-rebalance and all-offering-metrics", got)
	}
}

func TestGatesOfTheProvider(t *testing.T) {
	reboots := DefaultSettings()
	if err := reboots.readGates("RebootForRepair=true,Other=true"); err != nil || !reboots.Gates.RebootForRepair ||
		!slices.Equal(reboots.Gates.Unknown, []string{"Other"}) {
		t.Errorf("gates = %+v, error %v", reboots.Gates, err)
	}
	for text, want := range map[string]string{
		"": "off", "NodeClassCEL=false": "off", "Unknown=true, NodeClassCEL=false": "off", "NodeClassCEL=true": "on",
		"NodeClassCEL": "not of the form", "NodeClassCEL=maybe": "not of the form",
	} {
		s := DefaultSettings()
		err := setting.Read("test", s.List(), nil, func(name string) (string, bool) { return text, name == "AWS_FEATURE_GATES" }, io.Discard)
		said := fmt.Sprint(err)
		if err == nil {
			said = map[bool]string{true: "on", false: "off"}[s.Formulas]
		}
		if !strings.Contains(said, want) {
			t.Errorf("%q: %s, want %q", text, said, want)
		}
	}
}
