package e2e

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"karpenter.sh/karpenter/local/plane"
)

func TestASecondUpSaysThatItRuns(t *testing.T) {
	together.enter(t)
	if out := shared.do(t, "up"); !strings.Contains(out, "runs already") {
		t.Errorf("up = %q", out)
	}
	other, want := "1.35", "cannot read"
	switch kubernetes {
	case "1.34":
		want = "another Kubernetes"
	case "1.35":
		other = "1.34"
	}
	if said := shared.refuse(t, "up", "--kubernetes", other); !strings.Contains(said, want) {
		t.Errorf("up with Kubernetes %s said %q, want %q", other, said, want)
	}
}

func TestStatusShowsWhatRuns(t *testing.T) {
	together.enter(t)
	out := shared.do(t, "status")
	for _, want := range []string{"ready, since", "etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelets", "karpenter-", "8080:", "nodes"} {
		if !strings.Contains(out, want) {
			t.Errorf("status does not speak of %s:\n%s", want, out)
		}
	}
}

func TestThePageIsWhereStatusSays(t *testing.T) {
	together.enter(t)
	at := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(shared.do(t, "status"))
	r, err := http.Get(at + "picture")
	if err != nil {
		t.Fatalf("%q: %v", at, err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(text), `"leading":true`) {
		t.Errorf("%spicture: status %d, %v: %s", at, r.StatusCode, err, text)
	}
}

func TestLogs(t *testing.T) {
	together.enter(t)
	if out := shared.do(t, "logs", "controller"); !strings.Contains(out, "starting") {
		t.Errorf("logs = %q", out)
	}
	if out := shared.do(t, "logs"); !strings.Contains(out, "\netcd: ") || !strings.Contains(out, "\nkarpenter-") {
		t.Error("the log of all programs lacks some")
	}
	if said := shared.refuse(t, "logs", "nobody"); !strings.Contains(said, "controller") {
		t.Errorf("said %q, want the names there are", said)
	}
}

func TestKubectlTalksToThisCluster(t *testing.T) {
	together.enter(t)
	out := shared.do(t, "kubectl", "version")
	client := regexp.MustCompile(`Client Version: (v1\.[0-9]+)\.`).FindStringSubmatch(out)
	server := regexp.MustCompile(`Server Version: (v1\.[0-9]+)\.`).FindStringSubmatch(out)
	want := "v" + kubernetes
	if kubernetes == "" && client != nil {
		want = client[1]
	}
	if client == nil || server == nil || server[1] != want {
		t.Errorf("kubectl version = %q, want the server to be of Kubernetes %q, or of the client's if none was asked for", out, kubernetes)
	}
}

// TestTheFirstObjectsAreTheUsers applies a pool of the name of ours, as every guide has one.
func TestTheFirstObjectsAreTheUsers(t *testing.T) {
	together.enter(t)
	for kind, want := range map[string]string{"nodepool": "NodePool", "ec2nodeclass": "EC2NodeClass", "deployment": "Deployment"} {
		name := map[string]string{"deployment": "inflate"}[kind]
		if said := shared.do(t, "kubectl", "apply", "view-last-applied", kind, cmp.Or(name, "default")); !strings.Contains(said, "kind: "+want) {
			t.Errorf("last applied of %s: %q", kind, said)
		}
	}
}

// TestDownAndUp is the life of a cluster of its own, in order.
func TestDownAndUp(t *testing.T) {
	apart.enter(t)
	c := fresh(t)
	if out := c.do(t, "down"); !strings.Contains(out, "no cluster") {
		t.Errorf("down before the first up: %q", out)
	}
	said := c.do(t, "up", "--set", "replicas=2")
	first := c.run(t)
	checkNext(t, said)
	c.do(t, "kubectl", "wait", "--for=jsonpath={.status.readyReplicas}=10", "deployment/inflate", wait)
	nodes := c.do(t, "kubectl", "get", "nodes", "-o", "name")
	c.do(t, "down")
	checkGone(t, first)

	c.do(t, "up")
	if again := c.do(t, "kubectl", "get", "nodes", "-o", "name"); again != nodes || nodes == "" {
		t.Errorf("nodes before: %q, after: %q", nodes, again)
	}
	if second := c.run(t); second.Server != first.Server {
		t.Errorf("the API server moved from %s to %s, though its port is free", first.Server, second.Server)
	}
	c.do(t, "kubectl", "wait", "--for=condition=Ready", "nodes", "--all", wait)
	checkValues(t, c)

	second := c.run(t)
	c.do(t, "clean")
	checkGone(t, second)
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
		t.Errorf("clean left %s: %v", c.dir, err)
	}
}

// checkValues changes values of the chart while the cluster runs. It was started with two replicas.
func checkValues(t *testing.T, c *cluster) {
	t.Helper()
	values := func() string {
		return c.do(t, "kubectl", "get", "deployment", "karpenter", "-n", plane.Namespace, "-o", `jsonpath={.spec.replicas} {.spec.template.spec.containers[0].env[?(@.name=="BATCH_IDLE_DURATION")].value}`)
	}
	if got := values(); got != "2 1s" {
		t.Errorf("values of the last time: %q, want two replicas", got)
	}
	if said := c.refuse(t, "up", "--set", "settings.colour=blue"); !strings.Contains(said, "colour") {
		t.Errorf("said %q", said)
	}
	folder := t.TempDir()
	put(t, filepath.Join(folder, "my-values.yaml"), []byte("settings: {batchIdleDuration: 2s}"), 0o600)
	blocks := strings.Split(page(t, "getting-started.md"), "```")
	at := slices.IndexFunc(blocks, func(b string) bool { return strings.Contains(b, "--values my-values.yaml") })
	c.typed(t, "cd "+folder+blocks[at])
	if got := values(); got != "2 2s" {
		t.Errorf("values after a change: %q, want both", got)
	}
	c.do(t, "up", "--reset-values")
	if got := values(); got != "1 1s" {
		t.Errorf("values after they were forgotten: %q", got)
	}
}

// checkNext types what up says may be typed next, line by line into a shell that knows nothing of the cluster and is somewhere else.
func checkNext(t *testing.T, said string) {
	t.Helper()
	said = strings.TrimSpace(said)
	next := said[strings.LastIndex(said, "\n\n")+1:] // what comes before tells of steps, and of the page
	shell := exec.Command("sh", "-e")
	shell.Dir = t.TempDir()
	shell.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "KARPENTER_LOCAL_DIR=") || strings.HasPrefix(v, "KUBECONFIG=")
	})
	shell.Stdin = strings.NewReader(next)
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("up said\n%s\nand typing that said %v\n%s", said, err, out)
	}
	for _, want := range []string{"deployment.apps/inflate scaled", "ready, since"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("typing what up says does not tell of %q:\n%s", want, out)
		}
	}
}

func TestNothingOutlivesAKilledSupervisor(t *testing.T) {
	apart.enter(t)
	c := fresh(t)
	c.do(t, "up")
	r := c.run(t)
	if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	checkGone(t, r)
	c.do(t, "up") // and it can be started again
}

func TestCtrlCWhileItStartsLeavesNothing(t *testing.T) {
	apart.enter(t)
	c := fresh(t)
	up := c.command("up")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if text, err := os.ReadFile(filepath.Join(c.dir, "run.json")); err == nil && strings.Contains(string(text), "kube-apiserver") {
			break
		}
	}
	r := c.run(t)
	up.Process.Signal(os.Interrupt)
	if err := up.Wait(); err == nil {
		t.Error("an interrupted up succeeded")
	}
	checkGone(t, r)
}

func TestCtrlCEndsAClusterInTheForeground(t *testing.T) {
	apart.enter(t)
	c := fresh(t)
	up := c.command("up", "--foreground")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if text, err := os.ReadFile(filepath.Join(c.dir, "run.json")); err == nil && strings.Contains(string(text), `"Ready": true`) {
			break
		}
	}
	r := c.run(t)
	if !r.Ready {
		t.Error("the cluster never got ready")
	}
	up.Process.Signal(os.Interrupt)
	if err := up.Wait(); err != nil {
		t.Error(err)
	}
	checkGone(t, r)
}

func TestTroubleIsSaidInOneLine(t *testing.T) {
	apart.enter(t)
	t.Run("a taken port", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		if said := fresh(t).refuse(t, "up", "--port", port); !strings.Contains(said, "port "+port+" is taken") {
			t.Errorf("said %q", said)
		}
	})
	t.Run("a Kubernetes that there is not", func(t *testing.T) {
		if said := fresh(t).refuse(t, "up", "--kubernetes", "1.30"); !strings.Contains(said, "1.34, 1.35, 1.36") {
			t.Errorf("said %q, want those that there are", said)
		}
	})
	t.Run("settings that contradict each other", func(t *testing.T) {
		if said := fresh(t).refuse(t, "up", "--boot-delay=1s", "--boot-spread=2s"); !strings.Contains(said, "spread") {
			t.Errorf("said %q", said)
		}
	})
	t.Run("a damaged run file", func(t *testing.T) {
		c := fresh(t)
		damage(t, filepath.Join(c.dir, "run.json"))
		if said := c.refuse(t, "up"); !strings.Contains(said, "run.json") || !strings.Contains(said, "clean") {
			t.Errorf("said %q", said)
		}
	})
	t.Run("a damaged authority", func(t *testing.T) {
		c := fresh(t)
		damage(t, filepath.Join(c.dir, "pki", "ca.crt"))
		damage(t, filepath.Join(c.dir, "pki", "ca.key"))
		if said := c.refuse(t, "up"); !strings.Contains(said, "pki") || !strings.Contains(said, "clean") {
			t.Errorf("said %q", said)
		}
	})
	t.Run("a damaged database", func(t *testing.T) {
		c := fresh(t)
		damage(t, filepath.Join(c.dir, "etcd", "member", "snap", "db"))
		if said := c.refuse(t, "up"); !strings.Contains(said, "etcd ended at its start") {
			t.Errorf("said %q", said)
		}
	})
	t.Run("a state folder that cannot be made", func(t *testing.T) {
		c := fresh(t)
		damage(t, c.dir) // a file
		if said := c.refuse(t, "up"); !strings.Contains(said, c.dir) {
			t.Errorf("said %q", said)
		}
	})
	t.Run("kubectl without a cluster", func(t *testing.T) {
		if said := fresh(t).refuse(t, "kubectl", "get", "nodes"); !strings.Contains(said, "karpenter-local up") {
			t.Errorf("said %q", said)
		}
	})
}

func damage(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
}
