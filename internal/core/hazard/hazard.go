// Package hazard estimates how often spot machines of one offering are taken back.
//
// The estimate is the mean of a gamma distribution. Its prior is a published rate that weighs as much as Weight machine-hours; the evidence
// is the interruptions of the cluster's own machines and the hours that they ran. Evidence loses half of its weight every HalfLife, so the
// estimate returns to the prior when there is no new evidence:
//
//	rate = (prior × Weight + events) ÷ (Weight + hours)
//
// A launch that failed because there was no capacity counts as a part of an event: such an offering is short, and its machines are likely
// to be taken back soon.
//
// A record also has a flag: the offering rests after a failure. It begins to rest at one failure, and rests until the weight of its
// failures, halved every RestHalfLife, is below a quarter: an hour after one failure, two hours after four. The two thresholds differ so
// that an offering does not change its state again and again (hysteresis).
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
	// HalfLife is the time after which evidence has lost half of its weight.
	HalfLife = 7 * 24 * time.Hour
	// FailedLaunch is the part of an interruption as which a failed launch counts.
	FailedLaunch = 0.25
	// RestHalfLife is the time after which a failure has lost half of its weight for resting.
	RestHalfLife = 30 * time.Minute

	// restBegins and restEnds are the weights of failures at which resting begins and ends.
	restBegins, restEnds = 1.0, 0.25
	// month is the time to which published frequencies refer.
	month = 30 * 24 * time.Hour
)

// Bands are the middles of the ranges in which frequencies of interruption are published: the part of the machines that is taken back in a
// month, below 5 %, 5 to 10 %, 10 to 15 %, 15 to 20 %, above 20 %.
var Bands = [...]float64{0.025, 0.075, 0.125, 0.175, 0.25}

// OfBand returns the rate, in interruptions an hour, at which the part Bands[band] of the machines is taken back in a month.
func OfBand(band int) float64 {
	return -math.Log1p(-Bands[min(max(band, 0), len(Bands)-1)]) / month.Hours()
}

// A Record is the evidence about one offering, weighted as of the time At. The zero value has no evidence.
type Record struct {
	Events   float64   `json:"events,omitempty"`   // interruptions, and failed launches as parts of one
	Hours    float64   `json:"hours,omitempty"`    // that machines ran
	Failures float64   `json:"failures,omitempty"` // interruptions and failed launches, for resting
	Rests    bool      `json:"rests,omitempty"`
	At       time.Time `json:"at"`
}

// left returns the part of its weight that is left after some time, given the half-life.
func left(passed, half time.Duration) float64 { return math.Exp2(-passed.Hours() / half.Hours()) }

// After returns the record with the weights of a later time, and with Rests as of then.
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

// Failed adds a launch that found no capacity. While the offering rests after another failure, it counts for resting but not for the rate,
// because one shortage makes many launches fail.
func (r Record) Failed(now time.Time) Record {
	if r = r.After(now); r.Rests {
		return r.failed(now, 0)
	}
	return r.failed(now, FailedLaunch)
}

// failed adds a failure, and events to the evidence about the rate.
func (r Record) failed(now time.Time, events float64) Record {
	r = r.After(now)
	r.Events, r.Failures = r.Events+events, r.Failures+1
	return r.After(now)
}

// Rate returns the interruptions an hour that are expected of a machine of the offering, given the published rate (prior).
func (r Record) Rate(prior float64) float64 { return (prior*Weight + r.Events) / (Weight + r.Hours) }

// Empty reports whether a record has so little evidence that it can be dropped.
func (r Record) Empty() bool { return r.Events < 0.001 && r.Hours < 0.001 && !r.Rests }

// perHour is one interruption an hour in the unit of Nano.
const perHour = 1e9

// Nano returns a rate in billionths of an interruption an hour, at most one. It is rounded in steps of about four percent, so that small
// changes of the evidence do not change prices.
func Nano(rate float64) int64 {
	if rate <= 0 {
		return 0
	}
	const steps = 25 // steps from a rate to e times that rate
	return int64(min(math.Round(perHour*math.Exp(math.Round(math.Log(rate)*steps)/steps)), perHour))
}
