//go:build apiserver

package apiserver

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/core/approval"
	"karpenter.sh/karpenter/internal/ui/cli"
)

var (
	ofOrphans   = regexp.MustCompile("`karpenter (orphans[^`]*)`")
	ofApproval  = regexp.MustCompile(`(?m)^karpenter ((?:approve|deny)[^#\n]*)`)
	word        = regexp.MustCompile(`"[^"]*"|\S+`)
	planOfPages = regexp.MustCompile(`underutilized-\w+`)
)

// commands are those that a page shows, in their order.
func commands(t *testing.T, page string, pattern *regexp.Regexp) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
		all = append(all, strings.TrimSpace(m[1]))
	}
	return all
}

// karpenter runs one of its commands, as a shell would, and returns what it says.
func karpenter(t *testing.T, command string) string {
	t.Helper()
	words := word.FindAllString(command, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], `"`)
	}
	var out, trouble strings.Builder
	if code := cli.Run(t.Context(), cli.Env{Out: &out, Err: &trouble}, words); code != 0 {
		t.Fatalf("karpenter %s: code %d: %s", command, code, trouble.String())
	}
	return out.String()
}

// What troubleshooting has people type about machines whose NodeClaims were lost: one is listed, kept, and in the end given up.
func TestOrphansAreDecidedByCommand(t *testing.T) {
	lost := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "lost", Labels: map[string]string{v1.NodePoolLabelKey: "default"}},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///us-east-1a/i-0123456789abcdef0"},
	}
	mustCreate(t, lost)
	mustCreate(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-others"}, Spec: corev1.NodeSpec{ProviderID: "aws:///us-east-1a/i-1"}})
	typed := commands(t, "troubleshooting.md", ofOrphans)
	if len(typed) != 3 {
		t.Fatalf("the page has %q", typed)
	}
	names := strings.NewReplacer("FILE", kubeconfig, "NODE…", "lost")
	for _, command := range typed {
		said := karpenter(t, names.Replace(command))
		if !strings.Contains(said, "lost") || strings.Contains(said, "of-others") {
			t.Errorf("karpenter %s says\n%s", command, said)
		}
		wish := map[bool]string{true: "adopt", false: "terminate"}[strings.Contains(command, "adopt")] // the list comes last, and changes nothing
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(lost), lost); err != nil || lost.Annotations[v1.OrphanAnnotationKey] != wish {
			t.Errorf("after karpenter %s the Node has the annotations %v, %v", command, lost.Annotations, err)
		}
	}
}

// What the page about approval has people type: plans that wait are listed, one is approved, another denied, with a note.
func TestPlansAreDecidedByCommand(t *testing.T) {
	t.Setenv("KUBECONFIG", kubeconfig)
	plan := func(node string) *unstructured.Unstructured {
		p := approval.PlanOf(&v1alpha1.DisruptionStep{
			Reason: v1.DisruptionReasonUnderutilized, Pods: 3, Saves: "0.8000",
			Remove: []v1alpha1.DisruptedNode{{NodeClaim: node, UID: "u", Node: node, NodePool: "default", InstanceType: "m5.4xlarge", Price: "0.9000"}},
		}, time.Now())
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{Object: fields}
		o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DisruptionPlan"))
		status := o.DeepCopy().Object["status"]
		mustCreate(t, o)
		o.Object["status"] = status
		if err := kube.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	first, second := plan("a"), plan("b")
	typed := commands(t, "steering.md", ofApproval)
	if len(typed) != 3 || typed[0] != "approve" {
		t.Fatalf("the page has %q", typed)
	}
	if said := karpenter(t, typed[0]); !strings.Contains(said, first.GetName()) || !strings.Contains(said, second.GetName()) || !strings.Contains(said, "m5.4xlarge") {
		t.Errorf("karpenter approve says\n%s", said)
	}
	for i, want := range []struct{ plan, decision, note string }{{first.GetName(), "Approved", ""}, {second.GetName(), "Denied", "not before the release"}} {
		karpenter(t, planOfPages.ReplaceAllString(typed[i+1], want.plan))
		got := &unstructured.Unstructured{Object: map[string]any{}}
		got.SetGroupVersionKind(first.GroupVersionKind())
		if err := kube.Get(t.Context(), client.ObjectKey{Name: want.plan}, got); err != nil {
			t.Fatal(err)
		}
		decision, _, _ := unstructured.NestedString(got.Object, "spec", "decision")
		note, _, _ := unstructured.NestedString(got.Object, "spec", "note")
		if decision != want.decision || note != want.note {
			t.Errorf("%s: %q because of %q, want %+v", typed[i+1], decision, note, want)
		}
	}
}

// What kubectl writes by the command of the page, into the file that replay begins with, has the nodes, their claims and the pods.
func TestThePictureThatReplayReads(t *testing.T) {
	typed := commands(t, "replay.md", regexp.MustCompile(`(?m)^kubectl (get [^#\n>]*) > cluster.yaml`))
	if len(typed) != 1 {
		t.Fatalf("the page has %q", typed)
	}
	mustCreate(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "there"}, Spec: corev1.NodeSpec{ProviderID: "aws:///us-east-1a/i-0123456789abcdef1"}})
	mustCreate(t, edited(t, "NodeClaim", "there-x2f4k", `{}`))
	waitingPod(t, "there")
	out, problems, err := kubectl(t, "", strings.Fields(typed[0])...)
	if err != nil || problems != "" {
		t.Fatalf("%v: %s", err, problems)
	}
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Name string }
		}
	}
	if err := yaml.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, o := range list.Items {
		seen[o.Kind+"/"+o.Metadata.Name] = true
	}
	for _, want := range []string{"Node/there", "NodeClaim/there-x2f4k", "Pod/there"} {
		if !seen[want] {
			t.Errorf("%s is not in the picture: %v", want, seen)
		}
	}
}
