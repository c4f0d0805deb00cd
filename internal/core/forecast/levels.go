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

// memory is the time for which the number of pods of a workload is remembered. Pods that come back within it are no arrivals.
const memory = 15 * time.Minute

// A Workload is what pods are counted by: a Deployment or another owner that stays, or else all pods of a namespace with the same template.
type Workload struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"` // "" for pods with the same template
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

// A Levels remembers how many pods each workload had, and which arrivals have no place yet.
type Levels struct {
	// Since is the time until which an earlier process has counted; zero if none has. The first look takes pods that were created later
	// for arrivals.
	Since time.Time

	last    *cluster.Snapshot // of the last look
	swept   int64             // the part of time of the last sweep
	of      map[Workload]*level
	names   map[*podclass.Class]string // cache: names of workloads without an owner
	waiting map[types.UID]Arrival      // arrivals without a place
}

// A level is how many pods a workload has, and the most that it had in each of the last parts of time.
type level struct {
	pods   int
	owners map[types.UID]int // pods by the UID of their owner
	peaks  [4]int            // the newest part first
	part   int64             // the number of the newest part: its time divided by part
}

// part is the length of a part of time. Three full ones make the memory; the newest of the four peaks is still growing.
const part = memory / 3

// Look returns the arrivals that have a place, of those since the last look and of earlier ones that had none. The first look does not know
// what was before. Without Since it returns none.
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
		if w.Kind == "Deployment" && len(at.owners) > 1 {
			continue // pods of a Deployment with several ReplicaSets (a rollout) replace old ones
		}
		if l.last == nil {
			pods = slices.DeleteFunc(pods, func(p *cluster.Pod) bool { return l.Since.IsZero() || p.Created.Before(l.Since) })
		} else if at.pods <= most {
			continue
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

// counted reports whether a pod counts for its workload: not pods of DaemonSets, static pods, and pods that have ended or are being
// deleted.
func counted(p *cluster.Pod) bool {
	return p != nil && !p.DaemonSet && !p.Mirror && !p.Terminal() && p.Deleted.IsZero()
}

// ownerOf returns the UID of a pod's owner, "" if it has none.
func ownerOf(p *cluster.Pod) types.UID {
	if p.Owner == nil {
		return ""
	}
	return p.Owner.UID
}

// placed returns the waiting arrivals that have a place now, and forgets arrivals that are gone or got none within memory.
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

// Until returns until when pods are counted at a time of the last look: before the first arrival that has no place yet. Creation times are
// in whole seconds, and so is it.
func (l *Levels) Until(looked time.Time) time.Time {
	if l.last == nil {
		return l.Since
	}
	for _, a := range l.waiting {
		if a.Pod.Created.Before(looked) {
			looked = a.Pod.Created
		}
	}
	return looked.Truncate(time.Second)
}

// Waiting returns how many arrivals of a workload have no place yet.
func (l *Levels) Waiting(w Workload) (n int) {
	for _, a := range l.waiting {
		if a.Workload == w {
			n++
		}
	}
	return n
}

// most returns the most pods that the workload had within the memory. It begins new parts up to now, with the present number of pods,
// because that did not change since the last look.
func (l *level) most(now time.Time) int {
	at := now.UnixNano() / int64(part)
	for l.part = max(l.part, at-int64(len(l.peaks))); l.part < at; l.part++ {
		copy(l.peaks[1:], l.peaks[:])
		l.peaks[0] = l.pods
	}
	return slices.Max(l.peaks[:])
}

// sweep forgets, once in each part of time, the workloads that have had no pods within the memory, and the cached names.
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

// ofCronJob reports whether the pod's Job is a run of a CronJob in the snapshot. Such pods are announced (package foresight), not learned.
func ofCronJob(snap *cluster.Snapshot, p *cluster.Pod) bool {
	i := strings.LastIndex(p.Owner.Name, "-")
	return i > 0 && cluster.CronJobs.Get(snap, p.Namespace, p.Owner.Name[:i]) != nil
}

// poolOf returns the NodePool of the node on which a pod runs or has a place, "" if there is none.
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

// workload returns the workload of a pod. A pod without an owner that stays is named after a hash of its template.
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
		text, _ := json.Marshal(templateOf(p).Spec) // never fails: it came from the API server
		sum := sha256.Sum256(text)
		name = "pods-" + hex.EncodeToString(sum[:4])
		l.names[p.Class] = name
	}
	return Workload{Namespace: p.Namespace, Name: name}
}

// TemplateOf returns the template of the arrival's pod, as far as it decides where such pods can run.
func (a *Arrival) TemplateOf() *corev1.PodTemplateSpec { return templateOf(a.Pod) }

// templateOf returns the template of a pod, with its scheduling input and labels only.
func templateOf(p *cluster.Pod) *corev1.PodTemplateSpec {
	spec := *p.Class.Spec
	spec.Volumes = nil // another pod has other volumes
	t := &corev1.PodTemplateSpec{Spec: spec}
	t.Labels = p.Labels.Map
	return t
}
