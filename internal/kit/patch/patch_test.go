package patch

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// pool creates a pool and returns the server, a client and the pool as it was seen.
func pool(t *testing.T) (*memapi.Server, client.Client, *v1.NodePool) {
	t.Helper()
	server := memapi.New(memapi.Scheme())
	c := server.Client("test")
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return server, c, p
}

// labelled writes a label, as somebody else does meanwhile.
func labelled(t *testing.T, c client.Client, p *v1.NodePool) {
	t.Helper()
	next := p.DeepCopy()
	next.Labels = map[string]string{"team": "a"}
	if err := c.Patch(t.Context(), next, client.MergeFrom(p)); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyWhatWasSeenIsWrittenOver(t *testing.T) {
	_, c, seen := pool(t)
	next := seen.DeepCopy()
	next.Annotations = map[string]string{"x": "1"}
	if err := c.Patch(t.Context(), next, Over(seen)); err != nil {
		t.Errorf("an object that nobody touched: %v", err)
	}
	late := seen.DeepCopy()
	late.Annotations = map[string]string{"x": "2"}
	if err := c.Patch(t.Context(), late, Over(seen)); !apierrors.IsConflict(err) {
		t.Errorf("an object that was written since: %v, want a conflict", err)
	}
}

func TestStatusIsWrittenUnlessSomebodyWasFaster(t *testing.T) {
	broken := errors.New("the server is broken")
	for name, tc := range map[string]struct {
		meanwhile func(*testing.T, *memapi.Server, client.Client, *v1.NodePool)
		written   bool
		err       error
	}{
		"what nobody touched is written":                      {func(*testing.T, *memapi.Server, client.Client, *v1.NodePool) {}, true, nil},
		"what was written since is not, and that is no error": {func(t *testing.T, _ *memapi.Server, c client.Client, p *v1.NodePool) { labelled(t, c, p) }, false, nil},
		"nor what is gone": {func(t *testing.T, _ *memapi.Server, c client.Client, p *v1.NodePool) {
			if err := c.Delete(t.Context(), p.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}, false, nil},
		"any other failure is one": {func(_ *testing.T, s *memapi.Server, _ client.Client, _ *v1.NodePool) {
			s.SetFault(func(memapi.Request) error { return broken })
		}, false, broken},
	} {
		t.Run(name, func(t *testing.T) {
			server, c, seen := pool(t)
			tc.meanwhile(t, server, c, seen)
			next := seen.DeepCopy()
			next.Status.Resources = corev1.ResourceList{}
			next.Status.Conditions = append(next.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready"})
			written, err := Status(t.Context(), c, next, seen)
			if written != tc.written || !errors.Is(err, tc.err) {
				t.Errorf("Status = %t, %v, want %t, %v", written, err, tc.written, tc.err)
			}
		})
	}
}
