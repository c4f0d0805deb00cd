package runtime

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/lifeline"
)

// TestMain lets this test binary be the controller, of which it does what MODE says.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "controller" {
		lifeline.Follow()
		stub()
	}
	os.Exit(m.Run())
}

// stub says who it is, is ready, and ends when it is asked to.
func stub() {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	fmt.Println("I am", os.Getenv("HOSTNAME"), strings.Join(os.Args[3:], " "))
	mode := os.Getenv("MODE")
	if mode == "fails" {
		fmt.Fprint(os.Stderr, "no luck")
		os.Exit(3)
	}
	_, port, _ := strings.Cut(os.Getenv(PortsEnv), ":")
	go http.ListenAndServe("127.0.0.1:"+port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if mode == "hangs" && r.URL.Path == "/healthz" {
			http.Error(w, "I hang", http.StatusServiceUnavailable)
		}
	}))
	<-terminated
	if mode == "deaf" {
		select {}
	}
	fmt.Println("bye")
	os.Exit(0)
}

// A world is a cluster with one node, and a runtime for it.
type world struct {
	*testing.T
	client *fake.Clientset
	*Runtime
	stop func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetSubresource() == "token", &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "secret"}}, nil
	})
	r := &Runtime{
		Addresses: newAddresses(), client: client, server: &rest.Config{Host: "https://127.0.0.1:1"}, dir: home.Dir(t.TempDir()),
		nodes: map[string]Node{"control-a": {Name: "control-a", IP: "10.0.255.1"}}, binary: binary,
		log: slog.New(slog.NewTextHandler(io.Discard, nil)), pods: map[types.UID]*pod{},
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	w := &world{T: t, client: client, Runtime: r, stop: func() { end(); <-ended }}
	t.Cleanup(w.stop)
	return w
}

func probe(path string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http")}},
		PeriodSeconds: 1, TimeoutSeconds: 60, FailureThreshold: 3, // a busy machine is no reason to restart it
	}
}

// add makes a pod whose controller does what mode says.
func (w *world) add(mode string, change ...func(*corev1.Pod)) {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "karpenter-1", UID: "u1"},
		Spec: corev1.PodSpec{
			NodeName: "control-a", TerminationGracePeriodSeconds: new(int64(30)), RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{
				Name: "controller", Image: "karpenter/controller:1", Args: []string{"--mode=$(MODE)"},
				Env: []corev1.EnvVar{{Name: "MODE", Value: mode}}, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8081}},
				ReadinessProbe: probe("/readyz"), LivenessProbe: probe("/healthz"),
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
	}
	for _, c := range change {
		c(p)
	}
	if _, err := w.client.CoreV1().Pods(p.Namespace).Create(w.Context(), p, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// soon is how long anything may take that happens within seconds on a machine with nothing else to do.
const soon = 5 * time.Minute

// until waits for the pod to be as wanted.
func (w *world) until(what string, is func(*corev1.Pod) bool) *corev1.Pod {
	w.Helper()
	var p *corev1.Pod
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var err error
		if p, err = w.client.CoreV1().Pods("kube-system").Get(w.Context(), "karpenter-1", metav1.GetOptions{}); apierrors.IsNotFound(err) {
			p = nil
		} else if err != nil {
			w.Fatal(err)
		}
		if is(p) {
			return p
		}
	}
	if p == nil {
		w.Fatalf("the pod is not %s: it is gone", what)
	}
	w.Fatalf("the pod is not %s: %+v", what, p.Status)
	return nil
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// delete asks the pod to end within a while, as the API server notes it.
func (w *world) delete(p *corev1.Pod, within time.Duration) {
	w.Helper()
	p.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(within)))
	if _, err := w.client.CoreV1().Pods(p.Namespace).Update(w.Context(), p, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) said(p *corev1.Pod, previous bool) string {
	w.Helper()
	path, known, err := w.Log(ContainerName{p.Namespace, p.Name, "controller"}, previous)
	if err != nil || !known {
		w.Fatalf("no log: %t, %v", known, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		w.Fatal(err)
	}
	var said strings.Builder
	for line := range strings.Lines(string(text)) {
		said.WriteString(Said(line))
	}
	return said.String()
}

func gone(p *corev1.Pod) bool { return p == nil }

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestAPodIsAProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("works")
	p := w.until("ready", ready)
	s := p.Status.ContainerStatuses[0]
	pid, runs := PID(&s)
	if !runs || !alive(pid) || s.RestartCount != 0 || p.Status.Phase != corev1.PodRunning || p.Status.HostIP != "10.0.255.1" {
		t.Errorf("status = %+v", p.Status)
	}
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue || c.Reason != "" {
			t.Errorf("condition %+v of a pod that is ready", c)
		}
	}
	if at, found := w.Addresses.Lookup(p.Status.PodIP, 8081); !found || ask(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/", at), nil) != nil {
		t.Errorf("port 8081 of the pod is at %d, %t", at, found)
	}
	if said := w.said(p, false); said != "I am karpenter-1 --mode=works\n" {
		t.Errorf("it said %q", said)
	}
	folder := w.dir.PodFolder("u1")
	if token, err := os.ReadFile(folder + "/token"); err != nil || string(token) != "secret" {
		t.Errorf("token: %q, %v", token, err)
	}
	w.delete(p, time.Minute)
	w.until("gone", gone)
	if alive(pid) {
		t.Error("the process outlived its pod")
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("its credentials are still there: %v", err)
	}
}

func TestAProcessThatDoesNotEndIsKilledWhenItsGraceIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("deaf")
	p := w.until("ready", ready)
	pid, _ := PID(&p.Status.ContainerStatuses[0])
	begin := time.Now()
	w.delete(p, 2*time.Second)
	w.until("gone", gone)
	if took := time.Since(begin); alive(pid) || took < 1500*time.Millisecond {
		t.Errorf("after %s the process lives: %t", took, alive(pid))
	}
}

func TestAPodThatIsRemovedByForceLeavesNoProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("deaf")
	p := w.until("ready", ready)
	pid, _ := PID(&p.Status.ContainerStatuses[0])
	if err := w.client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(soon); alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the process outlived its pod")
		}
	}
}

func TestAContainerThatEndsIsStartedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("fails")
	p := w.until("restarted twice", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount >= 2
	})
	last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.ExitCode != 3 || last.Reason != "Error" || ready(p) || p.Status.Phase != corev1.PodRunning {
		t.Errorf("status = %+v", p.Status)
	}
	if said := w.said(p, true); said != "I am karpenter-1 --mode=fails\nno luck\n" {
		t.Errorf("in its former life it said %q", said)
	}
	p = w.until("waiting again", func(now *corev1.Pod) bool {
		s := now.Status.ContainerStatuses[0]
		return s.State.Waiting != nil && s.RestartCount > p.Status.ContainerStatuses[0].RestartCount
	})
	w.said(p, false) // is there, also before it is started again
}

func TestAContainerThatRunsOnceStaysAsItEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("fails", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
	p := w.until("over", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	w.delete(p, time.Minute)
	w.until("gone", gone)
}

func TestAContainerThatHangsIsRestarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("hangs")
	p := w.until("restarted", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount >= 1
	})
	if last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 0 {
		t.Errorf("its former life ended as %+v, want by itself: it was asked to", last)
	}
}

func TestAContainerWhoseVariablesAreMissingWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("works", func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "later"}}}}
	})
	w.until("waiting", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == "CreateContainerConfigError"
	})
	later := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "later"}}
	if _, err := w.client.CoreV1().ConfigMaps(later.Namespace).Create(t.Context(), later, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if p := w.until("ready", ready); p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("a container that never ran was restarted")
	}
}

func TestSidecarsAreSaidToRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("works", func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy", Image: "envoy"})
	})
	p := w.until("ready", ready)
	if s := p.Status.ContainerStatuses[1]; !s.Ready || s.State.Running == nil || s.ContainerID != "" {
		t.Errorf("the sidecar is %+v", s)
	}
}

// The machine goes and comes back, as with down and up.
func TestAPodRunsAgainWithItsMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("works")
	before := w.until("ready", ready)
	pid, _ := PID(&before.Status.ContainerStatuses[0])
	w.stop()
	if alive(pid) {
		t.Fatal("the process outlived its machine")
	}
	again := newWorld(t)
	again.add("works", func(p *corev1.Pod) { p.Status = before.Status })
	p := again.until("restarted", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	if p.Status.PodIP != before.Status.PodIP {
		t.Errorf("the pod had the address %s and has %s", before.Status.PodIP, p.Status.PodIP)
	}
}

func TestOtherPodsAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("works", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "pause" })
	time.Sleep(300 * time.Millisecond)
	if p := w.until("there", func(p *corev1.Pod) bool { return p != nil }); p.Status.Phase != corev1.PodPending {
		t.Errorf("status = %+v", p.Status)
	}
}
