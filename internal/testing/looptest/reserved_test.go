package looptest

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestReservedCapacity follows a reservation from its first use to its end: it is filled first and no further, and when it lapses
// its machines are called what they have become, and stay.
func TestReservedCapacity(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, api *ec2.Client, id string){
		"cancelled": func(t *testing.T, api *ec2.Client, id string) {
			if _, err := api.CancelCapacityReservation(t.Context(), &ec2.CancelCapacityReservationInput{CapacityReservationId: &id}); err != nil {
				t.Fatal(err)
			}
		},
		"expired": func(*testing.T, *ec2.Client, string) { time.Sleep(reservedFor) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, awsmodel.Config{Seed: 4, Types: []string{"m5.*", "c5.*"}})
				api := ec2.NewFromConfig(w.aws.AWSConfig())
				id := reserve(t, api, "m5.xlarge", "us-east-1a", 2)
				w.useReservations()
				defer w.start()()
				w.deploy(3, "3", "4Gi") // one fits an m5.xlarge
				w.eventually("all pods run", 2*time.Minute, w.allRun(3))
				w.wantReserved(id, 2)

				end(t, api, id)
				w.eventually("nothing is called reserved", 3*time.Minute, w.stillReserved)
				time.Sleep(30 * time.Minute)
				w.wantReserved(id, 0)
				if n := len(w.cut); n > 0 || w.running() != 3 {
					t.Errorf("%d pods lost their machine, %d run", n, w.running())
				}
				nc := sim.Get[*awsv1.EC2NodeClass](t, w.World, "default")
				if len(nc.Status.CapacityReservations) > 0 {
					t.Errorf("the class still has reservations %+v", nc.Status.CapacityReservations)
				}
				w.eventually("machines, claims and nodes are the same", time.Minute, w.unequal)
			})
		})
	}
}

const reservedFor = time.Hour

// reserve buys places for machines.
func reserve(t *testing.T, api *ec2.Client, kind, zone string, places int32) string {
	t.Helper()
	out, err := api.CreateCapacityReservation(t.Context(), &ec2.CreateCapacityReservationInput{
		InstanceType: &kind, AvailabilityZone: &zone, InstanceCount: &places, InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix,
		InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted, EndDateType: ec2types.EndDateTypeLimited, EndDate: sdk.Time(time.Now().Add(reservedFor)),
		TagSpecifications: []ec2types.TagSpecification{{
			ResourceType: ec2types.ResourceTypeCapacityReservation, Tags: []ec2types.Tag{{Key: sdk.String("for"), Value: sdk.String("karpenter")}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return *out.CapacityReservation.CapacityReservationId
}

// useReservations lets the class use them, and the pool what they do not hold on demand.
func (w *world) useReservations() {
	memapi.Edit(w.API, "", "default", func(nc *awsv1.EC2NodeClass) {
		nc.Spec.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{Tags: map[string]string{"for": "karpenter"}}}
	})
	memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
		p.Spec.Template.Spec.Requirements[0].Values = []string{v1.CapacityTypeReserved, v1.CapacityTypeOnDemand}
	})
}

// wantReserved fails if not exactly so many machines, claims and nodes are in the reservation.
func (w *world) wantReserved(id string, want int) {
	w.t.Helper()
	in := func(labels map[string]string) bool {
		return labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeReserved && labels[awsv1.LabelCapacityReservationID] == id
	}
	counts := map[string]int{}
	for _, m := range w.aws.Alive() {
		if m.CapacityType == v1.CapacityTypeReserved {
			counts["machines"]++
		}
	}
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		if in(c.Labels) {
			counts["claims"]++
		}
	}
	for _, n := range memapi.All[*corev1.Node](w.API) {
		if in(n.Labels) {
			counts["nodes"]++
		}
	}
	for _, what := range []string{"machines", "claims", "nodes"} {
		if counts[what] != want {
			w.t.Errorf("%d %s are in the reservation, want %d", counts[what], what, want)
		}
	}
}

// stillReserved names the claims and nodes with any label of a reservation.
func (w *world) stillReserved() string {
	var out []string
	see := func(what string, labels map[string]string) {
		_, id := labels[awsv1.LabelCapacityReservationID]
		_, kind := labels[awsv1.LabelCapacityReservationType]
		if id || kind || labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeReserved {
			out = append(out, what)
		}
	}
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		see("claim "+c.Name, c.Labels)
	}
	for _, n := range memapi.All[*corev1.Node](w.API) {
		see("node "+n.Name, n.Labels)
	}
	slices.Sort(out)
	if len(out) == 0 {
		return ""
	}
	return fmt.Sprint(out)
}
