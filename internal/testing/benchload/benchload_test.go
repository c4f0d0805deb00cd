package benchload_test

import (
	"testing"

	"karpenter.sh/karpenter/internal/testing/benchload"
)

func TestAMixKeepsItsSharesInEverySize(t *testing.T) {
	whole, err := benchload.Pods("diverse5000")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{100, 5000, 20_000} {
		spread, names := 0, map[string]bool{}
		for _, p := range benchload.Resize(whole, n) {
			names[p.Name] = true
			if len(p.Spec.TopologySpreadConstraints) > 0 {
				spread++
			}
		}
		if len(names) != n || spread != 2*n/5 {
			t.Errorf("%d pods: %d names, %d spread, want two fifths", n, len(names), spread)
		}
	}
}

func TestAnUnknownWorkloadIsAnError(t *testing.T) {
	if _, err := benchload.Pods("none"); err == nil {
		t.Error("a workload that does not exist was read")
	}
}
