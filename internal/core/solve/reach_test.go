package solve

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/volumes"
)

// Classes with one key share an answer of reachOf, so classes that ask for different things have different keys.
func TestReachKeysDiffer(t *testing.T) {
	plain := problem.Class{Terms: []int{1}, Need: quantity.Vec{100, 200}}
	port, volume, tooMuch := plain, plain, plain
	port.Ports = []int{3}
	volume.Volumes = []volumes.Volume{{Driver: 3}}
	tooMuch.TooMuch = "cpu"
	terms := plain
	terms.Terms, terms.Need = []int{1, 0, 100}, quantity.Vec{200}
	known := map[string]string{}
	for name, c := range map[string]problem.Class{
		"plain": plain, "a host port": port, "a volume of the driver with the port's number": volume, "too much of a resource": tooMuch,
		"terms with the numbers of the amounts": terms,
	} {
		for _, anyMachine := range []bool{false, true} {
			if anyMachine {
				name += ", on any machine"
			}
			key := reachKey(&c, nil, anyMachine)
			if other, taken := known[key]; taken {
				t.Errorf("%q and %q have one key", name, other)
			}
			known[key] = name
		}
	}
}
