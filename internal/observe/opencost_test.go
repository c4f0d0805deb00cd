package observe

import (
	"context"
	"math"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

type oneCatalog struct{}

func (oneCatalog) Pools(context.Context, *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	offer := func(capacity string, price cloud.NanoUSD) cloud.Offering {
		return cloud.Offering{Labels: map[string]string{v1.CapacityTypeLabelKey: capacity, corev1.LabelTopologyZone: "us-east-1a"}, Price: price}
	}
	catalog := &cloud.Catalog{Types: []*cloud.InstanceType{{Name: "m5.2xlarge",
		Offerings: []cloud.Offering{offer(v1.CapacityTypeOnDemand, 384_000_000), offer(v1.CapacityTypeSpot, 120_000_001)}}}}
	return map[string]engine.Pool{"default": {Pool: &v1.NodePool{}, Catalog: catalog}}, nil
}

func TestOpenCostsMetrics(t *testing.T) {
	o := large(2, 0)
	o.Catalogs = oneCatalog{}
	read := func() map[string]float64 {
		var text strings.Builder
		if err := o.Scrape(&text); err != nil {
			t.Fatal(err)
		}
		found := map[string]float64{}
		for line := range strings.Lines(text.String()) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasPrefix(name, "node_") || strings.HasPrefix(name, "kubecost_") {
				found[name], _ = strconv.ParseFloat(value, 64)
			}
		}
		return found
	}
	if got := read(); len(got) != 0 {
		t.Errorf("without the setting there are %v", got)
	}
	o.OpenCost = true
	got := read()
	if len(got) != 12 {
		t.Errorf("%d series, want six of two nodes: %v", len(got), got)
	}
	const labels = `{instance="ip-10-0-0-1.ec2.internal",node="ip-10-0-0-1.ec2.internal",instance_type="m5.2xlarge",` +
		`provider_id="aws:///us-east-1a/i-1",arch="amd64"}`
	total := 8*got["node_cpu_hourly_cost"+labels] + 32*got["node_ram_hourly_cost"+labels]
	if want := got["node_total_hourly_cost"+labels]; want != 0.120000001 || math.Abs(total-want) > 1e-9 || got["kubecost_node_is_spot"+labels] != 1 ||
		got["node_gpu_count"+labels] != 0 || got["node_gpu_hourly_cost"+labels] != 0 {
		t.Errorf("cores and memory cost %v, the node %v", total, want)
	}
}
