package recording

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/history/segments"
)

const (
	pattern = "pods-*.jsonl"
	// A file ends when it has fileBytes besides its list of all pods. All other files have at most folderBytes together.
	fileBytes   = 32 << 20
	folderBytes = 960 << 20
)

// A Keeper writes the pods of a cluster to a folder as they come and go, in lines that Read understands. Each file begins
// with a list of all pods, so that it can be read without the files before it. Commands, environments and annotations are
// left out, apart from the annotation that protects a pod; of volumes only their claims and places are written. It is not
// safe for concurrent use.
type Keeper struct {
	folder *segments.Folder
	last   *cluster.Snapshot // its pods are written; nil to write all pods again
	listed int               // bytes of the list with which the file begins
	disks  map[string]bool   // that the present file has, by the keys of disksOf
}

// NewKeeper returns a Keeper that has written nothing.
func NewKeeper(folder string) *Keeper {
	return &Keeper{folder: segments.New(folder, pattern, folderBytes)}
}

// Close ends the file. What was kept is on the disk already.
func (k *Keeper) Close() { k.folder.Close() }

// Keep writes what changed since the last call. When a file is full, or after an error, it begins a new one with a
// list of all pods. An error about old files does not keep the new lines from being written.
func (k *Keeper) Keep(snap *cluster.Snapshot, now time.Time) error {
	if !snap.Synced() {
		return nil
	}
	written, open := k.folder.Written()
	anew := !open || written-k.listed >= fileBytes
	var trouble error // with old files; it does not stop the writing
	if anew {
		if err := k.folder.Begin(); err != nil {
			trouble = fmt.Errorf("record pods: %w", err)
		}
		if _, open = k.folder.Written(); !open {
			return trouble
		}
		if k.last != nil { // pods that ended since the last call are not in the list
			if err := k.append(changes(k.last, snap, now, true)); err != nil {
				return err
			}
		}
		k.last, k.disks = nil, map[string]bool{}
	}
	if err := k.append(k.disksOf(snap)); err != nil {
		k.last, k.disks = nil, map[string]bool{}
		return err
	}
	if err := k.append(changes(k.last, snap, now, false)); err != nil {
		k.last = nil
		return err
	}
	if anew {
		k.listed, _ = k.folder.Written()
	}
	k.last = snap
	return trouble
}

// disksOf returns the lines about the disks of new pods that the present file does not have yet.
func (k *Keeper) disksOf(snap *cluster.Snapshot) []byte {
	var out bytes.Buffer
	for _, p := range snap.PodChanges(k.last) {
		if p == nil || p.DaemonSet || p.Mirror {
			continue
		}
		for key, o := range disksOf(snap, p) {
			if k.disks[key] {
				continue
			}
			k.disks[key] = true
			if text, err := json.Marshal(o); err == nil {
				out.Write(append(text, '\n'))
			}
		}
	}
	return out.Bytes()
}

// append writes lines to the present file.
func (k *Keeper) append(lines []byte) error {
	if len(lines) == 0 {
		return nil
	}
	if err := k.folder.Append(lines); err != nil {
		return fmt.Errorf("record pods: %w", err)
	}
	return nil
}

// changes returns the lines of events that lead from one snapshot to the next; with ends only those of pods that
// ended.
func changes(was, is *cluster.Snapshot, now time.Time, ends bool) []byte {
	var out bytes.Buffer
	line := func(kind string, p *cluster.Pod, evicted bool) {
		text, err := json.Marshal(map[string]any{"at": now.UTC().Truncate(time.Second), "type": kind, "object": podRecord(p, now, evicted)})
		if err == nil {
			out.Write(append(text, '\n'))
		}
	}
	for old, p := range is.PodChanges(was) {
		replaced := old != nil && p != nil && old.UID != p.UID
		if (p == nil || replaced) && !old.DaemonSet && !old.Mirror {
			line("DELETED", old, evicted(was, is, old))
		}
		if p == nil || ends || p.DaemonSet || p.Mirror || old != nil && !replaced && unchanged(old, p) {
			continue
		}
		line("ADDED", p, !p.Deleted.IsZero() && evicted(was, is, p))
	}
	return out.Bytes()
}

// unchanged reports whether two rows of a pod are equal in what a recording holds.
func unchanged(a, b *cluster.Pod) bool {
	return a.Class == b.Class && a.Labels == b.Labels && a.Deleted.Equal(b.Deleted) && a.Terminal() == b.Terminal() &&
		a.DoNotDisrupt == b.DoNotDisrupt
}

// evicted reports whether a pod ends because its node goes. kube-scheduler never moves a pod, so then its owner
// creates it anew.
func evicted(was, is *cluster.Snapshot, p *cluster.Pod) bool {
	if p.NodeName == "" || p.Terminal() {
		return false
	}
	now := is.Node(p.NodeName)
	if now == nil || now.MarkedForRemoval {
		return true
	}
	if was == nil {
		return false
	}
	before := was.Node(p.NodeName)
	return before != nil && before.MarkedForRemoval
}

// podRecord returns what is written of a pod. A row of a snapshot holds only those parts of the spec that scheduling
// reads.
func podRecord(p *cluster.Pod, now time.Time, evicted bool) *corev1.Pod {
	o := wanted(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels.Map},
		Spec: *p.Class.Spec})
	o.Kind, o.APIVersion, o.Spec.NodeName = "Pod", "v1", p.NodeName
	o.UID, o.CreationTimestamp = p.UID, metav1.NewTime(p.Created)
	if p.DoNotDisrupt != "" {
		o.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: p.DoNotDisrupt}
	}
	if p.Owner != nil {
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: p.Owner.APIVersion, Kind: p.Owner.Kind,
			Name: p.Owner.Name, UID: p.Owner.UID, Controller: new(true)}}
	}
	if p.Priority != 0 {
		o.Spec.Priority = &p.Priority
	}
	if !p.Deleted.IsZero() {
		o.DeletionTimestamp, o.DeletionGracePeriodSeconds = new(metav1.NewTime(p.Deleted)), new(int64(p.Grace/time.Second))
	}
	o.Status.Phase = p.Phase
	if p.Terminal() { // when its containers ended is no field of a row
		o.Status.ContainerStatuses = []corev1.ContainerStatus{
			{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now)}}}}
	}
	if evicted {
		o.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	}
	return o
}

// ReadFolder reads the files that a Keeper wrote. A line that a crash tore is left out; torn is the number of these
// lines.
func ReadFolder(folder string) (r *Recording, torn int, err error) {
	files, err := segments.Files(folder, pattern)
	if err != nil {
		return nil, 0, err
	}
	if len(files) == 0 {
		return nil, 0, fmt.Errorf("%s: there is no recording in this folder; the controller writes %s to its "+
			"--record-dir", folder, pattern)
	}
	w := newWatched()
	for _, name := range files {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // it was the oldest, and has just been removed
		}
		if err != nil {
			return nil, 0, err
		}
		s := source{name, text}
		line := 0
		for raw := range strings.Lines(string(text)) {
			line++
			if !json.Valid([]byte(raw)) {
				torn++
				continue
			}
			if err := w.read([]byte(raw)); err != nil {
				return nil, torn, s.at(line, "%v", err)
			}
		}
	}
	if r, err = Of(folder, w.joinedLives(), w.end); err != nil {
		return nil, torn, err
	}
	r.Disks = &w.disks
	if !w.begin.IsZero() {
		return r.from(w.begin), torn, nil
	}
	return r, torn, err
}
