package looptest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// fleet is how many machines another Karpenter leaves behind, each with one pod.
const fleet = 5

// A predecessor is a release of Karpenter, by what it left on machines, Nodes and claims.
type predecessor struct {
	tags map[string]string // of a machine, without those that name its Node and its claim
	// alpha says that there were no claims: nodes belonged to a Provisioner, or to a Machine that did.
	alpha bool
	owner metav1.OwnerReference
	stamp map[string]string // of its claims
}

func predecessors() map[string]predecessor {
	cluster := map[string]string{awsv1.TagClusterPrefix + "demo": "owned"}
	with := func(more ...string) map[string]string {
		out := maps.Clone(cluster)
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	stamp := func(version string) map[string]string {
		return map[string]string{
			v1.NodePoolHashAnnotationKey: "9876543210", v1.NodePoolHashVersionAnnotationKey: version,
			awsv1.AnnotationNodeClassHash: "1234567890", awsv1.AnnotationNodeClassHashVersion: version,
		}
	}
	pool, class := []string{awsv1.TagNodePool, "default"}, []string{awsv1.TagNodeClass, "default"}
	return map[string]predecessor{
		"0.26": {with(awsv1.TagProvisioner, "web", awsv1.TagName, "karpenter.sh/provisioner-name/web"), true,
			metav1.OwnerReference{APIVersion: "karpenter.sh/v1alpha5", Kind: "Provisioner", Name: "web", UID: "provisioner-1"}, nil},
		"0.31": {with(awsv1.TagProvisioner, "web", awsv1.TagName, "karpenter.sh/provisioner-name/web", awsv1.TagManagedBy, "demo"), true,
			metav1.OwnerReference{APIVersion: "karpenter.sh/v1alpha5", Kind: "Machine", Name: "web-x", UID: "machine-1"}, nil},
		"0.33": {with(append(append(pool, class...), awsv1.TagManagedBy, "demo", awsv1.TagName, "ip-10-0-0-1")...), false, metav1.OwnerReference{}, stamp("v1")},
		"1.0":  {with(append(append(pool, class...), awsv1.TagClusterName, "demo", awsv1.TagName, "ip-10-0-0-1")...), false, metav1.OwnerReference{}, stamp("v3")},
		"1.14": {with(append(append(pool, class...), awsv1.TagClusterName, "demo", awsv1.TagName, "ip-10-0-0-1")...), false, metav1.OwnerReference{}, stamp("v4")},
	}
}

// leave makes the fleet of the world that of a predecessor: everything that we have written ourselves goes.
func (p predecessor) leave(w *world) {
	people := ec2.NewFromConfig(w.aws.AWSConfig())
	for _, m := range w.aws.Alive() {
		var mine []ec2types.Tag
		for key := range m.Tags {
			mine = append(mine, ec2types.Tag{Key: awssdk.String(key)})
		}
		if _, err := people.DeleteTags(w.t.Context(), &ec2.DeleteTagsInput{Resources: []string{m.ID}, Tags: mine}); err != nil {
			w.t.Fatal(err)
		}
		if _, err := people.CreateTags(w.t.Context(), &ec2.CreateTagsInput{Resources: []string{m.ID}, Tags: ec2api.Tags(p.tags)}); err != nil {
			w.t.Fatal(err)
		}
	}
	if p.alpha {
		p.leaveNodes(w)
		return
	}
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		memapi.Edit(w.API, "", c.Name, func(c *v1.NodeClaim) { c.Annotations = maps.Clone(p.stamp) })
	}
	memapi.Edit(w.API, "", "default", func(o *v1.NodePool) { o.Annotations = maps.Clone(p.stamp) })
	memapi.Edit(w.API, "", "default", func(o *awsv1.EC2NodeClass) { o.Annotations = maps.Clone(p.stamp) })
}

// leaveNodes makes Nodes what they were without claims.
func (p predecessor) leaveNodes(w *world) {
	for _, n := range memapi.All[*corev1.Node](w.API) {
		memapi.Edit(w.API, "", n.Name, func(n *corev1.Node) {
			for _, key := range []string{v1.NodePoolLabelKey, v1.NodeRegisteredLabelKey, awsv1.LabelNodeClass} {
				delete(n.Labels, key)
			}
			n.Labels[v1.ProvisionerLabelKey] = "web"
			n.Annotations, n.OwnerReferences = nil, []metav1.OwnerReference{p.owner}
		})
	}
	// Only now: a Node goes with its owner.
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		memapi.Edit(w.API, "", c.Name, func(c *v1.NodeClaim) { c.Finalizers = nil })
		w.API.Remove(c)
	}
	w.API.Put(heir("default", "web"))
}

// heir is a pool that stands in for a Provisioner. Nodes get a taint that evicts and one that keeps pods away while they start.
func heir(name, provisioner string) *v1.NodePool {
	p := pool()
	p.Name, p.UID = name, "heir-of-"+p.UID
	p.Annotations = map[string]string{v1.ProvisionerAnnotationKey: provisioner}
	p.Spec.Template.Labels = map[string]string{"team": "blue"}
	p.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "late", Effect: corev1.TaintEffectNoExecute}}
	p.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: "starting", Effect: corev1.TaintEffectNoExecute}}
	return p
}

// settled starts a world with a fleet of ours, which a predecessor then leaves.
func (p predecessor) settled(t *testing.T) *world {
	w := newWorld(t, awsmodel.Config{Seed: 15, Types: []string{"m5.4xlarge"}})
	end := w.start()
	time.Sleep(10 * time.Second)
	w.deploy(fleet, "13", "20Gi") // one to a machine
	w.eventually("all pods run", 5*time.Minute, w.allRun(fleet))
	time.Sleep(5 * time.Minute)
	end()
	p.leave(w)
	return w
}

// places says where each pod runs.
func (w *world) places() map[string]string {
	out := map[string]string{}
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		out[string(p.UID)+" "+string(p.Status.Phase)] = p.Spec.NodeName
	}
	return out
}

// ids are the machines that run.
func (w *world) ids() []string {
	var out []string
	for _, m := range w.aws.Alive() {
		out = append(out, m.ID)
	}
	slices.Sort(out)
	return out
}

// Whoever was there before us: its machines go on with their pods, drift nothing, can be taken back, and are stopped when they are empty.
func TestFleetsOfOtherKarpentersAreTakenOver(t *testing.T) {
	for name, p := range predecessors() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := p.settled(t)
				machines, pods := w.ids(), w.places()
				end := w.start()
				w.eventually("machines, claims and nodes are the same", 2*time.Minute, w.unequal)
				time.Sleep(2 * time.Hour)
				if got := w.ids(); !slices.Equal(got, machines) {
					t.Errorf("machines = %v, want those that were there: %v", got, machines)
				}
				if got := w.places(); !maps.Equal(got, pods) {
					t.Errorf("pods = %v, want %v", got, pods)
				}
				w.wantTaken(p)
				sim.ScaleToZero(w.t, w.World)
				w.eventually("nothing is left", 10*time.Minute, w.nothing)
				if len(w.cut) > 0 {
					t.Errorf("pods were cut: %v", w.cut)
				}
				end()
			})
		})
	}
}

// Whoever goes back, by the steps of docs/moving.md, finds everything that the other looks for, and nothing has stopped. Whoever then comes again
// is taken over again.
func TestFleetsAreGivenBack(t *testing.T) {
	for name, p := range predecessors() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := p.settled(t)
				machines, pods, nodes, claims := w.ids(), w.places(), w.nodes(), w.claims()
				same := func(when string) {
					t.Helper()
					if got := w.ids(); !slices.Equal(got, machines) {
						t.Errorf("%s: machines = %v, want those that were there: %v", when, got, machines)
					}
					if got := w.places(); !maps.Equal(got, pods) {
						t.Errorf("%s: pods = %v, want %v", when, got, pods)
					}
				}
				end := w.start()
				w.eventually("machines, claims and nodes are the same", 2*time.Minute, w.unequal)
				time.Sleep(20 * time.Minute)
				w.wantTaken(p)
				end()
				if p.alpha {
					w.letGo()
				}
				time.Sleep(20 * time.Minute)
				same("given back")
				w.wantGivenBack(p, nodes, claims)
				end = w.start()
				w.eventually("they are the same once more", 2*time.Minute, w.unequal)
				time.Sleep(20 * time.Minute)
				same("taken again")
				w.wantTaken(p)
				end()
			})
		})
	}
}

// letGo deletes the claims of machines that had none, as the guide says.
func (w *world) letGo() {
	people := w.API.Client("people")
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		if err := people.Delete(w.t.Context(), c, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, n := range memapi.All[*corev1.Node](w.API) {
		if len(n.OwnerReferences) > 0 {
			w.t.Fatalf("node %s belongs to %v", n.Name, n.OwnerReferences)
		}
	}
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		if err := people.Patch(w.t.Context(), c, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			w.t.Fatal(err)
		}
	}
}

// wantGivenBack checks that machines, Nodes and claims still have what the predecessor knew them by.
func (w *world) wantGivenBack(p predecessor, nodes map[string]*corev1.Node, claims map[string]*v1.NodeClaim) {
	w.t.Helper()
	for _, m := range w.aws.Alive() {
		if !within(p.tags, m.Tags) {
			w.t.Errorf("machine %s has the tags %v, had %v", m.ID, m.Tags, p.tags)
		}
	}
	for name, n := range w.nodes() {
		if old := nodes[name]; old == nil || n.UID != old.UID || n.Spec.ProviderID != old.Spec.ProviderID || !within(old.Labels, n.Labels) {
			w.t.Errorf("node %s = %v, was %v", name, n, old)
		}
		if n.DeletionTimestamp != nil || n.Spec.Unschedulable || len(n.Spec.Taints) > 0 || !slices.Contains(n.Finalizers, v1.TerminationFinalizer) {
			w.t.Errorf("node %s is not what a predecessor goes on with: %v", name, n)
		}
		delete(nodes, name)
	}
	if len(nodes) > 0 {
		w.t.Errorf("nodes that are gone: %v", slices.Collect(maps.Keys(nodes)))
	}
	left := w.claims()
	if len(left) != len(claims) {
		w.t.Errorf("%d claims, want %d", len(left), len(claims))
	}
	for name, c := range left {
		if old := claims[name]; old == nil || c.UID != old.UID || c.DeletionTimestamp != nil || c.Status.ProviderID != old.Status.ProviderID || !within(old.Labels, c.Labels) {
			w.t.Errorf("claim %s = %v, was %v", name, c, old)
		}
		for _, stamp := range []string{v1.NodePoolHashVersionAnnotationKey, awsv1.AnnotationNodeClassHashVersion} {
			if c.Annotations[stamp] == p.stamp[stamp] {
				w.t.Errorf("claim %s says that %s is the predecessor's %s: it would compare our hash with its own", name, stamp, p.stamp[stamp])
			}
		}
	}
}

// within says whether all of part is in whole.
func within(part, whole map[string]string) bool {
	for key, value := range part {
		if got, ok := whole[key]; !ok || got != value {
			return false
		}
	}
	return true
}

func (w *world) nodes() map[string]*corev1.Node   { return byName(memapi.All[*corev1.Node](w.API)) }
func (w *world) claims() map[string]*v1.NodeClaim { return byName(memapi.All[*v1.NodeClaim](w.API)) }

func byName[T client.Object](objects []T) map[string]T {
	out := map[string]T{}
	for _, o := range objects {
		out[o.GetName()] = o
	}
	return out
}

// nothing says which machines, claims and nodes there are.
func (w *world) nothing() string {
	machines, claims, nodes := len(w.ids()), len(memapi.All[*v1.NodeClaim](w.API)), len(memapi.All[*corev1.Node](w.API))
	if machines+claims+nodes == 0 {
		return ""
	}
	return fmt.Sprintf("%d machines, %d claims, %d nodes", machines, claims, nodes)
}

// wantTaken checks that everything is ours now, and still what the predecessor finds its own by.
func (w *world) wantTaken(p predecessor) {
	for _, m := range w.aws.Alive() {
		for key, value := range p.tags {
			if m.Tags[key] != value {
				w.t.Errorf("tag %s of machine %s is %q, was %q", key, m.ID, m.Tags[key], value)
			}
		}
		if m.Tags[awsv1.TagNodePool] != "default" || m.Tags[awsv1.TagNodeClass] != "default" || m.Tags[awsv1.TagClusterName] != "demo" || m.Tags[awsv1.TagNodeClaim] == "" {
			w.t.Errorf("machine %s is not tagged as ours: %v", m.ID, m.Tags)
		}
	}
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		for _, cond := range c.Status.Conditions {
			if cond.Type == v1.ConditionTypeDrifted {
				w.t.Errorf("claim %s has drifted: %s", c.Name, cond.Reason)
			}
		}
	}
	for _, n := range memapi.All[*corev1.Node](w.API) {
		if len(n.Spec.Taints) > 0 || !slices.Contains(n.Finalizers, v1.TerminationFinalizer) || n.Labels[v1.NodePoolLabelKey] != "default" {
			w.t.Errorf("node %s: taints %v, finalizers %v, labels %v", n.Name, n.Spec.Taints, n.Finalizers, n.Labels)
		}
		if p.alpha && (n.Labels[v1.ProvisionerLabelKey] != "web" || len(n.OwnerReferences) != 1 || n.OwnerReferences[0].Kind != "NodeClaim") {
			w.t.Errorf("node %s: labels %v, owners %v", n.Name, n.Labels, n.OwnerReferences)
		}
	}
}

// Pods go on to choose a Provisioner by its label where a pool stands in for it, on nodes that were taken over and on new ones.
func TestPodsThatChooseAProvisioner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := predecessors()["0.26"]
		w := p.settled(t)
		memapi.Edit(w.API, "", "default", func(o *v1.NodePool) { o.Spec.Template.Spec.Taints, o.Spec.Template.Spec.StartupTaints = nil, nil })
		defer w.start()()
		w.eventually("machines, claims and nodes are the same", 2*time.Minute, w.unequal)
		for i, provisioner := range []string{"web", "web", "batch"} {
			w.API.Put(sim.Pod(fmt.Sprintf("choosy-%d", i), "13", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{v1.ProvisionerLabelKey: provisioner} }))
		}
		w.eventually("pods that chose the Provisioner run", 5*time.Minute, w.allRun(fleet+2))
		for _, c := range memapi.All[*v1.NodeClaim](w.API) {
			if c.Labels[v1.ProvisionerLabelKey] != "web" {
				t.Errorf("claim %s has the labels %v", c.Name, c.Labels)
			}
		}
		for _, n := range memapi.All[*corev1.Node](w.API) {
			if n.Labels[v1.ProvisionerLabelKey] != "web" {
				t.Errorf("node %s has the labels %v", n.Name, n.Labels)
			}
		}
	})
}
