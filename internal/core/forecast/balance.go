package forecast

import (
	"math"
	"time"
)

const (
	// Worth is how many seconds of its room one second counts for that a pod need not wait.
	Worth = 10
	// Rest is for how long nothing is kept after learning has switched itself off.
	Rest = 7 * 24 * time.Hour
	// mostOfBill is the share of a day's bill that unused room may cost, mostIfSaved the share that it may cost in addition where that much
	// was saved, by the measure of Worth. Once it is spent, no room is kept until midnight. Room counts by its part of the machine; the
	// whole machine that is opened for it and the time until it is removed can cost more than twice that.
	mostOfBill  = 0.01
	mostIfSaved = 0.015
	// billFalls is the factor by which the usual bill falls in a day at most. So a Sunday does not set the limit of the Monday.
	billFalls = 0.9
	// balanceHalfLife is after how many days dollars count half.
	balanceHalfLife = 3.0
)

// A Balance is what the room of a History cost and brought, in dollars, of the last days mostly.
type Balance struct {
	Unused float64   `json:"unused"` // the price of room while it was kept
	Saved  float64   `json:"saved"`  // the price of the room of pods that came, for the time that they would have waited
	Off    time.Time `json:"off"`    // until when nothing is kept; zero if it is
	Today  Spending  `json:"today"`
	Usual  float64   `json:"usual"` // the largest bill of earlier days, times billFalls for each day since; 0 if none is known
}

// Spending is what was paid since midnight.
type Spending struct {
	Bill   float64 `json:"bill"`   // all machines of the NodePool, or of the cluster where a CapacityBuffer learns
	Unused float64 `json:"unused"` // the part of it for room that was kept and not used
	Saved  float64 `json:"saved"`  // as in Balance
}

// Spent reports whether room has cost today what it may cost in a day.
func (b *Balance) Spent() bool {
	bill := max(b.Today.Bill, b.Usual)
	return b.Today.Unused > mostOfBill*bill+min(mostIfSaved*bill, Worth*b.Today.Saved)
}

// Save counts the room of pods that did not have to wait.
func (b *Balance) Save(dollars float64) {
	b.Saved, b.Today.Saved = b.Saved+dollars, b.Today.Saved+dollars
}

// Keep counts room that was kept unused.
func (b *Balance) Keep(dollars float64) {
	b.Unused, b.Today.Unused = b.Unused+dollars, b.Today.Unused+dollars
}

// Day is called once a day. It switches off for Rest where the room that was kept unused cost more than Worth times the room of pods
// that came for the time that they did not wait; it returns true then. After Rest the balance begins anew.
func (b *Balance) Day(now time.Time) (off bool) {
	b.Usual, b.Today = max(b.Today.Bill, billFalls*b.Usual), Spending{}
	if !b.Off.IsZero() {
		if !now.Before(b.Off) {
			*b = Balance{Usual: b.Usual}
		}
		return false
	}
	if b.Unused > Worth*b.Saved {
		b.Off = now.Add(Rest)
		return true
	}
	part := math.Exp2(-1 / balanceHalfLife)
	b.Unused, b.Saved = b.Unused*part, b.Saved*part
	return false
}
