package v1_test

import (
	"encoding/json"
	"testing"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

func TestNillableDuration(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want string // in Go's form
		out  string // written back
		bad  bool
	}{
		"minutes stay minutes":   {in: `"60m"`, want: "1h0m0s", out: `"60m"`},
		"Go's own form":          {in: `"1h0m0s"`, want: "1h0m0s", out: `"1h0m0s"`},
		"zero":                   {in: `"0s"`, want: "0s", out: `"0s"`},
		"Never":                  {in: `"Never"`, want: "Never", out: `"Never"`},
		"escapes stay escapes":   {in: `"\u0031h"`, want: "1h0m0s", out: `"\u0031h"`},
		"never in small letters": {in: `"never"`, bad: true},
		"a number":               {in: `5`, bad: true},
		"a word":                 {in: `"soon"`, bad: true},
		"an object":              {in: `{}`, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			var d v1.NillableDuration
			err := json.Unmarshal([]byte(tc.in), &d)
			if tc.bad {
				if err == nil {
					t.Fatalf("%s was read as %v", tc.in, d)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d.String() != tc.want {
				t.Errorf("String = %s, want %s", d, tc.want)
			}
			out, err := d.MarshalJSON()
			if err != nil || string(out) != tc.out {
				t.Errorf("written back: %s, %v, want %s", out, err, tc.out)
			}
		})
	}
}

func TestDurationsMadeByPrograms(t *testing.T) {
	for want, d := range map[string]v1.NillableDuration{
		`"720h0m0s"`: v1.After(720 * time.Hour),
		`"Never"`:    {},
		`"30s"`:      v1.MustParseNillableDuration("30s"),
	} {
		if out, err := json.Marshal(d); err != nil || string(out) != want {
			t.Errorf("written: %s, %v, want %s", out, err, want)
		}
	}
}

func TestMustParseNillableDurationPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	v1.MustParseNillableDuration("soon")
}

func FuzzNillableDuration(f *testing.F) {
	for _, seed := range []string{`"1h"`, `"Never"`, `"-1s"`, `null`, `"1.5h"`, `""`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var d v1.NillableDuration
		if json.Unmarshal(raw, &d) != nil {
			return
		}
		out, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var again v1.NillableDuration
		if err := json.Unmarshal(out, &again); err != nil {
			t.Fatalf("%s was written back as %s, which cannot be read: %v", raw, out, err)
		}
		if again.String() != d.String() {
			t.Errorf("%s became %s", d, again)
		}
	})
}
