package e2e

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// manifests are those of the tests of karpenter convert, manifestsOfV1 those of the tests on an API server.
const (
	manifests     = "../../internal/ui/cli/testdata/convert/"
	manifestsOfV1 = "../../test/apiserver/testdata/valid/"
)

// guides are manifests that people wrote for v1beta1: a class and pools of it. What is called default has the name of the guide here, and is so
// named among pools.
var guides = map[string]struct{ files, pools []string }{
	"as-written": {
		[]string{"000-02-ec2nodeclass-default", "000-01-nodepool-default", "000-03-nodepool-gpu", "000-04-nodepool-batch", "000-07-nodepool-spot-arm64-corrected", "000-08-nodepool-critical-corrected"},
		[]string{"as-written", "gpu", "batch", "spot-arm64", "critical"},
	},
	"corrected": {[]string{"000-02-ec2nodeclass-default-corrected", "000-01-nodepool-default-corrected"}, []string{"corrected"}},
	"role":      {[]string{"001-01a-ec2nodeclass-role-corrected", "001-02-nodepool-default"}, []string{"role"}},
	"profile":   {[]string{"001-01b-ec2nodeclass-instanceprofile-corrected", "001-02-nodepool-default"}, []string{"profile"}},
}

// manifest returns the manifest in a file with the names of the local cluster and of its things at AWS, where there is no Amazon Linux 2 any more.
func (c *cluster) manifest(t *testing.T, file, guide string) string {
	t.Helper()
	text, err := os.ReadFile(file + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var known awsv1.EC2NodeClass
	eventually(t, func(ctx context.Context) (string, error) {
		err := c.Get(ctx, client.ObjectKey{Name: "default"}, &known)
		if known.Status.InstanceProfile != "" && len(known.Status.SecurityGroups) > 0 {
			return "", err
		}
		return "the class of the cluster is not ready", err
	})
	var pairs []string
	for _, cluster := range []string{"${CLUSTER_NAME}", "YOUR_CLUSTER_NAME", "my-cluster", "production"} {
		pairs = append(pairs, "KarpenterNodeInstanceProfile-"+cluster, known.Status.InstanceProfile, "discovery: "+cluster, "discovery: local")
	}
	return strings.NewReplacer(append(pairs,
		"${CLUSTER_NAME}", "local", "YOUR_CLUSTER_NAME", "local", "my-cluster", "local", "        network-type: private\n", "", "discovery: lower-env", "discovery: local", "eu-west-2", "us-east-1",
		"amiFamily: AL2 ", "amiFamily: AL2023 ", "amiFamily: AL2\n", "amiFamily: AL2023\n",
		"my-golden-ami-*", "amazon-eks-node-al2023-*-standard-*", "self,123456789012", "amazon",
		"sg-063d7acfb4b06c82c, sg-06e0cf9c198874591", known.Status.SecurityGroups[0].ID,
		"name: default", "name: "+guide, "nodeClassRef:\n        name: gpu", "nodeClassRef:\n        name: "+guide,
	)...).Replace(string(text))
}

// applied writes manifests into the cluster until the test ends.
func applied(t *testing.T, texts ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(texts, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	shared.do(t, "kubectl", "apply", "-f", file)
	t.Cleanup(func() { shared.command("kubectl", "delete", "--wait=false", "-f", file).Run() })
}

// A piece is what a guide shows of an object and leaves the reader to complete.
type piece struct {
	APIVersion   string         `json:"apiVersion,omitempty"`
	Kind         string         `json:"kind,omitempty"`
	Metadata     map[string]any `json:"metadata,omitempty"`
	Spec         map[string]any `json:"spec,omitempty"`
	Requirements []any          `json:"requirements,omitempty"`
}

func (c *cluster) pieceOf(t *testing.T, file string) (p piece) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(c.manifest(t, manifests+file, ""), "${LABEL}", inPieces)), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// inPieces is the Provisioner that a guide shows in pieces.
const inPieces = "in-pieces"

// completed is that Provisioner with its template, each made of all its pieces and what the guide's reader had to add.
func (c *cluster) completed(t *testing.T) string {
	t.Helper()
	whole := piece{APIVersion: "karpenter.sh/v1alpha5", Kind: "Provisioner", Metadata: map[string]any{"name": inPieces}, Spec: map[string]any{}}
	for _, file := range []string{"002-01-consolidation-fragment", "002-02-providerref-fragment"} {
		maps.Copy(whole.Spec, c.pieceOf(t, file).Spec)
	}
	whole.Spec["requirements"] = append(c.pieceOf(t, "002-04-capacity-type-fragment").Requirements, c.pieceOf(t, "002-05-arch-fragment").Requirements...)
	of := c.pieceOf(t, "002-03-awsnodetemplate-fragment")
	local := map[string]any{"karpenter.sh/discovery": "local"}
	of.Spec = map[string]any{
		"subnetSelector": local, "securityGroupSelector": local,
		"amiFamily": "AL2023", "amiSelector": map[string]any{"aws::name": "amazon-eks-node-al2023-*-standard-*", "aws::owners": "amazon"},
	}
	var texts []string
	for _, p := range []piece{whole, of} {
		text, err := yaml.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return strings.Join(texts, "---\n")
}

// provisioners returns the Provisioners of a guide with their templates.
func (c *cluster) provisioners(t *testing.T) string {
	t.Helper()
	return c.manifest(t, manifests+"002-07-assembled-provisioner", "provisioner") + "\n---\n" + c.completed(t)
}

// converted returns what karpenter convert writes for older manifests, with nothing lost.
func converted(t *testing.T, texts ...string) string {
	t.Helper()
	convert := exec.Command(filepath.Join(filepath.Dir(binary), "karpenter"), "convert", "--role", "KarpenterNodeRole-local", "-f", "-")
	convert.Stdin = strings.NewReader(strings.Join(texts, "\n---\n"))
	var out, said bytes.Buffer
	convert.Stdout, convert.Stderr = &out, &said
	if err := convert.Run(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	return out.String()
}

// only makes a pod that accepts nodes of one pool, named after it.
func (c *cluster) only(t *testing.T, pool string, annotations map[string]string) *appsv1.Deployment {
	t.Helper()
	var p v1.NodePool
	if err := c.Get(t.Context(), client.ObjectKey{Name: pool}, &p); err != nil {
		t.Fatal(err)
	}
	pods := template(pool)
	pods.Annotations = annotations
	pods.Spec.NodeSelector = map[string]string{v1.NodePoolLabelKey: pool}
	for _, taint := range p.Spec.Template.Spec.Taints {
		pods.Spec.Tolerations = append(pods.Spec.Tolerations, corev1.Toleration{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
	}
	return deployment(pool, 1, pods)
}

// networked takes off the taint that a node of a pool starts with, as its network does once it is there.
func (c *cluster) networked(t *testing.T, pool, taint string) {
	t.Helper()
	eventually(t, func(ctx context.Context) (string, error) {
		var nodes corev1.NodeList
		if err := c.List(ctx, &nodes, client.MatchingLabels{v1.NodePoolLabelKey: pool}); err != nil {
			return "", err
		}
		for _, n := range nodes.Items {
			without := n.DeepCopy()
			without.Spec.Taints = slices.DeleteFunc(without.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint })
			if len(without.Spec.Taints) < len(n.Spec.Taints) && n.Labels[v1.NodeRegisteredLabelKey] == "true" {
				return "", c.Patch(ctx, without, client.MergeFromWithOptions(&n, client.MergeFromWithOptimisticLock{}))
			}
		}
		return "no node of " + pool + " has started with " + taint, nil
	})
}

// Every manifest that was written for v1beta1 is applied and gets machines, and reads back as it was written. What was written for Provisioners
// gets machines once it is converted.
func TestOlderManifestsGetNodes(t *testing.T) {
	together.enter(t)
	const provisioner = "lower-env-provisioner"
	texts, pools := []string{converted(t, shared.provisioners(t)), shared.manifest(t, manifests+"001-03-deployment-oversized-app", "")}, []string{provisioner, inPieces}
	for name, guide := range guides {
		for _, file := range guide.files {
			texts = append(texts, shared.manifest(t, manifests+file, name))
		}
		pools = append(pools, guide.pools...)
	}
	applied(t, texts...)
	protected := map[string]string{}
	for key, value := range shared.pieceOf(t, "002-06-do-not-evict-fragment").Metadata["annotations"].(map[string]any) {
		protected[key] = value.(string)
	}
	var workloads []*appsv1.Deployment
	for _, pool := range pools {
		d := shared.only(t, pool, protected)
		add(t, d)
		workloads = append(workloads, d)
	}
	shared.networked(t, provisioner, "node.cilium.io/agent-not-ready")
	for _, pool := range pools {
		running(t, pool, 1)
	}
	running(t, "oversized", 1)
	taint := corev1.Taint{Key: "dedicated", Value: "lower-env", Effect: corev1.TaintEffectNoSchedule}
	wantNode(t, running(t, provisioner, 1)[0].Spec.NodeName, []corev1.Taint{taint}, map[string][]string{
		"environment":                  {"lower"},
		corev1.LabelTopologyZone:       {"us-east-1a", "us-east-1b"},
		corev1.LabelInstanceTypeStable: {"m5.large", "m6g.large", "c5.xlarge"},
	})
	inOne := running(t, inPieces, 1)[0]
	wantNode(t, inOne.Spec.NodeName, nil, map[string][]string{
		v1.CapacityTypeLabelKey:     {"on-demand", "spot"},
		corev1.LabelArchStable:      {"arm64"},
		corev1.LabelOSStable:        {"linux"},
		awsv1.LabelInstanceCategory: {"c", "m", "r"}, // what a Provisioner meant that said nothing about machines
	})
	eventually(t, func(ctx context.Context) (string, error) {
		var events corev1.EventList
		err := shared.List(ctx, &events, client.InNamespace(inOne.Namespace), client.MatchingFields{"involvedObject.name": inOne.Name, "reason": "DeprecatedAnnotation"})
		if len(events.Items) == 0 {
			return "nobody says that do-not-evict is called otherwise now", err
		}
		return "", err
	})
	seen := shared.do(t, "kubectl", "get", "nodepools.v1beta1.karpenter.sh", "role", "-o", "yaml")
	for _, want := range []string{"consolidationPolicy: WhenUnderutilized", "apiVersion: karpenter.k8s.aws/v1beta1"} {
		if !strings.Contains(seen, want) {
			t.Errorf("v1beta1 shows\n%s\nwant %s", seen, want)
		}
	}
	for _, d := range workloads {
		if err := shared.Delete(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	shared.do(t, "kubectl", "delete", "deployment", "oversized-app")
	for _, app := range append(pools, "oversized") {
		running(t, app, 0) // else a pod that is made once more would get another node
	}
	shared.do(t, "kubectl", "delete", "nodeclaims", "--all", "--wait=false") // budgets would let them go one after the other
	empty(t)
}

// wantNode checks taints and labels of a node, of which each has one of some values.
func wantNode(t *testing.T, name string, taints []corev1.Taint, labels map[string][]string) {
	t.Helper()
	var n corev1.Node
	if err := shared.Get(t.Context(), client.ObjectKey{Name: name}, &n); err != nil {
		t.Fatal(err)
	}
	for key, want := range labels {
		if !slices.Contains(want, n.Labels[key]) {
			t.Errorf("label %s of node %s is %q, want one of %v", key, name, n.Labels[key], want)
		}
	}
	for _, want := range taints {
		if !slices.Contains(n.Spec.Taints, want) {
			t.Errorf("node %s has the taints %v, want %v", name, n.Spec.Taints, want)
		}
	}
}
