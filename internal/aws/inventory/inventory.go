// Package inventory holds what EC2 says it sells in the region: instance types, and the zones that offer each.
//
// A failed or empty answer keeps what was known. A value of Goods never changes; a refresh makes a new one.
package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/ec2api"
)

// api is the part of EC2 that the inventory needs.
type api interface {
	DescribeInstanceTypes(context.Context, *ec2.DescribeInstanceTypesInput,
		...func(*ec2.Options)) (*ec2.DescribeInstanceTypesOutput, error)
	DescribeInstanceTypeOfferings(context.Context, *ec2.DescribeInstanceTypeOfferingsInput,
		...func(*ec2.Options)) (*ec2.DescribeInstanceTypeOfferingsOutput, error)
}

// Goods is one state of the inventory.
type Goods struct {
	Types   []*awsdata.InstanceType    // sorted by name
	Offered map[string]map[string]bool // type → zones
	Zones   []string                   // every zone of the region that offers anything, sorted
}

// An Inventory is what EC2 sells. It may be used concurrently.
type Inventory struct {
	api api
	now atomic.Pointer[Goods]
}

// New returns an Inventory that knows nothing yet.
func New(api api) *Inventory { return &Inventory{api: api} }

// Goods returns what is known, nil before the first refresh. While nothing changes it is the same pointer.
func (v *Inventory) Goods() *Goods { return v.now.Load() }

// Types returns the known types, sorted by name.
func (v *Inventory) Types() []*awsdata.InstanceType {
	if goods := v.Goods(); goods != nil {
		return goods.Types
	}
	return nil
}

// Zones returns the zones that offer anything, sorted.
func (v *Inventory) Zones() []string {
	if goods := v.Goods(); goods != nil {
		return goods.Zones
	}
	return nil
}

// Type returns what is known of a type, nil for nothing.
func (v *Inventory) Type(name string) *awsdata.InstanceType {
	types := v.Types()
	i, found := slices.BinarySearchFunc(types, name,
		func(t *awsdata.InstanceType, name string) int { return strings.Compare(t.Name, name) })
	if !found {
		return nil
	}
	return types[i]
}

// Check reports by a dry run whether EC2 can be reached.
func (v *Inventory) Check(ctx context.Context) error {
	_, err := v.api.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{DryRun: aws.Bool(true)})
	if err == nil || ec2api.DryRunPassed(err) {
		return nil
	}
	return fmt.Errorf("EC2 cannot be reached: %w", err)
}

var errEmpty = errors.New("EC2 returned no instance types or no offerings; the previous ones are kept")

// Refresh asks EC2 for everything. It reports whether anything changed.
func (v *Inventory) Refresh(ctx context.Context) (bool, error) {
	types, err := v.types(ctx)
	if err != nil {
		return false, fmt.Errorf("describe instance types: %w", err)
	}
	offered, err := v.offerings(ctx)
	if err != nil {
		return false, fmt.Errorf("describe instance type offerings: %w", err)
	}
	if len(types) == 0 || len(offered) == 0 {
		return false, errEmpty
	}
	next := &Goods{Types: types, Offered: offered, Zones: zonesOf(offered)}
	if old := v.now.Load(); old != nil && reflect.DeepEqual(old, next) {
		return false, nil
	}
	v.now.Store(next)
	return true, nil
}

func zonesOf(offered map[string]map[string]bool) []string {
	zones := map[string]bool{}
	for _, of := range offered {
		maps.Copy(zones, of)
	}
	return slices.Sorted(maps.Keys(zones))
}

// types asks EC2 for all types that Karpenter can launch, sorted by name.
func (v *Inventory) types(ctx context.Context) ([]*awsdata.InstanceType, error) {
	var out []*awsdata.InstanceType
	pages := ec2.NewDescribeInstanceTypesPaginator(v.api, &ec2.DescribeInstanceTypesInput{
		Filters: []ec2types.Filter{
			ec2api.Filter("supported-virtualization-type", "hvm"),
			ec2api.Filter("processor-info.supported-architecture", "x86_64", "arm64"),
		},
		MaxResults: aws.Int32(100),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, info := range page.InstanceTypes {
			out = append(out, read(&info))
		}
	}
	slices.SortFunc(out, func(a, b *awsdata.InstanceType) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// offerings asks EC2 for the zones that offer each type.
func (v *Inventory) offerings(ctx context.Context) (map[string]map[string]bool, error) {
	out := map[string]map[string]bool{}
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(v.api, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: ec2types.LocationTypeAvailabilityZone, MaxResults: aws.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, o := range page.InstanceTypeOfferings {
			name := string(o.InstanceType)
			if out[name] == nil {
				out[name] = map[string]bool{}
			}
			out[name][aws.ToString(o.Location)] = true
		}
	}
	return out, nil
}

// read copies the fields that this project uses of the SDK's description of a type.
func read(info *ec2types.InstanceTypeInfo) *awsdata.InstanceType {
	t := &awsdata.InstanceType{
		Name: string(info.InstanceType), BareMetal: aws.ToBool(info.BareMetal), Hypervisor: string(info.Hypervisor),
		UsageClasses: texts(info.SupportedUsageClasses), VirtualizationTypes: texts(info.SupportedVirtualizationTypes),
		NitroEnclaves: string(info.NitroEnclavesSupport),
	}
	if p := info.ProcessorInfo; p != nil {
		t.Processor.Manufacturer = aws.ToString(p.Manufacturer)
		t.Processor.Architectures, t.Processor.Features = texts(p.SupportedArchitectures), texts(p.SupportedFeatures)
		t.Processor.ClockGHz = aws.ToFloat64(p.SustainedClockSpeedInGhz)
	}
	if info.VCpuInfo != nil {
		t.VCPU.Default = int(aws.ToInt32(info.VCpuInfo.DefaultVCpus))
	}
	if info.MemoryInfo != nil {
		t.Memory.MiB = aws.ToInt64(info.MemoryInfo.SizeInMiB)
	}
	if info.PlacementGroupInfo != nil {
		t.Placement.Strategies = texts(info.PlacementGroupInfo.SupportedStrategies)
	}
	readStorage(t, info)
	readNetwork(t, info.NetworkInfo)
	readDevices(t, info)
	return t
}

// readStorage copies the fields about local disks and EBS.
func readStorage(t *awsdata.InstanceType, info *ec2types.InstanceTypeInfo) {
	if s := info.InstanceStorageInfo; s != nil {
		t.Storage = &awsdata.Storage{TotalGB: aws.ToInt64(s.TotalSizeInGB), NVMe: string(s.NvmeSupport)}
		for _, d := range s.Disks {
			t.Storage.Disks = append(t.Storage.Disks, struct{ Count int }{int(aws.ToInt32(d.Count))})
		}
	}
	if e := info.EbsInfo; e != nil {
		t.EBS.Optimized = string(e.EbsOptimizedSupport)
		t.EBS.AttachmentLimit, t.EBS.MaxAttachments = string(e.AttachmentLimitType), int(aws.ToInt32(e.MaximumEbsAttachments))
		if e.EbsOptimizedInfo != nil {
			t.EBS.OptimizedInfo.MaxMbps = int64(aws.ToInt32(e.EbsOptimizedInfo.MaximumBandwidthInMbps))
		}
	}
}

// readNetwork copies the fields about network interfaces.
func readNetwork(t *awsdata.InstanceType, n *ec2types.NetworkInfo) {
	if n == nil {
		return
	}
	t.Network.Performance, t.Network.ENA = aws.ToString(n.NetworkPerformance), string(n.EnaSupport)
	t.Network.EncryptionInTransit = aws.ToBool(n.EncryptionInTransitSupported)
	t.Network.DefaultCard = int(aws.ToInt32(n.DefaultNetworkCardIndex))
	t.Network.MaxInterfaces = int(aws.ToInt32(n.MaximumNetworkInterfaces))
	t.Network.IPv4PerInterface = int(aws.ToInt32(n.Ipv4AddressesPerInterface))
	if n.EfaInfo != nil {
		t.Network.EFA.Max = int(aws.ToInt32(n.EfaInfo.MaximumEfaInterfaces))
	}
	for _, c := range n.NetworkCards {
		t.Network.Cards = append(t.Network.Cards, awsdata.Card{
			Index: int(aws.ToInt32(c.NetworkCardIndex)), MaxInterfaces: int(aws.ToInt32(c.MaximumNetworkInterfaces)),
			BaselineGbps: aws.ToFloat64(c.BaselineBandwidthInGbps),
		})
	}
}

// readDevices copies the fields about GPUs and accelerators. Of FPGAs and media accelerators only their presence
// matters.
func readDevices(t *awsdata.InstanceType, info *ec2types.InstanceTypeInfo) {
	if info.GpuInfo != nil {
		t.GPU = &awsdata.GPUInfo{}
		for _, g := range info.GpuInfo.Gpus {
			gpu := awsdata.GPU{
				Name: aws.ToString(g.Name), Manufacturer: aws.ToString(g.Manufacturer),
				Count: int(aws.ToInt32(g.Count)), Logical: int(aws.ToInt32(g.LogicalGpuCount)),
			}
			if g.MemoryInfo != nil {
				gpu.Memory.MiB = int64(aws.ToInt32(g.MemoryInfo.SizeInMiB))
			}
			t.GPU.GPUs = append(t.GPU.GPUs, gpu)
		}
	}
	if info.NeuronInfo != nil {
		t.Neuron = &awsdata.Neuron{}
		for _, d := range info.NeuronInfo.NeuronDevices {
			device := awsdata.NeuronDevice{Name: aws.ToString(d.Name), Count: int(aws.ToInt32(d.Count))}
			if d.CoreInfo != nil {
				device.Core.Count = int(aws.ToInt32(d.CoreInfo.Count))
			}
			t.Neuron.Devices = append(t.Neuron.Devices, device)
		}
	}
	if info.InferenceAcceleratorInfo != nil {
		t.Inference = &awsdata.Devices{}
		for _, a := range info.InferenceAcceleratorInfo.Accelerators {
			t.Inference.Accelerators = append(t.Inference.Accelerators, awsdata.Accelerator{
				Name: aws.ToString(a.Name), Manufacturer: aws.ToString(a.Manufacturer), Count: int(aws.ToInt32(a.Count)),
			})
		}
	}
	if info.FpgaInfo != nil {
		t.FPGA = &struct{}{}
	}
	if info.MediaAcceleratorInfo != nil {
		t.Media = &struct{}{}
	}
}

// texts returns values of an SDK type as trimmed texts, nil for none.
func texts[T ~string](values []T) []string {
	if len(values) == 0 {
		return nil
	}
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strings.TrimSpace(string(v))
	}
	return out
}
