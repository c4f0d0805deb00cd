package awsmodel

import (
	"hash/fnv"
	"math"
	"strings"
	"time"
)

// hash is FNV-1a with a finisher, so that names that differ little give numbers that differ much.
func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return mix(h.Sum64())
}

func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

func unit(s string) float64 { return float64(hash(s)>>11) / (1 << 53) }

// baseSpot is the price of a spot pool at the world's beginning, in dollars per hour: a share of the on-demand price that
// depends on the family, and on the type in its zone.
func baseSpot(onDemand float64, instanceType, zone string, arm bool) float64 {
	family, _, _ := strings.Cut(instanceType, ".")
	ratio := 0.25 + 0.30*unit(family) + 0.15*unit(instanceType+"/"+zone)
	if !arm {
		ratio += 0.05
	}
	return math.Round(onDemand*ratio*1e6) / 1e6
}

// driftStep is how often spot prices move.
const driftStep = time.Hour

// drift is the factor by which a pool's price differs from its base: a slow wave of at most a tenth, of which period
// and phase belong to the pool, in hourly steps, and none in the world's first hour.
func drift(instanceType, zone string, age time.Duration) float64 {
	steps := float64(age / driftStep)
	if steps == 0 {
		return 1
	}
	pool := instanceType + "/" + zone
	period := 24 * (2 + 5*unit("period/"+pool)) // two days to a week
	return 1 + 0.1*math.Sin(2*math.Pi*steps/period)*(2*unit("amplitude/"+pool)-1)
}

func spotPrice(onDemand float64, instanceType, zone string, arm bool, age time.Duration) float64 {
	return math.Round(baseSpot(onDemand, instanceType, zone, arm)*drift(instanceType, zone, age)*1e6) / 1e6
}
