package upstream

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"context"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// convert returns an object of the same kind as the other library declares it: both write the same JSON.
func convert[T any](o any) (*T, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", o, err)
	}
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("convert %T: %w", o, err)
	}
	return out, nil
}

// nameAnnotation and uidAnnotation are put on the claim that Create gets. A provider that keeps annotations with the machine shows
// by them whose it is.
const (
	nameAnnotation = "upstream.karpenter.sh/claim"
	uidAnnotation  = "upstream.karpenter.sh/claim-uid"
)

// withOwner returns the claim as Create gets it.
func withOwner(claim *v1.NodeClaim) (*karpv1.NodeClaim, error) {
	out, err := convert[karpv1.NodeClaim](claim)
	if err != nil {
		return nil, err
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[nameAnnotation], out.Annotations[uidAnnotation] = claim.Name, string(claim.UID)
	return out, nil
}

// isOf reports whether a machine, as the provider describes it, bears the UID or the name of a claim. A UID that is known decides;
// some providers put the claim's name into the label of the host's name.
func belongsTo(m *karpv1.NodeClaim, claim *v1.NodeClaim) bool {
	if uid := cmp.Or(m.Annotations[uidAnnotation], string(m.UID)); uid != "" && claim.UID != "" {
		return uid == string(claim.UID)
	}
	return claim.Name != "" && (m.Annotations[nameAnnotation] == claim.Name || m.Name == claim.Name ||
		m.Labels[corev1.LabelHostname] == claim.Name)
}

// machineOf converts a machine as a provider describes it. The name of its claim is filled in by the caller.
func machineOf(m *karpv1.NodeClaim, firstSeen time.Time) cloud.Machine {
	out := cloud.Machine{
		ProviderID: m.Status.ProviderID, PoolName: m.Labels[v1.NodePoolLabelKey],
		InstanceType: m.Labels[corev1.LabelInstanceTypeStable], ImageID: m.Status.ImageID, Zone: m.Labels[corev1.LabelTopologyZone],
		CapacityType: m.Labels[v1.CapacityTypeLabelKey], Labels: map[string]string{}, Annotations: map[string]string{},
		Capacity: corev1.ResourceList{}, Allocatable: m.Status.Allocatable.DeepCopy(),
		Created: m.CreationTimestamp.Time, Deleting: m.DeletionTimestamp != nil,
	}
	for key, value := range m.Labels {
		if value != "" {
			out.Labels[key] = value
		}
	}
	for key, value := range m.Annotations {
		if key != nameAnnotation && key != uidAnnotation {
			out.Annotations[key] = value
		}
	}
	for name, q := range m.Status.Capacity {
		out.Capacity[name] = q.DeepCopy()
	}
	for name, q := range m.Status.Allocatable { // a provider may count as capacity only what its claim asked for
		if total := out.Capacity[name]; total.Cmp(q) < 0 {
			out.Capacity[name] = q.DeepCopy()
		}
	}
	if out.Created.IsZero() {
		out.Created = firstSeen
	}
	return out
}

// launchError converts the answer of Create. uncertain says that a machine may have been started all the same.
func launchError(err error) (converted error, uncertain bool) {
	var netErr net.Error
	lost := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.As(err, &netErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if lost {
		return err, true
	}
	var refused *cloudprovider.CreateError
	switch {
	case cloudprovider.IsInsufficientCapacityError(err):
		return &cloud.NoCapacityError{Err: err}, false
	case cloudprovider.IsNodeClassNotReadyError(err):
		return &cloud.ClassNotReadyError{Err: err}, false
	case errors.As(err, &refused):
		return &cloud.LaunchError{Reason: cmp.Or(refused.ConditionReason, v1.ReasonLaunchFailed),
			Message: cmp.Or(refused.ConditionMessage, err.Error()), Err: err}, false
	}
	return err, true
}

// gone converts the error that a machine does not exist.
func convertNotFound(err error) error {
	if cloudprovider.IsNodeClaimNotFoundError(err) {
		return fmt.Errorf("%w: %w", cloud.ErrNotFound, err)
	}
	return err
}
