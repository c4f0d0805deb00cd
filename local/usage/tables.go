package usage

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes"
	"k8s.io/metrics/pkg/apis/metrics"
)

// window is the time that figures stand for. The HorizontalPodAutoscaler believes those of a pod only when it has been
// ready for so long, and these are right from its first moment.
const window = time.Second

// cached asks the API server for what it has at hand.
const cached = "0"

// pods answers for pods. It keeps nothing: what the API server knows is asked for at each request.
type pods struct {
	rest.TableConvertor
	client kubernetes.Interface
}

// storage is what the API server's library asks of a table.
type storage interface {
	rest.Storage
	rest.Lister
	rest.Getter
	rest.Scoper
	rest.SingularNameProvider
	rest.KindProvider
}

var _, _ storage = pods{}, nodes{}

func (pods) New() runtime.Object     { return &metrics.PodMetrics{} }
func (pods) NewList() runtime.Object { return &metrics.PodMetricsList{} }
func (pods) Destroy()                {}
func (pods) NamespaceScoped() bool   { return true }
func (pods) GetSingularName() string { return "" } // kubectl makes it podmetrics, so that pod keeps its meaning
func (pods) Kind() string            { return "PodMetrics" }

func (s pods) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	found, err := s.client.CoreV1().Pods(request.NamespaceValue(ctx)).List(ctx, selected(o))
	if err != nil {
		return nil, err
	}
	list, now := &metrics.PodMetricsList{}, metav1.Now()
	for i := range found.Items {
		if m := ofPod(&found.Items[i], now); m != nil {
			list.Items = append(list.Items, *m)
		}
	}
	return list, nil
}

func (s pods) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	p, err := s.client.CoreV1().Pods(request.NamespaceValue(ctx)).Get(ctx, name, metav1.GetOptions{ResourceVersion: cached})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil {
		if m := ofPod(p, metav1.Now()); m != nil {
			return m, nil
		}
	}
	return nil, apierrors.NewNotFound(metrics.Resource("pods"), name)
}

// ofPod is nil for a pod that does not run.
func ofPod(p *corev1.Pod, now metav1.Time) *metrics.PodMetrics {
	containers := Of(p)
	if containers == nil {
		return nil
	}
	return &metrics.PodMetrics{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, Labels: p.Labels, CreationTimestamp: now},
		Timestamp:  now, Window: metav1.Duration{Duration: window}, Containers: containers,
	}
}

// nodes answers for nodes, as pods does for pods.
type nodes struct {
	rest.TableConvertor
	client kubernetes.Interface
}

func (nodes) New() runtime.Object     { return &metrics.NodeMetrics{} }
func (nodes) NewList() runtime.Object { return &metrics.NodeMetricsList{} }
func (nodes) Destroy()                {}
func (nodes) NamespaceScoped() bool   { return false }
func (nodes) GetSingularName() string { return "" }
func (nodes) Kind() string            { return "NodeMetrics" }

func (s nodes) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	found, err := s.client.CoreV1().Nodes().List(ctx, selected(o))
	if err != nil {
		return nil, err
	}
	all, err := s.podsOn(ctx, "")
	if err != nil {
		return nil, err
	}
	list, now := &metrics.NodeMetricsList{}, metav1.Now()
	for i := range found.Items {
		if n := &found.Items[i]; ready(n) {
			list.Items = append(list.Items, ofNode(n, all[n.Name], now))
		}
	}
	return list, nil
}

func (s nodes) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	n, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{ResourceVersion: cached})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err != nil || !ready(n) {
		return nil, apierrors.NewNotFound(metrics.Resource("nodes"), name)
	}
	all, err := s.podsOn(ctx, name)
	if err != nil {
		return nil, err
	}
	m := ofNode(n, all[name], metav1.Now())
	return &m, nil
}

// podsOn returns the pods of a node, or of all, by node.
func (s nodes) podsOn(ctx context.Context, node string) (map[string][]corev1.Pod, error) {
	o := metav1.ListOptions{ResourceVersion: cached}
	if node != "" {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	found, err := s.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
	if err != nil {
		return nil, err
	}
	on := map[string][]corev1.Pod{}
	for _, p := range found.Items {
		on[p.Spec.NodeName] = append(on[p.Spec.NodeName], p)
	}
	return on, nil
}

func ofNode(n *corev1.Node, on []corev1.Pod, now metav1.Time) metrics.NodeMetrics {
	return metrics.NodeMetrics{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, CreationTimestamp: now},
		Timestamp:  now, Window: metav1.Duration{Duration: window}, Usage: OfNode(on),
	}
}

// ready reports whether there is a kubelet that could be asked.
func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// selected is the selection of a request, of the objects behind it.
func selected(o *internalversion.ListOptions) metav1.ListOptions {
	out := metav1.ListOptions{ResourceVersion: cached}
	if o != nil && o.LabelSelector != nil {
		out.LabelSelector = o.LabelSelector.String()
	}
	if o != nil && o.FieldSelector != nil {
		out.FieldSelector = o.FieldSelector.String()
	}
	return out
}
