package spread

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
)

func TestAdmits(t *testing.T) {
	zones := bits.Full(3)
	for name, tc := range map[string]struct {
		group   Group
		domain  int
		self    bool
		allowed bits.Set
		want    bool
	}{
		"the emptiest domain takes one more":                {Group{Universe: zones, MaxSkew: 1, Count: []int32{1, 0, 1}}, 1, true, nil, true},
		"a fuller one does not":                             {Group{Universe: zones, MaxSkew: 1, Count: []int32{1, 0, 1}}, 0, true, nil, false},
		"unless the pod does not count itself":              {Group{Universe: zones, MaxSkew: 1, Count: []int32{1, 0, 1}}, 0, false, nil, true},
		"domains without a node hold a minimum if in reach": {Group{Universe: bits.Of(3, 0, 2), MaxSkew: 1, Count: []int32{1, 0, 1}}, 0, true, bits.Of(3, 1), false},
		"and none if not":                                   {Group{Universe: bits.Of(3, 0, 2), MaxSkew: 1, Count: []int32{1, 0, 1}}, 0, true, nil, true},
		"a domain in reach takes the first":                 {Group{Universe: bits.Full(2), MaxSkew: 1, Count: []int32{1, 1}}, 70, true, bits.Of(80, 70), true},
		"domains in reach count for the minimum number":     {Group{Universe: bits.Full(2), MaxSkew: 1, MinDomains: 3, Count: []int32{1, 1, 1}}, 0, true, bits.Of(3, 2), true},
		"too few domains make the minimum zero":             {Group{Universe: bits.Full(2), MaxSkew: 1, MinDomains: 3, Count: []int32{1, 1}}, 0, true, nil, false},
		"a domain without a node out of reach is none":      {Group{Universe: bits.Full(2), MaxSkew: 9}, 2, true, nil, false},
		"a node without the label is no domain":             {Group{Universe: zones, MaxSkew: 9}, -1, true, nil, false},
		"a host counts from zero":                           {Group{Key: Host, MaxSkew: 2, Count: []int32{1}}, 0, true, nil, true},
		"a full host":                                       {Group{Key: Host, MaxSkew: 2, Count: []int32{2}}, 0, true, nil, false},
		"a new host is empty":                               {Group{Key: Host, MaxSkew: 1, Count: []int32{2}}, 9, true, nil, true},
		"affinity goes where friends are":                   {Group{Kind: Affinity, Count: []int32{0, 2}, Total: 2}, 1, false, nil, true},
		"and nowhere else":                                  {Group{Kind: Affinity, Count: []int32{0, 2}, Total: 2}, 0, true, nil, false},
		"the first of a self-affine group is free":          {Group{Kind: Affinity}, 2, true, nil, true},
		"the first of another group is not":                 {Group{Kind: Affinity}, 2, false, nil, false},
		"friends out of reach bind a self-affine pod":       {Group{Kind: Affinity, Count: []int32{3}, Total: 3}, 1, true, bits.Of(3, 1), false},
		"anti-affinity wants an empty domain":               {Group{Kind: Anti, Count: []int32{0, 1}}, 0, true, nil, true},
		"and no other":                                      {Group{Kind: Anti, Count: []int32{0, 1}}, 1, true, nil, false},
		"a node without the label separates nobody":         {Group{Kind: Anti, Count: []int32{1, 1}}, -1, true, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.group.Admits(tc.domain, tc.self, tc.allowed); got != tc.want {
				t.Errorf("Admits = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCountsAreExact(t *testing.T) {
	g := Group{Kind: Anti, Required: true}
	g.Add(3, 2)
	g.Add(1, 1)
	g.Add(3, -1)
	g.AddOwners(2, 1)
	c := g.Clone()
	c.Add(3, 5)
	if g.At(3) != 1 || g.At(1) != 1 || g.At(0) != 0 || g.At(99) != 0 || g.Total != 2 {
		t.Errorf("%+v", g)
	}
	if !g.Repels(2) || g.Repels(3) || g.Repels(-1) {
		t.Error("owners repel from their own domain only")
	}
}

func TestHostRoom(t *testing.T) {
	for name, tc := range map[string]struct {
		group Group
		self  bool
		want  int
	}{
		"up to the skew":                        {Group{Key: Host, MaxSkew: 3, Count: []int32{1}}, true, 2},
		"no limit for pods that do not match":   {Group{Key: Host, MaxSkew: 3, Count: []int32{1}}, false, 10},
		"one of a kind that keeps apart":        {Group{Key: Host, Kind: Anti}, true, 1},
		"none beside a foe":                     {Group{Key: Host, Kind: Anti, Count: []int32{1}}, true, 0},
		"any number that avoids others":         {Group{Key: Host, Kind: Anti}, false, 10},
		"any number beside friends":             {Group{Key: Host, Kind: Affinity, Count: []int32{1}, Total: 1}, false, 10},
		"none without friends":                  {Group{Key: Host, Kind: Affinity}, false, 0},
		"the first of a self-affine group":      {Group{Key: Host, Kind: Affinity}, true, 10},
		"not the first, when it started beside": {Group{Key: Host, Kind: Affinity, Count: []int32{0, 1}, Total: 1}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.group.HostRoom(0, tc.self, 10); got != tc.want {
				t.Errorf("HostRoom = %d, want %d", got, tc.want)
			}
		})
	}
}
