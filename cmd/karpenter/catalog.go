package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/aws/aws-sdk-go-v2/config"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/class"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/kit/version"
	"karpenter.sh/karpenter/internal/ui/cli"
)

// planCatalog is what the commands plan with: EC2's catalogue as it ships with Karpenter.
func planCatalog(m cli.Market, class *awsv1.EC2NodeClass) (*cloud.Catalog, error) {
	// Whether the controller's gate is on is not known here; a class that it has refused says so.
	o := offline.Options{Region: m.Region, Class: class, Settings: hardware.Settings{Formulas: true}}
	if m.Prices != "" {
		var err error
		if o.Prices, err = price.ReadTable(m.Prices); err != nil {
			return nil, fmt.Errorf("--prices: %w", err)
		}
	}
	if class != nil {
		for _, s := range class.Status.Subnets {
			o.Zones = append(o.Zones, s.Zone)
		}
	}
	switch m.Spot {
	case "model":
	case "none":
		o.Spot = offline.SpotNone
	default:
		prices, err := spotPrices(m.Spot)
		if err != nil {
			return nil, fmt.Errorf("--spot-prices: %w", err)
		}
		o.Spot, o.SpotPrices = offline.SpotTable, prices
	}
	return offline.Catalog(o)
}

// pricesOf says whose prices a market has.
func pricesOf(m cli.Market) (cli.Source, error) {
	s := cli.Source{Made: awsdata.Made(), Unlisted: awsdata.Unlisted()}
	if m.Prices == "" {
		s.Region, _ = awsdata.PriceRegion(m.Region)
		return s, nil
	}
	t, err := price.ReadTable(m.Prices)
	if err != nil {
		return s, fmt.Errorf("--prices: %w", err)
	}
	s.Region, s.Made = t.Region, t.Made
	return s, nil
}

// readPrices asks AWS for the price list of a region with the caller's credentials.
func readPrices(ctx context.Context, region string) (*price.Table, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the AWS configuration: %w", err)
	}
	if region != "" {
		cfg.Region = region
	}
	if cfg.Region == "" {
		return nil, errors.New("the region is not known: say --region, or set AWS_REGION")
	}
	clients := ec2api.New(cfg, version.Number(), ec2api.Observer{})
	return price.Fetch(ctx, cfg.Region, clients.EC2, clients.Pricing)
}

// editClass says what an edit of a node class does to machines.
func editClass(from, to *awsv1.EC2NodeClass) func(*v1.NodeClaim) (cloud.DriftReason, bool) {
	return class.NewEdit(from, to).Drifts
}

// spotPrices reads a file of the form {"m5.large": {"us-east-1a": 0.04}}.
func spotPrices(file string) (map[price.Pool]float64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w; use model, none, or a file", err)
	}
	var table map[string]map[string]float64
	if err := json.Unmarshal(text, &table); err != nil {
		return nil, fmt.Errorf(`%s: %w; the form is {"type": {"zone": dollars}}`, file, err)
	}
	out := map[price.Pool]float64{}
	for name, zones := range table {
		for zone, dollars := range zones {
			if dollars <= 0 {
				return nil, fmt.Errorf("%s: the price of %s in %s is not above zero", file, name, zone)
			}
			out[price.Pool{Type: name, Zone: zone}] = dollars
		}
	}
	return out, nil
}
