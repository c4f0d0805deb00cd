// Package launchspec works out everything that a launch needs for a claim: the launch templates with their user data, and the
// order that names them. It is pure.
package launchspec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ami"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/bootstrap"
	"karpenter.sh/karpenter/internal/aws/catalogue"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/internal/aws/launch"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/core/need"
)

// A Cluster is what machines join.
type Cluster struct {
	bootstrap.Cluster
	Region string
	DNS    string // address of the cluster's DNS service
	IPv6   bool
	// Reservations reports whether capacity reservations are managed.
	Reservations bool
	// Hardware and Type are asked where the kubelet's configuration depends on the machine.
	Hardware hardware.Settings
	Type     func(name string) *awsdata.InstanceType
}

// A Spec is a launch, ready to be carried out once its templates exist.
type Spec struct {
	Templates []*launch.Template
	Order     *fleet.Order
}

// Errors of classes and claims that cannot be launched.
var (
	ErrNoProfile = errors.New("the node class has no instance profile yet")
	ErrNoGroups  = errors.New("the node class has no security groups")
	ErrNoImages  = errors.New("the node class has no machine images")
	ErrNoImage   = errors.New("no machine image of the node class is for any of the instance types")
)

// An unlistedError says that EC2 no longer lists any of the types that could be launched, so that the results of
// the class's formulas are unknown for them.
type unlistedError struct{ Types []string }

func (e *unlistedError) Error() string {
	return "EC2 no longer lists what the formulas in spec.kubelet are to be reckoned for: " + strings.Join(e.Types, ", ")
}

// Make works out the launch of a claim from its class and from what was chosen for it. It changes neither.
func Make(c Cluster, nc *awsv1.EC2NodeClass, claim *v1.NodeClaim, choice fleet.Choice) (*Spec, error) {
	switch {
	case nc.Status.InstanceProfile == "":
		return nil, ErrNoProfile
	case len(nc.Status.SecurityGroups) == 0:
		return nil, ErrNoGroups
	case len(nc.Status.AMIs) == 0:
		return nil, ErrNoImages
	}
	groups, err := group(c, nc, claim, choice)
	if err != nil {
		return nil, err
	}
	pool := claim.Labels[v1.NodePoolLabelKey]
	r := &Spec{Order: &fleet.Order{
		CapacityType: choice.CapacityType,
		Kind:         choice.Kind(),
		Tags:         launch.Tags(c.Name, pool, nc),
		Prioritized:  claim.Annotations[v1.PriceOverlayAppliedAnnotationKey] != "",
		Subnets:      catalogue.Subnets(nc),
		Pods:         podsByZone(choice),
		Place:        placeOf(nc, claim),
		Claim:        claim.Name,
		Token:        string(claim.UID) + claim.Annotations[v1.LaunchTokenAnnotationKey],
	}}
	if nc.Spec.Context != nil && claim.Annotations[v1.NodeClaimMinValuesRelaxedAnnotationKey] != "true" {
		r.Order.Context = *nc.Spec.Context
	}
	for _, g := range groups {
		t, err := template(c, nc, claim, choice, g)
		if err != nil {
			return nil, err
		}
		t.Tags = r.Order.Tags
		r.Templates = append(r.Templates, t)
		r.Order.Templates = append(r.Order.Templates, fleet.Template{Name: t.Name(), Reservation: g.reservation, Overrides: g.overrides})
	}
	return r, nil
}

// A kind is what machines that boot from one launch template have in common.
type kind struct {
	image       string
	efa, pods   int
	reservation string
	reserved    string // by the kubelet, where that depends on the machine
}

// A templateGroup is a kind with the types and zones that are launched from its template.
type templateGroup struct {
	kind
	kubelet   *awsv1.ManagedKubelet
	overrides []fleet.Override
}

// group sorts the offerings of a choice by the launch template that they need. If there are more than EC2 takes in a
// call, those with the cheapest offerings stay.
func group(c Cluster, nc *awsv1.EC2NodeClass, claim *v1.NodeClaim, choice fleet.Choice) ([]templateGroup, error) {
	wantsEFA := !quantity(claim.Spec.Resources.Requests, awsv1.ResourceEFA).IsZero()
	kubelets, err := kubeletsOf(c, nc)
	if err != nil {
		return nil, err
	}
	byKind := map[kind]*templateGroup{}
	var unlisted []string
	for _, candidate := range choice.Candidates {
		image, ok := ami.For(nc.Status.AMIs, candidate.Type.Labels)
		if !ok {
			continue
		}
		kubelet := kubelets.of(candidate.Type.Name)
		if kubelet == nil {
			unlisted = append(unlisted, candidate.Type.Name)
			continue
		}
		k := kind{image: image.ID, pods: int(candidate.Type.Capacity.Pods().Value())}
		if wantsEFA {
			k.efa = int(quantity(candidate.Type.Capacity, awsv1.ResourceEFA).Value())
		}
		if kubelets.class.HasFormulas() {
			k.reserved = fmt.Sprint(kubelet.KubeReserved, kubelet.SystemReserved)
		}
		for _, o := range candidate.Offerings {
			k.reservation = o.Labels[awsv1.LabelCapacityReservationID]
			g := byKind[k]
			if g == nil {
				g = &templateGroup{kind: k, kubelet: kubelet}
				byKind[k] = g
			}
			g.overrides = append(g.overrides, fleet.Override{
				InstanceType: candidate.Type.Name, Zone: o.Zone(), ImageID: image.ID, Priority: o.Price.Dollars(),
			})
		}
	}
	switch {
	case len(byKind) == 0 && len(unlisted) > 0:
		return nil, &unlistedError{unlisted}
	case len(byKind) == 0:
		return nil, ErrNoImage
	}
	out := make([]templateGroup, 0, len(byKind))
	for _, g := range byKind {
		out = append(out, *g)
	}
	if len(out) > fleet.MaxTemplates {
		slices.SortFunc(out, func(a, b templateGroup) int {
			return cmp.Or(cmp.Compare(a.cheapest(), b.cheapest()), strings.Compare(a.key(), b.key()))
		})
		out = out[:fleet.MaxTemplates]
	}
	slices.SortFunc(out, func(a, b templateGroup) int { return strings.Compare(a.key(), b.key()) })
	return out, nil
}

// A kubelets holds the kubelet configurations of a class's machines.
type kubelets struct {
	written *awsv1.ManagedKubelet
	class   *hardware.Class
	types   func(name string) *awsdata.InstanceType
}

// kubeletsOf returns the kubelet configurations of a class.
func kubeletsOf(c Cluster, nc *awsv1.EC2NodeClass) (*kubelets, error) {
	written, err := nc.Spec.Kubelet.Managed()
	if err != nil {
		return nil, err
	}
	class, err := hardware.ClassOf(nc, c.Hardware)
	if err != nil {
		return nil, err
	}
	return &kubelets{written, class, c.Type}, nil
}

// of returns the configuration on machines of a type; nil if it depends on the type and EC2 no longer lists it.
func (k *kubelets) of(name string) *awsv1.ManagedKubelet {
	if !k.class.HasFormulas() {
		return k.written
	}
	t := k.types(name)
	if t == nil {
		return nil
	}
	return k.class.Resolve(k.written, t)
}

// cheapest returns the lowest price of a group.
func (g templateGroup) cheapest() float64 {
	least := g.overrides[0].Priority
	for _, o := range g.overrides {
		least = min(least, o.Priority)
	}
	return least
}

func (k kind) key() string {
	return fmt.Sprintf("%s %04d %06d %s %s", k.image, k.efa, k.pods, k.reservation, k.reserved)
}

func quantity(list corev1.ResourceList, name corev1.ResourceName) interface {
	IsZero() bool
	Value() int64
} {
	q := list[name]
	return &q
}

// podsByZone returns the least number of addresses that a machine of the choice takes in each zone.
func podsByZone(choice fleet.Choice) map[string]int {
	out := map[string]int{}
	for _, c := range choice.Candidates {
		pods := int(c.Type.Capacity.Pods().Value())
		for _, o := range c.Offerings {
			if old, ok := out[o.Zone()]; !ok || pods < old {
				out[o.Zone()] = pods
			}
		}
	}
	return out
}

// template returns the launch template of a group.
func template(c Cluster, nc *awsv1.EC2NodeClass, claim *v1.NodeClaim, choice fleet.Choice, g templateGroup) (*launch.Template, error) {
	family := nc.AMIFamily()
	userData, err := userDataOf(c, nc, claim, choice.CapacityType, g)
	if err != nil {
		return nil, err
	}
	partition, err := strconv.ParseInt(placeOf(nc, claim).Partition, 10, 32)
	if err != nil {
		partition = 0 // the claim leaves it open, or the group has none
	}
	return &launch.Template{
		Class: nc, Family: family, Region: c.Region,
		ImageID: g.image, UserData: userData, IPv6: c.IPv6,
		CapacityType: choice.CapacityType, Tenancy: Tenancy(claim), EFA: g.efa, Partition: int32(partition),
		Enclave: nc.Spec.EnclaveOptions != nil && nc.Spec.EnclaveOptions.Enabled ||
			!quantity(claim.Spec.Resources.Requests, awsv1.ResourceNitroSandbox).IsZero(),
		ReservationID: g.reservation, Reservations: c.Reservations, Market: markets[choice.Kind()],
	}, nil
}

// markets are how EC2 calls the purchase from reservations that are not ordinary ones.
var markets = map[fleet.Kind]ec2types.MarketType{
	fleet.Block: ec2types.MarketTypeCapacityBlock, fleet.Interruptible: ec2types.MarketTypeInterruptibleCapacityReservation,
}

// userDataOf returns the user data of a group's machines.
func userDataOf(c Cluster, nc *awsv1.EC2NodeClass, claim *v1.NodeClaim, capacityType string, g templateGroup) (string, error) {
	family, kubelet := nc.AMIFamily(), *g.kubelet
	fields, err := nc.Spec.Kubelet.Fields()
	if err != nil {
		return "", err
	}
	if len(kubelet.ClusterDNS) == 0 && c.DNS != "" && c.DNS != corev1.ClusterIPNone {
		kubelet.ClusterDNS = []string{c.DNS}
	}
	o := bootstrap.Options{
		Cluster: c.Cluster,
		Kubelet: bootstrap.Kubelet{ManagedKubelet: kubelet, MaxPods: g.pods, Fields: fields},
		Taints:  bootstrap.Taints(claim),
		Labels:  bootstrap.Labels(family, claim.Labels, capacityType),
		RAID0:   nc.Spec.InstanceStorePolicy != nil && *nc.Spec.InstanceStorePolicy == awsv1.InstanceStorePolicyRAID0,
	}
	if nc.Spec.UserData != nil {
		o.UserData = *nc.Spec.UserData
	}
	if family == awsv1.AMIFamilyBottlerocket {
		o.BottlerocketVersion = ami.BottlerocketVersion(nc)
	}
	return bootstrap.Render(family, o)
}

// placeOf returns the placement group of the class, and the partition if the claim allows only one.
func placeOf(nc *awsv1.EC2NodeClass, claim *v1.NodeClaim) shortage.Place {
	g := nc.Status.PlacementGroup
	if g == nil {
		return shortage.Place{}
	}
	place, needs := shortage.Place{Group: g.ID}, need.Of(claim.Spec.Requirements)
	for n := range g.PartitionCount {
		partition := strconv.Itoa(int(n) + 1)
		if !needs.AllowValue(awsv1.LabelPlacementGroupPartition, partition) {
			continue
		}
		if place.Partition != "" {
			return shortage.Place{Group: g.ID}
		}
		place.Partition = partition
	}
	return place
}

// Tenancy returns where a claim's machines run: on shared hardware, unless the claim excludes that.
func Tenancy(claim *v1.NodeClaim) string {
	if need.Of(claim.Spec.Requirements).AllowValue(awsv1.LabelInstanceTenancy, awsv1.TenancyDefault) {
		return awsv1.TenancyDefault
	}
	return awsv1.TenancyDedicated
}

// Labels returns the node labels that type, offering and launch decide.
func Labels(it *cloud.InstanceType, o *cloud.Offering, tenancy string) map[string]string {
	out := map[string]string{}
	for key, values := range it.Labels {
		if len(values) == 1 && !strings.HasPrefix(key, reservationPrefix) && !strings.HasPrefix(key, groupPrefix) {
			out[key] = values[0]
		}
	}
	for key, value := range o.Labels {
		out[key] = value
	}
	out[awsv1.LabelInstanceTenancy] = tenancy
	return out
}

// These begin the labels that only machines in a reservation or placement group have, whatever their type could be.
const (
	reservationPrefix = awsv1.Group + "/capacity-reservation-"
	groupPrefix       = awsv1.Group + "/placement-group-"
)

// EFAInterfaces returns the number of EFA interfaces with which a claim's machine of a type is launched.
func EFAInterfaces(nc *awsv1.EC2NodeClass, claim *v1.NodeClaim, it *cloud.InstanceType) int {
	for _, n := range nc.Spec.NetworkInterfaces {
		if n != nil && n.InterfaceType == awsv1.InterfaceTypeEFAOnly {
			return int(quantity(it.Capacity, awsv1.ResourceEFA).Value())
		}
	}
	if len(nc.Spec.NetworkInterfaces) == 0 && !quantity(claim.Spec.Resources.Requests, awsv1.ResourceEFA).IsZero() {
		return int(quantity(it.Capacity, awsv1.ResourceEFA).Value())
	}
	return 0
}

// Resources returns what a machine of a type has, and what is left for pods. EFA interfaces count only if it was
// launched with some (efa).
func Resources(it *cloud.InstanceType, efa int) (capacity, allocatable corev1.ResourceList) {
	capacity, allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	for name, q := range it.Capacity {
		if q.IsZero() || name == awsv1.ResourceEFA && efa == 0 {
			continue
		}
		capacity[name] = q.DeepCopy()
		if room := it.Room(name); room.Sign() > 0 {
			allocatable[name] = room
		}
	}
	return capacity, allocatable
}
