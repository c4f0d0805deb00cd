package looptest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// windowsTaint keeps pods away that do not ask for Windows.
var windowsTaint = corev1.Taint{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule}

// addWindows adds a class and a pool "windows" of machines that boot an alias. The pool "default" stays one of Linux, to which pods go that
// select nothing.
func (w *world) addWindows(alias string) {
	nc := class()
	nc.Name, nc.UID = "windows", "class-2"
	nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: alias}}
	p := pool()
	p.Name, p.UID = "windows", "pool-2"
	p.Spec.Template.Spec.NodeClassRef = sim.Ref("windows")
	p.Spec.Template.Spec.Taints = []corev1.Taint{windowsTaint}
	p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements,
		v1.NodeSelectorRequirementWithMinValues{Key: corev1.LabelOSStable, Operator: "In", Values: []string{"windows"}})
	w.API.Put(nc)
	w.API.Put(p)
}

// deployWindows makes pods as the VPC's admission webhook leaves them: each asks for an address.
func (w *world) deployWindows(pods int, selects map[string]string) {
	for i := range pods {
		w.API.Put(sim.Pod(fmt.Sprintf("iis-%03d", i), "50m", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "iis", UID: "rs-iis", Controller: new(true)}}
			p.Spec.NodeSelector = selects
			p.Spec.Tolerations = []corev1.Toleration{{Key: "os", Operator: corev1.TolerationOpExists}}
			p.Spec.Containers[0].Resources.Requests[awsv1.ResourcePrivateIPv4Address] = resource.MustParse("1")
		}))
	}
}

// TestWindows brings pods of Windows up, on machines that run it, and lets the machines go: for each release of it. Pods of another release
// wait, pods of Linux stay away, and no machine holds more pods than one of its interfaces has addresses.
func TestWindows(t *testing.T) {
	for alias, build := range map[string]string{
		"windows2019@latest": "10.0.17763",
		"windows2022@latest": "10.0.20348",
		"windows2025@latest": "10.0.26100",
	} {
		t.Run(alias, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, awsmodel.Config{Seed: 11, Types: []string{"m5.large", "m6g.large"}}) // the one for which there is no Windows is cheaper
				w.addWindows(alias)
				defer w.start()()
				w.deployWindows(12, map[string]string{corev1.LabelOSStable: "windows", corev1.LabelWindowsBuild: build})
				w.deploy(2, "500m", "1Gi")
				w.API.Put(sim.Pod("other-release", "50m", func(p *corev1.Pod) {
					p.Spec.NodeSelector = map[string]string{corev1.LabelWindowsBuild: "10.0.14393"}
					p.Spec.Tolerations = []corev1.Toleration{{Key: "os", Operator: corev1.TolerationOpExists}}
				}))
				w.eventually("all pods but one run", 5*time.Minute, w.allRun(14))
				time.Sleep(11 * time.Minute) // until nodes have been compared with their claims
				w.wantWindows(build, 2)
				if p := sim.Get[*corev1.Pod](t, w.World, "other-release"); p.Spec.NodeName != "" {
					t.Errorf("the pod of another release runs on %s", p.Spec.NodeName)
				}

				sim.ScaleToZero(w.t, w.World)
				time.Sleep(settleTime)
				w.eventually("nothing is left", 2*time.Minute, func() string {
					if n := len(w.aws.Alive()); n > 0 {
						return fmt.Sprintf("%d machines; %s", n, w.unequal())
					}
					return w.unequal()
				})
				if len(w.cut) > 0 {
					t.Errorf("machines were stopped under running pods: %v", w.cut)
				}
			})
		})
	}
}

// wantWindows fails unless so many machines run Windows, and their nodes, claims and pods are what Windows makes of them.
func (w *world) wantWindows(build string, machines int) {
	w.t.Helper()
	const addresses = 9 // of an interface of m5.large, without the machine's own
	pods := map[string]int{}
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		pods[p.Spec.NodeName]++
	}
	nodes := 0
	for _, n := range memapi.All[*corev1.Node](w.API) {
		if n.Labels[v1.NodePoolLabelKey] != "windows" {
			if n.Labels[corev1.LabelOSStable] != "linux" {
				w.t.Errorf("node %s of pool %s runs %s", n.Name, n.Labels[v1.NodePoolLabelKey], n.Labels[corev1.LabelOSStable])
			}
			continue
		}
		nodes++
		has := n.Status.Allocatable[awsv1.ResourcePrivateIPv4Address]
		if n.Labels[corev1.LabelOSStable] != "windows" || n.Labels[corev1.LabelWindowsBuild] != build || n.Labels[corev1.LabelArchStable] != "amd64" || has.Value() != addresses {
			w.t.Errorf("node %s has %d addresses and labels %v", n.Name, has.Value(), n.Labels)
		}
		if len(n.Spec.Taints) != 1 || n.Spec.Taints[0] != windowsTaint {
			w.t.Errorf("node %s has taints %v, want the pool's alone", n.Name, n.Spec.Taints)
		}
		if pods[n.Name] > addresses {
			w.t.Errorf("node %s has %d pods and %d addresses", n.Name, pods[n.Name], addresses)
		}
	}
	if nodes != machines {
		w.t.Errorf("%d nodes of Windows, want %d", nodes, machines)
	}
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		if c.Labels[v1.NodePoolLabelKey] != "windows" {
			continue
		}
		has := c.Status.Capacity[awsv1.ResourcePrivateIPv4Address]
		if c.Labels[corev1.LabelWindowsBuild] != build || has.Value() != addresses || !condition.IsTrue(c, v1.ConditionTypeConsistentStateFound) {
			w.t.Errorf("claim %s has %d addresses, labels %v, conditions %v", c.Name, has.Value(), c.Labels, c.Status.Conditions)
		}
	}
	out, err := ec2.NewFromConfig(w.aws.AWSConfig()).DescribeInstances(w.t.Context(), &ec2.DescribeInstancesInput{})
	if err != nil {
		w.t.Fatal(err)
	}
	running := 0
	for _, r := range out.Reservations {
		if i := r.Instances[0]; i.Platform == ec2types.PlatformValuesWindows {
			running++
			if i.InstanceType != "m5.large" {
				w.t.Errorf("machine %s is a %s", *i.InstanceId, i.InstanceType)
			}
		}
	}
	if running != machines {
		w.t.Errorf("%d machines of Windows, want %d", running, machines)
	}
}
