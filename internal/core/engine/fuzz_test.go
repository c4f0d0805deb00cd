package engine

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/repack"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/core/work"
)

// FuzzHostileObjects plans pods and pools that nobody would write: no panic, no wrong plan.
func FuzzHostileObjects(f *testing.F) {
	f.Add([]byte(`{"containers":[{"resources":{"requests":{"cpu":"1e30","memory":"-5","x/y":"9223372036854775807"}}}]}`), []byte(`{"requirements":[{"key":"a","operator":"Gt","values":["9223372036854775807"]}]}`))
	f.Add([]byte(`{"topologySpreadConstraints":[{"topologyKey":"","maxSkew":-3,"whenUnsatisfiable":"?"}]}`), []byte(`{"requirements":[{"key":"zone","operator":"In"}]}`))
	f.Add([]byte(`{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchExpressions":[{"key":"a","operator":"Foo"}]}}]}}}`), []byte(`{"requirements":[{"key":"topology.kubernetes.io/zone","operator":"Exists","minValues":50}]}`))
	f.Add([]byte(`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{},{"matchExpressions":[{"key":"n","operator":"Lt","values":["-1"]}]}]}}},"tolerations":[{"operator":"Gt","value":"x"}]}`), []byte(`{"requirements":[{"key":"n","operator":"Exists"}],"taints":[{"key":"k","effect":"NoSchedule"}]}`))
	f.Fuzz(func(t *testing.T, podSpec, poolSpec []byte) {
		var spec corev1.PodSpec
		var tmpl v1.NodeClaimTemplateSpec
		if json.Unmarshal(podSpec, &spec) != nil || json.Unmarshal(poolSpec, &tmpl) != nil {
			return
		}
		spec.NodeName = ""
		pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		pool.Spec.Template.Spec = tmpl
		store := cluster.NewStore()
		store.Update(func(d *cluster.Draft) {
			for _, name := range []string{"a", "b", "c"} {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"a": "b"}}, Spec: spec}
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonUnschedulable}}
				d.PutPod(p)
			}
		})
		snap := store.Snapshot()
		r := dice{rng(5)}
		in := Question{Snap: snap, Pools: []Pool{{Pool: pool, Catalog: &cloud.Catalog{Types: []*cloud.InstanceType{r.instanceType(0), r.instanceType(1)}}}}, Pods: snap.Provisionable(),
			Now: time.Unix(0, 0), Settings: Settings{Search: work.Second / 20}}
		b := New().compile(in)
		if err := solve.Check(b.Problem, repack.Run(b.Problem)); err != nil {
			t.Error(err)
		}
		if plan := New().Plan(in); placedPods(plan) != len(in.Pods) {
			t.Errorf("%d of %d pods have an answer", placedPods(plan), len(in.Pods))
		}
	})
}

// TestThousandsOfTerms bounds the work that one pod can cause.
func TestThousandsOfTerms(t *testing.T) {
	var terms []corev1.NodeSelectorTerm
	var wishes []corev1.PreferredSchedulingTerm
	for i := range 5000 {
		x := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "n", Operator: corev1.NodeSelectorOpIn, Values: []string{string(rune('a' + i%26)), "x"}}}}
		terms = append(terms, x)
		wishes = append(wishes, corev1.PreferredSchedulingTerm{Weight: int32(i % 100), Preference: x})
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}, PreferredDuringSchedulingIgnoredDuringExecution: wishes}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonUnschedulable}}
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) { d.PutPod(p) })
	in := dice{rng(1)}.small(0, 2)
	in.Snap = store.Snapshot()
	in.Pods = in.Snap.Provisionable()
	e := New()
	b := e.compile(in)
	if n := len(b.Problem.Classes[0].Variants); n > 1024 {
		t.Errorf("%d variants", n)
	}
	if plan := e.raise(&in, b, repack.Run(b.Problem)); len(plan.Refused) != 1 {
		t.Errorf("%+v", plan)
	}
}
