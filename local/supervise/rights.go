package supervise

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

//go:embed rights.yaml
var rights []byte

// giveRights lets the simulated kubelets do what they do.
func (s *supervisor) giveRights(ctx context.Context) error {
	roleText, bindingText, _ := bytes.Cut(rights, []byte("\n---\n"))
	role, binding := &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}
	if err := yaml.UnmarshalStrict(roleText, role); err != nil {
		return fmt.Errorf("read the rights of kubelets: %w", err)
	}
	if err := yaml.UnmarshalStrict(bindingText, binding); err != nil {
		return fmt.Errorf("read whom the rights of kubelets are given to: %w", err)
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	_, err = client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // perhaps those of another version
		_, err = client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("give kubelets their rights: %w", err)
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("give kubelets their rights: %w", err)
	}
	return nil
}
