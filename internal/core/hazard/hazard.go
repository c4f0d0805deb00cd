// Package hazard estimates how often spot machines of one offering are taken back.
//
// The estimate is the mean of a gamma distribution. Its prior is a published rate that weighs as much as Weight machine-hours; the evidence
// is the interruptions of our own machines and the hours that they ran. Evidence loses half of its weight every HalfLife, so that the
// estimate returns to the prior where nothing is seen any more:
//
//	rate = (prior × Weight + events) ÷ (Weight + hours)
//
// A launch that failed for want of capacity is a part of an event: machines of an offering that is short are taken back soon.
//
// Beside the rate a record holds if an offering rests after a failure. It begins to rest with one failure and rests until the weight of
// its failures, halved every RestHalfLife, is below a quarter: an hour after one failure, two hours after four. What begins at one and ends
// at a quarter does not flicker.
//
// The package takes and returns values; the time is an argument.
package hazard

import (
	"math"
	"time"
)

const (
	// Weight is how many machine-hours the prior is worth.
	Weight = 2000.0
	// HalfLife is when evidence has lost half of its weight.
	HalfLife = 7 * 24 * time.Hour
	// FailedLaunch is which part of an interruption a failed launch counts as.
	FailedLaunch = 0.25
	// RestHalfLife is when a failure has lost half of its weight for resting.
	RestHalfLife = 30 * time.Minute

	restBegins, restEnds = 1.0, 0.25
	// month is what published rates are about.
	month = 30 * 24 * time.Hour
)

// Bands are the middles of the ranges in which frequencies of interruption are published: the part of the machines that is taken back in a
// month, below 5 %, 5 to 10 %, 10 to 15 %, 15 to 20 %, above 20 %.
var Bands = [...]float64{0.025, 0.075, 0.125, 0.175, 0.25}

// OfBand returns interruptions an hour at which the part of a band is taken back in a month.
func OfBand(band int) float64 {
	return -math.Log1p(-Bands[min(max(band, 0), len(Bands)-1)]) / month.Hours()
}

// A Record is what was seen of one offering. The zero value has seen nothing.
type Record struct {
	Events   float64   `json:"events,omitempty"`   // interruptions and parts of them, with the weight that is left
	Hours    float64   `json:"hours,omitempty"`    // of machines, likewise
	Failures float64   `json:"failures,omitempty"` // likewise, for resting
	Rests    bool      `json:"rests,omitempty"`
	At       time.Time `json:"at"` // of the weights
}

// left returns which part of its weight something has after a time.
func left(passed, half time.Duration) float64 { return math.Exp2(-passed.Hours() / half.Hours()) }

// After returns the record at a later time.
func (r Record) After(now time.Time) Record {
	if passed := now.Sub(r.At); passed > 0 && !r.At.IsZero() {
		keep := left(passed, HalfLife)
		r.Events, r.Hours = r.Events*keep, r.Hours*keep
		r.Failures *= left(passed, RestHalfLife)
	}
	r.At = now
	r.Rests = r.Failures >= restBegins || r.Rests && r.Failures >= restEnds
	return r
}

// Ran adds hours of machines that ended at a time.
func (r Record) Ran(now time.Time, hours float64) Record {
	r = r.After(now)
	r.Hours += max(hours, 0)
	return r
}

// Interrupted adds a machine that was taken back.
func (r Record) Interrupted(now time.Time) Record { return r.failed(now, 1) }

// Failed adds a launch that found no capacity. While the offering rests after another failure it says nothing new about the rate: one
// shortage makes many launches fail.
func (r Record) Failed(now time.Time) Record {
	if r = r.After(now); r.Rests {
		return r.failed(now, 0)
	}
	return r.failed(now, FailedLaunch)
}

func (r Record) failed(now time.Time, events float64) Record {
	r = r.After(now)
	r.Events, r.Failures = r.Events+events, r.Failures+1
	return r.After(now)
}

// Rate returns the interruptions an hour that are expected of a machine, for a prior rate.
func (r Record) Rate(prior float64) float64 { return (prior*Weight + r.Events) / (Weight + r.Hours) }

// Empty reports whether a record says no more than none would.
func (r Record) Empty() bool { return r.Events < 0.001 && r.Hours < 0.001 && !r.Rests }

// perHour is how many parts Nano counts an interruption an hour in.
const perHour = 1e9

// Nano returns a rate in billionths of an interruption an hour, in steps of about four percent: small changes of the evidence change
// nothing.
func Nano(rate float64) int64 {
	if rate <= 0 {
		return 0
	}
	const steps = 25 // to e times as much
	return int64(min(math.Round(perHour*math.Exp(math.Round(math.Log(rate)*steps)/steps)), perHour))
}
