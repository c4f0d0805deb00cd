package forecast

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
)

// memory is for how long it is remembered how many pods a workload had. Pods that come back within it are no arrivals.
const memory = 15 * time.Minute

// A Workload is what pods are counted by: a Deployment or another owner that stays, or pods that ask for the same.
type Workload struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"` // "" for pods that ask for the same
	Name      string `json:"name"`
}

// String names a workload as kubectl does.
func (w Workload) String() string { return w.Namespace + "/" + w.Name }

// An Arrival is a pod that came, and the NodePool of the machine that it runs on or has a place on.
type Arrival struct {
	Pod      *cluster.Pod
	Workload Workload
	Pool     string
}

// Levels remembers how many pods each workload had, and which pods came that have no place yet.
type Levels struct {
	last    *cluster.Snapshot // that was looked at
	swept   int64             // the part of time in which workloads were last forgotten
	of      map[Workload]*level
	names   map[*podclass.Class]string
	waiting map[types.UID]Arrival
}

// level is how many pods a workload has, by the UID of their owner, and how many it had at most in the last parts of the memory.
type level struct {
	pods   int
	owners map[types.UID]int
	peaks  [4]int // the newest first
	part   int64  // the time of that
}

const part = memory / 3 // the fourth is under way

// Look returns the pods that came since the last look and have a place. The first look returns none: what was before is not known.
func (l *Levels) Look(snap *cluster.Snapshot, now time.Time) (out []Arrival) {
	if l.last == nil {
		l.of, l.waiting, l.names = map[Workload]*level{}, map[types.UID]Arrival{}, map[*podclass.Class]string{}
	}
	before, fresh := map[Workload]int{}, map[Workload][]*cluster.Pod{}
	change := func(p *cluster.Pod, by int) Workload {
		w := l.workload(p)
		at := l.of[w]
		if at == nil {
			at = &level{owners: map[types.UID]int{}}
			l.of[w] = at
		}
		if _, ok := before[w]; !ok {
			before[w] = at.most(now)
		}
		at.pods += by
		if owner := ownerOf(p); at.owners[owner]+by == 0 {
			delete(at.owners, owner)
		} else {
			at.owners[owner] += by
		}
		return w
	}
	for was, is := range snap.PodChanges(l.last) {
		old, counts := counted(was), counted(is)
		if old && counts && was.UID == is.UID && was.Class == is.Class {
			continue
		}
		if old {
			change(was, -1)
		}
		if counts {
			w := change(is, 1)
			fresh[w] = append(fresh[w], is)
		}
	}
	for w, most := range before {
		at, pods := l.of[w], fresh[w]
		at.peaks[0] = max(at.peaks[0], at.pods)
		if l.last == nil || at.pods <= most || w.Kind == "Deployment" && len(at.owners) > 1 {
			continue // new pods of a Deployment with several ReplicaSets take the place of old ones
		}
		slices.SortFunc(pods, func(a, b *cluster.Pod) int { return cmp.Or(b.Created.Compare(a.Created), a.Compare(b.PodKey)) })
		for _, p := range pods[:min(len(pods), at.pods-most)] {
			if p.Owner == nil || p.Owner.Kind != "Job" || !ofCronJob(snap, p) {
				l.waiting[p.UID] = Arrival{Pod: p, Workload: w}
			}
		}
	}
	l.last = snap
	l.sweep(now)
	return l.placed(snap, now)
}

// counted reports whether a pod is one of those that workloads have.
func counted(p *cluster.Pod) bool {
	return p != nil && !p.DaemonSet && !p.Mirror && !p.Terminal() && p.Deleted.IsZero()
}

func ownerOf(p *cluster.Pod) types.UID {
	if p.Owner == nil {
		return ""
	}
	return p.Owner.UID
}

// placed returns the pods that have a place by now, and forgets those that got none for long.
func (l *Levels) placed(snap *cluster.Snapshot, now time.Time) (out []Arrival) {
	for uid, a := range l.waiting {
		p := snap.Pod(a.Pod.PodKey)
		if p == nil || p.UID != uid || now.Sub(p.Created) > memory {
			delete(l.waiting, uid)
		} else if a.Pool = poolOf(snap, p); a.Pool != "" {
			out = append(out, a)
			delete(l.waiting, uid)
		}
	}
	slices.SortFunc(out, func(a, b Arrival) int { return a.Pod.Compare(b.Pod.PodKey) })
	return out
}

// Waiting counts the pods of a workload that came and have no place yet.
func (l *Levels) Waiting(w Workload) (n int) {
	for _, a := range l.waiting {
		if a.Workload == w {
			n++
		}
	}
	return n
}

// most is how many pods there were at most within the memory. In the time since the last change there were as many as there are.
func (l *level) most(now time.Time) int {
	at := now.UnixNano() / int64(part)
	for l.part = max(l.part, at-int64(len(l.peaks))); l.part < at; l.part++ {
		copy(l.peaks[1:], l.peaks[:])
		l.peaks[0] = l.pods
	}
	return slices.Max(l.peaks[:])
}

// sweep forgets workloads that have had no pods for long, and classes of pods that may be gone.
func (l *Levels) sweep(now time.Time) {
	if at := now.UnixNano() / int64(part); at > l.swept {
		l.swept = at
		l.names = map[*podclass.Class]string{}
		for w, of := range l.of {
			if of.most(now) == 0 {
				delete(l.of, w)
			}
		}
	}
}

// ofCronJob reports whether the pods of a Job are announced: it is a run of a CronJob that is known.
func ofCronJob(snap *cluster.Snapshot, p *cluster.Pod) bool {
	i := strings.LastIndex(p.Owner.Name, "-")
	return i > 0 && cluster.CronJobs.Get(snap, p.Namespace, p.Owner.Name[:i]) != nil
}

func poolOf(snap *cluster.Snapshot, p *cluster.Pod) string {
	n := snap.Node(p.NodeName)
	if p.NodeName == "" {
		n = snap.PlaceOf(p)
	}
	if n == nil {
		return ""
	}
	return n.Pool()
}

// workload returns what a pod is counted by.
func (l *Levels) workload(p *cluster.Pod) Workload {
	if o := p.Owner; o != nil {
		switch o.Kind {
		case "ReplicaSet":
			for _, key := range []string{appsv1.DefaultDeploymentUniqueLabelKey, "rollouts-pod-template-hash"} {
				if name, ok := strings.CutSuffix(o.Name, "-"+p.Labels.Map[key]); ok {
					return Workload{p.Namespace, "Deployment", name}
				}
			}
			return Workload{p.Namespace, o.Kind, o.Name}
		case "StatefulSet", "ReplicationController":
			return Workload{p.Namespace, o.Kind, o.Name}
		}
	}
	name, ok := l.names[p.Class]
	if !ok {
		text, _ := json.Marshal(templateOf(p).Spec) // what came from the API server can be written
		sum := sha256.Sum256(text)
		name = "pods-" + hex.EncodeToString(sum[:4])
		l.names[p.Class] = name
	}
	return Workload{Namespace: p.Namespace, Name: name}
}

// TemplateOf returns the template of a pod, as far as it decides where such pods can run.
func (a *Arrival) TemplateOf() *corev1.PodTemplateSpec { return templateOf(a.Pod) }

func templateOf(p *cluster.Pod) *corev1.PodTemplateSpec {
	spec := *p.Class.Spec
	spec.Volumes = nil // a pod to come has volumes of its own
	t := &corev1.PodTemplateSpec{Spec: spec}
	t.Labels = p.Labels.Map
	return t
}
