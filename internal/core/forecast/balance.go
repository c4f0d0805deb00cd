package forecast

import (
	"math"
	"time"
)

const (
	// Worth: one second that a pod need not wait is worth as much as Worth seconds of its room.
	Worth = 10
	// Rest is the time for which no room is kept after learning has switched itself off.
	Rest = 7 * 24 * time.Hour
	// mostOfBill is the share of a day's bill that unused room may cost. mostIfSaved is the share that it may cost in addition if as much
	// was saved, multiplied by Worth. Once it is spent, no room is kept until midnight. Room counts by its part of the machine; the whole
	// machine that is opened for it, and the time until it is removed, can cost more than twice that.
	mostOfBill  = 0.01
	mostIfSaved = 0.015
	// billFalls is the lowest factor of the usual bill from one day to the next. So a cheap Sunday does not set the limit of the Monday.
	billFalls = 0.9
	// balanceHalfLife is the number of days after which dollars count half.
	balanceHalfLife = 3.0
)

// A Balance is what the room of a History cost and saved, in dollars. Older days count less.
type Balance struct {
	Unused float64   `json:"unused"` // the price of room while it was kept unused
	Saved  float64   `json:"saved"`  // the price of the room of pods that came, for the time that they would have waited
	Off    time.Time `json:"off"`    // no room is kept until then; zero if learning is on
	Today  Spending  `json:"today"`
	Usual  float64   `json:"usual"` // the largest bill of earlier days, times billFalls for each day since; 0 if none is known
}

// A Spending is dollars since midnight.
type Spending struct {
	Bill   float64 `json:"bill"`   // of all machines of the NodePool, or, for a CapacityBuffer, of the cluster
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

// Day has to be called once a day. If Unused is more than Worth times Saved, it switches learning off for Rest and returns true. After Rest
// the balance begins anew. Otherwise it lets the dollars of earlier days count less.
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
