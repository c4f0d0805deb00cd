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
	// balanceHalfLife is after how many days dollars count half.
	balanceHalfLife = 3.0
)

// A Balance is what the room of a History cost and brought, in dollars, of the last days mostly.
type Balance struct {
	Unused float64   `json:"unused"` // the price of room while it was kept
	Saved  float64   `json:"saved"`  // the price of the room of pods that came, for the time that they would have waited
	Off    time.Time `json:"off"`    // until when nothing is kept; zero if it is
}

// Day is called once a day. It switches off for Rest where the room that was kept unused cost more than Worth times the room of pods
// that came for the time that they did not wait; it returns true then. After Rest the balance begins anew.
func (b *Balance) Day(now time.Time) (off bool) {
	if !b.Off.IsZero() {
		if !now.Before(b.Off) {
			*b = Balance{}
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
