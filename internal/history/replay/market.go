package replay

import (
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
)

// A Market says how often spot machines are interrupted, and how often nothing is to be had. Events are decided by
// hashes of names and hours, so that they are the same in every run, and for all variants that ask for the same.
type Market []Rate

// A Rate is for the machines of a type in a zone; "" stands for all. If several rates match, the last one counts.
type Rate struct {
	Type, Zone, CapacityType string
	Interrupted              float64 // the part of spot machines that is taken back within thirty days
	SoldOut                  float64 // the part of all hours in which there are none
}

const (
	month = 30 * 24 * time.Hour
	// notice is how long a machine runs after the cloud announced an interruption.
	notice = 2 * time.Minute
	// dry is how long a way to buy counts as sold out.
	dry = 3 * time.Minute
)

// An offerKey is a way to buy a machine.
type offerKey struct{ kind, zone, capacityType string }

// rateOf returns the rate of a way to buy, zero if none matches.
func (m Market) rateOf(k offerKey) Rate {
	for _, r := range slices.Backward(m) {
		if (r.Type == "" || r.Type == k.kind) && (r.Zone == "" || r.Zone == k.zone) &&
			(r.CapacityType == "" || r.CapacityType == k.capacityType) {
			return r
		}
	}
	return Rate{}
}

// soldOut reports whether nothing is to be had in the hour of now.
func (m Market) soldOut(k offerKey, now time.Time) bool {
	rate := m.rateOf(k).SoldOut
	return rate > 0 && chance(k.kind, k.zone, k.capacityType, now.UTC().Truncate(time.Hour).Format(time.RFC3339)) < rate
}

// lifetime returns after how long a spot machine is interrupted. ok is false if it is not, because of its kind, or
// because that would be after more than a hundred years.
func (m Market) lifetime(k offerKey, name string) (d time.Duration, ok bool) {
	rate := min(m.rateOf(k).Interrupted, 0.9999)
	if rate <= 0 || k.capacityType != v1.CapacityTypeSpot {
		return 0, false
	}
	months := math.Log(1-chance("interruption", name)) / math.Log(1-rate)
	if months > 1200 {
		return 0, false
	}
	return time.Duration(months * float64(month)).Truncate(time.Second), true
}

// chance returns a number from 0 up to 1 that is the hash of words: a random number that is the same in each run. The
// multiplications mix the bits, because FNV gives similar words similar numbers (SplitMix64).
func chance(words ...string) float64 {
	h := fnv.New64a()
	for _, w := range words {
		_, _ = h.Write([]byte(w))
		_, _ = h.Write([]byte{0})
	}
	x := h.Sum64() // which words that are alike leave alike
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}

// A purchase is a machine that can be bought.
type purchase struct {
	it    *cloud.InstanceType
	offer *cloud.Offering
}

// buy returns how the machine of an opening is bought: as it was priced, or the cheapest way of its lists that is not
// sold out; nil if all are. What it finds sold out is not planned with for a while.
func (r *run) buy(o *engine.Opening) (*cloud.InstanceType, *cloud.Offering) {
	it, offer := r.offering(o)
	var dried []offerKey
	for offer != nil {
		key := offerKey{it.Name, offer.Zone(), offer.CapacityType()}
		if !r.set.Market.soldOut(key, r.now) {
			break
		}
		dried = append(dried, key)
		it, offer = r.nextBest(o, dried)
	}
	if len(dried) > 0 {
		r.meter.soldOut++
		for _, key := range dried {
			r.dried[key] = r.now.Add(dry)
		}
		r.updateCatalogs()
		r.after(dry, r.updateCatalogs)
	}
	return it, offer
}

// nextBest returns the cheapest way to buy the machine of an opening, except the ways in but.
func (r *run) nextBest(o *engine.Opening, but []offerKey) (kind *cloud.InstanceType, best *cloud.Offering) {
	for _, name := range o.Types {
		it := r.pools[o.Pool].Catalog.Type(name)
		if it == nil {
			continue
		}
		for i := range it.Offerings {
			f := &it.Offerings[i]
			if f.Available && slices.Contains(o.Zones, f.Zone()) && slices.Contains(o.CapacityTypes, f.CapacityType()) &&
				!slices.Contains(but, offerKey{name, f.Zone(), f.CapacityType()}) && (best == nil || f.Price < best.Price) {
				kind, best = it, f
			}
		}
	}
	return kind, best
}

// updateCatalogs makes the pools' catalogues leave out what is known to be sold out at this time.
func (r *run) updateCatalogs() {
	maps.DeleteFunc(r.dried, func(_ offerKey, until time.Time) bool { return !r.now.Before(until) })
	seen := map[*cloud.Catalog]*cloud.Catalog{}
	r.Pools, r.pools = slices.Clone(r.listed), map[string]engine.Pool{}
	for i := range r.Pools {
		p := &r.Pools[i]
		if seen[p.Catalog] == nil {
			seen[p.Catalog] = withoutSoldOut(p.Catalog, r.dried)
		}
		p.Catalog = seen[p.Catalog]
		r.pools[p.Pool.Name] = *p
	}
}

// withoutSoldOut returns a catalogue in which the given ways to buy are not available.
func withoutSoldOut(c *cloud.Catalog, dried map[offerKey]time.Time) *cloud.Catalog {
	if len(dried) == 0 {
		return c
	}
	out := &cloud.Catalog{Types: slices.Clone(c.Types)}
	for i, it := range out.Types {
		lacks := func(f cloud.Offering) bool {
			_, is := dried[offerKey{it.Name, f.Zone(), f.CapacityType()}]
			return is && f.Available
		}
		if !slices.ContainsFunc(it.Offerings, lacks) {
			continue
		}
		less := *it
		less.Offerings = slices.Clone(it.Offerings)
		for j := range less.Offerings {
			less.Offerings[j].Available = less.Offerings[j].Available && !lacks(less.Offerings[j])
		}
		out.Types[i] = &less
	}
	return out
}

// interrupt drains a spot machine, as budgets allow, and takes it back after the notice.
func (r *run) interrupt(m *machine) {
	if m.stopped {
		return
	}
	r.meter.reasons["Interrupted"]++
	r.drain(m)
	r.after(notice, func() { r.takeBack(m) })
}

// takeBack stops an interrupted machine with all pods that are left.
func (r *run) takeBack(m *machine) {
	if m.stopped {
		return
	}
	m.stopped = true
	for _, p := range slices.SortedFunc(maps.Keys(m.pods), byKey) {
		r.evict(p)
	}
	r.stop(m)
}
