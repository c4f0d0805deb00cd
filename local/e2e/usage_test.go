package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/local/plane"
)

// The guide's section, as it is typed.
func TestLoadMakesPodsAndPodsMakeNodes(t *testing.T) {
	together.enter(t)
	blocks := section(t, "getting-started.md", "Pods that scale with their load")
	if len(blocks) != 3 {
		t.Fatalf("the section has %d blocks of commands, want those that begin, look and end", len(blocks))
	}
	t.Cleanup(func() { shared.command("kubectl", "delete", "hpa,deployment", "busy", "--ignore-not-found").Run() })
	begin := time.Now()
	shared.typed(t, blocks[0])
	pods := running(t, "busy", 10)
	t.Logf("10 pods ran after %s", time.Since(begin).Round(100*time.Millisecond))

	shown := lines(shared.typed(t, blocks[1]))
	for _, p := range pods {
		if line := p.Name + " 200m 32Mi"; !shown[line] {
			t.Errorf("kubectl top pods does not say %q: %v", line, shown)
		}
		used := false
		for line := range shown {
			used = used || strings.HasPrefix(line, p.Spec.NodeName+" ") && strings.HasSuffix(line, "%")
		}
		if !used {
			t.Errorf("kubectl top nodes does not show %s, where %s runs: %v", p.Spec.NodeName, p.Name, shown)
		}
	}

	shown = lines(shared.typed(t, blocks[2]))
	for _, p := range pods {
		if line := p.Name + " 10m 32Mi"; !shown[line] {
			t.Errorf("kubectl top pods does not say %q of a pod whose load has gone: %v", line, shown)
		}
	}
	running(t, "busy", 0)
}

// What KEDA does, by what stands in for it: a queue's length is written into a Deployment's scale, from none to many and back. Pods take messages as soon
// as there are as many as the queue asked for.
func TestAQueueMakesPodsAndPodsMakeNodes(t *testing.T) {
	together.enter(t)
	const each, most = 5, 8 // messages for one pod, pods for all of them
	workers := deployment("workers", 0, template("workers"))
	add(t, workers)
	queue, ran := each*most, 0
	eventually(t, func(ctx context.Context) (string, error) {
		pods, err := shared.pods(ctx, client.MatchingLabels{"app": "workers"})
		if err != nil {
			return "", err
		}
		nodes := map[string]bool{}
		run := 0
		for _, p := range pods {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				run, nodes[p.Spec.NodeName] = run+1, true
			}
		}
		if run == most && ran < most {
			claims, err := shared.claims(ctx)
			if err != nil {
				return "", err
			}
			for _, c := range claims {
				delete(nodes, c.Status.NodeName)
			}
			if len(nodes) > 0 {
				t.Errorf("nodes %v have pods and no claims", nodes)
			}
		}
		if ran = max(ran, run); ran == most {
			queue = max(0, queue-run)
		}
		if queue == 0 && len(pods) == 0 {
			return "", nil
		}
		var now autoscalingv1.Scale
		if err := shared.SubResource("scale").Get(ctx, workers, &now); err != nil {
			return "", err
		}
		if now.Spec.Replicas = int32((queue + each - 1) / each); now.Spec.Replicas != now.Status.Replicas {
			err = shared.SubResource("scale").Update(ctx, workers, client.WithSubResourceBody(&now))
		}
		return fmt.Sprintf("%d messages wait, %d of %d pods run", queue, run, len(pods)), err
	})
}

// lines are those of a text, with one space between words.
func lines(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		all[strings.Join(strings.Fields(line), " ")] = true
	}
	return all
}

// Headers that say who somebody is count only beside the certificate of the API server's front proxy.
func TestMetricsAreNotForEverybodyOnTheMachine(t *testing.T) {
	together.enter(t)
	eventually(t, func(context.Context) (string, error) {
		shown := shared.do(t, "kubectl", "get", "apiservice", "v1beta1.metrics.k8s.io", "--no-headers")
		if !strings.Contains(shown, "True") {
			return shown, nil
		}
		return "", nil
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		fmt.Sprintf("https://127.0.0.1:%d/apis/metrics.k8s.io/v1beta1/pods", shared.run(t).Ports[plane.UsagePort]), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Remote-User", "admin")
	r.Header.Set("X-Remote-Group", "system:masters")
	anybody := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := anybody.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("a stranger who says that he is the admin is answered with %s", answer.Status)
	}
	if shown := shared.do(t, "kubectl", "get", "podmetrics", "-n", plane.Namespace); !strings.Contains(shown, plane.ServiceAccount) {
		t.Errorf("kubectl get podmetrics shows %q", shown)
	}
	for user, want := range map[string]string{"system:serviceaccount:kube-system:horizontal-pod-autoscaler": "yes", "system:serviceaccount:default:default": "no"} {
		out, _ := shared.command("kubectl", "auth", "can-i", "list", "pods.metrics.k8s.io", "--as", user).Output() // which fails for a no
		if got := strings.TrimSpace(string(out)); got != want {
			t.Errorf("may %s read metrics: %s, want %s", user, got, want)
		}
		if err := shared.command("kubectl", "top", "pods", "-n", plane.Namespace, "--as", user).Run(); (err == nil) != (want == "yes") {
			t.Errorf("%s asked for metrics: %v", user, err)
		}
	}
}

// sixNodes asks for a node for each of its pods.
const sixNodes = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: six}
spec:
  replicas: 6
  selector: {matchLabels: {app: six}}
  template:
    metadata: {labels: {app: six}}
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: six}}}
      containers:
      - {name: app, image: pause, resources: {requests: {cpu: 500m}}}
`

// TestSixNodesAreAScrapeOfHalfAMegabyteAtMost asks for as many nodes as pods in a new cluster, and reads all metrics as Prometheus does without
// compression.
func TestSixNodesAreAScrapeOfHalfAMegabyteAtMost(t *testing.T) {
	apart.enter(t)
	c := fresh(t)
	c.do(t, "up")
	if err := c.connect(); err != nil {
		t.Fatal(err)
	}
	const most = 500_000
	c.apply(t, sixNodes)
	c.do(t, "kubectl", "wait", "--for=condition=Available", "deployment/six", wait)
	text := c.scraped(t)
	t.Logf("%d bytes", len(text))
	if !strings.Contains(text, "karpenter_nodes_allocatable{") || len(text) > most {
		t.Errorf("%d bytes of metrics, want those of nodes, %d bytes at most", len(text), most)
	}
	if said := c.typed(t, "karpenter history --act launched --last 6"); strings.Count(said, "  bought ") != 6 {
		t.Errorf("history does not say what was bought:\n%s", said)
	}
}
