package main

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
)

// A bin is a new node of a plan: how many pods it takes, and the offerings that its claim allows.
type bin struct {
	pods      int
	offerings []*cloud.Offering
}

// A bill is what the nodes of a plan cost an hour: both planners' nodes are priced by these few lines.
type bill struct {
	Nodes int
	// Floor is the sum of the cheapest offerings that the claims allow: what on-demand costs, and the least that spot may cost.
	Floor cloud.NanoUSD
	// Cost adds what this project's decisions add for each node, so that a plan can be compared with the proven bound.
	Cost cloud.NanoUSD
}

func billOf(bins []bin) bill {
	out := bill{Nodes: len(bins)}
	for _, b := range bins {
		first := slices.MinFunc(b.offerings, func(x, y *cloud.Offering) int { return cmp.Compare(x.Price, y.Price) })
		out.Floor += first.Price
		out.Cost += first.Price + min(engine.DefaultNodePrice, first.Price/20)
	}
	return out
}

// placed counts the pods on the nodes.
func placed(bins []bin) int {
	n := 0
	for _, b := range bins {
		n += b.pods
	}
	return n
}
