package fakecloud_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/cloud/cloudtest"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
)

func TestConform(t *testing.T) {
	cloudtest.Conform(t, func(t *testing.T) *cloudtest.World {
		options := fakecloud.Options{
			Catalog:  shop(),
			Shutdown: 20 * time.Millisecond,
			Lag:      10 * time.Millisecond,
			Journal:  filepath.Join(t.TempDir(), "machines"),
		}
		c := open(t, options)
		return &cloudtest.World{
			Provider: c,
			Pool:     pool("default"),
			BadPool:  pool("bad"),
			Claim:    func(name string) *v1.NodeClaim { return claim(name, in(v1.CapacityTypeLabelKey, "spot", "on-demand")) },
			RunDry:   func() { c.SetStock(fakecloud.Where{}, 0) },
			LoseAnswer: func() {
				var lost atomic.Bool
				c.SetFault(func(call fakecloud.Call) fakecloud.Fault {
					return fakecloud.Fault{Lost: call.Method == fakecloud.Launch && !lost.Swap(true)}
				})
			},
			Bequeath: func(_ *testing.T, providerID, provisioner string) { c.Bequeath(providerID, provisioner) },
			Restart: func(t *testing.T) cloud.Provider {
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				return open(t, options)
			},
			Patience: 5 * time.Minute,
		}
	})
}

func TestAFaultIsAskedAboutOneCallAtATime(t *testing.T) {
	c := open(t, fakecloud.Options{Catalog: shop()})
	var asked sync.Mutex
	c.SetFault(func(fakecloud.Call) fakecloud.Fault {
		if !asked.TryLock() {
			t.Error("it is asked about two")
			return fakecloud.Fault{}
		}
		defer asked.Unlock()
		time.Sleep(time.Millisecond) // others come
		return fakecloud.Fault{}
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { _, _ = c.List(t.Context()) })
	}
	all.Wait()
}

func TestLaunchChooses(t *testing.T) {
	spotOrOnDemand := in(v1.CapacityTypeLabelKey, "spot", "on-demand")
	for name, tc := range map[string]struct {
		dry   []fakecloud.Where
		claim *v1.NodeClaim
		want  string
	}{
		"the cheapest spot machine is preferred to on-demand":                         {nil, claim("c", spotOrOnDemand), "small spot a"},
		"on-demand is bought where spot is not allowed":                               {nil, claim("c", in(v1.CapacityTypeLabelKey, "on-demand")), "small on-demand a"},
		"a reservation that fits is used before spot":                                 {nil, claim("c", in(v1.CapacityTypeLabelKey, "spot", "on-demand", "reserved"), cpu("3")), "large reserved b"},
		"a machine must hold the requests":                                            {nil, claim("c", spotOrOnDemand, cpu("3")), "large spot a"},
		"a zone is kept":                                                              {nil, claim("c", spotOrOnDemand, in(corev1.LabelTopologyZone, "b")), "small spot b"},
		"a dry zone is avoided":                                                       {[]fakecloud.Where{{Zone: "a"}}, claim("c", spotOrOnDemand), "small spot b"},
		"an exotic type is not bought, however cheap, where an ordinary one would do": {nil, claim("c", in(v1.CapacityTypeLabelKey, "on-demand"), in(corev1.LabelInstanceTypeStable, "metal", "large")), "large on-demand a"},
		"an exotic type is bought where nothing else would do":                        {nil, claim("c", in(v1.CapacityTypeLabelKey, "on-demand"), in(corev1.LabelInstanceTypeStable, "metal")), "metal on-demand a"},
		"spot dearer than on-demand is not bought":                                    {nil, claim("c", spotOrOnDemand, in(corev1.LabelInstanceTypeStable, "gold")), "gold on-demand a"},
		"numbers are compared as numbers":                                             {nil, claim("c", v1.NodeSelectorRequirementWithMinValues{Key: "cpus", Operator: corev1.NodeSelectorOpGt, Values: []string{"3"}}, in(v1.CapacityTypeLabelKey, "spot")), "large spot a"},
		"a label that types lack is respected":                                        {nil, claim("c", v1.NodeSelectorRequirementWithMinValues{Key: "gpu", Operator: corev1.NodeSelectorOpExists}, in(v1.CapacityTypeLabelKey, "on-demand")), "metal on-demand a"},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, fakecloud.Options{Catalog: shop()})
			for _, w := range tc.dry {
				c.SetStock(w, 0)
			}
			m, err := c.Launch(t.Context(), tc.claim)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(m.InstanceType, " ", m.CapacityType, " ", m.Zone); got != tc.want {
				t.Errorf("bought %s, want %s", got, tc.want)
			}
		})
	}
}

func TestReservationIsUsedUp(t *testing.T) {
	c := open(t, fakecloud.Options{Catalog: shop()})
	var got []string
	for i := range 3 {
		m, err := c.Launch(t.Context(), claim(fmt.Sprint("r", i), in(v1.CapacityTypeLabelKey, "reserved")))
		if err != nil {
			got = append(got, "none")
			continue
		}
		got = append(got, m.CapacityType)
	}
	if want := "reserved reserved none"; strings.Join(got, " ") != want {
		t.Errorf("three claims got %v, want %s: the reservation holds two", got, want)
	}
}

func TestMachinesBootAndStopOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []string
		start := time.Now()
		note := func(what string) func(cloud.Machine) {
			return func(m cloud.Machine) {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, fmt.Sprint(what, " ", m.ClaimName, " at ", time.Since(start)))
			}
		}
		c := open(t, fakecloud.Options{
			Catalog: shop(), Started: note("started"), Stopped: note("stopped"),
			Boot:     func(cloud.Machine) time.Duration { return 2 * time.Second },
			Shutdown: 5 * time.Second,
		})
		m, err := c.Launch(t.Context(), claim("c"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		for err == nil {
			err = c.Terminate(t.Context(), m.ProviderID)
			time.Sleep(time.Second)
		}
		if !errors.Is(err, cloud.ErrNotFound) {
			t.Errorf("terminate ended with %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if got, want := strings.Join(log, ", "), "started c at 2s, stopped c at 15s"; got != want {
			t.Errorf("log = %s, want %s", got, want)
		}
	})
}

func TestDryOfferingsComeBackAfterThreeMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, fakecloud.Options{Catalog: shop()})
		full, _ := c.Catalog(t.Context(), pool("default"))
		c.SetStock(fakecloud.Where{Type: "small"}, 0)
		if _, err := c.Launch(t.Context(), claim("c", in(corev1.LabelInstanceTypeStable, "small"))); err == nil {
			t.Fatal("a dry type was launched")
		}
		if now, _ := c.Catalog(t.Context(), pool("default")); now == full {
			t.Error("the catalogue does not know what ran dry")
		}
		time.Sleep(3*time.Minute + time.Second)
		if now, _ := c.Catalog(t.Context(), pool("default")); now != full {
			t.Error("after three minutes the catalogue still leaves out what ran dry")
		}
	})
}

func TestJournalSurvivesATornLine(t *testing.T) {
	name := filepath.Join(t.TempDir(), "machines")
	options := fakecloud.Options{Catalog: shop(), Journal: name}
	c := open(t, options)
	if _, err := c.Launch(t.Context(), claim("one")); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(`{"ProviderID":"torn`)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	c = open(t, options)
	if _, err := c.Launch(t.Context(), claim("two")); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(open(t, options).Machines()); n != 2 {
		t.Errorf("%d machines after the second start, want 2", n)
	}
}

func open(t *testing.T, o fakecloud.Options) *fakecloud.Cloud {
	t.Helper()
	c, err := fakecloud.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func pool(name string) *v1.NodePool {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Template.Spec.NodeClassRef = ref(name)
	return p
}

func ref(name string) *v1.NodeClassReference {
	return &v1.NodeClassReference{Group: fakecloud.NodeClass.Group, Kind: fakecloud.NodeClass.Kind, Name: name}
}

// claim makes a claim of pool default. What follows the name are requirements and requests.
func claim(name string, parts ...any) *v1.NodeClaim {
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: cloudtest.UID(name), Labels: map[string]string{v1.NodePoolLabelKey: "default"},
	}}
	c.Spec.NodeClassRef = ref("default")
	for _, p := range parts {
		switch p := p.(type) {
		case v1.NodeSelectorRequirementWithMinValues:
			c.Spec.Requirements = append(c.Spec.Requirements, p)
		case corev1.ResourceList:
			c.Spec.Resources.Requests = p
		}
	}
	return c
}

func cpu(n string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
}

func in(key string, values ...string) v1.NodeSelectorRequirementWithMinValues {
	return v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// shop sells three ordinary types and an exotic one, for pools with the class "default".
func shop() func(*v1.NodePool) (*cloud.Catalog, error) {
	catalog := &cloud.Catalog{Types: []*cloud.InstanceType{
		kind("gold", "8", false, offer("spot", "a", 0.9), offer("on-demand", "a", 0.8)),
		kind("large", "4", false, offer("spot", "a", 0.04), offer("spot", "b", 0.05), offer("on-demand", "a", 0.2), reserved("b", 2)),
		kind("metal", "8", true, offer("on-demand", "a", 0.01)),
		kind("small", "2", false, offer("spot", "a", 0.02), offer("spot", "b", 0.03), offer("on-demand", "a", 0.1), offer("on-demand", "b", 0.1)),
	}}
	return func(p *v1.NodePool) (*cloud.Catalog, error) {
		if p.Spec.Template.Spec.NodeClassRef.Name != "default" {
			return nil, &cloud.ClassNotReadyError{Err: errors.New("no such class")}
		}
		return catalog, nil
	}
}

func kind(name, cpus string, exotic bool, offerings ...cloud.Offering) *cloud.InstanceType {
	t := &cloud.InstanceType{
		Name:     name,
		Exotic:   exotic,
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus), corev1.ResourceMemory: resource.MustParse("8Gi")},
		Overhead: cloud.Overhead{KubeReserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
		Labels: map[string][]string{
			corev1.LabelInstanceTypeStable: {name}, corev1.LabelArchStable: {"amd64"}, "cpus": {cpus}, "gpu": {},
		},
		Offerings: offerings,
	}
	if exotic {
		t.Labels["gpu"] = []string{"yes"}
	}
	for _, o := range offerings {
		for k, v := range o.Labels {
			t.Labels[k] = append(t.Labels[k], v)
		}
	}
	return t
}

func offer(capacityType, zone string, price float64) cloud.Offering {
	return cloud.Offering{
		Labels:    map[string]string{v1.CapacityTypeLabelKey: capacityType, corev1.LabelTopologyZone: zone},
		Price:     cloud.FromDollars(price),
		Available: true,
	}
}

func reserved(zone string, n int) cloud.Offering {
	o := offer(v1.CapacityTypeReserved, zone, 0)
	o.Labels["reservation"], o.Reserved = "cr-1", n
	return o
}
