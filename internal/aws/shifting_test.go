package aws

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// shiftAway shifts traffic away from the zone of a machine for an hour, and waits until that is known. No time is one that has passed.
func (w *world) shiftAway(t *testing.T, zone string, how time.Duration) (id string) {
	t.Helper()
	id = w.provider.classes.zoneID(zone)
	until := time.Now().Add(how)
	w.cloud.SetAccount(func(a *awsmodel.Account) { a.Shifts = map[string]time.Time{id: until} })
	time.Sleep(2 * shiftEvery)
	return id
}

func followShifts(s *Settings) { s.EnableZonalShift = true }

// In a zone from which traffic is shifted away nothing is offered, stopped, tagged or judged, and machines are listed as they were. Elsewhere all goes
// on, and there when the shift has ended.
func TestAShiftedZoneIsLeftAlone(t *testing.T) {
	inWorld(t, awsmodel.Config{}, followShifts, func(t *testing.T, w *world) {
		claim, m := w.create(t, newClaim("there"))
		elsewhere := newClaim("elsewhere")
		elsewhere.Spec.Requirements = append(elsewhere.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{
			Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpNotIn, Values: []string{m.Zone},
		})
		_, other := w.create(t, elsewhere)
		time.Sleep(time.Minute)
		if _, err := w.provider.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.shiftAway(t, m.Zone, time.Hour)

		catalog, err := w.provider.Catalog(t.Context(), defaultPool())
		check(t, err)
		for _, it := range catalog.Types {
			for _, o := range it.Offerings {
				if o.Zone() == m.Zone && o.Available {
					t.Fatalf("%s is offered in %s", it.Name, m.Zone)
				}
			}
		}
		check(t, w.cloud.Kill(instanceID(m.ProviderID))) // EC2 may say so, and be wrong
		time.Sleep(2 * time.Minute)
		if err := w.provider.Terminate(t.Context(), m.ProviderID); !errors.Is(err, errShifted) {
			t.Errorf("stopping: %v", err)
		}
		if err := w.provider.SetLatch(t.Context(), m.ProviderID, true); !errors.Is(err, errShifted) {
			t.Errorf("latching: %v", err)
		}
		if got, err := w.provider.Get(t.Context(), m.ProviderID); err != nil || got.Deleting {
			t.Errorf("it is shown as %+v, %v", got, err)
		}
		for range 2 { // what is listed once is remembered for the next time
			listed, err := w.provider.List(t.Context())
			check(t, err)
			if i := slices.IndexFunc(listed, func(x cloud.Machine) bool { return x.ProviderID == m.ProviderID }); i < 0 || listed[i].Deleting || len(listed) != 2 {
				t.Errorf("listed %+v", listed)
			}
		}
		if reason, err := w.provider.Drifted(t.Context(), w.claim(t, claim.Name)); reason != "" || !errors.Is(err, errShifted) {
			t.Errorf("drift: %q, %v", reason, err)
		}
		check(t, w.provider.Terminate(t.Context(), other.ProviderID))

		time.Sleep(time.Hour)
		if err := w.provider.Terminate(t.Context(), m.ProviderID); !errors.Is(err, cloud.ErrNotFound) {
			t.Errorf("after the shift: %v, want that the machine is gone", err)
		}
		listed, err := w.provider.List(t.Context())
		check(t, err)
		if len(listed) != 0 {
			t.Errorf("after the shift %d machines are listed", len(listed))
		}
	})
}

// TestMachinesOfAShiftedZoneAreShownAsTheyWere lists machines of zone a, which is shifted away, and of zone b. EC2 says something else of one
// of each, and does not list the other.
func TestMachinesOfAShiftedZoneAreShownAsTheyWere(t *testing.T) {
	var r remembered
	inA := func(id string) bool { return id == "a-1" || id == "a-2" }
	r.update([]cloud.Machine{{ProviderID: "a-1", ImageID: "before"}, {ProviderID: "a-2", ImageID: "before"}, {ProviderID: "b-1", ImageID: "before"}, {ProviderID: "b-2", ImageID: "before"}}, inA)
	got := map[string]string{}
	for _, m := range r.update([]cloud.Machine{{ProviderID: "a-1", ImageID: "after"}, {ProviderID: "b-1", ImageID: "after"}}, inA) {
		got[m.ProviderID] = m.ImageID
	}
	if want := map[string]string{"a-1": "before", "a-2": "before", "b-1": "after"}; !maps.Equal(got, want) {
		t.Errorf("listed are %v, want %v", got, want)
	}
}

// Pools hear of zones in which they could have nodes.
func TestPoolsAreToldOfShifts(t *testing.T) {
	inWorld(t, awsmodel.Config{}, followShifts, func(t *testing.T, w *world) {
		for name, requirement := range map[string]v1.NodeSelectorRequirementWithMinValues{
			"beside": {Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{"us-east-1b"}},
			"within": {Key: awsv1.LabelTopologyZoneID, Operator: "In", Values: []string{w.provider.classes.zoneID("us-east-1a")}},
		} {
			p := defaultPool()
			p.Name, p.UID = name, ""
			p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, requirement)
			check(t, w.kube.Create(t.Context(), p))
		}
		time.Sleep(time.Minute)
		id := w.shiftAway(t, "us-east-1a", 10*time.Minute)
		for pool, want := range map[string]bool{"default": true, "within": true, "beside": false} {
			if got := w.events.has(telemetry.ZonalShiftActive, pool); got != want {
				t.Errorf("pool %s was told of the shift: %v, want %v", pool, got, want)
			}
			if w.events.has(telemetry.ZonalShiftCleared, pool) {
				t.Errorf("pool %s was told too early that it is over", pool)
			}
		}
		time.Sleep(10 * time.Minute)
		for pool, want := range map[string]bool{"default": true, "within": true, "beside": false} {
			if got := w.events.has(telemetry.ZonalShiftCleared, pool); got != want {
				t.Errorf("pool %s was told of the end: %v, want %v", pool, got, want)
			}
		}
		if !w.events.says(telemetry.ZonalShiftCleared, "default", "traffic is no longer shifted away from zone us-east-1a ("+id+")") {
			t.Error("the event does not name the zone")
		}
	})
}

// Who asks for zonal shifts must not believe that they are followed when they are not.
func TestShiftsOfAClusterThatARCDoesNotManage(t *testing.T) {
	inWorld(t, awsmodel.Config{}, nil, func(t *testing.T, w *world) {
		w.cloud.SetAccount(func(a *awsmodel.Account) { a.Unmanaged = true })
		w.settings.EnableZonalShift = true
		metrics := telemetry.NewMetrics(prometheus.NewRegistry(), nil)
		claims, nodes := mirrored(w.kube)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := New(ctx, w.settings, Input{
			Config: w.cloud.AWSConfigFor("AKIACONTROLLER"), Kube: w.kube, Claims: claims, Nodes: nodes, Metrics: metrics, Events: telemetry.NewEvents(w.events.write, metrics), Version: "test",
		})
		if err == nil || !strings.Contains(err.Error(), "--name demo --zonal-shift-config enabled=true") {
			t.Errorf("the provider begins with %v", err)
		}
	})
}
