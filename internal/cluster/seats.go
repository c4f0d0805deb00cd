package cluster

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster/podclass"
)

// A Seat is a promise: a machine keeps room for one pod of a kind (its class and the labels of its template). Each seat is a row of its
// own, because each is kept for a time of its own. Seats are in memory only.
//
//   - A plan gives a pod a seat, at most one. A running pod has a seat only while its node is to be removed.
//   - When the pod is bound, its seat ends. If it is bound to another machine, where a pod of its kind has a seat, the two exchange seats.
//   - If a running pod with a seat is deleted and its owner will make it anew, the seat becomes vacant. The next waiting pod of the kind
//     takes it, under any name, and so does a pod of the kind that is bound to that machine.
//   - If the pod ends in another way, or the machine is gone, the seat ends.
type Seat struct {
	Pod    PodKey // the pod that is to take it; empty if it is vacant
	Class  *podclass.Class
	Labels *podclass.Labels
	// Target is the claim, or the node of a machine that has none.
	Target string
	// At is when it was promised to the pod, or when it became vacant.
	At time.Time

	vacancy uint64 // tells vacant seats apart, 0 if it is not vacant
}

// Vacant seats are kept for a pod that is still to come.
func (s *Seat) Vacant() bool { return s.vacancy > 0 }

func (s *Seat) kind() kind { return kind{s.Class, s.Labels.Template} }

// A kind is pods that may take each other's seats: they have the same class, and the same labels by their template.
type kind struct {
	class  *podclass.Class
	labels podclass.Identity // of the pod's template
}

func (p *Pod) kind() kind { return kind{p.Class, p.Labels.Template} }

// seatKey puts vacant seats first, oldest first, and then those of pods by name.
type seatKey struct {
	pod     PodKey
	vacancy uint64
}

func compareSeats(a, b seatKey) int {
	return cmp.Or(a.pod.Compare(b.pod), cmp.Compare(a.vacancy, b.vacancy))
}

func (s Seat) key() seatKey { return seatKey{s.Pod, s.vacancy} }

// seating finds the seats of a draft's table by target and by kind.
type seating struct {
	on     map[string]map[seatKey]struct{} // by target
	vacant map[kind][]uint64               // oldest first
	last   uint64                          // the number of the last vacancy
}

func newSeating() seating {
	return seating{on: map[string]map[seatKey]struct{}{}, vacant: map[kind][]uint64{}}
}

// Plan gives a pod a seat on a machine, named by its claim or its node, in place of its earlier seat. A pod that does not need one gets
// none: it is about to end, or it runs on a node that stays.
func (d *Draft) Plan(pod PodKey, target string, at time.Time) {
	p, ok := d.pods.get(pod)
	if !ok || !comesBack(p) || !d.leaves(p) {
		return
	}
	d.Unhold(pod)
	d.Unplan(pod)
	d.putSeat(Seat{Pod: pod, Class: p.Class, Labels: p.Labels, Target: d.targetOf(target), At: at})
}

// Unplan takes a pod's seat away.
func (d *Draft) Unplan(pod PodKey) { d.dropSeat(seatKey{pod: pod}) }

// DropVacant ends the seats that became vacant at since or before.
func (d *Draft) DropVacant(since time.Time) {
	for {
		oldest, ok := first(d.seats.all())
		if !ok || !oldest.Vacant() || oldest.At.After(since) {
			return
		}
		d.dropSeat(oldest.key())
	}
}

func first[V any](rows iter.Seq[V]) (row V, ok bool) {
	for row := range rows {
		return row, true
	}
	return row, false
}

// leaves reports whether a pod is on no node, or on a node that is to be removed or not known.
func (d *Draft) leaves(p *Pod) bool {
	row, ok := d.nodes.get(rowKey{name: p.NodeName})
	return p.NodeName == "" || !ok || row.MarkedForRemoval
}

// targetOf returns the name of a machine that stays the same when its Node registers: that of its claim, if it has one.
func (d *Draft) targetOf(name string) string {
	if d.machines.claims[name] == nil {
		if row, ok := d.nodes.get(rowKey{name: name}); ok && row.Claim != nil {
			return row.Claim.Name
		}
	}
	return name
}

// takes reports whether the machine of a seat exists and is not marked for removal.
func (d *Draft) takes(target string) bool {
	row, ok := d.nodes.get(rowKey{name: target})
	if c, claimed := d.byClaim.get(target); claimed {
		row, ok = d.nodes.get(c.row)
	}
	return ok && !row.MarkedForRemoval
}

// seatPod updates seats after a pod was put: its own seat, and a vacant seat that it may take. old is its earlier row, nil if it is new.
func (d *Draft) seatPod(old, row *Pod) {
	if old != nil && old.UID != row.UID {
		d.unseat(old)
		old = nil
	}
	switch seat, seated := d.seats.get(seatKey{pod: row.PodKey}); {
	case row.NodeName != "" && (old == nil || old.NodeName != row.NodeName):
		d.sit(row)
	case !comesBack(row):
		d.unseat(row)
	case !seated:
		d.offer(row)
	case seat.kind() != row.kind():
		seat.Class, seat.Labels = row.Class, row.Labels
		d.seats.put(seat)
	}
}

// comesBack reports whether a pod needs room now or soon. A pod that is being deleted does not, unless it is of a StatefulSet and
// bound: only when it is gone, its StatefulSet makes it anew under the same name.
func comesBack(p *Pod) bool {
	return !p.Terminal() && (p.Deleted.IsZero() || p.StatefulSet && p.NodeName != "")
}

// sit ends the seat of a pod that was bound. If the pod had no seat on its machine, it takes a seat of its kind there (seatFor). If it
// had a seat elsewhere, that seat replaces the one it took, if its machine stays: another pod may have it, or it is vacant as the taken
// one was.
func (d *Draft) sit(row *Pod) {
	own, seated := d.seats.get(seatKey{pod: row.PodKey})
	d.Unplan(row.PodKey)
	target := d.targetOf(row.NodeName)
	if seated && own.Target == target {
		return
	}
	taken, ok := d.seatFor(row, target, seated && !ownVolumes(row.Class))
	if !ok {
		return
	}
	if d.dropSeat(taken.key()); seated && d.takes(own.Target) {
		taken.Target = own.Target
		if !taken.Vacant() {
			taken.At = d.clock
		}
		d.putSeat(taken)
	}
}

// seatFor finds a seat of a pod's kind on a machine where the pod itself has none: the oldest vacant one or, if the pod has a seat to
// give in exchange, that of another pod.
func (d *Draft) seatFor(row *Pod, target string, exchange bool) (found Seat, ok bool) {
	for key := range d.seating.on[target] {
		if ok && compareSeats(found.key(), key) <= 0 || key.vacancy == 0 && !exchange {
			continue
		}
		if s, _ := d.seats.get(key); s.kind() == row.kind() {
			found, ok = s, true
		}
	}
	return found, ok
}

// ownVolumes reports whether each pod of a class has resource claims or ephemeral volumes of its own, which may tie it to a place. Such
// pods do not exchange seats.
func ownVolumes(c *podclass.Class) bool {
	return len(c.Spec.ResourceClaims) > 0 || slices.ContainsFunc(c.Spec.Volumes, func(v corev1.Volume) bool { return v.Ephemeral != nil })
}

// unseat ends the seat of a pod that is gone or ends. The seat becomes vacant if the pod ran, has an owner that will make it anew, and
// the machine of the seat stays.
func (d *Draft) unseat(p *Pod) {
	seat, seated := d.seats.get(seatKey{pod: p.PodKey})
	if !seated {
		return
	}
	d.Unplan(p.PodKey)
	if p.NodeName == "" || p.Owner == nil || p.Phase == corev1.PodSucceeded || !d.takes(seat.Target) {
		return
	}
	d.seating.last++
	d.putSeat(Seat{Class: p.Class, Labels: p.Labels, Target: seat.Target, At: d.clock, vacancy: d.seating.last})
}

// offer gives a waiting pod the oldest vacant seat of its kind. The time for which the seat is kept begins anew.
func (d *Draft) offer(p *Pod) {
	_, held := d.held.get(p.PodKey)
	if held || !p.couldBePlaced() || p.NominatedNode != "" || !p.Unjudged && !p.Unschedulable {
		return
	}
	for _, vacancy := range d.seating.vacant[p.kind()] {
		seat, _ := d.seats.get(seatKey{vacancy: vacancy})
		if d.takes(seat.Target) {
			d.dropSeat(seat.key())
			d.putSeat(Seat{Pod: p.PodKey, Class: p.Class, Labels: p.Labels, Target: seat.Target, At: d.clock})
			return
		}
	}
}

// putSeat adds a seat. A vacant seat counts as a holder of its class and labels, because there may be no pod of its kind for a while.
func (d *Draft) putSeat(s Seat) {
	d.seats.put(s)
	if d.seating.on[s.Target] == nil {
		d.seating.on[s.Target] = map[seatKey]struct{}{}
	}
	d.seating.on[s.Target][s.key()] = struct{}{}
	if s.Vacant() {
		d.intern.Retain(s.Class, s.Labels)
		vacant := append(d.seating.vacant[s.kind()], s.vacancy)
		slices.Sort(vacant)
		d.seating.vacant[s.kind()] = vacant
	}
}

// dropSeat undoes putSeat.
func (d *Draft) dropSeat(key seatKey) {
	s, ok := d.seats.delete(key)
	if !ok {
		return
	}
	delete(d.seating.on[s.Target], key)
	if len(d.seating.on[s.Target]) == 0 {
		delete(d.seating.on, s.Target)
	}
	if !s.Vacant() {
		return
	}
	left := slices.DeleteFunc(d.seating.vacant[s.kind()], func(v uint64) bool { return v == s.vacancy })
	if d.seating.vacant[s.kind()] = left; len(left) == 0 {
		delete(d.seating.vacant, s.kind())
	}
	d.intern.Release(s.Class, s.Labels)
}

// dropSeatsOn ends the seats on a machine that is gone.
func (d *Draft) dropSeatsOn(target string) {
	for key := range d.seating.on[target] {
		d.dropSeat(key)
	}
}

// Planned returns the seat of a pod.
func (s *Snapshot) Planned(pod PodKey) (Seat, bool) { return s.seats.get(seatKey{pod: pod}) }

// Plans yields the pods that have a seat, with it, by namespace and name.
func (s *Snapshot) Plans() iter.Seq2[PodKey, Seat] {
	return func(yield func(PodKey, Seat) bool) {
		for seat := range s.seats.from(seatKey{vacancy: math.MaxUint64}) {
			if !yield(seat.Pod, seat) {
				return
			}
		}
	}
}

// Seats yields all seats: the vacant ones, oldest first, and then those of pods by namespace and name.
func (s *Snapshot) Seats() iter.Seq[Seat] { return s.seats.all() }
