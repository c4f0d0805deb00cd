// Package e2e tests the whole of it: the local cluster as people start it, and Karpenter in it. All tests share one cluster and run one after
// the other, except those that are about starting and stopping: they have clusters of their own, and run one after the other beside them.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/plane"
	"karpenter.sh/karpenter/local/runtime"
)

// binary is what `make build` leaves.
var binary = filepath.Join("..", "..", "bin", "karpenter-local")

// A cluster is one state folder.
type cluster struct {
	dir  string
	path string // of the binary
	client.Client
}

// shared is the cluster of most tests.
var shared *cluster

// A line is tests that run one after the other, in their order, beside those of other lines.
type line struct {
	last chan struct{} // closed when the last one that came has ended
}

// Those on the shared cluster, and those that have one of their own.
var together, apart = &line{closed()}, &line{closed()}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// enter makes a test one of the line, and returns when it is its turn.
func (l *line) enter(t *testing.T) {
	before, ended := l.last, make(chan struct{})
	l.last = ended
	t.Parallel()
	<-before
	t.Cleanup(func() { close(ended) })
}

func TestMain(m *testing.M) {
	if root, ok := os.LookupEnv(containEnv); ok {
		fmt.Fprintln(os.Stderr, "become a container:", contain(root, os.Args[1:]))
		os.Exit(1)
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "100"); err != nil { // lines say what waits
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	path, err := filepath.Abs(binary)
	if err == nil {
		_, err = os.Stat(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(os.Stderr, "there is no "+path+": make build makes it, and make test does that first")
		return 1
	}
	dir, err := os.MkdirTemp("", "karpenter-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	shared = &cluster{dir: filepath.Join(dir, "state"), path: path}
	if out, err := shared.command("up").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "start the cluster: %v\n%s", err, out)
		return 1
	}
	defer func() {
		if out, err := shared.command("down").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "stop the cluster: %v\n%s", err, out)
		}
	}()
	if err := shared.connect(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// fresh is a cluster of the test's own, not started. It is stopped with the test.
func fresh(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{dir: filepath.Join(t.TempDir(), "state"), path: shared.path}
	t.Cleanup(func() { c.command("down").Run() })
	return c
}

// kubernetes is the minor of all clusters, "" for the default.
var kubernetes = os.Getenv("KUBERNETES")

func (c *cluster) command(args ...string) *exec.Cmd {
	if args[0] == "up" && kubernetes != "" {
		args = append([]string{"up", "--kubernetes", kubernetes}, args[1:]...)
	}
	cmd := exec.Command(c.path, args...)
	cmd.Env = append(os.Environ(), "KARPENTER_LOCAL_DIR="+c.dir)
	return cmd
}

// do runs a command that must succeed and returns what it printed.
func (c *cluster) do(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("karpenter-local %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// refuse runs a command that must fail, and returns what it said: one line.
func (c *cluster) refuse(t *testing.T, args ...string) string {
	t.Helper()
	cmd := c.command(args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	err := cmd.Run()
	if err == nil {
		t.Fatalf("karpenter-local %s succeeded", strings.Join(args, " "))
	}
	text := strings.TrimSpace(said.String())
	if strings.Contains(text, "\n") || text == "" {
		t.Errorf("karpenter-local %s said, want one line:\n%s", strings.Join(args, " "), text)
	}
	return text
}

func (c *cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.dir, "kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS = -1 // no limit
	scheme := clientgoscheme.Scheme
	if err := errors.Join(v1.AddToScheme(scheme), awsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	c.Client, err = client.New(config, client.Options{Scheme: scheme})
	return err
}

func (c *cluster) run(t *testing.T) home.Run {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r home.Run
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	r.Programs = append(r.Programs, c.processes(t)...)
	return r
}

// processes finds the processes of the controller's pods, whoever knows of them.
func (c *cluster) processes(t *testing.T) []home.Program {
	t.Helper()
	out, err := exec.Command("ps", "-axo", "pid=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []home.Program
	for line := range strings.Lines(string(out)) {
		var pid int
		if strings.Contains(line, filepath.Join(c.dir, "pods")+"/") {
			if _, err := fmt.Sscan(line, &pid); err != nil {
				t.Fatal(err)
			}
			all = append(all, home.Program{Name: plane.Controller, PID: pid})
		}
	}
	return all
}

// checkGone fails if a process of the run lives on or one of its ports stays held.
func checkGone(t *testing.T, r home.Run) {
	t.Helper()
	pids := map[string]int{"supervisor": r.PID}
	for _, p := range r.Programs {
		pids[p.Name] = p.PID
	}
	for name, pid := range pids {
		eventually(t, func(context.Context) (string, error) { // the supervisor gives its lock back a moment before it has ended
			if pid != 0 && alive(pid) {
				return fmt.Sprintf("%s, process %d, lives", name, pid), nil
			}
			return "", nil
		})
	}
	for name, port := range r.Ports {
		if err := waitUntilFree(port); err != nil {
			t.Errorf("port %d of %s is held: %v", port, name, err)
		}
	}
}

// waitUntilFree waits for the port: a process counts as ended when its first thread has, and the last one
// closes the files.
func waitUntilFree(port int) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return l.Close()
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// alive says whether the process runs; one that ended and was not yet waited for by its parent does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// patience is how long a test waits for what takes seconds on a machine that has nothing else to do, and at most one minute.
const patience = 5 * time.Minute

// wait has kubectl wait with patience.
const wait = "--timeout=300s"

// eventually waits until what is wrong is nothing any more. It says the last thing that was wrong if that takes too long.
func eventually(t *testing.T, wrong func(context.Context) (string, error)) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(patience); ; {
		text, err := wrong(t.Context())
		if err != nil {
			text = err.Error()
		}
		if text == "" {
			return
		}
		last = text
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s", patience, last)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// nodes are those that come and go.
func (c *cluster) nodes(ctx context.Context) ([]corev1.Node, error) {
	var list corev1.NodeList
	err := c.List(ctx, &list)
	return slices.DeleteFunc(list.Items, func(n corev1.Node) bool { return slices.Contains(plane.ControlNodes(), n.Name) }), err
}

// controllers are the processes of the controller's pods.
func (c *cluster) controllers(ctx context.Context) ([]runtime.Process, error) {
	var pods corev1.PodList
	err := c.List(ctx, &pods, client.MatchingLabels{"app.kubernetes.io/name": "karpenter"})
	return runtime.Processes(home.Dir(c.dir), pods.Items), err
}

// leader is the controller's process that acts.
func (c *cluster) leader(ctx context.Context) (runtime.Process, error) {
	var lease coordinationv1.Lease
	if err := c.Get(ctx, client.ObjectKey{Namespace: plane.Namespace, Name: plane.Lease}, &lease); err != nil {
		return runtime.Process{}, err
	}
	all, err := c.controllers(ctx)
	for _, p := range all {
		holds := lease.Spec.HolderIdentity != nil && strings.HasPrefix(*lease.Spec.HolderIdentity, p.Pod+"_")
		if holds && lease.Spec.AcquireTime != nil && !lease.Spec.AcquireTime.Time.Before(p.Started) { // in this life, not in its last
			return p, nil
		}
	}
	return runtime.Process{}, cmp.Or(err, errors.New("no replica of the controller leads"))
}

func (c *cluster) claims(ctx context.Context) ([]v1.NodeClaim, error) {
	var list v1.NodeClaimList
	err := c.List(ctx, &list)
	return list.Items, err
}

func (c *cluster) pods(ctx context.Context, labels client.MatchingLabels) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.List(ctx, &list, labels)
	return list.Items, err
}
