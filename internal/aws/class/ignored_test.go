package class

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
)

// A field that has no effect is named by a condition, and the class is used all the same.
func TestFieldsWithoutEffectAreNamed(t *testing.T) {
	raid := awsv1.InstanceStorePolicyRAID0
	family := func(name string) func(*awsv1.EC2NodeClass) {
		return func(nc *awsv1.EC2NodeClass) {
			nc.Spec.AMIFamily = &name
			nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{ID: "ami-1"}}
		}
	}
	for name, tc := range map[string]struct {
		family          string
		raid, kubelet   bool
		reservations    bool // are selected
		gateOff         bool
		condition, want string // want is a part of the message, "" for an empty one
	}{
		"RAID0 of Custom":          {family: awsv1.AMIFamilyCustom, raid: true, condition: awsv1.ConditionTypeValidationSucceeded, want: "must join and mount"},
		"RAID0 of Windows":         {family: awsv1.AMIFamilyWindows2022, raid: true, condition: awsv1.ConditionTypeValidationSucceeded, want: "no effect on Windows2022"},
		"RAID0 of AL2023":          {family: awsv1.AMIFamilyAL2023, raid: true, condition: awsv1.ConditionTypeValidationSucceeded},
		"kubelet of Custom":        {family: awsv1.AMIFamilyCustom, kubelet: true, condition: awsv1.ConditionTypeValidationSucceeded, want: "configure the kubelet"},
		"kubelet of AL2023":        {family: awsv1.AMIFamilyAL2023, kubelet: true, condition: awsv1.ConditionTypeValidationSucceeded},
		"reservations, gate off":   {family: awsv1.AMIFamilyAL2023, reservations: true, gateOff: true, condition: awsv1.ConditionTypeCapacityReservationsReady, want: "ReservedCapacity"},
		"reservations, gate on":    {family: awsv1.AMIFamilyAL2023, reservations: true, condition: awsv1.ConditionTypeCapacityReservationsReady},
		"no reservation, gate off": {family: awsv1.AMIFamilyAL2023, gateOff: true, condition: awsv1.ConditionTypeCapacityReservationsReady},
	} {
		t.Run(name, func(t *testing.T) {
			nc := newClass(family(tc.family))
			if tc.raid {
				nc.Spec.InstanceStorePolicy = &raid
			}
			if tc.kubelet {
				nc.Spec.Kubelet = &awsv1.KubeletConfiguration{}
			}
			if tc.reservations {
				nc.Spec.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{ID: "cr-1"}}
			}
			c := newController(t, all(), nc, nil, nil)
			c.Settings.Reservations = !tc.gateOff
			if _, err := c.Reconcile(t.Context(), nc); err != nil {
				t.Fatal(err)
			}
			got := &awsv1.EC2NodeClass{}
			if err := c.Kube.Get(t.Context(), client.ObjectKeyFromObject(nc), got); err != nil {
				t.Fatal(err)
			}
			said := condition.Get(got, tc.condition)
			if said == nil || (tc.want == "") != (said.Message == "") || !strings.Contains(said.Message, tc.want) {
				t.Errorf("%s is %+v, want a message with %q", tc.condition, said, tc.want)
			}
			if !condition.IsTrue(got, awsv1.ConditionTypeReady) {
				t.Errorf("the class is not ready: %v", got.Status.Conditions)
			}
		})
	}
}
