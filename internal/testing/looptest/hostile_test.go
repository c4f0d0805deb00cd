package looptest

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/control/commitment"
	"karpenter.sh/karpenter/internal/control/overlay"
	pools "karpenter.sh/karpenter/internal/control/pool"
	"karpenter.sh/karpenter/internal/control/quotas"
	"karpenter.sh/karpenter/internal/control/rollout"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// Sizes of hostile objects: what fits into the 1.5 MiB that etcd keeps of one object.
const (
	manyValues = 20_000
	manyTerms  = 1_000
	manyRules  = 5_000
)

// What one hostile object may cost above a harmless one, in a minute of all loops.
const (
	mostCPU       = time.Second
	mostAllocated = 200 << 20
)

// hugeDigits is a number that nothing can be as large as.
var hugeDigits = strings.Repeat("9", 1000)

// values are many different texts.
func values(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("value-", i)
	}
	return list
}

func valueMap(n int) map[string]string {
	m := make(map[string]string, n)
	for i := range n {
		m[fmt.Sprint("example.com/key-", i)] = fmt.Sprint("value-", i)
	}
	return m
}

// listOf makes a list of n items.
func listOf[T any](n int, item func(int) T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = item(i)
	}
	return list
}

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

// A hostile object is what a user may write whom the cluster does not trust.
type hostile struct {
	object client.Object
	// named: an event, a condition or a log line has to say that this object is at fault. Objects without it are large and valid.
	named bool
}

func hostilePod(edit func(*corev1.Pod)) hostile {
	return hostile{object: sim.Pod("hostile", "1", edit), named: true}
}

func inAffinity(terms []corev1.NodeSelectorTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
}

func requesting(name corev1.ResourceName, text string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests[name] = quantity(text) }
}

func hostilePods() map[string]hostile {
	expression := func(key, operator string, v ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOperator(operator), Values: v}
	}
	term := func(list ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: list}
	}
	antiTerm := func(i int) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: fmt.Sprint("example.com/topology-", i%7), Namespaces: values(20),
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("other-", i)}}}
	}
	return map[string]hostile{
		"pod: cpu of forty million digits":    hostilePod(requesting("cpu", "1e40000000")),
		"pod: memory of a thousand digits":    hostilePod(requesting("memory", hugeDigits)),
		"pod: storage of forty million zeros": hostilePod(requesting("ephemeral-storage", "1e40000000")),
		"pod: a device of forty million":      hostilePod(requesting("nvidia.com/gpu", "1e40000000")),
		"pod: overhead of forty million digits": hostilePod(func(p *corev1.Pod) {
			p.Spec.Overhead = corev1.ResourceList{"cpu": quantity("1e40000000")}
		}),
		"pod: pod-level cpu of forty million digits": hostilePod(func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": quantity("1e40000000")}}
		}),
		"pod: five thousand node selectors": hostilePod(func(p *corev1.Pod) { p.Spec.NodeSelector = valueMap(manyRules) }),
		"pod: twenty thousand zones": hostilePod(inAffinity([]corev1.NodeSelectorTerm{
			term(expression(corev1.LabelTopologyZone, "In", values(manyValues)...))})),
		"pod: a thousand terms": hostilePod(inAffinity(listOf(manyTerms, func(i int) corev1.NodeSelectorTerm {
			return term(listOf(10, func(k int) corev1.NodeSelectorRequirement {
				return expression(fmt.Sprint("example.com/", i, "-", k), "In", "a", "b")
			})...)
		}))),
		"pod: greater than a thousand digits": hostilePod(inAffinity([]corev1.NodeSelectorTerm{
			term(expression("karpenter.k8s.aws/instance-cpu", "Gt", hugeDigits))})),
		"pod: five thousand tolerations": {object: sim.Pod("hostile", "1", func(p *corev1.Pod) {
			p.Spec.Tolerations = listOf(manyRules, func(i int) corev1.Toleration {
				return corev1.Toleration{Key: fmt.Sprint("example.com/", i), Operator: "Gt", Value: hugeDigits[:18]}
			})
		})},
		"pod: two thousand spreads": {object: sim.Pod("hostile", "1", func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = listOf(2000, func(i int) corev1.TopologySpreadConstraint {
				return corev1.TopologySpreadConstraint{TopologyKey: fmt.Sprint("example.com/", i), MaxSkew: math.MaxInt32, WhenUnsatisfiable: "ScheduleAnyway"}
			})
		})},
		"pod: the most domains there can be": hostilePod(func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelTopologyZone, MaxSkew: math.MaxInt32,
				MinDomains: new(int32(math.MaxInt32)), WhenUnsatisfiable: "DoNotSchedule", LabelSelector: &metav1.LabelSelector{}}}
			p.Labels = valueMap(10)
			p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "nowhere"}
		}),
		"pod: a thousand anti-affinities": {object: sim.Pod("hostile", "1", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: listOf(manyTerms, antiTerm)}}
		})},
		"pod: a thousand affinities": hostilePod(func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: listOf(manyTerms, antiTerm)}}
		}),
		"pod: anti-affinity to twenty thousand values": {object: sim.Pod("hostile", "1", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname,
					LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: values(manyValues)}}}}}}}
		})},
		"pod: a thousand containers": {object: sim.Pod("hostile", "1", func(p *corev1.Pod) {
			p.Spec.Containers = listOf(manyTerms, func(i int) corev1.Container {
				return corev1.Container{Name: fmt.Sprint("c", i), Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": quantity("1m")}}}
			})
		})},
		"pod: a thousand sidecars": {object: sim.Pod("hostile", "1", func(p *corev1.Pod) {
			p.Spec.InitContainers = listOf(manyTerms, func(i int) corev1.Container {
				return corev1.Container{Name: fmt.Sprint("c", i), RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": quantity("1m")}}}
			})
		})},
		"pod: two thousand kinds of resources": hostilePod(func(p *corev1.Pod) {
			for i := range 2000 {
				p.Spec.Containers[0].Resources.Requests[corev1.ResourceName(fmt.Sprint("example.com/device-", i))] = quantity("1")
			}
		}),
		"pod: five thousand host ports": {object: sim.Pod("hostile", "1", func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = listOf(manyRules, func(i int) corev1.ContainerPort {
				return corev1.ContainerPort{HostPort: int32(i + 1), HostIP: fmt.Sprint("10.0.0.", i%256), Protocol: "UDP"}
			})
		})},
		"pod: a thousand missing claims": hostilePod(func(p *corev1.Pod) {
			p.Spec.Volumes = listOf(manyTerms, func(i int) corev1.Volume {
				return corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("missing-", i)}}}
			})
		}),
		"pod: five hundred missing resource claims": hostilePod(func(p *corev1.Pod) {
			p.Spec.ResourceClaims = listOf(500, func(i int) corev1.PodResourceClaim {
				return corev1.PodResourceClaim{Name: fmt.Sprint("c", i), ResourceClaimName: new(fmt.Sprint("missing-", i))}
			})
		}),
		"pod: a selector of one term that cannot be read": hostilePod(inAffinity([]corev1.NodeSelectorTerm{
			term(expression("karpenter.sh/capacity-type", "Between", "a"))})),
		"pod: do-not-disrupt for a thousand digits of hours": {object: sim.Pod("hostile", "1", func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: hugeDigits + "h", corev1.PodDeletionCost: hugeDigits}
		})},
		"pod: the longest grace there can be": {object: sim.Pod("hostile", "1", func(p *corev1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = new(int64(math.MaxInt64))
			p.Spec.Priority = new(int32(math.MaxInt32))
		})},
		"pod: five thousand owners and labels": {object: sim.Pod("hostile", "1", func(p *corev1.Pod) {
			p.OwnerReferences = listOf(manyRules, func(i int) metav1.OwnerReference {
				return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprint("rs-", i)}
			})
			p.Labels = valueMap(manyRules)
		})},
	}
}

// hostilePool is a pool beside "default" that a pod may use, with something absurd in it.
func hostilePool(named bool, edit func(*v1.NodePool)) hostile {
	p := pool()
	p.Name, p.UID = "hostile", "pool-2"
	edit(p)
	return hostile{p, named}
}

func hostilePools() map[string]hostile {
	requirement := func(key, operator string, v ...string) v1.NodeSelectorRequirementWithMinValues {
		return v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOperator(operator), Values: v}
	}
	requires := func(list ...v1.NodeSelectorRequirementWithMinValues) func(*v1.NodePool) {
		return func(p *v1.NodePool) {
			p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, list...)
		}
	}
	budgets := func(list ...v1.Budget) func(*v1.NodePool) {
		return func(p *v1.NodePool) { p.Spec.Disruption.Budgets = list }
	}
	return map[string]hostile{
		"pool: twenty thousand types":                hostilePool(false, requires(requirement(corev1.LabelInstanceTypeStable, "In", values(manyValues)...))),
		"pool: all but twenty thousand types":        hostilePool(false, requires(requirement(corev1.LabelInstanceTypeStable, "NotIn", values(manyValues)...))),
		"pool: more CPUs than a thousand digits say": hostilePool(true, requires(requirement("karpenter.k8s.aws/instance-cpu", "Gt", hugeDigits))),
		"pool: an operator that does not exist":      hostilePool(true, requires(requirement("example.com/team", "Between", "a"))),
		"pool: a thousand requirements": hostilePool(false, requires(listOf(manyTerms, func(i int) v1.NodeSelectorRequirementWithMinValues {
			return requirement(fmt.Sprint("example.com/", i), "In", "a", "b")
		})...)),
		"pool: the most minValues there can be": hostilePool(false, func(p *v1.NodePool) {
			p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{
				Key: corev1.LabelInstanceTypeStable, Operator: "Exists", MinValues: new(math.MaxInt32)})
		}),
		"pool: limits of forty million digits": hostilePool(false, func(p *v1.NodePool) {
			p.Spec.Limits = v1.Limits{"cpu": quantity("1e40000000"), "memory": quantity(hugeDigits), "nodes": quantity("1e40000000")}
		}),
		"pool: a limit below nothing":                    hostilePool(false, func(p *v1.NodePool) { p.Spec.Limits = v1.Limits{"cpu": quantity("-1e40000000")} }),
		"pool: a budget of a thousand digits":            hostilePool(true, budgets(v1.Budget{Nodes: hugeDigits})),
		"pool: a budget of a thousand digits of percent": hostilePool(true, budgets(v1.Budget{Nodes: hugeDigits + "%"})),
		"pool: a day that never comes": hostilePool(false, budgets(v1.Budget{Nodes: "0", Schedule: new("0 0 30 2 *"),
			Duration: &metav1.Duration{Duration: time.Hour}})),
		"pool: a schedule that cannot be read": hostilePool(true, budgets(v1.Budget{Nodes: "0", Schedule: new(strings.Repeat("*/1,", manyValues) + " * * * *"),
			Duration: &metav1.Duration{Duration: time.Hour}})),
		"pool: a schedule of nanoseconds": hostilePool(false, budgets(v1.Budget{Nodes: "0", Schedule: new("@every 1ns"),
			Duration: &metav1.Duration{Duration: math.MaxInt64}})),
		"pool: two thousand budgets": hostilePool(false, budgets(listOf(2000, func(i int) v1.Budget {
			return v1.Budget{Nodes: "50%", Schedule: new(fmt.Sprintf("%d %d * * *", i%60, i%24)), Duration: &metav1.Duration{Duration: 1000 * time.Hour}}
		})...)),
		"pool: the longest times there can be": hostilePool(false, func(p *v1.NodePool) {
			p.Spec.Template.Spec.ExpireAfter, p.Spec.Disruption.ConsolidateAfter = v1.After(math.MaxInt64), v1.After(math.MaxInt64)
			p.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: math.MaxInt64}
			p.Spec.Weight = new(int32(math.MaxInt32))
		}),
		"pool: nodes expire before they are there": hostilePool(false, func(p *v1.NodePool) { p.Spec.Template.Spec.ExpireAfter = v1.After(1) }),
		"pool: five thousand taints": hostilePool(false, func(p *v1.NodePool) {
			p.Spec.Template.Spec.Taints = listOf(manyRules, func(i int) corev1.Taint {
				return corev1.Taint{Key: fmt.Sprint("example.com/", i), Effect: "NoSchedule"}
			})
		}),
		"pool: five thousand labels": hostilePool(false, func(p *v1.NodePool) { p.Spec.Template.Labels = valueMap(manyRules) }),
		"pool: annotations of a megabyte": hostilePool(false, func(p *v1.NodePool) {
			p.Annotations = map[string]string{"compatibility.karpenter.sh/v1beta1-kubelet-conversion": strings.Repeat(`{"a":`, 200_000),
				v1.PausedAnnotationKey: "until " + hugeDigits}
			p.Spec.Template.Annotations = map[string]string{"example.com/a": strings.Repeat("a", 1<<20)}
		}),
		"pool: a class that does not exist": hostilePool(true, func(p *v1.NodePool) { p.Spec.Template.Spec.NodeClassRef = sim.Ref("absent") }),
		"pool: a class of another kind": hostilePool(false, func(p *v1.NodePool) {
			p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "example.com", Kind: "Other", Name: "default"}
		}),
	}
}

func hostileClass(named bool, edit func(*awsv1.EC2NodeClassSpec)) hostile {
	c := class()
	c.Name, c.UID = "hostile", "class-2"
	edit(&c.Spec)
	return hostile{c, named}
}

func hostileClasses() map[string]hostile {
	return map[string]hostile{
		"class: user data of a megabyte": hostileClass(true, func(s *awsv1.EC2NodeClassSpec) { s.UserData = new(strings.Repeat("a", 1<<20)) }),
		"class: user data of a hundred thousand parts": hostileClass(true, func(s *awsv1.EC2NodeClassSpec) {
			s.UserData = new("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"b\"\n\n" + strings.Repeat("--b\n\nx\n", 100_000) + "--b--\n")
		}),
		"class: a thousand subnet terms": hostileClass(true, func(s *awsv1.EC2NodeClassSpec) {
			s.SubnetSelectorTerms = listOf(manyTerms, func(i int) awsv1.SubnetSelectorTerm {
				return awsv1.SubnetSelectorTerm{Tags: map[string]string{"no": fmt.Sprint("such-", i)}}
			})
		}),
		"class: five thousand subnets": hostileClass(true, func(s *awsv1.EC2NodeClassSpec) {
			s.SubnetSelectorTerms = listOf(manyRules, func(i int) awsv1.SubnetSelectorTerm {
				return awsv1.SubnetSelectorTerm{ID: fmt.Sprintf("subnet-%08x", i)}
			})
		}),
		"class: a thousand tags in a term": hostileClass(true, func(s *awsv1.EC2NodeClassSpec) {
			s.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{Tags: valueMap(manyTerms)}}
		}),
		"class: a thousand images": hostileClass(true, func(s *awsv1.EC2NodeClassSpec) {
			s.AMISelectorTerms = listOf(manyTerms, func(i int) awsv1.AMISelectorTerm { return awsv1.AMISelectorTerm{ID: fmt.Sprintf("ami-%08x", i)} })
			s.AMIFamily = new("AL2023")
		}),
		"class: five thousand tags": hostileClass(true, func(s *awsv1.EC2NodeClassSpec) { s.Tags = valueMap(manyRules) }),
		"class: a disk of forty million digits": hostileClass(false, func(s *awsv1.EC2NodeClassSpec) {
			s.BlockDeviceMappings = []*awsv1.BlockDeviceMapping{{DeviceName: new("/dev/xvda"), RootVolume: true,
				EBS: &awsv1.BlockDevice{VolumeSize: new(quantity("1e40000000"))}}}
		}),
		"class: kubelets of absurd numbers": hostileClass(true, func(s *awsv1.EC2NodeClassSpec) {
			s.Kubelet = &awsv1.KubeletConfiguration{Raw: []byte(`{"systemReserved":{"cpu":"1e40000000"},"kubeReserved":{"memory":"` + hugeDigits +
				`"},"evictionHard":{"memory.available":"` + hugeDigits + `%"},"maxPods":-1}`)}
		}),
	}
}

func hostileAddons() map[string]hostile {
	meta := metav1.ObjectMeta{Name: "hostile", Namespace: "default", UID: "hostile"}
	cluster := metav1.ObjectMeta{Name: "hostile", UID: "hostile"}
	huge := intstr.FromString(hugeDigits + "%")
	pdb := func(edit func(*policyv1.PodDisruptionBudgetSpec)) hostile {
		o := &policyv1.PodDisruptionBudget{ObjectMeta: meta}
		edit(&o.Spec)
		return hostile{object: o}
	}
	buffer := func(named bool, edit func(*autoscalingv1beta1.CapacityBufferSpec)) hostile {
		o := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: meta}
		edit(&o.Spec)
		return hostile{o, named}
	}
	overlays := func(named bool, edit func(*v1alpha1.NodeOverlaySpec)) hostile {
		o := &v1alpha1.NodeOverlay{ObjectMeta: cluster}
		edit(&o.Spec)
		return hostile{o, named}
	}
	rollouts := func(named bool, edit func(*v1alpha1.RolloutPolicySpec)) hostile {
		o := &v1alpha1.RolloutPolicy{ObjectMeta: cluster}
		edit(&o.Spec)
		return hostile{o, named}
	}
	commitments := func(named bool, edit func(*v1alpha1.CommitmentDiscountSpec)) hostile {
		o := &v1alpha1.CommitmentDiscount{ObjectMeta: cluster, Spec: v1alpha1.CommitmentDiscountSpec{
			Category: v1alpha1.CommitmentSpend, Type: v1alpha1.ComputeSavingsPlan, Quantity: "1"}}
		edit(&o.Spec)
		return hostile{o, named}
	}
	quota := func(named bool, edit func(*autoscalingv1beta1.CapacityQuotaSpec)) hostile {
		o := &autoscalingv1beta1.CapacityQuota{ObjectMeta: cluster}
		edit(&o.Spec)
		return hostile{o, named}
	}
	return map[string]hostile{
		"budget of pods: a thousand digits of percent": pdb(func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable, s.Selector = &huge, &metav1.LabelSelector{} }),
		"budget of pods: twenty thousand values": pdb(func(s *policyv1.PodDisruptionBudgetSpec) {
			s.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: values(manyValues)}}}
		}),
		"budget of pods: an operator that does not exist": pdb(func(s *policyv1.PodDisruptionBudgetSpec) {
			s.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Between"}}}
		}),
		"buffer: as many as there can be": buffer(false, func(s *autoscalingv1beta1.CapacityBufferSpec) {
			s.PodTemplateRef, s.Replicas = &autoscalingv1beta1.LocalObjectRef{Name: "absent"}, new(int32(math.MaxInt32))
		}),
		"buffer: of what does not exist": buffer(true, func(s *autoscalingv1beta1.CapacityBufferSpec) {
			s.ScalableRef, s.Percentage = &autoscalingv1beta1.ScalableRef{Kind: hugeDigits, Name: hugeDigits}, new(int32(math.MaxInt32))
		}),
		"quota: forty million digits": quota(false, func(s *autoscalingv1beta1.CapacityQuotaSpec) {
			s.Limits.Resources = autoscalingv1beta1.QuotaAmounts{"cpu": quantity("1e40000000"), "memory": quantity(hugeDigits)}
		}),
		"quota: twenty thousand values": quota(false, func(s *autoscalingv1beta1.CapacityQuotaSpec) {
			s.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: values(manyValues)}}}
			s.Limits.Resources = autoscalingv1beta1.QuotaAmounts{"cpu": quantity("1")}
		}),
		"overlay: a price of forty million digits": overlays(true, func(s *v1alpha1.NodeOverlaySpec) { s.Price = new("1e40000000") }),
		"overlay: a thousand digits of percent":    overlays(true, func(s *v1alpha1.NodeOverlaySpec) { s.PriceAdjustment = new("+" + hugeDigits + "%") }),
		"overlay: two thousand devices": overlays(false, func(s *v1alpha1.NodeOverlaySpec) {
			s.Capacity = corev1.ResourceList{}
			for i := range 2000 {
				s.Capacity[corev1.ResourceName(fmt.Sprint("example.com/device-", i))] = quantity("1e40000000")
			}
		}),
		"overlay: twenty thousand types": overlays(false, func(s *v1alpha1.NodeOverlaySpec) {
			s.Requirements = []v1alpha1.NodeSelectorRequirement{{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: values(manyValues)}}
			s.Price = new("1")
		}),
		"rollout: ten thousand steps": rollouts(false, func(s *v1alpha1.RolloutPolicySpec) {
			s.Steps = listOf(2*manyRules, func(int) v1alpha1.RolloutStep { return v1alpha1.RolloutStep{Nodes: intstr.FromInt32(1)} })
		}),
		"rollout: a schedule that cannot be read": rollouts(true, func(s *v1alpha1.RolloutPolicySpec) {
			s.Windows = []v1alpha1.RolloutWindow{{Schedule: hugeDigits, Duration: metav1.Duration{Duration: math.MaxInt64}, TimeZone: hugeDigits}}
		}),
		"rollout: a step of a thousand digits of percent": rollouts(false, func(s *v1alpha1.RolloutPolicySpec) { s.Steps = []v1alpha1.RolloutStep{{Nodes: huge}} }),
		"commitment: a thousand digits of dollars":        commitments(true, func(s *v1alpha1.CommitmentDiscountSpec) { s.Quantity = hugeDigits }),
		"commitment: a share of a thousand digits":        commitments(true, func(s *v1alpha1.CommitmentDiscountSpec) { s.Share = hugeDigits + "%" }),
		"commitment: two thousand rates": commitments(false, func(s *v1alpha1.CommitmentDiscountSpec) {
			s.Rates = listOf(2000, func(i int) v1alpha1.CommitmentRate {
				return v1alpha1.CommitmentRate{InstanceType: fmt.Sprint("m", i, ".large"), Price: "0.01"}
			})
		}),
	}
}

func hostileObjectsOfOthers() map[string]hostile {
	meta := metav1.ObjectMeta{Name: "hostile", Namespace: "default", UID: "hostile"}
	cluster := metav1.ObjectMeta{Name: "hostile", UID: "hostile"}
	podSpec := func(edit func(*corev1.Pod)) corev1.PodTemplateSpec {
		p := sim.Pod("hostile", "1m", edit)
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}
	}
	absurd := requesting("cpu", "1e40000000")
	node := func(edit func(*corev1.Node)) hostile {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hostile", UID: "hostile", Labels: map[string]string{corev1.LabelHostname: "hostile"}}}
		n.Spec.Taints = []corev1.Taint{{Key: "example.com/foreign", Effect: "NoSchedule"}}
		n.Status.Allocatable = corev1.ResourceList{"cpu": quantity("4"), "memory": quantity("8Gi"), "pods": quantity("100")}
		sim.SetReady(n, corev1.ConditionTrue)
		edit(n)
		return hostile{object: n}
	}
	devices := func(edit func(*resourcev1.ResourceSliceSpec)) hostile {
		s := &resourcev1.ResourceSlice{ObjectMeta: cluster, Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.example", AllNodes: new(true),
			Pool: resourcev1.ResourcePool{Name: "p", ResourceSliceCount: 1}}}
		edit(&s.Spec)
		return hostile{object: s}
	}
	return map[string]hostile{
		"node: capacity of forty million digits": node(func(n *corev1.Node) {
			n.Status.Capacity = corev1.ResourceList{"cpu": quantity("1e40000000"), "memory": quantity("-1e40000000")}
			n.Status.Allocatable = n.Status.Capacity
		}),
		"node: five thousand taints and labels": node(func(n *corev1.Node) {
			n.Spec.Taints = listOf(manyRules, func(i int) corev1.Taint {
				return corev1.Taint{Key: fmt.Sprint("example.com/", i), Effect: "NoSchedule"}
			})
			maps.Copy(n.Labels, valueMap(manyRules))
		}),
		"node: the name of a machine of another account": node(func(n *corev1.Node) {
			n.Spec.ProviderID = "aws:///us-east-1a/" + strings.Repeat("i-", manyValues)
			n.Labels[v1.NodePoolLabelKey] = "default"
		}),
		"node: five thousand images and conditions": node(func(n *corev1.Node) {
			n.Status.Images = listOf(manyRules, func(i int) corev1.ContainerImage { return corev1.ContainerImage{Names: []string{fmt.Sprint(i)}} })
			n.Status.Conditions = append(n.Status.Conditions, listOf(manyRules, func(i int) corev1.NodeCondition {
				return corev1.NodeCondition{Type: corev1.NodeConditionType(fmt.Sprint("C", i)), Status: "True"}
			})...)
		}),
		"devices: five thousand of them": devices(func(s *resourcev1.ResourceSliceSpec) {
			s.Devices = listOf(manyRules, func(i int) resourcev1.Device { return resourcev1.Device{Name: fmt.Sprint("gpu-", i)} })
		}),
		"devices: capacity of forty million digits": devices(func(s *resourcev1.ResourceSliceSpec) {
			s.Devices = []resourcev1.Device{{Name: "gpu", Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: quantity("1e40000000")}}}}
		}),
		"daemon: cpu of forty million digits": {object: &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{}, Template: podSpec(absurd)}}},
		"daemon: five thousand node selectors": {object: &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{}, Template: podSpec(func(p *corev1.Pod) { p.Spec.NodeSelector = valueMap(manyRules) })}}},
		"deployment: as many as there can be": {object: &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(math.MaxInt32)), Selector: &metav1.LabelSelector{}, Template: podSpec(absurd),
			Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &intstr.IntOrString{Type: intstr.String, StrVal: hugeDigits + "%"}}}}}},
		"cron job: each minute, as many as there can be": {object: &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "* * * * *",
			TimeZone: new(hugeDigits), JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Parallelism: new(int32(math.MaxInt32)), Template: podSpec(absurd)}}}}},
		"cron job: a schedule of a hundred kilobytes": {object: &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
			Schedule: strings.Repeat("1-59/2,", manyValues) + "1 * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: podSpec(absurd)}}}}},
		"autoscaler: as many as there can be": {object: &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta,
			Spec:   autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: math.MaxInt32, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"}},
			Status: autoscalingv2.HorizontalPodAutoscalerStatus{DesiredReplicas: math.MaxInt32}}},
		"volume: a thousand terms of a thousand zones": {object: &corev1.PersistentVolume{ObjectMeta: cluster, Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{"storage": quantity("1e40000000")},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: listOf(100, func(int) corev1.NodeSelectorTerm {
				return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: "In", Values: values(manyTerms)}}}
			})}}}}},
		"volume claim: forty million digits": {object: &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("gp3"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": quantity("1e40000000")}}}}},
		"storage class: twenty thousand zones": {object: &storagev1.StorageClass{ObjectMeta: cluster, Provisioner: "ebs.csi.aws.com",
			AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelTopologyZone, Values: values(manyValues)}}}}}},
		"CSI node: fewer volumes than none": {object: &storagev1.CSINode{ObjectMeta: cluster, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "ebs.csi.aws.com", Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(math.MinInt32))}}}}}},
		"namespace: twenty thousand labels": {object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hostile", Labels: valueMap(manyValues)}}},
		"claim: of the name of nothing": {object: sim.Claim("hostile", func(c *v1.NodeClaim) {
			c.Spec.Resources.Requests = corev1.ResourceList{"cpu": quantity("1e40000000")}
			c.Annotations = valueMap(manyRules)
		})},
	}
}

// spent is what the process has spent so far.
func spent() (cpu time.Duration, allocated uint64) {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail for this process
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), m.TotalAlloc
}

// everyLoop are the loops of a controller in which all that reads objects of users is on.
func everyLoop(r *replica) *sim.Karpenter {
	api := r.world.API.Client(r.name)
	k := r.world.Karpenter(sim.KarpenterOptions{Name: r.name, Store: r.store, Lag: watchLag, Delay: 30 * time.Millisecond, Cloud: r.provider,
		Provision: true, Disrupt: true, Repairs: true, Buffers: true, Foresight: true, Devices: true, Gates: pools.Gates{StaticCapacity: true}})
	known := label.NewVocabulary(v1.Labels(), awsv1.Labels())
	catalogs := catalog.New(r.provider).WithOverlays(r.store, known)
	for _, loop := range append(append(r.provider.Always(), r.provider.Leader()...), r.events.Run,
		overlay.New(r.store, api, catalogs, k.Metrics).Run, commitment.New(r.store, api, catalogs, k.Metrics).Run,
		quotas.New(quotas.Deps{Store: r.store, Client: api, Catalogs: catalogs, Known: known, Metrics: k.Metrics, Events: k.Sink()}).Run,
		rollout.New(rollout.Deps{Store: r.store, Client: api, Metrics: k.Metrics, Events: k.Sink()}).Run) {
		k.Add(loop)
	}
	return k
}

// faults says what events and conditions say of an object.
func (u *user) faults(o client.Object, k *sim.Karpenter) (said []string) {
	for _, e := range k.Events() {
		if e.InvolvedObject.Name == o.GetName() {
			said = append(said, e.Reason+": "+e.Message)
		}
	}
	if now, ok := o.(condition.Object); ok && u.API.Client("reader").Get(u.t.Context(), client.ObjectKeyFromObject(o), o) == nil {
		for _, c := range now.GetConditions() {
			if c.Status != metav1.ConditionTrue && c.Reason != condition.ReasonAwaitingReconciliation {
				said = append(said, c.Reason+": "+c.Message)
			}
		}
	}
	return said
}

// Objects that a user may write to harm the controller cost it little, are named where something is wrong with them, and keep
// no other pod from a node.
func TestHostileObjects(t *testing.T) {
	all := map[string]hostile{"nothing": {object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hostile"}}}}
	for _, some := range []map[string]hostile{hostilePods(), hostilePools(), hostileClasses(), hostileAddons(), hostileObjectsOfOthers()} {
		maps.Copy(all, some)
	}
	t.Logf("%d objects", len(all)-1)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		tc := all[name]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, awsmodel.Config{Types: []string{"m5.*large", "c5.*large", "m6g.*large"}})
				u := &user{world: w}
				r, err := w.replica(sim.Loud(t.Context(), "LOOP_LOG", 1), "karpenter")
				if err != nil {
					t.Fatal(err)
				}
				k := everyLoop(r)
				done := make(chan struct{})
				go func() { defer close(done); k.Run(sim.Loud(t.Context(), "LOOP_LOG", 1)) }()
				t.Cleanup(func() { <-done })
				u.API.Put(sim.Pod("before", "1"))
				u.eventually("a pod runs", 5*time.Minute, w.allRun(1))

				cpu, allocated := spent()
				u.API.Put(tc.object)
				time.Sleep(5 * time.Second)
				u.API.Put(sim.Pod("after", "6"))
				time.Sleep(time.Minute)
				cpuAfter, allocatedAfter := spent()
				cpu, allocated = cpuAfter-cpu, allocatedAfter-allocated
				said := u.faults(tc.object, k)
				t.Logf("%v, %d MiB; %.300q", cpu.Round(time.Millisecond), allocated>>20, said)
				if p, ok := sim.Find[*corev1.Pod](u.World, "after"); !ok || p.Status.Phase != corev1.PodRunning {
					t.Error("a pod that came after it does not run")
				}
				if cpu > mostCPU || allocated > mostAllocated {
					t.Errorf("it cost %v and %d MiB", cpu, allocated>>20)
				}
				if tc.named && len(said) == 0 {
					t.Error("nothing says what is wrong with it")
				}
			})
		})
	}
}
