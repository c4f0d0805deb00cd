package dedup

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// at is where a string is.
func at(s string) *byte { return unsafe.StringData(s) }

func TestEqualThingsAreOne(t *testing.T) {
	table := New()
	fresh := func(s string) string { return strings.Clone(s) }
	t.Run("strings", func(t *testing.T) {
		a, b := table.String(fresh("karpenter")), table.String(fresh("karpenter"))
		if a != "karpenter" || at(a) != at(b) {
			t.Errorf("%q and %q are two", a, b)
		}
	})
	t.Run("lists", func(t *testing.T) {
		a, b := table.Strings([]string{fresh("m5.large"), fresh("c5.large")}), table.Strings([]string{fresh("m5.large"), fresh("c5.large")})
		if &a[0] != &b[0] || !cmp.Equal(a, []string{"m5.large", "c5.large"}) {
			t.Errorf("%q and %q are two", a, b)
		}
		if c := table.Strings([]string{"c5.large", "m5.large"}); !cmp.Equal(c, []string{"c5.large", "m5.large"}) || at(c[1]) != at(a[0]) {
			t.Errorf("another order of equal words gives %q", c)
		}
		if c := table.Strings([]string{"m5.largec5.large"}); len(c) != 1 {
			t.Errorf("words run together are %q", c)
		}
	})
	t.Run("maps", func(t *testing.T) {
		a := table.Map(nil, map[string]string{fresh("zone"): fresh("a"), "host": "1"})
		b := table.Map(a, map[string]string{fresh("zone"): fresh("a"), "host": "2"})
		if !cmp.Equal(a, map[string]string{"zone": "a", "host": "1"}) || !cmp.Equal(b, map[string]string{"zone": "a", "host": "2"}) || at(a["zone"]) != at(b["zone"]) {
			t.Errorf("%v and %v share no words", a, b)
		}
		again := table.Map(b, map[string]string{"zone": "a", "host": "2"})
		again["new"] = "x"
		if b["new"] != "x" {
			t.Error("a map that did not change has two copies")
		}
	})
	t.Run("amounts", func(t *testing.T) {
		list := func(cpu, memory string) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
		}
		a, b := table.Amounts(list("2", "8Gi")), table.Amounts(list("2", "8Gi"))
		b["mark"] = resource.MustParse("1")
		if len(a) != 3 {
			t.Error("equal amounts have two copies")
		}
		for _, other := range []corev1.ResourceList{list("2", "4Gi"), list("8", "2Gi"), list("2", "8589934592")} {
			if got := table.Amounts(other); !cmp.Equal(got, other) {
				t.Errorf("%v became %v", other, got)
			}
		}
	})
	t.Run("conditions", func(t *testing.T) {
		in := []metav1.Condition{{Type: fresh("Ready"), Status: "True", Reason: fresh("Good"), Message: fresh("all is well")}}
		a, b := table.Conditions(in), table.Conditions([]metav1.Condition{{Type: "Ready", Status: "True", Reason: "Good", Message: "all is well"}})
		if !cmp.Equal(a, b) || at(a[0].Message) != at(b[0].Message) || &a[0] == &in[0] {
			t.Errorf("%v and %v share no words, or are what came", a, b)
		}
	})
}

func TestATableIsBounded(t *testing.T) {
	table := New()
	kept := table.String(strings.Clone("asked for again and again"))
	for i := range 1 << 18 {
		table.String(fmt.Sprint("only once ", i))
		if i%1000 == 0 && at(table.String(strings.Clone(kept))) != at(kept) {
			t.Fatal("what is asked for all the time was forgotten")
		}
		if n := table.young.weight + table.old.weight; n > 2*weight+1000 {
			t.Fatalf("it remembers %d bytes", n)
		}
	}
	if long := strings.Repeat("x", 1<<20); table.String(long) != long || len(table.young.strings) == 0 || table.young.strings[long] != "" {
		t.Error("a long text is remembered, or was changed")
	}
}
