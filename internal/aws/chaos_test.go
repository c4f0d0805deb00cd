package aws

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

var (
	chaosSeeds = flag.Int("chaos.seeds", 10, "how many seeds the chaos test runs; package looptest runs more, with all loops")
	chaosFirst = flag.Uint64("chaos.first", 1, "the first seed of the chaos test")
)

// chaosTypes keep the catalogue of a chaotic world small, so that a hundred worlds are quick.
var chaosTypes = []string{"m5.*", "c5.*", "m6g.*"}

// A chaos is a cluster whose provider is torn down and started again at any moment, over an AWS on a bad day. Its loops are
// the smallest that keep the provider's contract: a claim is launched with the token that it carries until there is an
// answer, given up when there is no capacity, and terminated until the machine is gone; machines without claim are collected.
type chaos struct {
	t     *testing.T
	cloud *awsmodel.Cloud
	kube  client.WithWatch
	rng   *rand.Rand

	mu     sync.Mutex
	alive  *Provider
	stop   context.CancelFunc // of the provider and everything that uses it
	wait   *sync.WaitGroup
	wanted int // claims that ought to exist
	named  int
}

func newChaos(t *testing.T, seed uint64) *chaos {
	rng := rand.New(rand.NewPCG(seed, 1))
	c, err := awsmodel.New(awsmodel.Config{
		Seed: seed, Types: chaosTypes,
		Cluster: awsmodel.Cluster{Name: "demo", Endpoint: "https://k8s.example", CA: "Q0E=", Version: "1.36", ServiceCIDR: "10.100.0.0/16"},
		Faults: awsmodel.Faults{
			Throttle: true, LatencyMillis: 20 + rng.IntN(400), LagMillis: rng.IntN(5000), LostAnswers: 0.3 * rng.Float64(),
			Buckets: map[string]awsmodel.Bucket{"ec2:CreateFleet": {Size: 3, PerSecond: 1}, "ec2:TerminateInstances": {Size: 3, PerSecond: 1}, "ec2:CreateLaunchTemplate": {Size: 3, PerSecond: 1}},
			Pools:   []awsmodel.PoolRule{{Match: "*/*/us-east-1[a-c]", Depth: rng.IntN(3)}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &chaos{t: t, cloud: c, kube: apiServer(), rng: rng}
}

// start begins the provider and the loops around it. AWS may be so bad that it takes several attempts, as of a pod that
// is restarted.
func (w *chaos) start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	wait := &sync.WaitGroup{}
	w.mu.Lock()
	w.stop, w.wait = cancel, wait
	w.mu.Unlock()
	wait.Go(func() {
		for ctx.Err() == nil {
			p, err := w.provider(ctx, wait)
			if err != nil {
				sleep.For(ctx, time.Second)
				continue
			}
			w.mu.Lock()
			w.alive = p
			w.mu.Unlock()
			for _, loop := range append(p.Always(), p.Leader()...) {
				wait.Go(func() { _ = loop(ctx) })
			}
			wait.Go(func() { w.shepherd(ctx, p) })
			wait.Go(func() { w.collect(ctx, p) })
			return
		}
	})
}

func (w *chaos) provider(ctx context.Context, wait *sync.WaitGroup) (*Provider, error) {
	s := DefaultSettings()
	s.ClusterName, s.EKSControlPlane, s.ClusterCABundle = "demo", true, "Q0E="
	metrics := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds("karpenter_k8s_aws_ec2nodeclass"))
	events := telemetry.NewEvents((&eventLog{}).write, metrics)
	wait.Go(func() { _ = events.Run(ctx) })
	claims, nodes := mirrored(w.kube)
	wait.Go(func() { _ = claims.Run(ctx) })
	wait.Go(func() { _ = nodes.Run(ctx) })
	return New(ctx, s, Input{Config: w.cloud.AWSConfig(), Kube: w.kube, Claims: claims, Nodes: nodes, Metrics: metrics, Events: events, Version: "chaos"})
}

// teardown ends the provider in the middle of whatever it does.
func (w *chaos) teardown() {
	w.mu.Lock()
	stop, wait := w.stop, w.wait
	w.mu.Unlock()
	stop()
	wait.Wait()
}

// shepherd works on every claim, each on its own.
func (w *chaos) shepherd(ctx context.Context, p *Provider) {
	busy := map[string]bool{}
	var mu sync.Mutex
	var wait sync.WaitGroup
	defer wait.Wait()
	for ctx.Err() == nil {
		var list v1.NodeClaimList
		if err := w.kube.List(ctx, &list); err == nil {
			for i := range list.Items {
				claim := &list.Items[i]
				mu.Lock()
				idle := !busy[claim.Name]
				busy[claim.Name] = true
				mu.Unlock()
				if idle {
					wait.Go(func() {
						w.work(ctx, p, claim)
						mu.Lock()
						delete(busy, claim.Name)
						mu.Unlock()
					})
				}
			}
		}
		sleep.For(ctx, 500*time.Millisecond)
	}
}

// work does the next thing that a claim needs.
func (w *chaos) work(ctx context.Context, p *Provider, claim *v1.NodeClaim) {
	switch {
	case claim.DeletionTimestamp != nil && claim.Status.ProviderID != "":
		if err := p.Terminate(ctx, claim.Status.ProviderID); !errors.Is(err, cloud.ErrNotFound) {
			sleep.For(ctx, time.Second)
			return
		}
		fallthrough
	case claim.DeletionTimestamp != nil:
		claim.Finalizers = nil
		_ = w.kube.Update(ctx, claim)
	case claim.Status.ProviderID == "":
		m, err := p.Launch(ctx, claim)
		var dry *cloud.NoCapacityError
		switch {
		case errors.As(err, &dry):
			_ = w.kube.Delete(ctx, claim) // its place is taken by a new claim
			w.claim(ctx)
		case err != nil:
			sleep.For(ctx, time.Second)
		default:
			claim.Status.ProviderID = m.ProviderID
			_ = w.kube.Status().Update(ctx, claim) // if it fails, the same launch gives the same machine again
		}
	}
}

// collect stops machines that no claim owns, as control's collector does.
func (w *chaos) collect(ctx context.Context, p *Provider) {
	for ; ctx.Err() == nil; sleep.For(ctx, 10*time.Second) {
		machines, err := p.List(ctx)
		if err != nil {
			continue
		}
		var list v1.NodeClaimList
		if w.kube.List(ctx, &list) != nil {
			continue
		}
		owned := map[string]bool{}
		for _, c := range list.Items {
			owned[c.Status.ProviderID] = true
		}
		for _, m := range machines {
			if !owned[m.ProviderID] && !m.Deleting && time.Since(m.Created) > 30*time.Second {
				_ = p.Terminate(ctx, m.ProviderID)
			}
		}
	}
}

func (w *chaos) claim(ctx context.Context) {
	w.mu.Lock()
	w.named++
	c := newClaim(fmt.Sprint("default-", w.named))
	w.mu.Unlock()
	c.Finalizers = []string{v1.TerminationFinalizer}
	c.Annotations = map[string]string{v1.LaunchTokenAnnotationKey: "token-" + c.Name}
	if err := w.kube.Create(ctx, c); err != nil && ctx.Err() == nil {
		w.t.Error(err)
	}
}

func (w *chaos) claims(t *testing.T) []v1.NodeClaim {
	var list v1.NodeClaimList
	if err := w.kube.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// unsettled says what is not yet as it ought to be: every claim has one machine, every machine has a claim.
func (w *chaos) unsettled(t *testing.T) []string {
	var out []string
	owned := map[string]string{}
	n := 0
	for _, c := range w.claims(t) {
		if c.DeletionTimestamp != nil {
			out = append(out, "claim "+c.Name+" is being deleted")
			continue
		}
		n++
		id := instanceID(c.Status.ProviderID)
		if id == "" {
			out = append(out, "claim "+c.Name+" has no machine")
		} else if other := owned[id]; other != "" {
			out = append(out, "claims "+other+" and "+c.Name+" share machine "+id)
		}
		owned[id] = c.Name
	}
	if n != w.wanted {
		out = append(out, fmt.Sprintf("there are %d claims, want %d", n, w.wanted))
	}
	for _, m := range w.cloud.Alive() {
		if owned[m.ID] == "" {
			out = append(out, "machine "+m.ID+" has no claim")
		}
		delete(owned, m.ID)
	}
	for id, claim := range owned {
		if id != "" {
			out = append(out, "the machine of claim "+claim+" does not live")
		}
	}
	return out
}

// leaked says what is left over of a cluster that has gone.
func (w *chaos) leaked() []string {
	var out []string
	for _, m := range w.cloud.Alive() {
		out = append(out, "machine "+m.ID)
	}
	for _, p := range w.cloud.Templates() {
		out = append(out, "template "+p.Name)
	}
	for _, p := range w.cloud.Profiles() {
		out = append(out, "profile "+p.Name)
	}
	return out
}

const settleTime = 60 * time.Second

// TestChaosLeaksNothing lives through throttling, lost answers, describe calls that lag, dry pools and torn-down loops. A minute
// after the bad time has ended every claim has its machine and no machine is without claim; a minute after everything was
// deleted, nothing is left.
func TestChaosLeaksNothing(t *testing.T) {
	seeds := uint64(*chaosSeeds)
	if testing.Short() {
		seeds = min(seeds, 10)
	}
	for seed := *chaosFirst; seed < *chaosFirst+seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { liveThroughChaos(t, newChaos(t, seed)) })
		})
	}
}

func liveThroughChaos(t *testing.T, w *chaos) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.cloud.Run(ctx) }()
	w.start(ctx)
	w.wanted = 4 + w.rng.IntN(8)
	for range w.wanted {
		w.claim(ctx)
		time.Sleep(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
	}
	for range 2 + w.rng.IntN(3) {
		time.Sleep(time.Duration(w.rng.IntN(20000)) * time.Millisecond)
		for range w.rng.IntN(4) { // some launches are under way when the provider goes
			w.claim(ctx)
			w.wanted++
		}
		time.Sleep(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
		w.teardown()
		for range w.rng.IntN(4) {
			w.drop(t)
		}
		w.start(ctx)
	}
	if err := w.cloud.SetFaults(func(f *awsmodel.Faults) { *f = awsmodel.Faults{Throttle: true} }); err != nil {
		t.Fatal(err)
	}
	time.Sleep(settleTime)
	if bad := w.unsettled(t); len(bad) > 0 {
		t.Errorf("a minute after the bad time:\n%s", strings.Join(bad, "\n"))
	}
	for _, c := range w.claims(t) {
		if err := w.kube.Delete(ctx, &c); err != nil {
			t.Error(err)
		}
	}
	class := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if err := w.kube.Delete(ctx, class); err != nil {
		t.Error(err)
	}
	time.Sleep(settleTime)
	if bad := w.leaked(); len(bad) > 0 {
		t.Errorf("a minute after everything was deleted there are left:\n%s", strings.Join(bad, "\n"))
	}
	w.teardown()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// drop deletes any one claim, which is then wanted no longer.
func (w *chaos) drop(t *testing.T) {
	list := slices.DeleteFunc(w.claims(t), func(c v1.NodeClaim) bool { return c.DeletionTimestamp != nil })
	if len(list) == 0 {
		return
	}
	if err := w.kube.Delete(t.Context(), &list[w.rng.IntN(len(list))]); err != nil {
		t.Error(err)
	}
	w.wanted--
}
