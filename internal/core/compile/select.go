package compile

import (
	"slices"

	"karpenter.sh/karpenter/internal/cluster/podclass"
)

// A labelIndex answers which label sets a selector selects. Each namespace has its own sets. A selector that wants a label to have
// certain values is tested only with sets that have one of them, and answers are cached.
type labelIndex struct {
	sets  map[string][]*podclass.Labels // by namespace, each once
	byKey map[keyIn]map[string][]int32  // sets by the value of a label, made when first asked for
	asked map[selectorIn][]int32
	steps int // label sets that were looked at; termCosts charges them and sets it back to 0
}

type keyIn struct{ namespace, key string }

type selectorIn struct{ namespace, text string }

func newLabelIndex() *labelIndex {
	return &labelIndex{sets: map[string][]*podclass.Labels{}, byKey: map[keyIn]map[string][]int32{}, asked: map[selectorIn][]int32{}}
}

// selected returns the sets of a namespace that s selects, by their index, in order.
func (x *labelIndex) selected(namespace string, s *selector) []int32 {
	question := selectorIn{namespace, s.text}
	if out, known := x.asked[question]; known {
		return out
	}
	var out []int32
	sets := x.sets[namespace]
	if s.key == "" {
		x.steps += len(sets)
		for i, l := range sets {
			if s.matches(l.Map) {
				out = append(out, int32(i))
			}
		}
	} else {
		having := x.having(namespace, s.key)
		for _, v := range s.values {
			x.steps += 1 + len(having[v])/4
			for _, i := range having[v] {
				if s.whole || s.matches(sets[i].Map) {
					out = append(out, i)
				}
			}
		}
		slices.Sort(out)
	}
	x.asked[question] = out
	return out
}

// having returns the sets of a namespace that have a label, by its value.
func (x *labelIndex) having(namespace, key string) map[string][]int32 {
	out, known := x.byKey[keyIn{namespace, key}]
	if !known {
		out = map[string][]int32{}
		x.steps += len(x.sets[namespace])
		for i, l := range x.sets[namespace] {
			if v, ok := l.Map[key]; ok {
				out[v] = append(out[v], int32(i))
			}
		}
		x.byKey[keyIn{namespace, key}] = out
	}
	return out
}

// namespacesOf returns those of the index's namespaces that a group covers.
func (x *labelIndex) namespacesOf(g *group) []string {
	var out []string
	if g.every || len(g.namespaces) > len(x.sets) {
		for _, ns := range sortedKeys(x.sets) {
			if g.covers(ns) {
				out = append(out, ns)
			}
		}
		return out
	}
	for _, ns := range g.namespaces {
		if x.sets[ns] != nil {
			out = append(out, ns)
		}
	}
	return out
}
