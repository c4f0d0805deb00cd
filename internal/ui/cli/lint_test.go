package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	edits "karpenter.sh/karpenter/internal/aws/class"
)

// machineOf is a node of a class with a pod that asks for a CPU, and its claim.
func machineOf(name, class, kind, image string) string {
	return fmt.Sprintf(`
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: c%[1]s, labels: {karpenter.sh/nodepool: p, topology.kubernetes.io/zone: z1, node.kubernetes.io/instance-type: %[3]s}}
spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: %[2]s}, requirements: []}
status: {providerID: x%[1]s, nodeName: %[1]s, imageID: %[4]s}
---
apiVersion: v1
kind: Node
metadata:
  name: %[1]s
  labels: {karpenter.sh/nodepool: p, karpenter.sh/registered: "true", karpenter.sh/initialized: "true", kubernetes.io/hostname: %[1]s, kubernetes.io/arch: amd64, kubernetes.io/os: linux, topology.kubernetes.io/zone: z1, node.kubernetes.io/instance-type: %[3]s, karpenter.sh/capacity-type: on-demand}
spec: {providerID: x%[1]s}
status: {conditions: [{type: Ready, status: "True"}], allocatable: {cpu: "2", memory: 8Gi, pods: "110"}, capacity: {cpu: "2", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-%[1]s}
spec:
  nodeName: %[1]s
  containers: [{name: c, image: i, resources: {requests: {cpu: 1500m}}}]
---
`, name, class, kind, image)
}

// What an edit of a node class does is said of the nodes of that class only, with what it costs.
func TestAnEditOfANodeClass(t *testing.T) {
	const before = `{"metadata": {"name": "default"}, "spec": {"amiFamily": "AL2023", "role": "r", "amiSelectorTerms": [{"id": "ami-1"}, {"id": "ami-2"}], "subnetSelectorTerms": [{"id": "subnet-1"}],
		"securityGroupSelectorTerms": [{"id": "sg-1"}], "metadataOptions": {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "required"}},
		"status": {"subnets": [{"id": "subnet-1", "zone": "z1"}], "securityGroups": [{"id": "sg-1"}]}}`
	fleet := machineOf("n1", "default", "t.large", "ami-1") + machineOf("n2", "default", "t.medium", "ami-2") + machineOf("n3", "other", "t.small", "ami-1")
	for name, tc := range map[string]struct {
		spec string
		want []string
	}{
		"what is as it was replaces nothing": {`role: r, amiSelectorTerms: [{id: ami-1}, {id: ami-2}], subnetSelectorTerms: [{id: subnet-1}]`, nil},
		"another role replaces all nodes": {`role: s, amiSelectorTerms: [{id: ami-1}, {id: ami-2}], subnetSelectorTerms: [{id: subnet-1}]`,
			[]string{"EC2NodeClass/default: as it is written it replaces 2 nodes (NodeClassDrift: 2), -$0.4000 an hour (Replaces)"}},
		"another image replaces those of the old one": {`role: r, amiSelectorTerms: [{id: ami-2}], subnetSelectorTerms: [{id: subnet-1}]`,
			[]string{"EC2NodeClass/default: as it is written it replaces 1 node (AMIDrift: 1), -$0.3000 an hour (Replaces)"}},
		"what tags find nobody knows": {`role: r, amiSelectorTerms: [{id: ami-1}, {id: ami-2}], subnetSelectorTerms: [{tags: {a: b}}]`,
			[]string{"EC2NodeClass/default: as it is written it may replace 2 nodes (SubnetDrift: 2): what its selectors find is known to the cloud only (Replaces)"}},
		"both": {`role: r, amiSelectorTerms: [{id: ami-2}], subnetSelectorTerms: [{tags: {a: b}}]`,
			[]string{"EC2NodeClass/default: as it is written it replaces 1 node (AMIDrift: 1, SubnetDrift: 1), -$0.3000 an hour; 1 more may be replaced: what its selectors find is known to the cloud only (Replaces)"}},
		"what the controller refuses": {`role: r, amiSelectorTerms: [{id: ami-1}, {id: ami-2}], subnetSelectorTerms: [{id: subnet-1}], placementGroupSelector: {name: g}`,
			[]string{"EC2NodeClass/default: placement groups are not supported (Invalid)",
				"EC2NodeClass/default: as it is written it replaces 2 nodes (NodeClassDrift: 2), -$0.4000 an hour (Replaces)"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := fleet + `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec: {amiFamily: AL2023, securityGroupSelectorTerms: [{id: sg-1}], ` + tc.spec + `}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p}
spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: nobodys}, requirements: []}}}
`
			var zones int
			env := Env{In: strings.NewReader(text), Err: &bytes.Buffer{}, CheckClass: noPlacementGroups,
				Catalog: func(m Market, class *awsv1.EC2NodeClass) (*cloud.Catalog, error) {
					return threeTypes(m, class)
				},
				EditClass: func(from, to *awsv1.EC2NodeClass) func(*v1.NodeClaim) (cloud.DriftReason, bool) {
					zones = len(to.Status.Subnets)
					return edits.NewEdit(from, to).Drifts
				}}
			l := lintFlags{planFlags{files: []string{"-"}}}
			o, err := readAndEdit(t.Context(), &l, env, before)
			if err != nil {
				t.Fatal(err)
			}
			found, err := l.findings(env, o)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range found {
				got = append(got, fmt.Sprintf("%s: %s (%s)", f.Object, f.Text, f.Code))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if zones != 1 {
				t.Errorf("the class of the file has %d subnets, want that of the cluster's", zones)
			}
		})
	}
}

// readAndEdit reads files, and then the class that a cluster has.
func readAndEdit(ctx context.Context, l *lintFlags, env Env, class string) (*objects, error) {
	o, err := l.read(ctx, env)
	if err != nil {
		return nil, err
	}
	return o, o.list(ctx, pages{answers: map[string]string{"": `{"items": [` + class + `]}`}}, &awsv1.EC2NodeClassList{})
}

// apiServer is the kubeconfig of an API server that has what a text says, and can only be read.
func apiServer(t *testing.T, text string) string {
	t.Helper()
	docs, err := parse("cluster", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := planScheme()
	if err != nil {
		t.Fatal(err)
	}
	items := map[schema.GroupVersionKind][]any{}
	for _, d := range docs {
		items[d.obj.GroupVersionKind()] = append(items[d.obj.GroupVersionKind()], d.obj.Object)
	}
	answers := map[string]any{}
	resources, groups := map[schema.GroupVersion][]metav1.APIResource{}, map[string]metav1.APIGroup{}
	for gvk := range scheme.AllKnownTypes() {
		if !scheme.Recognizes(gvk.GroupVersion().WithKind(gvk.Kind + "List")) {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		at := "/apis/" + gvk.GroupVersion().String()
		if gvk.Group == "" {
			at = "/api/" + gvk.Version
		}
		resources[gvk.GroupVersion()] = append(resources[gvk.GroupVersion()], metav1.APIResource{Name: plural.Resource, Kind: gvk.Kind, Namespaced: true, Verbs: metav1.Verbs{"list"}})
		answers[at] = metav1.APIResourceList{GroupVersion: gvk.GroupVersion().String(), APIResources: resources[gvk.GroupVersion()]}
		answers[at+"/"+plural.Resource] = map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind + "List", "metadata": map[string]any{}, "items": items[gvk]}
		version := metav1.GroupVersionForDiscovery{GroupVersion: gvk.GroupVersion().String(), Version: gvk.Version}
		if g := groups[gvk.Group]; !slices.Contains(g.Versions, version) {
			groups[gvk.Group] = metav1.APIGroup{Name: gvk.Group, Versions: append(g.Versions, version), PreferredVersion: version}
		}
	}
	delete(groups, "")
	answers["/api"] = metav1.APIVersions{Versions: []string{"v1"}}
	answers["/apis"] = metav1.APIGroupList{Groups: slices.Collect(maps.Values(groups))}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := answers[r.URL.Path]
		if r.Method != http.MethodGet || !known {
			http.Error(w, r.Method+" "+r.URL.Path, http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text = fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}]}`, server.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// The command reads a cluster and the files that edit it, and says what the edit would replace and what that costs.
func TestLintOfAnEdit(t *testing.T) {
	const class = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec: {amiFamily: AL2023, role: %s, amiSelectorTerms: [{id: ami-1}, {id: ami-2}], subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], metadataOptions: {httpEndpoint: enabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 1, httpTokens: required}}
status: {subnets: [{id: subnet-1, zone: z1}], securityGroups: [{id: sg-1}]}
---`
	const pool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p}
spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: [%s]}}}
`
	kubeconfig := apiServer(t, machineOf("n1", "default", "t.large", "ami-1")+machineOf("n2", "default", "t.medium", "ami-2")+fmt.Sprintf(class, "r")+fmt.Sprintf(pool, ""))
	for name, tc := range map[string]struct {
		edit string
		code int
		want string
	}{
		"a class as it is":                      {fmt.Sprintf(class, "r"), exitFine, ""},
		"a class with another role":             {fmt.Sprintf(class, "s"), exitUnready, "EC2NodeClass/default: as it is written it replaces 2 nodes (NodeClassDrift: 2), -$0.4000 an hour (Replaces)\n"},
		"a pool as it is":                       {fmt.Sprintf(pool, ""), exitFine, ""},
		"a pool that wants other machines":      {fmt.Sprintf(pool, "{key: node.kubernetes.io/instance-type, operator: In, values: [t.large]}"), exitUnready, "NodePool/p: as it is written it replaces 1 node (RequirementsDrifted: 1), +$0.2000 an hour (Replaces)\n"},
		"a pool that wants what is dear, twice": {fmt.Sprintf(pool, "{key: node.kubernetes.io/instance-type, operator: NotIn, values: [t.medium, t.large]}"), exitUnready, "NodePool/p: as it is written it replaces 2 nodes (RequirementsDrifted: 2), -$0.4000 an hour (Replaces)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "edit.yaml")
			if err := os.WriteFile(file, []byte(tc.edit), 0o600); err != nil {
				t.Fatal(err)
			}
			run := func(more ...string) (code int, text string) {
				var out bytes.Buffer
				env := Env{Out: &out, Err: &bytes.Buffer{}, Catalog: threeTypes, CheckClass: noPlacementGroups,
					EditClass: func(from, to *awsv1.EC2NodeClass) func(*v1.NodeClaim) (cloud.DriftReason, bool) {
						return edits.NewEdit(from, to).Drifts
					}}
				code = Run(t.Context(), env, append([]string{"lint", "--kubeconfig", kubeconfig, "-f", file}, more...))
				return code, out.String()
			}
			if code, text := run(); code != tc.code || text != tc.want {
				t.Errorf("code %d, want %d:\n%s\nwant\n%s", code, tc.code, text, tc.want)
			}
			code, text := run("-o", "json")
			var found []finding
			if err := json.Unmarshal([]byte(text), &found); err != nil || code != tc.code || len(found) != strings.Count(tc.want, "\n") {
				t.Fatalf("code %d, %v:\n%s", code, err, text)
			}
			for _, f := range found {
				if want := fmt.Sprintf("replaces %d node", f.Nodes); !strings.Contains(tc.want, want) || !strings.Contains(tc.want, signed(f.MorePerHour)) {
					t.Errorf("%+v, want %s", f, tc.want)
				}
			}
		})
	}
}

// A field without effect is advice: it is listed, and the exit code stays 0.
func TestFieldsWithoutEffectAreAdvice(t *testing.T) {
	var out, trouble bytes.Buffer
	env := Env{
		In: strings.NewReader("apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: windows}\nspec:\n" +
			"  role: r\n  amiSelectorTerms: [{alias: al2023@latest}]\n  subnetSelectorTerms: [{id: subnet-1}]\n" +
			"  securityGroupSelectorTerms: [{id: sg-1}]\n" +
			"---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: default}\nspec:\n" +
			"  template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: windows}, requirements: []}}\n"),
		Out: &out, Err: &trouble, Catalog: threeTypes, CheckClass: noPlacementGroups,
		IgnoredFields: func(c *awsv1.EC2NodeClass) []string { return []string{"spec.x of " + c.Name} },
	}
	if code := Run(t.Context(), env, []string{"lint", "-f", "-"}); code != exitFine {
		t.Errorf("exit code %d, want %d: %s", code, exitFine, &trouble)
	}
	if want := "EC2NodeClass/windows: spec.x of windows (Ignored)\n"; out.String() != want {
		t.Errorf("lint says %q, want %q", out.String(), want)
	}
}
