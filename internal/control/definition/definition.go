// Package definition knows whether NodeClaims can be created.
//
// When a user deletes the definition of NodeClaims, the API server deletes every NodeClaim and refuses to create others. To drain
// their nodes then would evict the pods of the whole cluster while no node can come in place of another. The loops that drain
// nodes ask this package first, and wait until the definition is back.
package definition

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// askEvery is how long an answer counts.
const askEvery = 5 * time.Second

// terminating is in the API server's answer while it deletes the definition. A right that is missing is refused with the same code
// and reason, so only the text tells them apart; test/apiserver asks a real server.
const terminating = "custom resource definition is terminating"

// Held is why a node is not drained, for events.
const Held = "The definition of NodeClaims was deleted, so that no node could replace this one: it is not drained until the " +
	"definition is back"

// A Watch asks whether NodeClaims can be created. It may be used concurrently. To a nil Watch they always can.
type Watch struct {
	client client.Client
	turn   chan struct{} // holds one token: the caller that has it reads and writes the answer
	asked  time.Time
	gone   bool
}

// New returns a Watch that asks the API server through a client.
func New(c client.Client) *Watch {
	w := &Watch{client: c, turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w
}

// Gone reports whether the definition is being deleted or is not there. It asks with a dry run of a create, for which the
// controller needs no further right; an answer that says nothing of the definition counts as no. It returns true when ctx
// ends before it knows: the caller drains nothing then.
func (w *Watch) Gone(ctx context.Context) bool {
	if w == nil {
		return false
	}
	select {
	case <-w.turn:
		defer func() { w.turn <- struct{}{} }()
	case <-ctx.Done():
		return true
	}
	if time.Since(w.asked) < askEvery {
		return w.gone
	}
	probe := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "definition-probe"}}
	err := w.client.Create(ctx, probe, client.DryRunAll)
	gone := apierrors.IsForbidden(err) && strings.Contains(err.Error(), terminating) || apierrors.IsNotFound(err) ||
		meta.IsNoMatchError(err)
	if gone && !w.gone {
		telemetry.Log(ctx).Error("the definition of NodeClaims is deleted: no node is drained until it is back", "error", err)
	}
	w.asked, w.gone = time.Now(), gone
	return gone
}
