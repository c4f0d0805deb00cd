package supervise

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

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

func (s *supervisor) client() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.dir.Kubeconfig())
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

func (s *supervisor) waitForController(ctx context.Context) error {
	url := fmt.Sprintf("http://127.0.0.1:%d/readyz", s.plane.Ports[plane.HealthPort])
	err := poll(ctx, plane.Controller, func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %s", err, lastWords(s.dir.Log(plane.Controller)))
	}
	return err
}

// tokenLife is how long a token of the controller is good. It is replaced when half of that has passed, as a kubelet does.
const tokenLife = time.Hour

// writeToken asks for a token of the controller's service account and puts it where the controller's kubeconfig says.
func (s *supervisor) writeToken(ctx context.Context) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	seconds := int64(tokenLife / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := client.CoreV1().ServiceAccounts(plane.Namespace).CreateToken(ctx, plane.ServiceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("get a token for service account %s/%s: %w", plane.Namespace, plane.ServiceAccount, err)
	}
	temporary := s.dir.Token() + ".new"
	if err := os.WriteFile(temporary, []byte(answer.Status.Token), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, s.dir.Token())
}

// keepToken keeps the token fresh until ctx ends.
func (s *supervisor) keepToken(ctx context.Context) {
	next := tokenLife / 2
	for {
		if pause(ctx, next); ctx.Err() != nil {
			return
		}
		next = tokenLife / 2
		if err := s.writeToken(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "renew the controller's token:", err)
			next = time.Minute
		}
	}
}
