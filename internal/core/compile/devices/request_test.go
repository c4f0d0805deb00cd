package devices

import (
	"errors"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/internal/core/rule/devices"
	"karpenter.sh/karpenter/internal/kit/selectorerr"
)

// Counters and capacities come from drivers, which may write anything.
func TestAmountsOfDevicesAreThousandths(t *testing.T) {
	for text, want := range map[string]int64{
		"2": 2000, "500m": 500, "0": 0, "-500m": 0, "-1": 0, "-9E": 0, "9E": devices.Most, "1e30": devices.Most,
	} {
		q := resource.MustParse(text)
		if got := milli(&q); got != want {
			t.Errorf("%s is %d thousandths, want %d", text, got, want)
		}
	}
}

// A selector that is of no use whatever it is asked about is asked once, and one that fails with a device is asked about the next kind, too.
func TestASelectorOfNoUseIsAskedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"of no use":               {&selectorerr.Unusable{Err: errors.New("it takes too long")}, 1},
		"wrong about this device": {errors.New("no such key"), 3},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			mem := NewMemory()
			d := &Model{useless: map[string]*devices.Refusal{}, in: Input{Memory: mem, Selects: func(string, string, *resourcev1.Device) (bool, error) {
				asked++
				return false, tc.err
			}}}
			for _, driver := range []string{"a", "b", "c"} {
				yes, no := d.selects(mem.kindOf(driver, &resourcev1.Device{}, nil), "device.x > 1")
				if yes || no == nil || no.Why != devices.Invalid || no.Detail != tc.err.Error() {
					t.Errorf("selected %t, refused for %+v", yes, no)
				}
			}
			if asked != tc.want {
				t.Errorf("asked %d times, want %d", asked, tc.want)
			}
		})
	}
}
