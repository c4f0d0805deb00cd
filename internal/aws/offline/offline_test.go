package offline

import (
	"slices"
	"strings"
	"testing"
	"time"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

func find(t *testing.T, c *cloud.Catalog, name string) *cloud.InstanceType {
	t.Helper()
	i, ok := slices.BinarySearchFunc(c.Types, name, func(it *cloud.InstanceType, n string) int { return strings.Compare(it.Name, n) })
	if !ok {
		t.Fatalf("the catalogue has no %s", name)
	}
	return c.Types[i]
}

func catalog(t *testing.T, o Options) *cloud.Catalog {
	t.Helper()
	c, err := Catalog(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func prices(it *cloud.InstanceType) map[string]cloud.NanoUSD {
	out := map[string]cloud.NanoUSD{}
	for i := range it.Offerings {
		o := &it.Offerings[i]
		out[o.CapacityType()+" "+o.Zone()] = o.Price
	}
	return out
}

func TestDefaultCatalog(t *testing.T) {
	c := catalog(t, Options{})
	if n := len(c.Types); n < 1250 || n > 1373 {
		t.Errorf("the catalogue has %d types", n)
	}
	if !slices.IsSortedFunc(c.Types, func(a, b *cloud.InstanceType) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("types are not sorted by name")
	}
	m5 := find(t, c, "m5.large")
	p := prices(m5)
	if p["on-demand us-east-1a"] != 96_000_000 || p["spot us-east-1a"] != 39_780_000 {
		t.Errorf("m5.large costs %v", p)
	}
	if len(p) != 2*5 && len(p) != 2*6 {
		t.Errorf("m5.large has %d offerings, want two for each zone that offers it", len(p))
	}
	for _, it := range c.Types {
		if len(it.Offerings) == 0 {
			t.Errorf("%s is listed and cannot be bought", it.Name)
		}
		for _, o := range it.Offerings {
			if !o.Available || o.Price <= 0 {
				t.Errorf("%s has offering %+v", it.Name, o)
			}
			for key, value := range o.Labels {
				if !slices.Contains(it.Labels[key], value) {
					t.Errorf("%s: offering has %s=%s, which the type does not list", it.Name, key, value)
				}
			}
		}
	}
	if catalog(t, Options{Region: "us-east-1"}) != c {
		t.Error("equal options give different catalogues")
	}
}

func TestCatalogOptions(t *testing.T) {
	t.Run("zones without a subnet are not offered", func(t *testing.T) {
		p := prices(find(t, catalog(t, Options{Zones: []string{"us-east-1b"}}), "m5.large"))
		if len(p) != 2 || p["on-demand us-east-1b"] == 0 || p["spot us-east-1b"] == 0 {
			t.Errorf("offerings = %v", p)
		}
	})
	t.Run("without spot prices there is only on-demand", func(t *testing.T) {
		for _, it := range catalog(t, Options{Spot: SpotNone}).Types {
			for i := range it.Offerings {
				if it.Offerings[i].CapacityType() != v1.CapacityTypeOnDemand {
					t.Fatalf("%s is offered as %s", it.Name, it.Offerings[i].CapacityType())
				}
			}
		}
	})
	t.Run("a table of spot prices offers only what it lists", func(t *testing.T) {
		table := map[price.Pool]float64{{Type: "m5.large", Zone: "us-east-1c"}: 0.01}
		p := prices(find(t, catalog(t, Options{Spot: SpotTable, SpotPrices: table}), "m5.large"))
		if p["spot us-east-1c"] != 10_000_000 || p["spot us-east-1a"] != 0 {
			t.Errorf("offerings = %v", p)
		}
	})
	t.Run("a class's kubelet shows in capacity, its tags do not", func(t *testing.T) {
		kubelet, err := awsv1.NewKubeletConfiguration(map[string]any{"maxPods": 7})
		if err != nil {
			t.Fatal(err)
		}
		class := &awsv1.EC2NodeClass{Spec: awsv1.EC2NodeClassSpec{Kubelet: kubelet}}
		alias := "al2023@latest"
		class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: alias}}
		c := catalog(t, Options{Class: class})
		if got := find(t, c, "m5.large").Capacity.Pods().Value(); got != 7 {
			t.Errorf("pods = %d, want 7", got)
		}
		tagged := class.DeepCopy()
		tagged.Spec.Tags = map[string]string{"team": "a"}
		if catalog(t, Options{Class: tagged}) != c {
			t.Error("a tag makes another catalogue")
		}
	})
	t.Run("a region and a zone that are not known are named", func(t *testing.T) {
		if _, err := Catalog(Options{Region: "mars-1"}); err == nil || !strings.Contains(err.Error(), "us-east-1") {
			t.Errorf("error = %v, want one that lists the known regions", err)
		}
		if _, err := Catalog(Options{Zones: []string{"us-east-1z"}}); err == nil || !strings.Contains(err.Error(), "us-east-1f") {
			t.Errorf("error = %v, want one that lists the known zones", err)
		}
	})
	t.Run("every region of the data has a catalogue", func(t *testing.T) {
		for _, region := range []string{"us-west-2", "eu-west-2", "eu-central-1", "ap-northeast-1"} {
			if n := len(catalog(t, Options{Region: region}).Types); n < 700 {
				t.Errorf("%s offers %d types", region, n)
			}
		}
	})
}

func BenchmarkCatalog(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := build(Options{}.withDefaults()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCatalogCached(b *testing.B) {
	for b.Loop() {
		if _, err := Catalog(Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestColdStart guards against a blow-up only; the figure is the benchmark's.
func TestColdStart(t *testing.T) {
	before := benchload.ProcessorTime()
	if _, err := build(Options{Region: "us-west-2"}.withDefaults()); err != nil {
		t.Fatal(err)
	}
	if d := benchload.ProcessorTime() - before; d > 5*time.Second {
		t.Errorf("a catalogue takes %v", d)
	}
}
