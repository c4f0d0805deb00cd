package sentence

import (
	"fmt"
	"math"

	"karpenter.sh/karpenter/cloud"
)

// Spot says what a spot machine of a type costs and how often such machines are interrupted. each is the cost of an
// interruption; if it is above 0, the text also says at which price decisions count the machine.
func Spot(instanceType string, o *cloud.Offering, each cloud.NanoUSD) string {
	text := fmt.Sprintf("spot %s in %s: $%.4f/h, taken back about %s", instanceType, o.Zone(), o.Price.Dollars(), often(o.Hazard))
	if each > 0 {
		text += fmt.Sprintf(", counts as $%.4f/h", (o.Price + o.Risk(each)).Dollars())
	}
	return text
}

// often says how often something happens. nano is a rate in billionths per hour.
func often(nano int64) string {
	hours := 1e9 / float64(max(nano, 1))
	switch {
	case hours < 48:
		return "once in " + Count(int(math.Ceil(hours)), "hour")
	case hours < 1000*24:
		return "once in " + Count(int(math.Round(hours/24)), "day")
	}
	return "once in " + Count(int(math.Round(hours/24/365)), "year")
}
