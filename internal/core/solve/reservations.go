package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"
)

// A reservation is a number of machines that are paid for already. Each may be held by one new bin, and only bins that hold one may be
// bought by its offer.

// holdReserved takes a machine of a reservation for a new bin if the bin's cheapest offer is reserved, and narrows mask to that offer.
// Otherwise it takes reserved offers out of mask.
func (k *stock) holdReserved(n *newNode, mask bits.Set) {
	cat := k.bins.template(n).Catalog
	if len(cat.Left) == 0 {
		return
	}
	_, o := cheapestOffer(k.bins.template(n), n.target, mask, k.left)
	if o >= 0 && cat.Offers[o].Reservation >= 0 {
		for at := range cat.Offers {
			if at != o {
				mask.Remove(at)
			}
		}
		k.takeReserved(n, cat.Offers[o].Reservation)
		return
	}
	k.bins.template(n).DropReserved(mask)
}

// takeReserved gives a new bin a machine of a reservation. With the last one, prices change, so the cached ones are dropped.
func (k *stock) takeReserved(n *newNode, reservation int) {
	n.held = reservation
	k.left[reservation]--
	if k.left[reservation] == 0 {
		k.prices.rows = nil
	}
}
