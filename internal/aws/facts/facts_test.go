package facts

import "testing"

func TestVersions(t *testing.T) {
	for in, want := range map[string]string{"v1.36.3": "1.36", "1.36+": "1.36", "1.31": "1.31"} {
		if got, err := Minor(in); got != want || err != nil {
			t.Errorf("Minor(%s) = %s, %v; want %s", in, got, err, want)
		}
	}
	if _, err := Minor("latest"); err == nil {
		t.Error("a version without a minor is understood")
	}
	for version, want := range map[string]bool{"1.25": false, "1.26": true, "1.36": true, "1.37": false, "x": false} {
		if got := Supported(version); got != want {
			t.Errorf("Supported(%s) = %v, want %v", version, got, want)
		}
	}
}
