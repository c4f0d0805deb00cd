package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/history/recording"
	"karpenter.sh/karpenter/internal/history/replay"
)

// runs returns a run for each variant, and the recording with the pods of the files added, which are there all the time.
func (f *replayFlags) runs(ctx context.Context, env Env, rec *recording.Recording) ([]plannedRun, *recording.Recording, error) {
	var out []plannedRun
	var err error
	if f.snapshot != "" {
		out, err = f.runsOfSnapshot(ctx, env, rec)
	} else {
		out, err = f.runsOfFiles(ctx, env, rec)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range f.edits {
		if !slices.ContainsFunc(out, func(r plannedRun) bool { return r.Name == e.variant }) {
			return nil, nil, fmt.Errorf("--edit: there is no variant %q", e.variant)
		}
	}
	for _, c := range f.changes {
		if err := applySetting(out, c); err != nil {
			return nil, nil, fmt.Errorf("--with %s:%s=%s: %w", c.variant, c.setting, c.value, err)
		}
	}
	if len(out) == 0 {
		return nil, nil, errors.New("there is no NodePool; add one with -f or with --variant NAME=FILE")
	}
	rec, err = recording.Of(f.pods, slices.Concat(rec.Lives, out[0].always), rec.End)
	return out, rec, err
}

// runsOfFiles returns a run for each variant that manifests describe.
func (f *replayFlags) runsOfFiles(ctx context.Context, env Env, rec *recording.Recording) ([]plannedRun, error) {
	base, others, err := readAll(env.In, f.files)
	if err != nil {
		return nil, err
	}
	tellOthers(env, others)
	bought := func(d *document) bool {
		return slices.Contains([]string{"NodePool", "EC2NodeClass", "NodeOverlay"}, d.obj.GetKind())
	}
	all := []namedFiles{}
	if f.kubeconfig != "" || slices.ContainsFunc(base, func(d *document) bool { return d.obj.GetKind() == "NodePool" }) {
		all = append(all, namedFiles{name: baseVariant})
	}
	var out []plannedRun
	for _, v := range append(all, f.variants...) {
		docs := base
		if v.name != baseVariant {
			own, _, err := readAll(env.In, v.files)
			if err != nil {
				return nil, err
			}
			docs = slices.Concat(slices.DeleteFunc(slices.Clone(base), bought), own)
		}
		run, err := f.run(ctx, env, v.name, docs, rec)
		if err != nil {
			return nil, fmt.Errorf("variant %s: %w", v.name, err)
		}
		out = append(out, run)
	}
	return out, nil
}

// run returns the run of a variant that some manifests describe.
func (f *replayFlags) run(ctx context.Context, env Env, name string, docs []*document, rec *recording.Recording) (plannedRun, error) {
	o, err := f.assemble(ctx, env, docs)
	if err != nil {
		return plannedRun{}, err
	}
	if len(o.buffers) > 0 {
		fmt.Fprintln(env.Err, "CapacityBuffers are left out of a replay")
	}
	if f.kubeconfig != "" { // the cluster's pods and nodes are those of today, not of the recording
		o.pods, o.nodes, o.claims = nil, nil, nil
	}
	there := takeThere(o, rec)
	o.takeDisks(rec.Disks)
	o.buffers = nil
	in, err := f.input(env, o)
	if err != nil {
		return plannedRun{}, err
	}
	run := f.newRun(env, name, o, in.Pools, in.Settings, there)
	run.Edits, err = f.editsOf(ctx, env, name, docs)
	return run, err
}

// editsOf reads the edits of a variant, each edit on top of those before it.
func (f *replayFlags) editsOf(ctx context.Context, env Env, name string, docs []*document) ([]replay.Edit, error) {
	var out []replay.Edit
	edits := slices.Clone(f.edits)
	slices.SortStableFunc(edits, func(a, b timedFiles) int { return a.at.Compare(b.at) })
	for _, e := range edits {
		if e.variant != name {
			continue
		}
		own, _, err := readAll(env.In, e.files)
		if err != nil {
			return nil, err
		}
		before, err := f.assemble(ctx, env, docs)
		if err != nil {
			return nil, err
		}
		docs = slices.Concat(slices.DeleteFunc(slices.Clone(docs), func(d *document) bool {
			return slices.ContainsFunc(own, func(x *document) bool {
				return x.obj.GetKind() == d.obj.GetKind() && x.obj.GetName() == d.obj.GetName()
			})
		}), own)
		after, err := f.assemble(ctx, env, docs)
		if err != nil {
			return nil, err
		}
		in, err := f.input(env, after)
		if err != nil {
			return nil, err
		}
		out = append(out, replay.Edit{At: e.at, Pools: in.Pools, Classes: env.drifts(before.classes, after.classes)})
	}
	return out, nil
}

// drifts returns, for each node class that was changed, a function that gives the reason why a claim of it drifts, "" for none.
func (env Env) drifts(before, after []*awsv1.EC2NodeClass) map[string]func(*v1.NodeClaim) string {
	out := map[string]func(*v1.NodeClaim) string{}
	for _, to := range after {
		i := slices.IndexFunc(before, func(c *awsv1.EC2NodeClass) bool { return c.Name == to.Name })
		if i < 0 || equality.Semantic.DeepEqual(before[i].Spec, to.Spec) {
			continue
		}
		judge := env.EditClass(before[i], to)
		out[to.Name] = func(c *v1.NodeClaim) string {
			reason, sure := judge(c)
			if !sure {
				return ""
			}
			return string(reason)
		}
	}
	return out
}

// runsOfSnapshot returns a run for each variant of a snapshot. The pools of a variant have the catalogue that the snapshot has for the
// same node class.
func (f *replayFlags) runsOfSnapshot(ctx context.Context, env Env, rec *recording.Recording) ([]plannedRun, error) {
	if len(f.edits) > 0 {
		return nil, errors.New("--edit needs to know what machines there are; give files with -f instead of --snapshot")
	}
	all := append([]namedFiles{{name: baseVariant}}, f.variants...)
	var out []plannedRun
	for _, v := range all {
		w, err := readWorld(f.snapshot) // a variant changes its world
		if err != nil {
			return nil, err
		}
		o := snapshotObjects(w)
		pools := w.Pools
		if v.name != baseVariant {
			if pools, err = poolsLike(ctx, env, v, pools); err != nil {
				return nil, fmt.Errorf("variant %s: %w", v.name, err)
			}
		}
		there := takeThere(o, rec)
		o.takeDisks(rec.Disks)
		out = append(out, f.newRun(env, v.name, o, pools, w.Settings, there))
	}
	return out, nil
}

// poolsLike reads the pools of a variant of a snapshot.
func poolsLike(ctx context.Context, env Env, v namedFiles, have []engine.Pool) ([]engine.Pool, error) {
	docs, _, err := readAll(env.In, v.files)
	if err != nil {
		return nil, err
	}
	o, err := typed(ctx, docs)
	if err != nil {
		return nil, err
	}
	if len(o.classes)+len(o.overlays) > 0 {
		return nil, errors.New("a snapshot says what machines there are and what they cost; give NodePools alone")
	}
	var out []engine.Pool
	for _, p := range o.pools {
		class := p.Spec.Template.Spec.NodeClassRef.Name
		i := slices.IndexFunc(have, func(x engine.Pool) bool { return x.Pool.Spec.Template.Spec.NodeClassRef.Name == class })
		if i < 0 {
			return nil, fmt.Errorf("NodePool %q: no pool of the snapshot has the node class %q, so it is not known what "+
				"it could buy", p.Name, class)
		}
		out = append(out, engine.Pool{Pool: p, Catalog: have[i].Catalog})
	}
	if len(out) == 0 {
		return nil, errors.New("there is no NodePool in it")
	}
	return out, nil
}

// thereAlready is what the files say is there when the replay begins: the fleet, and pods that are not in the recording.
type thereAlready struct {
	nodes  []*corev1.Node
	claims []*v1.NodeClaim
	always []recording.Life
}

// takeThere moves nodes, claims and pods out of the objects, because the replay makes its own. For pods that the recording has from its
// beginning, it notes in the recording where they run and when they were made.
func takeThere(o *objects, rec *recording.Recording) thereAlready {
	there := thereAlready{nodes: o.nodes, claims: o.claims}
	recorded := map[cluster.PodKey]*recording.Life{}
	for i := range rec.Lives {
		l := &rec.Lives[i]
		if key := (cluster.PodKey{Namespace: l.Pod.Namespace, Name: l.Pod.Name}); l.From.Equal(rec.Begin) && recorded[key] == nil {
			recorded[key] = l
		}
	}
	for _, p := range o.pods {
		if ended(p) || podclass.OwnedBy(p, "DaemonSet") || p.Annotations[corev1.MirrorPodAnnotationKey] != "" {
			continue
		}
		if l := recorded[cluster.PodKey{Namespace: p.Namespace, Name: p.Name}]; l != nil {
			if p.Spec.NodeName != "" {
				l.On = p.Spec.NodeName
			}
			l.Made = cmp.Or(l.Made, madeBefore(p, rec.Begin))
			continue
		}
		life := recording.Life{Pod: p, From: rec.Begin, Made: madeBefore(p, rec.Begin), On: p.Spec.NodeName}
		if life.On != "" {
			life.Pod = p.DeepCopy()
			life.Pod.Spec.NodeName = ""
		}
		there.always = append(there.always, life)
	}
	o.pods, o.nodes, o.claims = nil, nil, nil
	return there
}

// madeBefore returns when a pod was created, the zero time if that is unknown or not before begin.
func madeBefore(p *corev1.Pod, begin time.Time) time.Time {
	if p.CreationTimestamp.Time.Before(begin) {
		return p.CreationTimestamp.Time
	}
	return time.Time{}
}

// takeDisks adds the disks of a recording that no file describes. All volumes become WaitForFirstConsumer, because no file says in
// which zone an immediate one would be made.
func (o *objects) takeDisks(d *recording.Disks) {
	if d != nil {
		v := &o.volumes
		v.pvcs, v.pvs, v.storageClasses = joined(v.pvcs, d.Claims), joined(v.pvs, d.Volumes), joined(v.storageClasses, d.Classes)
	}
	for i, c := range o.volumes.pvcs {
		if c.Spec.VolumeName != "" && !slices.ContainsFunc(o.volumes.pvs,
			func(v *corev1.PersistentVolume) bool { return v.Name == c.Spec.VolumeName }) {
			unbound := c.DeepCopy() // the place of its volume is not known
			unbound.Spec.VolumeName, unbound.Annotations = "", nil
			o.volumes.pvcs[i] = unbound
		}
	}
	o.assumeStorageClasses()
	for i, c := range o.volumes.storageClasses {
		later := *c
		later.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
		o.volumes.storageClasses[i] = &later
	}
}

// joined returns the objects of have, and those of more whose names are not among them.
func joined[T metav1.Object](have, more []T) []T {
	known := map[cluster.PodKey]bool{}
	for _, o := range have {
		known[cluster.PodKey{Namespace: o.GetNamespace(), Name: o.GetName()}] = true
	}
	out := slices.Clone(have)
	for _, o := range more {
		if !known[cluster.PodKey{Namespace: o.GetNamespace(), Name: o.GetName()}] {
			out = append(out, o)
		}
	}
	return out
}

// Times of the controller and of the cloud that a replay has where none are given.
const (
	batchIdle, batchMax = time.Second, 10 * time.Second
	defaultBoot         = time.Minute
	defaultStop         = 30 * time.Second
)

// variantOf returns a variant in which the controller has its default settings for disruption.
func variantOf(name string, o *objects, pools []engine.Pool, settings engine.Settings) replay.Variant {
	return replay.Variant{Name: name, Store: o.store(), Pools: pools, Engine: settings, Planner: disrupt.DefaultSettings(),
		Labels: awsv1.Labels()}
}

// newRun returns the run of a variant, in which the nodes that are there already run from the beginning. It warns about nodes that the
// replay cannot take.
func (f *replayFlags) newRun(env Env, name string, o *objects, pools []engine.Pool, set engine.Settings, there thereAlready) plannedRun {
	set.Search = cmp.Or(set.Search, enoughSearch)
	r := plannedRun{set: f.set, always: there.always, Variant: variantOf(name, o, pools, set)}
	r.set.BatchIdle, r.set.BatchMax = batchIdle, batchMax
	claims := claimsByNode(there.claims)
	var failed []error
	for _, n := range there.nodes {
		if err := r.AddNode(n, claims(n)); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", n.Name, err))
		}
	}
	if len(failed) > 0 {
		fmt.Fprintf(env.Err, "variant %s begins without %s: %v\n", name, sentence.Count(len(failed), "node"), failed[0])
	}
	return r
}

// claimsByNode returns a function that finds the claim of a node, by the node's name or its provider ID; nil if it has none.
func claimsByNode(all []*v1.NodeClaim) func(*corev1.Node) *v1.NodeClaim {
	claims := map[string]*v1.NodeClaim{}
	for _, c := range all {
		claims[c.Status.NodeName], claims[c.Status.ProviderID] = c, c
	}
	delete(claims, "")
	return func(n *corev1.Node) *v1.NodeClaim { return cmp.Or(claims[n.Name], claims[n.Spec.ProviderID]) }
}
