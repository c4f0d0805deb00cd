package aws

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

func TestGroupDrift(t *testing.T) {
	for name, tc := range map[string]struct {
		selected, found bool
		label           string
		want            cloud.DriftReason
		unsure          bool
	}{
		"no group, none wanted":               {false, false, "", "", false},
		"the group of the class":              {true, true, "pg-1", "", false},
		"another group":                       {true, true, "pg-2", awsv1.DriftReasonPlacementGroup, false},
		"no group, one is wanted":             {true, true, "", awsv1.DriftReasonPlacementGroup, false},
		"a group, none is wanted":             {false, false, "pg-1", awsv1.DriftReasonPlacementGroup, false},
		"a group, which is not found anymore": {true, false, "pg-1", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			nc, claim := &awsv1.EC2NodeClass{}, &v1.NodeClaim{}
			if tc.selected {
				nc.Spec.PlacementGroupSelector = &awsv1.PlacementGroupSelector{Name: "one"}
			}
			if tc.found {
				nc.Status.PlacementGroup = &awsv1.PlacementGroup{ID: "pg-1", Name: "one"}
			}
			claim.Labels = map[string]string{awsv1.LabelPlacementGroupID: tc.label}
			if got, err := groupDrift(nc, claim); got != tc.want || (err != nil) != tc.unsure {
				t.Errorf("drift = %q, %v; want %q, an error: %v", got, err, tc.want, tc.unsure)
			}
		})
	}
}

func TestInstanceDrift(t *testing.T) {
	into := func(id string, how ec2types.CapacityReservationPreference) func(*awsv1.EC2NodeClass, *ec2types.Instance) {
		return func(_ *awsv1.EC2NodeClass, i *ec2types.Instance) {
			i.CapacityReservationId = aws.String(id)
			i.CapacityReservationSpecification = &ec2types.CapacityReservationSpecificationResponse{CapacityReservationPreference: how}
		}
	}
	for name, tc := range map[string]struct {
		edit    func(*awsv1.EC2NodeClass, *ec2types.Instance)
		gateOff bool
		want    cloud.DriftReason
	}{
		"what the class asks for": {func(*awsv1.EC2NodeClass, *ec2types.Instance) {}, false, ""},
		"groups in another order, one of them twice": {func(_ *awsv1.EC2NodeClass, i *ec2types.Instance) {
			i.SecurityGroups = []ec2types.GroupIdentifier{{GroupId: aws.String("sg-2")}, {GroupId: aws.String("sg-1")}, {GroupId: aws.String("sg-2")}}
		}, false, ""},
		"a group too many": {func(_ *awsv1.EC2NodeClass, i *ec2types.Instance) {
			i.SecurityGroups = append(i.SecurityGroups, ec2types.GroupIdentifier{GroupId: aws.String("sg-3")})
		}, false, awsv1.DriftReasonSecurityGroup},
		"a group too few": {func(_ *awsv1.EC2NodeClass, i *ec2types.Instance) { i.SecurityGroups = i.SecurityGroups[1:] }, false, awsv1.DriftReasonSecurityGroup},
		"another subnet":  {func(_ *awsv1.EC2NodeClass, i *ec2types.Instance) { i.SubnetId = aws.String("subnet-9") }, false, awsv1.DriftReasonSubnet},
		"groups and subnet": {func(_ *awsv1.EC2NodeClass, i *ec2types.Instance) {
			i.SubnetId, i.SecurityGroups = aws.String("subnet-9"), nil
		}, false, awsv1.DriftReasonSecurityGroup},
		"a reservation of the class":                      {into("cr-1", ec2types.CapacityReservationPreferenceCapacityReservationsOnly), false, ""},
		"a reservation that the class no longer has":      {into("cr-9", ec2types.CapacityReservationPreferenceCapacityReservationsOnly), false, awsv1.DriftReasonCapacityReservation},
		"an open reservation that was met by chance":      {into("cr-9", ec2types.CapacityReservationPreferenceOpen), false, ""},
		"reservations while they are not managed":         {into("cr-9", ec2types.CapacityReservationPreferenceCapacityReservationsOnly), true, ""},
		"no reservation although the class has some left": {func(*awsv1.EC2NodeClass, *ec2types.Instance) {}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			nc := &awsv1.EC2NodeClass{}
			nc.Status.SecurityGroups = []awsv1.SecurityGroup{{ID: "sg-1"}, {ID: "sg-2"}}
			nc.Status.Subnets = []awsv1.Subnet{{ID: "subnet-1"}, {ID: "subnet-2"}}
			nc.Status.CapacityReservations = []awsv1.CapacityReservation{{ID: "cr-1"}}
			i := ec2types.Instance{SubnetId: aws.String("subnet-2"),
				SecurityGroups: []ec2types.GroupIdentifier{{GroupId: aws.String("sg-1")}, {GroupId: aws.String("sg-2")}}}
			tc.edit(nc, &i)
			p := &machines{env: &environment{settings: Settings{ReservedCapacity: !tc.gateOff}}}
			if got, err := instanceDrift(nc, i, p.capacityType(i) == v1.CapacityTypeReserved); got != tc.want || err != nil {
				t.Errorf("drift = %q, %v; want %q", got, err, tc.want)
			}
		})
	}
	if _, err := instanceDrift(&awsv1.EC2NodeClass{}, ec2types.Instance{}, false); err == nil {
		t.Error("a class that has found nothing is compared with")
	}
}
