package main

import (
	"encoding/json"
	"fmt"
	"os"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/class"
	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/aws/price"
)

// planCatalog is what the commands plan with: EC2's catalogue as it ships with Karpenter.
func planCatalog(region, spot string, class *awsv1.EC2NodeClass) (*cloud.Catalog, error) {
	// Whether the controller's gate is on is not known here; a class that it has refused says so.
	o := offline.Options{Region: region, Class: class, Settings: hardware.Settings{Formulas: true}}
	if class != nil {
		for _, s := range class.Status.Subnets {
			o.Zones = append(o.Zones, s.Zone)
		}
	}
	switch spot {
	case "model":
	case "none":
		o.Spot = offline.SpotNone
	default:
		prices, err := spotPrices(spot)
		if err != nil {
			return nil, fmt.Errorf("--spot-prices: %w", err)
		}
		o.Spot, o.SpotPrices = offline.SpotTable, prices
	}
	return offline.Catalog(o)
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
