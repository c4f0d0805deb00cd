//go:build apiserver

package apiserver

import (
	"context"
	"errors"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/control/definition"
	"karpenter.sh/karpenter/test/plane"
)

// The answers of a real API server to the question whether the definition of NodeClaims is there: before it is deleted, while a claim
// keeps it from going, when it is gone, and when it is back. The server is the test's own.
func TestADeletedDefinitionIsNoticed(t *testing.T) {
	definitions, err := readCRDs()
	if err != nil {
		t.Fatal(err)
	}
	own, release, err := plane.New(definitions, soon)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	config, err := own.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Stop()
	known := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(known), apiextensionsv1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	until := func(what string, done func(ctx context.Context) bool) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, soon, true,
			func(ctx context.Context) (bool, error) { return done(ctx), nil })
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	gone := func(ctx context.Context) bool { return definition.New(c).Gone(ctx) }
	there := func(ctx context.Context) bool { return !gone(ctx) }
	if gone(t.Context()) {
		t.Fatal("the definition is there and counts as gone")
	}
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "kept", Finalizers: []string{v1.TerminationFinalizer}}}
	claim.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	claim.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "nodeclaims.karpenter.sh"}}
	if err := errors.Join(c.Create(t.Context(), claim), c.Delete(t.Context(), crd)); err != nil {
		t.Fatal(err)
	}
	until("the definition is being deleted", gone)
	claim.Finalizers = nil
	if err := c.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	until("the definition goes", func(ctx context.Context) bool {
		return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(crd), crd))
	})
	if !gone(t.Context()) {
		t.Error("the definition is gone and counts as there")
	}
	for _, d := range definitions {
		if d.Name == crd.Name {
			d.ResourceVersion, d.UID = "", ""
			if err := c.Create(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
	until("the definition is back", there)
}
