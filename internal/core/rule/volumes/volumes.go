// Package volumes counts attached volumes per CSI driver on each bin and reports whether more may be attached.
//
// A volume that several pods share counts once on each node. A driver without a limit on a bin is unlimited there.
package volumes

import "slices"

// A Volume is one volume claim that a class mounts.
type Volume struct {
	Driver int // index of the CSI driver
	ID     int // equal for pods that share the claim
}

// A Use is how many volumes of one driver are attached to a bin, and how many may be; Limit −1 is unlimited.
type Use struct{ Count, Limit int32 }

// A Book holds the attachments of each bin.
type Book struct {
	drivers int
	use     []Use   // bin-major
	ids     [][]int // [bin] IDs of attached volumes, as far as pods of the problem use them, sorted
}

// NewBook returns a book for so many drivers, without bins.
func NewBook(drivers int) *Book { return &Book{drivers: drivers} }

// Expect allocates memory for so many further bins.
func (b *Book) Expect(bins int) {
	b.use, b.ids = slices.Grow(b.use, bins*b.drivers), slices.Grow(b.ids, bins)
}

// Open adds a bin. uses is indexed by driver and may be shorter; ids are the shared volumes it already has.
func (b *Book) Open(uses []Use, ids []int) {
	for d := range b.drivers {
		if d < len(uses) {
			b.use = append(b.use, uses[d])
		} else {
			b.use = append(b.use, Use{Limit: -1})
		}
	}
	b.ids = append(b.ids, slices.Clone(ids))
}

// Full returns a driver that would exceed its limit if vols were attached to bin, or -1. Volumes that are attached already count once.
func (b *Book) Full(bin int, vols []Volume) int {
	for i, v := range vols {
		u := b.use[bin*b.drivers+v.Driver]
		if u.Limit < 0 {
			continue
		}
		extra := int32(0)
		for j, w := range vols {
			if w.Driver != v.Driver {
				continue
			}
			if j < i {
				extra = -1 // this driver has been looked at
				break
			}
			if _, has := slices.BinarySearch(b.ids[bin], w.ID); !has {
				extra++
			}
		}
		if extra > 0 && u.Count+extra > u.Limit {
			return v.Driver
		}
	}
	return -1
}

// Attach records that vols are attached to bin.
func (b *Book) Attach(bin int, vols []Volume) {
	for _, v := range vols {
		at, has := slices.BinarySearch(b.ids[bin], v.ID)
		if has {
			continue
		}
		b.ids[bin] = slices.Insert(b.ids[bin], at, v.ID)
		b.use[bin*b.drivers+v.Driver].Count++
	}
}

// With returns how many volumes of driver are attached to bin once vols are too.
func (b *Book) With(bin, driver int, vols []Volume) int {
	n := int(b.use[bin*b.drivers+driver].Count)
	for i, v := range vols {
		if _, has := slices.BinarySearch(b.ids[bin], v.ID); v.Driver == driver && !has && !slices.Contains(vols[:i], v) {
			n++
		}
	}
	return n
}

// Limit changes how many volumes may be attached to bin; uses is as for Open.
func (b *Book) Limit(bin int, uses []Use) {
	for d := range b.drivers {
		limit := int32(-1)
		if d < len(uses) {
			limit = uses[d].Limit
		}
		b.use[bin*b.drivers+d].Limit = limit
	}
}
