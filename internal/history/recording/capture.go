package recording

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster/podclass"
)

// A capture is the file that kubereplay writes: Deployments and Jobs that are created, scaled and deleted.
type capture struct {
	Cluster  string            `json:"cluster"`
	Captured time.Time         `json:"captured"`
	Events   []json.RawMessage `json:"events"`
}

// A workloadEvent is one entry of it. A Job's end is not captured.
type workloadEvent struct {
	Type       string             `json:"type"` // create, scale or delete
	Kind       string             `json:"kind"` // Deployment or Job
	Key        string             `json:"key"`  // namespace/name
	Deployment *appsv1.Deployment `json:"deployment"`
	Job        *batchv1.Job       `json:"job"`
	Replicas   *int32             `json:"replicas"`
	Timestamp  time.Time          `json:"timestamp"`
}

// isCapture reports whether a text is a capture and not objects: only a capture has events and no kind.
func isCapture(text []byte) bool {
	var top struct {
		Kind   string            `json:"kind"`
		Type   string            `json:"type"`
		Events []json.RawMessage `json:"events"`
	}
	return json.NewDecoder(bytes.NewReader(text)).Decode(&top) == nil && top.Kind == "" && top.Type == "" && top.Events != nil
}

// A captured holds the state while the events of a capture are read.
type captured struct {
	lives     []Life
	workloads map[string]*workload // by kind and key
}

// A workload is one Deployment or Job.
type workload struct {
	pod  *corev1.Pod // what its pods are like
	open []int       // those that are there, by their place in lives
	made int
}

// readCapture reads a capture. Events are applied in the order of their times; an error names the line of its event.
func readCapture(s source) ([]Life, error) {
	var c capture
	if err := json.Unmarshal(s.text, &c); err != nil {
		return nil, s.jsonError(err)
	}
	events := make([]workloadEvent, len(c.Events))
	lines := make([]int, len(c.Events))
	from := 0
	for i, raw := range c.Events {
		at := from + max(0, bytes.Index(s.text[from:], raw)) // one after the other, byte for byte
		from, lines[i] = at+len(raw), s.lineOf(int64(at))
		if err := json.Unmarshal(raw, &events[i]); err != nil {
			return nil, s.at(lines[i], "%v; an event has type, kind, key and timestamp", err)
		}
	}
	order := make([]int, len(events))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(events[a].Timestamp.Unix(), events[b].Timestamp.Unix()) })
	w := &captured{workloads: map[string]*workload{}}
	for _, i := range order {
		if err := w.apply(&events[i]); err != nil {
			return nil, s.at(lines[i], "%v", err)
		}
	}
	return w.lives, nil
}

// jsonError returns an error of package json with the line in the file.
func (s source) jsonError(err error) error {
	if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
		return s.at(s.lineOf(bad.Offset), "no valid JSON: %v; was the file cut?", err)
	}
	if bad, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return s.at(s.lineOf(bad.Offset), "%v", err)
	}
	return s.at(s.lineOf(int64(len(s.text))), "no valid JSON: %v; was the file cut?", err)
}

// apply carries out one event.
func (w *captured) apply(e *workloadEvent) error {
	at := e.Timestamp.UTC().Truncate(time.Second)
	if err := checkMoment(at); err != nil {
		return fmt.Errorf("timestamp: %w", err)
	}
	id := e.Kind + " " + e.Key
	switch {
	case e.Key == "":
		return errors.New("the event has no key; write namespace/name")
	case e.Type == "create" && e.Kind == "Deployment" && e.Deployment != nil:
		w.define(id, e.Deployment.ObjectMeta, &e.Deployment.Spec.Template)
		return w.scale(id, replicasOf(e.Deployment.Spec.Replicas), at)
	case e.Type == "create" && e.Kind == "Job" && e.Job != nil:
		n := replicasOf(e.Job.Spec.Parallelism)
		if e.Job.Spec.Completions != nil {
			n = min(n, *e.Job.Spec.Completions)
		}
		w.define(id, e.Job.ObjectMeta, &e.Job.Spec.Template)
		return w.scale(id, n, at)
	case e.Type == "create":
		return fmt.Errorf("create of kind %q needs a deployment or a job of that kind", e.Kind)
	case e.Type != "scale" && e.Type != "delete":
		return fmt.Errorf("type %q is none of create, scale and delete", e.Type)
	case w.workloads[id] == nil:
		return fmt.Errorf("%s of %s, which nothing created; add its create event, or remove this one", e.Type, id)
	case e.Type == "delete":
		return w.scale(id, 0, at)
	case e.Replicas == nil:
		return errors.New("scale has no replicas; say how many there are now")
	}
	return w.scale(id, *e.Replicas, at)
}

// define notes the template of a workload as a pod; scale makes copies of it from now on. Each workload gets an owner
// reference of its own, by kind and key.
func (w *captured) define(id string, meta metav1.ObjectMeta, t *corev1.PodTemplateSpec) {
	if w.workloads[id] == nil {
		w.workloads[id] = &workload{}
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: cmp.Or(meta.Namespace, metav1.NamespaceDefault), Name: cmp.Or(meta.Name, "workload"),
		Labels: t.Labels, Annotations: t.Annotations,
	}, Spec: t.Spec}
	podclass.RequestLimits(p.Spec.Containers)
	podclass.RequestLimits(p.Spec.InitContainers)
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: p.Name,
		UID: types.UID(id), Controller: new(true)}}
	w.workloads[id].pod = wanted(p)
}

// replicasOf returns a number of replicas; nil is the default of one.
func replicasOf(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// scale creates pods of a workload or ends them, the newest first as its controller would, until there are n.
func (w *captured) scale(id string, n int32, at time.Time) error {
	if n < 0 || n > mostCopies || len(w.lives)+int(n) > mostPods {
		return fmt.Errorf("%d replicas; write a number from 0 to %d", n, mostCopies)
	}
	of := w.workloads[id]
	for len(of.open) > int(n) {
		w.lives[of.open[len(of.open)-1]].To = at
		of.open = of.open[:len(of.open)-1]
	}
	for len(of.open) < int(n) {
		of.made++
		of.open = append(of.open, len(w.lives))
		one := *of.pod
		one.Name = fmt.Sprintf("%s-%d", of.pod.Name, of.made)
		w.lives = append(w.lives, Life{Pod: &one, From: at})
	}
	return nil
}
