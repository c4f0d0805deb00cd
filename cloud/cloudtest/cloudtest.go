// Package cloudtest holds the tests that every cloud.Provider passes: the laws of the contract, each as one test.
//
// A provider's own test calls Conform with a function that makes a fresh world. The tests use the clock of the machine,
// so a world boots and stops its machines fast. ConformInBubble lives in simulated time, for a cloud that needs no network: there
// machines may take as long as real ones, and a slow computer changes nothing.
package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// A World is a provider with one pool whose node class is ready, and the means to bring it into trouble.
type World struct {
	Provider cloud.Provider
	Pool     *v1.NodePool
	// Claim returns a claim of Pool that any type of its catalogue can serve. The UID is made from the name.
	Claim func(name string) *v1.NodeClaim
	// BadPool is a pool whose node class does not exist.
	BadPool *v1.NodePool
	// RunDry takes away the stock that claims would be served from.
	RunDry func()
	// LoseAnswer makes the next launch act and then fail with an error that leaves the outcome unknown; nil where the cloud cannot.
	LoseAnswer func()
	// Bequeath makes a running machine look as if a Karpenter without NodeClaims launched for a Provisioner; nil where none ever did.
	Bequeath func(t *testing.T, providerID, provisioner string)
	// Restart returns a provider for the same cloud that remembers nothing, as after a crash.
	Restart func(*testing.T) cloud.Provider
	// Patience is how long the cloud may take to stop a machine or to show it.
	Patience time.Duration
	// Unheld names laws that the cloud cannot hold, each with the reason. They are not tested.
	Unheld map[string]string
}

// UID is the identity of the claim that World.Claim makes for a name.
func UID(name string) types.UID {
	return types.UID("00000000-0000-4000-8000-" + fmt.Sprintf("%012x", name))
}

// Conform tests the laws. newForTest makes a fresh world for each.
func Conform(t *testing.T, newForTest func(*testing.T) *World) {
	t.Helper()
	for _, law := range laws {
		t.Run(law.name, func(t *testing.T) {
			t.Parallel()
			check(t, law, newForTest(t))
		})
	}
}

// ConformInBubble is Conform with each law in a bubble of simulated time.
func ConformInBubble(t *testing.T, newForTest func(*testing.T) *World) {
	t.Helper()
	for _, law := range laws {
		t.Run(law.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { check(t, law, newForTest(t)) })
		})
	}
}

// check tests one law, unless the world cannot hold it.
func check(t *testing.T, l law, w *World) {
	for name := range w.Unheld {
		if !slices.ContainsFunc(laws, func(l law) bool { return l.name == name }) {
			t.Errorf("there is no law %q", name)
		}
	}
	if why := w.Unheld[l.name]; why != "" {
		t.Logf("not held: %s", why)
		return
	}
	l.test(t, w)
}

// A law is a test of one sentence of the contract.
type law struct {
	name string
	test func(*testing.T, *World)
}

// laws is the contract, in the order of its methods.
var laws = []law{
	{"the name and the node class kinds are constant and not empty", constant},
	{"the same catalogue pointer is returned while nothing changed", samePointer},
	{"the catalogue is sorted and every offering has a zone, a capacity type and a price", wellFormed},
	{"the catalogue of a pool without its node class is refused as not ready", notReady},
	{"a launched machine is what the claim asks for and says so in its labels", launchFits},
	{"a repeated launch returns the same machine", launchTwice},
	{"a launch repeated after a crash returns the same machine", launchAfterCrash},
	{"launches of one claim at the same time start one machine", launchAtOnce},
	{"claims of different names get different machines", launchMany},
	{"a launch whose answer is lost is adopted by the next", lostAnswer},
	{"without stock a launch says so and leaves nothing behind, and the catalogue learns it", dry},
	{"a cancelled context ends a call", cancelled},
	{"a machine is shown by Get and List with the name of its claim", shown},
	{"a machine that was never launched is not found", unknown},
	{"terminate can be repeated and ends with not found", terminate},
	{"a stopping machine is deleting or gone, never running", stopping},
	{"a latched machine is shown as latched, also after a crash, until the latch is taken off", latched},
	{"machines of Provisioners are inherited, are not listed, and no others are", inherited},
	{"an adopted machine is one of ours, also after a crash, and still inherited", adopted},
	{"nothing is adopted but what was inherited and is of no other pool", onlyInherited},
	{"a fresh machine has not drifted", fresh},
	{"repair policies are sensible", repair},
	{"a reboot keeps the machine, and one that is gone is not rebooted", reboot},
}

func constant(t *testing.T, w *World) {
	if first, second := w.Provider.Name(), w.Provider.Name(); first == "" || first != second {
		t.Errorf("Name = %q, then %q", first, second)
	}
	kinds := w.Provider.NodeClassKinds()
	if len(kinds) == 0 || !slices.Equal(kinds, w.Provider.NodeClassKinds()) {
		t.Errorf("NodeClassKinds = %v", kinds)
	}
	for _, k := range kinds {
		if k.Group == "" || k.Version == "" || k.Kind == "" {
			t.Errorf("incomplete kind %v", k)
		}
	}
}

func samePointer(t *testing.T, w *World) {
	first, second := w.catalog(t), w.catalog(t)
	if first != second {
		t.Error("two calls of Catalog returned different pointers although nothing changed")
	}
}

func wellFormed(t *testing.T, w *World) {
	catalog := w.catalog(t)
	if len(catalog.Types) == 0 {
		t.Fatal("the catalogue is empty")
	}
	if !slices.IsSortedFunc(catalog.Types, func(a, b *cloud.InstanceType) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	}) {
		t.Error("types are not sorted by name, or a name is there twice")
	}
	for _, kind := range catalog.Types {
		checkType(t, kind)
	}
}

func checkType(t *testing.T, kind *cloud.InstanceType) {
	t.Helper()
	for name, q := range kind.Capacity {
		if q.Sign() < 0 {
			t.Errorf("%s has negative capacity %s", kind.Name, name)
		}
	}
	seen := map[string]bool{}
	for i := range kind.Offerings {
		o := &kind.Offerings[i]
		if o.Zone() == "" || o.CapacityType() == "" || o.Price < 0 || (o.Price == 0 && o.CapacityType() != v1.CapacityTypeReserved) {
			t.Errorf("%s has an offering without zone, capacity type or price: %+v", kind.Name, o)
		}
		key := fmt.Sprint(o.Labels)
		if seen[key] {
			t.Errorf("%s has two offerings with the labels %v", kind.Name, o.Labels)
		}
		seen[key] = true
		for label, value := range o.Labels {
			if !slices.Contains(kind.Labels[label], value) {
				t.Errorf("%s: label %s=%s of an offering is not among the labels of the type", kind.Name, label, value)
			}
		}
	}
}

func notReady(t *testing.T, w *World) {
	_, err := w.Provider.Catalog(t.Context(), w.BadPool)
	if !is[*cloud.ClassNotReadyError](err) {
		t.Errorf("error = %v, want ClassNotReadyError", err)
	}
}

func launchFits(t *testing.T, w *World) {
	claim := w.Claim("fits")
	m := w.launch(t, w.Provider, claim)
	if m.ProviderID == "" || m.InstanceType == "" || m.Zone == "" || m.CapacityType == "" || m.Created.IsZero() {
		t.Errorf("the machine is incomplete: %+v", m)
	}
	kind := typeNamed(w.catalog(t), m.InstanceType)
	if kind == nil {
		t.Fatalf("type %q is not in the catalogue", m.InstanceType)
	}
	if !slices.ContainsFunc(kind.Offerings, func(o cloud.Offering) bool {
		return o.Zone() == m.Zone && o.CapacityType() == m.CapacityType
	}) {
		t.Errorf("%s is not offered in %s as %s", m.InstanceType, m.Zone, m.CapacityType)
	}
	for key, value := range m.Labels {
		if known, ok := kind.Labels[key]; ok && !slices.Contains(known, value) {
			t.Errorf("label %s=%s is not one that the catalogue announced: %v", key, value, known)
		}
	}
	if m.Labels[v1.CapacityTypeLabelKey] != m.CapacityType {
		t.Errorf("labels %v do not say the capacity type %s", m.Labels, m.CapacityType)
	}
	for name, want := range claim.Spec.Resources.Requests {
		if have := m.Allocatable[name]; have.Cmp(want) < 0 {
			t.Errorf("allocatable %s = %s, want at least %s", name, have.String(), want.String())
		}
		if total, have := m.Capacity[name], m.Allocatable[name]; total.Cmp(have) < 0 {
			t.Errorf("capacity %s = %s is less than allocatable %s", name, total.String(), have.String())
		}
	}
}

func launchTwice(t *testing.T, w *World) {
	claim := w.Claim("twice")
	first, second := w.launch(t, w.Provider, claim), w.launch(t, w.Provider, claim)
	if first.ProviderID != second.ProviderID {
		t.Errorf("the second launch returned %s, the first %s", second.ProviderID, first.ProviderID)
	}
	w.wantMachines(t, w.Provider, 1)
}

func launchAfterCrash(t *testing.T, w *World) {
	claim := w.Claim("crash")
	first := w.launch(t, w.Provider, claim)
	restarted := w.Restart(t)
	second := w.launch(t, restarted, claim)
	if first.ProviderID != second.ProviderID {
		t.Errorf("the launch after the crash returned %s, the first %s", second.ProviderID, first.ProviderID)
	}
	w.wantMachines(t, restarted, 1)
}

func launchAtOnce(t *testing.T, w *World) {
	const callers = 5
	var ids [callers]string
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() {
			m, err := w.Provider.Launch(t.Context(), w.Claim("at-once"))
			if err != nil {
				t.Errorf("launch %d: %v", i, err)
			}
			ids[i] = m.ProviderID
		})
	}
	wait.Wait()
	if distinct := slices.Compact(slices.Sorted(slices.Values(ids[:]))); len(distinct) != 1 {
		t.Errorf("machines = %v, want one", distinct)
	}
}

func launchMany(t *testing.T, w *World) {
	ids := map[string]bool{}
	for i := range 5 {
		ids[w.launch(t, w.Provider, w.Claim(fmt.Sprintf("many-%d", i))).ProviderID] = true
	}
	if len(ids) != 5 {
		t.Errorf("%d machines for 5 claims", len(ids))
	}
	w.wantMachines(t, w.Provider, 5)
}

func lostAnswer(t *testing.T, w *World) {
	if w.LoseAnswer == nil {
		return
	}
	claim := w.Claim("lost")
	w.LoseAnswer()
	if _, err := w.Provider.Launch(t.Context(), claim); err == nil {
		t.Fatal("the answer was not lost")
	}
	w.launch(t, w.Provider, claim)
	w.wantMachines(t, w.Provider, 1)
}

func dry(t *testing.T, w *World) {
	before := available(w.catalog(t))
	w.RunDry()
	_, err := w.Provider.Launch(t.Context(), w.Claim("dry"))
	if !is[*cloud.NoCapacityError](err) {
		t.Fatalf("error = %v, want NoCapacityError", err)
	}
	w.wantMachines(t, w.Provider, 0)
	if after := available(w.catalog(t)); after >= before {
		t.Errorf("%d offerings were available before and %d after the launch that found none", before, after)
	}
}

func available(c *cloud.Catalog) (n int) {
	for _, t := range c.Types {
		for i := range t.Offerings {
			if t.Offerings[i].Available {
				n++
			}
		}
	}
	return n
}

func cancelled(t *testing.T, w *World) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Provider.Launch(ctx, w.Claim("cancelled")); !errors.Is(err, context.Canceled) {
		t.Errorf("Launch = %v, want context.Canceled", err)
	}
	if _, err := w.Provider.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("List = %v, want context.Canceled", err)
	}
}

func shown(t *testing.T, w *World) {
	want := w.launch(t, w.Provider, w.Claim("shown"))
	w.eventually(t, "Get shows the machine", func() error {
		got, err := w.Provider.Get(t.Context(), want.ProviderID)
		return cmpMachine(got, want, err)
	})
	w.eventually(t, "List shows the machine", func() error {
		all, err := w.Provider.List(t.Context())
		if err != nil || len(all) != 1 {
			return fmt.Errorf("%d machines, error %w", len(all), err)
		}
		return cmpMachine(all[0], want, nil)
	})
}

func cmpMachine(got, want cloud.Machine, err error) error {
	type facts struct{ id, claim, kind, zone, capacityType string }
	of := func(m cloud.Machine) facts {
		return facts{m.ProviderID, m.ClaimName, m.InstanceType, m.Zone, m.CapacityType}
	}
	if err != nil {
		return err
	}
	if of(got) != of(want) || got.Deleting || got.ClaimName == "" {
		return fmt.Errorf("machine = %+v (deleting %v), want %+v", of(got), got.Deleting, of(want))
	}
	return nil
}

func unknown(t *testing.T, w *World) {
	m := w.launch(t, w.Provider, w.Claim("unknown"))
	id := m.ProviderID[:len(m.ProviderID)-1] + "x"
	if _, err := w.Provider.Get(t.Context(), id); !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("Get = %v, want ErrNotFound", err)
	}
	if err := w.Provider.Terminate(t.Context(), id); !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("Terminate = %v, want ErrNotFound", err)
	}
}

func terminate(t *testing.T, w *World) {
	m := w.launch(t, w.Provider, w.Claim("terminate"))
	w.eventually(t, "Terminate says not found", func() error {
		err := w.Provider.Terminate(t.Context(), m.ProviderID)
		if errors.Is(err, cloud.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("still there, error %w", err)
	})
	if _, err := w.Provider.Get(t.Context(), m.ProviderID); !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("Get = %v, want ErrNotFound", err)
	}
	w.wantMachines(t, w.Provider, 0)
}

func stopping(t *testing.T, w *World) {
	m := w.launch(t, w.Provider, w.Claim("stopping"))
	if err := w.Provider.Terminate(t.Context(), m.ProviderID); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "the machine is deleting or gone", func() error {
		got, err := w.Provider.Get(t.Context(), m.ProviderID)
		if errors.Is(err, cloud.ErrNotFound) || err == nil && got.Deleting {
			return nil
		}
		return fmt.Errorf("running, error %w", err)
	})
}

func latched(t *testing.T, w *World) {
	m := w.launch(t, w.Provider, w.Claim("latched"))
	p := w.Provider
	for _, want := range []bool{false, true, true, false, false} {
		if want || m.Latched {
			w.eventually(t, "the latch is set", func() error { return p.SetLatch(t.Context(), m.ProviderID, want) })
		}
		if want {
			p = w.Restart(t)
		}
		w.eventually(t, fmt.Sprintf("Get and List say latched = %t", want), func() error {
			one, err := p.Get(t.Context(), m.ProviderID)
			if err != nil || one.Latched != want {
				return fmt.Errorf("latched = %t by Get, error %v", one.Latched, err)
			}
			all, err := p.List(t.Context())
			if err != nil || len(all) != 1 || all[0].Latched != want {
				return fmt.Errorf("machines = %+v by List, error %v", all, err)
			}
			return nil
		})
		m.Latched = want
	}
	if err := p.SetLatch(t.Context(), m.ProviderID+"0", true); !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("SetLatch of a machine that is not there = %v, want ErrNotFound", err)
	}
}

// provisioner is whose machine is inherited.
const provisioner = "web"

// bequest is a machine of our own, an inherited machine if the cloud has such, and a provider that knows of both what the cloud says.
func (w *World) bequest(t *testing.T) (p cloud.Provider, own, old string) {
	t.Helper()
	own = w.launch(t, w.Provider, w.Claim("own")).ProviderID
	if w.Bequeath != nil {
		old = w.launch(t, w.Provider, w.Claim("old")).ProviderID
		w.Bequeath(t, old, provisioner)
	}
	return w.Restart(t), own, old
}

// A bond says whose a machine is.
type bond struct{ id, provisioner, pool, claim string }

func bonds(machines []cloud.Machine, err error) ([]bond, error) {
	var out []bond
	for _, m := range machines {
		if !m.Deleting {
			out = append(out, bond{m.ProviderID, m.Provisioner, m.PoolName, m.ClaimName})
		}
	}
	slices.SortFunc(out, func(a, b bond) int { return strings.Compare(a.id, b.id) })
	return out, err
}

// wantBonds waits until Inherited and List show these machines.
func (w *World) wantBonds(t *testing.T, p cloud.Provider, inherited, listed []bond) {
	t.Helper()
	for _, q := range []struct {
		what string
		ask  func(context.Context) ([]cloud.Machine, error)
		want []bond
	}{{"Inherited", p.Inherited, inherited}, {"List", p.List, listed}} {
		slices.SortFunc(q.want, func(a, b bond) int { return strings.Compare(a.id, b.id) })
		w.eventually(t, fmt.Sprintf("%s shows %v", q.what, q.want), func() error {
			got, err := bonds(q.ask(t.Context()))
			if err != nil || !slices.Equal(got, q.want) {
				return fmt.Errorf("it shows %v, error %w", got, err)
			}
			return nil
		})
	}
}

// wantRefused waits until a machine is refused to a claim.
func (w *World) wantRefused(t *testing.T, p cloud.Provider, claim *v1.NodeClaim, providerID string) {
	t.Helper()
	w.eventually(t, "Adopt says not found", func() error {
		m, err := p.Adopt(t.Context(), claim, providerID)
		if errors.Is(err, cloud.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("machine %+v, error %w", m, err)
	})
}

// adopt gives a machine to a claim.
func (w *World) adopt(t *testing.T, p cloud.Provider, claim *v1.NodeClaim, providerID string) {
	t.Helper()
	w.eventually(t, "Adopt returns the machine", func() error {
		m, err := p.Adopt(t.Context(), claim, providerID)
		if err != nil || m.ProviderID != providerID || m.ClaimName != claim.Name || m.PoolName != w.Pool.Name {
			return fmt.Errorf("machine %s of claim %q and pool %q, error %w", m.ProviderID, m.ClaimName, m.PoolName, err)
		}
		return nil
	})
}

func inherited(t *testing.T, w *World) {
	p, own, old := w.bequest(t)
	var want []bond
	if old != "" {
		want = []bond{{id: old, provisioner: provisioner}}
	}
	w.wantBonds(t, p, want, []bond{{own, "", w.Pool.Name, "own"}})
}

func adopted(t *testing.T, w *World) {
	p, own, old := w.bequest(t)
	if old == "" {
		return
	}
	heir := w.Claim("heir")
	ours, theirs := bond{own, "", w.Pool.Name, "own"}, bond{old, provisioner, w.Pool.Name, heir.Name}
	w.adopt(t, p, heir, old)
	w.wantBonds(t, p, []bond{theirs}, []bond{ours, theirs})
	p = w.Restart(t)
	w.adopt(t, p, heir, old)
	w.wantBonds(t, p, []bond{theirs}, []bond{ours, theirs})
	w.eventually(t, "it can be stopped", func() error {
		err := p.Terminate(t.Context(), old)
		if errors.Is(err, cloud.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("still there, error %w", err)
	})
	w.wantRefused(t, p, heir, old)
	w.wantBonds(t, p, nil, []bond{ours})
}

func onlyInherited(t *testing.T, w *World) {
	p, own, old := w.bequest(t)
	heir := w.Claim("heir")
	w.wantRefused(t, p, heir, own)
	w.wantRefused(t, p, heir, own[:len(own)-1]+"x")
	if old == "" {
		return
	}
	w.adopt(t, p, heir, old)
	stranger := w.Claim("stranger")
	stranger.Labels = merged(stranger.Labels, map[string]string{v1.NodePoolLabelKey: "another"})
	w.wantRefused(t, p, stranger, old)
	theirs := bond{old, provisioner, w.Pool.Name, heir.Name}
	w.wantBonds(t, p, []bond{theirs}, []bond{{own, "", w.Pool.Name, "own"}, theirs})
}

func fresh(t *testing.T, w *World) {
	claim := w.Claim("fresh")
	m := w.launch(t, w.Provider, claim)
	claim.Status.ProviderID, claim.Status.ImageID = m.ProviderID, m.ImageID
	claim.Labels = merged(m.Labels, claim.Labels)
	claim.Annotations = merged(claim.Annotations, m.Annotations)
	w.eventually(t, "no drift", func() error {
		reason, err := w.Provider.Drifted(t.Context(), claim)
		if err != nil || reason != "" {
			return fmt.Errorf("drift %q, error %w", reason, err)
		}
		return nil
	})
}

func repair(t *testing.T, w *World) {
	if err := cloud.CheckRepairPolicies(w.Provider.RepairPolicies()); err != nil {
		t.Error(err)
	}
	for _, p := range w.Provider.RepairPolicies() {
		if p.ConditionType == "" || p.Status == "" || p.Toleration <= 0 || p.Grace != nil && *p.Grace < 0 {
			t.Errorf("policy %+v", p)
		}
	}
}

func reboot(t *testing.T, w *World) {
	p, ok := w.Provider.(cloud.Rebooter)
	if !ok {
		t.Skip("the provider reboots no machines")
	}
	claim := w.Claim("reboot")
	claim.Status.ProviderID = w.launch(t, w.Provider, claim).ProviderID
	w.eventually(t, "the reboot is accepted", func() error {
		if err := p.MayReboot(t.Context(), claim); err != nil {
			return err
		}
		return p.Reboot(t.Context(), claim, "one")
	})
	w.wantMachines(t, w.Provider, 1)
	w.eventually(t, "the machine is gone", func() error {
		if err := w.Provider.Terminate(t.Context(), claim.Status.ProviderID); !errors.Is(err, cloud.ErrNotFound) {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
	w.eventually(t, "a machine that is gone is not rebooted", func() error {
		for _, err := range []error{p.MayReboot(t.Context(), claim), p.Reboot(t.Context(), claim, "two")} {
			if !errors.Is(err, cloud.ErrNotFound) && !errors.Is(err, cloud.ErrRebootRefused) {
				return fmt.Errorf("error %w, want ErrNotFound", err)
			}
		}
		return nil
	})
}

func merged(base, over map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{base, over} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

func (w *World) catalog(t *testing.T) *cloud.Catalog {
	t.Helper()
	c, err := w.Provider.Catalog(t.Context(), w.Pool)
	if err != nil {
		t.Fatalf("catalogue: %v", err)
	}
	return c
}

func (w *World) launch(t *testing.T, p cloud.Provider, claim *v1.NodeClaim) cloud.Machine {
	t.Helper()
	m, err := p.Launch(t.Context(), claim)
	if err != nil {
		t.Fatalf("launch %s: %v", claim.Name, err)
	}
	return m
}

func (w *World) wantMachines(t *testing.T, p cloud.Provider, n int) {
	t.Helper()
	w.eventually(t, fmt.Sprintf("List shows %d machines", n), func() error {
		all, err := p.List(t.Context())
		all = slices.DeleteFunc(all, func(m cloud.Machine) bool { return m.Deleting })
		if err != nil || len(all) != n {
			return fmt.Errorf("%d machines, error %w", len(all), err)
		}
		return nil
	})
}

// eventually repeats a question until it is answered or the world's patience ends.
func (w *World) eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(w.Patience)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, w.Patience, err)
		}
		time.Sleep(wait)
	}
}

func typeNamed(c *cloud.Catalog, name string) *cloud.InstanceType {
	i := slices.IndexFunc(c.Types, func(t *cloud.InstanceType) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return c.Types[i]
}

// is reports whether err is or wraps an error of type E.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
