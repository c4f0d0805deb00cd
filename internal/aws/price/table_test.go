package price_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// fetched is the file of prices that a user of the model of AWS gets.
func fetched(t *testing.T) (string, *price.Table) {
	t.Helper()
	c, err := awsmodel.New(awsmodel.Config{Cluster: awsmodel.Cluster{Name: "demo", Version: "1.36"}})
	if err != nil {
		t.Fatal(err)
	}
	clients := ec2api.New(c.AWSConfig(), "test", ec2api.Observer{})
	table, err := price.Fetch(t.Context(), "us-east-1", clients.EC2, clients.Pricing)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, table), table
}

func write(t *testing.T, table any) string {
	t.Helper()
	text, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "prices.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// The model of AWS sells what the data that ship with Karpenter list, so a catalogue of fetched prices is that of the data.
func TestFetchedPricesMakeTheCatalogueOfTheirRegion(t *testing.T) {
	file, _ := fetched(t)
	table, err := price.ReadTable(file)
	if err != nil {
		t.Fatal(err)
	}
	names := func(o offline.Options) (out []string, offerings int) {
		c, err := offline.Catalog(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range c.Types {
			out = append(out, it.Name)
			offerings += len(it.Offerings)
		}
		return out, offerings
	}
	want, wantOfferings := names(offline.Options{Spot: offline.SpotNone})
	got, gotOfferings := names(offline.Options{Spot: offline.SpotNone, Prices: table})
	if diff := cmp.Diff(want, got); diff != "" || gotOfferings != wantOfferings {
		t.Errorf("%d offerings, want %d; types differ:\n%s", gotOfferings, wantOfferings, diff)
	}
	if _, more := names(offline.Options{Prices: table}); more <= gotOfferings {
		t.Errorf("%d offerings with spot, want more than %d", more, gotOfferings)
	}
}

// A region that the data do not know is planned with what its file says, and with nothing else.
func TestPricesOfAFileStandAlone(t *testing.T) {
	table := &price.Table{Region: "eu-west-1", Made: "2026-11-01", OnDemand: map[string]float64{"m5.large": 0.107},
		Zones: map[string]price.Zone{"eu-west-1a": {ID: "euw1-az1", Types: []string{"c5.large", "m5.large"}}},
		Spot:  map[string]map[string]float64{"m5.large": {"eu-west-1a": 0.04}}}
	c, err := offline.Catalog(offline.Options{Region: "us-east-1", Prices: table})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, it := range c.Types {
		for _, o := range it.Offerings {
			got = append(got, it.Name+" "+o.Zone()+" "+fmt.Sprint(o.Price))
		}
	}
	slices.Sort(got)
	want := []string{"m5.large eu-west-1a " + fmt.Sprint(cloud.FromDollars(0.04)), "m5.large eu-west-1a " + fmt.Sprint(cloud.FromDollars(0.107))}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the catalogue differs:\n%s", diff)
	}
	if _, err := offline.Catalog(offline.Options{Region: "eu-west-1"}); err == nil || !strings.Contains(err.Error(), "karpenter prices fetch --region eu-west-1") {
		t.Errorf("error = %v, want the command that fetches the prices of eu-west-1", err)
	}
}

func TestABookBeginsWithThePricesOfAFile(t *testing.T) {
	b := price.NewBook("eu-west-1", true, nil, nil)
	file := write(t, price.Table{Region: "eu-west-1", OnDemand: map[string]float64{"m5.large": 0.107}})
	if err := b.Begin(file); err != nil {
		t.Fatal(err)
	}
	if p, ok := b.List().OnDemand("m5.large"); !ok || p != cloud.FromDollars(0.107) {
		t.Errorf("m5.large costs %v, want 0.107", p)
	}
	if _, ok := b.List().OnDemand("c5.large"); ok {
		t.Error("c5.large has a price, which is another region's")
	}
	if err := price.NewBook("eu-west-2", true, nil, nil).Begin(file); err == nil || !strings.Contains(err.Error(), "eu-west-2") {
		t.Errorf("error = %v, want that the file is another region's", err)
	}
}

func TestFilesThatAreNoPricesAreRefused(t *testing.T) {
	for name, text := range map[string]any{
		"no region":       price.Table{OnDemand: map[string]float64{"m5.large": 1}},
		"no price":        price.Table{Region: "eu-west-1"},
		"a negative":      price.Table{Region: "eu-west-1", OnDemand: map[string]float64{"m5.large": -1}},
		"a spot price":    price.Table{Region: "eu-west-1", OnDemand: map[string]float64{"m5.large": 1}, Spot: map[string]map[string]float64{"m5.large": {"a": 1e9}}},
		"another form":    []string{"m5.large"},
		"spot prices for": map[string]map[string]float64{"m5.large": {"us-east-1a": 0.04}},
	} {
		if _, err := price.ReadTable(write(t, text)); err == nil {
			t.Errorf("%s: the file is read", name)
		}
	}
	if _, err := price.ReadTable("/dev/zero"); err == nil {
		t.Error("a device is read")
	}
}
