package recording

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// A watchItem is what a watch printed: an object, a list, or an event around an object. The controller's recordings
// add when each event came (At).
type watchItem struct {
	Kind   string            `json:"kind"`
	Items  []json.RawMessage `json:"items"`
	Type   string            `json:"type"`
	Object json.RawMessage   `json:"object"`
	At     time.Time         `json:"at"`
}

// A watched holds the pods of a watch, by UID.
type watched struct {
	lives map[types.UID]*witnessed
	begin time.Time // when the first event came, zero where none says when
	end   time.Time // of the last thing that was seen
	disks Disks
}

func newWatched() *watched { return &watched{lives: map[types.UID]*witnessed{}} }

// A witnessed is a life that a watch showed.
type witnessed struct {
	Life
	uid     types.UID
	owner   types.UID
	evicted bool
}

// readWatch reads a sequence of JSON values, each of which is an object, list or event.
func readWatch(s source) (*watched, error) {
	w := newWatched()
	decoder := json.NewDecoder(bytes.NewReader(s.text))
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if err == io.EOF {
			break
		}
		line := s.lineOf(decoder.InputOffset())
		if err != nil {
			return nil, s.jsonError(err)
		}
		if err := w.read(raw); err != nil {
			return nil, s.at(line, "%v", err)
		}
	}
	return w, nil
}

// read reads one object, list or event.
func (w *watched) read(raw json.RawMessage) error {
	var x watchItem
	if err := json.Unmarshal(raw, &x); err != nil {
		return err
	}
	switch {
	case strings.HasSuffix(x.Kind, "List"):
		for _, item := range x.Items {
			if err := w.pod(item, watchItem{}); err != nil {
				return err
			}
		}
		return nil
	case len(x.Object) > 0 && x.Type == "BOOKMARK":
		return nil
	case len(x.Object) > 0 && slices.Contains([]string{"ADDED", "MODIFIED", "DELETED"}, x.Type):
		return w.pod(x.Object, x)
	case len(x.Object) > 0:
		return errors.New("an event's type is ADDED, MODIFIED or DELETED")
	}
	return w.pod(raw, watchItem{})
}

// pod notes what an object says, if it is a pod or a disk. Pods of DaemonSets and static pods are left out: they come
// with each node.
func (w *watched) pod(raw json.RawMessage, event watchItem) error {
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "":
		return errors.New("the object has no kind; what \"kubectl get pods -w -o json\" writes has one")
	case "Pod":
	default:
		return w.disks.add(kind.Kind, raw)
	}
	p := &corev1.Pod{}
	if err := json.Unmarshal(raw, p); err != nil {
		return err
	}
	at := event.At.UTC().Truncate(time.Second)
	switch {
	case p.Name == "":
		return errors.New("the pod has no name")
	case p.CreationTimestamp.IsZero():
		return errors.New("pod " + p.Name + " has no creationTimestamp, so that the time at which it came is not known")
	case checkMoment(p.CreationTimestamp.Time) != nil || !event.At.IsZero() && checkMoment(at) != nil:
		return errors.New("pod " + p.Name + ": write times between 1970 and 2200")
	case podclass.OwnedBy(p, "DaemonSet") || p.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return nil
	}
	w.observe(p, at, event.Type == "DELETED")
	return nil
}

// observe notes the state of a pod: its node, its end if there is one, and whether it was evicted. gone means that
// the event was a deletion, at at.
func (w *watched) observe(p *corev1.Pod, at time.Time, gone bool) {
	uid := types.UID(cmp.Or(string(p.UID), p.Namespace+"/"+p.Name))
	l := w.lives[uid]
	if l == nil {
		l = &witnessed{uid: uid, Life: Life{Pod: wanted(p), From: p.CreationTimestamp.UTC().Truncate(time.Second)}}
		if owner := metav1.GetControllerOf(p); owner != nil {
			l.owner = owner.UID
		}
		w.lives[uid] = l
	}
	l.On = cmp.Or(l.On, p.Spec.NodeName)
	to := endOf(p)
	if to.IsZero() && gone {
		to = ztime.Later(at, w.end)
	}
	if !to.IsZero() && (l.To.IsZero() || to.Before(l.To)) {
		l.To = ztime.Later(to, l.From)
	}
	for _, c := range p.Status.Conditions {
		l.evicted = l.evicted || c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	}
	if w.begin.IsZero() {
		w.begin = at
	}
	for _, t := range []time.Time{l.From, l.To, at} {
		w.end = ztime.Later(w.end, t)
	}
}

// endOf returns when a pod was told to end or ended by itself; zero if it has not, or if the time makes no sense.
func endOf(p *corev1.Pod) time.Time {
	var out time.Time
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Terminated != nil {
				out = ztime.Later(out, c.State.Terminated.FinishedAt.Time)
			}
		}
	}
	if p.DeletionTimestamp != nil && out.IsZero() {
		out = p.DeletionTimestamp.Time
		if p.DeletionGracePeriodSeconds != nil {
			out = out.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
		}
	}
	if out.IsZero() || checkMoment(out) != nil {
		return time.Time{}
	}
	return out.UTC().Truncate(time.Second)
}

// remadeWithin is how soon after an eviction the pod that its owner makes is the same to its user.
const remadeWithin = time.Minute

// joinedLives returns the lives. A pod that was evicted and the pod that its owner created next (within remadeWithin)
// are one life, because the user wanted one pod all the time.
func (w *watched) joinedLives() []Life {
	all := slices.SortedFunc(maps.Values(w.lives), func(a, b *witnessed) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.uid, b.uid))
	})
	byOwner := map[types.UID][]*witnessed{}
	for _, l := range all {
		if l.owner != "" {
			byOwner[l.owner] = append(byOwner[l.owner], l)
		}
	}
	next := map[*witnessed]*witnessed{}
	taken := map[*witnessed]bool{}
	for _, l := range all {
		if !l.evicted || l.To.IsZero() || l.owner == "" {
			continue
		}
		for _, other := range byOwner[l.owner] {
			if since := other.From.Sub(l.To); other != l && !taken[other] && since >= 0 && since <= remadeWithin {
				next[l], taken[other] = other, true
				break
			}
		}
	}
	var out []Life
	for _, l := range all {
		if taken[l] {
			continue
		}
		life := l.Life
		for n := next[l]; n != nil; n = next[n] {
			life.To, life.remade = n.To, true
		}
		out = append(out, life)
	}
	return out
}

// wanted returns the part of a pod that its user wanted: not where it ran, what was written to it later, or its
// command and environment. Volumes without a claim are left out.
func wanted(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: cmp.Or(p.Namespace, metav1.NamespaceDefault), Name: p.Name, Labels: p.Labels,
		Annotations: p.Annotations, OwnerReferences: p.OwnerReferences,
	}, Spec: *p.Spec.DeepCopy()}
	out.Spec.NodeName, out.Spec.Volumes, out.Spec.SchedulingGates, out.Spec.ResourceClaims = "", claimVolumes(out.Spec.Volumes), nil, nil
	return out
}
