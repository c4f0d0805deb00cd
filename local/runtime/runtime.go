package runtime

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"karpenter.sh/karpenter/local/home"
)

// A Node is one whose pods run.
type Node struct {
	Name, IP    string
	Allocatable corev1.ResourceList
}

// A Runtime runs pods.
type Runtime struct {
	// Addresses say where the ports of its pods are.
	Addresses *Addresses

	client kubernetes.Interface
	server *rest.Config
	dir    home.Dir
	nodes  map[string]Node
	env    []string
	binary string
	log    *slog.Logger
	events record.EventRecorder

	program context.Context
	lives   sync.WaitGroup
	mu      sync.Mutex
	pods    map[types.UID]*pod
}

// New returns a runtime for the pods on the given nodes. They reach the API server as server does, and find env in their
// environment unless they say otherwise.
func New(server *rest.Config, dir home.Dir, nodes []Node, env []string, log *slog.Logger) (*Runtime, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		Addresses: newAddresses(), client: client, server: server, dir: dir, nodes: map[string]Node{}, env: env, binary: binary, log: log,
		pods: map[types.UID]*pod{},
	}
	for _, n := range nodes {
		r.nodes[n.Name] = n
	}
	return r, nil
}

// Run runs pods until ctx ends, and has ended their processes when it returns. Their objects stay: they run again when the
// machine does.
func (r *Runtime) Run(ctx context.Context) {
	r.program = ctx
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: r.client.CoreV1().Events("")})
	r.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet"})
	var watching sync.WaitGroup
	for name := range r.nodes {
		watching.Go(func() { r.informer(name).RunWithContext(ctx) })
	}
	watching.Wait()
	r.lives.Wait()
}

func (r *Runtime) ending() bool { return r.program.Err() != nil }

// informer watches the pods of one node.
func (r *Runtime) informer(node string) cache.SharedIndexInformer {
	on := fields.OneTermEqualSelector("spec.nodeName", node).String()
	of := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = on
			return r.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = on
			return r.client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, o)
		},
	}
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(of, r.client), &corev1.Pod{}, 0, nil)
	informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.saw(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { r.saw(o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			r.gone(o.(*corev1.Pod).UID)
		},
	})
	return informer
}

// saw starts a pod, and lets it end when it is deleted.
func (r *Runtime) saw(o *corev1.Pod) {
	over := o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed
	if !runs(o) || over && o.DeletionTimestamp == nil {
		return
	}
	r.mu.Lock()
	p := r.pods[o.UID]
	if p == nil && !r.ending() {
		p = r.start(o)
	}
	r.mu.Unlock()
	if p != nil && o.DeletionTimestamp != nil {
		p.delete(o.DeletionTimestamp.Time)
	}
}

// start runs the pod. A pod that is deleted already only ends.
func (r *Runtime) start(o *corev1.Pod) *pod {
	ctx, end := context.WithCancel(r.program)
	p := newPod(r, o, end)
	r.pods[o.UID] = p
	var there []string
	for _, other := range r.pods {
		there = append(there, other.logs())
	}
	if err := prune(r.dir.Logs(), there); err != nil {
		r.log.Error("remove old logs", "error", err)
	}
	if o.DeletionTimestamp != nil {
		p.delete(o.DeletionTimestamp.Time)
	}
	r.lives.Go(func() { p.run(ctx, r.program) })
	return p
}

// gone ends a pod whose object was removed.
func (r *Runtime) gone(uid types.UID) {
	r.mu.Lock()
	p := r.pods[uid]
	delete(r.pods, uid)
	r.mu.Unlock()
	if p != nil {
		p.kill()
	}
}

// A ContainerName names a container.
type ContainerName struct{ Namespace, Pod, Container string }

// find returns a container that runs here, or did while its pod was there.
func (r *Runtime) find(of ContainerName) *container {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		if p.object.Namespace != of.Namespace || p.object.Name != of.Pod {
			continue
		}
		for _, c := range p.containers {
			if c.spec.Name == of.Container && plays(c.spec) {
				return c
			}
		}
	}
	return nil
}

// AddressOf is that of a pod that runs here.
func (r *Runtime) AddressOf(namespace, pod string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		if p.object.Namespace == namespace && p.object.Name == pod {
			return p.address, true
		}
	}
	return "", false
}

// Log returns the file of what a container says in its life now, or said in the one before. It knows only those that run.
func (r *Runtime) Log(of ContainerName, previous bool) (path string, known bool, err error) {
	c := r.find(of)
	if c == nil {
		return "", false, nil
	}
	life := c.life()
	_, err = os.Stat(logPath(c.pod.logs(), c.spec.Name, life))
	if previous || err != nil && life > 0 { // a container that waits to be started again shows what it said last
		life--
	}
	path = logPath(c.pod.logs(), c.spec.Name, life)
	if _, err := os.Stat(path); err != nil && previous {
		return "", true, fmt.Errorf("previous terminated container %q in pod %q not found", of.Container, of.Pod)
	} else if err != nil {
		return "", true, fmt.Errorf("container %q in pod %q is waiting to start", of.Container, of.Pod)
	}
	return path, true, nil
}

// Running reports whether a container is a process now.
func (r *Runtime) Running(of ContainerName) bool {
	c := r.find(of)
	if c == nil {
		return false
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.status.State.Running != nil
}
