package looptest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// An answer of karpenter why, as JSON.
type whyAnswer struct {
	State   string
	Reasons []struct{ Code, Text string }
	Pools   []struct{ Rules []struct{ Code, Text string } }
	Cures   []struct {
		Changes  []struct{ Kind, Text string }
		Commands []string
	}
	Holds []struct {
		Code, Text string
		Commands   []string
	}
}

// why asks karpenter.
func (u *user) why(kind, name string) (a whyAnswer) {
	u.t.Helper()
	_, out, trouble := u.karpenter("why", kind, name, "--kubeconfig", "here", "-o", "json")
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		u.t.Fatalf("%v: %s%s", err, out, trouble)
	}
	return a
}

// userOf starts a world with a user and Karpenter.
func userOf(t *testing.T, before func(*user)) *user {
	u := &user{types: []string{"m5.*large", "c5.*large", "m6g.*large"}}
	u.world = newWorld(t, awsmodel.Config{Types: u.types})
	u.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	u.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	u.API.Put(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gp3",
		Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &wait})
	before(u)
	r, err := u.replica(sim.Loud(t.Context(), "LOOP_LOG", 1), "karpenter")
	if err != nil {
		t.Fatal(err)
	}
	u.gauges = r.provider.Gauges()
	k := r.karpenter(r.provider.Always())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(sim.Loud(t.Context(), "LOOP_LOG", 1)) }()
	t.Cleanup(func() { <-done })
	return u
}

// editPool changes the pool "default".
func (u *user) editPool(edit func(*v1.NodePoolSpec)) {
	memapi.Edit(u.API, "", "default", func(p *v1.NodePool) { edit(&p.Spec); p.Generation++ })
}

// only lets the pool have only some values of a label.
func only(key string, values ...string) func(*user) {
	return func(u *user) {
		u.editPool(func(s *v1.NodePoolSpec) {
			reqs := slices.DeleteFunc(s.Template.Spec.Requirements, func(r v1.NodeSelectorRequirementWithMinValues) bool { return r.Key == key })
			s.Template.Spec.Requirements = append(reqs, v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: "In", Values: values})
		})
	}
}

// selects has a pod ask for a label.
func selects(key, value string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{key: value} }
}

func claims(name string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	}
}

// soldOut has EC2 sell none of what matches.
func soldOut(match string) func(*user) {
	return func(u *user) {
		if err := u.aws.SetFaults(func(f *awsmodel.Faults) { f.Pools = []awsmodel.PoolRule{{Match: match}} }); err != nil {
			u.t.Fatal(err)
		}
	}
}

// ofClass lets the pool "default" have another class.
func ofClass(name string) func(*user) {
	return func(u *user) { u.editPool(func(s *v1.NodePoolSpec) { s.Template.Spec.NodeClassRef = sim.Ref(name) }) }
}

// In each of these situations a pod waits. karpenter why names the cause and a command; it is typed, and then the pod runs.
var waiting = map[string]struct {
	before func(*user)
	cpus   string
	pod    func(*corev1.PodSpec)
	code   string // of the cause
	cure   string // the kind of the change whose command is typed
}{
	"the class of the pool does not exist": {before: ofClass("absent"), code: "NodeClassNotReady", cure: "MendClass"},
	"the class of the pool is not ready": {before: func(u *user) {
		broken := class()
		broken.Name, broken.UID = "broken", "class-2"
		broken.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{Tags: map[string]string{"no": "such"}}}
		u.API.Put(broken)
		ofClass("broken")(u)
	}, code: "NodeClassNotReady", cure: "MendClass"},
	"the limit of the pool is reached": {before: func(u *user) {
		u.editPool(func(s *v1.NodePoolSpec) { s.Limits = v1.Limits{"cpu": resource.MustParse("1")} })
	}, code: "PoolLimit", cure: "RaiseLimit"},
	"the pool has a taint that the pod does not tolerate": {before: func(u *user) {
		u.editPool(func(s *v1.NodePoolSpec) {
			s.Template.Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
		})
	}, code: "TaintNotTolerated", cure: "Tolerate"},
	"no pool has the label that the pod selects":  {pod: selects("team", "b"), code: "LabelUnknown", cure: "AllowValue"},
	"the pod selects a label with a typing error": {pod: selects("karpenter.sh/capacity_type", "spot"), code: "RestrictedLabel", cure: "DropSelector"},
	"the pod asks for a zone that the pool leaves out": {before: only(corev1.LabelTopologyZone, "us-east-1a"),
		pod: selects(corev1.LabelTopologyZone, "us-east-1b"), code: "LabelMismatch", cure: "AllowValue"},
	"the pod asks for a zone of another region": {pod: selects(corev1.LabelTopologyZone, "eu-west-1a"), code: "LabelMismatch", cure: "DropSelector"},
	"the pod asks for arm64 and the pool has amd64": {before: only(corev1.LabelArchStable, "amd64"), pod: selects(corev1.LabelArchStable, "arm64"),
		code: "LabelMismatch", cure: "AllowValue"},
	"the pod asks for an instance type that there is not": {pod: selects(corev1.LabelInstanceTypeStable, "m5.enormous"), code: "LabelMismatch", cure: "DropSelector"},
	"the pod asks for a pool that is gone":                {pod: selects(v1.NodePoolLabelKey, "gone"), code: "LabelMismatch", cure: "DropSelector"},
	"the pod is bigger than any type":                     {cpus: "900", code: "DoesNotFit", cure: "LowerRequest"},
	"the pool asks for more types than there are": {before: func(u *user) {
		only(corev1.LabelInstanceTypeStable, "m5.large", "c5.large", "m5.enormous")(u)
		u.editPool(func(s *v1.NodePoolSpec) {
			s.Template.Spec.Requirements[len(s.Template.Spec.Requirements)-1].MinValues = new(3)
		})
	}, code: "MinValues", cure: "LowerMinValues"},
	"the zone that the pod asks for is sold out": {before: soldOut("*/*/us-east-1a"), pod: selects(corev1.LabelTopologyZone, "us-east-1a"),
		code: "SoldOut", cure: "DropSelector"},
	"the pool buys spot only, and that is sold out": {before: func(u *user) {
		only(v1.CapacityTypeLabelKey, "spot")(u)
		soldOut("spot/*/*")(u)
	}, code: "SoldOut", cure: "AllowValue"},
	"the account may have no more on-demand machines": {before: func(u *user) {
		only(v1.CapacityTypeLabelKey, "on-demand")(u)
		if err := u.aws.SetFaults(func(f *awsmodel.Faults) { f.OnDemandVCPUs = 1 }); err != nil {
			u.t.Fatal(err)
		}
	}, code: "SoldOut", cure: "AllowValue"},
	"the volume claim does not exist": {pod: claims("data"), code: "VolumeInvalid", cure: "CreateVolume"},
	"the volume is in a zone that the pool leaves out": {before: func(u *user) {
		only(corev1.LabelTopologyZone, "us-east-1a")(u)
		u.API.Put(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "data"},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{"us-east-1d"}}}}}}},
		}})
		u.API.Put(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data",
			Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
			Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "pv", StorageClassName: new("gp3")},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}})
	}, pod: claims("data"), code: "LabelMismatch", cure: "AllowValue"},
	"the pod must be near a pod that there is not": {pod: func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}}}
	}, code: "PodAffinity", cure: "DropAffinity"},
	"the pod must be spread over more zones than the pool has": {before: only(corev1.LabelTopologyZone, "us-east-1a"), pod: func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{"us-east-1c"}}}}}}}}
	}, code: "LabelMismatch", cure: "DropNodeAffinity"},
	"the pod has a scheduling gate": {pod: func(s *corev1.PodSpec) {
		s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
	}, code: "SchedulingGates", cure: "RemoveGates"},
}

func TestWhyAPodWaitsAndTheCommandThatMendsIt(t *testing.T) {
	for name, tc := range waiting {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := userOf(t, func(u *user) {
					if tc.before != nil {
						tc.before(u)
					}
				})
				time.Sleep(20 * time.Second) // until classes are judged
				edit := tc.pod
				if edit == nil {
					edit = func(*corev1.PodSpec) {}
				}
				u.deployment("web", max(tc.cpus, "1"), edit)
				time.Sleep(time.Minute)
				if n := u.running(); n > 0 {
					t.Fatal("the pod runs")
				}
				a := u.why("pod", "web-1")
				if !a.says(tc.code) {
					t.Errorf("the cause is not %s: %+v", tc.code, a)
				}
				u.typed(a.commandOf(t, tc.cure))
				u.eventually("the pod runs", 10*time.Minute, func() string {
					if u.running() == 0 {
						return "it waits"
					}
					return ""
				})
			})
		})
	}
}

func (a *whyAnswer) says(code string) bool {
	rules := a.Reasons
	for _, p := range a.Pools {
		rules = append(rules, p.Rules...)
	}
	return slices.ContainsFunc(rules, func(r struct{ Code, Text string }) bool { return r.Code == code })
}

// commandOf is what makes a change that helps by itself.
func (a *whyAnswer) commandOf(t *testing.T, kind string) string {
	t.Helper()
	for _, c := range a.Cures {
		if len(c.Changes) == 1 && c.Changes[0].Kind == kind && len(c.Commands) > 0 {
			t.Logf("%s:\n%s", c.Changes[0].Text, strings.Join(c.Commands, "\n"))
			return strings.Join(c.Commands, " && ")
		}
	}
	t.Fatalf("there is no command for %s: %+v", kind, a)
	return ""
}

// annotated sets an annotation.
func annotated[T client.Object](u *user, namespace, name, key, value string) {
	memapi.Edit(u.API, namespace, name, func(o T) {
		all := maps.Clone(o.GetAnnotations())
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
		o.SetAnnotations(all)
	})
}

// In each of these situations a node stays, or its removal does not end.
var staying = map[string]struct {
	before func(*user)
	hold   func(u *user, node, claim string) // after the node is there, with a pod of 1 and a pod of 6 CPU
	code   string
}{
	"the node has do-not-disrupt": {hold: func(u *user, node, _ string) {
		annotated[*corev1.Node](u, "", node, v1.DoNotDisruptAnnotationKey, "true")
	}, code: "NodeDoNotDisrupt"},
	"its claim has do-not-disrupt": {hold: func(u *user, _, claim string) {
		annotated[*v1.NodeClaim](u, "", claim, v1.DoNotDisruptAnnotationKey, "true")
	}, code: "NodeClaimDoNotDisrupt"},
	"a pod has do-not-disrupt": {hold: func(u *user, _, _ string) {
		annotated[*corev1.Pod](u, "default", "web-1", v1.DoNotDisruptAnnotationKey, "true")
	}, code: "PodDoNotDisrupt"},
	"a PodDisruptionBudget allows nothing": {hold: protect, code: "PodDisruptionBudget"},
	"the budget of the pool is 0": {before: disruption(func(d *v1.Disruption) { d.Budgets = []v1.Budget{{Nodes: "0"}} }),
		code: "Budget"},
	"the window of a budget is not open": {before: disruption(func(d *v1.Disruption) {
		d.Budgets = []v1.Budget{{Nodes: "0", Schedule: new("0 0 * * *"), Duration: &metav1.Duration{Duration: 24 * time.Hour}}}
	}), code: "Budget"},
	"consolidateAfter is Never":    {before: disruption(func(d *v1.Disruption) { d.ConsolidateAfter = v1.NillableDuration{} }), code: "ConsolidateNever"},
	"consolidateAfter is not over": {before: disruption(func(d *v1.Disruption) { d.ConsolidateAfter = v1.After(time.Hour) }), code: "Settling"},
	"the policy is WhenEmpty":      {before: disruption(func(d *v1.Disruption) { d.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmpty }), code: "OnlyWhenEmpty"},
	"the pool is paused": {hold: func(u *user, _, _ string) {
		annotated[*v1.NodePool](u, "", "default", v1.PausedAnnotationKey, "true")
	}, code: "Paused"},
	"the cluster is paused": {hold: func(u *user, _, _ string) {
		annotated[*corev1.Namespace](u, "", v1.PausedNamespace, v1.PausedAnnotationKey, "true")
	}, code: "Paused"},
	"the node has drifted, and the budget holds it": {before: disruption(func(d *v1.Disruption) {
		d.Budgets = []v1.Budget{{Nodes: "0", Reasons: []v1.DisruptionReason{v1.DisruptionReasonDrifted}}}
		d.ConsolidateAfter = v1.NillableDuration{}
	}), hold: func(u *user, _, _ string) {
		u.editPool(func(s *v1.NodePoolSpec) { s.Template.Labels = map[string]string{"team": "new"} })
	}, code: "Budget"},
	"its startup taint is not removed": {before: func(u *user) {
		u.editPool(func(s *v1.NodePoolSpec) {
			s.Template.Spec.StartupTaints = []corev1.Taint{{Key: "example.com/agent", Effect: corev1.TaintEffectNoExecute}}
		})
	}, code: "NotInitialized"},
	"it is drained, and a PodDisruptionBudget holds a pod": {hold: func(u *user, node, claim string) {
		protect(u, node, claim)
		sim.Delete(u.t, u.World, sim.Get[*v1.NodeClaim](u.t, u.World, claim))
	}, code: "Deleting"},
	"it is too old, and a pod with do-not-disrupt holds it": {before: func(u *user) {
		u.editPool(func(s *v1.NodePoolSpec) { s.Template.Spec.ExpireAfter = v1.After(5 * time.Minute) })
	}, hold: func(u *user, _, _ string) {
		annotated[*corev1.Pod](u, "default", "web-1", v1.DoNotDisruptAnnotationKey, "true")
		time.Sleep(10 * time.Minute)
	}, code: "Deleting"},
	"a user has to approve of the step": {hold: func(u *user, _, _ string) {
		annotated[*v1.NodePool](u, "", "default", v1.ApprovalAnnotationKey, "manual")
		time.Sleep(2 * time.Minute)
	}, code: "InStep"},
}

func disruption(edit func(*v1.Disruption)) func(*user) {
	return func(u *user) { u.editPool(func(s *v1.NodePoolSpec) { edit(&s.Disruption) }) }
}

// protect adds a budget that lets the pod of 1 CPU never go.
func protect(u *user, _, _ string) {
	one := intstr.FromInt32(1)
	u.API.Put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}})
	u.controllers()
}

func TestWhyANodeStaysAndTheCommandThatLetsItGo(t *testing.T) {
	for name, tc := range staying {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := userOf(t, func(u *user) {
					only(v1.CapacityTypeLabelKey, "on-demand")(u)
					disruption(func(d *v1.Disruption) { d.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmptyOrUnderutilized })(u)
					if tc.before != nil {
						tc.before(u)
					}
				})
				u.deployment("web", "1")
				u.API.Put(sim.Pod("large", "6"))
				u.eventually("a node is there", 5*time.Minute, func() string {
					if nodes := memapi.All[*corev1.Node](u.API); len(nodes) != 1 || nodes[0].Labels[v1.NodeRegisteredLabelKey] != "true" {
						return fmt.Sprintf("there are %d nodes", len(nodes))
					}
					return ""
				})
				time.Sleep(30 * time.Second)
				node := memapi.All[*corev1.Node](u.API)[0].Name
				claim := memapi.All[*v1.NodeClaim](u.API)[0].Name
				if tc.hold != nil {
					tc.hold(u, node, claim)
				}
				if p, ok := sim.Find[*corev1.Pod](u.World, "large"); ok { // nor does it have another place
					sim.Delete(t, u.World, p)
				}
				time.Sleep(3 * time.Minute)
				if _, ok := sim.Find[*corev1.Node](u.World, node); !ok {
					t.Fatal("the node has gone")
				}
				u.controllers()
				a := u.why("node", node)
				command := ""
				for _, h := range a.Holds {
					if h.Code == tc.code && len(h.Commands) > 0 {
						command = strings.Join(h.Commands, " && ")
						t.Logf("%s:\n%s", h.Text, strings.Join(h.Commands, "\n"))
					}
				}
				if command == "" {
					t.Fatalf("there is no command for %s: %+v", tc.code, a)
				}
				u.typed(command)
				u.eventually("the node goes", 30*time.Minute, func() string {
					n, ok := sim.Find[*corev1.Node](u.World, node)
					if tc.code == "NotInitialized" {
						if ok && n.Labels[v1.NodeInitializedLabelKey] == "true" {
							return ""
						}
						return "the node is not initialised"
					}
					if ok {
						return "it stays"
					}
					return ""
				})
			})
		})
	}
}
