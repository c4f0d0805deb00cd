package disrupt

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// FuzzHostileFleets looks at nodes whose pods, pool and claims say what nobody would write: no panic, no node goes that something blocks, and
// never more than there are.
func FuzzHostileFleets(f *testing.F) {
	f.Add([]byte(`{"annotations":{"karpenter.sh/do-not-disrupt":"-1h","controller.kubernetes.io/pod-deletion-cost":"1e99"}}`), []byte(`{"containers":[{"resources":{"requests":{"cpu":"1e30","memory":"-5"}}}],"priority":-2147483648}`),
		[]byte(`{"disruption":{"budgets":[{"nodes":"-1"},{"nodes":"101%"}],"consolidateAfter":"0s"}}`), []byte(`{"annotations":{"karpenter.sh/disruption-command":"{}"},"labels":{"node.kubernetes.io/instance-type":"?"}}`))
	f.Add([]byte(`{"ownerReferences":[{"kind":"DaemonSet","controller":true}],"labels":{"app":"web"}}`), []byte(`{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"","labelSelector":{}}]}},"topologySpreadConstraints":[{"topologyKey":"zone","maxSkew":0,"whenUnsatisfiable":"DoNotSchedule"}]}`),
		[]byte(`{"disruption":{"consolidationPolicy":"Balanced","budgets":[{"nodes":"1","schedule":"* * * * *","duration":"1s"}]},"template":{"spec":{"requirements":[{"key":"karpenter.sh/capacity-type","operator":"In","values":["spot"],"minValues":9}]}}}`), []byte(`{"annotations":{"karpenter.sh/do-not-disrupt":"true"},"deletionTimestamp":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{}`), []byte(`{"nodeName":"elsewhere","volumes":[{"persistentVolumeClaim":{"claimName":"x"}}]}`), []byte(`{"replicas":-3,"limits":{"nodes":"-1","cpu":"0"},"weight":-7}`), []byte(`{"labels":{"karpenter.sh/nodepool":""},"creationTimestamp":"0001-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, podMeta, podSpec, poolSpec, claimMeta []byte) {
		var pod corev1.Pod
		var pool v1.NodePoolSpec
		var claim metav1.ObjectMeta
		for raw, into := range map[*[]byte]any{&podMeta: &pod.ObjectMeta, &podSpec: &pod.Spec, &poolSpec: &pool, &claimMeta: &claim} {
			if json.Unmarshal(*raw, into) != nil {
				return
			}
		}
		fleet := newFixture(small()...).pool("p", func(p *v1.NodePool) {
			ref := p.Spec.Template.Spec.NodeClassRef
			p.Spec = pool
			p.Spec.Template.Spec.NodeClassRef = ref
		})
		for _, name := range []string{"a", "b", "c"} {
			fleet.node(name, "p", "mid", onDemand, drift(0), func(_ *corev1.Node, c *v1.NodeClaim) {
				c.Annotations, c.DeletionTimestamp = claim.Annotations, claim.DeletionTimestamp
				for key, value := range claim.Labels {
					c.Labels[key] = value
				}
			})
			fleet.pods(name, "web", 2, "1", "1Gi", func(p *corev1.Pod) {
				p.Annotations, p.OwnerReferences, p.Spec = pod.Annotations, pod.OwnerReferences, *pod.Spec.DeepCopy()
				p.Spec.NodeName = name
			})
		}
		planner := newPlanner(realEngine())
		out := planner.Propose(fleet.world())
		gone := map[string]bool{}
		for _, step := range out.Steps {
			for _, c := range step.Remove {
				if c.Block != nil || gone[c.Name()] {
					t.Errorf("node %s goes, though it is %+v, or goes already", c.Name(), c.Block)
				}
				gone[c.Name()] = true
			}
			if again, why := planner.Confirm(fleet.world(), step); again == nil && why.Code == "" {
				t.Error("a step is refused without a reason")
			}
		}
	})
}
