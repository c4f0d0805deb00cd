package endtoend

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// usersNamespace is where the pods are that both look after.
const usersNamespace = "default"

// pods counts pods as the API server tells of them.
type pods struct {
	mu      sync.Mutex
	running map[types.UID]bool
	evicted map[types.UID]bool
	waits   []time.Duration // until a pod ran
}

// follow watches the users' pods until ctx ends.
func follow(ctx context.Context, c *cluster) (*pods, error) {
	set, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	p := &pods{running: map[types.UID]bool{}, evicted: map[types.UID]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(set, 0, informers.WithNamespace(usersNamespace))
	informer := factory.Core().V1().Pods().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { p.seen(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { p.seen(o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			p.went(o.(*corev1.Pod))
		},
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, ctx.Err()
	}
	return p, nil
}

// seen notes the conditions of a pod. An eviction leaves a condition behind.
func (p *pods) seen(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	runs := pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
	if runs && !p.running[pod.UID] {
		p.waits = append(p.waits, time.Since(pod.CreationTimestamp.Time))
	}
	p.running[pod.UID] = runs
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			p.evicted[pod.UID] = true
		}
	}
}

func (p *pods) went(pod *corev1.Pod) {
	p.seen(pod)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, pod.UID)
}

// count returns how many pods run, and how many were evicted so far.
func (p *pods) count() (running, evicted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, runs := range p.running {
		if runs {
			running++
		}
	}
	return running, len(p.evicted)
}

// forget returns how long pods waited since it was last called, sorted.
func (p *pods) forget() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.waits
	slices.Sort(out)
	p.waits = nil
	return out
}

// failed counts claims that went without ever having a machine.
type failed struct{ n atomic.Int64 }

func (f *failed) count() int { return int(f.n.Load()) }

// went looks at a claim as it was last seen.
func (f *failed) went(claim *unstructured.Unstructured) {
	if id, _, _ := unstructured.NestedString(claim.Object, "status", "providerID"); id == "" {
		f.n.Add(1)
	}
}

// followClaims watches claims until ctx ends.
func followClaims(ctx context.Context, c *cluster) (*failed, error) {
	set, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	f := &failed{}
	informer := dynamicinformer.NewDynamicSharedInformerFactory(set, 0).ForResource(v1.GroupVersion.WithResource("nodeclaims")).Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		f.went(o.(*unstructured.Unstructured))
	}})
	if err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, ctx.Err()
	}
	return f, nil
}

// A fleet is what was bought.
type fleet struct {
	nodes   int
	dollars float64 // an hour
	stale   int     // of another version of the pool's template than asked
}

// prices are those of a catalogue, by type, zone and capacity type.
type prices map[[3]string]cloud.NanoUSD

func pricesOf(catalog *cloud.Catalog) prices {
	out := prices{}
	for _, it := range catalog.Types {
		for i := range it.Offerings {
			o := &it.Offerings[i]
			out[[3]string{it.Name, o.Zone(), o.CapacityType()}] = o.Price
		}
	}
	return out
}

// fleet asks for the claims: a machine is paid for from its launch until its claim has gone. Version is a label
// that stale ones have not got.
func (p prices) fleet(ctx context.Context, c *cluster, version string) (fleet, error) {
	var all unstructured.UnstructuredList
	all.SetGroupVersionKind(v1.GroupVersion.WithKind("NodeClaimList"))
	if err := c.List(ctx, &all); err != nil {
		return fleet{}, err
	}
	var f fleet
	for i := range all.Items {
		claim := &all.Items[i]
		if id, _, _ := unstructured.NestedString(claim.Object, "status", "providerID"); id == "" {
			continue
		}
		l := claim.GetLabels()
		key := [3]string{l[corev1.LabelInstanceTypeStable], l[corev1.LabelTopologyZone], l[v1.CapacityTypeLabelKey]}
		price, known := p[key]
		if !known {
			return f, fmt.Errorf("claim %s is of %v, which the catalogue does not sell", claim.GetName(), key)
		}
		f.nodes++
		f.dollars += price.Dollars()
		if l[versionLabel] != version {
			f.stale++
		}
	}
	return f, nil
}

// used reads what a process has used of the processors, and how large it is in MiB.
func used(pid int) (cpu time.Duration, mib float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
	if len(fields) < 22 {
		return 0, 0, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(fields[i], 10, 64); return n }
	const tick = 10 * time.Millisecond
	return time.Duration(number(11)+number(12)) * tick, float64(number(21)) * float64(os.Getpagesize()) / (1 << 20), nil
}
