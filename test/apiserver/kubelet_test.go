//go:build apiserver

package apiserver

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// kubelet returns a client with the rights of a node.
func kubelet(t *testing.T, node string) client.Client {
	t.Helper()
	cfg := rest.CopyConfig(restConfig)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"}}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWhatAKubeletMayChange is what docs/security.md says of somebody who has the credentials of a kubelet: which of the labels and fields
// that decisions read he can write, on his own Node and on others.
func TestWhatAKubeletMayChange(t *testing.T) {
	own, other := "kubelet-own", "kubelet-other"
	for _, name := range []string{own, other} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.NodePoolLabelKey: "default"}}, Spec: corev1.NodeSpec{ProviderID: "aws:///a/i-" + name}}
		if err := kube.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(context.Background(), n) })
	}
	c := kubelet(t, own)
	for name, tc := range map[string]struct {
		node, patch string
		status, may bool
	}{
		"the pool on its own Node":            {own, `{"metadata":{"labels":{"karpenter.sh/nodepool":"rich"}}}`, false, true},
		"that it is initialized":              {own, `{"metadata":{"labels":{"karpenter.sh/initialized":"true"}}}`, false, true},
		"its capacity":                        {own, `{"status":{"capacity":{"cpu":"2000"},"allocatable":{"cpu":"2000"}}}`, true, true},
		"a label that is kept from kubelets":  {own, `{"metadata":{"labels":{"node-restriction.kubernetes.io/team":"a"}}}`, false, false},
		"no taints any more":                  {own, `{"spec":{"taints":[]}}`, false, false},
		"a taint more":                        {own, `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`, false, false},
		"its provider ID":                     {own, `{"spec":{"providerID":"aws:///a/i-other"}}`, false, false},
		"its owner":                           {own, `{"metadata":{"ownerReferences":[{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","name":"a","uid":"u"}]}}`, false, false},
		"the pool on the Node of another":     {other, `{"metadata":{"labels":{"karpenter.sh/nodepool":"rich"}}}`, false, false},
		"the capacity of the Node of another": {other, `{"status":{"capacity":{"cpu":"2000"}}}`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tc.node}}
			patch := client.RawPatch("application/merge-patch+json", []byte(tc.patch))
			write := c.Patch
			if tc.status {
				write = func(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
					return c.Status().Patch(ctx, o, p)
				}
			}
			err := write(t.Context(), n, patch)
			if (err == nil) != tc.may {
				t.Errorf("may %t, want %t: %v", err == nil, tc.may, err)
			}
		})
	}
	for _, kind := range []string{"NodePool", "NodeClaim"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1.GroupVersion.WithKind(kind + "List"))
		if err := c.List(t.Context(), list); !apierrors.IsForbidden(err) {
			t.Errorf("a kubelet reads %ss: %v", kind, err)
		}
	}
}
