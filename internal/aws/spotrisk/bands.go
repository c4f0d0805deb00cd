package spotrisk

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"karpenter.sh/karpenter/internal/core/hazard"
)

//go:embed bands.txt
var published string

// unknown is the band of families about which nothing is published.
const unknown = 1

// A bands holds the published bands of types in a region, and of families in all regions, whose size is "".
type bands map[kind]int

type kind struct{ family, size string }

// bandsOf reads the published bands of a region's types. A family gets the median of its bands in all regions, for
// types that are not listed.
func bandsOf(text, region string) (bands, error) {
	out, own := bands{}, false
	for n, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(line, "#"):
			continue
		case fields[0] == "region" && len(fields) == 2:
			own = fields[1] == region
			continue
		}
		var all []int
		for _, f := range fields[1:] {
			size, digit, _ := strings.Cut(f, "=")
			band, err := strconv.Atoi(digit)
			if err != nil || band < 0 || band >= len(hazard.Bands) {
				return nil, fmt.Errorf("line %d: %q is no size with a band from 0 to %d", n+1, f, len(hazard.Bands)-1)
			}
			all = append(all, band)
			if own {
				out[kind{fields[0], size}] = band
			}
		}
		if len(all) > 0 {
			slices.Sort(all)
			out[kind{family: fields[0]}] = all[len(all)/2]
		}
	}
	return out, nil
}

// prior returns the published rate of interruptions of a type, in interruptions per hour of a machine.
func (b bands) prior(instanceType string) float64 {
	family, size, _ := strings.Cut(instanceType, ".")
	for _, k := range []kind{{family, size}, {family: family}} {
		if band, known := b[k]; known {
			return hazard.OfBand(band)
		}
	}
	return hazard.OfBand(unknown)
}
