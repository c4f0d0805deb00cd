package price

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/kit/bug"
)

func product(name, dollars string) string {
	return `{"product":{"attributes":{"instanceType":"` + name + `"}},"terms":{"OnDemand":{"t":{"priceDimensions":{"d":{"pricePerUnit":{"USD":"` + dollars + `"}}}}}}}`
}

func TestReadProduct(t *testing.T) {
	for name, tc := range map[string]struct {
		text, currency string
		want           cloud.NanoUSD
	}{
		"a price":                {product("m5.large", "0.0960000000"), "USD", 96_000_000},
		"another currency":       {product("m5.large", "0.0960000000"), "CNY", 0},
		"a price of zero":        {product("m5.large", "0.0"), "USD", 0},
		"a price that is none":   {product("m5.large", "much"), "USD", 0},
		"a price beyond reason":  {product("m5.large", "1e300"), "USD", 0},
		"no type":                {product("", "1"), "USD", 0},
		"no JSON":                {"hello", "USD", 0},
		"a product without term": {`{"product":{"attributes":{"instanceType":"x"}}}`, "USD", 0},
	} {
		_, got, ok := ReadProduct(tc.text, tc.currency)
		if got != tc.want || ok != (tc.want > 0) {
			t.Errorf("%s: %v, %v; want %v", name, got, ok, tc.want)
		}
	}
}

func FuzzReadProduct(f *testing.F) {
	f.Add(product("m5.large", "0.096"))
	f.Fuzz(func(t *testing.T, text string) {
		if name, p, ok := ReadProduct(text, "USD"); ok && (name == "" || p < 0) {
			t.Errorf("read %q at %v", name, p)
		}
	})
}

// market is AWS' two sources of prices.
type market struct {
	products map[string][]string // by product family
	spot     []ec2types.SpotPrice
	err      error
}

func (m *market) GetProducts(_ context.Context, in *pricing.GetProductsInput, _ ...func(*pricing.Options)) (*pricing.GetProductsOutput, error) {
	for _, f := range in.Filters {
		if aws.ToString(f.Field) == "productFamily" {
			return &pricing.GetProductsOutput{PriceList: m.products[aws.ToString(f.Value)]}, m.err
		}
	}
	return nil, errors.New("no product family")
}

func (m *market) DescribeSpotPriceHistory(context.Context, *ec2.DescribeSpotPriceHistoryInput, ...func(*ec2.Options)) (*ec2.DescribeSpotPriceHistoryOutput, error) {
	return &ec2.DescribeSpotPriceHistoryOutput{SpotPriceHistory: m.spot}, m.err
}

// broken is a price list over which we panic.
type broken struct{ *market }

func (broken) GetProducts(context.Context, *pricing.GetProductsInput, ...func(*pricing.Options)) (*pricing.GetProductsOutput, error) {
	panic("no such price")
}

func TestAPanicOverOnDemandPricesLeavesSpotPricesFresh(t *testing.T) {
	bug.Expect(t)
	now := time.Now()
	m := &market{spot: []ec2types.SpotPrice{quote(now, "0.03")}}
	b := NewBook("us-east-1", false, m, broken{m})
	if err := b.Refresh(t.Context()); err == nil {
		t.Error("a panic is no error")
	}
	if p, ok := b.List().Spot(Pool{"m5.large", "z-a"}); !ok || p != 30_000_000 {
		t.Errorf("the spot price is %v, %v; want the new one", p, ok)
	}
}

func quote(at time.Time, price string) ec2types.SpotPrice {
	return ec2types.SpotPrice{InstanceType: "m5.large", AvailabilityZone: aws.String("z-a"), SpotPrice: &price, Timestamp: &at}
}

// What EC2 says of a price may be anything; a free machine is one.
func TestQuotesThatAreNoPrices(t *testing.T) {
	for text, want := range map[string]bool{"0.05": true, "0": true, "-1": false, "NaN": false, "Inf": false, "1000000": false, "999999": true, "": false, "much": false} {
		prices := map[Pool]cloud.NanoUSD{}
		readSpot(quote(time.Now(), text), prices, map[Pool]time.Time{})
		if p, ok := prices[Pool{"m5.large", "z-a"}]; ok != want || p < 0 {
			t.Errorf("%q is read as %v, %v", text, p, ok)
		}
	}
	for text, want := range map[string]bool{"0.05": true, "0": false, "-1": false, "NaN": false, "Inf": false, "1000000": false, "999999": true} {
		if _, p, ok := ReadProduct(product("m5.large", text), "USD"); ok != want || p < 0 {
			t.Errorf("%q on demand is read as %v, %v", text, p, ok)
		}
	}
}

// places is a price list that knows places by their region code.
type places struct {
	*market
	lists map[string][]string
}

func (p places) GetProducts(_ context.Context, in *pricing.GetProductsInput, _ ...func(*pricing.Options)) (*pricing.GetProductsOutput, error) {
	asked := map[string]string{}
	for _, f := range in.Filters {
		asked[aws.ToString(f.Field)] = aws.ToString(f.Value)
	}
	if asked["tenancy"] != "Shared" {
		return &pricing.GetProductsOutput{PriceList: []string{product("m5.metal", "5")}}, nil
	}
	return &pricing.GetProductsOutput{PriceList: p.lists[asked["regionCode"]]}, nil
}

func TestPricesOfLocalZones(t *testing.T) {
	m := &market{}
	b := NewBook("us-west-2", false, m, places{m, map[string][]string{
		"us-west-2": {product("m5.large", "0.1"), product("t3.large", "0.08")}, "us-west-2-lax-1": {product("m5.large", "0.12")},
	}})
	b.Zones = func() []string {
		return []string{"us-west-2a", "us-west-2-lax-1a", "us-west-2-lax-1b", "us-west-2-phx-2a", "us-west-2-wl1-sea-wlz-1"}
	}
	want := func(when string, prices map[Pool]cloud.NanoUSD) {
		t.Helper()
		for p, want := range prices {
			if got, ok := b.List().OnDemandIn(p); got != want || !ok {
				t.Errorf("%s: %v costs %v, %v; want %v", when, p, got, ok, want)
			}
		}
	}
	want("before the first answer", map[Pool]cloud.NanoUSD{{"m5.large", "us-west-2a"}: 96_000_000, {"m5.large", "us-west-2-lax-1a"}: 96_000_000})
	if spot, ok := b.List().Spot(Pool{"m5.large", "us-west-2-lax-1a"}); ok {
		t.Errorf("spot costs %v in a local zone before anything is known", spot)
	}
	if _, ok := b.List().Spot(Pool{"m5.large", "us-west-2a"}); !ok {
		t.Error("spot has no price in the region before anything is known")
	}
	if err := b.refreshOnDemand(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("after it", map[Pool]cloud.NanoUSD{
		{"m5.large", "us-west-2a"}: 100_000_000, {"m5.large", "us-west-2-lax-1a"}: 120_000_000, {"m5.large", "us-west-2-lax-1b"}: 120_000_000,
		{"t3.large", "us-west-2-lax-1a"}: 80_000_000, {"m5.large", "us-west-2-phx-2a"}: 100_000_000, {"m5.large", "us-west-2-wl1-sea-wlz-1"}: 100_000_000,
	})
	kept := b.List()
	if err := b.refreshOnDemand(t.Context()); err != nil || b.List() != kept {
		t.Errorf("the same prices make another list, %v", err)
	}
	b.products = places{m, map[string][]string{"us-west-2": {product("m5.large", "0.1")}, "us-west-2-lax-1": {product("m5.large", "0.13")}}}
	if err := b.refreshOnDemand(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("when only the local price changed", map[Pool]cloud.NanoUSD{{"m5.large", "us-west-2-lax-1a"}: 130_000_000})
}

func TestBook(t *testing.T) {
	pool := Pool{"m5.large", "z-a"}
	now := time.Now()
	full := func() *market {
		return &market{
			products: map[string][]string{"Compute Instance": {product("m5.large", "0.1")}, "Compute Instance (bare metal)": {product("m5.metal", "5")}},
			spot:     []ec2types.SpotPrice{quote(now.Add(-time.Hour), "0.05"), quote(now, "0.04"), quote(now.Add(-2*time.Hour), "0.06"), quote(now.Add(time.Hour), "odd")},
		}
	}
	for name, tc := range map[string]struct {
		region   string
		isolated bool
		edit     func(*market)
		failed   bool
		onDemand cloud.NanoUSD
		spot     cloud.NanoUSD
	}{
		"both are asked for, the youngest quote counts": {"us-east-1", false, func(*market) {}, false, 100_000_000, 40_000_000},
		"a failure keeps what was known":                {"us-east-1", false, func(m *market) { m.err = errors.New("no") }, true, 96_000_000, 96_000_000},
		"an empty answer keeps what was known":          {"us-east-1", false, func(m *market) { m.products, m.spot = nil, nil }, true, 96_000_000, 96_000_000},
		"one empty family is told, the other is taken":  {"us-east-1", false, func(m *market) { delete(m.products, "Compute Instance (bare metal)") }, true, 100_000_000, 40_000_000},
		"an isolated VPC asks for spot prices only":     {"us-east-1", true, func(*market) {}, false, 96_000_000, 40_000_000},
		"GovCloud has prices of its own":                {"us-gov-west-1", false, func(*market) {}, false, 121_000_000, 40_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			m := full()
			tc.edit(m)
			b := NewBook(tc.region, tc.isolated, m, m)
			if err := b.Refresh(t.Context()); (err != nil) != tc.failed {
				t.Errorf("Refresh = %v", err)
			}
			if got, _ := b.List().OnDemand("m5.large"); got != tc.onDemand {
				t.Errorf("on demand it costs %v, want %v", got, tc.onDemand)
			}
			if got, _ := b.List().Spot(pool); got != tc.spot {
				t.Errorf("spot costs %v, want %v", got, tc.spot)
			}
			before := b.List()
			_ = b.Refresh(t.Context())
			if b.List() != before {
				t.Error("equal prices are another list")
			}
		})
	}
}
