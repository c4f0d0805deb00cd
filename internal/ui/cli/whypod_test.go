package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestAmountsAreWrittenAsPeopleDo(t *testing.T) {
	for quantity, want := range map[string]string{"379687m": "379.687", "1500m": "1.5", "937m": "937m", "2": "2", "1Gi": "1Gi", "3000m": "3", "": "", "1.5m": "1.5m"} {
		if got := plainQuantity(quantity); got != want {
			t.Errorf("%q is written %q, want %q", quantity, got, want)
		}
	}
	for dollars, want := range map[float64]string{0.03529: "+$0.0353", -1.5: "-$1.5000", 0: "+$0.0000"} {
		if got := signed(dollars); got != want {
			t.Errorf("%v is written %q, want %q", dollars, got, want)
		}
	}
}

// Types that no rule was asked about are told of: else they would look like types that fit.
func TestTypesThatAPoolDoesNotAskFor(t *testing.T) {
	for name, tc := range map[string]struct {
		rules []ruleAnswer
		want  int
	}{
		"rules that speak of some types":   {[]ruleAnswer{{RuledOut: 600}, {RuledOut: 83}}, 656},
		"rules that speak of all of them":  {[]ruleAnswer{{RuledOut: 1339}}, 0},
		"a rule that speaks of the pool":   {[]ruleAnswer{{RuledOut: 600}, {RuledOut: 0}}, 0},
		"rules that speak of types twice":  {[]ruleAnswer{{RuledOut: 1339}, {RuledOut: 4}}, 0},
		"a pool that was not asked at all": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := podAnswer{Pools: []poolAnswer{{Pool: "p", Types: 1339, Rules: tc.rules}}}
			if got := max(0, a.Pools[0].rest()); got != tc.want {
				t.Errorf("%d types, want %d", got, tc.want)
			}
			var out bytes.Buffer
			if err := a.table(&out); err != nil || strings.Contains(out.String(), "656        not what the pool asks for") != (tc.want > 0) {
				t.Errorf("%v:\n%s", err, out.String())
			}
		})
	}
}

func TestPodsThatCannotRunAreNamed(t *testing.T) {
	for want, pods := range map[string][]string{"w-huge": {"default/w-huge"}, "shop/db-0": {"shop/db-0"}, "web ×2": {"default/web-1", "default/web-2"}} {
		if got := nameOrSummary(pods); got != want {
			t.Errorf("%q are called %q, want %q", pods, got, want)
		}
	}
}
