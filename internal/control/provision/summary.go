package provision

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"karpenter.sh/karpenter/internal/core/lower"
	"karpenter.sh/karpenter/internal/core/reason"
)

// summary is what one pool is told about the pods that it could not hold.
type summary struct {
	pool    string
	text    string
	noTypes bool
	blame   string // the requirements that leave no type, if they are known
}

type cause struct {
	code reason.Code
	key  string
}

// summaries counts refused pods by pool and cause. A pod that several causes keep from a pool counts for each.
func summaries(refused []lower.Refused) []summary {
	pods := map[string]int{}
	causes := map[string]map[cause]int{}
	for i := range refused {
		if judge(&refused[i]) != unplaced {
			continue
		}
		counted := map[string]map[cause]bool{}
		for _, c := range refused[i].Reasons {
			if c.Pool == "" {
				continue
			}
			if counted[c.Pool] == nil {
				counted[c.Pool] = map[cause]bool{}
				pods[c.Pool]++
			}
			counted[c.Pool][cause{c.Code, c.Key}] = true
		}
		for pool, of := range counted {
			if causes[pool] == nil {
				causes[pool] = map[cause]int{}
			}
			for c := range of {
				causes[pool][c]++
			}
		}
	}
	var out []summary
	for _, pool := range slices.Sorted(maps.Keys(pods)) {
		out = append(out, summarise(pool, pods[pool], causes[pool]))
	}
	return out
}

func summarise(pool string, pods int, causes map[cause]int) summary {
	const most = 5
	order := slices.SortedFunc(maps.Keys(causes), func(a, b cause) int {
		return cmp.Or(cmp.Compare(causes[b], causes[a]), strings.Compare(a.code.Name(), b.code.Name()), strings.Compare(a.key, b.key))
	})
	var parts []string
	for _, c := range order[:min(most, len(order))] {
		text := c.code.Name()
		if c.key != "" {
			text += " (" + c.key + ")"
		}
		parts = append(parts, fmt.Sprintf("%d× %s", causes[c], text))
	}
	if len(order) > most {
		parts = append(parts, fmt.Sprintf("%d other cause(s)", len(order)-most))
	}
	s := summary{pool: pool, text: fmt.Sprintf("%d pod(s) cannot run on nodes of this pool: %s", pods, strings.Join(parts, ", "))}
	if i := slices.IndexFunc(order, func(c cause) bool { return c.code == reason.NoTypes }); i >= 0 {
		s.noTypes, s.blame = true, order[i].key
	}
	return s
}
