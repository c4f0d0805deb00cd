package compile

import (
	"slices"

	"karpenter.sh/karpenter/internal/cluster"
)

// Ages cache the order of pods that were asked for: oldest first, then by name. Two questions about a whole fleet have nearly the same
// pods. So only new pods are sorted, and the others keep the order that they had. The zero value is an empty cache.
type ages struct {
	list []*cluster.Pod // in that order
	at   map[*cluster.Pod]int
}

// Below fewPods pods, sorting is faster than looking them up.
const fewPods = 256

// sort returns the pods, oldest first, then by name. The order of the argument does not matter.
func (a *ages) sort(pods []*cluster.Pod) []*cluster.Pod {
	if len(pods) < fewPods {
		out := slices.Clone(pods)
		slices.SortFunc(out, olderFirst)
		return out
	}
	times := make([]int, len(a.list)) // a pod should not be asked for twice, but if it is it stays twice
	var fresh []*cluster.Pod
	for _, p := range pods {
		if i, known := a.at[p]; known {
			times[i]++
		} else {
			fresh = append(fresh, p)
		}
	}
	if len(fresh) > 0 {
		a.learn(fresh)
		return a.sort(pods)
	}
	out := make([]*cluster.Pod, 0, len(pods))
	for i, n := range times {
		for range n {
			out = append(out, a.list[i])
		}
	}
	return out
}

// learn merges new pods into the list. It sorts fresh in place and uses it up; fresh must not be empty.
func (a *ages) learn(fresh []*cluster.Pod) {
	slices.SortFunc(fresh, olderFirst)
	if a.at == nil {
		a.at = make(map[*cluster.Pod]int, len(fresh))
	}
	first, _ := slices.BinarySearchFunc(a.list, fresh[0], olderFirst)
	later := slices.Clone(a.list[first:])
	a.list = a.list[:first]
	for len(fresh)+len(later) > 0 {
		next := &fresh
		if len(fresh) == 0 || len(later) > 0 && olderFirst(later[0], fresh[0]) <= 0 {
			next = &later
		}
		a.at[(*next)[0]] = len(a.list)
		a.list, *next = append(a.list, (*next)[0]), (*next)[1:]
	}
}

func olderFirst(a, b *cluster.Pod) int {
	if older := a.Created.Compare(b.Created); older != 0 {
		return older
	}
	return a.PodKey.Compare(b.PodKey)
}
