//go:build apiserver

package conversion

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/api/crds"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// A reader does what docs/moving.md says: it types its commands, as they stand there, into a shell in a folder of its own.
type reader struct {
	*cluster
	folder string
	page   map[string][]string // the blocks of commands of each section
}

// guide is the page.
const guide = "../../docs/moving.md"

var (
	section = regexp.MustCompile(`(?m)^## (.*)$`)
	block   = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$")
	until   = regexp.MustCompile(`\s+# until it says (.+)$`)
)

func read(t *testing.T, c *cluster) *reader {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{c, t.TempDir(), map[string][]string{}}
	titles := section.FindAllSubmatchIndex(text, -1)
	for i, at := range titles {
		end := len(text)
		if i+1 < len(titles) {
			end = titles[i+1][0]
		}
		for _, m := range block.FindAllSubmatch(text[at[1]:end], -1) {
			title := string(text[at[2]:at[3]])
			r.page[title] = append(r.page[title], string(m[1]))
		}
	}
	local, err := filepath.EvalSymlinks(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"))
	if err != nil {
		t.Fatal(err)
	}
	charts, err := filepath.Abs("../../charts")
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"charts": charts, "bin/kubectl": local, "bin/helm": local, "bin/karpenter": filepath.Join(filepath.Dir(local), "karpenter")} {
		at := filepath.Join(r.folder, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, at); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// write puts files into the folder.
func (r *reader) write(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(r.folder, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *reader) shell(t *testing.T, command string) (string, error) {
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Dir = r.folder
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(r.folder, "bin")+":"+os.Getenv("PATH"), "KUBECONFIG="+r.kubeconfig, "HOME="+r.folder)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *reader) do(t *testing.T, command string) string {
	t.Helper()
	out, err := r.shell(t, command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

// types types a block of a section, counted from 0.
func (r *reader) types(t *testing.T, section string, which int) {
	t.Helper()
	if which >= len(r.page[section]) {
		t.Fatalf("%s has no block %d in section %q, only %q", guide, which, section, r.page[section])
	}
	for line := range strings.Lines(r.page[section][which]) {
		line = strings.TrimSpace(line)
		if says := until.FindStringSubmatch(line); says != nil {
			want := strings.Replace(says[1], "nothing", "", 1)
			eventually(t, line, func() error {
				if out, err := r.shell(t, line); err != nil || strings.TrimSpace(out) != want {
					return fmt.Errorf("it says %q, %v", out, err)
				}
				return nil
			})
			continue
		}
		r.do(t, line)
	}
}

// installed returns the controller as it is installed: its image, and one of its variables.
func (r *reader) installed(t *testing.T, variable string) (image, value string) {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := r.Get(t.Context(), client.ObjectKey{Namespace: "karpenter", Name: "karpenter"}, d); err != nil {
		t.Fatal(err)
	}
	c := d.Spec.Template.Spec.Containers[0]
	if i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == variable }); i >= 0 {
		value = c.Env[i].Value
	}
	return c.Image, value
}

// want checks whose controller is installed, and what it does about v1beta1.
func (r *reader) want(t *testing.T, image, v1beta1 string) {
	t.Helper()
	if got, value := r.installed(t, "V1BETA1"); !strings.HasPrefix(got, image) || value != v1beta1 {
		t.Errorf("the controller is %s with V1BETA1=%q, want %s with %q", got, value, image, v1beta1)
	}
}

// former is the chart of an older Karpenter, as far as an upgrade meets it: names, selectors and the role binding that cannot be changed, and the
// definitions that Helm installs once.
func former(t *testing.T, version string, definitions []*apiextensionsv1.CustomResourceDefinition) map[string]string {
	t.Helper()
	const labels = "{app.kubernetes.io/name: karpenter, app.kubernetes.io/instance: karpenter}"
	var all []string
	for _, crd := range definitions {
		crd = crd.DeepCopy()
		crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		text, err := yaml.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return map[string]string{
		"former/Chart.yaml":    "{apiVersion: v2, name: karpenter, version: " + version + "}",
		"former/crds/all.yaml": strings.Join(all, "---\n"),
		"former/templates/all.yaml": strings.ReplaceAll(`
{apiVersion: v1, kind: ServiceAccount, metadata: {name: karpenter, namespace: karpenter, labels: LABELS}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: karpenter, labels: LABELS}, rules: []}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: karpenter, labels: LABELS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: karpenter}
subjects: [{kind: ServiceAccount, name: karpenter, namespace: karpenter}]
---
{apiVersion: v1, kind: Service, metadata: {name: karpenter, namespace: karpenter, labels: LABELS}, spec: {selector: LABELS, ports: [{name: http-metrics, port: 8000}]}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: karpenter, namespace: karpenter, labels: LABELS}, spec: {maxUnavailable: 1, selector: {matchLabels: LABELS}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: karpenter, namespace: karpenter, labels: LABELS}
spec:
  replicas: 2
  selector: {matchLabels: LABELS}
  template:
    metadata: {labels: LABELS}
    spec:
      serviceAccountName: karpenter
      containers:
        - {name: controller, image: "former:{{ .Chart.Version }}", ports: [{name: http-metrics, containerPort: 8000}], env: [{name: CLUSTER_NAME, value: prod}]}
`, "LABELS", labels),
	}
}

const valuesOf033 = `
settings: {clusterName: prod, interruptionQueue: q}
controller: {image: {repository: registry.example/karpenter}}
`

const valuesOf026 = `
settings: {aws: {clusterName: prod, interruptionQueueName: q}}
controller: {image: {repository: registry.example/karpenter}}
`

const ours = "registry.example/karpenter"

// The commands of the guide do what it says, from each generation and back. Whoever would act in the cluster is stood in for: nothing runs in it but an
// API server.
func TestTheGuideIsTyped(t *testing.T) {
	t.Parallel()
	r := read(t, startWith(t, nil))
	r.settings.Namespace = "karpenter"
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"from v1beta1", r.fromV1Beta1},
		{"from v1", r.fromV1},
		{"from Provisioners", r.fromProvisioners},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

func (r *reader) fromV1Beta1(t *testing.T) {
	const title = "From v1beta1"
	r.write(t, former(t, "0.37.7", olderDefinitions(t)))
	r.write(t, map[string]string{"values.yaml": valuesOf033, "repository/karpenter/pool.yaml": pool})
	r.do(t, "helm install karpenter former --namespace karpenter --create-namespace --server-side=false") // as Helm 3 did
	eventually(t, "what people have is applied", func() error {
		out, err := r.shell(t, "kubectl apply -f repository/karpenter/pool.yaml")
		if err != nil {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	r.types(t, title, 0)
	r.want(t, ours, "serve")
	stop := r.serve(t, true)
	r.types(t, title, 1)
	r.types(t, title, 2)
	stop()
	r.types(t, title, len(r.page[title])-1)
	r.want(t, "former:0.37.7", "")

	r.types(t, title, 0) // and again, to the end
	stop = r.serve(t, true)
	r.types(t, title, 1)
	stop()
	r.settings.Leaving = true
	stop = r.serve(t, true)
	r.types(t, title, 3)
	stop()
	r.want(t, ours, "")
	if got, err := r.list(t, "NodePool", "v1"); err != nil || len(got) != 1 {
		t.Errorf("pools are %v, %v", got, err)
	}
	r.do(t, "helm uninstall karpenter karpenter-crd --namespace karpenter")
}

func (r *reader) fromV1(t *testing.T) {
	const title = "From Karpenter v1"
	definitions, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, former(t, "1.14.0", definitions))
	r.write(t, map[string]string{"values.yaml": valuesOf033})
	r.do(t, "helm install karpenter former --namespace karpenter")
	r.types(t, title, 0)
	r.want(t, ours, "")
	underused := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{v1.UnderusedTaint()}}}
	for _, n := range []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, underused, {ObjectMeta: metav1.ObjectMeta{Name: "c"}}} {
		if err := r.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	r.types(t, title, 1)
	r.want(t, "former:1.14.0", "")
	if err := r.Get(t.Context(), client.ObjectKeyFromObject(underused), underused); err != nil || slices.Contains(underused.Spec.Taints, v1.UnderusedTaint()) {
		t.Errorf("the node has the taints %v, %v", underused.Spec.Taints, err)
	}
	r.do(t, "helm uninstall karpenter karpenter-crd --namespace karpenter")
}

func (r *reader) fromProvisioners(t *testing.T) {
	const title = "From Provisioner and AWSNodeTemplate"
	r.write(t, former(t, "0.31.4", legacyDefinitions(t)))
	r.write(t, map[string]string{"values.yaml": valuesOf026, "repository/karpenter/pool.yaml": strings.Split(olds, "---")[0] + "---" + strings.Split(olds, "---")[1]})
	r.do(t, "helm install karpenter former --namespace karpenter --server-side=false")
	eventually(t, "what people have is applied", func() error {
		out, err := r.shell(t, "kubectl apply -f repository/karpenter/pool.yaml")
		if err != nil {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	for _, again := range []bool{false, true} {
		r.types(t, title, 0)
		r.types(t, title, 1)
		r.want(t, ours, "")
		if web, err := r.pool(t, "web"); err != nil || web.GetAnnotations()[v1.ProvisionerAnnotationKey] != "web" {
			t.Errorf("the pool is %v, %v", web, err)
		}
		if again {
			break
		}
		r.take(t, "a")
		ctx, stop := context.WithCancel(t.Context())
		var collecting sync.WaitGroup
		collecting.Go(func() { r.collect(ctx) })
		r.types(t, title, 3)
		stop()
		collecting.Wait()
		r.want(t, "former:0.31.4", "")
		if left, err := r.list(t, "NodeClaim", "v1"); err != nil || len(left) > 0 {
			t.Errorf("claims are %v, %v", left, err)
		}
		n := &corev1.Node{}
		if err := r.Get(t.Context(), client.ObjectKey{Name: "a"}, n); err != nil || len(n.OwnerReferences) > 0 || n.DeletionTimestamp != nil {
			t.Errorf("the node is %v, %v", n, err)
		}
	}
	r.types(t, title, 2)
	eventually(t, "the older kinds are gone", func() error {
		out, err := r.shell(t, "kubectl get crd -o name")
		if err != nil || strings.Contains(out, "provisioners") || !strings.Contains(out, "nodepools") {
			return fmt.Errorf("%s %v", out, err)
		}
		return nil
	})
}

// take gives a Node a claim, as the controller does where a pool stands in for its Provisioner.
func (r *reader) take(t *testing.T, name string) {
	t.Helper()
	claim := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"requirements": []any{}, "nodeClassRef": map[string]any{"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "shared"}},
	}}
	claim.SetGroupVersionKind(v1.GroupVersion.WithKind("NodeClaim"))
	claim.SetName(name)
	claim.SetFinalizers([]string{v1.TerminationFinalizer})
	if err := r.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{}
	if err := r.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		t.Fatal(err)
	}
	n.OwnerReferences = []metav1.OwnerReference{{APIVersion: claim.GetAPIVersion(), Kind: claim.GetKind(), Name: name, UID: claim.GetUID()}}
	if err := r.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// collect lets Nodes go from claims that are deleted as orphaning their own, as Kubernetes' garbage collector does, until ctx ends.
func (r *reader) collect(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		claims := &unstructured.UnstructuredList{}
		claims.SetGroupVersionKind(v1.GroupVersion.WithKind("NodeClaimList"))
		if r.List(ctx, claims) != nil { // and again soon
			continue
		}
		for _, claim := range claims.Items {
			if !slices.Contains(claim.GetFinalizers(), metav1.FinalizerOrphanDependents) {
				continue
			}
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: claim.GetName()}}
			if r.Patch(ctx, n, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`))) != nil {
				continue
			}
			rest := slices.DeleteFunc(claim.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerOrphanDependents })
			claim.SetFinalizers(rest)
			_ = r.Update(ctx, &claim) // again soon where it was changed meanwhile
		}
	}
}
