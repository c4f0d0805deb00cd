// Package scarce has pools of machines run out under Karpenter, as the model of AWS has them run out under us. Its
// KWOK provider sells whatever is asked for; here a launch gets the cheapest machine that it names and that there
// is, learns which dearer ones it did not get, and fails where there is none. What was found missing is not offered
// for three minutes, as Karpenter's AWS provider has it.
package scarce

import (
	"context"
	"fmt"
	"math"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	peerv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// missedFor is how long an offering that was found missing is not offered.
const missedFor = 3 * time.Minute

// A Provider sells what another one sells, except what has run out.
type Provider struct {
	cloudprovider.CloudProvider
	file  string // of patterns over capacity type, machine type and zone, one a line
	types map[string]*cloudprovider.InstanceType

	mu     sync.Mutex
	missed map[offering]time.Time
}

// An offering is where a machine is bought.
type offering struct{ capacityType, machine, zone string }

func (o offering) String() string { return o.capacityType + "/" + o.machine + "/" + o.zone }

// New has those pools run out that a file names at each query; without a name none does.
func New(bare cloudprovider.CloudProvider, types []*cloudprovider.InstanceType, file string) *Provider {
	p := &Provider{CloudProvider: bare, file: file, types: map[string]*cloudprovider.InstanceType{}, missed: map[offering]time.Time{}}
	for _, it := range types {
		p.types[it.Name] = it
	}
	return p
}

// Create launches the cheapest machine that the claim names and that there is.
func (p *Provider) Create(ctx context.Context, claim *peerv1.NodeClaim) (*peerv1.NodeClaim, error) {
	dry, err := p.dry()
	if err != nil {
		return nil, err
	}
	if len(dry) == 0 {
		return p.CloudProvider.Create(ctx, claim)
	}
	best, ok := p.choose(claim, dry)
	if !ok {
		return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("there is no machine left of those that %s names", claim.Name))
	}
	narrow := claim.DeepCopy()
	for key, value := range map[string]string{
		corev1.LabelInstanceTypeStable: best.machine, corev1.LabelTopologyZone: best.zone, peerv1.CapacityTypeLabelKey: best.capacityType,
	} {
		var rest []peerv1.NodeSelectorRequirementWithMinValues
		for _, r := range narrow.Spec.Requirements {
			if r.Key != key {
				rest = append(rest, r)
			}
		}
		narrow.Spec.Requirements = append(rest, peerv1.NodeSelectorRequirementWithMinValues{Key: key,
			Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	return p.CloudProvider.Create(ctx, narrow)
}

// choose returns the cheapest offering that a claim allows and that there is, and notes those that are cheaper and were missing.
func (p *Provider) choose(claim *peerv1.NodeClaim, dry []string) (best offering, ok bool) {
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	price, missing := math.Inf(1), map[offering]float64{}
	for _, name := range wanted.Get(corev1.LabelInstanceTypeStable).Values() {
		it := p.types[name]
		if it == nil {
			continue
		}
		for _, o := range it.Offerings.Available().Compatible(wanted) {
			at := offering{o.CapacityType(), name, o.Zone()}
			switch {
			case matches(dry, at):
				missing[at] = o.Price
			case o.Price < price || o.Price == price && at.String() < best.String():
				best, price, ok = at, o.Price, true
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, asked := range missing {
		if asked <= price {
			p.missed[at] = time.Now()
		}
	}
	return best, ok
}

// GetInstanceTypes leaves out what was found missing a short while ago.
func (p *Provider) GetInstanceTypes(ctx context.Context, pool *peerv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	all, err := p.CloudProvider.GetInstanceTypes(ctx, pool)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, since := range p.missed {
		if time.Since(since) >= missedFor {
			delete(p.missed, at)
		}
	}
	if len(p.missed) == 0 {
		return all, nil
	}
	out := make([]*cloudprovider.InstanceType, 0, len(all))
	for _, it := range all {
		left := &cloudprovider.InstanceType{Name: it.Name, Requirements: it.Requirements, Capacity: it.Capacity, Overhead: it.Overhead}
		for _, o := range it.Offerings {
			_, missed := p.missed[offering{o.CapacityType(), it.Name, o.Zone()}]
			left.Offerings = append(left.Offerings, &cloudprovider.Offering{Requirements: o.Requirements,
				Price: o.Price, Available: o.Available && !missed})
		}
		out = append(out, left)
	}
	return out, nil
}

// dry reads which pools have run out.
func (p *Provider) dry() ([]string, error) {
	if p.file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(p.file)
	if os.IsNotExist(err) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

func matches(patterns []string, at offering) bool {
	for _, pattern := range patterns {
		if ok, _ := path.Match(pattern, at.String()); ok {
			return true
		}
	}
	return false
}
