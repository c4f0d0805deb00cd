package endtoend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// namespace is where both controllers are installed, and lease the name by which both lead.
const (
	namespace = "kube-system"
	lease     = "karpenter-leader-election"
)

// boot is how long machines take until they join, and patience how long anything else may take that has to be there.
const (
	boot     = 2 * time.Second
	patience = 2 * time.Minute
)

// A Side is who looks after the cluster.
type Side struct {
	Name   string
	Peer   bool // Karpenter, over its KWOK provider
	Kwok   bool // our core over that provider
	Capped bool // its pool allows machines of up to 64 vCPU only
}

// A cluster is a local one with one controller.
type cluster struct {
	side   Side
	bin    string // where the programs are
	dir    string // the cluster's own
	config *rest.Config
	client.Client
	controller *exec.Cmd
	ended      chan struct{} // closed when the controller has
	log        *os.File
}

// start brings up a cluster with the side's controller, which leads when start returns.
func start(ctx context.Context, bin string, side Side) (_ *cluster, err error) {
	dir, err := os.MkdirTemp("", "bench-peer")
	if err != nil {
		return nil, err
	}
	c := &cluster{side: side, bin: bin, dir: dir}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	up := []string{"up", "--boot-delay", boot.String(), "--boot-spread", "0s"}
	switch {
	case side.Peer:
		up = append(up, "--empty")
	case side.Kwok:
		up = append(up, "--provider", "kwok")
	}
	if err := c.local(up...); err != nil {
		return nil, err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.file("kubeconfig")); err != nil {
		return nil, err
	}
	c.config.QPS = -1 // no limit
	if c.Client, err = client.New(c.config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return nil, err
	}
	if c.log, err = os.Create(c.file("measured.log")); err != nil {
		return nil, err
	}
	begin := time.Now()
	if side.Peer {
		err = c.startPeer(ctx)
	} else {
		err = c.startOurs(ctx)
	}
	if err != nil {
		return nil, err
	}
	return c, c.until(ctx, "the controller leads", func() (bool, error) { return c.leads(ctx, begin) })
}

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

// local runs karpenter-local on this cluster.
func (c *cluster) local(args ...string) error {
	cmd := exec.Command(filepath.Join(c.bin, "karpenter-local"), args...)
	cmd.Env = append(os.Environ(), "KARPENTER_LOCAL_DIR="+c.dir)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("karpenter-local %s: %w\n%s", strings.Join(args, " "), err, &said)
	}
	return nil
}

// stop ends the controller and the cluster, and forgets both.
func (c *cluster) stop() {
	if c.controller != nil {
		_ = c.controller.Process.Signal(syscall.SIGTERM)
		<-c.ended
	}
	if c.log != nil {
		_ = c.log.Close()
	}
	_ = c.local("down")
	_ = c.local("clean")
	_ = os.RemoveAll(c.dir)
}

// run starts the controller.
func (c *cluster) run(program string, environment []string, args ...string) error {
	c.controller = exec.Command(filepath.Join(c.bin, program), args...)
	c.controller.Env, c.controller.Stdout, c.controller.Stderr = environment, c.log, c.log
	if err := c.controller.Start(); err != nil {
		c.controller = nil
		return err
	}
	c.ended = make(chan struct{})
	go func() {
		_ = c.controller.Wait()
		close(c.ended)
	}()
	return nil
}

// alive fails when the controller has ended.
func (c *cluster) alive() error {
	select {
	case <-c.ended:
		return fmt.Errorf("the controller ended: %w", c.tail())
	default:
		return nil
	}
}

// leads reports whether any process took the lease since a time.
func (c *cluster) leads(ctx context.Context, since time.Time) (bool, error) {
	if err := c.alive(); err != nil {
		return false, err
	}
	var l coordinationv1.Lease
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: lease}, &l)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	held := l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != ""
	return held && l.Spec.AcquireTime != nil && l.Spec.AcquireTime.After(since.Add(-time.Second)), nil
}

// until waits for something.
func (c *cluster) until(ctx context.Context, what string, done func() (bool, error)) error {
	for end := time.Now().Add(patience); ; {
		ok, err := done()
		if ok {
			return nil
		}
		if err != nil && !transient(err) || time.Now().After(end) {
			return fmt.Errorf("%s: waited until %s: %w", c.side.Name, what, errors.Join(err, c.tail()))
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// transient reports whether an error is over soon.
func transient(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsNotFound(err)
}

// tail is an error with the end of the controller's log.
func (c *cluster) tail() error {
	text, err := os.ReadFile(c.file("measured.log"))
	if err != nil {
		return nil
	}
	const much = 2000
	return fmt.Errorf("its log ends:\n%s", text[max(0, len(text)-much):])
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// nodes are the Nodes that were bought.
func (c *cluster) nodes(ctx context.Context) ([]corev1.Node, error) {
	var all corev1.NodeList
	err := c.List(ctx, &all, client.HasLabels{v1.NodePoolLabelKey})
	return all.Items, err
}
