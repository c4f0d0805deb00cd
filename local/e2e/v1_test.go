package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/local/plane"
	"karpenter.sh/karpenter/test/upstream"
)

// A former is an installation of Karpenter v1's own chart. Nobody stands for its image here: its pods run and do nothing, and what v1 does with objects
// that it takes over is done by the test.
type former struct {
	installed
	charts string
}

const formerImage = "controller.image.repository=registry.test/former"

// valuesOf is a file of values as people have them with Karpenter v1.
func valuesOf(name string) string {
	return filepath.Join("..", "release", "testdata", "values", name+".yaml")
}

// theirs installs or upgrades to a chart of v1, as Helm 3 did.
func (f former) theirs(chart string, args ...string) {
	f.Helper()
	f.do(f.T, slices.Concat([]string{"helm", "upgrade", "--install", chart, filepath.Join(f.charts, chart), "--namespace", plane.Namespace, "--server-side=false"}, args)...)
}

// upgrades types what the guide says about an upgrade from v1, with some more flags for Helm.
func (f former) upgrades(t *testing.T, values string, flags ...string) {
	t.Helper()
	blocks := guided(t)
	f.typed(t, strings.NewReplacer("-f values.yaml", "-f "+values+" "+strings.Join(flags, " "), "charts/", charts, "--namespace karpenter ", "--namespace "+plane.Namespace+" ").Replace(blocks[0]))
}

// returns types what it says about the way back, and takes the definitions back as well.
func (f former) returns(t *testing.T, flags ...string) {
	t.Helper()
	f.typed(t, strings.ReplaceAll(guided(t)[1], "--namespace karpenter", "--namespace "+plane.Namespace+" "+strings.Join(flags, " ")))
	f.do(t, "helm", "rollback", "karpenter-crd", "--namespace", plane.Namespace)
}

// guided are the commands of the guide, there and back.
func guided(t *testing.T) []string {
	t.Helper()
	text, _, _ := strings.Cut(page(t, "moving.md"), "\n## Manifests of older versions")
	var blocks []string
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			blocks = append(blocks, strings.TrimPrefix(part, "sh\n"))
		}
	}
	if len(blocks) != 2 {
		t.Fatalf("the guide has %d blocks of commands, want those there and back", len(blocks))
	}
	return blocks
}

// A lot is what must be the same whoever is installed.
type lot struct {
	Machines []string
	Claims   map[string]string // what each is, and what is wanted of it
	Nodes    map[string]types.UID
	Pools    map[string]any // what people wrote
	Classes  map[string]any
	Release  map[string]string // who each object of the release is, of those that both charts have
}

func (f former) lot(t *testing.T) lot {
	t.Helper()
	l := lot{Claims: map[string]string{}, Nodes: map[string]types.UID{}, Pools: map[string]any{}, Classes: map[string]any{}, Release: map[string]string{}}
	var err error
	if l.Machines, err = machines(t.Context(), f.run(t)); err != nil {
		t.Fatal(err)
	}
	claims, err := f.claims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range claims {
		if c.DeletionTimestamp != nil || drifted(&c) {
			t.Errorf("%s is to go: %+v", c.Name, c.Status.Conditions)
		}
		wanted, err := json.Marshal(c.Spec)
		if err != nil {
			t.Fatal(err)
		}
		l.Claims[c.Name] = fmt.Sprint(c.UID, " ", c.Status.ProviderID, " ", string(wanted))
	}
	nodes, err := f.nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		l.Nodes[n.Name] = n.UID
	}
	for kind, into := range map[schema.GroupVersionKind]map[string]any{
		v1.GroupVersion.WithKind("NodePool"): l.Pools, awsv1.GroupVersion.WithKind("EC2NodeClass"): l.Classes,
	} {
		for _, o := range f.objects(t, kind) {
			into[o.GetName()] = o.Object["spec"]
		}
	}
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Service"}, {Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Version: "v1", Kind: "ServiceAccount"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"}, {Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
	} {
		for _, o := range f.objects(t, kind) {
			if strings.HasPrefix(o.GetName(), "karpenter") {
				address, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP")
				l.Release[kind.Kind+" "+o.GetName()] = string(o.GetUID()) + address
			}
		}
	}
	return l
}

func (f former) objects(t *testing.T, kind schema.GroupVersionKind) []unstructured.Unstructured {
	t.Helper()
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := f.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func drifted(c *v1.NodeClaim) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(condition metav1.Condition) bool {
		return condition.Type == v1.ConditionTypeDrifted && condition.Status == metav1.ConditionTrue
	})
}

// takesOver does what Karpenter v1 does first: whatever was hashed in another way than its own is hashed again. It leads.
func (f former) takesOver(t *testing.T) {
	t.Helper()
	of := map[string]string{
		v1.NodePoolHashAnnotationKey: "6821555240594823858", v1.NodePoolHashVersionAnnotationKey: "v3",
		awsv1.AnnotationNodeClassHash: "3811432459364520001", awsv1.AnnotationNodeClassHashVersion: "v5",
	}
	for _, kind := range []schema.GroupVersionKind{
		v1.GroupVersion.WithKind("NodePool"), awsv1.GroupVersion.WithKind("EC2NodeClass"), v1.GroupVersion.WithKind("NodeClaim"),
	} {
		for _, o := range f.objects(t, kind) {
			before, annotations := o.DeepCopy(), o.GetAnnotations()
			for key, value := range of {
				if _, has := annotations[key]; has {
					annotations[key] = value
				}
			}
			if maps.Equal(annotations, before.GetAnnotations()) {
				t.Errorf("%s %s had no hash", kind.Kind, o.GetName())
			}
			o.SetAnnotations(annotations)
			if err := f.Patch(t.Context(), &o, client.MergeFrom(before)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var lease coordinationv1.Lease
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := f.Get(t.Context(), client.ObjectKey{Namespace: plane.Namespace, Name: plane.Lease}, &lease); err != nil {
			return err
		}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = new("karpenter-of-v1"), &metav1.MicroTime{Time: time.Now()}
		return f.Update(t.Context(), &lease)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// taken waits until the controller leads and every claim is hashed in its way, and so was looked at for drift.
func (f former) taken(t *testing.T) {
	t.Helper()
	eventually(t, func(ctx context.Context) (string, error) {
		if _, err := f.leader(ctx); err != nil {
			return "", err
		}
		var pool v1.NodePool
		if err := f.Get(ctx, client.ObjectKey{Name: "default"}, &pool); err != nil {
			return "", err
		}
		if pool.Annotations[v1.NodePoolHashVersionAnnotationKey] == "v3" {
			return "the pool has the hash of v1", nil
		}
		claims, err := f.claims(ctx)
		for _, c := range claims {
			if c.Annotations[v1.NodePoolHashVersionAnnotationKey] == "v3" || c.Annotations[awsv1.AnnotationNodeClassHashVersion] == "v5" {
				return c.Name + " has the hashes of v1", nil
			}
		}
		return "", err
	})
}

// unchanged fails if something is not as it was.
func (f former) unchanged(t *testing.T, when string, want lot) {
	t.Helper()
	got := f.lot(t)
	for id := range got.Release { // ours may have more
		if _, known := want.Release[id]; !known {
			delete(got.Release, id)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", when, diff)
	}
}

// comesFromV1 is the way from Karpenter v1's own charts to ours and back, with values as people have them: the commands of the guide, with machines that run.
// The same way with other values takes half a minute each, for which a soak has time: what is rendered of them is compared in local/release.
func comesFromV1(t *testing.T, i installed) {
	f := former{i, upstream.Charts(t)}
	begin := time.Now()
	t.Run("minimal values, with machines that v1 looks after", f.isMinimal)
	if soak() {
		t.Run("values of production", f.isInProduction)
		t.Run("values of a GitOps tool, which renders and applies", f.isApplied)
	}
	t.Logf("there and back took %s", time.Since(begin).Round(100*time.Millisecond))
}

func (f former) isMinimal(t *testing.T) {
	here := []string{"--set", "settings.clusterName=" + plane.ClusterName, "--set", "settings.interruptionQueue=" + plane.ClusterName}
	f = former{installed{f.cluster, t}, f.charts}
	f.theirs("karpenter-crd")
	f.theirs("karpenter", append(here, "-f", valuesOf("minimal"), "--set", formerImage, "--wait")...)
	f.takesOver(t)
	want := f.lot(t)
	if len(want.Claims) == 0 || len(want.Release) < 7 {
		t.Fatalf("v1 looks after %+v", want)
	}

	f.upgrades(t, valuesOf("minimal"), append(here, "--set controller.image.repository=karpenter/controller", "--wait")...)
	f.taken(t)
	f.unchanged(t, "after the upgrade", want)
	f.scaled(32)
	eventually(t, func(ctx context.Context) (string, error) { return f.unequal(ctx, f.run(t)) })
	for name := range want.Claims {
		if _, lives := f.lot(t).Claims[name]; !lives {
			t.Errorf("%s went", name)
		}
	}

	want = f.lot(t) // now with machines that are ours from the start
	f.returns(t, "--wait")
	if left := f.processes(t); len(left) > 0 {
		t.Errorf("%d processes of ours run beside v1", len(left))
	}
	f.takesOver(t)
	f.unchanged(t, "after the way back", want)
	if image := f.do(t, "kubectl", "get", "deployment", "karpenter", "-n", plane.Namespace, "-o", "jsonpath={.spec.template.spec.containers[0].image}"); !strings.HasPrefix(image, "registry.test/former:") {
		t.Errorf("the image is %s", image)
	}
}

func (f former) isInProduction(t *testing.T) {
	f = former{installed{f.cluster, t}, f.charts}
	f.theirs("karpenter", "-f", valuesOf("production"))
	want := f.lot(t)
	f.upgrades(t, valuesOf("production"))
	f.unchanged(t, "after the upgrade", want)
	f.returns(t)
	f.unchanged(t, "after the way back", want)
}

func (f former) isApplied(t *testing.T) {
	f = former{installed{f.cluster, t}, f.charts}
	f.do(t, "helm", "uninstall", "karpenter", "--namespace", plane.Namespace, "--wait")
	f.do(t, "kubectl", "create", "serviceaccount", "karpenter", "-n", plane.Namespace)
	apply := func(chart, image string) {
		f.typed(t, fmt.Sprintf("karpenter-local helm template karpenter %s --namespace %s -f %s --set global.clusterName=%s --set settings.interruptionQueue=%[4]s --set %s | kubectl apply -f -",
			chart, plane.Namespace, valuesOf("gitops"), plane.ClusterName, image))
	}
	apply(filepath.Join(f.charts, "karpenter"), formerImage)
	want := f.lot(t)
	apply(charts+"karpenter", "controller.image.repository=karpenter/controller")
	f.rolledOut()
	f.taken(t)
	f.unchanged(t, "after the upgrade", want)
	apply(filepath.Join(f.charts, "karpenter"), formerImage)
	f.rolledOut()
	f.unchanged(t, "after the way back", want)
}
