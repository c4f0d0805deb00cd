package price

import (
	"testing"

	"karpenter.sh/karpenter/cloud"
)

func TestModelSpot(t *testing.T) {
	for name, tc := range map[string]struct {
		pool     Pool
		onDemand float64
		arm64    bool
		want     float64
	}{
		"an Intel type":   {Pool{"m5.large", "us-east-1a"}, 0.096, false, 0.039780},
		"an arm64 type":   {Pool{"m6g.16xlarge", "us-east-1a"}, 2.464, true, 1.131427},
		"a flexible type": {Pool{"c7i-flex.2xlarge", "us-east-1c"}, 0.33915, false, 0.216952},
	} {
		t.Run(name, func(t *testing.T) {
			known, _ := Static("us-east-1").OnDemand(tc.pool.Type)
			if known != cloud.FromDollars(tc.onDemand) {
				t.Fatalf("%s costs %v on demand, want %v", tc.pool.Type, known.Dollars(), tc.onDemand)
			}
			if got := ModelSpot(tc.pool, tc.onDemand, tc.arm64); got != tc.want {
				t.Errorf("spot price = %v, want %v", got, tc.want)
			}
		})
	}
}

// Spot prices in China are in yuan; the prices on demand that they are compared with must not be in dollars.
func TestPricesInChinaAreInYuan(t *testing.T) {
	there, _ := Static("cn-north-1").OnDemand("m5.large")
	here, _ := Static("us-east-1").OnDemand("m5.large")
	elsewhere, _ := Static("eu-west-2").OnDemand("m5.large")
	if there < 6*here || there > 8*here || elsewhere != here {
		t.Errorf("m5.large costs %v in China, %v in London, %v in Virginia; want yuan, dollars, dollars", there.Dollars(), elsewhere.Dollars(), here.Dollars())
	}
}

func TestList(t *testing.T) {
	a, b := Pool{"m5.large", "us-east-1a"}, Pool{"m5.large", "us-east-1b"}
	l := Static("us-east-1")
	if p, ok := l.Spot(a); !ok || p != 96_000_000 {
		t.Errorf("before any quote, spot costs %v %v, want the on-demand price", p, ok)
	}
	quoted := l.WithSpot(map[Pool]cloud.NanoUSD{a: 40_000_000})
	if p, ok := quoted.Spot(a); !ok || p != 40_000_000 {
		t.Errorf("a quoted pool costs %v %v", p, ok)
	}
	if p, ok := quoted.Spot(b); ok {
		t.Errorf("once prices are quoted, a pool without a quote still costs %v", p)
	}
	later := quoted.WithSpot(map[Pool]cloud.NanoUSD{b: 41_000_000})
	if p, ok := later.Spot(a); !ok || p != 40_000_000 {
		t.Errorf("a refresh without a pool forgot its price: %v %v", p, ok)
	}
	if _, ok := quoted.Spot(b); ok {
		t.Error("a refresh changed the list it was made from")
	}
	if later.Equal(quoted) || !later.Equal(later.WithSpot(nil)) {
		t.Error("Equal does not tell lists apart by what they quote")
	}
	dear := later.WithOnDemand(map[string]cloud.NanoUSD{"m5.large": 1})
	if p, _ := dear.OnDemand("m5.large"); p != 1 {
		t.Errorf("a refreshed on-demand price is %v, want 1", p)
	}
	if p, ok := dear.OnDemand("c5.large"); !ok || p != 85_000_000 {
		t.Errorf("c5.large costs %v %v, want 0.085 as before", p, ok)
	}
}
