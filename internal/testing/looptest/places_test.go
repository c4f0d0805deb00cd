package looptest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

var discovery = map[string]string{v1.Group + "/discovery": "demo"}

// bound makes a pod that must run in a zone, and says more about it.
func (w *world) bound(name, zone string, selects ...string) {
	w.API.Put(sim.Pod(name, "1", func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone}
		for i := 0; i < len(selects); i += 2 {
			p.Spec.NodeSelector[selects[i]] = selects[i+1]
		}
	}))
}

// subnets counts the machines by the subnet that they are in.
func (w *world) subnets() map[string]int {
	w.t.Helper()
	out, err := ec2.NewFromConfig(w.aws.AWSConfig()).DescribeInstances(w.t.Context(), &ec2.DescribeInstancesInput{})
	if err != nil {
		w.t.Fatal(err)
	}
	in := map[string]int{}
	for _, r := range out.Reservations {
		in[sdk.ToString(r.Instances[0].SubnetId)]++
	}
	return in
}

// TestLocalZone uses a local zone for the pods that want it: on demand, with types that it has and at its own price, which is why no other pod
// goes there. A pod that wants a spot machine there waits, and nothing is tried for it.
func TestLocalZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const zone = "us-east-1-bos-1a"
		w := newWorld(t, awsmodel.Config{Seed: 12, Types: []string{"m5.*", "m6g.*"}, LocalZones: []string{zone}})
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { // on demand alone costs the same in every zone of the region
			p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{Key: awsv1.LabelInstanceFamily, Operator: "In", Values: []string{"m5", "m6g"}})
		})
		local := w.aws.AddSubnet(zone, "10.0.128.0/18", discovery) // with more free addresses than others
		defer w.start()()
		w.bound("here", zone)
		w.bound("here-on-spot", zone, v1.CapacityTypeLabelKey, v1.CapacityTypeSpot)
		for i := range 6 {
			w.API.Put(sim.Pod(fmt.Sprintf("anywhere-%d", i), "30", func(p *corev1.Pod) {
				p.Spec.NodeSelector = map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand, corev1.LabelArchStable: "amd64"}
			}))
		}
		w.eventually("all pods but one run", 5*time.Minute, w.allRun(7))
		if n := w.subnets()[local]; n != 1 {
			t.Errorf("%d machines in the local zone, want that of the pod that must be there", n)
		}
		for _, n := range memapi.All[*corev1.Node](w.API) {
			if n.Labels[corev1.LabelTopologyZone] != zone {
				continue
			}
			if n.Labels[v1.CapacityTypeLabelKey] != v1.CapacityTypeOnDemand || n.Labels[awsv1.LabelTopologyZoneID] != "use1-bos1-az1" || n.Labels[awsv1.LabelInstanceFamily] != "m5" {
				t.Errorf("node in the local zone has labels %v", n.Labels)
			}
		}
		if p := sim.Get[*corev1.Pod](t, w.World, "here-on-spot"); p.Spec.NodeName != "" {
			t.Errorf("the pod that wants a spot machine in the local zone runs on %s", p.Spec.NodeName)
		}
		if n := len(w.aws.Alive()); n != len(memapi.All[*corev1.Node](w.API)) {
			t.Errorf("%d machines for %d nodes", n, len(memapi.All[*corev1.Node](w.API)))
		}
	})
}

// TestOutpost uses an Outpost where a class selects nothing else in a zone, and finds the types that it has; machines of other classes stay in
// the region.
func TestOutpost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, awsmodel.Config{Seed: 13, Types: []string{"m5.large", "m5.xlarge", "c5.large"}})
		outpost := w.aws.AddOutpost("us-east-1a", "10.0.128.0/18", []string{"m5.xlarge"}, discovery)
		nc, p := class(), pool()
		nc.Name, nc.UID, nc.Spec.SubnetSelectorTerms = "outpost", "class-2", []awsv1.SubnetSelectorTerm{{ID: outpost}}
		p.Name, p.UID, p.Spec.Template.Spec.NodeClassRef = "outpost", "pool-2", sim.Ref("outpost")
		p.Spec.Template.Labels = map[string]string{"place": "outpost"}
		p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: []string{v1.CapacityTypeOnDemand}}}
		w.API.Put(nc)
		w.API.Put(p)
		defer w.start()()
		w.bound("on-the-outpost", "us-east-1a", "place", "outpost")
		for i := range 4 {
			w.bound(fmt.Sprintf("in-the-region-%d", i), "us-east-1a", "karpenter.sh/nodepool", "default")
		}
		w.eventually("all pods run", 10*time.Minute, w.allRun(5))
		if n := w.subnets()[outpost]; n != 1 {
			t.Errorf("%d machines on the Outpost, want that of the pod that must be there", n)
		}
		p1 := sim.Get[*corev1.Pod](t, w.World, "on-the-outpost")
		n := sim.Get[*corev1.Node](t, w.World, p1.Spec.NodeName)
		if n.Labels[corev1.LabelInstanceTypeStable] != "m5.xlarge" {
			t.Errorf("the machine on the Outpost is a %s", n.Labels[corev1.LabelInstanceTypeStable])
		}
	})
}
