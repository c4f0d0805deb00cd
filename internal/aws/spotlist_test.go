package aws

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// annotatePool writes an annotation onto the pool of the world.
func (w *world) annotatePool(t *testing.T, key, value string) {
	t.Helper()
	pool := defaultPool()
	if err := w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, pool); err != nil {
		t.Fatal(err)
	}
	pool.Annotations = map[string]string{key: value}
	if err := w.kube.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Minute) // it is seen, and machines are counted
}

// A spot machine that was taken back makes its type and zone count more, and what a claim is launched as follows what its plan reckoned with.
func TestWhatWasTakenBackIsLeftOut(t *testing.T) {
	for name, tc := range map[string]struct {
		cost string // of an interruption, on the second claim; "" for none
		same bool   // it may be what was taken back
	}{
		"an interruption costs nothing": {"", true},
		"an interruption costs much":    {"200", false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := awsmodel.Config{Types: []string{"m5.large", "m5a.large"}}
			inWorld(t, cfg, func(s *Settings) { s.InterruptionQueue = "demo" }, func(t *testing.T, w *world) {
				w.annotatePool(t, v1.InterruptionCostAnnotationKey, "0")
				claim, m := w.create(t, spotClaim("a"))
				before, _ := w.provider.market.risks.Of(offeringOf(claim))
				if err := w.cloud.Interrupt(instanceID(m.ProviderID)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Minute) // what is out for three minutes is there again
				after, rests := w.provider.market.risks.Of(price.Pool{Type: m.InstanceType, Zone: m.Zone})
				if after < 4*before || !rests {
					t.Fatalf("the hazard was %d and is %d, rests %v", before, after, rests)
				}
				second := spotClaim("b")
				second.Annotations = map[string]string{v1.InterruptionCostAnnotationKey: tc.cost}
				_, again := w.create(t, second)
				if same := again.InstanceType == m.InstanceType && again.Zone == m.Zone; same != tc.same {
					t.Errorf("%s in %s was taken back, and %s in %s bought", m.InstanceType, m.Zone, again.InstanceType, again.Zone)
				}
			})
		})
	}
}

// A launch that finds no capacity counts, and nothing of it does while no pool says what an interruption costs.
func TestFailedLaunchesCount(t *testing.T) {
	for name, follow := range map[string]bool{"followed": true, "off": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{Types: []string{"m5.large"}}, nil, func(t *testing.T, w *world) {
				if follow {
					w.annotatePool(t, v1.InterruptionCostAnnotationKey, "1")
				}
				p := price.Pool{Type: "m5.large", Zone: "us-east-1a"}
				before, _ := w.provider.market.risks.Of(p)
				w.faults(t, func(f *awsmodel.Faults) {
					f.Pools = append(f.Pools, awsmodel.PoolRule{Match: "spot/m5.large/" + p.Zone})
				})
				if _, err := w.provider.Launch(t.Context(), narrowed(spotClaim("a"), "topology.kubernetes.io/zone", p.Zone)); err == nil {
					t.Fatal("a machine was launched that there is not")
				}
				if after, rests := w.provider.market.risks.Of(p); (after > before) != follow || rests != follow {
					t.Errorf("the hazard was %d and is %d, rests %v", before, after, rests)
				}
			})
		})
	}
}

// How often offerings are taken back is a metric while an interruption costs something.
func TestInterruptionsAreAMetric(t *testing.T) {
	all := func(s *Settings) { s.AllOfferings = true }
	inWorld(t, awsmodel.Config{Types: []string{"m5.large"}}, all, func(t *testing.T, w *world) {
		registry := prometheus.NewRegistry()
		registry.MustRegister(w.provider.Gauges())
		const series = "karpenter_cloudprovider_instance_type_offering_interruptions_estimate spot m5.large us-east-1a"
		if got, told := scrape(t, registry)[series]; told {
			t.Errorf("%v interruptions an hour are expected although they cost nothing", got)
		}
		w.annotatePool(t, v1.InterruptionCostAnnotationKey, "1")
		if got := scrape(t, registry)[series]; got <= 0 || got > 0.001 {
			t.Errorf("%v interruptions an hour are expected", got)
		}
	})
}

// With a share no type and zone has more than its part of the spot machines of a pool, though they are launched together; what cannot keep
// it is launched all the same, and said.
func TestSpotMaxShare(t *testing.T) {
	for name, tc := range map[string]struct {
		share string
		types []string
		most  int // of eight machines
		told  bool
	}{
		"none":                    {"", []string{"m5.large", "m5a.large"}, 8, false},
		"half":                    {"50%", []string{"m5.large", "m5a.large"}, 4, false},
		"a quarter":               {"25%", []string{"m5.large", "m5a.large"}, 2, false},
		"one that cannot be read": {"half", []string{"m5.large", "m5a.large"}, 8, false},
		"less than there is":      {"5%", []string{"m5.large"}, 8, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, awsmodel.Config{Types: tc.types}, nil, func(t *testing.T, w *world) {
				if tc.share != "" {
					w.annotatePool(t, v1.SpotMaxShareAnnotationKey, tc.share)
				}
				var claims []*v1.NodeClaim
				for i := range 8 {
					claims = append(claims, spotClaim(fmt.Sprintf("claim-%d", i)))
					if err := w.kube.Create(t.Context(), claims[i].DeepCopy()); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				at, most := map[price.Pool]int{}, 0
				for _, m := range w.launchTogether(t, claims...) {
					o := price.Pool{Type: m.InstanceType, Zone: m.Zone}
					at[o]++
					most = max(most, at[o])
				}
				if most > tc.most || tc.most == 8 && !tc.told && most < 6 {
					t.Errorf("%d of 8 machines are of one type in one zone: %v", most, at)
				}
				told := false
				for _, claim := range claims {
					told = told || w.events.has(telemetry.SpotShareExceeded, claim.Name)
				}
				if told != tc.told {
					t.Errorf("it is told that the share is exceeded: %v, want %v", told, tc.told)
				}
			})
		})
	}
}

// A launch that gets a part of what is offered gets it of what it would name without a share, not of what is dear.
func TestAShareIsOfWhatIsCheap(t *testing.T) {
	inWorld(t, awsmodel.Config{Types: []string{"m5*.*large", "c5*.*large", "r5*.*large"}}, nil, func(t *testing.T, w *world) {
		w.annotatePool(t, v1.SpotMaxShareAnnotationKey, "50%")
		for i := range 8 {
			if err := w.kube.Create(t.Context(), spotClaim(fmt.Sprintf("claim-%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		ms, claim := w.provider.machines, spotClaim("claim-0")
		nc := &awsv1.EC2NodeClass{}
		if err := w.kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc); err != nil {
			t.Fatal(err)
		}
		sold, err := ms.market.catalogFor(t.Context(), nc, "default")
		if err != nil {
			t.Fatal(err)
		}
		whole, err := fleet.Choose(sold.Types, claim, shape.SpotBand(0))
		if err != nil {
			t.Fatal(err)
		}
		types, done := ms.inShare(sold.Types, claim, fleet.Choose)
		defer done()
		offered, all := len(spotOffered(types, claim)), len(spotOffered(sold.Types, claim))
		if offered < 5 || 2*offered > whole.Offerings()+1 || all <= whole.Offerings() {
			t.Errorf("%d offerings are left, want half of the %d that are named without a share of the %d there are", offered, whole.Offerings(), all)
		}
	})
}

// A workload's pods count by what claims were opened for, on machines that run as on those that are launched.
func TestSpotMaxShareOfAWorkload(t *testing.T) {
	inWorld(t, awsmodel.Config{Types: []string{"m5.large", "m5a.large"}}, nil, func(t *testing.T, w *world) {
		w.annotatePool(t, v1.SpotMaxShareAnnotationKey, "50%")
		web := func(name string) *v1.NodeClaim {
			claim := spotClaim(name)
			claim.Annotations = map[string]string{v1.OpenedForAnnotationKey: "default/web=2"}
			return claim
		}
		at := map[price.Pool]int{}
		for i := range 6 { // 12 pods, one machine after the other
			_, m := w.create(t, web(fmt.Sprintf("web-%d", i)))
			at[price.Pool{Type: m.InstanceType, Zone: m.Zone}] += 2
			for j := range 3 { // of others, so that the pool has room
				w.create(t, spotClaim(fmt.Sprintf("other-%d-%d", i, j)))
			}
		}
		for o, n := range at {
			if n > 6 {
				t.Errorf("%d of 12 pods are on %v", n, o)
			}
		}
	})
}
