package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// live is a question about a cluster with one pool, in which one pod waits already.
func live(t *testing.T) engine.Question {
	t.Helper()
	pool := sim.Pool("default")
	catalog, err := sim.Shop(pool)
	if err != nil {
		t.Fatal(err)
	}
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, pool)
		cluster.PriorityClasses.Put(d, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 5})
		d.PutPod(sim.Pod("waits", "1"))
		d.Synced(true)
	})
	return engine.Question{Snap: store.Snapshot(), Pools: []engine.Pool{{Pool: pool, Catalog: catalog}}, Now: time.Now()}
}

// deploymentText is one of pods that ask for some CPUs.
func deploymentText(replicas int, cpu, more string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      %s
      containers: [{name: c, image: i, resources: {requests: {cpu: %q}}}]
`, replicas, more, cpu)
}

func TestPreview(t *testing.T) {
	for name, tc := range map[string]struct {
		text           string
		nodes, refused int
	}{
		"pods of a Deployment":              {text: deploymentText(3, "1", ""), nodes: 2},
		"pods that are too large":           {text: deploymentText(2, "5000", ""), refused: 2},
		"a priority class of the cluster":   {text: deploymentText(1, "1", "priorityClassName: urgent"), nodes: 1},
		"a volume that would be made":       {text: deploymentText(1, "1", "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]"), nodes: 1},
		"a claim that is not there":         {text: deploymentText(1, "1", "volumes: [{name: v, persistentVolumeClaim: {claimName: missing}}]"), refused: 1},
		"beside objects that do not matter": {text: deploymentText(1, "1", "") + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", nodes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := Preview(t.Context(), []byte(tc.text), live(t))
			if err != nil {
				t.Fatal(err)
			}
			var r report
			if err := json.Unmarshal(answer, &r); err != nil {
				t.Fatal(err)
			}
			if len(r.Claims) != tc.nodes || len(r.Unschedulable) != tc.refused {
				t.Errorf("the plan is %s", answer)
			}
			if strings.Contains(string(answer), "waits") {
				t.Error("a pod that waits already is planned again")
			}
		})
	}
}

func TestPreviewSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "there is no pod in it",
		"kind: ConfigMap\n":               "apiVersion",
		"{":                               "line:1",
		deploymentText(2001, "1", ""):     "more than 2000 pods",
		deploymentText(0, "1", ""):        "there is no pod in it",
		strings.Repeat("---\n", 1000):     "there is no pod in it",
		deploymentText(1, "1e-99999", ""): "",
		deploymentText(1, "1", "priorityClassName: absent"): "there is no PriorityClass named absent",
		"apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: other}\nspec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}, requirements: []}}}\n": "karpenter plan -f FILE",
	} {
		_, err := Preview(t.Context(), []byte(text), live(t))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want an error with %q", text, err, want)
		}
	}
	var many strings.Builder
	for i := range 2001 {
		fmt.Fprintf(&many, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec: {containers: [{name: c, image: i}]}\n", i)
	}
	if _, err := Preview(t.Context(), []byte(many.String()), live(t)); err == nil || !strings.Contains(err.Error(), "these are 2001 pods") {
		t.Errorf("2001 pods: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Preview(ended, []byte(deploymentText(1, "1", "")), live(t)); err == nil || !strings.Contains(err.Error(), "fewer pods") {
		t.Errorf("a preview whose time is over: %v", err)
	}
}
