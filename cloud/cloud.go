// Package cloud is the contract between Karpenter and a cloud: which machines can be bought, at what price, and how one is launched,
// looked up and terminated. Everything above this package is the same for every cloud.
//
// The laws of the contract are in the comments of Provider. Package cloudtest has a test for each; every provider runs these tests.
package cloud

import (
	"context"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

// A Provider starts and stops machines in one cloud. All methods may be called concurrently, honour their context, and
// return the typed errors of this package (possibly wrapped) where one fits.
type Provider interface {
	// Name is a short constant such as "aws".
	Name() string

	// NodeClassKinds lists the kinds of node class that this provider serves. Objects whose nodeClassRef names another
	// kind belong to other providers and are never passed in.
	NodeClassKinds() []schema.GroupVersionKind

	// Catalog returns what can be launched for pool. The answer is shared: it must not be changed. While nothing changed,
	// the same *Catalog pointer is returned, so that a pointer comparison reports whether there is news.
	// It returns ClassNotReadyError while the pool's node class is missing or not ready.
	Catalog(ctx context.Context, pool *v1.NodePool) (*Catalog, error)

	// Launch starts one machine that satisfies the claim and returns what was started. Launch is idempotent by
	// claim UID and launch token: a repeated call for the same claim, also after a crash, returns the machine that
	// the earlier call started. When it returns an error no machine of this claim is left running, unless the error
	// says that the outcome is unknown (context expiry, lost answer): then a repeated call adopts the
	// machine or List shows it.
	Launch(ctx context.Context, claim *v1.NodeClaim) (Machine, error)

	// Terminate begins to stop a machine. It is idempotent, and returns ErrNotFound once the machine is gone for good.
	Terminate(ctx context.Context, providerID string) error

	// Get returns one machine, or ErrNotFound when it is gone. A machine that is shutting down has Deleting set.
	Get(ctx context.Context, providerID string) (Machine, error)

	// List returns every machine in this cluster that Karpenter launched and that is not gone. One unreadable
	// machine never hides the others.
	List(ctx context.Context) ([]Machine, error)

	// SetLatch marks a machine that must not be stopped although it has no claim, or removes the mark. Get and List return it as
	// Latched, to other processes too. It is idempotent, and returns ErrNotFound when the machine is gone.
	SetLatch(ctx context.Context, providerID string, latched bool) error

	// Inherited returns every machine in this cluster that a Karpenter without NodeClaims launched and that is not gone, even if it was
	// adopted. It has Provisioner set. Until it is adopted it has no PoolName, and List does not return it.
	Inherited(ctx context.Context) ([]Machine, error)

	// Adopt assigns a machine of Inherited to a claim: from then on List returns it, with the names of the claim and of its pool. It is
	// idempotent, and returns ErrNotFound when the machine is gone, was not inherited, or belongs to another pool.
	Adopt(ctx context.Context, claim *v1.NodeClaim, providerID string) (Machine, error)

	// Drifted returns why the claim's machine differs from what its node class asks for now, "" if it does not.
	Drifted(ctx context.Context, claim *v1.NodeClaim) (DriftReason, error)

	// RepairPolicies lists the node conditions that mean a broken machine, and how long each may last.
	RepairPolicies() []RepairPolicy
}

// A CommitmentSource is a provider that can list the commitments (Reserved Instances, Savings Plans) of its account. It is optional.
type CommitmentSource interface {
	// Commitments returns the present and future commitments that machines of this provider may use, each with the cloud's id and
	// without a share. With an error, commitments that could not be read are missing, and those that are returned are valid.
	Commitments(ctx context.Context) ([]v1alpha1.CommitmentDiscountSpec, error)
}

// Kinds is the part of a provider that lists its kinds of node class.
type Kinds interface {
	NodeClassKinds() []schema.GroupVersionKind
}

// Serves reports whether a reference names a node class of the provider.
func Serves(p Kinds, ref *v1.NodeClassReference) bool {
	return ref != nil && slices.ContainsFunc(p.NodeClassKinds(),
		func(kind schema.GroupVersionKind) bool { return kind.GroupKind() == ref.GroupKind() })
}

// ServesGroup reports whether a reference names the group of a node class of the provider, even if the kind does not exist. So a wrong
// kind can be reported to the user.
func ServesGroup(p Kinds, ref *v1.NodeClassReference) bool {
	return ref != nil && slices.ContainsFunc(p.NodeClassKinds(),
		func(kind schema.GroupVersionKind) bool { return kind.Group == ref.Group })
}

// A Catalog is every instance type that a pool could get, before the pool's own requirements are applied.
type Catalog struct {
	Types []*InstanceType // sorted by name
}

// Type returns the instance type of a name, nil if there is none or the catalogue is nil.
func (c *Catalog) Type(name string) *InstanceType {
	if c == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(c.Types, name, func(it *InstanceType, name string) int { return strings.Compare(it.Name, name) })
	if !found {
		return nil
	}
	return c.Types[i]
}

// Price returns the price of a machine with these labels, and whether it is known.
func (c *Catalog) Price(labels map[string]string) (price NanoUSD, known bool) {
	if o := c.Offering(labels); o != nil {
		return o.Price, true
	}
	return 0, false
}

// Offering returns the offering by which a machine with these labels was bought (type, zone and capacity type), nil if there is none.
func (c *Catalog) Offering(labels map[string]string) *Offering {
	it := c.Type(labels[corev1.LabelInstanceTypeStable])
	if it == nil {
		return nil
	}
	for i := range it.Offerings {
		if o := &it.Offerings[i]; o.Zone() == labels[corev1.LabelTopologyZone] && o.CapacityType() == labels[v1.CapacityTypeLabelKey] {
			return o
		}
	}
	return nil
}

// OnDemand returns the on-demand price of a machine with these labels, or other if that is not known.
func (c *Catalog) OnDemand(labels map[string]string, other NanoUSD) NanoUSD {
	labels = maps.Clone(labels)
	labels[v1.CapacityTypeLabelKey] = v1.CapacityTypeOnDemand
	if price, known := c.Price(labels); known {
		return price
	}
	return other
}

// An InstanceType is one kind of machine.
type InstanceType struct {
	Name string
	// Labels maps a label key to the values that a node of this type may have. An empty list means that nodes of
	// this type never have the label. Labels that depend on the offering, such as zone and capacity type, have the values of all
	// offerings here.
	Labels map[string][]string
	// Capacity is what the node will report; Overhead is what the system reserves. Allocatable = Capacity − Overhead; of memory, huge
	// pages are subtracted too.
	Capacity corev1.ResourceList
	Overhead Overhead
	// VolumeLimits is the number of volumes that may be attached, by CSI driver. A missing driver is unlimited.
	VolumeLimits map[string]int
	// Devices is what drivers of dynamic resource allocation will publish on such a machine, driver by driver.
	Devices []DeviceSlice
	// Exotic types (bare metal, accelerators) are sent at launch only if no ordinary type would do.
	Exotic    bool
	Overlaid  bool // a NodeOverlay changed its capacity
	Offerings []Offering
}

// A DeviceSlice is the devices that one driver will publish on a machine, in its order.
type DeviceSlice struct {
	Driver   string
	Devices  []resourcev1.Device
	Counters []resourcev1.CounterSet
	// Later names attributes that the driver publishes too, whose values are not known before the machine exists.
	Later []string
}

// CapacityAs returns the capacity of a machine of the type that is bought by an offering. The caller owns the result.
func (it *InstanceType) CapacityAs(o *Offering) corev1.ResourceList {
	out := it.Capacity.DeepCopy()
	maps.Copy(out, o.Capacity)
	return out
}

// Allocatable returns what such a machine has for pods. The caller owns the result.
func (it *InstanceType) Allocatable(o *Offering) corev1.ResourceList {
	capacity := it.Capacity
	if len(o.Capacity) > 0 {
		capacity = it.CapacityAs(o)
	}
	out := make(corev1.ResourceList, len(capacity))
	for name := range capacity {
		out[name] = it.left(capacity, name)
	}
	return out
}

// Room returns what a machine of the type has of one resource for pods, without regard to offerings with a capacity of their own.
func (it *InstanceType) Room(name corev1.ResourceName) resource.Quantity {
	return it.left(it.Capacity, name)
}

// left returns what a machine with a capacity has of a resource for pods: without the overhead and, of memory, without huge pages,
// which pods do not get by requesting memory. It is at least 0.
func (it *InstanceType) left(capacity corev1.ResourceList, name corev1.ResourceName) resource.Quantity {
	left := capacity[name].DeepCopy()
	for _, kept := range []corev1.ResourceList{it.Overhead.KubeReserved, it.Overhead.SystemReserved, it.Overhead.EvictionThreshold} {
		if q, ok := kept[name]; ok {
			left.Sub(q)
		}
	}
	if name == corev1.ResourceMemory {
		for other, q := range capacity {
			if strings.HasPrefix(string(other), corev1.ResourceHugePagesPrefix) {
				left.Sub(q)
			}
		}
	}
	if left.Sign() < 0 {
		return resource.Quantity{}
	}
	return left
}

// Overhead is the part of a machine's capacity that the system reserves.
type Overhead struct {
	KubeReserved, SystemReserved, EvictionThreshold corev1.ResourceList
}

// NanoUSD is a price per hour in billionths of a dollar. Integers make plans equal on every processor.
type NanoUSD int64

// Dollars returns the price as a number for people.
func (p NanoUSD) Dollars() float64 { return float64(p) / 1e9 }

// FromDollars rounds a price in dollars to the nearest NanoUSD.
func FromDollars(d float64) NanoUSD { return NanoUSD(d*1e9 + 0.5) }

// An Offering is one way to buy an instance type.
type Offering struct {
	// Labels are the node labels that this offering decides: zone, zone id, capacity type, reservation id …
	Labels map[string]string
	Price  NanoUSD
	// Available says that it can be bought as far as is known: the cloud is not out of stock.
	Available bool
	// NeedsPrice says that it is not Available only because its price is not known.
	NeedsPrice bool
	Overlaid   bool // a NodeOverlay decided the price
	// Hazard is how many interruptions an hour are expected of such a machine, in billionths; 0 means none, or not known.
	Hazard int64 `json:",omitempty"`
	// Rests says that machines of it were interrupted or out of stock a short while ago, so nothing is moved to it.
	Rests bool `json:",omitempty"`
	// Reservation names the capacity reservation of a machine that is bought by it, and Reserved is how many machines are left in that.
	// Offerings with the same Reservation share these. Both are used only for capacity type "reserved"; an offering of that type
	// without a name is a reservation of its own.
	Reservation string
	Reserved    int
	// Full says that it is not Available only because all machines of its reservation are in use.
	Full bool `json:",omitempty"`
	// Capacity overrides entries of the type's capacity for machines bought this way; nil for most.
	Capacity corev1.ResourceList
}

// Risk returns what interruptions of such a machine are expected to cost in an hour if each interruption costs so much. Decisions add
// it to the price; prices that are shown do not include it. A product that is too large is capped at a quarter of the largest int64.
func (o *Offering) Risk(each NanoUSD) NanoUSD {
	if o.Hazard <= 0 || each <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(o.Hazard), uint64(each))
	if hi >= 1e9 {
		return math.MaxInt64 / 4
	}
	risk, _ := bits.Div64(hi, lo, 1e9)
	return NanoUSD(min(risk, math.MaxInt64/4))
}

// Zone returns the offering's zone.
func (o *Offering) Zone() string { return o.Labels[corev1.LabelTopologyZone] }

// CapacityType returns "spot", "on-demand" or "reserved".
func (o *Offering) CapacityType() string { return o.Labels[v1.CapacityTypeLabelKey] }

// A Machine is what a launch produced.
type Machine struct {
	ProviderID   string
	ClaimName    string // the NodeClaim it was launched for, from the machine's tags
	PoolName     string
	Provisioner  string // the Provisioner that it was launched for, "" for most; see Inherited
	InstanceType string
	ImageID      string
	Zone         string
	CapacityType string
	Labels       map[string]string // every label that the choice of type and offering decides
	Annotations  map[string]string
	Capacity     corev1.ResourceList
	Allocatable  corev1.ResourceList
	Created      time.Time
	Latched      bool // see SetLatch
	Awaited      bool // it may belong to a launch that is not answered yet, so it is not known which claim it is for
	Deleting     bool // shutting down; it is gone once Get returns ErrNotFound
}

// DriftReason is a short CamelCase word such as "AMIDrift".
type DriftReason string
