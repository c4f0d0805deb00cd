package class

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// present is a class of AL2023 with one subnet in each of two zones and two in a third, and a machine of it in a reservation in zone a.
func present() (*awsv1.EC2NodeClass, *v1.NodeClaim) {
	nc := &awsv1.EC2NodeClass{}
	nc.Spec.AMIFamily = new(awsv1.AMIFamilyAL2023)
	nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@v20260501"}}
	nc.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{Tags: map[string]string{"net": "x"}}}
	nc.Spec.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{Tags: map[string]string{"net": "x"}}}
	nc.Spec.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{ID: "cr-1"}}
	nc.Status.AMIs = []awsv1.AMI{{ID: "ami-1", Name: "amazon-eks-node-al2023-x86_64-standard-1.36-v20260501"}}
	nc.Status.Subnets = []awsv1.Subnet{{ID: "subnet-a", Zone: "a"}, {ID: "subnet-b", Zone: "b"}, {ID: "subnet-c", Zone: "c"}, {ID: "subnet-d", Zone: "c"}}
	nc.Status.SecurityGroups = []awsv1.SecurityGroup{{ID: "sg-2"}, {ID: "sg-1"}}
	nc.Annotations = map[string]string{awsv1.AnnotationNodeClassHash: "1", awsv1.AnnotationNodeClassHashVersion: hashVersion}
	claim := &v1.NodeClaim{}
	claim.Annotations = map[string]string{awsv1.AnnotationNodeClassHash: "1", awsv1.AnnotationNodeClassHashVersion: hashVersion}
	claim.Labels = map[string]string{corev1.LabelTopologyZone: "a", awsv1.LabelCapacityReservationID: "cr-1"}
	claim.Status.ImageID = "ami-1"
	return nc, claim
}

func TestEdit(t *testing.T) {
	images := func(terms ...awsv1.AMISelectorTerm) func(*awsv1.EC2NodeClass, *v1.NodeClaim) {
		return func(nc *awsv1.EC2NodeClass, _ *v1.NodeClaim) { nc.Spec.AMISelectorTerms = terms }
	}
	subnets := func(zone string, terms ...awsv1.SubnetSelectorTerm) func(*awsv1.EC2NodeClass, *v1.NodeClaim) {
		return func(nc *awsv1.EC2NodeClass, c *v1.NodeClaim) {
			nc.Spec.SubnetSelectorTerms, c.Labels[corev1.LabelTopologyZone] = terms, zone
		}
	}
	groups := func(terms ...awsv1.SecurityGroupSelectorTerm) func(*awsv1.EC2NodeClass, *v1.NodeClaim) {
		return func(nc *awsv1.EC2NodeClass, _ *v1.NodeClaim) { nc.Spec.SecurityGroupSelectorTerms = terms }
	}
	reservations := func(own string, terms ...awsv1.CapacityReservationSelectorTerm) func(*awsv1.EC2NodeClass, *v1.NodeClaim) {
		return func(nc *awsv1.EC2NodeClass, c *v1.NodeClaim) {
			nc.Spec.CapacityReservationSelectorTerms, c.Labels[awsv1.LabelCapacityReservationID] = terms, own
		}
	}
	for name, tc := range map[string]struct {
		edit func(to *awsv1.EC2NodeClass, claim *v1.NodeClaim)
		want cloud.DriftReason
		sure bool
	}{
		"nothing changed":                     {func(*awsv1.EC2NodeClass, *v1.NodeClaim) {}, "", true},
		"what goes into a machine is another": {func(nc *awsv1.EC2NodeClass, _ *v1.NodeClaim) { nc.Spec.Role = "other" }, awsv1.DriftReasonNodeClass, true},
		"a kubelet that cannot be read": {func(nc *awsv1.EC2NodeClass, _ *v1.NodeClaim) {
			nc.Spec.Kubelet = &awsv1.KubeletConfiguration{Raw: []byte("[")}
		}, "", true},
		"a machine that has drifted goes anyway": {func(nc *awsv1.EC2NodeClass, c *v1.NodeClaim) {
			nc.Spec.Role, c.Annotations[awsv1.AnnotationNodeClassHash] = "other", "0"
		}, "", true},

		"another release":                    {images(awsv1.AMISelectorTerm{Alias: "al2023@v20260601"}), awsv1.DriftReasonAMI, true},
		"the same release in other words":    {images(awsv1.AMISelectorTerm{Alias: "al2023@20260501"}), "", true},
		"the newest release may be the same": {images(awsv1.AMISelectorTerm{Alias: "al2023@latest"}), awsv1.DriftReasonAMI, false},
		"another release, of an image nobody knows": {func(nc *awsv1.EC2NodeClass, c *v1.NodeClaim) {
			c.Status.ImageID = "ami-0"
			images(awsv1.AMISelectorTerm{Alias: "al2023@v1"})(nc, c)
		}, awsv1.DriftReasonAMI, false},
		"another image by its id": {images(awsv1.AMISelectorTerm{ID: "ami-2"}, awsv1.AMISelectorTerm{Alias: "", ID: "ami-3"}), awsv1.DriftReasonAMI, true},
		"the same image by its id": {func(nc *awsv1.EC2NodeClass, c *v1.NodeClaim) {
			images(awsv1.AMISelectorTerm{ID: "ami-1"})(nc, c)
		}, "", true},
		"the same image among others":                {images(awsv1.AMISelectorTerm{ID: "ami-1"}, awsv1.AMISelectorTerm{ID: "ami-2"}), awsv1.DriftReasonAMI, false},
		"images by their tags":                       {images(awsv1.AMISelectorTerm{Tags: map[string]string{"a": "b"}}), awsv1.DriftReasonAMI, false},
		"subnets without the machine's":              {subnets("a", awsv1.SubnetSelectorTerm{ID: "subnet-b"}), awsv1.DriftReasonSubnet, true},
		"subnets with the machine's":                 {subnets("a", awsv1.SubnetSelectorTerm{ID: "subnet-b"}, awsv1.SubnetSelectorTerm{ID: "subnet-a"}), "", true},
		"one of two subnets of the zone":             {subnets("c", awsv1.SubnetSelectorTerm{ID: "subnet-c"}), awsv1.DriftReasonSubnet, false},
		"none of the subnets of the zone":            {subnets("c", awsv1.SubnetSelectorTerm{ID: "subnet-a"}), awsv1.DriftReasonSubnet, true},
		"subnets by their tags":                      {subnets("a", awsv1.SubnetSelectorTerm{Tags: map[string]string{"net": "y"}}), awsv1.DriftReasonSubnet, false},
		"a subnet by its id beside others by tags":   {subnets("a", awsv1.SubnetSelectorTerm{ID: "subnet-a"}, awsv1.SubnetSelectorTerm{Tags: map[string]string{"net": "y"}}), "", true},
		"a zone of which nothing was found":          {subnets("e", awsv1.SubnetSelectorTerm{ID: "subnet-a"}), awsv1.DriftReasonSubnet, false},
		"the same security groups by their ids":      {groups(awsv1.SecurityGroupSelectorTerm{ID: "sg-1"}, awsv1.SecurityGroupSelectorTerm{ID: "sg-2"}), "", true},
		"fewer security groups":                      {groups(awsv1.SecurityGroupSelectorTerm{ID: "sg-1"}), awsv1.DriftReasonSecurityGroup, true},
		"security groups by their names":             {groups(awsv1.SecurityGroupSelectorTerm{Name: "web"}), awsv1.DriftReasonSecurityGroup, false},
		"the machine's reservation beside another":   {reservations("cr-1", awsv1.CapacityReservationSelectorTerm{ID: "cr-2"}, awsv1.CapacityReservationSelectorTerm{ID: "cr-1"}), "", true},
		"another reservation":                        {reservations("cr-1", awsv1.CapacityReservationSelectorTerm{ID: "cr-2"}), awsv1.DriftReasonCapacityReservation, true},
		"another reservation, for a machine in none": {reservations("", awsv1.CapacityReservationSelectorTerm{ID: "cr-2"}), "", true},
		"reservations by their tags":                 {reservations("cr-1", awsv1.CapacityReservationSelectorTerm{Tags: map[string]string{"a": "b"}}), awsv1.DriftReasonCapacityReservation, false},
		"what is sure goes before what is not": {func(nc *awsv1.EC2NodeClass, c *v1.NodeClaim) {
			images(awsv1.AMISelectorTerm{Alias: "al2023@latest"})(nc, c)
			groups(awsv1.SecurityGroupSelectorTerm{ID: "sg-9"})(nc, c)
		}, awsv1.DriftReasonSecurityGroup, true},
		"of what is not sure the first cause is told": {func(nc *awsv1.EC2NodeClass, c *v1.NodeClaim) {
			images(awsv1.AMISelectorTerm{Alias: "al2023@latest"})(nc, c)
			groups(awsv1.SecurityGroupSelectorTerm{Name: "web"})(nc, c)
		}, awsv1.DriftReasonAMI, false},
	} {
		t.Run(name, func(t *testing.T) {
			from, claim := present()
			to := from.DeepCopy()
			tc.edit(to, claim)
			if got, sure := NewEdit(from, to).Drifts(claim); got != tc.want || sure != tc.sure {
				t.Errorf("%q, sure %v; want %q, %v", got, sure, tc.want, tc.sure)
			}
		})
	}
}

func TestClassesWithoutSecurityGroupsSayNothingOfThem(t *testing.T) {
	from, claim := present()
	from.Status.SecurityGroups = nil
	to := from.DeepCopy()
	to.Spec.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{ID: "sg-1"}}
	if got, sure := NewEdit(from, to).Drifts(claim); got != awsv1.DriftReasonSecurityGroup || sure {
		t.Errorf("%q, sure %v", got, sure)
	}
}
