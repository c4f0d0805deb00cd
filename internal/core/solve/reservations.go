package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"
)

// A reservation is machines that are paid for: so many new bins may each hold one, and no other is bought with that offer.

// hold takes a machine of a reservation for a new bin if its cheapest offer is reserved, and narrows its choices to it. Otherwise
// reserved offers are taken out: other pods will need them.
func (k *stock) hold(n *newNode, mask bits.Set) {
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
		k.holds(n, cat.Offers[o].Reservation)
		return
	}
	k.bins.template(n).DropReserved(mask)
}

// holds gives a new bin a machine of a reservation.
func (k *stock) holds(n *newNode, reservation int) {
	n.held = reservation
	k.left[reservation]--
	if k.left[reservation] == 0 {
		k.prices.rows = nil
	}
}
