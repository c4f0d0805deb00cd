package runtime

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A pod runs here.
type pod struct {
	runtime  *Runtime
	object   *corev1.Pod // as it was when it came
	address  string
	begun    metav1.Time
	identity identity

	containers []*container
	running    sync.WaitGroup // probes, and the token's keeper
	news       chan struct{}
	end        context.CancelFunc
	killed     chan struct{} // closed when the object is gone

	mu       sync.Mutex
	known    []corev1.PodCondition
	deadline time.Time // of a pod that is deleted
	forced   bool
}

func newPod(r *Runtime, o *corev1.Pod, end context.CancelFunc) *pod {
	p := &pod{
		runtime: r, object: o.DeepCopy(), begun: metav1.Now(), news: make(chan struct{}, 1), end: end, killed: make(chan struct{}),
		known: o.Status.Conditions,
	}
	p.identity = identity{client: r.client, server: r.server, folder: r.dir.PodFolder(string(o.UID))}
	node := r.nodes[o.Spec.NodeName]
	p.object.Status.HostIP = node.IP
	if p.address = node.IP; !o.Spec.HostNetwork {
		p.address = r.Addresses.take(o.Status.PodIP)
	}
	p.object.Status.PodIP = p.address
	if start := o.Status.StartTime; start != nil {
		p.begun = *start
	}
	for i := range p.object.Spec.Containers {
		spec := &p.object.Spec.Containers[i]
		p.containers = append(p.containers, newContainer(p, spec, statusOf(o.Status.ContainerStatuses, spec.Name)))
	}
	return p
}

func statusOf(all []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

func (p *pod) logs() string { return podLogs(p.runtime.dir.Logs(), p.object) }

func (p *pod) source() source {
	return source{client: p.runtime.client, pod: p.object, node: p.runtime.nodes[p.object.Spec.NodeName]}
}

func (p *pod) event(kind, reason, format string, args ...any) {
	p.runtime.events.Eventf(p.object, kind, reason, format, args...)
}

// delete lets the pod end, until the deadline by itself.
func (p *pod) delete(deadline time.Time) {
	p.mu.Lock()
	p.deadline = deadline
	p.mu.Unlock()
	p.end()
}

// kill ends the pod at once: its object is gone.
func (p *pod) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.forced {
		p.forced = true
		close(p.killed)
	}
	p.end()
}

// atTheEnd is how long processes may take to end when the whole cluster does.
const atTheEnd = 8 * time.Second

// patience is how long a process may take to end by itself from now on.
func (p *pod) patience() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.deadline.IsZero() {
		return max(time.Until(p.deadline), time.Second)
	}
	if p.runtime.ending() {
		return atTheEnd
	}
	return time.Duration(*p.object.Spec.TerminationGracePeriodSeconds) * time.Second
}

// run runs the pod until ctx ends or it has nothing left to do. program is the context of the whole program.
func (p *pod) run(ctx, program context.Context) {
	var reports sync.WaitGroup
	reporting, stop := context.WithCancel(program)
	reports.Go(func() { p.reports(reporting) })
	p.report()
	p.prepare(ctx)
	var lives sync.WaitGroup
	for _, c := range p.containers {
		if plays(c.spec) {
			lives.Go(func() { c.live(ctx) })
		} else {
			c.play()
		}
	}
	lives.Wait()
	<-ctx.Done() // what ran to its end stays until it is removed
	stop()
	reports.Wait()
	p.running.Wait()
	os.RemoveAll(p.identity.folder) // before the object is gone: who sees no pod finds no credentials of it
	p.finish(program)
	p.runtime.Addresses.release(p.address)
}

// prepare gets the pod's credentials. Without them it waits.
func (p *pod) prepare(ctx context.Context) {
	for {
		err := p.identity.write(ctx, p.object)
		if err == nil || ctx.Err() != nil {
			break
		}
		p.event(corev1.EventTypeWarning, "FailedMount", "%v", err)
		p.runtime.log.Error("prepare a pod", "pod", p.object.Name, "error", err)
		if !pause(ctx, time.Second) {
			return
		}
	}
	p.running.Go(func() {
		p.identity.keep(ctx, p.object, func(err error) { p.runtime.log.Error("renew a token", "pod", p.object.Name, "error", err) })
	})
}

// finish says how the pod ended, and removes it if that is wanted.
func (p *pod) finish(ctx context.Context) {
	p.mu.Lock()
	deleted, forced := !p.deadline.IsZero(), p.forced
	p.mu.Unlock()
	if forced || ctx.Err() != nil {
		return
	}
	p.untilDone(ctx, "write the last status of a pod", func() error { return p.write(ctx) })
	if !deleted {
		return
	}
	now := int64(0)
	uid := p.object.UID
	p.untilDone(ctx, "remove a pod", func() error {
		return p.runtime.client.CoreV1().Pods(p.object.Namespace).Delete(ctx, p.object.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid},
		})
	})
}

// report lets the pod's status be written.
func (p *pod) report() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// reports writes the status whenever there is news, until ctx ends.
func (p *pod) reports(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.news:
			p.untilDone(ctx, "write the status of a pod", func() error { return p.write(ctx) })
		}
	}
}

// untilDone tries until it succeeds, until there is no such pod any more, or until ctx ends.
func (p *pod) untilDone(ctx context.Context, what string, do func() error) {
	for {
		err := do()
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
			return
		}
		p.runtime.log.Error(what, "pod", p.object.Name, "error", err)
		if !pause(ctx, time.Second) {
			return
		}
	}
}

// status is the pod's status as a kubelet writes it.
func (p *pod) status() corev1.PodStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := corev1.PodStatus{
		HostIP: p.object.Status.HostIP, HostIPs: []corev1.HostIP{{IP: p.object.Status.HostIP}},
		PodIP: p.address, PodIPs: []corev1.PodIP{{IP: p.address}}, StartTime: &p.begun,
	}
	for _, c := range p.containers {
		s.ContainerStatuses = append(s.ContainerStatuses, *c.status.DeepCopy())
	}
	for _, c := range p.object.Spec.InitContainers { // which nothing stands for
		s.InitContainerStatuses = append(s.InitContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: new(false),
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed",
				StartedAt: p.begun, FinishedAt: p.begun}},
		})
	}
	restart := p.object.Spec.RestartPolicy
	if !p.deadline.IsZero() {
		restart = corev1.RestartPolicyNever
	}
	ready := false
	s.Phase, ready = summary(restart, s.ContainerStatuses)
	s.Conditions = conditions(p.known, s.Phase != corev1.PodPending, ready, metav1.Now())
	p.known = s.Conditions
	return s
}

func (p *pod) write(ctx context.Context) error {
	body, err := patch(p.object.UID, p.status())
	if err != nil {
		return fmt.Errorf("encode a status: %w", err)
	}
	_, err = p.runtime.client.CoreV1().Pods(p.object.Namespace).Patch(ctx, p.object.Name,
		types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}
