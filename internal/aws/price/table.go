package price

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"karpenter.sh/karpenter/cloud"
)

// A Table is the price list of one region: what `karpenter prices fetch` writes, and --prices and the controller's price-file read.
// Prices are in what AWS takes in the region, dollars or yuan.
type Table struct {
	Region   string                        `json:"region"`
	Made     string                        `json:"made"` // day, such as 2026-07-20
	OnDemand map[string]float64            `json:"onDemand"`
	Zones    map[string]Zone               `json:"zones"`
	Spot     map[string]map[string]float64 `json:"spot,omitempty"` // by type and zone
}

// A Zone is an availability zone of a Table.
type Zone struct {
	ID    string   `json:"id"`
	Types []string `json:"types"`
}

// tableSize is more than the table of any region has.
const tableSize = 64 << 20

// ReadTable reads the file of a table. It refuses a table without a region or prices, and prices that are none.
func ReadTable(file string) (*Table, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", file)
	}
	t := &Table{}
	if err := json.NewDecoder(io.LimitReader(f, tableSize)).Decode(t); err != nil {
		return nil, fmt.Errorf("%s: %w; karpenter prices fetch writes such a file", file, err)
	}
	if t.Region == "" || len(t.OnDemand) == 0 {
		return nil, fmt.Errorf("%s names no region or no price; karpenter prices fetch writes such a file", file)
	}
	tables := maps.Clone(t.Spot)
	if tables == nil {
		tables = map[string]map[string]float64{}
	}
	tables[""] = t.OnDemand
	for _, prices := range tables {
		for name, p := range prices {
			if !(p > 0 && p < maxDollars) {
				return nil, fmt.Errorf("%s: the price %v of %s is not above zero, or too large", file, p, name)
			}
		}
	}
	return t, nil
}

// List returns the prices of the table, without those that ship with Karpenter.
func (t *Table) List() *List {
	l := &List{region: t.Region, onDemand: make(map[string]cloud.NanoUSD, len(t.OnDemand))}
	for name, dollars := range t.OnDemand {
		l.onDemand[name] = cloud.FromDollars(dollars)
	}
	if len(t.Spot) == 0 {
		return l
	}
	quotes := map[Pool]cloud.NanoUSD{}
	for name, zones := range t.Spot {
		for zone, dollars := range zones {
			quotes[Pool{name, zone}] = cloud.FromDollars(dollars)
		}
	}
	return l.WithSpot(quotes)
}

// zonesAPI is the part of EC2 that Fetch needs beside spot prices.
type zonesAPI interface {
	spotAPI
	ec2.DescribeInstanceTypeOfferingsAPIClient
	DescribeAvailabilityZones(context.Context, *ec2.DescribeAvailabilityZonesInput,
		...func(*ec2.Options)) (*ec2.DescribeAvailabilityZonesOutput, error)
}

// Fetch asks AWS for the prices, zones and offerings of a region.
func Fetch(ctx context.Context, region string, api zonesAPI, products productsAPI) (*Table, error) {
	b := &Book{region: region, spot: api, products: products}
	b.list.Store(&List{region: region})
	if err := b.Refresh(ctx); err != nil {
		return nil, err
	}
	l := b.List()
	t := &Table{Region: region, Made: time.Now().UTC().Format(time.DateOnly), OnDemand: map[string]float64{},
		Zones: map[string]Zone{}, Spot: map[string]map[string]float64{}}
	for name, p := range l.onDemand {
		t.OnDemand[name] = p.Dollars()
	}
	if len(t.OnDemand) == 0 {
		return nil, errors.New("AWS has no price list of " + region)
	}
	for pool, p := range l.spot {
		if t.Spot[pool.Type] == nil {
			t.Spot[pool.Type] = map[string]float64{}
		}
		t.Spot[pool.Type][pool.Zone] = p.Dollars()
	}
	return t, t.readZones(ctx, api)
}

// readZones asks for the zones of the region and what they offer.
func (t *Table) readZones(ctx context.Context, api zonesAPI) error {
	zones, err := api.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{})
	if err != nil {
		return fmt.Errorf("zones: %w", err)
	}
	for _, z := range zones.AvailabilityZones {
		t.Zones[aws.ToString(z.ZoneName)] = Zone{ID: aws.ToString(z.ZoneId)}
	}
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(api, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: ec2types.LocationTypeAvailabilityZone, MaxResults: aws.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("offerings by zone: %w", err)
		}
		for _, o := range page.InstanceTypeOfferings {
			name := aws.ToString(o.Location)
			z := t.Zones[name]
			z.Types = append(z.Types, string(o.InstanceType))
			t.Zones[name] = z
		}
	}
	for _, z := range t.Zones {
		slices.Sort(z.Types)
	}
	return nil
}
