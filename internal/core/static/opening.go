package static

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
)

// planner is the engine.
type planner interface {
	Plan(in engine.Question) *engine.Plan
}

// Opening returns a new machine of a static pool, or why there can be none. It asks the engine to place a pod without requests that may
// only go to a new node of this pool. So the machine has room for DaemonSets, and is priced like any other. The claim lists types and
// capacity types as the pool does, and the launch chooses. in has the snapshot and settings; Opening replaces its pools, pods and closed
// nodes.
func Opening(e planner, pool engine.Pool, in engine.Question) (o engine.Opening, why reason.Explanation) {
	open := *pool.Pool
	open.Spec.Replicas = nil
	pod := placeholder()
	closed := map[string]bool{}
	for n := range in.Snap.Nodes() {
		closed[n.Name] = true
	}
	in.Pools, in.Pods, in.Closed = []engine.Pool{{Pool: &open, Catalog: pool.Catalog}}, []*cluster.Pod{pod}, closed
	plan := e.Plan(in)
	if len(plan.Open) != 1 {
		why = reason.Explanation{{Code: reason.NotReached}}
		if len(plan.Refused) > 0 {
			why = plan.Refused[0].Reasons
		}
		return engine.Opening{}, why
	}
	o = plan.Open[0]
	o.Pods, o.Static = nil, true
	delete(o.Claim.Annotations, v1.NodeClaimMinValuesRelaxedAnnotationKey)
	o.Claim.Spec.Requirements = asThePoolSays(o.Claim.Spec.Requirements, pool.Pool)
	return o, nil
}

// placeholder returns a pod that requests nothing and tolerates everything. It exists only in the question.
func placeholder() *cluster.Pod {
	classes := podclass.NewInterner()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}}
	return &cluster.Pod{PodKey: cluster.PodKey{Name: "placeholder"}, Class: classes.Class(pod), Labels: classes.Labels(nil)}
}

// asThePoolSays replaces the requirements of a plan about instance types and capacity types by those of the pool.
func asThePoolSays(reqs []v1.NodeSelectorRequirementWithMinValues, pool *v1.NodePool) []v1.NodeSelectorRequirementWithMinValues {
	listed := func(r v1.NodeSelectorRequirementWithMinValues) bool {
		return r.Key == corev1.LabelInstanceTypeStable || r.Key == v1.CapacityTypeLabelKey
	}
	out := slices.DeleteFunc(slices.Clone(reqs), listed)
	for _, r := range pool.Spec.Template.Spec.Requirements {
		if listed(r) {
			out = append(out, *r.DeepCopy())
		}
	}
	return out
}
