package minor

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsOff(t *testing.T) {
	const hints, devices = "hints to kube-scheduler (from 1.35 on)", "devices by resource claims (from 1.34 on)"
	for version, want := range map[string][]string{
		"v1.33.13":           {hints, devices},
		"v1.34.0-eks-1234":   {hints},
		"1.34":               {hints},
		"v1.35.0":            nil,
		"v1.36.3":            nil,
		"v1.37.2-eks-a12345": nil,
	} {
		v, err := Parse(version)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, Off(v, Hints(), Devices())); diff != "" {
			t.Errorf("off in %s (-want +got):\n%s", version, diff)
		}
	}
	if _, err := Parse("new"); err == nil {
		t.Error("a word is no version")
	}
}

func TestWhatIsNotUsedIsNotNamed(t *testing.T) {
	v, err := Parse("1.33")
	if err != nil {
		t.Fatal(err)
	}
	if got := Off(v); got != nil {
		t.Errorf("off = %q, want nothing of features that are not used", got)
	}
}
