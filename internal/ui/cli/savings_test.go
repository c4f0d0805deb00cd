package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// resources are the kinds of an API server without Karpenter.
var resources = map[string]map[string]string{
	"/api/v1": {"nodes": "Node", "pods": "Pod", "namespaces": "Namespace", "services": "Service",
		"persistentvolumes": "PersistentVolume", "persistentvolumeclaims": "PersistentVolumeClaim"},
	"/apis/apps/v1":              {"daemonsets": "DaemonSet", "replicasets": "ReplicaSet"},
	"/apis/policy/v1":            {"poddisruptionbudgets": "PodDisruptionBudget"},
	"/apis/storage.k8s.io/v1":    {"storageclasses": "StorageClass", "csinodes": "CSINode"},
	"/apis/scheduling.k8s.io/v1": {"priorityclasses": "PriorityClass"},
}

// answer serves discovery and lists. The cluster has one node, made by hand and without pods.
func answer(path string) string {
	if path == "/api" {
		return `{"kind": "APIVersions", "versions": ["v1"]}`
	}
	if path == "/apis" {
		var groups []string
		for prefix := range resources {
			if name, found := strings.CutPrefix(prefix, "/apis/"); found {
				group, _, _ := strings.Cut(name, "/")
				groups = append(groups, fmt.Sprintf(`{"name": %q, "versions": [{"groupVersion": %q, "version": "v1"}],
					"preferredVersion": {"groupVersion": %[2]q, "version": "v1"}}`, group, name))
			}
		}
		return `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [` + strings.Join(groups, ",") + `]}`
	}
	for prefix, kinds := range resources {
		version := strings.TrimPrefix(strings.TrimPrefix(prefix, "/apis/"), "/api/")
		if path == prefix {
			var all []string
			for name, kind := range kinds {
				all = append(all, fmt.Sprintf(`{"name": %q, "kind": %q, "namespaced": false, "verbs": ["get", "list"]}`, name, kind))
			}
			return fmt.Sprintf(`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": %q, "resources": [%s]}`, version, strings.Join(all, ","))
		}
		if kind := kinds[strings.TrimPrefix(path, prefix+"/")]; kind != "" {
			items := ""
			if kind == "Node" {
				items = `{"metadata": {"name": "n", "labels": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
					"topology.kubernetes.io/zone": "z1", "node.kubernetes.io/instance-type": "t.small"}}, "spec": {"providerID": "aws:///z1/i-1"}}`
			}
			return fmt.Sprintf(`{"kind": "%sList", "apiVersion": %q, "metadata": {}, "items": [%s]}`, kind, version, items)
		}
	}
	return ""
}

func TestSavingsOfAClusterWithoutKarpenter(t *testing.T) {
	var writes atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			writes.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		text := answer(r.URL.Path)
		if text == "" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
		contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}`, server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, trouble strings.Builder
	env := Env{Out: &out, Err: &trouble, Catalog: threeTypes, CheckClass: noPlacementGroups}
	if code := Run(t.Context(), env, []string{"savings", "--kubeconfig", config, "-o", "json"}); code != exitFine {
		t.Errorf("code %d\n%s", code, &trouble)
	}
	for _, want := range []string{`"owner": "by hand"`, `"perHour": 0.1`, `"cause": "empty"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
	if !strings.Contains(trouble.String(), proposedText) {
		t.Errorf("nothing is said about the NodePool that is assumed:\n%s", &trouble)
	}
	if n := writes.Load(); n > 0 {
		t.Errorf("%d requests write", n)
	}
}

// A snapshot carries the commitments, and its report is that of the objects.
func TestSavingsOfASnapshotBillsItsCommitments(t *testing.T) {
	folder := t.TempDir()
	file, kept := filepath.Join(folder, "world.yaml"), filepath.Join(folder, "snapshot.txtar")
	world := `{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: default}, spec: {template: {spec: {requirements: [],
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {kubernetes.io/arch: amd64, kubernetes.io/os: linux, topology.kubernetes.io/zone: z1,
  node.kubernetes.io/instance-type: t.small}}, spec: {providerID: "aws:///z1/i-1"}}
---
{apiVersion: karpenter.sh/v1alpha1, kind: CommitmentDiscount, metadata: {name: sp-1}, spec: {category: Spend, type: ComputeSavingsPlan,
  quantity: "0.2", share: 50%, rates: [{instanceType: t.small, price: "0.06"}]}}
`
	if err := os.WriteFile(file, []byte(world), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		var out, trouble strings.Builder
		env := Env{Out: &out, Err: &trouble, Catalog: threeTypes, CheckClass: noPlacementGroups}
		if code := Run(t.Context(), env, args); code != exitFine {
			t.Fatalf("%q: code %d\n%s%s", args, code, &out, &trouble)
		}
		return out.String()
	}
	run("snapshot", "-f", file, "-o", kept)
	want := run("savings", "-f", file, "-o", "json")
	if got := run("savings", "--snapshot", kept, "-o", "json"); got != want || !strings.Contains(got, `"used": 0.6`) {
		t.Errorf("the snapshot gives\n%s\nwant\n%s", got, want)
	}
}
