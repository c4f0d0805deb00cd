package provision

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

// summary is the report to one pool about the pods that it could not hold.
type summary struct {
	pool    string
	text    string
	noTypes string // why no instance type is left; "" if one is
}

// A cause is a reason without numbers.
type cause struct {
	code reason.Code
	key  string
}

// foreign reports whether a reason shows that a pod is not meant for the pool: the pod does not tolerate a taint of the pool, or asks for
// labels that the pool does not have or has with other values. The owner of the pool need not hear of such a pod.
func foreign(c reason.Count, pool *v1.NodePool) bool {
	switch c.Code {
	case reason.Taint, reason.LabelUnknown:
		return true
	case reason.LabelMismatch:
		_, own := pool.NodeLabels()[c.Key]
		return own || c.Key == v1.NodePoolLabelKey
	}
	return false
}

// summaries returns a report for each pool about the pods that it could not hold, counted by cause, sorted by pool. A pod counts once for
// each of its causes. It does not count for a pool that it is not meant for (foreign).
func summaries(snap *cluster.Snapshot, refused []engine.Refused) []summary {
	pods := map[string]int{}
	causes := map[string]map[cause]int{}
	numbers := map[string]map[cause]string{} // numbers or detail of the first pod, by pool and cause
	for i := range refused {
		if judge(&refused[i]) != unplaced {
			continue
		}
		counted := map[string]map[cause]bool{}
		elsewhere := map[string]bool{}
		for _, c := range refused[i].Reasons {
			if pool := cluster.Pools.Get(snap, c.Pool); pool == nil || foreign(c, pool) {
				elsewhere[c.Pool] = true
			}
		}
		for _, c := range refused[i].Reasons {
			if elsewhere[c.Pool] {
				continue
			}
			if counted[c.Pool] == nil {
				counted[c.Pool] = map[cause]bool{}
				pods[c.Pool]++
			}
			counted[c.Pool][cause{c.Code, c.Key}] = true
			if c.Code == reason.Limit {
				note(numbers, c)
			}
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
		out = append(out, summarise(pool, pods[pool], causes[pool], numbers[pool]))
	}
	return out
}

// note keeps the numbers of a limit, or else its detail, if none are kept yet for its pool and cause.
func note(numbers map[string]map[cause]string, c reason.Count) {
	if numbers[c.Pool] == nil {
		numbers[c.Pool] = map[cause]string{}
	}
	if of := (cause{c.Code, c.Key}); numbers[c.Pool][of] == "" {
		numbers[c.Pool][of] = cmp.Or(sentence.LimitNumbers(&c), c.Detail)
	}
}

// summarise writes the report of a pool: the most frequent causes with their numbers of pods, and how many other causes there are.
func summarise(pool string, pods int, causes map[cause]int, numbers map[cause]string) summary {
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
		if more := numbers[c]; more != "" {
			text += " " + more
		}
		parts = append(parts, fmt.Sprintf("%d× %s", causes[c], text))
	}
	if len(order) > most {
		parts = append(parts, fmt.Sprintf("%d other cause(s)", len(order)-most))
	}
	s := summary{pool: pool, text: fmt.Sprintf("%d pod(s) cannot run on nodes of this pool: %s", pods, strings.Join(parts, ", "))}
	has := func(code reason.Code) bool {
		return slices.ContainsFunc(order, func(c cause) bool { return c.code == code })
	}
	switch { // these are Karpenter's words, by which its users' alerts and tests know them
	case has(reason.NoTypes):
		s.noTypes = "NodePool requirements filtered out all compatible available instance types"
	case has(reason.MinValues):
		s.noTypes = "NodePool requirements filtered out all compatible available instance types due to minValues incompatibility"
	}
	return s
}
