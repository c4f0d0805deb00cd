package compile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"karpenter.sh/karpenter/internal/cluster/podclass"
)

// TestSelectedMatchesTwin asks the index and every label set by itself.
func TestSelectedMatchesTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	key := func() string { return fmt.Sprint("key-", r.IntN(3)) }
	value := func() string { return fmt.Sprint(r.IntN(4)) }
	for range 300 {
		x := newLabelIndex()
		for i := range 30 {
			ns := fmt.Sprint("ns-", r.IntN(3))
			l := &podclass.Labels{Map: map[string]string{}}
			for range i % 4 {
				l.Map[key()] = value()
			}
			x.sets[ns] = append(x.sets[ns], l)
		}
		for range 10 {
			s := &metav1.LabelSelector{}
			for range r.IntN(3) {
				q := metav1.LabelSelectorRequirement{Key: key(), Operator: []metav1.LabelSelectorOperator{
					metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}[r.IntN(4)]}
				if q.Operator == metav1.LabelSelectorOpIn || q.Operator == metav1.LabelSelectorOpNotIn {
					for range 1 + r.IntN(2) {
						q.Values = append(q.Values, value())
					}
				}
				s.MatchExpressions = append(s.MatchExpressions, q)
			}
			sel := selectorOf(s, nil, nil)
			for ns, sets := range x.sets {
				var want []int32
				for i, l := range sets {
					if sel.sel.Matches(labels.Set(l.Map)) {
						want = append(want, int32(i))
					}
				}
				for range 2 {
					if got := x.selected(ns, &sel); !slices.Equal(got, want) {
						t.Fatalf("selected(%v) = %v, want %v", metav1.FormatLabelSelector(s), got, want)
					}
				}
			}
		}
	}
}
