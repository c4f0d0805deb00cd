package compile

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A tolerance is an admittance at one level of preferences. soft: every PreferNoSchedule taint is tolerated, too.
type tolerance struct {
	*admittance
	soft bool
}

// A toleranceKey identifies a tolerance.
type toleranceKey struct {
	list, features string
	soft           bool
}

// toleranceOf returns the number of a tolerance, by which problem.Labels answers.
func (c *conditions) toleranceOf(a *admittance, soft bool) int {
	return c.tols.of(toleranceKey{a.tolKey, strings.Join(a.features, ", "), soft}, tolerance{a, soft})
}

// makeClasses joins cohorts that differ only in labels that no group selects by, and writes their classes and the queue.
func (b *builder) makeClasses() {
	class, n := b.classNumbers()
	// problem.Class is a large struct: with thousands of them, growing the slices would cost more than filling them
	b.out.Classes, b.problem.Classes = make([]Class, 0, n), make([]problem.Class, 0, n)
	for i, c := range b.cohorts {
		at := class[i]
		if at == len(b.out.Classes) {
			b.out.Classes = append(b.out.Classes, Class{Sticky: map[cluster.PodKey]problem.BinID{}, Exclusive: c.exclusive})
			b.problem.Classes = append(b.problem.Classes, b.classOf(c, at))
		}
		b.out.Classes[at].Pods = append(b.out.Classes[at].Pods, c.pods...)
		b.problem.Classes[at].Count += len(c.pods)
		b.problem.Classes[at].First = b.problem.Classes[at].First || c.first
	}
	for at := range b.out.Classes {
		b.addSticky(&b.problem.Classes[at], &b.out.Classes[at])
	}
	b.makeQueue()
}

// classNumbers returns the class of each cohort, and how many classes there are. Classes are numbered in the order of their first cohort.
func (b *builder) classNumbers() (class []int, n int) {
	index := make(map[string]int, len(b.cohorts))
	class = make([]int, len(b.cohorts))
	var buf []byte
	for i, c := range b.cohorts {
		buf = c.appendIdentity(buf[:0])
		at, known := index[string(buf)]
		if !known {
			at = len(index)
			index[string(buf)] = at
		}
		class[i] = at
	}
	return class, len(index)
}

// makeQueue writes the queue: the pods that own a group or are selected by one, in the order in which kube-scheduler takes them: by
// priority, then the oldest first.
func (b *builder) makeQueue() {
	type waiting struct {
		pod   *cluster.Pod
		class int
	}
	var queue []waiting
	for at := range b.problem.Classes {
		if c := &b.problem.Classes[at]; len(c.Groups) == 0 && !slices.ContainsFunc(c.Variants,
			func(v problem.Variant) bool { return len(v.Owns) > 0 }) {
			continue
		}
		for _, p := range b.out.Classes[at].Pods {
			queue = append(queue, waiting{p, at})
		}
	}
	slices.SortStableFunc(queue, func(x, y waiting) int {
		return cmp.Or(cmp.Compare(y.pod.Priority, x.pod.Priority), olderFirst(x.pod, y.pod))
	})
	for _, w := range queue {
		b.problem.Queue = append(b.problem.Queue, int32(w.class))
	}
}

// appendIdentity appends a text that is equal for cohorts of one class.
func (c *cohort) appendIdentity(buf []byte) []byte {
	buf = identity.Number(buf, int64(c.info.class.ID))
	buf = identity.Text(buf, c.info.class.Namespace)
	buf = identity.Number(buf, int64(c.priority))
	alone := len(c.info.ephemeral) > 0 || c.alone
	if buf = identity.Flag(buf, alone); alone {
		buf = identity.Text(identity.Text(buf, c.pods[0].Namespace), c.pods[0].Name)
	}
	for _, list := range [][]int{c.hard, c.soft, c.near, c.apart, c.nearSoft, c.apartSoft, c.groups} {
		buf = identity.Numbers(buf, list)
	}
	return buf
}

// classOf returns the class of a cohort in numbers. Counts, and ports that exclude it, are added later.
func (b *builder) classOf(c *cohort, order int) problem.Class {
	i := c.info
	out := problem.Class{Name: c.pods[0].Namespace + "/" + c.pods[0].Name, Priority: c.priority, Order: order,
		Need: i.need, TooMuch: i.tooMuch, Groups: c.groups}
	for _, p := range i.ports {
		out.Ports = append(out.Ports, b.ports.Intern(p))
	}
	out.Volumes = c.volumes.mounts
	out.Devices = c.devices
	out.Variants = b.variantsOf(c)
	for _, term := range i.terms {
		out.Terms = append(out.Terms, b.conditions.reqs.of(term.Key(), term))
	}
	out.Tol = b.conditions.toleranceOf(&i.admittance, true)
	return out
}

// A level is one step of giving up preferences.
type level struct {
	nearSoft, apartSoft, preferred, soft int  // how many of each kind are dropped, from the front of their lists
	tolerate                             bool // every PreferNoSchedule taint is tolerated
}

// levelsOf returns the levels of preference from the strictest, with all preferences, to the one without any. Preferences are dropped one
// by one: pod affinity, pod anti-affinity, node affinity, spreads that may be violated, and then PreferNoSchedule taints.
func (b *builder) levelsOf(c *cohort) []level {
	out := []level{{}}
	less := func(times int, one func(*level)) {
		for range times {
			l := out[len(out)-1]
			one(&l)
			out = append(out, l)
		}
	}
	if !b.in.IgnorePreferences {
		less(len(c.nearSoft), func(l *level) { l.nearSoft++ })
		less(len(c.apartSoft), func(l *level) { l.apartSoft++ })
		less(len(c.info.preferred), func(l *level) { l.preferred++ })
		less(len(c.soft), func(l *level) { l.soft++ })
	}
	if b.softOn && !toleratesAll(c.info.tolerances, []corev1.Taint{{Effect: corev1.TaintEffectPreferNoSchedule, Key: "\x00"}}, false) {
		less(1, func(l *level) { l.tolerate = true })
	}
	return out
}

// variantsOf returns the variants of a cohort, the strictest first: for each level of preferences, each required term with each volume
// alternative. With too many combinations, levels before the last are left out. If a pool has minValues, there are more variants: the
// union of all required terms, and a last level at which soft groups do not count the pods.
func (b *builder) variantsOf(c *cohort) []problem.Variant {
	i := c.info
	levels := b.levelsOf(c)
	alternatives := c.volumes.alternatives
	if len(alternatives) == 0 {
		alternatives = []label.Reqs{nil}
	}
	if most := max(1, mostVariants/(len(i.terms)*len(alternatives))); len(levels) > most {
		levels = append(levels[:most-1:most-1], levels[len(levels)-1])
	}
	uncounted := len(levels)
	if anyMinValues(b.templates) && b.softlyCounted(c) {
		levels = append(levels, levels[len(levels)-1])
	}
	var out []problem.Variant
	for n, l := range levels {
		owns := b.ownedAt(c, l)
		tol := b.conditions.toleranceOf(&i.admittance, l.tolerate)
		terms := make([][]int, len(alternatives))
		for _, term := range i.terms {
			full := term
			if !b.in.IgnorePreferences && l.preferred < len(i.preferred) {
				full = full.And(i.preferred[l.preferred])
			}
			for k, alt := range alternatives {
				reqs := full.And(alt)
				at := b.conditions.reqs.of(reqs.Key(), reqs)
				terms[k] = append(terms[k], at)
				out = append(out, problem.Variant{Level: n, Reqs: at, Tol: tol, Owns: owns, Uncounted: n == uncounted})
			}
		}
		if len(i.terms) == 1 || !anyMinValues(b.templates) {
			continue
		}
		for k := range alternatives {
			if at, ok := b.conditions.union(terms[k], b.templates); ok {
				out = append(out, problem.Variant{Level: n, Reqs: at, Tol: tol, Owns: owns, Uncounted: n == uncounted})
			}
		}
	}
	return out
}

// softlyCounted reports whether a group that is only a preference, and not about hosts, counts the pods of a cohort. Such a group ties them
// to a domain, which may have too few instance types for minValues. So as their last preference the pods give up being counted.
func (b *builder) softlyCounted(c *cohort) bool {
	return slices.ContainsFunc(c.groups, func(g int) bool {
		group := b.topology.groups.list[g]
		return !group.required && !group.hard && group.key != corev1.LabelHostname
	})
}

// ownedAt returns the groups that the pods of a cohort own at a level, sorted.
func (b *builder) ownedAt(c *cohort, l level) []int {
	if len(c.hard)+len(c.soft)+len(c.near)+len(c.apart)+len(c.nearSoft)+len(c.apartSoft) == 0 {
		return nil
	}
	out := slices.Concat(c.hard, c.near, c.apart)
	if !b.in.IgnorePreferences {
		out = slices.Concat(out, c.soft[min(l.soft, len(c.soft)):], c.nearSoft[min(l.nearSoft, len(c.nearSoft)):],
			c.apartSoft[min(l.apartSoft, len(c.apartSoft)):])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// plannedTo returns the bin onto which an earlier plan put a pod; false if there is none.
func (b *builder) plannedTo(p *cluster.Pod) (int, bool) {
	if p.Spare == nil && !b.seats.seated[p.PodKey] {
		return 0, false
	}
	row := b.in.Snap.PlaceOf(p)
	if row == nil {
		return 0, false
	}
	bin, ok := b.w.binOf[row.Name]
	return bin, ok
}

// addSticky notes where earlier plans put pods of a class: in the problem how many for each bin, in the order of bins, and in c each pod.
func (b *builder) addSticky(class *problem.Class, c *Class) {
	counts := map[int]int{}
	for _, p := range c.Pods {
		if bin, ok := b.plannedTo(p); ok {
			c.Sticky[p.PodKey] = problem.BinID(bin)
			counts[bin]++
		}
	}
	for bin := range len(b.w.nodes) {
		if len(counts) == 0 {
			break
		}
		if n := counts[bin]; n > 0 {
			class.Sticky = append(class.Sticky, problem.Sticky{Node: problem.BinID(bin), Count: n})
			delete(counts, bin)
		}
	}
}
