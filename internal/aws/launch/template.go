// Package launch writes launch templates and keeps them while they are used.
//
// The content of a launch template is a pure function of a Template (template.go). Its name is a hash of the content, so
// equal templates are one, and a controller that restarts finds its templates again. Keeper deletes a template that was
// not used for a while (keeper.go), because instances do not need it once they run.
package launch

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
)

// A Template is the content of a launch template.
type Template struct {
	Class  *awsv1.EC2NodeClass // its other fields are copied unchanged; it is never changed
	Family string
	Region string

	ImageID  string
	UserData string            // not encoded
	Tags     map[string]string // of everything that is launched with it
	IPv6     bool              // the cluster's pods have IPv6 addresses

	CapacityType string
	Tenancy      string
	Partition    int32 // of the class's placement group; 0 leaves it to EC2
	EFA          int   // EFA interfaces that the claim asks for
	Enclave      bool  // the class or the claim asks for Nitro Enclaves
	// ReservationID is the reservation to launch into. Reservations reports whether reservations are managed at all; then
	// other launches stay out of them.
	ReservationID string
	Reservations  bool
	Market        ec2types.MarketType // of capacity blocks and interruptible reservations; "" for all other launches
}

// Request returns the call that makes the template.
func (t *Template) Request() *ec2.CreateLaunchTemplateInput {
	in := t.unnamed()
	in.LaunchTemplateName = aws.String(t.Name())
	return in
}

// Name returns a name that is a hash of the content.
func (t *Template) Name() string {
	text, err := json.Marshal(t.unnamed())
	if err != nil {
		panic(fmt.Sprintf("launch template cannot be written as JSON: %v", err)) // plain data; cannot happen
	}
	// A template of that name that exists is used: a second one of this name cannot be made.
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%s/%x", awsv1.Group, sum[:16])
}

// unnamed returns the call without the name, which is derived from it.
func (t *Template) unnamed() *ec2.CreateLaunchTemplateInput {
	return &ec2.CreateLaunchTemplateInput{
		LaunchTemplateData: t.data(),
		TagSpecifications:  []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeLaunchTemplate, Tags: ec2api.Tags(t.Tags)}},
	}
}

// data returns the content in the form of the call.
func (t *Template) data() *ec2types.RequestLaunchTemplateData {
	spec := &t.Class.Spec
	data := &ec2types.RequestLaunchTemplateData{
		ImageId:  aws.String(t.ImageID),
		UserData: aws.String(base64.StdEncoding.EncodeToString([]byte(t.UserData))),
		IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{
			Name: aws.String(t.Class.Status.InstanceProfile)},
		Monitoring:        &ec2types.LaunchTemplatesMonitoringRequest{Enabled: aws.Bool(aws.ToBool(spec.DetailedMonitoring))},
		MetadataOptions:   t.metadata(),
		NetworkInterfaces: t.interfaces(),
		Placement:         t.placement(),
		EnclaveOptions:    &ec2types.LaunchTemplateEnclaveOptionsRequest{Enabled: aws.Bool(t.Enclave)},
		TagSpecifications: t.tags(),
	}
	for _, b := range blockDevices(spec.BlockDeviceMappings, t.Family) {
		data.BlockDeviceMappings = append(data.BlockDeviceMappings, blockDevice(b))
	}
	if cpu := spec.CPUOptions; cpu != nil && cpu.NestedVirtualization != nil {
		data.CpuOptions = &ec2types.LaunchTemplateCpuOptionsRequest{
			NestedVirtualization: ec2types.NestedVirtualizationSpecification(*cpu.NestedVirtualization)}
	}
	if t.Reservations {
		data.CapacityReservationSpecification = t.reservation()
	}
	if t.Market != "" {
		data.InstanceMarketOptions = &ec2types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: t.Market}
	}
	return data
}

// placement returns tenancy, placement group and partition.
func (t *Template) placement() *ec2types.LaunchTemplatePlacementRequest {
	out := &ec2types.LaunchTemplatePlacementRequest{Tenancy: ec2types.Tenancy(t.Tenancy)}
	if g := t.Class.Status.PlacementGroup; g != nil {
		out.GroupId = aws.String(g.ID)
	}
	if t.Partition > 0 {
		out.PartitionNumber = aws.Int32(t.Partition)
	}
	return out
}

// reservation targets the reservation to launch into, or keeps machines out of all.
func (t *Template) reservation() *ec2types.LaunchTemplateCapacityReservationSpecificationRequest {
	if t.ReservationID == "" {
		return &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: ec2types.CapacityReservationPreferenceNone,
		}
	}
	return &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
		CapacityReservationPreference: ec2types.CapacityReservationPreferenceCapacityReservationsOnly,
		CapacityReservationTarget:     &ec2types.CapacityReservationTarget{CapacityReservationId: aws.String(t.ReservationID)},
	}
}

// tags returns the tags of what the template itself launches. The tags of instances and volumes are in the
// CreateFleet call.
func (t *Template) tags() []ec2types.LaunchTemplateTagSpecificationRequest {
	resources := []ec2types.ResourceType{ec2types.ResourceTypeNetworkInterface}
	if t.CapacityType == v1.CapacityTypeSpot {
		resources = append(resources, ec2types.ResourceTypeSpotInstancesRequest)
	}
	out := make([]ec2types.LaunchTemplateTagSpecificationRequest, len(resources))
	for i, r := range resources {
		out[i] = ec2types.LaunchTemplateTagSpecificationRequest{ResourceType: r, Tags: ec2api.Tags(t.Tags)}
	}
	return out
}

// noMetadataIPv6 are the regions whose metadata service knows no IPv6 option.
var noMetadataIPv6 = []string{"us-iso-east-1", "us-iso-west-1", "us-isob-east-1", "us-isob-west-1", "us-isof-south-1", "us-isof-east-1"}

// metadata returns the options of the metadata service.
func (t *Template) metadata() *ec2types.LaunchTemplateInstanceMetadataOptionsRequest {
	m := t.Class.Spec.MetadataOptions
	if m == nil {
		m = defaultMetadata(t.IPv6)
	}
	out := &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{
		HttpEndpoint: ec2types.LaunchTemplateInstanceMetadataEndpointState(aws.ToString(m.HTTPEndpoint)),
		HttpTokens:   ec2types.LaunchTemplateHttpTokensState(aws.ToString(m.HTTPTokens)),
		// Our tag keys contain slashes, which the metadata service refuses.
		InstanceMetadataTags: ec2types.LaunchTemplateInstanceMetadataTagsStateDisabled,
	}
	if m.HTTPPutResponseHopLimit != nil {
		out.HttpPutResponseHopLimit = aws.Int32(int32(*m.HTTPPutResponseHopLimit))
	}
	if !slices.Contains(noMetadataIPv6, t.Region) {
		out.HttpProtocolIpv6 = ec2types.LaunchTemplateInstanceMetadataProtocolIpv6(aws.ToString(m.HTTPProtocolIPv6))
	}
	return out
}

// defaultMetadata returns the options of the metadata service for a class that sets none: it is switched off.
func defaultMetadata(ipv6 bool) *awsv1.MetadataOptions {
	protocol := "disabled"
	if ipv6 {
		protocol = "enabled"
	}
	return &awsv1.MetadataOptions{
		HTTPEndpoint: aws.String("disabled"), HTTPProtocolIPv6: &protocol,
		HTTPPutResponseHopLimit: aws.Int64(2), HTTPTokens: aws.String("required"),
	}
}

// interfaces returns the network interfaces: those of the class, or one for each EFA interface, or one.
func (t *Template) interfaces() []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
	configured := slices.DeleteFunc(slices.Clone(t.Class.Spec.NetworkInterfaces), func(n *awsv1.NetworkInterface) bool { return n == nil })
	if len(configured) > 0 {
		out := make([]ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest, len(configured))
		for i, n := range configured {
			out[i] = t.nic(n.DeviceIndex, n.InterfaceType != awsv1.InterfaceTypeEFAOnly)
			out[i].NetworkCardIndex = aws.Int32(n.NetworkCardIndex)
			out[i].InterfaceType = aws.String(string(n.InterfaceType))
		}
		return out
	}
	if t.EFA == 0 {
		return []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{t.nic(0, true)}
	}
	out := make([]ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest, t.EFA)
	for i := range out {
		out[i] = t.nic(int32(min(i, 1)), true)
		out[i].NetworkCardIndex = aws.Int32(int32(i))
		out[i].InterfaceType = aws.String("efa")
	}
	return out
}

// nic returns one interface. Interfaces with addresses (addressed) carry pods' traffic; others are only for remote
// memory access.
func (t *Template) nic(device int32, addressed bool) ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
	spec := &t.Class.Spec
	out := ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{DeviceIndex: aws.Int32(device)}
	for _, g := range t.Class.Status.SecurityGroups {
		out.Groups = append(out.Groups, g.ID)
	}
	slices.Sort(out.Groups)
	if !addressed {
		return out
	}
	out.AssociatePublicIpAddress = spec.AssociatePublicIPAddress
	if t.IPv6 {
		out.Ipv6PrefixCount = spec.IPPrefixCount
		out.PrimaryIpv6 = aws.Bool(true)
		out.Ipv6AddressCount = aws.Int32(1)
	} else {
		out.Ipv4PrefixCount = spec.IPPrefixCount
	}
	if c := spec.ConnectionTracking; c != nil && (c.TCPEstablishedTimeout != nil || c.UDPStreamTimeout != nil || c.UDPTimeout != nil) {
		out.ConnectionTrackingSpecification = &ec2types.ConnectionTrackingSpecificationRequest{
			TcpEstablishedTimeout: c.TCPEstablishedTimeout, UdpStreamTimeout: c.UDPStreamTimeout, UdpTimeout: c.UDPTimeout,
		}
	}
	return out
}

// blockDevices returns the class's own mappings, or the family's if the class has none. They are never mixed.
func blockDevices(own []*awsv1.BlockDeviceMapping, family string) []*awsv1.BlockDeviceMapping {
	if own = slices.DeleteFunc(slices.Clone(own), func(b *awsv1.BlockDeviceMapping) bool { return b == nil }); len(own) > 0 {
		return own
	}
	disk := func(device, size string) *awsv1.BlockDeviceMapping {
		q := resource.MustParse(size)
		return &awsv1.BlockDeviceMapping{DeviceName: &device, EBS: &awsv1.BlockDevice{
			VolumeSize: &q, VolumeType: aws.String("gp3"), Encrypted: aws.Bool(true), DeleteOnTermination: aws.Bool(true),
		}}
	}
	switch {
	case family == awsv1.AMIFamilyCustom:
		return nil
	case family == awsv1.AMIFamilyBottlerocket:
		return []*awsv1.BlockDeviceMapping{disk("/dev/xvda", "6Gi"), disk("/dev/xvdb", "20Gi")}
	case strings.HasPrefix(family, "Windows"):
		return []*awsv1.BlockDeviceMapping{disk("/dev/sda1", "50Gi")}
	}
	return []*awsv1.BlockDeviceMapping{disk("/dev/xvda", "20Gi")}
}

// blockDevice returns a mapping in the form of the call.
func blockDevice(b *awsv1.BlockDeviceMapping) ec2types.LaunchTemplateBlockDeviceMappingRequest {
	out := ec2types.LaunchTemplateBlockDeviceMappingRequest{DeviceName: b.DeviceName}
	if b.EBS == nil {
		return out
	}
	out.Ebs = &ec2types.LaunchTemplateEbsBlockDeviceRequest{
		DeleteOnTermination: b.EBS.DeleteOnTermination, Encrypted: b.EBS.Encrypted, KmsKeyId: b.EBS.KMSKeyID,
		SnapshotId: b.EBS.SnapshotID, VolumeInitializationRate: b.EBS.VolumeInitializationRate,
		VolumeType: ec2types.VolumeType(aws.ToString(b.EBS.VolumeType)),
		Iops:       positive(b.EBS.IOPS), Throughput: positive(b.EBS.Throughput),
	}
	if b.EBS.VolumeSize != nil {
		out.Ebs.VolumeSize = aws.Int32(int32(math.Ceil(float64(b.EBS.VolumeSize.Value()) / (1 << 30))))
	}
	return out
}

// positive returns nil for a number that is not set or 0.
func positive(n *int64) *int32 {
	if n == nil || *n == 0 {
		return nil
	}
	return aws.Int32(int32(*n))
}

// Tags returns the tags of everything that Karpenter launches. Karpenter's keys override those of the class.
func Tags(clusterName, nodePool string, nc *awsv1.EC2NodeClass) map[string]string {
	out := make(map[string]string, len(nc.Spec.Tags)+4)
	for key, value := range nc.Spec.Tags {
		out[key] = value
	}
	out[awsv1.TagClusterPrefix+clusterName] = awsv1.TagClusterOwned
	out[awsv1.TagClusterName] = clusterName
	out[awsv1.TagNodePool] = nodePool
	out[awsv1.TagNodeClass] = nc.Name
	return out
}
