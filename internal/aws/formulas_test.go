package aws

import (
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

func withFormulas(s *Settings) { s.Formulas = true }

// joined collects the nodes that machines become, by their provider's id.
type joined struct {
	mu    sync.Mutex
	nodes map[string]awsmodel.Join
}

func (j *joined) join(of awsmodel.Join) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.nodes == nil {
		j.nodes = map[string]awsmodel.Join{}
	}
	j.nodes[of.ProviderID] = of
}

func (j *joined) node(id string) (awsmodel.Join, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of, ok := j.nodes[id]
	return of, ok
}

// TestNodesAreAsFormulasSay: machines of two sizes that one class launches hold what was planned for each.
func TestNodesAreAsFormulasSay(t *testing.T) {
	formulas := map[string]any{
		"maxPods":        "vcpus * 7",
		"kubeReserved":   map[string]any{"cpu": "vcpus * 15", "memory": "11 * max_pods + 255", "ephemeral-storage": "2Gi"},
		"systemReserved": map[string]any{"memory": "memory_mib / 50", "cpu": "vcpus * 5", "pid": "vcpus * 500"},
	}
	for _, alias := range []string{"al2023@latest", "bottlerocket@latest", "windows2022@latest"} {
		t.Run(alias, func(t *testing.T) {
			var all joined
			inWorld(t, awsmodel.Config{Types: []string{"m5.large", "m5.4xlarge"}, Join: all.join}, withFormulas, func(t *testing.T, w *world) {
				w.editClass(t, func(s *awsv1.EC2NodeClassSpec) {
					s.AMISelectorTerms, s.Kubelet = []awsv1.AMISelectorTerm{{Alias: alias}}, kubelet(formulas)
				})
				time.Sleep(time.Minute)
				for name, pods := range map[string]int64{"m5.large": 14, "m5.4xlarge": 112} {
					claim := newClaim("of-" + name[3:])
					claim.Spec.Requirements = append(claim.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{
						Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{name},
					})
					_, m := w.create(t, claim)
					time.Sleep(time.Minute)
					node, ok := all.node(m.ProviderID)
					if !ok {
						t.Fatalf("%s never joined", name)
					}
					if got := node.Capacity.Pods().Value(); got != pods {
						t.Errorf("%s holds %d pods, want %d", name, got, pods)
					}
					for _, of := range []corev1.ResourceName{"pods", "cpu"} {
						planned, real := m.Allocatable[of], node.Allocatable[of]
						if planned.Cmp(real) != 0 {
							t.Errorf("%s: %s for pods is %s, it was planned with %s", name, of, real.String(), planned.String())
						}
					}
					kept := func(l, of corev1.ResourceList) int64 { return of.Memory().Value() - l.Memory().Value() }
					if got, want := kept(node.Allocatable, node.Capacity), kept(m.Allocatable, m.Capacity); got != want {
						t.Errorf("%s keeps %d bytes of memory, it was planned with %d", name, got, want)
					}
				}
			})
		})
	}
}

func TestFormulasThatFailAreConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		formula, reason, says string
	}{
		"none":            {"vcpus *", awsv1.ReasonKubeletExpressionInvalid, "kubelet.maxPods: "},
		"an unknown word": {"cores * 8", awsv1.ReasonKubeletExpressionInvalid, "undeclared reference to 'cores'"},
		"no value":        {"100 / (vcpus - 2)", awsv1.ReasonKubeletExpressionEvaluationFailed, "m5.large: division by zero"},
		"below zero":      {"vcpus - 3", awsv1.ReasonKubeletExpressionEvaluationFailed, "-1 is no number of pods"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{Types: []string{"m5.*"}}, withFormulas, func(t *testing.T, w *world) {
				w.editClass(t, func(s *awsv1.EC2NodeClassSpec) { s.Kubelet = kubelet(map[string]any{"maxPods": tc.formula}) })
				time.Sleep(time.Minute)
				nc := &awsv1.EC2NodeClass{}
				check(t, w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc))
				c := condition.Get(nc, awsv1.ConditionTypeValidationSucceeded)
				if c == nil || c.Status != "False" || c.Reason != tc.reason || !strings.Contains(c.Message, tc.says) {
					t.Fatalf("condition %+v, want reason %s and %q", c, tc.reason, tc.says)
				}
				w.editClass(t, func(s *awsv1.EC2NodeClassSpec) { s.Kubelet = kubelet(map[string]any{"maxPods": "vcpus * 8"}) })
				w.waitReady(t, "default")
			})
		})
	}
}
