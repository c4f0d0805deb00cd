//go:build apiserver

package apiserver

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// The API server must accept the NodeClaims that the engine plans, whatever a pool is: one that was refused would never get a node.
func TestPlannedClaimsAreAccepted(t *testing.T) {
	for name, edit := range map[string]func(p *v1.NodePool){
		"of a plain pool": func(*v1.NodePool) {},
		"of a pool that stands in for a Provisioner": func(p *v1.NodePool) {
			p.Annotations = map[string]string{v1.ProvisionerAnnotationKey: "web"}
		},
		"of a pool with labels and requirements": func(p *v1.NodePool) {
			p.Spec.Template.Labels = map[string]string{"team": "blue"}
			p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
				{Key: "tier", Operator: corev1.NodeSelectorOpIn, Values: []string{"gold"}},
				{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"zone-a"}},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "planned", UID: "planned"}}
			pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
			edit(pool)
			plan := engine.New().Plan(question(pool))
			if len(plan.Open) != 1 {
				t.Fatalf("%d claims are planned: %v", len(plan.Open), plan.Refused)
			}
			claim := plan.Open[0].Claim
			claim.OwnerReferences = nil // the pool is not on the server
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(claim)
			if err != nil {
				t.Fatal(err)
			}
			object := &unstructured.Unstructured{Object: content}
			object.SetGroupVersionKind(v1.GroupVersion.WithKind("NodeClaim"))
			if err := kube.Create(t.Context(), object, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// question asks for a place for one pod, on new nodes of a pool that sells one type.
func question(pool *v1.NodePool) engine.Question {
	amounts := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse("10")}
	}
	large := &cloud.InstanceType{Name: "m.large", Capacity: amounts("4", "16Gi")}
	large.Labels = map[string][]string{
		corev1.LabelArchStable: {"amd64"}, corev1.LabelOSStable: {"linux"}, corev1.LabelInstanceTypeStable: {"m.large"}, corev1.LabelTopologyZone: {"zone-a"},
		v1.CapacityTypeLabelKey: {v1.CapacityTypeOnDemand},
	}
	large.Offerings = []cloud.Offering{{Labels: map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand, corev1.LabelTopologyZone: "zone-a"}, Price: 200_000_000, Available: true}}
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}}
		pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		d.PutPod(pod)
	})
	snap := store.Snapshot()
	return engine.Question{Snap: snap, Pools: []engine.Pool{{Pool: pool, Catalog: &cloud.Catalog{Types: []*cloud.InstanceType{large}}}}, Pods: snap.Provisionable(), Now: time.Unix(0, 0)}
}
