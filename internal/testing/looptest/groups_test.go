package looptest

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestPlacementGroups brings pods up on machines of a placement group, one a machine, and counts the nodes by what the strategy is about.
func TestPlacementGroups(t *testing.T) {
	for name, tc := range map[string]struct {
		group  ec2.CreatePlacementGroupInput
		spread string // the pods' topology key
		pods   int
		count  string      // the label that nodes are counted by
		want   map[int]int // how many values there are with so many nodes
	}{
		"cluster: all in one zone": {
			ec2.CreatePlacementGroupInput{Strategy: ec2types.PlacementStrategyCluster}, "", 4, corev1.LabelTopologyZone, map[int]int{4: 1}},
		"partition: pods that ask to be spread are, evenly": {
			ec2.CreatePlacementGroupInput{Strategy: ec2types.PlacementStrategyPartition, PartitionCount: sdk.Int32(3)},
			awsv1.LabelPlacementGroupPartition, 7, awsv1.LabelPlacementGroupPartition, map[int]int{2: 2, 3: 1}},
		"spread: no more than seven in a zone": {
			ec2.CreatePlacementGroupInput{Strategy: ec2types.PlacementStrategySpread}, "", 14, corev1.LabelTopologyZone, map[int]int{7: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, awsmodel.Config{Seed: 5, Types: []string{"m5.large", "c5.xlarge"}})
				group := w.useGroup(tc.group)
				w.inZones("us-east-1a", "us-east-1b")
				defer w.start()()
				for i := range tc.pods {
					w.API.Put(sim.Pod(fmt.Sprintf("web-%03d", i), "1", func(p *corev1.Pod) { alone(p, tc.spread) }))
				}
				w.eventually("all pods run", 10*time.Minute, w.allRun(tc.pods))
				by := map[string]int{}
				for _, n := range memapi.All[*corev1.Node](w.API) {
					if n.Labels[awsv1.LabelPlacementGroupID] != group {
						t.Errorf("node %s has group %q, want %s", n.Name, n.Labels[awsv1.LabelPlacementGroupID], group)
					}
					by[n.Labels[tc.count]]++
				}
				got := map[int]int{}
				for _, n := range by {
					got[n]++
				}
				if !maps.Equal(got, tc.want) {
					t.Errorf("nodes by %s: %v", tc.count, by)
				}
			})
		})
	}
}

// alone makes a pod share its node with none of its like, and spread over a topology key if one is named.
func alone(p *corev1.Pod, key string) {
	p.Labels = map[string]string{"app": "web"}
	like := &metav1.LabelSelector{MatchLabels: p.Labels}
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
		{TopologyKey: corev1.LabelHostname, LabelSelector: like},
	}}}
	if key != "" {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: like}}
	}
}

// useGroup makes a placement group and lets the class select it.
func (w *world) useGroup(in ec2.CreatePlacementGroupInput) (id string) {
	w.t.Helper()
	in.GroupName = sdk.String("mine")
	out, err := ec2.NewFromConfig(w.aws.AWSConfig()).CreatePlacementGroup(w.t.Context(), &in)
	if err != nil {
		w.t.Fatal(err)
	}
	memapi.Edit(w.API, "", "default", func(nc *awsv1.EC2NodeClass) {
		nc.Spec.PlacementGroupSelector = &awsv1.PlacementGroupSelector{Name: "mine"}
	})
	return *out.PlacementGroup.GroupId
}

// inZones leaves the class only the subnets of some zones.
func (w *world) inZones(zones ...string) {
	w.t.Helper()
	out, err := ec2.NewFromConfig(w.aws.AWSConfig()).DescribeSubnets(w.t.Context(), &ec2.DescribeSubnetsInput{
		Filters: []ec2types.Filter{{Name: sdk.String("availability-zone"), Values: zones}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	memapi.Edit(w.API, "", "default", func(nc *awsv1.EC2NodeClass) {
		nc.Spec.SubnetSelectorTerms = nil
		for _, s := range out.Subnets {
			nc.Spec.SubnetSelectorTerms = append(nc.Spec.SubnetSelectorTerms, awsv1.SubnetSelectorTerm{ID: *s.SubnetId})
		}
	})
}
