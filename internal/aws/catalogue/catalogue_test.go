package catalogue

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/internal/aws/inventory"
	"karpenter.sh/karpenter/internal/aws/nodememory"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/aws/shortage"
)

const region = "us-east-1"

// fixed answers with what it was given.
type fixed struct {
	goods  *inventory.Goods
	prices *price.List
	left   map[string]int
	seq    uint64
}

func (f *fixed) Goods() *inventory.Goods { return f.goods }
func (f *fixed) List() *price.List       { return f.prices }
func (f *fixed) Left(id string) int      { return f.left[id] }
func (f *fixed) Sequence() uint64        { return f.seq }

func newCatalogues() (*Catalogues, *fixed, *shortage.List, *nodememory.Memory) {
	f := &fixed{goods: &inventory.Goods{Types: awsdata.Types(), Offered: map[string]map[string]bool{}, Zones: awsdata.Zones(region)},
		prices: offline.Prices(region, offline.SpotModel, nil), left: map[string]int{}}
	for _, zone := range f.goods.Zones {
		for _, name := range awsdata.Offered(region, zone) {
			if f.goods.Offered[name] == nil {
				f.goods.Offered[name] = map[string]bool{}
			}
			f.goods.Offered[name][zone] = true
		}
	}
	s, m := shortage.New(), nodememory.New()
	return New(Sources{
		Region: region, Settings: hardware.Settings{VMMemoryOverheadPercent: hardware.DefaultVMMemoryOverheadPercent},
		Inventory: f, Prices: f, Stock: s, Reservations: f, Memory: m,
	}), f, s, m
}

func class(name string, edit func(*awsv1.EC2NodeClass)) *awsv1.EC2NodeClass {
	nc := &awsv1.EC2NodeClass{}
	nc.Name, nc.UID = name, types.UID(name)
	nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}}
	for _, zone := range awsdata.Zones(region) {
		nc.Status.Subnets = append(nc.Status.Subnets, awsv1.Subnet{ID: "subnet-" + zone, Zone: zone, ZoneID: awsdata.ZoneID(region, zone)})
	}
	nc.Status.AMIs = []awsv1.AMI{{ID: "ami-1"}}
	edit(nc)
	return nc
}

func catalog(t testing.TB, s *Catalogues, nc *awsv1.EC2NodeClass) *cloud.Catalog {
	t.Helper()
	c, err := s.Catalog(nc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func find(c *cloud.Catalog, name string) *cloud.InstanceType {
	for _, it := range c.Types {
		if it.Name == name {
			return it
		}
	}
	return nil
}

func TestWhatChangesACatalogue(t *testing.T) {
	none := func(*awsv1.EC2NodeClass) {}
	for name, tc := range map[string]struct {
		change func(f *fixed, s *shortage.List, m *nodememory.Memory) // of the world
		class  func(*awsv1.EC2NodeClass)                              // of the class
		same   bool
	}{
		"nothing":           {nil, nil, true},
		"tags of the class": {nil, func(nc *awsv1.EC2NodeClass) { nc.Spec.Tags = map[string]string{"a": "b"} }, true},
		"its role":          {nil, func(nc *awsv1.EC2NodeClass) { nc.Spec.Role = "x" }, true},
		"its family":        {nil, func(nc *awsv1.EC2NodeClass) { nc.Spec.AMISelectorTerms[0].Alias = "bottlerocket@latest" }, false},
		"a subnet less":     {nil, func(nc *awsv1.EC2NodeClass) { nc.Status.Subnets = nc.Status.Subnets[1:] }, false},
		"nested virtualization": {nil, func(nc *awsv1.EC2NodeClass) {
			on := "enabled"
			nc.Spec.CPUOptions = &awsv1.CPUOptions{NestedVirtualization: &on}
		}, false},
		"enclaves": {nil, func(nc *awsv1.EC2NodeClass) {
			nc.Spec.EnclaveOptions = &awsv1.EnclaveOptions{Enabled: true}
		}, false},
		"a pool that is out": {func(_ *fixed, s *shortage.List, _ *nodememory.Memory) {
			s.Mark(shortage.Pool{CapacityType: "spot", InstanceType: "m5.large", Zone: "us-east-1a"})
		}, nil, false},
		"a pool that nobody sells": {func(_ *fixed, s *shortage.List, _ *nodememory.Memory) {
			s.Mark(shortage.Pool{CapacityType: "spot", InstanceType: "x9.large", Zone: "us-east-1a"})
		}, nil, true},
		"a full subnet, alone in a zone": {func(_ *fixed, s *shortage.List, _ *nodememory.Memory) { s.MarkSubnet("subnet-us-east-1a") }, nil, false},
		"a new price": {func(f *fixed, _ *shortage.List, _ *nodememory.Memory) {
			f.prices = f.prices.WithOnDemand(map[string]cloud.NanoUSD{"m5.large": 1})
		}, nil, false},
		"an equal list of prices": {func(f *fixed, _ *shortage.List, _ *nodememory.Memory) { f.prices = f.prices.WithSpot(nil) }, nil, true},
		"memory that was seen":    {func(_ *fixed, _ *shortage.List, m *nodememory.Memory) { m.See("ami-1", "m5.large", 7<<30) }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, f, st, m := newCatalogues()
			nc := class("a", none)
			before := catalog(t, s, nc)
			if tc.change != nil {
				tc.change(f, st, m)
			}
			if tc.class != nil {
				nc = class("a", tc.class)
			}
			if got := catalog(t, s, nc) == before; got != tc.same {
				t.Errorf("the catalogue is the same: %v, want %v", got, tc.same)
			}
		})
	}
}

// EC2 puts all machines of a cluster placement group into one zone; groups of other strategies span zones.
func TestOnlyAClusterGroupKeepsToTheZoneOfItsMachines(t *testing.T) {
	for strategy, alone := range map[string]bool{awsv1.PlacementStrategyCluster: true, awsv1.PlacementStrategySpread: false} {
		s, _, _, _ := newCatalogues()
		s.from.Home = func(string) string { return "us-east-1b" }
		zones := map[string]bool{}
		for _, o := range find(catalog(t, s, class("a", func(nc *awsv1.EC2NodeClass) {
			nc.Status.PlacementGroup = &awsv1.PlacementGroup{ID: "pg-1", Name: "g", Strategy: strategy}
		})), "c5n.18xlarge").Offerings {
			if o.Available {
				zones[o.Zone()] = true
			}
		}
		if (len(zones) == 1 && zones["us-east-1b"]) != alone {
			t.Errorf("strategy %s: c5n.18xlarge is offered in %v", strategy, zones)
		}
	}
}

func TestEveryClassLearnsWhatIsOut(t *testing.T) {
	s, _, st, _ := newCatalogues()
	classes := []*awsv1.EC2NodeClass{class("a", func(*awsv1.EC2NodeClass) {}), class("b", func(nc *awsv1.EC2NodeClass) {
		nc.Spec.AMISelectorTerms[0].Alias = "bottlerocket@latest"
	})}
	for _, nc := range classes {
		catalog(t, s, nc)
	}
	st.MarkCapacityType("spot")
	for _, nc := range classes {
		for _, o := range find(catalog(t, s, nc), "m5.large").Offerings {
			if o.Available != (o.CapacityType() == "on-demand") {
				t.Errorf("class %s: %s in %s is available: %v", nc.Name, o.CapacityType(), o.Zone(), o.Available)
			}
		}
	}
}

func TestTypesThatStayTheSameKeepTheirPointers(t *testing.T) {
	s, _, st, _ := newCatalogues()
	nc := class("a", func(*awsv1.EC2NodeClass) {})
	before := catalog(t, s, nc)
	st.Mark(shortage.Pool{CapacityType: "spot", InstanceType: "m5.large", Zone: "us-east-1a"})
	after := catalog(t, s, nc)
	for i := range before.Types {
		if changed := before.Types[i] != after.Types[i]; changed != (before.Types[i].Name == "m5.large") {
			t.Errorf("%s is a new pointer: %v", before.Types[i].Name, changed)
		}
	}
}

func TestDiscoveredMemoryAndReservations(t *testing.T) {
	s, f, _, m := newCatalogues()
	m.See("ami-1", "m5.large", 7<<30)
	m.See("ami-2", "m5.xlarge", 7<<30) // other images
	f.left["cr-1"] = 3
	nc := class("a", func(nc *awsv1.EC2NodeClass) {
		nc.Status.CapacityReservations = []awsv1.CapacityReservation{{ID: "cr-1", InstanceType: "m5.large", AvailabilityZone: "us-east-1a", ReservationType: "default"}}
	})
	c := catalog(t, s, nc)
	if got := find(c, "m5.large").Capacity.Memory().Value(); got != 7<<30 {
		t.Errorf("m5.large has %d bytes, want what was seen", got)
	}
	if got := find(c, "m5.xlarge").Capacity.Memory().String(); got != "15155Mi" {
		t.Errorf("m5.xlarge has %s, want the estimate", got)
	}
	reserved := func(c *cloud.Catalog) *cloud.Offering {
		for i := range find(c, "m5.large").Offerings {
			if o := &find(c, "m5.large").Offerings[i]; o.CapacityType() == v1.CapacityTypeReserved {
				return o
			}
		}
		return nil
	}
	if o := reserved(c); o == nil || o.Reserved != 3 || !o.Available {
		t.Errorf("reserved offering = %+v, want three left", o)
	}
	f.left["cr-1"], f.seq = 0, 1
	if o := reserved(catalog(t, s, nc)); o == nil || o.Available {
		t.Errorf("a reservation that is used up gives %+v", o)
	}
}

// A type that no image of the class is for keeps its prices, but cannot be had: a plan with it could not be launched.
func TestTypesWithoutAnImageCannotBeHad(t *testing.T) {
	s, _, _, _ := newCatalogues()
	images := func(of ...corev1.NodeSelectorRequirement) func(*awsv1.EC2NodeClass) {
		return func(nc *awsv1.EC2NodeClass) { nc.Status.AMIs = []awsv1.AMI{{ID: "ami-1", Requirements: of}} }
	}
	arch := func(value string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: corev1.LabelArchStable, Operator: "In", Values: []string{value}}
	}
	noGPU := corev1.NodeSelectorRequirement{Key: awsv1.LabelInstanceGPUCount, Operator: "DoesNotExist"}
	for name, tc := range map[string]struct {
		class func(*awsv1.EC2NodeClass)
		want  []string
	}{
		"an image for arm64":                 {images(arch("arm64")), []string{"m6g.large"}},
		"the same image, found for others":   {images(arch("amd64")), []string{"g5.xlarge", "m5.large"}},
		"an image for machines without GPUs": {images(arch("amd64"), noGPU), []string{"m5.large"}},
		"images are not known yet":           {func(nc *awsv1.EC2NodeClass) { nc.Status.AMIs = nil }, []string{"g5.xlarge", "m5.large", "m6g.large"}},
	} {
		c := catalog(t, s, class("a", tc.class))
		var got []string
		for _, name := range []string{"g5.xlarge", "m5.large", "m6g.large"} {
			it := find(c, name)
			if len(it.Offerings) == 0 || it.Offerings[0].Price == 0 {
				t.Errorf("%s has lost its prices", name)
			}
			if slices.ContainsFunc(it.Offerings, func(o cloud.Offering) bool { return o.Available }) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v can be had, want %v", name, got, tc.want)
		}
	}
}

func TestClassesWithoutCatalogue(t *testing.T) {
	s, f, _, _ := newCatalogues()
	if _, err := s.Catalog(class("a", func(nc *awsv1.EC2NodeClass) { nc.Status.Subnets = nil })); err == nil {
		t.Error("a class without subnets has a catalogue")
	}
	bad, err := awsv1.NewKubeletConfiguration(map[string]any{"maxPods": true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Catalog(class("a", func(nc *awsv1.EC2NodeClass) { nc.Spec.Kubelet = bad })); err == nil {
		t.Error("a class whose kubelet cannot be decoded has a catalogue")
	}
	f.goods = nil
	if _, err := s.Catalog(class("a", func(*awsv1.EC2NodeClass) {})); err == nil {
		t.Error("there is a catalogue before EC2 was asked")
	}
}

// BenchmarkWeight is what the catalogue of the whole region keeps in memory.
func BenchmarkWeight(b *testing.B) {
	s, _, _, _ := newCatalogues()
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		fresh := New(s.from)
		c := catalog(b, fresh, class("a", func(*awsv1.EC2NodeClass) {}))
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MB-live")
		b.ReportMetric(float64(len(c.Types)), "types")
		runtime.KeepAlive(fresh)
	}
}

// BenchmarkTwentyPools resolves the whole region for 20 pools: with one class each, all alike but in what does not show.
func BenchmarkTwentyPools(b *testing.B) {
	awsdata.Types()
	classes := make([]*awsv1.EC2NodeClass, 20)
	for i := range classes {
		classes[i] = class(fmt.Sprint("class-", i), func(nc *awsv1.EC2NodeClass) { nc.Spec.Role = fmt.Sprint(i) })
	}
	b.Run("cold", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			s, _, _, _ := newCatalogues()
			b.StartTimer()
			for _, nc := range classes {
				catalog(b, s, nc)
			}
		}
	})
	b.Run("nothing changed", func(b *testing.B) {
		s, _, _, _ := newCatalogues()
		for _, nc := range classes {
			catalog(b, s, nc)
		}
		for b.Loop() {
			for _, nc := range classes {
				catalog(b, s, nc)
			}
		}
	})
	b.Run("one pool ran dry", func(b *testing.B) {
		s, _, st, _ := newCatalogues()
		for i := 0; b.Loop(); i++ {
			st.Mark(shortage.Pool{CapacityType: "spot", InstanceType: "m5.large", Zone: "us-east-1a"})
			for _, nc := range classes {
				catalog(b, s, nc)
			}
		}
	})
	b.Run("heap", func(b *testing.B) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var s *Catalogues
		for b.Loop() {
			s, _, _, _ = newCatalogues()
			for _, nc := range classes {
				catalog(b, s, nc)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(s)
		b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/(1<<20), "MB-live")
	})
}
