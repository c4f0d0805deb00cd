package rollout

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/breaker"
	"karpenter.sh/karpenter/internal/core/movable"
)

const (
	// See "Blame" in the package doc.
	leastRestarts = 2                // a pod with fewer restarts does not fail for them
	moreOften     = 2                // a pod fails if it restarts more than so many times as often as other pods of its template
	startupFactor = 2                // a pod is late after so many times the start-up time of other pods of its template
	mostStartup   = 30 * time.Minute // a longer one is ignored: such a pod was probably ready earlier, and unready for a while
	oneIn         = 10               // a gate trips if more than one in so many failed
	examples      = 3                // names in a Verdict
)

// A Judge counts how the new machines of one pool and the pods on them do. Its zero value has seen nothing. It remembers which machines
// failed, how pods did before they moved, and since when pods have been seen not ready.
type Judge struct {
	machines breaker.Memory
	unready  map[types.UID]time.Time // when a late pod was first seen not ready
}

// Limits say which machines of a pool are judged, and how long they and pods may take to get ready.
type Limits struct {
	Pool  string
	Since time.Time // machines that were created before are not judged
	Ready time.Duration
}

// A Verdict counts the new machines, and the pods on new machines, that were judged, and those that failed.
type Verdict struct {
	breaker.Evidence
	Waits bool // something is neither ready nor late
	// Failing are the templates of pods that count as failed, each by one of its pods.
	Failing []*cluster.Pod
}

// A Gate names a gate of a policy.
type Gate string

// The gates. A gate that is a query is named promQL/NAME.
const (
	NodesReady           Gate = "nodesReady"
	MovedPodsReady       Gate = "movedPodsReady"
	DeploymentsAvailable Gate = "deploymentsAvailable"
	Webhook              Gate = "webhook"
)

// Trips reports whether NodesReady or MovedPodsReady trips by a verdict. Other gates are not judged here.
func (v *Verdict) Trips(g Gate) bool {
	switch g {
	case NodesReady:
		return v.BadMachines*oneIn > v.Machines
	case MovedPodsReady:
		return v.BadPods*oneIn > v.Pods
	}
	return false
}

// Look judges the new machines of a pool and the pods on them, and updates the judge's memory. It is called in each turn of a rollout.
func (j *Judge) Look(snap *cluster.Snapshot, l Limits, now time.Time) Verdict {
	isNew := func(n *cluster.Node) bool {
		return n.Claim != nil && n.Claim.Labels[v1.NodePoolLabelKey] == l.Pool && !n.Claim.CreationTimestamp.Time.Before(l.Since) &&
			!drifts(n.Claim) && !wentBack(n.Claim)
	}
	j.machines.Look(snap, breaker.Limits{Since: l.Since, Ready: l.Ready, Judges: isNew, Proven: l.Ready}, now)
	v := Verdict{Evidence: j.machines.Evidence()}
	v.Pods, v.BadPods, v.Examples = 0, 0, slices.Clip(v.Examples[:v.MachineExamples])
	like := map[breaker.Template]*alike{}
	for n := range snap.Nodes() {
		if !isNew(n) || n.Deleting() {
			continue
		}
		v.Waits = v.Waits || !condition.IsTrue(n.Claim, v1.ConditionTypeInitialized)
		for _, p := range n.Pods {
			if counts(p) {
				t := breaker.TemplateOf(p)
				if like[t] == nil {
					like[t] = &alike{}
				}
				like[t].fresh = append(like[t].fresh, p)
			}
		}
	}
	j.compare(snap, like, isNew, l.Ready, now)
	j.weigh(like, l.Ready, now, &v)
	return v
}

// counts reports whether a pod says something about its machine.
func counts(p *cluster.Pod) bool {
	return p.Owner != nil && !p.DaemonSet && !p.Mirror && !p.Terminal() && !movable.Terminating(p)
}

// alike are the pods of one template.
type alike struct {
	fresh     []*cluster.Pod // on new machines
	well, ill int            // how many do well or ill on other machines; pods that are not decided about are in neither
	record    breaker.Record // of pods on other machines, and of moved pods before they moved
	moved     int            // pods that had been ready before their node was removed
}

// compare adds to each template in like how its pods do on other machines, and how they did before they moved.
func (j *Judge) compare(snap *cluster.Snapshot, like map[breaker.Template]*alike, isNew func(*cluster.Node) bool, ready time.Duration,
	now time.Time) {
	for t, r := range j.machines.Moved() {
		if a := like[t]; a != nil {
			a.moved, a.record = r.Pods, r
		}
	}
	if len(like) == 0 {
		return
	}
	for n := range snap.Nodes() {
		if isNew(n) {
			continue
		}
		for _, p := range n.Pods {
			if !counts(p) {
				continue
			}
			a := like[breaker.TemplateOf(p)]
			if a == nil {
				continue
			}
			switch {
			case p.Ready && now.Sub(p.ReadySince) >= ready:
				a.well++
			case !p.Ready && now.Sub(boundAt(p)) >= ready:
				a.ill++
			}
			a.record = a.record.With(breaker.RecordOf(p, now))
		}
	}
}

// boundAt returns when a pod came to its machine.
func boundAt(p *cluster.Pod) time.Time {
	if p.Scheduled.IsZero() {
		return p.Created
	}
	return p.Scheduled
}

// weigh adds the pods on new machines to a verdict. It blames failures on the machines as the package doc says under "Blame".
func (j *Judge) weigh(like map[breaker.Template]*alike, ready time.Duration, now time.Time, v *Verdict) {
	unready := map[types.UID]time.Time{}
	var names []string
	for _, a := range like {
		if a.well+a.ill+a.moved == 0 {
			continue // nothing is known to compare with
		}
		decided, bad := 0, []*cluster.Pod(nil)
		for _, p := range a.fresh {
			switch j.judge(p, a.record, ready, now, unready) {
			case doesWell:
				decided++
			case fails:
				decided++
				bad = append(bad, p)
			default:
				v.Waits = true
			}
		}
		blamed := min(len(bad), a.moved)
		if elsewhere := a.well + a.ill; elsewhere > 0 {
			blamed = max(0, len(bad)-int(math.Ceil(float64(decided)*float64(a.ill)/float64(elsewhere))))
		}
		v.Pods += decided
		v.BadPods += blamed
		for _, p := range bad[:blamed] {
			names = append(names, p.Namespace+"/"+p.Name)
		}
		if blamed > 0 {
			v.Failing = append(v.Failing, bad[0])
		}
	}
	j.unready = unready
	slices.Sort(names)
	v.Examples = append(v.Examples, names[:min(len(names), examples)]...)
}

// doing is how a pod on a new machine does.
type doing int

const (
	undecided doing = iota
	doesWell
	fails
)

// judge returns how a pod does. like is the record of other pods of its template. In unready, which replaces j.unready afterwards, it notes
// since when a late pod has been seen not ready.
func (j *Judge) judge(p *cluster.Pod, like breaker.Record, ready time.Duration, now time.Time, unready map[types.UID]time.Time) doing {
	late := ready
	if like.Startup <= mostStartup {
		late = max(late, startupFactor*like.Startup)
	}
	switch {
	case p.Restarts >= leastRestarts && breaker.RecordOf(p, now).Restarts > moreOften*like.Restarts:
		return fails
	case p.Ready:
		return doesWell
	case now.Sub(boundAt(p)) < late:
		return undecided
	}
	since, known := j.unready[p.UID]
	if !known {
		since = now
	}
	unready[p.UID] = since
	if now.Sub(since) < breaker.UnreadyAfter {
		return undecided
	}
	return fails
}
