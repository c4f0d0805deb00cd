package formula

import (
	"math"
	"strings"
	"sync"
	"testing"
)

var large = Machine{VCPUs: 2, MemoryMiB: 8192, Interfaces: 3, Addresses: 10, Pods: 29, InstanceType: "m5.large"}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]int64{
		"110":                                  110,
		"default_enis * (ips_per_eni - 1) + 2": 29,
		"min((default_enis - 1) * (ips_per_eni - 1) * 16 + 2, vcpus > 30 ? 250 : 110)": 110,
		"11 * max_pods + 255":                    574,
		"memory_mib / 100":                       81,
		"0.5 * double(memory_mib)":               4096,
		"-2.9":                                   -2, // towards zero
		"2.9":                                    2,
		`instance_type == "m5.large" ? 7 : 8`:    7,
		`instance_type.startsWith("m6") ? 7 : 8`: 8,
		"max_pods - 100":                         -71,
		"min(3, 4)":                              3, "min(4, 3)": 3, "min(3, 4.5)": 3, "min(4.5, 3)": 3, "min(3.5, 4)": 3, "min(4, 3.5)": 3, "min(3.5, 4.5)": 3, "min(4.5, 3.5)": 3,
		"max(3, 4)": 4, "max(4, 3)": 4, "max(3, 4.5)": 4, "max(4.5, 3)": 4, "max(3.5, 4)": 4, "max(4, 3.5)": 4, "max(3.5, 4.5)": 4, "max(4.5, 3.5)": 4,
	} {
		f, err := New(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := f.Number(large); err != nil || got != want {
			t.Errorf("%s = %d, %v, want %d", text, got, err, want)
		}
	}
}

// TestTwoWholeNumbersGiveOne: else a division afterwards would be another one.
func TestTwoWholeNumbersGiveOne(t *testing.T) {
	for text, want := range map[string]string{"min(7, 8) / 2": "", "max(7, 8) % 3": "", "min(7.0, 8) / 2": "no matching overload"} {
		_, err := New(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestWhatIsNoFormula(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "Syntax error",
		"   ":              "Syntax error",
		"1 +":              "Syntax error",
		"cores * 2":        "undeclared reference to 'cores'",
		"vcpus > 2":        "type bool",
		`"110"`:            "type string",
		"instance_type":    "type string",
		"1 + 1.0":          "no matching overload",
		"dyn(vcpus)":       "type dyn",
		"min(1, 2, 3)":     "no matching overload",
		"min(vcpus, true)": "no matching overload",
		"1u":               "type uint",
	} {
		if _, err := New(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestWhatHasNoValue(t *testing.T) {
	for text, want := range map[string]string{
		"vcpus / 0":                        "division by zero",
		"vcpus % (max_pods - 29)":          "modulus by zero",
		"1.0 / 0.0":                        "+Inf is no number",
		"-1.0 / 0.0":                       "-Inf is no number",
		"0.0 / 0.0":                        "NaN is no number",
		"1e19":                             "is no number",
		"9223372036854775807.0":            "is no number", // 2^63, one more than there is
		"memory_mib * 9223372036854775807": "overflow",
		"[1,2,3,4,5,6,7,8,9].map(a, [1,2,3,4,5,6,7,8,9].map(b, [1,2,3,4,5,6,7,8,9].map(c, [1,2,3,4,5,6,7,8,9].map(d, [1,2,3,4,5,6,7,8,9].map(e, a+b+c+d+e))))).size()": "cost limit",
	} {
		f, err := New(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := f.Number(large); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "m5.large") {
			t.Errorf("%s = %d, %v, want an error with %q and the type", text, got, err, want)
		}
	}
}

func TestPods(t *testing.T) {
	for text, want := range map[string]int32{"0": 0, "2147483647": math.MaxInt32, "2147483648": -1, "-1": -1, "1 / 0": -1} {
		f, err := New(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Pods(large)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%s = %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestAmounts(t *testing.T) {
	for _, tc := range []struct{ resource, text, want string }{
		{"cpu", "60 + 10", "70m"}, {"cpu", "71", "80m"}, {"cpu", "79", "80m"}, {"cpu", "0", "0m"}, {"cpu", "1", "10m"},
		{"memory", "11 * max_pods + 255", "576Mi"}, {"memory", "576", "576Mi"}, {"memory", "0", "0Mi"}, {"memory", "577", "592Mi"},
		{"ephemeral-storage", "3", "3Gi"}, {"pid", "1003", "1003"},
		{"cpu", "9223372036854775807", "9223372036854775807m"}, {"memory", "9223372036854775800", "9223372036854775800Mi"},
		{"cpu", "-1", ""}, {"memory", "max_pods - 30", ""}, {"pid", "1 / 0", ""},
	} {
		f, err := New(tc.text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Amount(tc.resource, large); got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s of %s: %q, %v, want %q", tc.resource, tc.text, got, err, tc.want)
		}
	}
}

// TestTheLargestMachine: formulas that people write do not leave the numbers there are.
func TestTheLargestMachine(t *testing.T) {
	huge := Machine{VCPUs: 448, MemoryMiB: 24 << 20, Interfaces: 15, Addresses: 50, Pods: 737, InstanceType: "u-24tb1.112xlarge"}
	for text, want := range map[string]string{
		"memory_mib / 20":         "1258304Mi",
		"memory_mib * 1024 / 100": "257698048Mi",
		"11 * max_pods + 255":     "8368Mi",
	} {
		f, err := New(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Amount("memory", huge); err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestAFormulaIsUsedByManyAtOnce(t *testing.T) {
	f, err := New("max_pods * 2")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for pods := range int64(50) {
		all.Go(func() {
			if got, err := f.Number(Machine{Pods: pods}); err != nil || got != 2*pods {
				t.Errorf("%d pods: %d, %v", pods, got, err)
			}
		})
	}
	all.Wait()
}
