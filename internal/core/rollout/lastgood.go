package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/drift"
)

const (
	mostTemplates = 256 << 10 // bytes of the templates that the status of one policy remembers
	mostImages    = 32
)

// Errors of Restore: why new machines cannot start with the state that passed last.
var (
	ErrNothingPassed = errors.New("no rollout of it that came to its end is remembered")
	ErrOtherClass    = errors.New("the state that passed last names a node class that is gone, or that no machine made from it has")
)

// passed returns the state of a pool whose rollout ends: its template, which all watched machines have, and the images that they run. The
// images are read from the machines, since the node class may have found newer ones meanwhile. Machines that were created after the last
// watch began do not count, nor do those of before a resume, which are not judged any more. It returns nil if no machine
// counts, or if they run more than mostImages images.
func passed(e *v1alpha1.RolloutPool, at *Look, now *metav1.Time) *v1alpha1.RolloutState {
	_, judged := Began(e)
	stamp, watched, images := drift.PoolStamp(at.Pool), false, map[string]bool{}
	for _, n := range at.Fleet.Fresh {
		created := n.Claim.CreationTimestamp.Time
		if created.After(e.BakingSince.Time) || created.Before(judged) || drift.Stored(n.Claim.Annotations) != stamp {
			continue
		}
		watched = true
		if n.Claim.Status.ImageID != "" {
			images[n.Claim.Status.ImageID] = true
		}
	}
	text, err := json.Marshal(&at.Pool.Spec.Template)
	if !watched || err != nil || len(images) > mostImages {
		return nil
	}
	return &v1alpha1.RolloutState{Passed: *now, Template: string(text), Images: slices.Sorted(maps.Keys(images))}
}

// Bound drops the remembered states of the last pools in a status if all templates together are larger than mostTemplates.
func Bound(pools []v1alpha1.RolloutPool) {
	left := mostTemplates
	for i := range pools {
		if s := pools[i].LastGood; s != nil {
			if left -= len(s.Template); left < 0 {
				pools[i].LastGood = nil
			}
		}
	}
}

// GoesBack reports whether new machines of a pool are to start with the state that passed last: a gate has stopped the pool, its spec has
// not changed since, and the policy has onFailure LastGood. e is the entry of the pool, nil if there is none.
func (p *Policy) GoesBack(snap *cluster.Snapshot, pool *v1.NodePool, e *v1alpha1.RolloutPool) bool {
	return p.Object.Spec.OnFailure == v1alpha1.RolloutLastGood && e != nil && e.Tripped != nil && e.Revision == Revision(snap, pool)
}

// Restore returns a copy of a pool for new machines: it has the template of a state and its hash, and the state's images in an annotation
// that claims take over. The error is why the state cannot be used.
//
// The state was read from a status, which may be forged. So the template must be valid, and its node class must be that of the pool or of
// an existing machine of the pool made from this template. With that, a forged template gives no more than an author of the
// pool has. The provider checks the images: it launches only those that the node class has found.
func Restore(snap *cluster.Snapshot, pool *v1.NodePool, s *v1alpha1.RolloutState, known *label.Vocabulary) (*v1.NodePool, error) {
	if s == nil {
		return nil, ErrNothingPassed
	}
	out := *pool
	out.Spec.Template = v1.NodeClaimTemplate{}
	if err := json.Unmarshal([]byte(s.Template), &out.Spec.Template); err != nil {
		return nil, fmt.Errorf("read the template that passed last: %w", err)
	}
	if err := out.Validate(known); err != nil {
		return nil, fmt.Errorf("check the template that passed last: %w", err)
	}
	stamp := drift.PoolStamp(&out)
	out.Annotations = map[string]string{}
	maps.Copy(out.Annotations, pool.Annotations)
	out.Annotations[v1.NodePoolHashAnnotationKey], out.Annotations[v1.NodePoolHashVersionAnnotationKey] = stamp.Hash, stamp.Version
	out.Annotations[v1.LastGoodImagesAnnotationKey] = strings.Join(s.Images, ",")
	if !classVouched(snap, pool, &out, stamp) {
		return nil, ErrOtherClass
	}
	return &out, nil
}

// classVouched reports whether the restored pool (last) may use its node class: it is the class of pool, or it exists, is not being
// deleted, and a machine of pool that was made from the restored template has it.
func classVouched(snap *cluster.Snapshot, pool, last *v1.NodePool, stamp drift.Stamp) bool {
	have, want := pool.Spec.Template.Spec.NodeClassRef, last.Spec.Template.Spec.NodeClassRef
	switch {
	case have == nil || want == nil:
		return false
	case *have == *want:
		return true
	}
	class := snap.NodeClass(want)
	if class == nil || class.Deleting {
		return false
	}
	for n := range snap.Nodes() {
		if c := n.Claim; c != nil && c.Labels[v1.NodePoolLabelKey] == pool.Name &&
			c.Spec.NodeClassRef != nil && *c.Spec.NodeClassRef == *want && drift.Stored(c.Annotations) == stamp {
			return true
		}
	}
	return false
}

// wentBack reports whether a claim was created from the state that passed last, while the rollout of its pool was stopped. It does not
// count as a new machine of a rollout, and is replaced like the old ones.
func wentBack(claim *v1.NodeClaim) bool {
	_, ok := claim.Annotations[v1.LastGoodImagesAnnotationKey]
	return ok
}

// StandsIn reports whether a claim was created from the state that passed last, and the rollout of its pool is still stopped. New machines
// are made like this claim then, so it does not count as drifted.
func StandsIn(snap *cluster.Snapshot, claim *v1.NodeClaim, pool *v1.NodePool) bool {
	if !wentBack(claim) {
		return false
	}
	_, of := Read(snap)
	p := of[pool.Name]
	return p != nil && p.GoesBack(snap, pool, p.Entry(pool.Name))
}
