package identity

import (
	"bytes"
	"slices"
	"testing"
)

func TestPartsDoNotRunIntoEachOther(t *testing.T) {
	for name, tc := range map[string]struct{ a, b func(w []byte) []byte }{
		"a text is not the start of the next": {
			func(w []byte) []byte { w = Text(w, "ab"); return Text(w, "c") }, func(w []byte) []byte { w = Text(w, "a"); return Text(w, "bc") },
		},
		"a list ends where it ends": {
			func(w []byte) []byte { w = Texts(w, []string{"a"}); return Texts(w, []string{"b"}) }, func(w []byte) []byte { w = Texts(w, []string{"a", "b"}); return Texts(w, nil) },
		},
		"a flag is not an element of the list behind it": {
			func(w []byte) []byte { w = Flag(w, true); return Texts(w, []string{"shop"}) }, func(w []byte) []byte { w = Flag(w, false); return Texts(w, []string{"required", "shop"}) },
		},
		"a separator in a text separates nothing": {
			func(w []byte) []byte { return Texts(w, []string{"a\x00b"}) }, func(w []byte) []byte { return Texts(w, []string{"a", "b"}) },
		},
		"numbers of several bytes": {
			func(w []byte) []byte { w = Number(w, 300); return Number(w, 1) }, func(w []byte) []byte { w = Number(w, 3); return Number(w, 1001) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if a, b := tc.a(nil), tc.b(nil); bytes.Equal(a, b) {
				t.Errorf("both are %q", a)
			}
		})
	}
}

func FuzzEqualIdentitiesHaveEqualParts(f *testing.F) {
	f.Add("a", "b", "ab", "", int64(1), int64(2))
	f.Fuzz(func(t *testing.T, a1, a2, b1, b2 string, n1, n2 int64) {
		var x, y []byte
		x = Texts(x, []string{a1, a2})
		x = Number(x, n1)
		y = Texts(y, []string{b1, b2})
		y = Number(y, n2)
		same := slices.Equal([]string{a1, a2}, []string{b1, b2}) && n1 == n2
		if bytes.Equal(x, y) != same {
			t.Errorf("%q, %q, %d and %q, %q, %d: equal identities = %t", a1, a2, n1, b1, b2, n2, bytes.Equal(x, y))
		}
	})
}
