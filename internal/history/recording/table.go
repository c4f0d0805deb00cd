package recording

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

// A row is a line of the table while it is read.
type row struct {
	life Life
	// count is how many such pods there are.
	count int
	asks  corev1.ResourceList
	gpu   corev1.ResourceName
}

// columns are those that a table may have, with how each is read.
var columns = map[string]func(r *row, text string) error{
	"name":           func(r *row, text string) error { r.life.Pod.Name = text; return nil },
	"namespace":      func(r *row, text string) error { r.life.Pod.Namespace = text; return nil },
	"app":            func(r *row, text string) error { r.life.Pod.Labels = map[string]string{"app": text}; return nil },
	"count":          func(r *row, text string) (err error) { r.count, err = countOf(text); return err },
	"created":        func(r *row, text string) (err error) { r.life.From, err = momentOf(text); return err },
	"deleted":        func(r *row, text string) (err error) { r.life.To, err = momentOf(text); return err },
	"cpu":            func(r *row, text string) error { return r.ask(corev1.ResourceCPU, text) },
	"memory":         func(r *row, text string) error { return r.ask(corev1.ResourceMemory, text) },
	"gpu":            func(r *row, text string) error { return r.ask(gpuColumn, text) },
	"gpu_resource":   func(r *row, text string) error { r.gpu = corev1.ResourceName(text); return nil },
	"priority":       (*row).priority,
	"node_selector":  (*row).selector,
	"do_not_disrupt": (*row).protect,

	// What the public trace of Alibaba's GPU cluster of 2023 calls them. Where a part of a GPU is asked for, a
	// whole one is: nothing less can be bought. Which GPU it is, its quality of service and what became of it
	// decide nothing here.
	"cpu_milli":      func(r *row, text string) error { return r.ask(corev1.ResourceCPU, text+"m") },
	"memory_mib":     func(r *row, text string) error { return r.ask(corev1.ResourceMemory, text+"Mi") },
	"num_gpu":        func(r *row, text string) error { return r.ask(gpuColumn, text) },
	"creation_time":  func(r *row, text string) (err error) { r.life.From, err = momentOf(text); return err },
	"deletion_time":  func(r *row, text string) (err error) { r.life.To, err = momentOf(text); return err },
	"gpu_milli":      unread,
	"gpu_spec":       unread,
	"qos":            unread,
	"pod_phase":      unread,
	"scheduled_time": unread,
}

func unread(*row, string) error { return nil }

// gpuColumn stands for the resource that gpu_resource names.
const gpuColumn corev1.ResourceName = "gpu"

// mostCopies is how many pods one row may stand for.
const mostCopies = 100_000

// readTable reads a CSV whose first line names its columns.
func readTable(s source) ([]Life, error) {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(s.text, []byte("\ufeff"))))
	r.TrimLeadingSpace = true
	header, err := r.Read()
	if err != nil {
		return nil, s.csvError(err)
	}
	if err := s.checkHeader(header); err != nil {
		return nil, err
	}
	same := sharedSpecs{}
	var out []Life
	for {
		fields, err := r.Read()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, s.csvError(err)
		}
		line, _ := r.FieldPos(0)
		x, err := readRow(header, fields)
		if err != nil {
			return nil, s.at(line, "%v", err)
		}
		if len(out)+x.count > mostPods {
			return nil, s.at(line, "that makes more than %d pods; cut the file", mostPods)
		}
		out = append(out, x.lives(line, same)...)
	}
}

// mostPods is how many lives a recording may have.
const mostPods = 5_000_000

// csvError returns an error of package csv with the line in the file.
func (s source) csvError(err error) error {
	if bad, ok := errors.AsType[*csv.ParseError](err); ok {
		return s.at(bad.Line, "%v; every line has as many fields as the first, with commas between them", bad.Err)
	}
	return s.at(1, "%v; the first line names the columns", err)
}

// checkHeader refuses columns that are unknown or there twice, and writes their names in lower case into header.
func (s source) checkHeader(header []string) error {
	seen := map[string]bool{}
	for i, name := range header {
		name = strings.ToLower(strings.TrimSpace(name))
		if columns[name] == nil {
			return s.at(1, "there is no column %q; use some of %s", name, strings.Join(slices.Sorted(maps.Keys(columns)), ", "))
		}
		if seen[name] {
			return s.at(1, "column %q stands there twice; remove one of them", name)
		}
		seen[name] = true
		header[i] = name
	}
	if !seen["created"] && !seen["creation_time"] {
		return s.at(1, "there is no column created; without it the time at which a pod came is not known. The first line names the columns")
	}
	return nil
}

// readRow reads the fields of one line.
func readRow(header, fields []string) (*row, error) {
	r := &row{count: 1, asks: corev1.ResourceList{}, gpu: "nvidia.com/gpu",
		life: Life{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault}}}}
	for i, text := range fields {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if err := columns[header[i]](r, text); err != nil {
			return nil, fmt.Errorf("%s %q: %w", header[i], text, err)
		}
	}
	switch {
	case r.life.From.IsZero():
		return nil, errors.New("created is empty; say when the pod came, or remove the line")
	case !r.life.To.IsZero() && r.life.To.Before(r.life.From):
		return nil, fmt.Errorf("the pod is deleted at %s, before it is created at %s", r.life.To.Format(time.RFC3339),
			r.life.From.Format(time.RFC3339))
	}
	return r, nil
}

// momentOf reads a time: as Kubernetes writes it, or in seconds since 1970 or since the beginning of a trace.
func momentOf(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC().Truncate(time.Second), checkMoment(t)
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(seconds) || seconds < 0 || seconds > float64(latest.Unix()) {
		return time.Time{}, errors.New("write a time as 2026-06-01T12:00:00Z, or as seconds")
	}
	return time.Unix(int64(seconds), 0).UTC(), nil
}

// latest is later than anything that was recorded.
var latest = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

func checkMoment(t time.Time) error {
	if t.Unix() < 0 || t.After(latest) {
		return errors.New("write a time between 1970 and 2200")
	}
	return nil
}

func countOf(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostCopies {
		return 0, fmt.Errorf("write a number from 1 to %d", mostCopies)
	}
	return n, nil
}

// ask sets the request for a resource.
func (r *row) ask(name corev1.ResourceName, text string) error {
	q, err := bounded.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return errors.New("write an amount such as 500m, 2 or 4Gi")
	}
	if !q.IsZero() {
		r.asks[name] = q
	}
	return nil
}

// priority sets the pod's priority.
func (r *row) priority(text string) error {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return errors.New("write a whole number")
	}
	r.life.Pod.Spec.Priority = new(int32(n))
	return nil
}

// selector reads key=value;key=value.
func (r *row) selector(text string) error {
	r.life.Pod.Spec.NodeSelector = map[string]string{}
	for pair := range strings.SplitSeq(text, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return errors.New("write key=value, several with ; between them")
		}
		r.life.Pod.Spec.NodeSelector[key] = value
	}
	return nil
}

// protect sets the annotation karpenter.sh/do-not-disrupt.
func (r *row) protect(text string) error {
	if text != "true" && text != "false" {
		return errors.New("write true or false")
	}
	if text == "true" {
		r.life.Pod.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: text}
	}
	return nil
}

// lives returns the pods that a row stands for, count of them. They share one spec, also with equal pods of other
// rows.
func (r *row) lives(line int, same sharedSpecs) []Life {
	if gpu, ok := r.asks[gpuColumn]; ok {
		delete(r.asks, gpuColumn)
		r.asks[r.gpu] = gpu
	}
	limits := corev1.ResourceList{}
	for name, q := range r.asks {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			limits[name] = q // extended resources need a limit equal to the request
		}
	}
	p := r.life.Pod
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: r.asks, Limits: limits}}}
	if p.Name == "" {
		p.Name = fmt.Sprintf("line-%d", line)
	}
	same.share(p)
	owner := p.Name
	if app := p.Labels["app"]; app != "" {
		owner = app
	}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner,
		UID: types.UID(p.Namespace + "/" + owner), Controller: new(true)}}
	out := []Life{r.life}
	if r.count == 1 {
		return out
	}
	out = out[:0]
	for i := range r.count {
		one := *p
		one.Name = fmt.Sprintf("%s-%d", p.Name, i)
		out = append(out, Life{Pod: &one, From: r.life.From, To: r.life.To})
	}
	return out
}

// sharedSpecs are the specs of pods, each by its text.
type sharedSpecs map[string]corev1.PodSpec

// share replaces the pod's spec by an equal spec of an earlier pod, to save memory.
func (s sharedSpecs) share(p *corev1.Pod) {
	key := p.Spec.String()
	if have, ok := s[key]; ok {
		p.Spec = have
		return
	}
	s[key] = p.Spec
}
