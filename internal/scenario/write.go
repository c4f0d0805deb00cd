package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/tariff"
	"karpenter.sh/karpenter/internal/kit/bug"
)

// Write returns a question as a story that Parse reads, with every name replaced. The nodes of first and the pods
// come first; other nodes and instance types follow while there is room. The story has at most most bytes and says
// what it left out.
func Write(story string, in engine.Question, first []string, most int) []byte {
	w := &writer{redactor: newRedactor(), in: in, left: most - 4096}
	return w.write(story, first, most)
}

// Snapshot returns all that a question depends on as a story, with its names or, if anonymous, with new ones. New
// names are numbered with leading zeros, so that pods of one age keep their order by name. Commands, environments and
// annotations of pods are left out. Devices are left out if anonymous, because their selectors have names in
// expressions; pods with resource claims are then refused.
func Snapshot(story string, in engine.Question, anonymous bool) []byte {
	w := &writer{redactor: newRedactor(), in: in, left: unbounded}
	w.keep, w.width = !anonymous, 6
	return append(w.write(story, nil, unbounded), w.commitments()...)
}

// commitments returns the section with the commitments that plans count on, nil if there are none. New names keep the
// order of ids, which decides between equal commitments.
func (w *writer) commitments() []byte {
	if w.in.Commitments == nil {
		return nil
	}
	book := *w.in.Commitments
	book.Commitments, book.Machines = slices.Clone(book.Commitments), map[string]tariff.Line{}
	byID := func(x, y tariff.Commitment) int { return strings.Compare(x.ID, y.ID) }
	for _, c := range slices.SortedFunc(slices.Values(book.Commitments), byID) {
		w.name("commitment", c.ID)
	}
	for i := range book.Commitments {
		c := &book.Commitments[i]
		c.ID, c.Account = w.name("commitment", c.ID), w.name("account", c.Account)
	}
	for _, name := range slices.Sorted(maps.Keys(w.in.Commitments.Machines)) {
		book.Machines[w.name("node", name)] = w.in.Commitments.Machines[name]
	}
	text, err := json.Marshal(book)
	if err != nil {
		bug.Reportf("commitments are not written: %v", err) // texts and numbers
		return nil
	}
	return fmt.Appendf(nil, "-- commitments --\n%s\n", text)
}

// Recollection returns a question with what an engine remembered when it was asked: that engine's answer is the plan
// of the story. It has real names, also of label values that the question does not mention any more.
func Recollection(story string, in engine.Question, m engine.Memory) ([]byte, error) {
	memory, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write what the engine remembers: %w", err)
	}
	return append(Snapshot(story, in, false), fmt.Sprintf("-- memory --\n%s\n", memory)...), nil
}

// unbounded is more than any world is long.
const unbounded = 1 << 50

// write returns the story in most bytes. Types take a quarter at most, and pods that wait are written until half is
// left; nodes follow.
func (w *writer) write(story string, first []string, most int) []byte {
	settings := w.settings()
	types := w.types(most / 4)
	w.left -= len(types) + len(settings)
	w.pools()
	w.asked = make(map[*cluster.Pod]bool, len(w.in.Pods))
	for _, p := range w.in.Pods {
		w.asked[p] = true
	}
	untold := 0
	for _, p := range slices.SortedStableFunc(slices.Values(w.in.Pods), w.sequence) {
		if p.NodeName == "" && (w.left < most/2 || !w.pod(p)) {
			untold++
		}
	}
	w.asides()
	left := w.nodes(first)
	w.strays()
	w.daemonSets()
	w.namespaces()
	for q := range cluster.Quotas.All(w.in.Snap) {
		w.put("CapacityQuota", w.name("quota", q.Name), map[string]any{"metadata": map[string]any{}, "spec": q.Spec})
	}
	w.devices()
	if left+untold > 0 {
		story += fmt.Sprintf("\n%d nodes and their pods are left out, and %d pods that wait.", left, untold)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s\n\n-- settings --\n%s-- types --\n%s-- pools --\n# see the objects\n-- objects --\n%s",
		story, settings, types, append(w.more.Bytes(), w.out.Bytes()...))
	return out.Bytes()
}

// Annotations of stories say what no field of an object does.
const (
	goingAnnotation   = "going"    // a machine is about to be removed
	askedAnnotation   = "asked"    // a pod that runs is asked about
	asideAnnotation   = "aside"    // a pod that waits is not
	plannedAnnotation = "planned"  // the machine on which a pod has a place
	sinceAnnotation   = "since"    // when it got it
	leftOutAnnotation = "left-out" // how many plans in a row left a pod out
)

// A writer collects objects, one a line, until its room is used up.
type writer struct {
	*redactor
	in    engine.Question
	out   bytes.Buffer          // nodes with their pods, which are written as a whole or not at all
	more  bytes.Buffer          // what pods and nodes refer to
	left  int                   // bytes that may still be written
	told  map[toldKey]bool      // the objects in more
	asked map[*cluster.Pod]bool // the pods that the question asks about
}

// A toldKey names an object that was written.
type toldKey struct{ kind, name, namespace string }

// put writes an object that others refer to, once. Its own name is given, all others are redacted. It returns false
// if there is no room.
func (w *writer) put(kind, name string, o any) bool {
	told := toldKey{kind: kind, name: name}
	if namespaced, ok := o.(metav1.Object); ok {
		told.namespace = namespaced.GetNamespace()
	}
	if w.told[told] {
		return true
	}
	var fields map[string]any
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		return false
	}
	meta, _ := fields["metadata"].(map[string]any)
	delete(fields, "metadata")
	fields = w.object("", fields)
	for k, v := range meta {
		if k != "name" && k != "ownerReferences" && k != "annotations" {
			meta[k] = w.walk(k, v)
		}
	}
	meta["name"] = name
	fields["kind"], fields["metadata"] = kind, meta
	text, err = json.Marshal(fields)
	if err != nil || len(text)+1 > w.left {
		return false
	}
	if w.told == nil {
		w.told = map[toldKey]bool{}
	}
	w.told[told] = true
	w.left -= len(text) + 1
	w.more.Write(append(text, '\n'))
	return true
}

// line writes one object, and reports whether there was room.
func (w *writer) line(fields map[string]any) bool {
	text, err := json.Marshal(fields)
	if err != nil || len(text)+1 > w.left {
		return false
	}
	w.left -= len(text) + 1
	w.out.Write(append(text, '\n'))
	return true
}

// namespaces writes Namespaces, and the Services of pods if there are default spread constraints, which depend on
// them.
func (w *writer) namespaces() {
	for ns := range cluster.Namespaces.All(w.in.Snap) {
		w.put("Namespace", w.name("ns", ns.Name), map[string]any{"metadata": map[string]any{"labels": ns.Labels}})
	}
	if len(w.in.Settings.DefaultSpread) == 0 {
		return // Services matter for default constraints only
	}
	for _, p := range w.in.Pods {
		for s := range cluster.Services.In(w.in.Snap, p.Namespace) {
			w.put("Service", w.name("service", p.Namespace+"/"+s.Name), map[string]any{
				"metadata": map[string]any{"namespace": p.Namespace}, "spec": map[string]any{"selector": s.Spec.Selector},
			})
		}
	}
}
