package class

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/core/drift"
)

func sampleClass() *awsv1.EC2NodeClass {
	c := &awsv1.EC2NodeClass{}
	s := &c.Spec
	s.Role = "role-1"
	s.Tags = map[string]string{"a": "1", "b": "2"}
	s.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}}
	s.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{ID: "subnet-1"}}
	s.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{ID: "sg-1"}}
	s.UserData = new("hello")
	s.Context = new("c")
	s.DetailedMonitoring = new(false)
	s.AssociatePublicIPAddress = new(false)
	s.MetadataOptions = &awsv1.MetadataOptions{HTTPEndpoint: new("enabled"), HTTPProtocolIPv6: new("disabled"), HTTPPutResponseHopLimit: new(int64(1)), HTTPTokens: new("required")}
	s.BlockDeviceMappings = []*awsv1.BlockDeviceMapping{
		{DeviceName: new("/dev/xvda"), EBS: &awsv1.BlockDevice{VolumeSize: new(resource.MustParse("2G")), VolumeType: new("gp3"), Encrypted: new(false)}},
		{DeviceName: new("/dev/xvdb")},
	}
	s.NetworkInterfaces = []*awsv1.NetworkInterface{{InterfaceType: "interface"}, {DeviceIndex: 1, InterfaceType: "efa-only"}}
	s.Kubelet = &awsv1.KubeletConfiguration{Raw: []byte(`{"maxPods": 42, "logging": {"format": "json"}}`)}
	return c
}

func classStamp(t *testing.T, c *awsv1.EC2NodeClass, ca string) drift.Stamp {
	t.Helper()
	stamp, err := stampOf(c, ca)
	if err != nil {
		t.Fatal(err)
	}
	return stamp
}

func TestClassHashIsFrozen(t *testing.T) {
	want := drift.Stamp{Hash: "12291477554800217422", Version: "go1"}
	if got := classStamp(t, sampleClass(), "ca"); got != want {
		t.Errorf("stampOf = %v, want %v", got, want)
	}
}

func TestClassStamp(t *testing.T) {
	for name, tc := range map[string]struct {
		edit    func(*awsv1.EC2NodeClassSpec)
		changes bool
	}{
		"userData":                        {func(s *awsv1.EC2NodeClassSpec) { s.UserData = new("bye") }, true},
		"role":                            {func(s *awsv1.EC2NodeClassSpec) { s.Role = "role-2" }, true},
		"instanceProfile instead of role": {func(s *awsv1.EC2NodeClassSpec) { s.Role, s.InstanceProfile = "", new("p") }, true},
		"one more tag":                    {func(s *awsv1.EC2NodeClassSpec) { s.Tags["c"] = "3" }, true},
		"context":                         {func(s *awsv1.EC2NodeClassSpec) { s.Context = new("d") }, true},
		"detailedMonitoring":              {func(s *awsv1.EC2NodeClassSpec) { s.DetailedMonitoring = new(true) }, true},
		"instanceStorePolicy":             {func(s *awsv1.EC2NodeClassSpec) { s.InstanceStorePolicy = new(awsv1.InstanceStorePolicyRAID0) }, true},
		"associatePublicIPAddress":        {func(s *awsv1.EC2NodeClassSpec) { s.AssociatePublicIPAddress = new(true) }, true},
		"httpEndpoint":                    {func(s *awsv1.EC2NodeClassSpec) { s.MetadataOptions.HTTPEndpoint = new("disabled") }, true},
		"httpProtocolIPv6":                {func(s *awsv1.EC2NodeClassSpec) { s.MetadataOptions.HTTPProtocolIPv6 = new("enabled") }, true},
		"hop limit":                       {func(s *awsv1.EC2NodeClassSpec) { s.MetadataOptions.HTTPPutResponseHopLimit = new(int64(2)) }, true},
		"httpTokens":                      {func(s *awsv1.EC2NodeClassSpec) { s.MetadataOptions.HTTPTokens = new("optional") }, true},
		"device name":                     {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].DeviceName = new("/dev/sda1") }, true},
		"rootVolume":                      {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].RootVolume = true }, true},
		"deleteOnTermination":             {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.DeleteOnTermination = new(true) }, true},
		"encrypted":                       {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.Encrypted = new(true) }, true},
		"iops":                            {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.IOPS = new(int64(10)) }, true},
		"kmsKeyID":                        {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.KMSKeyID = new("k") }, true},
		"snapshotID":                      {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.SnapshotID = new("k") }, true},
		"throughput":                      {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.Throughput = new(int64(10)) }, true},
		"volumeInitializationRate": {func(s *awsv1.EC2NodeClassSpec) {
			s.BlockDeviceMappings[0].EBS.VolumeInitializationRate = new(int32(100))
		}, true},
		"volumeSize": {func(s *awsv1.EC2NodeClassSpec) {
			s.BlockDeviceMappings[0].EBS.VolumeSize = new(resource.MustParse("10G"))
		}, true},
		"volumeType":                           {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.VolumeType = new("io1") }, true},
		"an empty ebs is not the same as none": {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[1].EBS = &awsv1.BlockDevice{} }, true},
		"network card":                         {func(s *awsv1.EC2NodeClassSpec) { s.NetworkInterfaces[1].NetworkCardIndex = 1 }, true},
		"network interface type":               {func(s *awsv1.EC2NodeClassSpec) { s.NetworkInterfaces[1].InterfaceType = "interface" }, true},
		"tcpEstablishedTimeout": {func(s *awsv1.EC2NodeClassSpec) {
			s.ConnectionTracking = &awsv1.ConnectionTracking{TCPEstablishedTimeout: new(int32(300))}
		}, true},
		"udpStreamTimeout": {func(s *awsv1.EC2NodeClassSpec) {
			s.ConnectionTracking = &awsv1.ConnectionTracking{UDPStreamTimeout: new(int32(120))}
		}, true},
		"udpTimeout": {func(s *awsv1.EC2NodeClassSpec) {
			s.ConnectionTracking = &awsv1.ConnectionTracking{UDPTimeout: new(int32(45))}
		}, true},
		"nestedVirtualization": {func(s *awsv1.EC2NodeClassSpec) {
			s.CPUOptions = &awsv1.CPUOptions{NestedVirtualization: new("enabled")}
		}, true},
		"enclaves":        {func(s *awsv1.EC2NodeClassSpec) { s.EnclaveOptions = &awsv1.EnclaveOptions{Enabled: true} }, true},
		"no enclaves":     {func(s *awsv1.EC2NodeClassSpec) { s.EnclaveOptions = &awsv1.EnclaveOptions{} }, false},
		"placement group": {func(s *awsv1.EC2NodeClassSpec) { s.PlacementGroupSelector = &awsv1.PlacementGroupSelector{Name: "g"} }, true},
		"another family":  {func(s *awsv1.EC2NodeClassSpec) { s.AMIFamily = new("Custom") }, true},
		"kubelet field": {func(s *awsv1.EC2NodeClassSpec) {
			s.Kubelet.Raw = []byte(`{"maxPods": 43, "logging": {"format": "json"}}`)
		}, true},
		"the alias's family spelled out": {func(s *awsv1.EC2NodeClassSpec) { s.AMIFamily = new("AL2023") }, false},
		"order of kubelet fields":        {func(s *awsv1.EC2NodeClassSpec) { s.Kubelet.Raw = []byte(`{"logging":{"format":"json"},"maxPods":42}`) }, false},
		"order of block devices":         {func(s *awsv1.EC2NodeClassSpec) { b := s.BlockDeviceMappings; b[0], b[1] = b[1], b[0] }, false},
		"order of network interfaces":    {func(s *awsv1.EC2NodeClassSpec) { n := s.NetworkInterfaces; n[0], n[1] = n[1], n[0] }, false},
		"another text of the same size": {func(s *awsv1.EC2NodeClassSpec) {
			s.BlockDeviceMappings[0].EBS.VolumeSize = new(resource.MustParse("2000M"))
		}, false},
		"AMI selector":            {func(s *awsv1.EC2NodeClassSpec) { s.AMISelectorTerms[0].Alias = "al2023@v20250101" }, false},
		"subnet selector":         {func(s *awsv1.EC2NodeClassSpec) { s.SubnetSelectorTerms[0].ID = "subnet-2" }, false},
		"security group selector": {func(s *awsv1.EC2NodeClassSpec) { s.SecurityGroupSelectorTerms[0].ID = "sg-2" }, false},
		"capacity reservation selector": {func(s *awsv1.EC2NodeClassSpec) {
			s.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{ID: "cr-1"}}
		}, false},
		"ipPrefixCount": {func(s *awsv1.EC2NodeClassSpec) { s.IPPrefixCount = new(int32(1)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := sampleClass()
			tc.edit(&c.Spec)
			if changed := classStamp(t, c, "ca") != classStamp(t, sampleClass(), "ca"); changed != tc.changes {
				t.Errorf("hash changed: %t, want %t", changed, tc.changes)
			}
		})
	}
}

func TestClassStampFollowsTheClusterCA(t *testing.T) {
	if classStamp(t, sampleClass(), "ca") == classStamp(t, sampleClass(), "other") {
		t.Error("a new CA bundle does not change the hash")
	}
}

func TestClassStampOfBrokenKubelet(t *testing.T) {
	c := sampleClass()
	c.Spec.Kubelet.Raw = []byte(`[]`)
	if _, err := stampOf(c, ""); err == nil {
		t.Error("a kubelet that is no object was hashed")
	}
}
