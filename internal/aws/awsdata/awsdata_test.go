package awsdata

import (
	"slices"
	"strings"
	"testing"
)

func TestTypesAreCompleteAndSorted(t *testing.T) {
	types := Types()
	if len(types) != 1373 {
		t.Errorf("there are %d types, want 1373", len(types))
	}
	if !slices.IsSortedFunc(types, func(a, b *InstanceType) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the types are not sorted by name")
	}
	for _, it := range types {
		if it.VCPU.Default == 0 || it.Memory.MiB == 0 || len(it.Processor.Architectures) == 0 || len(it.Network.Cards) == 0 {
			t.Errorf("%s lacks processors, memory, architecture or network card", it.Name)
		}
	}
	i := slices.IndexFunc(types, func(it *InstanceType) bool { return it.Name == "m5.large" })
	if m5 := types[i]; m5.VCPU.Default != 2 || m5.Memory.MiB != 8192 || m5.Network.MaxInterfaces != 3 || m5.Network.IPv4PerInterface != 10 {
		t.Errorf("m5.large = %+v, want 2 processors, 8192 MiB, 3 interfaces of 10 addresses", m5)
	}
}

func TestSplitKeepsEveryByteOfAnArray(t *testing.T) {
	one := `{"AutoRecoverySupported":true,"InstanceType":"x"}`
	for _, n := range []int{1, 2, 3, 5, 50} {
		got := make([]string, 0, 7)
		for _, part := range split([]byte("["+strings.Join(slices.Repeat([]string{one}, 7), ",")+"]"), n) {
			inner := strings.TrimSuffix(strings.TrimPrefix(string(part), "["), "]")
			got = append(got, strings.SplitAfter(strings.ReplaceAll(inner, "},{", "}\x00{"), "\x00")...)
		}
		for i := range got {
			got[i] = strings.TrimSuffix(got[i], "\x00")
		}
		if !slices.Equal(got, slices.Repeat([]string{one}, 7)) {
			t.Errorf("split into %d gives back %q", n, got)
		}
	}
}

func TestRegionalFacts(t *testing.T) {
	if got, want := Zones("us-east-1"), 6; len(got) != want {
		t.Errorf("us-east-1 has zones %v, want %d", got, want)
	}
	if got := Zones("mars-1"); got != nil {
		t.Errorf("an unknown region has zones %v", got)
	}
	for _, region := range Regions() {
		for _, zone := range Zones(region) {
			if ZoneID(region, zone) == "" {
				t.Errorf("%s has no zone id", zone)
			}
			if !slices.Contains(Offered(region, zone), "m5.large") && zone != "us-east-1e" {
				t.Errorf("%s does not offer m5.large", zone)
			}
		}
	}
	if got := ZoneID("ap-northeast-1", "ap-northeast-1d"); got != "apne1-az4" {
		t.Errorf("ap-northeast-1d is %q, want apne1-az4", got)
	}
	if got := Prices("us-east-1")["m5.large"]; got != 0.096 {
		t.Errorf("m5.large costs %v, want 0.096", got)
	}
	if from, exact := PriceRegion("eu-west-2"); from != "us-east-1" || exact {
		t.Errorf("prices of eu-west-2 come from %s, exact %v; want an estimate from us-east-1", from, exact)
	}
	if got := Branches("m5.large"); got != 9 {
		t.Errorf("m5.large has %d branch interfaces, want 9", got)
	}
	if got := Branches("t3.large"); got != 0 {
		t.Errorf("t3.large has %d branch interfaces, want none", got)
	}
}

func BenchmarkLoadTypes(b *testing.B) {
	for b.Loop() {
		loadTypes()
	}
}
