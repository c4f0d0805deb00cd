package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"karpenter.sh/karpenter/internal/history/replay"
)

func TestParseMarket(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want replay.Market
		err  string
	}{
		"everything of one line": {"type,zone,capacity_type,interrupted,sold_out\nm5.large,a,spot,5%,0.25\n", replay.Market{{Type: "m5.large", Zone: "a", CapacityType: "spot", Interrupted: 0.05, SoldOut: 0.25}}, ""},
		"all of a kind":          {"type,zone,interrupted\n*,,10%\n", replay.Market{{CapacityType: "spot", Interrupted: 0.1}}, ""},
		"on demand":              {"capacity_type,sold_out\non-demand,100%\n", replay.Market{{CapacityType: "on-demand", SoldOut: 1}}, ""},
		"no lines":               {"type\n", nil, ""},
		"nothing":                {"", nil, "f:1: EOF; the first line names the columns"},
		"an unknown column":      {"kind\n", nil, `f:1: column "kind"; use each of capacity_type, interrupted, sold_out, type, zone once`},
		"a column twice":         {"type,type\n", nil, `f:1: column "type"; use each of capacity_type, interrupted, sold_out, type, zone once`},
		"more than everything":   {"type,sold_out\nx,101%\n", nil, `f:2: sold_out "101%": write a part of the whole, such as 5% or 0.05`},
		"no number":              {"sold_out\nNaN\n", nil, `f:2: sold_out "NaN": write a part of the whole, such as 5% or 0.05`},
		"reserved":               {"capacity_type\nreserved\n", nil, `f:2: capacity_type "reserved": write spot or on-demand`},
		"a line too short":       {"type,zone\nx\n", nil, "f: record on line 2: wrong number of fields"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseMarket("f", []byte(tc.text))
			if err == nil && tc.err != "" || err != nil && err.Error() != tc.err {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzMarket(f *testing.F) {
	f.Add([]byte("type,zone,capacity_type,interrupted,sold_out\nm5.large,a,spot,5%,0.25\n*,,,1,\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseMarket("f", text)
		if err != nil && m != nil {
			t.Error("a table that cannot be read is believed")
		}
		for _, r := range m {
			if !(r.Interrupted >= 0 && r.Interrupted <= 1 && r.SoldOut >= 0 && r.SoldOut <= 1) {
				t.Errorf("%+v", r)
			}
		}
	})
}
