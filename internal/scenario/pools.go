package scenario

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

var classRef = v1.NodeClassReference{Group: "example.com", Kind: "Class", Name: "default"}

// readPools reads pools: a name with weight, limits=cpu:4,nodes:2, static=replicas, labels=k:v, taint=k:v:effect, startup=…,
// need=key:Op:v|w[:minValues]; what disruptionOf reads follows.
func (w *World) readPools(text string) error {
	if strings.TrimSpace(text) == "" {
		text = "default"
	}
	w.Pools = nil
	err := eachLine(text, func(l *line) error {
		p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: l.name, UID: types.UID(l.name)}}
		spec := &p.Spec.Template.Spec
		spec.NodeClassRef = &classRef
		if x := l.get("weight", ""); x != "" {
			n, err := strconv.ParseInt(x, 10, 32)
			if err != nil {
				return err
			}
			weight := int32(n)
			p.Spec.Weight = &weight
		}
		for _, x := range split(l.get("limits", ""), ",") {
			k, v, _ := strings.Cut(x, ":")
			q, err := bounded.ParseQuantity(v)
			if err != nil {
				return err
			}
			if p.Spec.Limits == nil {
				p.Spec.Limits = v1.Limits{}
			}
			p.Spec.Limits[corev1.ResourceName(k)] = q
		}
		if x := l.get("static", ""); x != "" {
			n, err := strconv.ParseInt(x, 10, 64)
			if err != nil {
				return err
			}
			p.Spec.Replicas = &n
		}
		var err error
		if p.Spec.Disruption, err = disruptionOf(l); err != nil {
			return err
		}
		p.Spec.Template.Labels = pairs(l.get("labels", ""))
		for _, x := range l.all("taint") {
			spec.Taints = append(spec.Taints, taintOf(x))
		}
		for _, x := range l.all("startup") {
			spec.StartupTaints = append(spec.StartupTaints, taintOf(x))
		}
		for _, x := range l.all("need") {
			r := requirementOf(x)
			q := v1.NodeSelectorRequirementWithMinValues{Key: r.Key, Operator: r.Operator, Values: r.Values}
			if f := strings.Split(x, ":"); len(f) > 3 {
				n, err := strconv.Atoi(f[3])
				if err != nil {
					return err
				}
				q.MinValues = &n
			}
			spec.Requirements = append(spec.Requirements, q)
		}
		w.Pools = append(w.Pools, engine.Pool{Pool: p, Catalog: w.catalogOf(p.Name)})
		return nil
	})
	if err != nil {
		return err
	}
	w.Store.Update(func(d *cluster.Draft) {
		for _, p := range w.Pools {
			cluster.Pools.Put(d, p.Pool)
		}
	})
	return nil
}

// disruptionOf reads when nodes of a pool may go, by default at once: after= (consolidateAfter), policy=, and
// budget=nodes[/reason+reason[/schedule with _ for a space/duration]].
func disruptionOf(l *line) (d v1.Disruption, err error) {
	d.ConsolidationPolicy = v1.ConsolidationPolicy(l.get("policy", string(v1.ConsolidationPolicyWhenEmptyOrUnderutilized)))
	if d.ConsolidateAfter, err = v1.ParseNillableDuration(l.get("after", "0s")); err != nil {
		return d, err
	}
	for _, x := range l.all("budget") {
		f := append(strings.SplitN(x, "/", 4), "", "", "")
		b := v1.Budget{Nodes: f[0]}
		for _, reason := range split(f[1], "+") {
			b.Reasons = append(b.Reasons, v1.DisruptionReason(reason))
		}
		if f[2] != "" {
			duration, err := time.ParseDuration(f[3])
			if err != nil {
				return d, err
			}
			b.Schedule, b.Duration = new(strings.ReplaceAll(f[2], "_", " ")), &metav1.Duration{Duration: duration}
		}
		d.Budgets = append(d.Budgets, b)
	}
	if d.Budgets == nil {
		d.Budgets = []v1.Budget{{Nodes: "100%"}}
	}
	return d, nil
}

// pairs reads k:v,k:v.
func pairs(text string) map[string]string {
	var out map[string]string
	for _, x := range split(text, ",") {
		k, v, _ := strings.Cut(x, ":")
		if out == nil {
			out = map[string]string{}
		}
		out[longKey(k)] = v
	}
	return out
}

// taintOf reads key:value:effect.
func taintOf(text string) corev1.Taint {
	f := append(strings.Split(text, ":"), "", "")
	return corev1.Taint{Key: f[0], Value: f[1], Effect: corev1.TaintEffect(f[2])}
}

// requirementOf reads key:Op:v|w.
func requirementOf(text string) corev1.NodeSelectorRequirement {
	f := append(strings.Split(text, ":"), "", "")
	return corev1.NodeSelectorRequirement{Key: longKey(f[0]), Operator: corev1.NodeSelectorOperator(f[1]), Values: split(f[2], "|")}
}

// pools writes the NodePools.
func (w *writer) pools() {
	for _, in := range w.in.Pools {
		p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: in.Pool.DeletionTimestamp}}
		t, from := &p.Spec.Template, &in.Pool.Spec.Template
		t.Labels = from.Labels
		t.Spec = v1.NodeClaimTemplateSpec{Requirements: from.Spec.Requirements, Taints: from.Spec.Taints,
			StartupTaints: from.Spec.StartupTaints, NodeClassRef: from.Spec.NodeClassRef}
		p.Spec.Limits, p.Spec.Weight, p.Spec.Replicas = in.Pool.Spec.Limits, in.Pool.Spec.Weight, in.Pool.Spec.Replicas
		if w.keep { // no plan rests on it, and a replay does
			p.Spec.Disruption = in.Pool.Spec.Disruption
		}
		if w.width > 0 { // what its claims say, and no decision rests on
			t.Spec.ExpireAfter, t.Spec.TerminationGracePeriod = from.Spec.ExpireAfter, from.Spec.TerminationGracePeriod
			p.UID = types.UID(w.name("pool", string(in.Pool.UID)))
		}
		w.put("NodePool", w.name("pool", in.Pool.Name), p)
	}
}
