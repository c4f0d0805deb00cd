package drift_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/drift"
)

func ptr[T any](v T) *T { return &v }

func samplePool() *v1.NodePool {
	p := &v1.NodePool{}
	t := &p.Spec.Template
	t.Labels = map[string]string{"team": "a", "tier": "b"}
	t.Annotations = map[string]string{"note": "x"}
	t.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}, {Key: "l", Effect: "NoExecute"}}
	t.Spec.StartupTaints = []corev1.Taint{{Key: "s", Effect: "NoSchedule"}}
	t.Spec.NodeClassRef = &v1.NodeClassReference{Group: "g", Kind: "k", Name: "n"}
	t.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
	t.Spec.ExpireAfter = v1.MustParseNillableDuration("720h")
	return p
}

// TestPoolHashIsFrozen holds the version to its word: this value may only change together with the version.
func TestPoolHashIsFrozen(t *testing.T) {
	want := drift.Stamp{Hash: "9491818938609329228", Version: "go1"}
	if got := drift.PoolStamp(samplePool()); got != want {
		t.Errorf("PoolStamp = %v, want %v", got, want)
	}
}

func TestPoolStamp(t *testing.T) {
	for name, tc := range map[string]struct {
		edit    func(*v1.NodePool)
		changes bool
	}{
		"label value":               {func(p *v1.NodePool) { p.Spec.Template.Labels["team"] = "z" }, true},
		"one more label":            {func(p *v1.NodePool) { p.Spec.Template.Labels["new"] = "z" }, true},
		"annotation":                {func(p *v1.NodePool) { p.Spec.Template.Annotations["note"] = "z" }, true},
		"taint value":               {func(p *v1.NodePool) { p.Spec.Template.Spec.Taints[0].Value = "z" }, true},
		"taint effect":              {func(p *v1.NodePool) { p.Spec.Template.Spec.Taints[0].Effect = "NoExecute" }, true},
		"startup taint":             {func(p *v1.NodePool) { p.Spec.Template.Spec.StartupTaints[0].Key = "z" }, true},
		"no startup taints":         {func(p *v1.NodePool) { p.Spec.Template.Spec.StartupTaints = nil }, true},
		"node class name":           {func(p *v1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Name = "z" }, true},
		"terminationGracePeriod":    {func(p *v1.NodePool) { p.Spec.Template.Spec.TerminationGracePeriod.Duration = time.Minute }, true},
		"no terminationGracePeriod": {func(p *v1.NodePool) { p.Spec.Template.Spec.TerminationGracePeriod = nil }, true},
		"terminationGracePeriod of zero is not the same as none": {func(p *v1.NodePool) { p.Spec.Template.Spec.TerminationGracePeriod.Duration = 0 }, true},
		"expireAfter":                          {func(p *v1.NodePool) { p.Spec.Template.Spec.ExpireAfter = v1.After(time.Hour) }, true},
		"expireAfter Never":                    {func(p *v1.NodePool) { p.Spec.Template.Spec.ExpireAfter = v1.MustParseNillableDuration("Never") }, true},
		"another text of the same expireAfter": {func(p *v1.NodePool) { p.Spec.Template.Spec.ExpireAfter = v1.MustParseNillableDuration("43200m") }, false},
		"order of taints":                      {func(p *v1.NodePool) { s := p.Spec.Template.Spec.Taints; s[0], s[1] = s[1], s[0] }, false},
		"empty instead of missing lists":       {func(p *v1.NodePool) { p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{} }, false},
		"when a taint was added":               {func(p *v1.NodePool) { p.Spec.Template.Spec.Taints[0].TimeAdded = &metav1.Time{Time: time.Unix(1, 0)} }, false},
		"requirements": {func(p *v1.NodePool) {
			p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: "a", Operator: "Exists"}}
		}, false},
		"disruption": {func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.After(time.Hour) }, false},
		"limits":     {func(p *v1.NodePool) { p.Spec.Limits = v1.Limits{"cpu": resource.MustParse("1")} }, false},
		"weight":     {func(p *v1.NodePool) { p.Spec.Weight = ptr(int32(3)) }, false},
		"the kubelet of v1beta1": {func(p *v1.NodePool) {
			p.Annotations = map[string]string{v1.KubeletCompatibilityAnnotationKey: `{"maxPods":9}`}
		}, true},
		"replicas": {func(p *v1.NodePool) { p.Spec.Replicas = ptr(int64(3)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := samplePool()
			tc.edit(p)
			if changed := drift.PoolStamp(p) != drift.PoolStamp(samplePool()); changed != tc.changes {
				t.Errorf("hash changed: %t, want %t", changed, tc.changes)
			}
		})
	}
}

func sampleClass() *awsv1.EC2NodeClass {
	c := &awsv1.EC2NodeClass{}
	s := &c.Spec
	s.Role = "role-1"
	s.Tags = map[string]string{"a": "1", "b": "2"}
	s.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}}
	s.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{ID: "subnet-1"}}
	s.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{ID: "sg-1"}}
	s.UserData = ptr("hello")
	s.Context = ptr("c")
	s.DetailedMonitoring = ptr(false)
	s.AssociatePublicIPAddress = ptr(false)
	s.MetadataOptions = &awsv1.MetadataOptions{HTTPEndpoint: ptr("enabled"), HTTPProtocolIPv6: ptr("disabled"), HTTPPutResponseHopLimit: ptr(int64(1)), HTTPTokens: ptr("required")}
	s.BlockDeviceMappings = []*awsv1.BlockDeviceMapping{
		{DeviceName: ptr("/dev/xvda"), EBS: &awsv1.BlockDevice{VolumeSize: ptr(resource.MustParse("2G")), VolumeType: ptr("gp3"), Encrypted: ptr(false)}},
		{DeviceName: ptr("/dev/xvdb")},
	}
	s.NetworkInterfaces = []*awsv1.NetworkInterface{{InterfaceType: "interface"}, {DeviceIndex: 1, InterfaceType: "efa-only"}}
	s.Kubelet = &awsv1.KubeletConfiguration{Raw: []byte(`{"maxPods": 42, "logging": {"format": "json"}}`)}
	return c
}

func classStamp(t *testing.T, c *awsv1.EC2NodeClass, ca string) drift.Stamp {
	t.Helper()
	stamp, err := drift.ClassStamp(c, ca)
	if err != nil {
		t.Fatal(err)
	}
	return stamp
}

func TestClassHashIsFrozen(t *testing.T) {
	want := drift.Stamp{Hash: "12291477554800217422", Version: "go1"}
	if got := classStamp(t, sampleClass(), "ca"); got != want {
		t.Errorf("ClassStamp = %v, want %v", got, want)
	}
}

func TestClassStamp(t *testing.T) {
	for name, tc := range map[string]struct {
		edit    func(*awsv1.EC2NodeClassSpec)
		changes bool
	}{
		"userData":                        {func(s *awsv1.EC2NodeClassSpec) { s.UserData = ptr("bye") }, true},
		"role":                            {func(s *awsv1.EC2NodeClassSpec) { s.Role = "role-2" }, true},
		"instanceProfile instead of role": {func(s *awsv1.EC2NodeClassSpec) { s.Role, s.InstanceProfile = "", ptr("p") }, true},
		"one more tag":                    {func(s *awsv1.EC2NodeClassSpec) { s.Tags["c"] = "3" }, true},
		"context":                         {func(s *awsv1.EC2NodeClassSpec) { s.Context = ptr("d") }, true},
		"detailedMonitoring":              {func(s *awsv1.EC2NodeClassSpec) { s.DetailedMonitoring = ptr(true) }, true},
		"instanceStorePolicy":             {func(s *awsv1.EC2NodeClassSpec) { s.InstanceStorePolicy = ptr(awsv1.InstanceStorePolicyRAID0) }, true},
		"associatePublicIPAddress":        {func(s *awsv1.EC2NodeClassSpec) { s.AssociatePublicIPAddress = ptr(true) }, true},
		"httpEndpoint":                    {func(s *awsv1.EC2NodeClassSpec) { s.MetadataOptions.HTTPEndpoint = ptr("disabled") }, true},
		"httpProtocolIPv6":                {func(s *awsv1.EC2NodeClassSpec) { s.MetadataOptions.HTTPProtocolIPv6 = ptr("enabled") }, true},
		"hop limit":                       {func(s *awsv1.EC2NodeClassSpec) { s.MetadataOptions.HTTPPutResponseHopLimit = ptr(int64(2)) }, true},
		"httpTokens":                      {func(s *awsv1.EC2NodeClassSpec) { s.MetadataOptions.HTTPTokens = ptr("optional") }, true},
		"device name":                     {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].DeviceName = ptr("/dev/sda1") }, true},
		"rootVolume":                      {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].RootVolume = true }, true},
		"deleteOnTermination":             {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.DeleteOnTermination = ptr(true) }, true},
		"encrypted":                       {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.Encrypted = ptr(true) }, true},
		"iops":                            {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.IOPS = ptr(int64(10)) }, true},
		"kmsKeyID":                        {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.KMSKeyID = ptr("k") }, true},
		"snapshotID":                      {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.SnapshotID = ptr("k") }, true},
		"throughput":                      {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.Throughput = ptr(int64(10)) }, true},
		"volumeInitializationRate": {func(s *awsv1.EC2NodeClassSpec) {
			s.BlockDeviceMappings[0].EBS.VolumeInitializationRate = ptr(int32(100))
		}, true},
		"volumeSize": {func(s *awsv1.EC2NodeClassSpec) {
			s.BlockDeviceMappings[0].EBS.VolumeSize = ptr(resource.MustParse("10G"))
		}, true},
		"volumeType":                           {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[0].EBS.VolumeType = ptr("io1") }, true},
		"an empty ebs is not the same as none": {func(s *awsv1.EC2NodeClassSpec) { s.BlockDeviceMappings[1].EBS = &awsv1.BlockDevice{} }, true},
		"network card":                         {func(s *awsv1.EC2NodeClassSpec) { s.NetworkInterfaces[1].NetworkCardIndex = 1 }, true},
		"network interface type":               {func(s *awsv1.EC2NodeClassSpec) { s.NetworkInterfaces[1].InterfaceType = "interface" }, true},
		"tcpEstablishedTimeout": {func(s *awsv1.EC2NodeClassSpec) {
			s.ConnectionTracking = &awsv1.ConnectionTracking{TCPEstablishedTimeout: ptr(int32(300))}
		}, true},
		"udpStreamTimeout": {func(s *awsv1.EC2NodeClassSpec) {
			s.ConnectionTracking = &awsv1.ConnectionTracking{UDPStreamTimeout: ptr(int32(120))}
		}, true},
		"udpTimeout": {func(s *awsv1.EC2NodeClassSpec) {
			s.ConnectionTracking = &awsv1.ConnectionTracking{UDPTimeout: ptr(int32(45))}
		}, true},
		"nestedVirtualization": {func(s *awsv1.EC2NodeClassSpec) {
			s.CPUOptions = &awsv1.CPUOptions{NestedVirtualization: ptr("enabled")}
		}, true},
		"placement group": {func(s *awsv1.EC2NodeClassSpec) { s.PlacementGroupSelector = &awsv1.PlacementGroupSelector{Name: "g"} }, true},
		"another family":  {func(s *awsv1.EC2NodeClassSpec) { s.AMIFamily = ptr("Custom") }, true},
		"kubelet field": {func(s *awsv1.EC2NodeClassSpec) {
			s.Kubelet.Raw = []byte(`{"maxPods": 43, "logging": {"format": "json"}}`)
		}, true},
		"the alias's family spelled out": {func(s *awsv1.EC2NodeClassSpec) { s.AMIFamily = ptr("AL2023") }, false},
		"order of kubelet fields":        {func(s *awsv1.EC2NodeClassSpec) { s.Kubelet.Raw = []byte(`{"logging":{"format":"json"},"maxPods":42}`) }, false},
		"order of block devices":         {func(s *awsv1.EC2NodeClassSpec) { b := s.BlockDeviceMappings; b[0], b[1] = b[1], b[0] }, false},
		"order of network interfaces":    {func(s *awsv1.EC2NodeClassSpec) { n := s.NetworkInterfaces; n[0], n[1] = n[1], n[0] }, false},
		"another text of the same size": {func(s *awsv1.EC2NodeClassSpec) {
			s.BlockDeviceMappings[0].EBS.VolumeSize = ptr(resource.MustParse("2000M"))
		}, false},
		"AMI selector":            {func(s *awsv1.EC2NodeClassSpec) { s.AMISelectorTerms[0].Alias = "al2023@v20250101" }, false},
		"subnet selector":         {func(s *awsv1.EC2NodeClassSpec) { s.SubnetSelectorTerms[0].ID = "subnet-2" }, false},
		"security group selector": {func(s *awsv1.EC2NodeClassSpec) { s.SecurityGroupSelectorTerms[0].ID = "sg-2" }, false},
		"capacity reservation selector": {func(s *awsv1.EC2NodeClassSpec) {
			s.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{ID: "cr-1"}}
		}, false},
		"ipPrefixCount": {func(s *awsv1.EC2NodeClassSpec) { s.IPPrefixCount = ptr(int32(1)) }, false},
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
	if _, err := drift.ClassStamp(c, ""); err == nil {
		t.Error("a kubelet that is no object was hashed")
	}
}
