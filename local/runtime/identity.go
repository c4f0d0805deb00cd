package runtime

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenLife is how long a token is good. It is replaced when half of that has passed.
const tokenLife = time.Hour

// An identity is how a pod is known to the API server.
type identity struct {
	client kubernetes.Interface
	server *rest.Config
	folder string
}

func (i identity) kubeconfig() string { return filepath.Join(i.folder, "kubeconfig") }
func (i identity) token() string      { return filepath.Join(i.folder, "token") }

// write stores a kubeconfig with a fresh token of the pod's service account, which ends with the pod.
func (i identity) write(ctx context.Context, p *corev1.Pod) error {
	if err := os.MkdirAll(i.folder, 0o700); err != nil {
		return err
	}
	if err := i.renew(ctx, p); err != nil {
		return err
	}
	const name = "karpenter-local"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: i.server.Host, CertificateAuthorityData: i.server.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: i.token()} // which is read again and again
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: p.Namespace}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, i.kubeconfig())
}

func (i identity) renew(ctx context.Context, p *corev1.Pod) error {
	seconds := int64(tokenLife / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID},
	}}
	answer, err := i.client.CoreV1().ServiceAccounts(p.Namespace).CreateToken(ctx, p.Spec.ServiceAccountName, request,
		metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("get a token for service account %s/%s: %w", p.Namespace, p.Spec.ServiceAccountName, err)
	}
	temporary := i.token() + ".new"
	if err := os.WriteFile(temporary, []byte(answer.Status.Token), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, i.token())
}

// keep keeps the token fresh until ctx ends.
func (i identity) keep(ctx context.Context, p *corev1.Pod, trouble func(error)) {
	for next := tokenLife / 2; pause(ctx, next); {
		next = tokenLife / 2
		if err := i.renew(ctx, p); err != nil && ctx.Err() == nil {
			trouble(err)
			next = time.Minute
		}
	}
}
