package command

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

func faultsOf(t *testing.T, args string) (faultFlags, *flag.FlagSet) {
	t.Helper()
	flags := flag.NewFlagSet("break", flag.ContinueOnError)
	f := addFaultFlags(flags)
	if err := flags.Parse(strings.Fields(args)); err != nil {
		t.Fatal(err)
	}
	return f, flags
}

// modelOfAWS serves a model of AWS on a good day.
func modelOfAWS(t *testing.T) (*awsmodel.Cloud, string) {
	t.Helper()
	cloud, err := awsmodel.New(awsmodel.Config{Cluster: awsmodel.Cluster{Name: "local"}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(cloud.Handler())
	t.Cleanup(server.Close)
	return cloud, server.URL
}

func TestOneFaultOfAMachineAtATime(t *testing.T) {
	for args, want := range map[string]string{"": "", "--kill": "kill", "--retire": "retire", "--slow 2s": "", "--kill --freeze": "error"} {
		f, _ := faultsOf(t, args)
		one, err := f.chosen()
		got := ""
		switch {
		case err != nil:
			got = "error"
		case one != nil:
			got = one.flag
		}
		if got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
}

func TestFaultsOfAWSAddUp(t *testing.T) {
	cloud, url := modelOfAWS(t)
	add := func(args string) {
		t.Helper()
		f, _ := faultsOf(t, args)
		if !f.wholeAWS() {
			t.Fatalf("%s is about one machine", args)
		}
		var faults awsmodel.Faults
		if err := modelCallAt(url, http.MethodGet, "faults", nil, &faults); err != nil {
			t.Fatal(err)
		}
		f.apply(&faults)
		if err := modelCallAt(url, http.MethodPut, "faults", faults, nil); err != nil {
			t.Fatal(err)
		}
	}
	add("--sold-out spot/*/*")
	add("--sold-out */m5.*/* --zone-down us-east-1a")
	add("--slow 2s")
	want := awsmodel.Faults{
		Pools: []awsmodel.PoolRule{{Match: "spot/*/*"}, {Match: "*/m5.*/*"}}, ZonesDown: []string{"us-east-1a"}, LatencyMillis: 2000,
	}
	if diff := cmp.Diff(want, cloud.Faults(), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestWhatAWSRefusesIsSaid(t *testing.T) {
	_, url := modelOfAWS(t)
	for _, m := range machineFaults {
		body := map[string]any{"ids": []string{"i-none"}, "event": m.event, "inSeconds": 600}
		err := modelCallAt(url, http.MethodPost, m.path, body, nil)
		if err == nil || !strings.Contains(err.Error(), "there is no machine i-none") {
			t.Errorf("%s: %v", m.flag, err)
		}
	}
}
