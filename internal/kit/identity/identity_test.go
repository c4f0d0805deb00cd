package identity

import (
	"bytes"
	"math/rand/v2"
	"reflect"
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

// write writes what a script says: pairs of bytes, of which the first chooses the kind of a part, the second its value. It returns the parts
// as text that is unambiguous because it is quoted.
func write(script []byte) (kinds string, parts []any, b []byte) {
	for i := 0; i+1 < len(script); i += 2 {
		v := script[i+1]
		text := string(script[i+1 : min(len(script), i+1+int(v%4))])
		list := []string{text, "", "\x00"}[:v%4%3+1]
		numbers := []int32{int32(v), -int32(v) << 20}[:v%3%2+1]
		kind := script[i] % 6
		kinds += string('a' + rune(kind))
		switch kind {
		case 0:
			parts, b = append(parts, text), Text(b, text)
		case 1:
			parts, b = append(parts, list), Texts(b, list)
		case 2:
			m := map[string]string{text: text, "k": list[0]}
			parts, b = append(parts, m), Map(b, m)
		case 3:
			parts, b = append(parts, int64(v)<<(v%50)), Number(b, int64(v)<<(v%50))
		case 4:
			parts, b = append(parts, numbers), Numbers(b, numbers)
		case 5:
			parts, b = append(parts, v%2 == 1), Flag(b, v%2 == 1)
		}
	}
	return kinds, parts, b
}

// check fails if two different sequences of parts of the same kinds give equal bytes, or equal ones different bytes.
func check(t *testing.T, x, y []byte) {
	t.Helper()
	kindsX, partsX, a := write(x)
	kindsY, partsY, b := write(y)
	if kindsX == kindsY && bytes.Equal(a, b) != reflect.DeepEqual(partsX, partsY) {
		t.Errorf("%#v and %#v are written as %q and %q", partsX, partsY, a, b)
	}
	if kindsX == kindsY && !bytes.Equal(a, b) && (bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a)) {
		t.Errorf("%#v and %#v: one of %q and %q begins with the other", partsX, partsY, a, b)
	}
}

func TestEqualBytesHaveEqualParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		x := make([]byte, 2*(1+r.IntN(4)))
		for i := range x {
			x[i] = byte(r.IntN(24))
		}
		y := bytes.Clone(x)
		for range 1 + r.IntN(3) { // values differ, kinds do not
			y[2*r.IntN(len(y)/2)+1] = byte(r.IntN(24))
		}
		check(t, x, y)
	}
}

func TestNothingIsAllocatedBeyondTheBytes(t *testing.T) {
	b := make([]byte, 0, 256)
	list, numbers, m := []string{"a", "b"}, []int{1, 2}, map[string]string{"a": "1", "b": "2"}
	if n := testing.AllocsPerRun(100, func() {
		b = Flag(Numbers(Number(Map(Texts(Text(b[:0], "text"), list), m), 7), numbers), true)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzEqualBytesHaveEqualParts(f *testing.F) {
	f.Add([]byte("\x00\x02\x01\x03"), []byte("\x00\x03\x01\x02"))
	f.Fuzz(check)
}
