package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/explain/why"
)

// A change that would help is printed with the commands that make it. They are for kubectl, which applies JSON patches (RFC 6902)
// to objects as they are when the command is typed.

// A patchOp is one operation of a JSON patch.
type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patchBetween returns the operations that turn a into b, which are as package json decodes them. path is their JSON pointer
// in the object.
func patchBetween(path string, a, b any) []patchOp {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			return patchFields(path, x, y)
		}
	case []any:
		if y, ok := b.([]any); ok {
			return patchItems(path, x, y)
		}
	}
	if reflect.DeepEqual(a, b) {
		return nil
	}
	return []patchOp{{Op: "replace", Path: path, Value: b}}
}

var escaped = strings.NewReplacer("~", "~0", "/", "~1")

// patchFields returns the operations that turn the map a into b, in the order of keys.
func patchFields(path string, a, b map[string]any) (out []patchOp) {
	keys := slices.Concat(sortedKeys(a), sortedKeys(b))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		at := path + "/" + escaped.Replace(key)
		x, had := a[key]
		y, has := b[key]
		switch {
		case had && has:
			out = append(out, patchBetween(at, x, y)...)
		case had:
			out = append(out, patchOp{Op: "remove", Path: at})
		default:
			out = append(out, patchOp{Op: "add", Path: at, Value: y})
		}
	}
	return out
}

// patchItems returns the operations that turn the list a into b. It finds items that were added at the end, that
// changed in place, or that were removed; if it is none of these, it replaces the whole list.
func patchItems(path string, a, b []any) (out []patchOp) {
	if len(b) > len(a) && reflect.DeepEqual(a, b[:len(a)]) {
		for _, y := range b[len(a):] {
			out = append(out, patchOp{Op: "add", Path: path + "/-", Value: y})
		}
		return out
	}
	if len(a) == len(b) {
		for i := range a {
			out = append(out, patchBetween(fmt.Sprint(path, "/", i), a[i], b[i])...)
		}
		return out
	}
	kept := 0
	for i, x := range a {
		if kept < len(b) && reflect.DeepEqual(x, b[kept]) {
			kept++
		} else {
			out = append(out, patchOp{Op: "remove", Path: fmt.Sprint(path, "/", i)})
		}
	}
	if kept < len(b) {
		return []patchOp{{Op: "replace", Path: path, Value: b}}
	}
	slices.Reverse(out) // the last ones first, so that no index moves
	return out
}

// asJSON returns an object as package json decodes it.
func asJSON(o any) (out any) {
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return nil
	}
	return out
}

// quoted writes a word as a shell reads it back.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// onObject names an object as kubectl takes it.
func onObject(kind string, o metav1.Object) string {
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetName() + " -n " + o.GetNamespace()
}

// patchCommand returns the command that turns the first object into the second, "" if they are equal.
func patchCommand(kind string, from, to client.Object) string {
	ops := patchBetween("", asJSON(from), asJSON(to))
	if len(ops) == 0 {
		return ""
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if e.Encode(ops) != nil {
		return ""
	}
	return "kubectl patch " + onObject(kind, from) + " --type=json -p " + quoted(strings.TrimSpace(text.String()))
}

// An editTarget is the object that must be edited to change a pod: its workload, or the pod itself.
type editTarget struct {
	kind   string
	object client.Object
	spec   *corev1.PodSpec // of its pods, inside of object
}

// copied returns a deep copy.
func (e *editTarget) copied() *editTarget {
	return newEditTarget(e.kind, e.object.DeepCopyObject().(client.Object)) //nolint:forcetypeassert // a copy has the type of the original
}

// newEditTarget returns the target for a workload or pod; nil for an object of another kind.
func newEditTarget(kind string, o client.Object) *editTarget {
	switch x := o.(type) {
	case *appsv1.Deployment:
		return &editTarget{kind, x, &x.Spec.Template.Spec}
	case *appsv1.ReplicaSet:
		return &editTarget{kind, x, &x.Spec.Template.Spec}
	case *appsv1.StatefulSet:
		return &editTarget{kind, x, &x.Spec.Template.Spec}
	case *corev1.Pod:
		return &editTarget{kind, x, &x.Spec}
	}
	return nil
}

// editTargetOf follows the controller references of a pod to the object that has its template. It returns the pod
// itself where it has no controller, and nil where an owner is of another kind or cannot be read.
func editTargetOf(ctx context.Context, c client.Reader, pod *corev1.Pod) *editTarget {
	var of metav1.Object = pod
	found := newEditTarget("pod", pod)
	for {
		owner := metav1.GetControllerOf(of)
		if owner == nil {
			return found
		}
		object := map[string]client.Object{
			"ReplicaSet": &appsv1.ReplicaSet{}, "Deployment": &appsv1.Deployment{}, "StatefulSet": &appsv1.StatefulSet{},
		}[owner.Kind]
		if object == nil || c.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, object) != nil {
			return nil
		}
		of, found = object, newEditTarget(strings.ToLower(owner.Kind), object)
	}
}

// commands returns the commands for changes that help a pod: of NodePools, then of the pod's workload. It returns nil where a
// change has no command.
func (w *whyFlags) commands(ctx context.Context, c client.Reader, o *objects, pod *corev1.Pod, changes []why.Change) (out []string) {
	var own []why.Change
	pools := map[string][]why.Change{}
	for _, x := range changes {
		switch {
		case x.Kind == why.FreeVolume:
			return nil // kubectl cannot move the data of a volume
		case x.Pool == "":
			own = append(own, x)
		default:
			pools[x.Pool] = append(pools[x.Pool], x)
		}
	}
	for _, p := range o.pools {
		if changes := pools[p.Name]; len(changes) > 0 {
			to := why.EditPool(p, changes)
			if idle, ok := w.idle[p.Name]; ok && idle.class != nil {
				to.Spec.Template.Spec.NodeClassRef.Name = idle.class.Name
			}
			out = append(out, patchCommand("nodepool", p, to))
		}
	}
	if len(own) > 0 {
		from := editTargetOf(ctx, c, pod)
		if from == nil {
			return nil
		}
		to := from.copied()
		*to.spec = *why.EditSpec(from.spec, own)
		out = append(out, from.command(to, pod, own))
	}
	if slices.Contains(out, "") {
		return nil
	}
	return out
}

// command returns the command that changes an object into to. It also replaces the waiting pod if the pod would not change by itself.
// It is "" if the two objects are equal.
func (e *editTarget) command(to *editTarget, pod *corev1.Pod, changes []why.Change) string {
	command := patchCommand(e.kind, e.object, to.object)
	tolerationsOnly := !slices.ContainsFunc(changes, func(c why.Change) bool { return c.Kind != why.Tolerate })
	switch {
	case command == "":
		return ""
	case e.kind == "pod" && !tolerationsOnly: // a pod that exists takes new tolerations and no other of these changes
		return command + " --dry-run=client -o yaml | kubectl replace --force -f -"
	case e.kind == "replicaset" || e.kind == "statefulset": // waiting pods of these do not follow the template
		return command + " && kubectl delete " + onObject("pod", pod)
	}
	return command
}

// An idlePool is a NodePool that launches nothing, because its EC2NodeClass is missing or not ready.
type idlePool struct {
	text  string              // why
	class *awsv1.EC2NodeClass // another class that it could use, nil for none
}

// idlePool returns an idlePool whose class is the first ready one, by name.
func (o *objects) idlePool(env Env, text string) idlePool {
	out := idlePool{text: text}
	for _, c := range o.classes {
		if condition.IsTrue(c, condition.Ready) && classError(env, c) == nil && (out.class == nil || c.Name < out.class.Name) {
			out.class = c
		}
	}
	return out
}

// mended returns the idle pools with the catalogue that each would have: of the other class that it could use, or of its own class once
// that is ready, or of the defaults where there is no class.
func (w *whyFlags) mended(env Env, o *objects) (out []engine.Pool, err error) {
	for _, p := range o.pools {
		idle, ok := w.idle[p.Name]
		if !ok {
			continue
		}
		class := idle.class
		if at := slices.IndexFunc(o.classes, func(c *awsv1.EC2NodeClass) bool {
			return c.Name == p.Spec.Template.Spec.NodeClassRef.Name
		}); class == nil && at >= 0 {
			class = o.classes[at]
		}
		catalog, err := env.Catalog(w.market, class)
		if err != nil {
			return nil, err
		}
		out = append(out, engine.Pool{Pool: p, Catalog: catalog})
	}
	return out, nil
}

// unannotate returns the command that removes an annotation.
func unannotate(kind string, o metav1.Object, key string) string {
	return "kubectl annotate " + onObject(kind, o) + " " + key + "-"
}

// writeCommands prints commands, each below what it does.
func writeCommands(w io.Writer, indent string, commands []string) {
	for _, c := range commands {
		fmt.Fprintf(w, "%s$ %s\n", indent, c)
	}
}

// remedies adds to an answer the commands that make each change, what is sold out, and the volume claim that is missing.
func (w *whyFlags) remedies(ctx context.Context, env Env, o *objects, a *podAnswer, found why.Answer) error {
	c, err := env.cluster(w.kubeconfig)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(o.pods, func(p *corev1.Pod) bool { return p.Namespace == a.Namespace && p.Name == a.Name })
	if at < 0 {
		return nil
	}
	for i := range a.Cures {
		a.Cures[i].Commands = w.commands(ctx, c, o, o.pods[at], found.Cures[i].Changes)
	}
	if found.Refused == nil {
		return nil
	}
	if err := w.nameSoldOut(env, o, a); err != nil {
		return err
	}
	for _, r := range found.Refused.Reasons {
		if r.Code == reason.VolumeInvalid && r.Flaw == reason.Missing {
			return w.createVolume(env, o, a, r.Key)
		}
	}
	return nil
}

// newPlanner returns the planner that answers why.Ask.
func newPlanner() why.Planner { return engine.New(awsv1.Labels()) }

// placeAmong plans again over other objects, or with another catalogue, and returns the place that the pod of an answer then has; nil
// for none. It prints nothing about the pools: the first plan did.
func (w *whyFlags) placeAmong(env Env, o *objects, a *podAnswer) (*why.Place, error) {
	env.Err = io.Discard
	in, err := w.input(env, o)
	if err != nil {
		return nil, err
	}
	pod := in.Snap.Pod(cluster.PodKey{Namespace: a.Namespace, Name: a.Name})
	return why.Ask(why.Question{In: in, Pod: pod, New: newPlanner, Most: 1}).Place, nil
}

// createVolume adds to an answer the command that creates a missing volume claim, if that gives the pod a place.
func (w *whyFlags) createVolume(env Env, o *objects, a *podAnswer, name string) error {
	claim := &corev1.PersistentVolumeClaim{}
	claim.APIVersion, claim.Kind, claim.Name, claim.Namespace = "v1", "PersistentVolumeClaim", name, a.Namespace
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
	text, err := yaml.Marshal(claim)
	if err != nil {
		return err
	}
	then := *o
	then.volumes.pvcs = append(slices.Clone(o.volumes.pvcs), claim)
	then.applyDefaultClass()
	place, err := w.placeAmong(env, &then, a)
	if place == nil || err != nil {
		return err
	}
	a.Cures = append(a.Cures, cureAnswer{Place: *newPlaceAnswer(place), MorePerHour: place.Price.Dollars(), Gains: 1,
		Changes: []changeAnswer{{Kind: "CreateVolume", Key: name, Text: fmt.Sprintf(
			"create the volume claim %s, of the size and class that the pod needs", name)}},
		Commands: []string{"kubectl apply -f - <<'EOF'\n" + string(text) + "EOF"},
	})
	return nil
}

// A soldOutKey is a way to buy that the controller found to be sold out.
type soldOutKey struct{ capacityType, instanceType, zone string }

// readSoldOut reads the sold-out offerings from the controller's metrics and takes them out of env.Catalog, because commands know only
// the catalogue that ships with Karpenter. If the metrics cannot be read, env.Catalog does not change.
func (w *whyFlags) readSoldOut(ctx context.Context, env *Env) {
	if w.kubeconfig == "" {
		return
	}
	text, err := w.journal.ask(ctx, w.kubeconfig, "metrics", nil)
	if err != nil {
		return // reading the journal of the same controller reports the error
	}
	listed := env.Catalog
	w.soldOut, w.listed = map[soldOutKey]bool{}, listed
	for line := range strings.Lines(string(text)) {
		if m := soldOutLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			w.soldOut[soldOutKey{m[1], m[2], m[3]}] = true
		}
	}
	if len(w.soldOut) > 0 {
		env.Catalog = func(m Market, class *awsv1.EC2NodeClass) (*cloud.Catalog, error) {
			c, err := listed(m, class)
			if err != nil {
				return nil, err
			}
			return withoutSoldOut(c, w.soldOut), nil
		}
	}
}

var soldOutLine = regexp.MustCompile(
	`^karpenter_cloudprovider_instance_type_offering_available\{capacity_type="([^"]+)",instance_type="([^"]+)",zone="([^"]+)"\} 0$`)

// nameSoldOut adds a rule about sold-out offerings to the pool that would have a place for the pod if nothing were sold out.
func (w *whyFlags) nameSoldOut(env Env, o *objects, a *podAnswer) error {
	if len(w.soldOut) == 0 {
		return nil
	}
	env.Catalog = w.listed
	place, err := w.placeAmong(env, o, a)
	if err != nil || place == nil || place.Pool == "" {
		return err
	}
	at := slices.IndexFunc(a.Pools, func(p poolAnswer) bool { return p.Pool == place.Pool })
	rule := ruleAnswer{Code: "SoldOut", Text: fmt.Sprintf("sold out, as the controller found less than three minutes ago: "+
		"%s %s in %s and %d other ways to buy; otherwise the pod would have a place",
		place.CapacityType, place.Type, place.Zone, len(w.soldOut)-1)}
	a.Pools[at].Rules = slices.Insert(a.Pools[at].Rules, 0, rule)
	return nil
}

// withoutSoldOut returns a copy of a catalogue in which the given offerings are not available. Reservations stay available: a reservation
// that is used up may be free again in a moment.
func withoutSoldOut(c *cloud.Catalog, soldOut map[soldOutKey]bool) *cloud.Catalog {
	is := func(it *cloud.InstanceType, o *cloud.Offering) bool {
		return o.CapacityType() != v1.CapacityTypeReserved && soldOut[soldOutKey{o.CapacityType(), it.Name, o.Zone()}]
	}
	copied := *c
	copied.Types = slices.Clone(c.Types)
	for i, it := range copied.Types {
		if !slices.ContainsFunc(it.Offerings, func(o cloud.Offering) bool { return is(it, &o) }) {
			continue
		}
		mine := *it
		mine.Offerings = slices.Clone(it.Offerings)
		for k := range mine.Offerings {
			mine.Offerings[k].Available = mine.Offerings[k].Available && !is(it, &mine.Offerings[k])
		}
		copied.Types[i] = &mine
	}
	return &copied
}

// gates adds the scheduling gates of a pod to its answer, with the command that removes them.
func (w *whyFlags) gates(o *objects, a *podAnswer) {
	for _, p := range o.pods {
		if p.Namespace != a.Namespace || p.Name != a.Name || len(p.Spec.SchedulingGates) == 0 {
			continue
		}
		var names []string
		for _, g := range p.Spec.SchedulingGates {
			names = append(names, g.Name)
		}
		text := "scheduling gates: " + strings.Join(names, ", ")
		a.Reasons = append(a.Reasons, ruleAnswer{Code: "SchedulingGates", Text: text})
		cure := cureAnswer{Gains: 1, Changes: []changeAnswer{{Kind: "RemoveGates", Key: strings.Join(names, ","),
			Text: "the controller that set a gate removes it; without that controller, remove by hand the " + text}}}
		if w.kubeconfig != "" {
			to := p.DeepCopy()
			to.Spec.SchedulingGates = nil
			cure.Commands = []string{patchCommand("pod", p, to)}
		}
		a.Cures = append(a.Cures, cure)
	}
}
