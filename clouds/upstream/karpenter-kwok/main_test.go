package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"karpenter.sh/karpenter/api/crds"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/kit/loopback"
	"karpenter.sh/karpenter/test/plane"
)

// TestMain lets the test's own program be karpenter-kwok.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_KARPENTER_KWOK") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const patience = 5 * time.Minute

// A cluster is an API server with karpenter-kwok, and with as much of a scheduler, a kubelet and a ReplicaSet as pods need.
type cluster struct {
	client.Client
	replicas int
	metrics  int
	ended    chan struct{} // closed when karpenter-kwok has ended
	log      bytes.Buffer
}

func start(t *testing.T) *cluster {
	t.Helper()
	definitions, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	server, release, err := plane.New(definitions, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	upstream, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter").Output()
	if err != nil {
		t.Fatal(err)
	}
	server.CRDInstallOptions.Paths = []string{filepath.Join(strings.TrimSpace(string(upstream)), "kwok/apis/crds")}
	if _, err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	user, err := server.AddUser(envtest.User{Name: "karpenter", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{}
	if c.Client, err = client.New(user.Config(), client.Options{Scheme: kinds}); err != nil {
		t.Fatal(err)
	}
	c.run(t, file)
	return c
}

// run starts karpenter-kwok and what else a cluster has.
func (c *cluster) run(t *testing.T, kubeconfig string) {
	t.Helper()
	var ports [2]int
	for i := range ports {
		p, err := loopback.Take()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		ports[i] = p.Number
	}
	c.metrics = ports[0]
	program := exec.Command(os.Args[0])
	program.Env = append(os.Environ(), "RUN_KARPENTER_KWOK=1", "KUBECONFIG="+kubeconfig, "LEADER_ELECTION_NAMESPACE=default",
		"DISABLE_LEADER_ELECTION=false", fmt.Sprintf("METRICS_PORT=%d", ports[0]), fmt.Sprintf("HEALTH_PROBE_PORT=%d", ports[1]))
	program.Stdout, program.Stderr = &c.log, &c.log
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c.ended = make(chan struct{})
	var err error
	go func() {
		defer close(c.ended)
		err = program.Wait()
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.turn(ctx)
			time.Sleep(200 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
		_ = program.Process.Signal(syscall.SIGTERM)
		<-c.ended
		if err != nil {
			t.Errorf("karpenter-kwok ended: %v", err)
		}
		if t.Failed() {
			t.Log(c.log.String())
		}
	})
}

// turn keeps the replicas, ends pods that are being deleted, makes Nodes ready and binds pods. What fails is tried again.
func (c *cluster) turn(ctx context.Context) {
	var pods corev1.PodList
	var nodes corev1.NodeList
	if c.List(ctx, &pods) != nil || c.List(ctx, &nodes) != nil {
		return
	}
	alive, on := 0, map[string]int{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp != nil {
			_ = c.Delete(ctx, p, client.GracePeriodSeconds(0))
			continue
		}
		alive++
		on[p.Spec.NodeName]++
		if alive > c.replicas {
			_ = c.Delete(ctx, p, client.GracePeriodSeconds(0))
		}
	}
	for ; alive < c.replicas; alive++ {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Namespace: "default"}}
		p.Spec.Containers = []corev1.Container{{Name: "web", Image: "web", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
		if c.Create(ctx, p) == nil {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Reason: corev1.PodReasonUnschedulable}}
			_ = c.Status().Update(ctx, p)
		}
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if registered := n.Labels[v1.NodeRegisteredLabelKey] != ""; registered && len(n.Status.Conditions) == 0 {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
			_ = c.Status().Update(ctx, n)
			_ = c.Patch(ctx, n, client.RawPatch("application/json-patch+json", // the API server has put it there, as on every new Node
				[]byte(`[{"op":"remove","path":"/spec/taints"}]`)))
		}
		if n.DeletionTimestamp != nil || len(n.Spec.Taints) > 0 || n.Labels[v1.NodeInitializedLabelKey] == "" {
			continue
		}
		room := int(n.Status.Allocatable.Cpu().MilliValue()/1000) - on[n.Name]
		for j := range pods.Items {
			if p := &pods.Items[j]; room > 0 && p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
				room--
				p.Spec.NodeName = n.Name
				bind := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
					Target: corev1.ObjectReference{Kind: "Node", Name: n.Name}}
				if c.SubResource("binding").Create(ctx, p, bind) == nil {
					p.Status.Phase = corev1.PodRunning
					_ = c.Status().Patch(ctx, p, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Running"}}`)))
				}
			}
		}
	}
}

// fleet returns the claims by name, and how many pods run.
func (c *cluster) fleet(t *testing.T) (claims map[string]*v1.NodeClaim, running int) {
	t.Helper()
	var list v1.NodeClaimList
	var pods corev1.PodList
	for _, l := range []client.ObjectList{&list, &pods} {
		if err := c.List(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	claims = map[string]*v1.NodeClaim{}
	for i := range list.Items {
		claims[list.Items[i].Name] = &list.Items[i]
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != "" && pods.Items[i].DeletionTimestamp == nil {
			running++
		}
	}
	return claims, running
}

func (c *cluster) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Second) {
		select {
		case <-c.ended:
			t.Fatalf("%s: karpenter-kwok has ended", what)
		default:
		}
		if time.Now().After(end) {
			claims, running := c.fleet(t)
			t.Fatalf("%s: not within %v; %d claims, %d pods run", what, patience, len(claims), running)
		}
	}
}

// onANode is a number of pods that one node holds.
const onANode = 6

func TestKarpenterKwok(t *testing.T) {
	c := start(t)
	class := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
		"metadata": map[string]any{"name": "default"}, "spec": map[string]any{"nodeRegistrationDelay": "1s"},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
			"lastTransitionTime": "2026-01-01T00:00:00Z"}}}}}
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}
	pool.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: v1.CapacityTypeLabelKey,
		Operator: corev1.NodeSelectorOpIn, Values: []string{"on-demand"}}}
	pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
	for _, o := range []client.Object{class, pool} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	c.replicas = onANode
	c.eventually(t, "pods run", func() bool { _, running := c.fleet(t); return running == onANode })
	first, _ := c.fleet(t)

	// Drift: the template gets a label, and its nodes a life of half a minute. There is one node: of several that drift soon after their
	// launch one is replaced, and the others only when its replacement has lived for half a minute.
	edit := []byte(`{"spec":{"template":{"metadata":{"labels":{"edition":"2"}},"spec":{"expireAfter":"30s"}}}}`)
	if err := c.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json", edit)); err != nil {
		t.Fatal(err)
	}
	var second map[string]*v1.NodeClaim
	c.eventually(t, "drifted nodes are replaced", func() bool {
		claims, running := c.fleet(t)
		for name, claim := range claims {
			if first[name] != nil || claim.Labels["edition"] != "2" || !meta.IsStatusConditionTrue(conditions(claim), v1.ConditionTypeInitialized) {
				return false
			}
		}
		second = claims
		return running == onANode
	})
	c.eventually(t, "expired nodes are replaced", func() bool {
		claims, _ := c.fleet(t)
		for name := range second {
			if claims[name] != nil {
				return false
			}
		}
		return len(claims) > 0
	})
	c.metricsAreJoined(t)
	c.replicas = 0
	c.eventually(t, "empty nodes go", func() bool {
		claims, _ := c.fleet(t)
		var nodes corev1.NodeList
		return len(claims) == 0 && c.List(t.Context(), &nodes) == nil && len(nodes.Items) == 0
	})
}

func conditions(c *v1.NodeClaim) []metav1.Condition { return c.Status.Conditions }

// metricsAreJoined looks for a metric of the core and one of the provider's operator on the port of the latter.
func (c *cluster) metricsAreJoined(t *testing.T) {
	t.Helper()
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", c.metrics))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	for _, want := range []string{"\nkarpenter_nodes_created_total", "\ncertwatcher_read_certificate_total"} {
		if err != nil || !bytes.Contains(text, []byte(want)) {
			t.Errorf("status %d, error %v: %q is missing", answer.StatusCode, err, want)
		}
	}
}
