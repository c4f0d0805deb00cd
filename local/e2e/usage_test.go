package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"karpenter.sh/karpenter/local/plane"
)

// section returns the blocks of commands below a heading of the guide for the local cluster.
func section(t *testing.T, heading string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "getting-started.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("the guide has no section %q", heading)
	}
	section, _, _ := strings.Cut(after, "\n## ")
	var blocks []string
	for i, part := range strings.Split(section, "\n```\n") {
		if i%2 == 1 {
			blocks = append(blocks, part)
		}
	}
	return blocks
}

// typed runs a block of commands in a shell in which kubectl is this cluster's, and returns what they print.
func (c *cluster) typed(t *testing.T, block string) string {
	t.Helper()
	sh := exec.Command("sh", "-e", "-c", `kubectl() { "$KARPENTER_LOCAL" kubectl "$@"; }`+"\n"+block)
	sh.Env = append(os.Environ(), "KARPENTER_LOCAL_DIR="+c.dir, "KARPENTER_LOCAL="+c.path)
	out, err := sh.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s\n%s", err, block, out)
	}
	return string(out)
}

// The guide's section, as it is typed.
func TestLoadMakesPodsAndPodsMakeNodes(t *testing.T) {
	together.enter(t)
	blocks := section(t, "Pods that scale with their load")
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
