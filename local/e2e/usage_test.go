package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

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
