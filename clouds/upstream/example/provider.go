// Package example is a small provider for Karpenter's Go interface: a rack of servers that it keeps in memory.
// docs/writing-a-provider.md explains it step by step, and the tests of the adapter run over it.
package example

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// GroupVersion is that of Rack.
var GroupVersion = schema.GroupVersion{Group: "rack.example.com", Version: "v1"}

// A Rack is the node class: one rack, from which servers are taken.
type Rack struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            struct {
		Conditions []status.Condition `json:"conditions,omitempty"`
	} `json:"status,omitempty"`
}

func (r *Rack) GetConditions() []status.Condition  { return r.Status.Conditions }
func (r *Rack) SetConditions(c []status.Condition) { r.Status.Conditions = c }
func (r *Rack) StatusConditions(o ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions().For(r, o...)
}

// DeepCopyObject implements runtime.Object.
func (r *Rack) DeepCopyObject() runtime.Object {
	out := &Rack{TypeMeta: r.TypeMeta, ObjectMeta: *r.ObjectMeta.DeepCopy()}
	out.Status.Conditions = slices.Clone(r.Status.Conditions)
	return out
}

// A Provider lends servers of the rack.
type Provider struct {
	mu       sync.Mutex
	machines map[string]*karpv1.NodeClaim // by provider id
	made     int
}

// New returns a provider with no server taken.
func New() *Provider { return &Provider{machines: map[string]*karpv1.NodeClaim{}} }

// GetInstanceTypes returns the sizes of servers, in two rows of the rack.
func (p *Provider) GetInstanceTypes(context.Context, *karpv1.NodePool) (out []*cloudprovider.InstanceType, _ error) {
	for _, cpu := range []int{2, 4, 8} {
		name := fmt.Sprintf("server-%d", cpu)
		it := &cloudprovider.InstanceType{
			Name: name,
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(fmt.Sprint(cpu)),
				corev1.ResourceMemory: resource.MustParse(fmt.Sprint(4*cpu, "Gi")), corev1.ResourcePods: resource.MustParse("110")},
			Overhead: &cloudprovider.InstanceTypeOverhead{
				KubeReserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
			Requirements: scheduling.NewLabelRequirements(map[string]string{corev1.LabelInstanceTypeStable: name,
				corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"}),
		}
		for _, row := range []string{"row-1", "row-2"} {
			it.Offerings = append(it.Offerings, &cloudprovider.Offering{Available: true, Price: 0.05 * float64(cpu),
				Requirements: scheduling.NewLabelRequirements(map[string]string{corev1.LabelTopologyZone: row,
					karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand})})
		}
		out = append(out, it)
	}
	return out, nil
}

// Create takes the cheapest server that the claim allows, and writes down whose it is.
func (p *Provider) Create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	types, _ := p.GetInstanceTypes(ctx, nil)
	reqs := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	var best *cloudprovider.Offering
	var it *cloudprovider.InstanceType
	for _, t := range types {
		fits := reqs.IsCompatible(t.Requirements, scheduling.AllowUndefinedWellKnownLabels) &&
			resources.Fits(claim.Spec.Resources.Requests, t.Allocatable())
		for _, o := range t.Offerings.Available().Compatible(reqs) {
			if fits && (best == nil || o.Price < best.Price) {
				best, it = o, t
			}
		}
	}
	if best == nil {
		return nil, cloudprovider.NewInsufficientCapacityError(errors.New("no server fits"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made++
	m := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Annotations: maps.Clone(claim.Annotations),
		Labels:            map[string]string{karpv1.NodePoolLabelKey: claim.Labels[karpv1.NodePoolLabelKey]},
		CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second))}}
	for _, of := range []scheduling.Requirements{it.Requirements, best.Requirements} {
		for key, r := range of {
			m.Labels[key] = r.Any()
		}
	}
	m.Status = karpv1.NodeClaimStatus{ProviderID: fmt.Sprintf("rack:///%d", p.made),
		Capacity: it.Capacity, Allocatable: it.Allocatable()}
	p.machines[m.Status.ProviderID] = m
	return m.DeepCopy(), nil
}

// Get returns a server that is taken.
func (p *Provider) Get(_ context.Context, id string) (*karpv1.NodeClaim, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.machines[id]; m != nil {
		return m.DeepCopy(), nil
	}
	return nil, cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("no server %s is taken", id))
}

// List returns every server that is taken.
func (p *Provider) List(context.Context) (out []*karpv1.NodeClaim, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.machines {
		out = append(out, m.DeepCopy())
	}
	return out, nil
}

// Delete gives a server back.
func (p *Provider) Delete(ctx context.Context, claim *karpv1.NodeClaim) error {
	_, err := p.Get(ctx, claim.Status.ProviderID)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.machines, claim.Status.ProviderID)
	return err
}

// IsDrifted says that a server never changes.
func (p *Provider) IsDrifted(context.Context, *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	return "", nil
}

// Reboot is not offered.
func (p *Provider) Reboot(context.Context, *karpv1.NodeClaim, string) error {
	return cloudprovider.NewNodeRebootNotImplementedError()
}

// RepairPolicies has a server replaced that is not ready for half an hour.
func (p *Provider) RepairPolicies() []cloudprovider.RepairPolicy {
	return []cloudprovider.RepairPolicy{{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionFalse,
		TolerationDuration: 30 * time.Minute, Action: cloudprovider.ReplaceNode}}
}

func (p *Provider) Name() string                             { return "rack" }
func (p *Provider) GetSupportedNodeClasses() []status.Object { return []status.Object{&Rack{}} }
