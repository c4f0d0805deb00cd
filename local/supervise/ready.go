package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/plane"
)

const (
	pollEvery    = 100 * time.Millisecond
	startTimeout = 90 * time.Second
)

// poll calls ready until it is true.
func poll(ctx context.Context, what string, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("%s was not ready within %s", what, startTimeout))
	defer cancel()
	for {
		if ready(ctx) {
			return nil
		}
		if pause(ctx, pollEvery); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func (s *supervisor) client() (*kubernetes.Clientset, error) { return clientOf(s.dir) }

func clientOf(dir home.Dir) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", dir.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.Timeout = 10 * time.Second
	return kubernetes.NewForConfig(config)
}

// waitForServer waits until the API server serves and the namespace exists into which everything is installed.
func (s *supervisor) waitForServer(ctx context.Context) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	return poll(ctx, plane.APIServer, func(ctx context.Context) bool {
		if err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return false
		}
		_, err := client.CoreV1().Namespaces().Get(ctx, plane.Namespace, metav1.GetOptions{})
		return err == nil
	})
}

// waitForAWS waits until the model of AWS accepts connections.
func (s *supervisor) waitForAWS(ctx context.Context) error {
	address := fmt.Sprintf("127.0.0.1:%d", s.plane.Ports[plane.AWSPort])
	return poll(ctx, plane.AWS, func(ctx context.Context) bool {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return false
		}
		connection.Close()
		return true
	})
}

// waitForController waits until a replica that leads is ready, if there is to be any. The Deployment says so only seconds
// later: its probe begins late.
func (s *supervisor) waitForController(ctx context.Context) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	return controllerIs(ctx, func(ctx context.Context) error {
		deployment, err := client.AppsV1().Deployments(plane.Namespace).Get(ctx, plane.ServiceAccount, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && *deployment.Spec.Replicas == 0 {
			return nil // as requested
		}
		if err != nil {
			return err
		}
		return leaderReady(ctx, client)
	})
}

// WaitForRollout waits until all of the controller's pods are those that its Deployment wants now.
func WaitForRollout(ctx context.Context, dir home.Dir) error {
	client, err := clientOf(dir)
	if err != nil {
		return err
	}
	return controllerIs(ctx, func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments(plane.Namespace).Get(ctx, plane.ServiceAccount, metav1.GetOptions{})
		if err != nil {
			return err
		}
		wanted, s := *d.Spec.Replicas, d.Status
		if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != wanted || s.Replicas != wanted || s.AvailableReplicas != wanted {
			return fmt.Errorf("%d of %d replicas are new and ready", min(s.UpdatedReplicas, s.AvailableReplicas), wanted)
		}
		if wanted == 0 {
			return nil
		}
		return leaderReady(ctx, client)
	})
}

// controllerIs waits for something about the controller.
func controllerIs(ctx context.Context, ready func(context.Context) error) error {
	why := ""
	err := poll(ctx, "the controller", func(ctx context.Context) bool {
		err := ready(ctx)
		if err != nil && ctx.Err() == nil {
			why = err.Error()
		}
		return err == nil
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %s; `karpenter-local logs controller` shows what it says", err, why)
	}
	return err
}

// leaderReady says why no replica of the controller leads and is ready.
func leaderReady(ctx context.Context, client kubernetes.Interface) error {
	lease, err := client.CoordinationV1().Leases(plane.Namespace).Get(ctx, plane.Lease, metav1.GetOptions{})
	if err != nil {
		return err
	}
	holder, _, _ := strings.Cut(*cmp.Or(lease.Spec.HolderIdentity, new("")), "_")
	if holder == "" {
		return errors.New("no replica leads")
	}
	pod, err := leader(ctx, client, holder)
	if err != nil {
		return fmt.Errorf("the replica that leads: %w", err)
	}
	if _, err := client.CoreV1().Pods(plane.Namespace).ProxyGet("http", pod.Name, healthPort(pod), "readyz", nil).DoRaw(ctx); err != nil {
		return err
	}
	return webhookReached(ctx, client)
}

// leader returns the pod that holds the lease. A controller that does not read its name from the environment signs with the name of this
// machine: it is the newest pod.
func leader(ctx context.Context, client kubernetes.Interface, holder string) (*corev1.Pod, error) {
	pods := client.CoreV1().Pods(plane.Namespace)
	if host, err := os.Hostname(); err != nil || host != holder {
		return pods.Get(ctx, holder, metav1.GetOptions{})
	}
	all, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + plane.ServiceAccount})
	if err != nil {
		return nil, err
	}
	if len(all.Items) == 0 {
		return nil, errors.New("it has no pod")
	}
	last := slices.MaxFunc(all.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return &last, nil
}

// webhookReached says why the API server does not reach the controller's webhook. Not all clusters have it.
func webhookReached(ctx context.Context, client kubernetes.Interface) error {
	const webhook = plane.ServiceAccount + "-conversion"
	_, err := client.CoreV1().Services(plane.Namespace).Get(ctx, webhook, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Services(plane.Namespace).ProxyGet("https", webhook, "8443", "", nil).DoRaw(ctx)
	if apierrors.IsServiceUnavailable(err) {
		return err
	}
	return nil // whatever it says to such a request, it is there
}

// healthPort is the port that the pod's readiness probe asks.
func healthPort(p *corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		if c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet == nil {
			continue
		}
		wanted := c.ReadinessProbe.HTTPGet.Port
		for _, port := range c.Ports {
			if port.Name == wanted.StrVal {
				return fmt.Sprint(port.ContainerPort)
			}
		}
		return wanted.String()
	}
	return ""
}
