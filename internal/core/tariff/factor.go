package tariff

import (
	"slices"
	"strconv"
	"strings"
)

// smallFactors are AWS's normalisation factors by size, times four, so that the factor of nano is an integer.
var smallFactors = map[string]int64{"nano": 1, "micro": 2, "small": 4, "medium": 8, "large": 16, "xlarge": 32}

// metalFactors are the factors of bare-metal types, times four, with their families.
var metalFactors = map[int64][]string{
	4 * 32:  {"a1"},
	4 * 96:  {"m5zn", "z1d"},
	4 * 128: {"c6g", "c6gd", "i3", "m6g", "m6gd", "r6g", "r6gd", "x2gd"},
	4 * 144: {"c5n"},
	4 * 192: {"c5", "c5d", "i3en", "m5", "m5d", "m5dn", "m5n", "r5", "r5b", "r5d", "r5dn", "r5n"},
}

// factor returns the normalisation factor of an instance type times four, 0 where it is not known.
func factor(name string) int64 {
	family, size, _ := strings.Cut(name, ".")
	if f := smallFactors[size]; f > 0 {
		return f
	}
	if n, large := strings.CutSuffix(size, "xlarge"); large {
		return xlarges(n)
	}
	if n, found := strings.CutPrefix(size, "metal-"); found {
		return xlarges(strings.TrimSuffix(n, "xl"))
	}
	if size != "metal" {
		return 0
	}
	if strings.HasPrefix(family, "u-") {
		return 4 * 896
	}
	for f, families := range metalFactors {
		if slices.Contains(families, family) {
			return f
		}
	}
	return 0
}

// xlarges returns the factor, times four, of a size that is n times xlarge; 0 if n is no positive number. The factor of xlarge is 8.
func xlarges(n string) int64 {
	times, err := strconv.ParseInt(n, 10, 32)
	if err != nil || times < 1 {
		return 0
	}
	return 32 * times
}

// inflexible has the letters at the beginning of families whose Reserved Instances cover one size only.
var inflexible = []string{"dl", "f", "g", "gr", "hpc", "inf", "mac", "p", "trn", "vt"}

// flexible reports whether regional Reserved Instances of a type cover other sizes of its family.
func flexible(name string) bool {
	letters := name[:len(name)-len(strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz"))]
	return !slices.Contains(inflexible, letters) && !strings.HasPrefix(name, "u7") && factor(name) > 0
}

// family returns the family of an instance type: m5 of m5.large.
func family(name string) string {
	family, _, _ := strings.Cut(name, ".")
	return family
}
