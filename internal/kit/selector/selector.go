// Package selector evaluates the selectors of device classes and resource claims with the API server's own compiler. Compiled
// expressions are cached.
package selector

import (
	"context"
	"fmt"
	"strings"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"karpenter.sh/karpenter/internal/kit/selectorerr"
)

const (
	mostCompiled = 1000 // expressions that are kept
	// mostCost is what a selector may cost for a device. Usual ones cost less than a hundred, and the API server
	// allows a million, a tenth of a second; there may be thousands of kinds of devices.
	mostCost = 5000
)

var compiled = sync.OnceValue(func() *cel.Cache {
	return cel.NewCache(mostCompiled, cel.Features{EnableConsumableCapacity: true})
})

// Selects reports whether an expression selects a device of a driver, or returns why it cannot be evaluated (package selectorerr). The
// cost of an evaluation is limited, so it needs no context.
func Selects(expression, driver string, d *resourcev1.Device) (bool, error) {
	program := compiled().GetOrCompile(expression)
	if program.Error != nil {
		return false, &selectorerr.Unusable{Err: program.Error}
	}
	yes, details, err := program.DeviceMatches(context.Background(),
		cel.Device{Driver: driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity})
	if err != nil { // the compiler has no type for it
		if _, key, found := strings.Cut(err.Error(), "no such key: "); found {
			return false, &selectorerr.MissingKey{Key: key, Err: err}
		}
	}
	if cost := details.ActualCost(); cost != nil && *cost > mostCost {
		return false, &selectorerr.Unusable{Err: fmt.Errorf("evaluating it costs %d for one device, and may cost %d", *cost, mostCost)}
	}
	return yes, err
}
