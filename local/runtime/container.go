package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"karpenter.sh/karpenter/local/lifeline"
)

// A container is one container of a pod. Those whose image no process stands for are said to run.
type container struct {
	pod  *pod
	spec *corev1.Container

	// Guarded by the pod's mutex.
	status corev1.ContainerStatus
}

func newContainer(p *pod, spec *corev1.Container, before *corev1.ContainerStatus) *container {
	c := &container{pod: p, spec: spec, status: corev1.ContainerStatus{Name: spec.Name, Image: spec.Image}}
	c.status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	if before != nil && before.ContainerID != "" {
		c.status.RestartCount = before.RestartCount + 1 // it ended with its machine
		c.status.LastTerminationState = before.LastTerminationState
		if before.State.Terminated != nil {
			c.status.LastTerminationState = before.State
		}
	}
	return c
}

// play says that the container runs.
func (c *container) play() {
	now := metav1.Now()
	c.set(func(s *corev1.ContainerStatus) {
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		s.Ready, s.Started, s.RestartCount = true, new(true), 0
	})
}

// set changes what is known of the container, and reports it.
func (c *container) set(change func(*corev1.ContainerStatus)) {
	c.pod.mu.Lock()
	change(&c.status)
	c.pod.mu.Unlock()
	c.pod.report()
}

// live runs the container until ctx ends, or for good where its pod wants it only once.
func (c *container) live(ctx context.Context) {
	for inARow := 1; ctx.Err() == nil; inARow++ {
		begin := time.Now()
		code, err := c.turn(ctx)
		if ctx.Err() != nil || c.ended(code, err) {
			return
		}
		if time.Since(begin) > lifeline.Stable {
			inARow = 1
		}
		wait := lifeline.Backoff(inARow)
		c.waits(err, wait)
		if !pause(ctx, wait) {
			return
		}
	}
}

// ended reports whether that was the container's last life.
func (c *container) ended(code int32, err error) bool {
	switch c.pod.object.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return err == nil
	case corev1.RestartPolicyOnFailure:
		return err == nil && code == 0
	}
	return false
}

// waits says why the container does not run. A container that never ran is not restarted.
func (c *container) waits(err error, wait time.Duration) {
	waiting := corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %s restarting failed container=%s", wait, c.spec.Name)}
	if err != nil {
		waiting = corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: err.Error()}
		c.pod.event(corev1.EventTypeWarning, "Failed", "Error: %v", err)
	} else {
		c.pod.event(corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s", c.spec.Name)
	}
	c.set(func(s *corev1.ContainerStatus) {
		if s.State.Terminated != nil {
			s.LastTerminationState = s.State
			s.RestartCount++
		}
		s.State = corev1.ContainerState{Waiting: &waiting}
	})
}

// turn is one life of the container. An error means that it did not begin.
func (c *container) turn(ctx context.Context) (int32, error) {
	ports, forget, err := c.pod.runtime.Addresses.open(c.pod.address, c.spec.Ports)
	if err != nil {
		return 0, err
	}
	defer forget()
	cmd, err := c.command(ctx, ports)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(c.pod.identity.folder, portsFile), []byte(mapping(ports)), 0o600); err != nil {
		return 0, err
	}
	log, err := openLog(logPath(c.pod.logs(), c.spec.Name, c.life()))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	out, trouble := &stream{log: log, name: "stdout"}, &stream{log: log, name: "stderr"}
	cmd.Stdout, cmd.Stderr = out, trouble
	line, err := lifeline.Start(cmd)
	if err != nil {
		return 0, err
	}
	defer line.Close()
	begin := metav1.Now()
	c.began(cmd.Process.Pid, begin)
	code, reason := c.until(ctx, cmd, ports)
	out.flush()
	trouble.flush()
	c.set(func(s *corev1.ContainerStatus) {
		s.Ready, s.Started = false, new(false)
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, StartedAt: begin, FinishedAt: metav1.Now(), ContainerID: s.ContainerID,
		}}
	})
	return code, nil
}

func (c *container) life() int32 {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.status.RestartCount
}

// command prepares the process of the container.
func (c *container) command(ctx context.Context, ports map[int32]int) (*exec.Cmd, error) {
	r := c.pod.runtime
	env := machine(r.env)
	if err := c.pod.source().add(ctx, c.spec, env); err != nil {
		return nil, err
	}
	env[PortsEnv] = mapping(ports)
	binary, args := r.binary, []string{"controller", "--kubeconfig=" + c.pod.identity.kubeconfig()}
	if other := executable(c.spec.Image); other != "" {
		binary, args = filepath.Join(filepath.Dir(r.binary), other), nil
		env["KUBECONFIG"] = c.pod.identity.kubeconfig()
		env.move(ports)
	}
	given := c.spec.Args
	if len(c.spec.Command) > 1 { // its first word is a program of the image
		given = append(c.spec.Command[1:len(c.spec.Command):len(c.spec.Command)], given...)
	}
	for _, arg := range given {
		args = append(args, expansion.Expand(arg, expansion.MappingFuncFor(env)))
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = c.pod.identity.folder
	cmd.Env = env.list()
	return cmd, nil
}

func (c *container) began(pid int, at metav1.Time) {
	c.pod.event(corev1.EventTypeNormal, "Started", "Container started: %s, as process %d", c.spec.Name, pid)
	c.set(func(s *corev1.ContainerStatus) {
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
		s.ContainerID = ProcessID(pid)
		s.Started = new(true)
		s.Ready = c.spec.ReadinessProbe == nil
	})
}

// until waits for the end of the process, and sees to it when the time has come. It returns its exit code and the reason.
func (c *container) until(ctx context.Context, cmd *exec.Cmd, ports map[int32]int) (int32, string) {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	probing, stop := context.WithCancel(ctx)
	defer stop()
	dead := c.probe(probing, ports)
	select {
	case err := <-ended:
		return exitCode(err)
	case <-ctx.Done():
	case why := <-dead:
		c.pod.event(corev1.EventTypeNormal, "Killing", "Container %s failed liveness probe, will be restarted: %v", c.spec.Name, why)
	}
	stop()
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		return exitCode(err)
	case <-time.After(c.pod.patience()):
	case <-c.pod.killed:
	}
	cmd.Process.Kill()
	return exitCode(<-ended)
}

// probe asks the container how it is until ctx ends. What is returned tells when it counts as dead.
func (c *container) probe(ctx context.Context, ports map[int32]int) <-chan error {
	dead := make(chan error, 1)
	c.asking(ctx, c.spec.ReadinessProbe, ports, func(ok bool, err error) {
		if !ok {
			c.pod.event(corev1.EventTypeWarning, "Unhealthy", "Readiness probe failed: %v", err)
		}
		c.set(func(s *corev1.ContainerStatus) { s.Ready = ok })
	})
	c.asking(ctx, c.spec.LivenessProbe, ports, func(ok bool, err error) {
		if !ok {
			c.pod.event(corev1.EventTypeWarning, "Unhealthy", "Liveness probe failed: %v", err)
			dead <- err
		}
	})
	return dead
}

func (c *container) asking(ctx context.Context, p *corev1.Probe, ports map[int32]int, tell func(bool, error)) {
	if p == nil {
		return
	}
	ask, err := question(c.spec, p, ports)
	if err != nil {
		c.pod.event(corev1.EventTypeWarning, "Unhealthy", "%v", err)
		return
	}
	c.pod.running.Go(func() { keepAsking(ctx, p, ask, tell) })
}

// exitCode is what a process ended with, as a container runtime reports it, and the reason in a word.
func exitCode(err error) (int32, string) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, "Completed"
	case errors.As(err, &exit) && exit.Exited():
		return int32(exit.ExitCode()), "Error"
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int32(status.Signal()), "Error"
		}
	}
	return 128, "Error"
}
