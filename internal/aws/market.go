package aws

import (
	"context"
	"fmt"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/catalogue"
	"karpenter.sh/karpenter/internal/aws/nodememory"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/aws/reservation"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/aws/spotrisk"
	"karpenter.sh/karpenter/internal/aws/zonalshift"
)

// A market knows what can be bought: types, prices, reservations, and what is out of stock.
type market struct {
	env          *environment
	classes      *classes
	prices       *price.Book
	stock        *shortage.List
	memory       *nodememory.Memory
	risks        *spotrisk.Memory
	reservations *reservation.Book
	catalogues   *catalogue.Catalogues
	shifts       *zonalshift.Watch // nil unless zonal shifts are followed
}

// newMarket builds the market. It fails if zonal shifts cannot be followed or the price file cannot be read.
func newMarket(ctx context.Context, env *environment, c *classes, stock *shortage.List, placing *placing) (*market, error) {
	s, api, region := env.settings, env.clients, env.in.Config.Region
	k := &market{env: env, classes: c, stock: stock, memory: nodememory.New(), risks: spotrisk.New(region),
		reservations: reservation.NewBook(api.EC2), prices: price.NewBook(region, s.IsolatedVPC, api.EC2, api.Pricing)}
	k.prices.Zones = env.inventory.Zones
	if s.EnableZonalShift {
		if err := k.watchShifts(ctx); err != nil {
			return nil, err
		}
	}
	sources := catalogue.Sources{
		Region: region, Settings: s.Settings, Unpriced: s.NodeOverlay, Inventory: env.inventory, Prices: k.prices,
		Stock: stock, Memory: k.memory, Home: placing.home, Shifts: k.shifts, Risks: k.risks,
	}
	if s.ReservedCapacity {
		sources.Reservations = k.reservations
	}
	k.catalogues = catalogue.New(sources)
	if s.PriceFile != "" {
		if err := k.prices.Begin(s.PriceFile); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// Catalog returns what can be launched for a pool.
func (k *market) Catalog(ctx context.Context, pool *v1.NodePool) (*cloud.Catalog, error) {
	ref := pool.Spec.Template.Spec.NodeClassRef
	if ref == nil {
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf("pool %s names no node class", pool.Name)}
	}
	nc, err := k.classes.readyClassFor(ctx, ref.Name, pool.Annotations)
	if err != nil {
		return nil, err
	}
	return k.catalogues.Catalog(nc)
}

// catalogFor returns what can be launched of a class for a pool ("" for none), with NodeOverlays applied.
func (k *market) catalogFor(ctx context.Context, nc *awsv1.EC2NodeClass, pool string) (*cloud.Catalog, error) {
	c, err := k.catalogues.Catalog(nc)
	if err != nil || k.env.in.Corrected == nil {
		return c, err
	}
	return k.env.in.Corrected(ctx, pool, c), nil
}
