package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/cloud/cloudtest"
	"karpenter.sh/karpenter/clouds/upstream/example"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

func ref(name string) *v1.NodeClassReference {
	return &v1.NodeClassReference{Group: example.GroupVersion.Group, Kind: "Rack", Name: name}
}

func pool(class string) *v1.NodePool {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "p"}}
	p.Spec.Template.Spec.NodeClassRef = ref(class)
	return p
}

func claim(name string) *v1.NodeClaim {
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: cloudtest.UID(name),
		Labels: map[string]string{v1.NodePoolLabelKey: "default"}}}
	c.Spec.NodeClassRef = ref("default")
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	return c
}

// TestConformance holds every law that a provider of the interface can hold. Machines of Provisioners (Bequeath) do not exist for such
// providers.
func TestConformance(t *testing.T) {
	for name, tc := range map[string]struct {
		nameless bool
		joins    bool // every machine becomes a Node, on which the latch is kept, and its claim is written
		unheld   map[string]string
	}{
		"a provider that keeps the name of the claim": {joins: true},
		"a provider whose machines have no Nodes yet": {},
		"a provider that keeps neither name nor annotations of a claim": {nameless: true, joins: true, unheld: map[string]string{
			"a launch repeated after a crash returns the same machine": "nothing says whose the first machine is: it is an orphan, and " +
				"another one is bought after the consistency window",
			"a launch whose answer is lost is adopted by the next": "as after a crash",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cloudtest.ConformInBubble(t, func(t *testing.T) *cloudtest.World {
				r, p := newRack(), newFakeCluster()
				r.nameless = tc.nameless
				w := &cloudtest.World{
					Pool: pool("default"), BadPool: pool("missing"), Patience: 10 * time.Minute, Unheld: tc.unheld,
					RunDry:     func() { r.soldOut = true },
					LoseAnswer: func() { r.loseAnswers = 1 },
					Restart:    func(t *testing.T) cloud.Provider { return adapt(t, r, p) },
				}
				w.Claim = func(name string) *v1.NodeClaim {
					c := claim(name)
					p.api.Put(c.DeepCopy())
					return c
				}
				w.Provider = adapt(t, r, p)
				if tc.joins {
					w.Provider = withNodes{w.Provider, p, tc.nameless}
				}
				return w
			})
		})
	}
}

// withNodes has a Node join for each machine that is started, and writes the provider id onto the claim if nothing else tells whose it is.
type withNodes struct {
	cloud.Provider
	p        *fakeCluster
	nameless bool
}

func (w withNodes) Launch(ctx context.Context, c *v1.NodeClaim) (cloud.Machine, error) {
	m, err := w.Provider.Launch(ctx, c)
	if err == nil {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + c.Name}}
		n.Spec.ProviderID = m.ProviderID
		w.p.api.Put(n)
		if c = c.DeepCopy(); w.nameless {
			c.Status.ProviderID = m.ProviderID
			w.p.api.Put(c)
		}
	}
	return m, err
}

// TestLatchesOutliveTheProcess has a machine without a Node: its mark is on its NodePool, until the machine is gone.
func TestLatchesOutliveTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newRack(), newFakeCluster()
		c := claim("web")
		m, err := adapt(t, r, p).Launch(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		marks := func() int { return len(memapi.All[*v1.NodePool](p.api)[0].Annotations) }
		if err := adapt(t, r, p).SetLatch(t.Context(), m.ProviderID, true); err != nil || marks() != 1 {
			t.Fatalf("%d marks, error %v", marks(), err)
		}
		for range 2 {
			a := adapt(t, r, p)
			a.forget(nil)
			if got, err := a.Get(t.Context(), m.ProviderID); err != nil || !got.Latched {
				t.Errorf("latched = %v after a restart, error %v", got.Latched, err)
			}
		}
		if err := r.Delete(t.Context(), &karpv1.NodeClaim{Status: karpv1.NodeClaimStatus{ProviderID: m.ProviderID}}); err != nil {
			t.Fatal(err)
		}
		adapt(t, r, p)
		if marks() != 0 {
			t.Errorf("%d marks are left of a machine that is gone", marks())
		}

		m, err = adapt(t, r, p).Launch(t.Context(), claim("poolless"))
		if err != nil {
			t.Fatal(err)
		}
		p.api.Remove(pool("default"))
		a := adapt(t, r, p)
		if err := a.SetLatch(t.Context(), m.ProviderID, true); err == nil {
			t.Error("no error although the mark can be kept nowhere")
		}
		if got, err := a.Get(t.Context(), m.ProviderID); err != nil || got.Latched {
			t.Errorf("latched = %v without a mark, error %v: it would not be tried again", got.Latched, err)
		}
	})
}

func TestAClaimWhoseLaunchIsUncertainWaitsForTheConsistencyWindow(t *testing.T) {
	for name, tc := range map[string]struct {
		nameless      bool
		listLag       time.Duration
		creates, left int // calls of Create, and machines that are no orphans
	}{
		"a machine that is listed late is adopted":                    {listLag: time.Minute, creates: 1, left: 1},
		"a machine without a name is given up after the window":       {nameless: true, creates: 2, left: 1},
		"a machine that is listed after the window becomes an orphan": {listLag: 5 * time.Minute, creates: 2, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p := newRack(), newFakeCluster()
				r.nameless, r.listLag, r.loseAnswers = tc.nameless, tc.listLag, 1
				a := adapt(t, r, p)
				c := claim("web")
				p.api.Put(c)
				begun := time.Now()
				var m cloud.Machine
				err := errors.New("not asked")
				for err != nil && time.Since(begun) < 10*time.Minute {
					m, err = a.Launch(t.Context(), c)
					if all, wrong := a.List(t.Context()); err != nil && wrong == nil {
						for _, m := range all {
							if m.ClaimName == "" && !m.Awaited && time.Since(begun) < consistencyWindow {
								t.Errorf("after %v the machine %s may be taken for an orphan", time.Since(begun), m.ProviderID)
							}
						}
					}
					time.Sleep(10 * time.Second)
				}
				if err != nil || r.creates != tc.creates {
					t.Fatalf("error %v, %d calls of Create, want %d", err, r.creates, tc.creates)
				}
				known := c.DeepCopy()
				known.Status.ProviderID = m.ProviderID
				p.api.Put(known)
				time.Sleep(10 * time.Minute)
				all, err := a.List(t.Context())
				left := 0
				for _, m := range all {
					if m.ProviderID == known.Status.ProviderID && m.ClaimName == "web" {
						left++
					} else if m.Awaited {
						t.Errorf("machine %s is still awaited", m.ProviderID)
					}
				}
				if err != nil || left != tc.left || len(all) != tc.creates {
					t.Errorf("%d of %d machines are the claim's, error %v", left, len(all), err)
				}
			})
		})
	}
}

func TestAMachineThatIsNamedAfterAnotherClaimIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newRack(), newFakeCluster()
		r.nameOnly = true
		a := adapt(t, r, p)
		stray, err := withOwner(claim("gone"))
		if err != nil {
			t.Fatal(err)
		}
		if stray, err = r.Create(a.providerContext(t.Context()), stray); err != nil {
			t.Fatal(err)
		}
		seen := func() cloud.Machine {
			t.Helper()
			all, err := a.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return all[slices.IndexFunc(all, func(m cloud.Machine) bool { return m.ProviderID == stray.Status.ProviderID })]
		}
		doubt, web := claim("doubt"), claim("web")
		p.api.Put(doubt)
		p.api.Put(web)
		r.loseAnswers = 1
		if _, err := a.Launch(t.Context(), doubt); err == nil {
			t.Fatal("the answer was not lost")
		}
		if m := seen(); !m.Awaited || m.ClaimName != "" {
			t.Errorf("the machine is awaited %v, claim %q, though its name says nothing yet", m.Awaited, m.ClaimName)
		}
		if _, err := a.Launch(t.Context(), web); err != nil {
			t.Fatal(err)
		}
		if m := seen(); m.Awaited || m.ClaimName != "gone" {
			t.Errorf("the machine is awaited %v, claim %q, want gone: the provider names machines after claims", m.Awaited, m.ClaimName)
		}
	})
}

// The provider takes a minute for its types. A caller whose context ends after a second gets an error then, and another caller gets the
// answer to the first call.
func TestCallersWaitForASlowCatalogueUntilTheirContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newRack(), newFakeCluster()
		r.slow = time.Minute
		a, began := adapt(t, r, p), time.Now()
		var first *cloud.Catalog
		var waiting sync.WaitGroup
		waiting.Go(func() { first, _ = a.Catalog(t.Context(), pool("default")) })
		synctest.Wait()
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := a.Catalog(hurried, pool("default"))
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("error %v after %v, want that the deadline is exceeded after a second", err, took)
		}
		second, err := a.Catalog(t.Context(), pool("default"))
		waiting.Wait()
		if took := time.Since(began); err != nil || first == nil || second != first || took != time.Minute || r.typesAsked != 1 {
			t.Errorf("catalogue %p after %v and %d calls, error %v, want %p after a minute and one call", second, took, r.typesAsked, err, first)
		}
	})
}

func TestALaunchOfAnEarlierProcessIsUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newRack(), newFakeCluster()
		c := claim("web")
		p.api.Put(c)
		a := adapt(t, r, p)
		if _, err := a.Launch(t.Context(), c); !errors.Is(err, errOutcomeUnknown) || r.creates != 0 {
			t.Errorf("error %v after %d calls of Create, want that the outcome is unknown after none", err, r.creates)
		}
		fresh := claim("fresh")
		if _, err := a.Launch(t.Context(), fresh); err != nil {
			t.Errorf("a claim that was made since: %v", err)
		}
		time.Sleep(consistencyWindow)
		if _, err := a.Launch(t.Context(), c); err != nil || r.creates != 2 {
			t.Errorf("after the window: error %v, %d calls of Create", err, r.creates)
		}
	})
}

func TestADeletedClaimLeavesNoMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		nameless, answered bool
		lag                time.Duration
		within, left       int // seconds until the claim may go, and machines that are left
	}{
		"the launch was answered and not written down": {answered: true, within: 2},
		"the answer was lost":                          {within: 122},
		"the machine is listed late":                   {lag: time.Minute, within: 122},
		"nothing says whose the machine is":            {nameless: true, within: 121, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p := newRack(), newFakeCluster()
				a := adapt(t, r, p)
				r.nameless, r.listLag = tc.nameless, tc.lag
				if !tc.answered {
					r.loseAnswers = 1
				}
				c := claim("web")
				if settled, err := a.settled(t.Context(), c); err != nil || !settled {
					t.Errorf("a claim that was never launched has to wait: error %v", err)
				}
				if _, err := a.Launch(t.Context(), c); (err == nil) != tc.answered {
					t.Fatal(err)
				}
				took := 0
				for ; took < 300; took++ {
					if settled, err := a.settled(t.Context(), c); err != nil {
						t.Fatal(err)
					} else if settled {
						break
					}
					time.Sleep(time.Second)
				}
				all, err := r.Provider.List(t.Context())
				if took > tc.within || took == 0 || len(all) != tc.left || err != nil {
					t.Errorf("the claim may go after %d s, with %d machines left, error %v", took, len(all), err)
				}
			})
		})
	}
}

func TestRefusalsOfTheProvider(t *testing.T) {
	for name, tc := range map[string]struct {
		refuse    error
		is        func(error) bool
		uncertain bool
	}{
		"no capacity":         {cloudprovider.NewInsufficientCapacityError(errors.New("x")), as[*cloud.NoCapacityError], false},
		"class not ready":     {cloudprovider.NewNodeClassNotReadyError(errors.New("x")), as[*cloud.ClassNotReadyError], false},
		"a reason":            {cloudprovider.NewCreateError(errors.New("x"), "NoQuota", "ask for more"), as[*cloud.LaunchError], false},
		"a reason, timed out": {cloudprovider.NewCreateError(context.DeadlineExceeded, "Slow", "x"), as[error], true},
		"anything else":       {errors.New("x"), as[error], true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p := newRack(), newFakeCluster()
				r.refuse = tc.refuse
				a := adapt(t, r, p)
				if _, err := a.Launch(t.Context(), claim("web")); !tc.is(err) {
					t.Errorf("error = %v", err)
				}
				r.refuse = nil
				if _, err := a.Launch(t.Context(), claim("web")); errors.Is(err, errOutcomeUnknown) != tc.uncertain {
					t.Errorf("the next launch: %v", err)
				}
			})
		})
	}
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func TestAProviderMayGoOnAfterItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := newRack(), newFakeCluster()
		a := adapt(t, r, p)
		call, end := context.WithCancel(t.Context())
		if _, err := a.Launch(call, claim("web")); err != nil {
			t.Fatal(err)
		}
		end()
		synctest.Wait()
		if err := r.last.Err(); err != nil {
			t.Errorf("the context of Create ended with the call: %v", err)
		}
		r.slow = time.Hour
		call, end = context.WithTimeout(t.Context(), time.Minute)
		defer end()
		begun := time.Now()
		if _, err := a.Launch(call, claim("slow")); err == nil || time.Since(begun) > 2*time.Minute {
			t.Errorf("after %v: %v, want the end of the call", time.Since(begun), err)
		}
	})
}

// TestRebootsAreTheProviders asks a provider of the interface for a reboot: its answers keep their meaning.
func TestRebootsAreTheProviders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRack()
		a := adapt(t, r, newFakeCluster())
		c := claim("web")
		m, err := a.Launch(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		c.Status.ProviderID = m.ProviderID
		policies := a.RepairPolicies()
		if last := policies[len(policies)-1]; !last.Reboot || policies[0].Reboot || cloud.CheckRepairPolicies(policies) != nil {
			t.Errorf("policies = %+v", policies)
		}
		if err := errors.Join(a.MayReboot(t.Context(), c), a.Reboot(t.Context(), c, "one")); err != nil ||
			!slices.Equal(r.reboots, []string{"one"}) {
			t.Errorf("rebooted %q, error %v", r.reboots, err)
		}
		for name, tc := range map[string]struct{ says, want error }{
			"for good":          {cloudprovider.NewNodeRebootFailedError(errors.New("no right")), cloud.ErrRebootRefused},
			"because it cannot": {cloudprovider.NewNodeRebootNotImplementedError(), cloud.ErrRebootRefused},
			"for now":           {context.DeadlineExceeded, context.DeadlineExceeded},
			"as it is gone":     {cloudprovider.NewNodeClaimNotFoundError(errors.New("gone")), cloud.ErrNotFound},
		} {
			r.unwilling = tc.says
			if err := a.Reboot(t.Context(), c, "two"); !errors.Is(err, tc.want) || tc.want != cloud.ErrRebootRefused &&
				errors.Is(err, cloud.ErrRebootRefused) {
				t.Errorf("refused %s: %v, want %v", name, err, tc.want)
			}
		}
		c.Status.ProviderID = "rack:///none"
		if err := a.MayReboot(t.Context(), c); !errors.Is(err, cloud.ErrNotFound) {
			t.Errorf("a machine that is gone: %v", err)
		}
	})
}
