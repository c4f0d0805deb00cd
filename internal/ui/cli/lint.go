package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/drift"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/need"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

const lintHelp = `usage: karpenter lint [-f FILE_OR_DIR_OR_-…] [--kubeconfig FILE] [-o text|json]

Looks for what can never work: pools whose requirements or minValues leave no instance type, pools of equal weight that take the same
pods, PodDisruptionBudgets under which no pod can ever be evicted, label values that no node can have. With files and a cluster it
also says what the NodePools and EC2NodeClasses in the files would do to the nodes that are there: how many drift, and
what the fleet would cost.

Without --kubeconfig and -f the cluster of $KUBECONFIG, or of ~/.kube/config, is read. Nothing is changed.

Exit code: 0 nothing was found, 1 something was, 2 the input is wrong.

`

// A finding is one thing that lint found. Its JSON is documented and is stable.
type finding struct {
	Code   string `json:"code"`
	Object string `json:"object"` // such as NodePool/default
	Text   string `json:"text"`
	// Of an edit that replaces nodes: how many, and what all pods on them would cost more.
	Nodes       int     `json:"nodes,omitempty"`
	MorePerHour float64 `json:"morePerHour,omitempty"`
	// MoreNodes are replaced too if what the selectors of a node class find is not what is there. Only the cloud knows.
	MoreNodes int `json:"moreNodes,omitempty"`
}

// The codes of findings.
const (
	lintUnsatisfiable = "Unsatisfiable"  // a pool that can launch nothing
	lintOverlap       = "Overlap"        // pools of equal weight take the same pods
	lintNeverDrains   = "NeverDrains"    // a budget under which no pod can be evicted
	lintLabel         = "Label"          // a label that no node can have
	lintInvalid       = "Invalid"        // what the controller refuses
	lintReplaces      = "Replaces"       // an edit drifts nodes
	lintClass         = "NodeClass"      // a pool's class is missing or not ready
	lintSelectsNone   = "SelectsNothing" // a budget protects no pod
	lintNoRequests    = "NoRequests"     // a workload requests no CPU or memory
	lintIgnored       = "Ignored"        // a field of a node class has no effect
	lintTinyLimit     = "TinyLimit"      // a pool's limits are below its smallest machine
	lintNeverMoved    = "NeverDisrupted" // a budget of 0 that always holds
)

// advice are the codes that do not change the exit code and come last.
var advice = []string{lintSelectsNone, lintNoRequests, lintIgnored, lintTinyLimit, lintNeverMoved}

type lintFlags struct{ planFlags }

// lint runs "karpenter lint": it reads objects, looks for findings and prints them. Advice alone does not change the
// exit code.
func lint(ctx context.Context, env Env, args []string) (int, error) {
	l := lintFlags{}
	fs := flag.NewFlagSet("lint", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, lintHelp); fs.PrintDefaults() }
	l.worldFlags(fs)
	fs.StringVar(&l.output, "o", "text", "text or json")
	words, err := parseMixed(fs, args)
	l.files = append(l.files, words...)
	switch {
	case err != nil:
		return exitBadInput, err
	case l.output != "text" && l.output != "json":
		return exitBadInput, fmt.Errorf("-o %s: use text or json", l.output)
	case l.snapshot != "":
		return exitBadInput, errors.New("a snapshot does not hold what lint looks at; give -f or --kubeconfig")
	}
	if err := l.checkWorld(); err != nil {
		return exitBadInput, err
	}
	o, err := l.read(ctx, env)
	if err != nil {
		return exitBadInput, err
	}
	found, err := l.findings(env, o)
	if err != nil {
		return exitBadInput, err
	}
	if err := writeFindings(env.Out, found, l.output); err != nil {
		return exitBadInput, err
	}
	if slices.ContainsFunc(found, func(f finding) bool { return !slices.Contains(advice, f.Code) }) {
		return exitUnready, nil
	}
	return exitFine, nil
}

// writeFindings prints findings as JSON, or one line each.
func writeFindings(w io.Writer, found []finding, format string) error {
	if format == "json" {
		if found == nil {
			found = []finding{}
		}
		return writeJSON(w, found)
	}
	for _, f := range found {
		if _, err := fmt.Fprintf(w, "%s: %s (%s)\n", f.Object, f.Text, f.Code); err != nil {
			return err
		}
	}
	return nil
}

// findings returns all that lint finds, sorted by object, with advice last. Some checks need the cluster: whether the
// class of a pool is missing, and whether a PodDisruptionBudget matches no pod.
func (l *lintFlags) findings(env Env, o *objects) ([]finding, error) {
	var out []finding
	known := label.NewVocabulary(v1.Labels(), awsv1.Labels())
	for _, p := range o.pools {
		object := "NodePool/" + p.Name
		if err := p.Validate(known); err != nil {
			out = append(out, finding{Code: lintInvalid, Object: object, Text: err.Error()})
		}
		out = append(out, badLabels(p)...)
		out = append(out, neverDisrupted(p)...)
	}
	for _, c := range o.classes {
		if err := env.CheckClass(c); err != nil {
			out = append(out, finding{Code: lintInvalid, Object: "EC2NodeClass/" + c.Name, Text: err.Error()})
		}
		if env.IgnoredFields != nil {
			for _, text := range env.IgnoredFields(c) {
				out = append(out, finding{Code: lintIgnored, Object: "EC2NodeClass/" + c.Name, Text: text})
			}
		}
	}
	if l.kubeconfig != "" {
		out = append(out, badClasses(env, o)...)
	}
	out = append(out, overlaps(o.pools)...)
	for _, b := range o.apps.pdbs {
		if text := neverDrains(b, o.pods); text != "" {
			out = append(out, finding{Code: lintNeverDrains, Object: "PodDisruptionBudget/" + b.Namespace + "/" + b.Name, Text: text})
		}
	}
	l.quiet = true
	if l.kubeconfig != "" {
		out = append(out, protectNothing(o)...)
	}
	in, err := l.input(env, o)
	if err != nil {
		return nil, err
	}
	for _, workload := range withoutRequests(in.Pods) {
		out = append(out, finding{Code: lintNoRequests, Object: workload, Text: "a container requests no CPU or no memory, " +
			"and counts as 100m and 200Mi when a new node is sized: set requests, so that its nodes have what it needs"})
	}
	out = append(out, unsatisfiable(in)...)
	out = append(out, editFindings(env, in, o, known)...)
	last := func(f finding) int {
		if slices.Contains(advice, f.Code) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b finding) int { return cmp.Or(last(a)-last(b), cmp.Compare(a.Object, b.Object)) })
	return out, nil
}

// neverDisrupted returns a finding for each budget of a pool that allows no node and has no schedule.
func neverDisrupted(p *v1.NodePool) (out []finding) {
	for _, b := range p.Spec.Disruption.Budgets {
		if b.Schedule != nil || b.Nodes != "0" && b.Nodes != "0%" {
			continue
		}
		what := "Karpenter replaces and removes no node"
		if len(b.Reasons) > 0 {
			names := make([]string, len(b.Reasons))
			for i, r := range b.Reasons {
				names[i] = string(r)
			}
			what += " that is " + strings.Join(names, " or ")
		}
		out = append(out, finding{Code: lintNeverMoved, Object: "NodePool/" + p.Name, Text: fmt.Sprintf(
			"a budget of %s nodes without a schedule: %s, but for expiry; to stop that for a time only, use karpenter pause",
			b.Nodes, what)})
	}
	return out
}

// badClasses returns a finding for each pool whose node class is missing or not ready: such a pool launches nothing.
func badClasses(env Env, o *objects) (out []finding) {
	for _, p := range o.pools {
		ref := p.Spec.Template.Spec.NodeClassRef
		at := slices.IndexFunc(o.classes, func(c *awsv1.EC2NodeClass) bool { return c.Name == ref.Name })
		text := fmt.Sprintf("there is no %s named %q: create it, or change nodeClassRef", ref.Kind, ref.Name)
		if at >= 0 {
			err := classError(env, o.classes[at])
			if err == nil {
				continue
			}
			text = fmt.Sprintf("launches nothing, because %s %q is not ready: %v", ref.Kind, ref.Name, err)
		}
		out = append(out, finding{Code: lintClass, Object: "NodePool/" + p.Name, Text: text})
	}
	return out
}

// protectNothing returns a finding for each PodDisruptionBudget whose selector matches no pod of its namespace.
func protectNothing(o *objects) (out []finding) {
	for _, b := range o.apps.pdbs {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || slices.ContainsFunc(o.pods, func(p *corev1.Pod) bool {
			return p.Namespace == b.Namespace && selector.Matches(labels.Set(p.Labels))
		}) {
			continue
		}
		out = append(out, finding{Code: lintSelectsNone, Object: "PodDisruptionBudget/" + b.Namespace + "/" + b.Name,
			Text: "its selector matches no pod, so it protects none: compare it with the labels of the pods"})
	}
	return out
}

// badLabels returns a finding for each label value of a pool that Kubernetes does not allow: its nodes could not
// register.
func badLabels(p *v1.NodePool) []finding {
	var out []finding
	check := func(key, value string) {
		for _, problem := range validation.IsValidLabelValue(value) {
			out = append(out, finding{Code: lintLabel, Object: "NodePool/" + p.Name,
				Text: fmt.Sprintf("no node can have the label %s=%s: %s", key, value, problem)})
		}
	}
	check(v1.NodePoolLabelKey, p.Name)
	for _, key := range sortedKeys(p.Spec.Template.Labels) {
		check(key, p.Spec.Template.Labels[key])
	}
	for _, q := range p.Spec.Template.Spec.Requirements {
		if q.Operator == corev1.NodeSelectorOpIn {
			for _, value := range q.Values {
				check(q.Key, value)
			}
		}
	}
	return out
}

// overlaps returns a finding for each group of pools that have equal weight and take the same pods. Which of them
// gets a pod is then a matter of price, and each limit and budget holds for a part of the nodes only. Pools with
// different taints, or with labels or requirements by which pods can choose one, do not count.
func overlaps(pools []*v1.NodePool) []finding {
	alike := func(a, b *v1.NodePool) bool {
		return !a.IsStatic() && !b.IsStatic() && a.Weight() == b.Weight() && sameTaints(a, b) && !excludes(a, b) && !excludes(b, a)
	}
	var groups [][]*v1.NodePool
	for _, p := range pools {
		at := slices.IndexFunc(groups, func(g []*v1.NodePool) bool {
			return !slices.ContainsFunc(g, func(q *v1.NodePool) bool { return !alike(p, q) })
		})
		if at < 0 {
			groups = append(groups, []*v1.NodePool{p})
			continue
		}
		groups[at] = append(groups[at], p)
	}
	var out []finding
	for _, g := range groups {
		if len(g) < 2 {
			continue
		}
		names := make([]string, 0, len(g)-1)
		for _, p := range g[1:] {
			names = append(names, fmt.Sprintf("%q", p.Name))
		}
		which := "one of them"
		if len(g) > 2 {
			which = "all but one of them"
		}
		out = append(out, finding{Code: lintOverlap, Object: "NodePool/" + g[0].Name,
			Text: fmt.Sprintf("takes the same pods as NodePool %s, and has the same weight (%d): give %s "+
				"another weight, a taint, or requirements of its own", strings.Join(names, ", "), g[0].Weight(), which)})
	}
	return out
}

// sameTaints reports whether two pools have the same taints, apart from PreferNoSchedule.
func sameTaints(a, b *v1.NodePool) bool {
	text := func(p *v1.NodePool) []string {
		var out []string
		for _, t := range p.Spec.Template.Spec.Taints {
			if t.Effect != corev1.TaintEffectPreferNoSchedule {
				out = append(out, t.ToString())
			}
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(text(a), text(b))
}

// excludes reports whether a has a label or requirement that no node of b meets.
func excludes(a, b *v1.NodePool) bool {
	for key, value := range a.Spec.Template.Labels {
		if other, ok := b.Spec.Template.Labels[key]; !ok || other != value {
			return true
		}
	}
	for i := range a.Spec.Template.Spec.Requirements {
		q := &a.Spec.Template.Spec.Requirements[i]
		for j := range b.Spec.Template.Spec.Requirements {
			r := &b.Spec.Template.Spec.Requirements[j]
			if r.Key == q.Key && r.Operator == corev1.NodeSelectorOpIn && !slices.ContainsFunc(r.Values, need.Set(q).Has) {
				return true
			}
		}
	}
	return false
}

// neverDrains returns why a PodDisruptionBudget never lets a pod be evicted, "" if it does.
func neverDrains(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod) string {
	if limit := b.Spec.MaxUnavailable; limit != nil && (limit.Type == intstr.Int && limit.IntVal == 0 ||
		limit.Type == intstr.String && limit.StrVal == "0%") {
		return "maxUnavailable: " + limit.String() +
			" lets no pod be evicted, ever; a node with one of its pods goes only by its terminationGracePeriod"
	}
	least := b.Spec.MinAvailable
	if least == nil {
		return ""
	}
	if least.Type == intstr.String && least.StrVal == "100%" {
		return "minAvailable: 100% lets no pod be evicted, ever; a node with one of its pods goes only by its terminationGracePeriod"
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil || least.Type == intstr.String {
		return ""
	}
	n := 0
	for _, p := range pods {
		if p.Namespace == b.Namespace && !ended(p) && selector.Matches(labelSet(p.Labels)) {
			n++
		}
	}
	if n > 0 && int(least.IntVal) >= n {
		return fmt.Sprintf("minAvailable: %d of %s lets none be evicted as long as there are no more", least.IntVal,
			sentence.Count(n, "pod"))
	}
	return ""
}

// labelSet is labels for a selector.
type labelSet map[string]string

func (s labelSet) Has(key string) bool                       { _, ok := s[key]; return ok }
func (s labelSet) Get(key string) string                     { return s[key] }
func (s labelSet) Lookup(key string) (value string, ok bool) { value, ok = s[key]; return value, ok }

// unsatisfiable asks the engine to place a pod that requests nothing, in each pool alone. It returns a finding for a
// pool that launches nothing even without limits, or whose limits, or a CapacityQuota, are below its smallest
// machine.
func unsatisfiable(in engine.Question) []finding {
	store := cluster.NewStore()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "lint", UID: "lint"}}
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	p.Spec.Containers = []corev1.Container{{Name: "lint"}}
	p.Status.Phase = corev1.PodPending
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable}}
	store.Update(func(d *cluster.Draft) { d.PutPod(p); d.Synced(true) })
	limited := cluster.NewStore() // with quotas, and without the nodes that use them
	limited.Update(func(d *cluster.Draft) {
		for q := range cluster.Quotas.All(in.Snap) {
			cluster.Quotas.Put(d, q)
		}
		d.PutPod(p)
		d.Synced(true)
	})
	var out []finding
	for _, pool := range in.Pools {
		unlimited := pool.Pool.DeepCopy()
		unlimited.Spec.Limits = nil // that a limit is reached is no fault
		snap := store.Snapshot()
		refused := func(p *v1.NodePool) []engine.Refused {
			return engine.New(awsv1.Labels()).Plan(engine.Question{Snap: snap, Pods: snap.Provisionable(),
				Pools: []engine.Pool{{Pool: p, Catalog: pool.Catalog}}, Settings: in.Settings}).Refused
		}
		if refused := refused(unlimited); len(refused) > 0 {
			var own []reason.Count
			for _, c := range refused[0].Reasons {
				c.Pool, c.Candidates = "", 0 // the text then is about the pool itself
				own = append(own, c)
			}
			out = append(out, finding{Code: lintUnsatisfiable, Object: "NodePool/" + pool.Pool.Name,
				Text: "can launch nothing, whatever a pod asks for: " + sentence.Explanation(own)})
			continue
		}
		if len(refused(pool.Pool)) > 0 {
			out = append(out, finding{Code: lintTinyLimit, Object: "NodePool/" + pool.Pool.Name,
				Text: "its limits are below its smallest machine, so it launches nothing: raise spec.limits"})
			continue
		}
		snap = limited.Snapshot()
		for _, r := range refused(pool.Pool) {
			for _, c := range r.Reasons {
				if c.Code == reason.Quota {
					out = append(out, finding{Code: lintTinyLimit, Object: "CapacityQuota/" + c.Detail, Text: "it allows less " + c.Key +
						" than the smallest machine of NodePool " + pool.Pool.Name + " has, which launches nothing: raise spec.limits"})
				}
			}
		}
	}
	return out
}

// editFindings returns which nodes would drift because of the NodePools and EC2NodeClasses in files, and what their
// pods would cost then.
func editFindings(env Env, in engine.Question, o *objects, known *label.Vocabulary) []finding {
	world := disruptionWorld(in, nil)
	var out []finding
	note := func(object string, e *edit) {
		if len(e.gone)+e.perhaps > 0 {
			out = append(out, e.finding(object, in, world))
		}
	}
	for _, p := range in.Pools {
		if o.inFiles[objectKey(p.Pool)] {
			note("NodePool/"+p.Pool.Name, editOfPool(in.Snap, p.Pool, known))
		}
	}
	for _, to := range o.classes {
		if from := o.clusterClasses[to.Name]; from != nil {
			note("EC2NodeClass/"+to.Name, editOfClass(in.Snap, to.Name, env.EditClass(from, to)))
		}
	}
	return out
}

// An edit is the effect on nodes of changing one object.
type edit struct {
	gone    []*cluster.Node // nodes that it replaces for certain
	perhaps int             // how many more it may replace
	why     map[string]int  // how many nodes go, or may go, for each reason
}

// editOfPool returns which nodes of a pool drift if the pool becomes what the file says. The copy gets the hash of
// its new content, as the controller would write it.
func editOfPool(snap *cluster.Snapshot, pool *v1.NodePool, known *label.Vocabulary) *edit {
	stamped := pool.DeepCopy()
	stamp := drift.PoolStamp(stamped)
	if stamped.Annotations == nil {
		stamped.Annotations = map[string]string{}
	}
	stamped.Annotations[v1.NodePoolHashAnnotationKey], stamped.Annotations[v1.NodePoolHashVersionAnnotationKey] = stamp.Hash, stamp.Version
	e := &edit{why: map[string]int{}}
	for row := range snap.Nodes() {
		if row.Pool() == pool.Name && row.Claim != nil {
			e.add(row, drift.Reason(stamped, row.Claim, known), true)
		}
	}
	return e
}

// editOfClass returns which nodes of a node class drift by a change. drifts returns the reason for a claim, and
// whether it is certain.
func editOfClass(snap *cluster.Snapshot, class string, drifts func(*v1.NodeClaim) (cloud.DriftReason, bool)) *edit {
	e := &edit{why: map[string]int{}}
	for row := range snap.Nodes() {
		if row.Claim == nil || row.Claim.Spec.NodeClassRef == nil ||
			row.Claim.Spec.NodeClassRef.Group != awsv1.Group || row.Claim.Spec.NodeClassRef.Name != class {
			continue
		}
		cause, sure := drifts(row.Claim)
		e.add(row, string(cause), sure)
	}
	return e
}

// add notes that a node goes (sure) or may go because of cause; "" is none.
func (e *edit) add(row *cluster.Node, cause string, sure bool) {
	switch {
	case cause == "":
		return
	case sure:
		e.gone = append(e.gone, row)
	default:
		e.perhaps++
	}
	e.why[cause]++
}

// finding returns the finding about an edit. It plans the pods of the nodes that go anew, and compares the price with
// that of the nodes.
func (e *edit) finding(object string, in engine.Question, world *disrupt.World) finding {
	var causes []string
	for _, cause := range sortedKeys(e.why) {
		causes = append(causes, fmt.Sprintf("%s: %d", cause, e.why[cause]))
	}
	f := finding{Code: lintReplaces, Object: object, Nodes: len(e.gone), MoreNodes: e.perhaps}
	because := " (" + strings.Join(causes, ", ") + ")"
	if len(e.gone) == 0 {
		f.Text = fmt.Sprintf("as it is written it may replace %s%s: what its selectors find is known to the cloud only",
			sentence.Count(e.perhaps, "node"), because)
		return f
	}
	in.Pods, in.Gone = nil, map[string]bool{}
	before := cloud.NanoUSD(0)
	for _, row := range e.gone {
		in.Gone[row.Name] = true
		before += priceOf(world, row)
		for _, pod := range row.Pods {
			if !pod.DaemonSet && !pod.Mirror {
				in.Pods = append(in.Pods, pod)
			}
		}
	}
	plan := engine.New(awsv1.Labels()).Plan(in)
	f.MorePerHour = (plan.Price - before).Dollars()
	f.Text = fmt.Sprintf("as it is written it replaces %s%s, %s an hour", sentence.Count(f.Nodes, "node"), because, signed(f.MorePerHour))
	if e.perhaps > 0 {
		f.Text += fmt.Sprintf("; %d more may be replaced: what its selectors find is known to the cloud only", e.perhaps)
	}
	if n := len(plan.Refused); n > 0 {
		f.Text += fmt.Sprintf("; %s on them would have no other place", sentence.Count(n, "pod"))
	}
	return f
}
