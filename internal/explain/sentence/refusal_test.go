package sentence

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/reason"
)

var web = cluster.PodKey{Namespace: "shop", Name: "web"}

func TestRefusal(t *testing.T) {
	full := []disrupt.Stuck{{Pod: web, Why: reason.Explanation{{Code: reason.TooLarge, Key: "cpu", Candidates: 1}}}}
	for name, tc := range map[string]struct {
		refusal disrupt.Refusal
		want    string
	}{
		"an annotation of the node": {disrupt.Refusal{Code: disrupt.NodeProtected, Name: v1.DoNotDisruptAnnotationKey}, "the node has the annotation karpenter.sh/do-not-disrupt=true"},
		"an annotation of a pod says its value": {disrupt.Refusal{Code: disrupt.PodProtected, Pod: &web, Name: v1.DoNotDisruptAnnotationKey, Value: "2h"},
			"pod shop/web has the annotation karpenter.sh/do-not-disrupt=2h"},
		"a budget":        {disrupt.Refusal{Code: disrupt.PodBudget, Pod: &web, Name: "shop/min"}, "PodDisruptionBudget shop/min allows no disruption of pod shop/web now"},
		"several budgets": {disrupt.Refusal{Code: disrupt.PodBudget, Pod: &web}, "pod shop/web is under more than one PodDisruptionBudget, so it cannot be evicted"},
		"pods without a place": {disrupt.Refusal{Code: disrupt.NoPlace, Reason: v1.DisruptionReasonUnderutilized, Stuck: full},
			"its pods would not all find a place: shop/web: 1 existing node: 1 not enough cpu"},
		"of a drifted node, and many of them": {disrupt.Refusal{Code: disrupt.NoPlace, Reason: v1.DisruptionReasonDrifted, Stuck: full, More: 3},
			"the node has drifted, but its pods would not all find a place: shop/web: 1 existing node: 1 not enough cpu; and 3 more"},
		"no machine of a pool": {disrupt.Refusal{Code: disrupt.NoPlace, Reason: v1.DisruptionReasonDrifted, Why: reason.Explanation{{Code: reason.NotReached}}},
			"the node has drifted, but the time for a plan ran out before its turn; it comes next time"},
		"a limit of nodes": {disrupt.Refusal{Code: disrupt.NoPlace, Reason: v1.DisruptionReasonDrifted, Limits: []string{"p"}},
			"the node has drifted, but its NodePool may have no more nodes (limits.nodes), and one is needed before it goes"},
		"a paused pool": {disrupt.Refusal{Code: disrupt.Paused, Name: "p", Value: "sale"}, "its NodePool is paused until karpenter resume ends it: sale"},
		"a paused cluster": {disrupt.Refusal{Code: disrupt.Paused, Until: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)},
			"disruption is paused in the whole cluster until 2026-05-01T00:00:00Z"},
		"a node without a pool": {disrupt.Refusal{Code: disrupt.NoPool}, "the node has no label karpenter.sh/nodepool"},
		"an empty node of a pool that keeps its nodes": {disrupt.Refusal{Code: disrupt.ConsolidateNever, Reason: v1.DisruptionReasonEmpty, Name: "p"},
			`the node is empty, but NodePool "p" has consolidateAfter: Never`},
		"what ends by itself": {disrupt.Refusal{Code: disrupt.Settling, Name: "p", Until: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)},
			`a pod came or went, and consolidateAfter of NodePool "p" is not over, until 2026-05-01T00:00:00Z`},
		"what does not end by itself": {disrupt.Refusal{Code: disrupt.Setback}, "the last step with the node failed, and it is left alone"},
		"a part of the price":         {disrupt.Refusal{Code: disrupt.NothingCheaper, Need: 0.03}, "no replacement is at least 3% cheaper"},
		"numbers of things":           {disrupt.Refusal{Code: disrupt.FewSpotTypes, Have: 4, Need: 15}, "spot to spot needs 15 cheaper instance types to choose from, there are 4"},
		"what budgets do not let":     {disrupt.Refusal{Code: disrupt.Budget, Reason: v1.DisruptionReasonUnderutilized, Need: 2}, "the budgets do not let 2 node(s) go for the reason Underutilized now"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Refusal(tc.refusal); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

// TestEveryCodeHasWords reads the constants of the type Code, so that a new one cannot be forgotten in the list or here.
func TestEveryCodeHasWords(t *testing.T) {
	listed := map[disrupt.Code]bool{}
	for _, code := range disrupt.Codes() {
		listed[code] = true
		if text := Refusal(disrupt.Refusal{Code: code, Pod: &web}); text == "" {
			t.Errorf("%s has no words", code)
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../../core/disrupt/refusal.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Code" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil || !listed[disrupt.Code(text)] {
				t.Errorf("%s is not listed by Codes", spec.Names[0].Name)
			}
			found++
		}
		return true
	})
	if found != len(listed) {
		t.Errorf("%d codes are declared, %d listed", found, len(listed))
	}
}

// TestTheShapeOfARefusal pins what readers of JSON rely on.
func TestTheShapeOfARefusal(t *testing.T) {
	r := disrupt.Refusal{Code: disrupt.NoPlace, Reason: v1.DisruptionReasonDrifted, Node: "n", Claim: "c", Pod: &web, Name: "x", Value: "y", Limits: []string{"p"}, Have: 1, Need: 2.5,
		Until: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Stuck: []disrupt.Stuck{{Pod: web, Why: reason.Explanation{{Code: reason.TooLarge, Key: "cpu", Candidates: 1}}}}, More: 1}
	want := `{"code":"NoPlace","reason":"Drifted","node":"n","nodeClaim":"c","pod":{"namespace":"shop","name":"web"},"name":"x","value":"y","have":1,"need":2.5,` +
		`"until":"2026-01-02T03:04:05Z","stuck":[{"pod":{"namespace":"shop","name":"web"},"why":[{"code":"DoesNotFit","key":"cpu","candidates":1}]}],"more":1,"limits":["p"]}`
	for refusal, want := range map[*disrupt.Refusal]string{&r: want, {Code: disrupt.Deleting, Node: "n"}: `{"code":"Deleting","node":"n"}`} {
		if got, err := json.Marshal(refusal); err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

// TestThePageListsEveryCode holds docs/node-stays.md to the codes that there are.
func TestThePageListsEveryCode(t *testing.T) {
	page, err := os.ReadFile("../../../docs/node-stays.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range disrupt.Codes() {
		if !strings.Contains(string(page), "`"+string(code)+"`") {
			t.Errorf("docs/node-stays.md does not say what %s means", code)
		}
	}
}
