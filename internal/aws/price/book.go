package price

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/kit/bug"
)

// spotAPI is the part of EC2 that spot prices come from.
type spotAPI interface {
	DescribeSpotPriceHistory(context.Context, *ec2.DescribeSpotPriceHistoryInput,
		...func(*ec2.Options)) (*ec2.DescribeSpotPriceHistoryOutput, error)
}

// productsAPI is the part of the price list service that on-demand prices come from.
type productsAPI interface {
	GetProducts(context.Context, *pricing.GetProductsInput, ...func(*pricing.Options)) (*pricing.GetProductsOutput, error)
}

// A Book holds the current prices and refreshes them. Reading never waits for a refresh.
type Book struct {
	region   string
	isolated bool
	spot     spotAPI
	products productsAPI
	// Zones, if set, names the zones of the region: local ones have prices of their own.
	Zones func() []string

	mu   sync.Mutex // one refresh writes at a time
	list atomic.Pointer[List]
}

// NewBook returns a Book with the prices that ship with Karpenter. isolated means that the price list service cannot
// be reached.
func NewBook(region string, isolated bool, spot spotAPI, products productsAPI) *Book {
	b := &Book{region: region, isolated: isolated, spot: spot, products: products}
	b.list.Store(Static(region))
	return b
}

// Begin replaces the first prices by those of a file. It refuses prices of another region.
func (b *Book) Begin(file string) error {
	t, err := ReadTable(file)
	if err != nil {
		return fmt.Errorf("price-file: %w", err)
	}
	if t.Region != b.region {
		return fmt.Errorf("price-file: %s has the prices of %s, but the cluster is in %s", file, t.Region, b.region)
	}
	b.replace(func(*List) *List { return t.List() })
	return nil
}

// List returns the current prices. While nothing changes it is the same pointer.
func (b *Book) List() *List { return b.list.Load() }

// Refresh asks for on-demand and spot prices at the same time. Prices that fail or come empty stay as they were.
func (b *Book) Refresh(ctx context.Context) error {
	var wg sync.WaitGroup
	var onDemandErr, spotErr error
	wg.Go(func() {
		defer bug.Catch(&onDemandErr, "reading on-demand prices")
		onDemandErr = b.refreshOnDemand(ctx)
	})
	wg.Go(func() {
		defer bug.Catch(&spotErr, "reading spot prices")
		spotErr = b.refreshSpot(ctx)
	})
	wg.Wait()
	return errors.Join(onDemandErr, spotErr)
}

// replace stores the edited list if it differs.
func (b *Book) replace(edit func(*List) *List) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.list.Load()
	if next := edit(old); !next.Equal(old) {
		b.list.Store(next)
	}
}

// refreshOnDemand asks for on-demand prices of the region and of its local zones.
func (b *Book) refreshOnDemand(ctx context.Context) error {
	if b.isolated || strings.HasPrefix(b.region, "us-gov-") {
		return nil // there is no price list service: the shipped table stays
	}
	prices := map[string]cloud.NanoUSD{}
	var errs []error
	for _, sold := range machines {
		n, err := b.query(ctx, ProductsQuery(b.region, sold.tenancy, sold.family), prices)
		if err == nil && n == 0 {
			err = errors.New("the answer is empty")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("on-demand prices of %q: %w", sold.family, err))
		}
	}
	b.replace(func(l *List) *List { return l.WithOnDemand(prices) })
	return errors.Join(append(errs, b.refreshLocal(ctx))...)
}

// machines are the product families of the price list that hold machines, each with the tenancy of its usual price.
var machines = []struct{ tenancy, family string }{{"Shared", "Compute Instance"}, {"Dedicated", "Compute Instance (bare metal)"}}

// refreshLocal asks for the prices of local zones. A type that the price list does not have there costs what it costs
// in the region.
func (b *Book) refreshLocal(ctx context.Context) error {
	if b.Zones == nil {
		return nil
	}
	all, asked := map[Pool]cloud.NanoUSD{}, map[string]bool{}
	var errs []error
	for _, zone := range b.Zones() {
		group, local := localGroup(b.region, zone)
		if !local || asked[group] {
			continue
		}
		asked[group] = true
		prices := map[string]cloud.NanoUSD{}
		for _, sold := range machines {
			if _, err := b.query(ctx, ProductsQuery(group, sold.tenancy, sold.family), prices); err != nil {
				errs = append(errs, fmt.Errorf("on-demand prices of %q in %s: %w", sold.family, group, err))
			}
		}
		for name, price := range prices {
			all[Pool{name, group}] = price
		}
	}
	b.replace(func(l *List) *List { return l.withLocal(all) })
	return errors.Join(errs...)
}

// query adds the prices of a query to into, and returns how many there were.
func (b *Book) query(ctx context.Context, in *pricing.GetProductsInput, into map[string]cloud.NanoUSD) (int, error) {
	n := 0
	pages := pricing.NewGetProductsPaginator(b.products, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return n, err
		}
		for _, text := range page.PriceList {
			if name, p, ok := ReadProduct(text, Currency(b.region)); ok {
				into[name] = p
				n++
			}
		}
	}
	return n, nil
}

// ProductsQuery returns the query for on-demand prices of Linux machines in a region, or in a group of local zones.
func ProductsQuery(region, tenancy, family string) *pricing.GetProductsInput {
	match := func(field, value string) pricingtypes.Filter {
		return pricingtypes.Filter{Type: pricingtypes.FilterTypeTermMatch, Field: aws.String(field), Value: aws.String(value)}
	}
	return &pricing.GetProductsInput{
		ServiceCode: aws.String("AmazonEC2"), MaxResults: aws.Int32(100),
		Filters: []pricingtypes.Filter{
			match("regionCode", region), match("serviceCode", "AmazonEC2"), match("preInstalledSw", "NA"),
			match("operatingSystem", "Linux"), match("capacitystatus", "Used"), match("marketoption", "OnDemand"),
			match("tenancy", tenancy), match("productFamily", family),
		},
	}
}

// yuan is what AWS takes in China.
const yuan = "CNY"

// Currency returns the currency in which AWS bills a region.
func Currency(region string) string {
	if strings.HasPrefix(region, "cn-") {
		return yuan
	}
	return "USD"
}

// ReadProduct reads one entry of the price list; false for one without type or a price above zero.
func ReadProduct(text, currency string) (string, cloud.NanoUSD, bool) {
	var p struct {
		Product struct {
			Attributes struct {
				InstanceType string `json:"instanceType"`
			} `json:"attributes"`
		} `json:"product"`
		Terms struct {
			OnDemand map[string]struct {
				PriceDimensions map[string]struct {
					PricePerUnit map[string]string `json:"pricePerUnit"`
				} `json:"priceDimensions"`
			}
		} `json:"terms"`
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil || p.Product.Attributes.InstanceType == "" {
		return "", 0, false
	}
	for _, term := range p.Terms.OnDemand {
		for _, dimension := range term.PriceDimensions {
			dollars, err := strconv.ParseFloat(dimension.PricePerUnit[currency], 64)
			if err == nil && dollars > 0 && dollars < maxDollars {
				return p.Product.Attributes.InstanceType, cloud.FromDollars(dollars), true
			}
		}
	}
	return "", 0, false
}

// maxDollars is above any hourly price. A higher price is a mistake, and would overflow.
const maxDollars = 1e6

// refreshSpot asks for the present spot prices of all types and zones.
func (b *Book) refreshSpot(ctx context.Context) error {
	prices := map[Pool]cloud.NanoUSD{}
	seen := map[Pool]time.Time{}
	pages := ec2.NewDescribeSpotPriceHistoryPaginator(b.spot, &ec2.DescribeSpotPriceHistoryInput{
		ProductDescriptions: []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"},
		StartTime:           aws.Time(time.Now()),
		MaxResults:          aws.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("spot prices: %w", err)
		}
		for _, s := range page.SpotPriceHistory {
			readSpot(s, prices, seen)
		}
	}
	if len(prices) == 0 {
		return errors.New("spot prices: the answer is empty")
	}
	b.replace(func(l *List) *List { return l.WithSpot(prices) })
	return nil
}

// readSpot reads a quote; the youngest quote of a pool counts.
func readSpot(s ec2types.SpotPrice, prices map[Pool]cloud.NanoUSD, seen map[Pool]time.Time) {
	dollars, err := strconv.ParseFloat(aws.ToString(s.SpotPrice), 64)
	if priced := dollars >= 0 && dollars < maxDollars; err != nil || s.Timestamp == nil || !priced { // NaN is not priced either
		return
	}
	pool := Pool{string(s.InstanceType), aws.ToString(s.AvailabilityZone)}
	if at, ok := seen[pool]; ok && !s.Timestamp.After(at) {
		return
	}
	seen[pool] = *s.Timestamp
	prices[pool] = cloud.FromDollars(dollars)
}
