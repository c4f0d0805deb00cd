package cli

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/rollout"
)

// A nodeEdit is an edit that removes what keeps a node.
type nodeEdit struct {
	text     string   // what it removes
	note     string   // what else is to be said of the reason
	changed  *objects // the objects without it; nil where no edit of an object shows what would follow
	commands []string // that make the edit; none where only time or people help
}

// without returns the edit that removes what a refusal is about. It is empty where no edit does.
func (o *objects) without(r disrupt.Refusal, row *cluster.Node) nodeEdit {
	switch r.Code {
	case disrupt.NodeProtected, disrupt.ClaimProtected, disrupt.DoNotConsolidate, disrupt.RepairForbidden:
		return o.withoutAnnotation(row, r.Name)
	case disrupt.PodProtected:
		return o.withoutPodAnnotation(*r.Pod, r.Name)
	case disrupt.PodBudget:
		return o.withoutPDB(r)
	case disrupt.Budget, disrupt.BudgetUnread:
		return o.withPool(row, "the budgets of the pool", loosenBudgets)
	case disrupt.ConsolidateNever:
		return o.withPool(row, "consolidateAfter: Never", func(d *v1.Disruption) { d.ConsolidateAfter = v1.After(0) })
	case disrupt.Settling:
		return o.withPool(row, "consolidateAfter", func(d *v1.Disruption) { d.ConsolidateAfter = v1.After(0) })
	case disrupt.OnlyWhenEmpty, disrupt.Unbalanced:
		edit := o.withPool(row, "", func(d *v1.Disruption) { d.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmptyOrUnderutilized })
		if p := o.pool(row.Pool()); p != nil {
			edit.text = "consolidationPolicy: " + string(p.Spec.Disruption.ConsolidationPolicy)
		}
		return edit
	case disrupt.Paused:
		return o.resumed(r.Name)
	case disrupt.Rollout:
		if r.Value == string(rollout.Tripped) {
			return nodeEdit{commands: []string{"karpenter resume --pool " + row.Pool()}}
		}
	case disrupt.InStep:
		return o.approval(row)
	case disrupt.FixedNodes:
		if p := o.pool(row.Pool()); p != nil && p.Spec.Replicas != nil {
			return nodeEdit{commands: []string{fmt.Sprintf("kubectl scale nodepool %s --replicas=%d", p.Name, max(*p.Spec.Replicas-1, 0))}}
		}
	case disrupt.NotInitialized:
		return startupTaints(row)
	case disrupt.Deleting:
		return o.drained(row)
	}
	return nodeEdit{}
}

// loosenBudgets replaces budgets of 0 nodes by the usual budget of 10%. If there is none of 0, it allows all nodes.
func loosenBudgets(d *v1.Disruption) {
	usual := slices.ContainsFunc(d.Budgets, func(b v1.Budget) bool { return b.Nodes == "0" || b.Nodes == "0%" })
	d.Budgets = []v1.Budget{{Nodes: "100%"}}
	if usual {
		d.Budgets[0].Nodes = "10%"
	}
}

// pool returns the NodePool of a name, nil if there is none.
func (o *objects) pool(name string) *v1.NodePool {
	for _, p := range o.pools {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// withPool returns an edit of the disruption settings of the node's pool. text says what it removes.
func (o *objects) withPool(row *cluster.Node, text string, edit func(*v1.Disruption)) nodeEdit {
	from := o.pool(row.Pool())
	if from == nil {
		return nodeEdit{}
	}
	to := from.DeepCopy()
	edit(&to.Spec.Disruption)
	c := *o
	c.pools = swapped(o.pools, from, to)
	return nodeEdit{text: text, changed: &c, commands: []string{patchCommand("nodepool", from, to)}}
}

// swapped returns a list with one item in the place of another.
func swapped[T comparable](list []T, from, to T) []T {
	out := slices.Clone(list)
	out[slices.Index(out, from)] = to
	return out
}

// withoutAnnotation returns the edit that removes an annotation from the node and its claim.
func (o *objects) withoutAnnotation(row *cluster.Node, key string) nodeEdit {
	c := *o
	edit := nodeEdit{text: "the annotation " + key, changed: &c}
	for _, n := range o.nodes {
		if row.Node != nil && n.Name == row.Node.Name && n.Annotations[key] != "" {
			to := n.DeepCopy()
			delete(to.Annotations, key)
			c.nodes = swapped(o.nodes, n, to)
			edit.commands = append(edit.commands, unannotate("node", n, key))
		}
	}
	for _, n := range o.claims {
		if row.Claim != nil && n.Name == row.Claim.Name && n.Annotations[key] != "" {
			to := n.DeepCopy()
			delete(to.Annotations, key)
			c.claims = swapped(o.claims, n, to)
			edit.commands = append(edit.commands, unannotate("nodeclaim", n, key))
		}
	}
	return edit
}

// withoutPodAnnotation returns the edit that removes an annotation from a pod. The pod that replaces it has the
// annotation again, but on another node.
func (o *objects) withoutPodAnnotation(key cluster.PodKey, annotation string) nodeEdit {
	for _, p := range o.pods {
		if p.Namespace == key.Namespace && p.Name == key.Name {
			to := p.DeepCopy()
			delete(to.Annotations, annotation)
			c := *o
			c.pods = swapped(o.pods, p, to)
			return nodeEdit{text: fmt.Sprintf("the annotation %s of pod %s/%s", annotation, p.Namespace, p.Name), changed: &c,
				commands: []string{unannotate("pod", p, annotation)}}
		}
	}
	return nodeEdit{}
}

// withoutPDB returns the edit of the PodDisruptionBudget that holds a pod: from then on one pod at a time may go. If
// the refusal names no budget, the pod has several, under which no pod can be evicted; the edit then deletes the
// first of them.
func (o *objects) withoutPDB(r disrupt.Refusal) nodeEdit {
	c := *o
	name := r.Name[strings.LastIndex(r.Name, "/")+1:]
	var edit nodeEdit
	c.apps.pdbs = nil
	for _, b := range o.apps.pdbs {
		switch {
		case r.Name == "" && edit.text == "" && covers(b, o.pods, *r.Pod):
			edit = nodeEdit{text: "PodDisruptionBudget " + b.Namespace + "/" + b.Name,
				commands: []string{"kubectl delete " + onObject("pdb", b)}}
		case r.Name != "" && b.Namespace == r.Pod.Namespace && b.Name == name:
			edit = nodeEdit{text: "PodDisruptionBudget " + r.Name, commands: []string{loosen(b)}}
		default:
			c.apps.pdbs = append(c.apps.pdbs, b)
		}
	}
	if edit.text != "" {
		edit.changed = &c
	}
	return edit
}

// loosen returns the command that edits a budget so that one pod at a time may go, in addition to those that are not
// ready.
func loosen(b *policyv1.PodDisruptionBudget) string {
	one := intstr.FromInt32(max(1, b.Status.ExpectedPods-b.Status.CurrentHealthy+1))
	to := b.DeepCopy()
	to.Spec.MinAvailable, to.Spec.MaxUnavailable = nil, &one
	return patchCommand("pdb", b, to)
}

// covers reports whether the selector of a budget matches a pod.
func covers(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, key cluster.PodKey) bool {
	s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && b.Namespace == key.Namespace && slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return p.Namespace == key.Namespace && p.Name == key.Name && s.Matches(labels.Set(p.Labels))
	})
}

// resumed returns the edit that ends the pause of a pool, or of the cluster if the name is empty.
func (o *objects) resumed(pool string) nodeEdit {
	c := *o
	edit := nodeEdit{text: "the pause", changed: &c, commands: []string{"karpenter resume"}}
	if pool != "" {
		edit.commands[0] += " --pool " + pool
	}
	if p := o.pool(pool); p != nil {
		to := p.DeepCopy()
		delete(to.Annotations, v1.PausedAnnotationKey)
		c.pools = swapped(o.pools, p, to)
	}
	for _, n := range o.namespaces {
		if pool == "" && n.Name == v1.PausedNamespace {
			to := n.DeepCopy()
			delete(to.Annotations, v1.PausedAnnotationKey)
			c.namespaces = swapped(o.namespaces, n, to)
		}
	}
	return edit
}

// approval returns the command that approves the DisruptionPlan in which the node waits.
func (o *objects) approval(row *cluster.Node) nodeEdit {
	for _, plan := range o.plans {
		if !plan.Open() || row.Claim == nil {
			continue
		}
		for _, r := range plan.Status.Step.Remove {
			if r.UID == row.Claim.UID {
				return nodeEdit{note: fmt.Sprintf("DisruptionPlan %s waits for approval", plan.Name),
					commands: []string{"karpenter approve " + plan.Name}}
			}
		}
	}
	return nodeEdit{}
}

// startupTaints returns a note on the startup taints that keep a node from being initialised, and the commands that
// remove them.
func startupTaints(row *cluster.Node) nodeEdit {
	if row.Node == nil || row.Claim == nil {
		return nodeEdit{}
	}
	var edit nodeEdit
	for _, t := range row.Claim.Spec.StartupTaints {
		if slices.ContainsFunc(row.Node.Spec.Taints, func(x corev1.Taint) bool { return x.MatchTaint(&t) }) {
			edit.note = strings.TrimPrefix(edit.note+", "+t.ToString(), ", ")
			edit.commands = append(edit.commands, fmt.Sprintf("kubectl taint node %s %s:%s-", row.Node.Name, t.Key, t.Effect))
		}
	}
	if edit.note != "" {
		edit.note = "it has startup taints that nothing has removed: " + edit.note
	}
	return edit
}

// drained returns a note on what holds the pods of a node that is being removed, and the commands that let them go.
// The note names the first pod only.
func (o *objects) drained(row *cluster.Node) nodeEdit {
	var edit nodeEdit
	for _, p := range o.pods {
		if row.Node == nil || p.Spec.NodeName != row.Node.Name || ended(p) {
			continue
		}
		key := cluster.PodKey{Namespace: p.Namespace, Name: p.Name}
		held := ""
		if p.Annotations[v1.DoNotDisruptAnnotationKey] != "" {
			held = "the annotation " + v1.DoNotDisruptAnnotationKey
			edit.commands = append(edit.commands, unannotate("pod", p, v1.DoNotDisruptAnnotationKey))
		}
		for _, b := range o.apps.pdbs {
			if b.Status.DisruptionsAllowed == 0 && covers(b, o.pods, key) {
				held = "PodDisruptionBudget " + b.Name
				edit.commands = append(edit.commands, loosen(b))
			}
		}
		if held != "" && edit.note == "" {
			edit.note = fmt.Sprintf("pod %s/%s is held by %s", p.Namespace, p.Name, held)
		}
	}
	slices.Sort(edit.commands)
	edit.commands = slices.Compact(edit.commands)
	return edit
}
