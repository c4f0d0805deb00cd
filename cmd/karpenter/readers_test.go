package main

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/history/recording"
)

// onFiles finds the commands of pages that read files, and no cluster.
var onFiles = regexp.MustCompile(`^(?:helm template … \| )?karpenter \S+ .*(?:-f |--pods |--snapshot )`)

// readers are the commands of pages that read files, those that write what others read first.
func readers(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, text := range pages(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(m[2]) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
				if onFiles.MatchString(line) && !strings.Contains(line, "--kubeconfig") && !strings.Contains(line, "karpenter convert") && !strings.Contains(line, "karpenter cost") {
					all = append(all, strings.TrimSpace(line))
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		writes := func(command string) int { return -strings.Count(command, "snapshot -o") }
		return cmp.Or(writes(a)-writes(b), strings.Compare(a, b))
	})
	return slices.Compact(all)
}

// theirFiles are the files that these commands name. What is asked about the snapshot of a cluster is asked about one of manifests.
func theirFiles(t *testing.T) map[string]string {
	t.Helper()
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: NAMESPACE, labels: {app: web}}, spec: {containers: [{name: c, image: pause, resources: {requests: {cpu: '1'}}}]}}\n"
	example := func(name string) string { return read(t, root+"docs/examples/"+name) }
	pools := example("nodepool.yaml") + "\n---\n" + example("ec2nodeclass.yaml")
	shop := strings.ReplaceAll(pod, "NAMESPACE", "shop")
	return map[string]string{
		"pools.yaml": pools, "large.yaml": pools, "small.yaml": example("nodepool.yaml"), "web.yaml": strings.ReplaceAll(pod, "NAMESPACE", "default"), "web/web.yaml": shop, "workloads/web.yaml": shop, "-": shop,
		"budgets.yaml": "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: shop}, spec: {maxUnavailable: 0, selector: {matchLabels: {app: web}}}}",
		"cluster.yaml": "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {karpenter.sh/nodepool: default, node.kubernetes.io/instance-type: m7g.large, topology.kubernetes.io/zone: us-east-1a, karpenter.sh/capacity-type: on-demand, kubernetes.io/arch: arm64, kubernetes.io/os: linux}}, status: {allocatable: {cpu: 1900m, memory: 6Gi, pods: '29'}}}",
		"plans.yaml":   "{apiVersion: karpenter.sh/v1alpha1, kind: CommitmentDiscount, metadata: {name: p}, spec: {category: Spend, type: ComputeSavingsPlan, quantity: '1', rates: [{family: m7g, discount: 27%}]}}",
		"workers.json": read(t, root+"internal/ui/cli/testdata/migrate/managed.txt"),
		"eu-west-1.json": `{"region": "eu-west-1", "made": "2026-11-01", "onDemand": {"m7g.large": 0.091, "m5.large": 0.107, "c6g.large": 0.073},` +
			`"zones": {"eu-west-1a": {"id": "euw1-az1", "types": ["m7g.large", "m5.large", "c6g.large"]}}}`,
		"pods.csv": "name,created,deleted,cpu\nweb-0,2026-06-01T08:00:00Z,2026-06-01T09:00:00Z,1\n",
		"watch.json": `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "shop", "uid": "1", "creationTimestamp": "2026-06-01T08:10:00Z"},` +
			`"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}`,
	}
}

// record writes what a controller records of an hour of one pod.
func record(t *testing.T, folder string) {
	t.Helper()
	begin := time.Date(2026, 6, 1, 10, 0, 0, 0, time.UTC)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "web-0", CreationTimestamp: metav1.NewTime(begin)}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "pause", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
	store, keeper := cluster.NewStore(), recording.NewKeeper(folder)
	defer keeper.Close()
	keep := func(now time.Time, edit func(d *cluster.Draft)) {
		store.Update(edit)
		if err := keeper.Keep(store.Snapshot(), now); err != nil {
			t.Fatal(err)
		}
	}
	keep(begin, func(d *cluster.Draft) { d.PutPod(pod); d.Synced(true) })
	keep(begin.Add(time.Hour), func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: pod.Namespace, Name: pod.Name}) })
}

// The commands of pages that read files are typed in a folder that has these files.
func TestCommandsThatReadFiles(t *testing.T) {
	commands, files, folder := readers(t), theirFiles(t), t.TempDir()
	docs, err := filepath.Abs(root + "docs")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder)
	if err := os.Symlink(docs, "docs"); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	record(t, "recording")
	wants := map[string]string{ // by the word after karpenter
		"plan": "web|inflate|any-arch", "why": "web-0", "lint": "PodDisruptionBudget/shop/web", "replay": "(?i)base", "migrate": "kind: NodePool", "snapshot": "",
		"savings": "proven least",
	}
	for _, command := range commands {
		_, command, _ = strings.Cut(strings.Replace(command, "world.txtar", "cluster.txtar", 1), "karpenter ")
		command, _, _ = strings.Cut(command, " > ")
		t.Run(command, func(t *testing.T) {
			in, err := os.Open("-")
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			defer func(before *os.File) { os.Stdin = before }(os.Stdin)
			os.Stdin = in
			var out, trouble strings.Builder
			code := run(t.Context(), strings.Fields(command), &out, &trouble)
			word, _, _ := strings.Cut(command, " ")
			want, known := wants[word]
			if code > 1 || !known || !regexp.MustCompile(want).MatchString(out.String()) {
				t.Errorf("code %d, want %q in\n%s\n%s", code, want, out.String(), trouble.String())
			}
		})
	}
	if len(commands) < 15 {
		t.Errorf("the pages have %d such commands: %q", len(commands), commands)
	}
}
