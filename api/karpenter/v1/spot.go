package v1

import (
	"fmt"
	"strconv"
	"strings"
)

// MostInterruptionCost is the highest cost of an interruption that is accepted, in dollars.
const MostInterruptionCost = 10_000

// InterruptionCost reads what it costs, in dollars, when a spot machine is taken back.
func InterruptionCost(text string) (dollars float64, err error) {
	dollars, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(dollars >= 0 && dollars <= MostInterruptionCost) {
		return 0, fmt.Errorf("%s: %q is no number of dollars from 0 to %d, such as 0.50", InterruptionCostAnnotationKey, text,
			MostInterruptionCost)
	}
	return dollars, nil
}

// SpotMaxShare reads which part of a pool's spot machines may be of one type in one zone, as a fraction above 0 and at most 1.
func SpotMaxShare(text string) (share float64, err error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	n, err := strconv.Atoi(number)
	if err != nil || !percent || n < 1 || n > 100 {
		return 0, fmt.Errorf("%s: %q is no part from 1%% to 100%%, such as 50%%", SpotMaxShareAnnotationKey, text)
	}
	return float64(n) / 100, nil
}

// SpotAnnotationErrors returns an error for each annotation about spot that cannot be read. Such an annotation is ignored.
func (p *NodePool) SpotAnnotationErrors() (errs []error) {
	if text, said := p.Annotations[InterruptionCostAnnotationKey]; said {
		if _, err := InterruptionCost(text); err != nil {
			errs = append(errs, err)
		}
	}
	if text, said := p.Annotations[SpotMaxShareAnnotationKey]; said {
		if _, err := SpotMaxShare(text); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
