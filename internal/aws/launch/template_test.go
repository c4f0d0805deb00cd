package launch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

// line writes an interface in short: card, device, type, and what only those with addresses have.
func lines(t *Template) []string {
	var out []string
	for _, n := range t.Request().LaunchTemplateData.NetworkInterfaces {
		text := fmt.Sprintf("%d/%d", aws.ToInt32(n.NetworkCardIndex), aws.ToInt32(n.DeviceIndex))
		if n.InterfaceType != nil {
			text += " " + *n.InterfaceType
		}
		if n.AssociatePublicIpAddress != nil {
			text += fmt.Sprint(" public=", *n.AssociatePublicIpAddress)
		}
		if n.Ipv4PrefixCount != nil {
			text += fmt.Sprint(" v4=", *n.Ipv4PrefixCount)
		}
		if n.Ipv6PrefixCount != nil {
			text += fmt.Sprint(" v6=", *n.Ipv6PrefixCount)
		}
		if n.PrimaryIpv6 != nil {
			text += fmt.Sprint(" primary=", *n.PrimaryIpv6, " addresses=", aws.ToInt32(n.Ipv6AddressCount))
		}
		if c := n.ConnectionTrackingSpecification; c != nil {
			text += fmt.Sprint(" tcp=", aws.ToInt32(c.TcpEstablishedTimeout), " udp=", aws.ToInt32(c.UdpTimeout))
		}
		out = append(out, text+" "+strings.Join(n.Groups, ","))
	}
	return out
}

func TestInterfaces(t *testing.T) {
	own := []*awsv1.NetworkInterface{{InterfaceType: "interface"}, nil, {DeviceIndex: 1, InterfaceType: "efa-only"}, {NetworkCardIndex: 1, DeviceIndex: 1, InterfaceType: "interface"}}
	for name, tc := range map[string]struct {
		edit func(*Template)
		want []string
	}{
		"one, about which nothing is said": {func(*Template) {}, []string{"0/0 sg-1,sg-2"}},
		"an empty list is no list":         {func(t *Template) { t.Class.Spec.NetworkInterfaces = []*awsv1.NetworkInterface{} }, []string{"0/0 sg-1,sg-2"}},
		"a public address, and prefixes": {func(t *Template) {
			t.Class.Spec.AssociatePublicIPAddress, t.Class.Spec.IPPrefixCount = aws.Bool(true), aws.Int32(0)
		}, []string{"0/0 public=true v4=0 sg-1,sg-2"}},
		"no public address": {func(t *Template) { t.Class.Spec.AssociatePublicIPAddress = aws.Bool(false) }, []string{"0/0 public=false sg-1,sg-2"}},
		"connection tracking": {func(t *Template) {
			t.Class.Spec.ConnectionTracking = &awsv1.ConnectionTracking{UDPTimeout: aws.Int32(30)}
		}, []string{"0/0 tcp=0 udp=30 sg-1,sg-2"}},
		"connection tracking of nothing": {func(t *Template) { t.Class.Spec.ConnectionTracking = &awsv1.ConnectionTracking{} }, []string{"0/0 sg-1,sg-2"}},
		"EFA, with all that an interface may have": {func(t *Template) {
			t.EFA = 3
			t.Class.Spec.AssociatePublicIPAddress, t.Class.Spec.IPPrefixCount = aws.Bool(false), aws.Int32(2)
			t.Class.Spec.ConnectionTracking = &awsv1.ConnectionTracking{TCPEstablishedTimeout: aws.Int32(60)}
		}, []string{"0/0 efa public=false v4=2 tcp=60 udp=0 sg-1,sg-2", "1/1 efa public=false v4=2 tcp=60 udp=0 sg-1,sg-2", "2/1 efa public=false v4=2 tcp=60 udp=0 sg-1,sg-2"}},
		"EFA in a cluster with IPv6": {func(t *Template) {
			t.EFA, t.IPv6, t.Class.Spec.IPPrefixCount = 1, true, aws.Int32(10)
		}, []string{"0/0 efa v6=10 primary=true addresses=1 sg-1,sg-2"}},
		"the class's own, also where pods ask for EFA": {func(t *Template) {
			t.EFA, t.Class.Spec.NetworkInterfaces = 3, own
			t.Class.Spec.AssociatePublicIPAddress, t.Class.Spec.IPPrefixCount = aws.Bool(false), aws.Int32(1)
			t.Class.Spec.ConnectionTracking = &awsv1.ConnectionTracking{UDPTimeout: aws.Int32(60)}
		}, []string{"0/0 interface public=false v4=1 tcp=0 udp=60 sg-1,sg-2", "0/1 efa-only sg-1,sg-2", "1/1 interface public=false v4=1 tcp=0 udp=60 sg-1,sg-2"}},
		"the class's own in a cluster with IPv6": {func(t *Template) {
			t.IPv6, t.Class.Spec.NetworkInterfaces = true, own
		}, []string{"0/0 interface primary=true addresses=1 sg-1,sg-2", "0/1 efa-only sg-1,sg-2", "1/1 interface primary=true addresses=1 sg-1,sg-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			one := template("ami-1")
			one.Class.Status.SecurityGroups = []awsv1.SecurityGroup{{ID: "sg-2"}, {ID: "sg-1"}}
			tc.edit(one)
			if got := lines(one); !slices.Equal(got, tc.want) {
				t.Errorf("interfaces:\n%q, want\n%q", got, tc.want)
			}
		})
	}
}

// disks writes mappings in short: device, size in GiB, type.
func disks(t *Template) []string {
	var out []string
	for _, b := range t.Request().LaunchTemplateData.BlockDeviceMappings {
		text := aws.ToString(b.DeviceName)
		if e := b.Ebs; e != nil {
			text += fmt.Sprintf(" %d %s", aws.ToInt32(e.VolumeSize), e.VolumeType)
			for what, set := range map[string]*bool{"encrypted": e.Encrypted, "deleted": e.DeleteOnTermination} {
				if set != nil && *set {
					text += " " + what[:1]
				}
			}
			if e.KmsKeyId != nil {
				text += " key=" + *e.KmsKeyId
			}
			if e.Iops != nil || e.Throughput != nil {
				text += fmt.Sprintf(" %d/%d", aws.ToInt32(e.Iops), aws.ToInt32(e.Throughput))
			}
		}
		fields := strings.Fields(text)
		slices.Sort(fields[min(len(fields), 3):])
		out = append(out, strings.Join(fields, " "))
	}
	return out
}

func TestDisks(t *testing.T) {
	size := func(text string) *awsv1.BlockDevice {
		q := resource.MustParse(text)
		return &awsv1.BlockDevice{VolumeSize: &q}
	}
	one := func(b *awsv1.BlockDevice) []*awsv1.BlockDeviceMapping {
		return []*awsv1.BlockDeviceMapping{{DeviceName: aws.String("/dev/x"), EBS: b}}
	}
	for name, tc := range map[string]struct {
		family string
		own    []*awsv1.BlockDeviceMapping
		want   []string
	}{
		"AL2":          {awsv1.AMIFamilyAL2, nil, []string{"/dev/xvda 20 gp3 d e"}},
		"AL2023":       {awsv1.AMIFamilyAL2023, []*awsv1.BlockDeviceMapping{nil}, []string{"/dev/xvda 20 gp3 d e"}},
		"Bottlerocket": {awsv1.AMIFamilyBottlerocket, nil, []string{"/dev/xvda 6 gp3 d e", "/dev/xvdb 20 gp3 d e"}},
		"Windows":      {awsv1.AMIFamilyWindows2019, nil, []string{"/dev/sda1 50 gp3 d e"}},
		"Custom":       {awsv1.AMIFamilyCustom, nil, nil},
		"one's own replace the family's, and nothing is added to them": {awsv1.AMIFamilyBottlerocket, one(size("9Gi")), []string{"/dev/x 9"}},
		"whole GiB":                          {awsv1.AMIFamilyAL2023, one(size("1Gi")), []string{"/dev/x 1"}},
		"G are rounded up":                   {awsv1.AMIFamilyAL2023, one(size("20G")), []string{"/dev/x 19"}},
		"the least G":                        {awsv1.AMIFamilyAL2023, one(size("1G")), []string{"/dev/x 1"}},
		"the most Ti":                        {awsv1.AMIFamilyAL2023, one(size("58Ti")), []string{"/dev/x 59392"}},
		"the most T":                         {awsv1.AMIFamilyAL2023, one(size("64T")), []string{"/dev/x 59605"}},
		"a snapshot has its size":            {awsv1.AMIFamilyAL2023, one(&awsv1.BlockDevice{SnapshotID: aws.String("snap-1")}), []string{"/dev/x 0"}},
		"no operations are no operations":    {awsv1.AMIFamilyAL2023, one(&awsv1.BlockDevice{VolumeType: aws.String("gp3"), IOPS: aws.Int64(0), Throughput: aws.Int64(0)}), []string{"/dev/x 0 gp3"}},
		"operations and throughput":          {awsv1.AMIFamilyAL2023, one(&awsv1.BlockDevice{VolumeType: aws.String("gp3"), IOPS: aws.Int64(4000), Throughput: aws.Int64(250)}), []string{"/dev/x 0 gp3 4000/250"}},
		"encrypted with a key of one's own":  {awsv1.AMIFamilyAL2023, one(&awsv1.BlockDevice{VolumeType: aws.String("gp3"), Encrypted: new(true), KMSKeyID: new("arn:aws:kms:k")}), []string{"/dev/x 0 gp3 e key=arn:aws:kms:k"}},
		"a disk about which nothing is said": {awsv1.AMIFamilyAL2023, one(nil), []string{"/dev/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			it := template("ami-1")
			it.Family, it.Class.Spec.BlockDeviceMappings = tc.family, tc.own
			if got := disks(it); !slices.Equal(got, tc.want) {
				t.Errorf("disks %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMetadataOfAClassThatSaysNothing(t *testing.T) {
	for ipv6, want := range map[bool]string{false: "disabled", true: "enabled"} {
		one := template("ami-1")
		one.IPv6 = ipv6
		m := one.Request().LaunchTemplateData.MetadataOptions
		if m.HttpEndpoint != "disabled" || string(m.HttpProtocolIpv6) != want || aws.ToInt32(m.HttpPutResponseHopLimit) != 2 || m.HttpTokens != "required" || m.InstanceMetadataTags != "disabled" {
			t.Errorf("metadata = %+v", m)
		}
	}
}

// What the controller tags by is not for the user to change.
func TestTags(t *testing.T) {
	nc := &awsv1.EC2NodeClass{}
	nc.Name = "default"
	nc.Spec.Tags = map[string]string{"team": "x", awsv1.TagNodePool: "mine", "Name": "mine"}
	got := Tags("demo", "pool", nc)
	for key, want := range map[string]string{
		"team": "x", "Name": "mine", awsv1.TagNodePool: "pool", awsv1.TagNodeClass: "default", awsv1.TagClusterName: "demo", "kubernetes.io/cluster/demo": "owned",
	} {
		if got[key] != want {
			t.Errorf("tag %s = %q, want %q", key, got[key], want)
		}
	}
	if len(got) != 6 || len(nc.Spec.Tags) != 3 {
		t.Errorf("tags = %v", got)
	}
}

func TestPlacement(t *testing.T) {
	for name, tc := range map[string]struct {
		group     *awsv1.PlacementGroup
		partition int32
		want      string
	}{
		"anywhere":                  {nil, 0, "default  0"},
		"in a group":                {&awsv1.PlacementGroup{ID: "pg-1"}, 0, "default pg-1 0"},
		"in a partition of a group": {&awsv1.PlacementGroup{ID: "pg-1"}, 2, "default pg-1 2"},
	} {
		one := template("ami-1")
		one.Class.Status.PlacementGroup, one.Partition, one.Tenancy = tc.group, tc.partition, "default"
		p := one.Request().LaunchTemplateData.Placement
		if got := fmt.Sprint(p.Tenancy, " ", aws.ToString(p.GroupId), " ", aws.ToInt32(p.PartitionNumber)); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestMarketsOfReservations(t *testing.T) {
	one := template("ami-1")
	if got := one.Request().LaunchTemplateData.InstanceMarketOptions; got != nil {
		t.Errorf("an ordinary launch names market %+v", got)
	}
	one.Market = "capacity-block"
	if got := one.Request().LaunchTemplateData.InstanceMarketOptions; got == nil || got.MarketType != "capacity-block" {
		t.Errorf("market %+v, want capacity-block", got)
	}
}

// Reservations are met by chance only while nobody manages them.
func TestReservation(t *testing.T) {
	for name, tc := range map[string]struct {
		managed bool
		id      string
		want    string
	}{
		"not managed":        {false, "", ""},
		"outside of any":     {true, "", "none "},
		"into one, and only": {true, "cr-1", "capacity-reservations-only cr-1"},
	} {
		one := template("ami-1")
		one.Reservations, one.ReservationID = tc.managed, tc.id
		got := ""
		if s := one.Request().LaunchTemplateData.CapacityReservationSpecification; s != nil {
			got = string(s.CapacityReservationPreference) + " "
			if s.CapacityReservationTarget != nil {
				got += aws.ToString(s.CapacityReservationTarget.CapacityReservationId)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestProcessorOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		options *awsv1.CPUOptions
		want    string // "" for none
	}{
		"a class that says nothing":   {nil, ""},
		"one that says so":            {&awsv1.CPUOptions{}, ""},
		"nested virtualization":       {&awsv1.CPUOptions{NestedVirtualization: aws.String("enabled")}, "enabled"},
		"nested virtualization, none": {&awsv1.CPUOptions{NestedVirtualization: aws.String("disabled")}, "disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &awsv1.EC2NodeClass{}
			c.Spec.CPUOptions = tc.options
			got := (&Template{Class: c}).Request().LaunchTemplateData.CpuOptions
			if (got != nil) != (tc.want != "") || got != nil && string(got.NestedVirtualization) != tc.want {
				t.Errorf("options %+v, want %q", got, tc.want)
			}
		})
	}
}

// Each timeout by itself is sent, and nothing else.
func TestTimeoutsOfTrackedConnections(t *testing.T) {
	for name, tracked := range map[string]awsv1.ConnectionTracking{
		"tcp": {TCPEstablishedTimeout: aws.Int32(60)}, "udp streams": {UDPStreamTimeout: aws.Int32(61)}, "udp": {UDPTimeout: aws.Int32(62)},
	} {
		c := &awsv1.EC2NodeClass{}
		c.Spec.ConnectionTracking = &tracked
		got := (&Template{Class: c}).Request().LaunchTemplateData.NetworkInterfaces[0].ConnectionTrackingSpecification
		if got == nil || got.TcpEstablishedTimeout != tracked.TCPEstablishedTimeout || got.UdpStreamTimeout != tracked.UDPStreamTimeout || got.UdpTimeout != tracked.UDPTimeout {
			t.Errorf("%s: %+v is sent", name, got)
		}
	}
}

// Regions of their own have a metadata service that refuses a request which names the option, whatever it says.
func TestMetadataOfEachRegion(t *testing.T) {
	for region, knows := range map[string]bool{
		"us-east-1": true, "us-gov-west-1": true, "cn-north-1": true, "us-iso-east-1": false, "us-iso-west-1": false,
		"us-isob-east-1": false, "us-isob-west-1": false, "us-isof-south-1": false, "us-isof-east-1": false,
	} {
		c := &awsv1.EC2NodeClass{}
		c.Spec.MetadataOptions = &awsv1.MetadataOptions{
			HTTPEndpoint: aws.String("enabled"), HTTPProtocolIPv6: aws.String("enabled"), HTTPPutResponseHopLimit: aws.Int64(3), HTTPTokens: aws.String("optional"),
		}
		m := (&Template{Class: c, Region: region}).Request().LaunchTemplateData.MetadataOptions
		if (m.HttpProtocolIpv6 == "enabled") != knows || m.HttpEndpoint != "enabled" || aws.ToInt32(m.HttpPutResponseHopLimit) != 3 || m.HttpTokens != "optional" {
			t.Errorf("%s: %+v", region, m)
		}
	}
}
