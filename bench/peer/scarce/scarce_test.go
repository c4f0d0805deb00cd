package scarce

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	peerv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// shop sells whatever it is asked for.
type shop struct {
	cloudprovider.CloudProvider
	types []*cloudprovider.InstanceType
	sold  []string
}

func (s *shop) Create(_ context.Context, claim *peerv1.NodeClaim) (*peerv1.NodeClaim, error) {
	wants := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	s.sold = append(s.sold, wants.Get(corev1.LabelInstanceTypeStable).Any()+"/"+wants.Get(corev1.LabelTopologyZone).Any())
	return claim, nil
}

func (s *shop) GetInstanceTypes(context.Context, *peerv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return s.types, nil
}

func machine(name string, price float64, zones ...string) *cloudprovider.InstanceType {
	out := &cloudprovider.InstanceType{Name: name, Requirements: scheduling.NewRequirements(scheduling.NewRequirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, name))}
	for _, zone := range zones {
		out.Offerings = append(out.Offerings, &cloudprovider.Offering{Price: price, Available: true, Requirements: scheduling.NewLabelRequirements(map[string]string{
			peerv1.CapacityTypeLabelKey: "on-demand", corev1.LabelTopologyZone: zone,
		})})
	}
	return out
}

// TestAPoolThatHasRunOut has m7 cheaper than m5, and nothing of it but in zone c.
func TestAPoolThatHasRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "scarce")
		s := &shop{types: []*cloudprovider.InstanceType{machine("m7.large", 1, "a", "b", "c"), machine("m5.large", 2, "a", "b")}}
		p := New(s, s.types, file)
		launch := func(types []string, zones ...string) error {
			claim := &peerv1.NodeClaim{}
			claim.Spec.Requirements = []peerv1.NodeSelectorRequirementWithMinValues{
				{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: types}, {Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: zones},
			}
			_, err := p.Create(t.Context(), claim)
			return err
		}
		offered := func() (n int) {
			all, err := p.GetInstanceTypes(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range all {
				n += len(it.Offerings.Available())
			}
			return n
		}
		both := []string{"m5.large", "m7.large"}
		if err := launch(both, "a", "b"); err != nil || offered() != 5 {
			t.Errorf("error %v, %d offerings before anything has run out", err, offered())
		}
		if err := os.WriteFile(file, []byte("*/m7.*/[ab]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := launch(both, "a"); err != nil || s.sold[len(s.sold)-1] != "m5.large/a" || offered() != 4 {
			t.Errorf("error %v, sold %v, %d offerings are left; want m5.large in zone a, and four", err, s.sold, offered())
		}
		if err := launch([]string{"m7.large"}, "b"); !cloudprovider.IsInsufficientCapacityError(err) || offered() != 3 {
			t.Errorf("error %v, %d offerings are left; want none to be had, and three", err, offered())
		}
		if err := launch([]string{"m7.large"}, "a", "c"); err != nil || s.sold[len(s.sold)-1] != "m7.large/c" {
			t.Errorf("error %v, sold %v; want what is left in zone c", err, s.sold)
		}
		time.Sleep(missedFor)
		if n := offered(); n != 5 {
			t.Errorf("%d offerings after a while, want all five", n)
		}
	})
}
