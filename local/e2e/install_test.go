package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/local/plane"
)

// charts are this repository's.
const charts = "../../charts/"

// An installed cluster is one into which the charts were installed by the commands of the guides.
type installed struct {
	*cluster
	*testing.T
}

// helm installs or upgrades the controller and waits, as guides do.
func (i installed) helm(values ...string) {
	i.Helper()
	args := []string{"helm", "upgrade", "--install", "karpenter", charts + "karpenter", "--namespace", plane.Namespace, "--wait",
		"--set", "settings.clusterName=" + plane.ClusterName, "--set", "settings.interruptionQueue=" + plane.ClusterName,
		"--set", "controller.image.repository=karpenter/controller",
		"--set", "controller.resources.requests.cpu=1", "--set", "controller.resources.limits.memory=1Gi"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	i.do(i.T, args...)
}

// scaled waits until that many pods of inflate run.
func (i installed) scaled(replicas int) {
	i.Helper()
	i.do(i.T, "kubectl", "scale", "deployment", "inflate", fmt.Sprintf("--replicas=%d", replicas))
	i.do(i.T, "kubectl", "rollout", "status", "deployment/inflate", wait)
}

// replicas are the names of the controller's, in order.
func (i installed) replicas() []string {
	i.Helper()
	return strings.Fields(i.do(i.T, "kubectl", "get", "pods", "-n", plane.Namespace, "-l", "app.kubernetes.io/name=karpenter",
		"--sort-by=.metadata.name", "-o", "jsonpath={.items[*].metadata.name}"))
}

// rolledOut waits until the Deployment's pods are new and ready.
func (i installed) rolledOut() {
	i.Helper()
	i.do(i.T, "kubectl", "rollout", "status", "deployment/karpenter", "-n", plane.Namespace, wait)
}

// TestTheGuidesInstallIt is the life of an installation: by helm into an empty cluster, through the death of its leader, upgrades, a drain
// and a broken machine, to its end.
func TestTheGuidesInstallIt(t *testing.T) {
	apart.enter(t)
	i := installed{fresh(t), t}
	i.typed(t, "make up ARGS=--empty")
	if err := i.connect(); err != nil {
		t.Fatal(err)
	}
	i.do(t, "helm", "upgrade", "--install", "karpenter-crd", charts+"karpenter-crd", "--namespace", plane.Namespace, "--wait")
	begin := time.Now()
	i.helm("legacy.v1beta1=serve")
	t.Logf("helm upgrade --install --wait returned after %s", time.Since(begin).Round(100*time.Millisecond))
	if took := time.Since(begin); soak() && took > 30*time.Second { // make test has all other tests beside it
		t.Errorf("helm upgrade --install --wait returned after %s", took)
	}
	if got := i.replicas(); len(got) != 2 {
		t.Fatalf("the chart's two replicas are %v", got)
	}
	i.do(t, "kubectl", "apply", "-f", filepath.Join("..", "release", "objects", "first.yaml"))
	i.do(t, "kubectl", "patch", "nodepool", "default", "--type=merge", "-p", `{"spec":{"disruption":{"consolidateAfter":"Never"}}}`) // machines go for what is done to them
	i.scaled(10)
	for _, step := range []struct {
		name string
		run  func(*testing.T, installed)
	}{
		{"logs and exec answer", speaks},
		{"its ports are forwarded", forwards},
		{"it is asked about what it did, and runbooks are read", isReadHere},
		{"v1beta1 is converted by Service", converts},
		{"a leader that is killed is followed within seconds", losesItsLeader},
		{"an upgrade changes pods where it changes something", isUpgraded},
		{"a broken machine is replaced", repairs},
		{"its node is drained", isDrained},
		{"v1beta1 is dropped, as the notes say", dropsV1Beta1},
		{"helm takes it away, and machines stay", isTakenAway},
		{"Karpenter v1's own charts are upgraded to it, and it goes back to them", comesFromV1},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, installed{i.cluster, t}) }) {
			return
		}
	}
}

func speaks(t *testing.T, i installed) {
	leader, err := i.leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if said := i.do(t, "kubectl", "logs", "-n", plane.Namespace, leader.Pod, "--timestamps", "--since=5m"); !strings.Contains(said, `Z {"time"`) || !strings.Contains(said, "leading") {
		t.Errorf("its log is %.300q", said)
	}
	if said := i.do(t, "kubectl", "logs", "-n", plane.Namespace, "deployment/karpenter", "--tail=1"); strings.Count(said, `"message"`) != 1 {
		t.Errorf("its last line is %.300q", said)
	}
	if said := i.do(t, "kubectl", "logs", "deployment/inflate"); !strings.Contains(said, "simulated") {
		t.Errorf("a simulated pod says %q", said)
	}
	if said := i.refuse(t, "kubectl", "logs", "-n", plane.Namespace, leader.Pod, "--previous"); !strings.Contains(said, "previous terminated container") {
		t.Errorf("of its former life: %q", said)
	}
	if said := i.refuse(t, "kubectl", "exec", "deployment/inflate", "--", "ls"); !strings.Contains(said, "simulated") {
		t.Errorf("kubectl exec: %q", said)
	}
	if said := i.do(t, "kubectl", "get", "--raw", "/api/v1/namespaces/"+plane.Namespace+"/services/karpenter:http-metrics/proxy/metrics"); !strings.Contains(said, "karpenter_build_info") {
		t.Errorf("its Service serves %.300q", said)
	}
}

// forwards reaches a port of the controller as people do who look at its metrics, and one of a simulated pod.
func forwards(t *testing.T, i installed) {
	for target, want := range map[string]string{"service/karpenter": "karpenter_build_info", "deployment/inflate": ""} {
		forward := i.command("kubectl", "port-forward", "-n", map[bool]string{true: plane.Namespace, false: "default"}[want != ""], target, ":8080")
		out, err := forward.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := forward.Start(); err != nil {
			t.Fatal(err)
		}
		var port int
		if _, err := fmt.Fscanf(out, "Forwarding from 127.0.0.1:%d", &port); err != nil {
			t.Errorf("%s: %v", target, err)
		}
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
		if want == "" && err == nil {
			t.Errorf("%s answers", target)
		} else if want != "" && err != nil {
			t.Errorf("%s: %v", target, err)
		}
		if err == nil {
			text, err := io.ReadAll(answer.Body)
			if answer.Body.Close(); err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s serves %.300q, %v", target, text, err)
			}
			if said := i.typed(t, fmt.Sprintf("karpenter history --journal http://localhost:%d || [ $? = 1 ]", port)); said == "" {
				t.Error("its journal is not read through the port")
			}
		}
		forward.Process.Kill()
		forward.Wait()
	}
}

func converts(t *testing.T, i installed) {
	if said := i.do(t, "kubectl", "get", "nodepools.v1beta1.karpenter.sh", "default", "-o", "yaml"); !strings.Contains(said, "apiVersion: karpenter.sh/v1beta1") {
		t.Errorf("v1beta1 is %s", said)
	}
	if said := i.do(t, "kubectl", "get", "crd", "nodepools.karpenter.sh", "-o", "jsonpath={.spec.conversion.webhook.clientConfig}"); !strings.Contains(said, `"name":"karpenter-conversion"`) || strings.Contains(said, `"url"`) {
		t.Errorf("it is converted by %s", said)
	}
}

func losesItsLeader(t *testing.T, i installed) {
	before, err := i.leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known, err := launched(t.Context(), i.run(t))
	if err != nil {
		t.Fatal(err)
	}
	replicas := i.buying(t, len(known), before.PID)
	begin := time.Now()
	eventually(t, func(ctx context.Context) (string, error) {
		leader, err := i.leader(ctx)
		if err == nil && leader.PID == before.PID {
			return "the process that was killed leads", nil
		}
		return "", err
	})
	t.Logf("the standby, or the one that was killed in its next life, led after %s", time.Since(begin).Round(100*time.Millisecond))
	i.scaled(replicas)
	eventually(t, func(ctx context.Context) (string, error) { return i.unequal(ctx, i.run(t)) })
	all, err := launched(t.Context(), i.run(t))
	if err != nil || len(all) <= len(known) {
		t.Fatalf("%d machines were launched before and %d after, %v", len(known), len(all), err)
	}
	for _, m := range all {
		if isNew := !slices.ContainsFunc(known, func(k awsmodel.Machine) bool { return k.ID == m.ID }); isNew && ended(m) {
			t.Errorf("%s, of %s, was bought twice or for nothing: %+v", m.ID, m.InstanceType, m)
		}
	}
}

// buying kills the leader at a moment at which it has bought machines, beyond those that are known, for pods that still wait. It returns how many pods
// there are to be: more, where all of them ran before anybody saw them wait.
func (i installed) buying(t *testing.T, known, leader int) int {
	t.Helper()
	r, replicas := i.run(t), 25
	i.do(t, "kubectl", "scale", "deployment", "inflate", fmt.Sprintf("--replicas=%d", replicas))
	eventually(t, func(ctx context.Context) (string, error) {
		pods, err := i.pods(ctx, client.MatchingLabels{"app": "inflate"})
		if err != nil {
			return "", err
		}
		all, err := launched(ctx, r)
		if err != nil {
			return "", err
		}
		bought, waiting := len(all)-known, replicas
		for _, p := range pods {
			if p.Spec.NodeName != "" {
				waiting--
			}
		}
		if waiting == 0 {
			known, replicas = len(all), replicas+15
			i.do(t, "kubectl", "scale", "deployment", "inflate", fmt.Sprintf("--replicas=%d", replicas))
		}
		if waiting == 0 || bought == 0 {
			return fmt.Sprintf("%d pods wait, %d machines were bought for them", waiting, bought), nil
		}
		t.Logf("the leader is killed while %d pods wait, and after it has bought %d machines for them", waiting, bought)
		return "", syscall.Kill(leader, syscall.SIGKILL)
	})
	return replicas
}

func isUpgraded(t *testing.T, i installed) {
	i.rolledOut()
	before := i.replicas()
	i.helm("legacy.v1beta1=serve")
	if again := i.replicas(); !slices.Equal(again, before) {
		t.Errorf("an upgrade that changes nothing made %v of %v", again, before)
	}
	i.helm("legacy.v1beta1=serve", "settings.featureGates.nodeRepair=true")
	i.rolledOut()
	for _, pod := range i.replicas() {
		if slices.Contains(before, pod) {
			t.Errorf("%s has the old values", pod)
		}
	}
	i.do(t, "kubectl", "rollout", "restart", "deployment/karpenter", "-n", plane.Namespace)
	i.rolledOut()
}

func repairs(t *testing.T, i installed) {
	nodes, err := i.nodes(t.Context())
	if err != nil || len(nodes) == 0 {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	broken := nodes[0].Name
	commands := strings.Split(strings.NewReplacer("bin/", "", "<node>", broken).Replace(section(t, "getting-started.md", "Machines that fail")[0]), "\n")
	if len(commands) != 4 {
		t.Fatalf("the guide has %q", commands)
	}
	is := func(condition string) { i.do(t, "kubectl", "wait", "--for=condition="+condition, "node/"+broken, wait) }
	i.typed(t, commands[1])
	is("AcceleratedHardwareReady=False")
	i.typed(t, commands[2])
	i.typed(t, commands[3])
	is("AcceleratedHardwareReady")
	is("Ready")
	i.typed(t, commands[0])
	i.do(t, "kubectl", "wait", "--for=delete", "node/"+broken, wait)
	i.scaled(25)
}

func isDrained(t *testing.T, i installed) {
	before := i.replicas()
	i.do(t, "kubectl", "drain", "control-a", "--ignore-daemonsets", wait)
	var there corev1.PodList
	if err := i.List(t.Context(), &there, client.MatchingLabels{"app.kubernetes.io/name": "karpenter"}); err != nil {
		t.Fatal(err)
	}
	for _, p := range there.Items {
		if p.Spec.NodeName == "control-a" {
			t.Errorf("%s is still there", p.Name)
		}
	}
	eventually(t, func(ctx context.Context) (string, error) {
		_, err := i.leader(ctx)
		return "", err
	})
	i.do(t, "kubectl", "uncordon", "control-a")
	i.rolledOut()
	if after := i.replicas(); len(after) != 2 || slices.Equal(after, before) {
		t.Errorf("replicas were %v and are %v", before, after)
	}
}

// dropsV1Beta1 does what the chart's notes ask for before another Karpenter takes over.
func dropsV1Beta1(t *testing.T, i installed) {
	i.helm("legacy.v1beta1=drop")
	eventually(t, func(context.Context) (string, error) {
		for _, name := range []string{"nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"} {
			if versions := i.do(t, "kubectl", "get", "crd", name, "-o", "jsonpath={.spec.versions[*].name}"); versions != "v1" {
				return name + " has the versions " + versions, nil
			}
		}
		return "", nil
	})
}

func isTakenAway(t *testing.T, i installed) {
	before, err := machines(t.Context(), i.run(t))
	if err != nil || len(before) == 0 {
		t.Fatalf("%d machines, %v", len(before), err)
	}
	i.do(t, "helm", "uninstall", "karpenter", "--namespace", plane.Namespace, "--wait")
	if left := i.processes(t); len(left) > 0 {
		t.Errorf("%d processes outlived the release", len(left))
	}
	if wrong, err := i.unequal(t.Context(), i.run(t)); wrong != "" || err != nil {
		t.Errorf("machines, claims and nodes are not the same any more: %s, %v", wrong, err)
	}
	after, err := machines(t.Context(), i.run(t))
	if err != nil || !slices.Equal(after, before) {
		t.Errorf("machines were %v and are %v, %v", before, after, err)
	}
}
