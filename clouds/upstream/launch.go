package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/kit/ztime"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// A launch is what is known of the launch of one claim. It is forgotten some time after the claim is gone.
type launch struct {
	turn  turn // of calls for the claim
	claim *v1.NodeClaim
	begun time.Time

	// The rest is guarded by the adapter's mutex.
	machine        *cloud.Machine // the provider's answer
	asked          time.Time      // since when the provider may have been asked for a machine
	uncertainSince time.Time      // since when the provider may have a machine of the claim that we do not know of; zero if it has none
}

// errOutcomeUnknown is constant, so that a claim that waits is not written again and again.
var errOutcomeUnknown = errors.New("an earlier launch may have started a machine that the provider does not list yet; " +
	"the claim waits until the consistency window has passed")

// watchEarlierLaunches reads what an earlier process has left: latches, and claims that it may have launched, which are those that have no
// machine when this process begins to lead.
// It runs for as long as the process leads. Launch waits until the claims are known.
func (a *adapter) watchEarlierLaunches(ctx context.Context) error {
	for {
		var claims v1.NodeClaimList
		err := errors.Join(a.client.List(ctx, &claims), a.readLatches(ctx))
		if err == nil {
			a.markUncertain(claims.Items)
			break
		}
		telemetry.Log(ctx).Error("read what an earlier process has left", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	close(a.claimsKnown)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Minute):
			a.forgetLaunches()
		}
	}
}

func (a *adapter) markUncertain(all []v1.NodeClaim) {
	now := time.Now()
	for i := range all {
		if c := &all[i]; c.Status.ProviderID == "" && cloud.Serves(a, c.Spec.NodeClassRef) {
			l := a.launchOf(c)
			a.mu.Lock()
			l.asked, l.uncertainSince = c.CreationTimestamp.Time, now
			a.mu.Unlock()
		}
	}
}

// forgetLaunches forgets launches of claims that are gone.
func (a *adapter) forgetLaunches() {
	exists := map[types.UID]bool{}
	for c := range a.claims.Each() {
		exists[c.UID] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.launches, func(uid types.UID, l *launch) bool { return !exists[uid] && time.Since(l.begun) > time.Hour })
}

func (a *adapter) launchOf(claim *v1.NodeClaim) *launch {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.launches[claim.UID]
	if l == nil {
		l = &launch{turn: newTurn(), claim: claim, begun: time.Now()}
		a.launches[claim.UID] = l
	}
	return l
}

// clockSkew is by how much the provider's clock may differ from ours.
const clockSkew = 30 * time.Second

// unfinished returns the claims of machines that Create returned, and from which launch time on a machine that bears no name may be that
// of a launch whose answer is not known; zero if there is no such launch.
func (a *adapter) unfinished() (launched map[string]*v1.NodeClaim, awaitedFrom time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	launched = map[string]*v1.NodeClaim{}
	for _, l := range a.launches {
		if l.machine != nil && time.Since(l.begun) < time.Hour {
			launched[l.machine.ProviderID] = l.claim
		}
		if !l.uncertainSince.IsZero() && time.Since(l.uncertainSince) < a.window {
			awaitedFrom = ztime.Sooner(awaitedFrom, l.asked.Add(-clockSkew))
		}
	}
	return launched, awaitedFrom
}

// take waits until it is known which claims an earlier process may have launched, and until no other call works for the claim. The caller
// has to release the launch.
func (a *adapter) take(ctx context.Context, claim *v1.NodeClaim) (*launch, error) {
	l := a.launchOf(claim)
	select {
	case <-a.claimsKnown:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return l, l.turn.take(ctx)
}

// settled reports whether it is certain that no machine is left of a deleted claim whose status names none. It stops the machine of a
// launch that was not written down. While such a machine may still appear in the list, the claim stays: a machine whose claim is gone
// could not be told from one of another cluster.
func (a *adapter) settled(ctx context.Context, claim *v1.NodeClaim) (bool, error) {
	l, err := a.take(ctx, claim)
	if err != nil {
		return false, err
	}
	defer l.turn.release()
	m := l.machine
	if m == nil && l.uncertainSince.IsZero() {
		return true, nil
	}
	if m == nil {
		if m, err = a.find(ctx, claim); err != nil {
			return false, fmt.Errorf("look for a machine of the claim: %w", err)
		}
	}
	if m == nil {
		return time.Since(l.uncertainSince) >= a.window, nil
	}
	err = a.Terminate(ctx, m.ProviderID)
	if errors.Is(err, cloud.ErrNotFound) {
		return l.machine != nil, nil
	}
	return false, err
}

// Launch implements cloud.Provider.
func (a *adapter) Launch(ctx context.Context, claim *v1.NodeClaim) (cloud.Machine, error) {
	l, err := a.take(ctx, claim)
	if err != nil {
		return cloud.Machine{}, err
	}
	defer l.turn.release()
	if l.machine != nil {
		return *l.machine, nil
	}
	if !l.uncertainSince.IsZero() {
		m, err := a.find(ctx, claim)
		if err != nil {
			return cloud.Machine{}, fmt.Errorf("look for a machine that an earlier launch started: %w", err)
		}
		if m != nil {
			a.record(l, m, time.Time{})
			return *m, nil
		}
		if time.Since(l.uncertainSince) < a.window {
			return cloud.Machine{}, errOutcomeUnknown
		}
	}
	return a.create(ctx, l, claim)
}

// settle stores the machine of a launch, and since when it is uncertain whether the provider started one.
func (a *adapter) record(l *launch, m *cloud.Machine, uncertainSince time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l.machine, l.uncertainSince = m, uncertainSince
}

// create asks the provider for a machine. While it is asked, and when it panics, it is uncertain whether there is a machine.
func (a *adapter) create(ctx context.Context, l *launch, claim *v1.NodeClaim) (cloud.Machine, error) {
	if _, err := a.ready(ctx, claim.Spec.NodeClassRef); err != nil {
		return cloud.Machine{}, err
	}
	asked, err := withOwner(a.withCheapestTypes(ctx, claim))
	if err != nil {
		return cloud.Machine{}, err
	}
	a.mu.Lock()
	l.asked = time.Now() // what an earlier call may have started had its time to be found
	a.mu.Unlock()
	a.record(l, nil, time.Now())
	// A provider may go on with the context after it has answered: it ends with the caller's during the call only.
	kept, end := context.WithCancel(context.WithoutCancel(ctx))
	answered := context.AfterFunc(ctx, end)
	made, err := a.cloud.Create(a.providerContext(kept), asked)
	answered()
	if err == nil && (made == nil || made.Status.ProviderID == "") {
		err = errors.New("the provider returned a machine without a provider id")
	}
	if err != nil {
		converted, uncertain := launchError(err)
		if uncertain {
			a.record(l, nil, time.Now())
			return cloud.Machine{}, converted
		}
		a.record(l, nil, time.Time{})
		if _, soldOut := errors.AsType[*cloud.NoCapacityError](converted); soldOut {
			a.rememberShortage(ctx, claim)
		}
		return cloud.Machine{}, converted
	}
	m := machineOf(made, time.Now())
	m.ClaimName, m.PoolName = claim.Name, claim.Labels[v1.NodePoolLabelKey]
	a.record(l, &m, time.Time{})
	return m, nil
}

// find looks for the machine of a claim at the provider; of several it takes the oldest, and the others are orphans.
func (a *adapter) find(ctx context.Context, claim *v1.NodeClaim) (*cloud.Machine, error) {
	all, err := a.cloud.List(a.providerContext(ctx))
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(m *karpv1.NodeClaim) bool {
		return m == nil || m.Status.ProviderID == "" || m.DeletionTimestamp != nil || !belongsTo(m, claim)
	})
	if len(all) == 0 {
		return nil, nil
	}
	found := a.describe(all)
	m := slices.MinFunc(found, func(a, b cloud.Machine) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ProviderID, b.ProviderID))
	})
	m.ClaimName, m.PoolName = claim.Name, claim.Labels[v1.NodePoolLabelKey]
	return &m, nil
}

// learn remembers a shortage that the provider does not remember by itself: without that the same plan would be made again.
func (a *adapter) rememberShortage(ctx context.Context, claim *v1.NodeClaim) {
	s := a.offeredTo(claim)
	if s == nil || s.turn.take(ctx) != nil {
		return
	}
	defer s.turn.release()
	before, sum := s.catalog, s.sum
	s.at = time.Time{}
	if before == nil {
		return
	}
	if now, err := a.refresh(ctx, s); err != nil || now != before || s.sum != sum {
		return // the provider has learnt it, or is asked again with the next plan
	}
	a.mu.Lock()
	for it, o := range allowed(before, claim) {
		a.shortage[keyOf(it.Name, o)] = time.Now()
	}
	a.mu.Unlock()
	s.at = time.Time{}
}

// allowed yields the offerings that a claim may be launched with and that are available.
func allowed(c *cloud.Catalog, claim *v1.NodeClaim) func(yield func(*cloud.InstanceType, *cloud.Offering) bool) {
	reqs := scheduling.Requirements{}
	if asked, err := convert[karpv1.NodeClaim](claim); err == nil {
		reqs = scheduling.NewNodeSelectorRequirementsWithMinValues(asked.Spec.Requirements...)
	}
	fits := func(key, value string) bool { return !reqs.Has(key) || reqs.Get(key).Has(value) }
	return func(yield func(*cloud.InstanceType, *cloud.Offering) bool) {
		for _, it := range c.Types {
			if !fits(corev1.LabelInstanceTypeStable, it.Name) {
				continue
			}
			for i := range it.Offerings {
				o := &it.Offerings[i]
				ok := o.Available
				for key, value := range o.Labels {
					ok = ok && fits(key, value)
				}
				if ok && !yield(it, o) {
					return
				}
			}
		}
	}
}

// withCheapestTypes returns the claim limited to the types that are cheapest after NodeOverlays. Providers know nothing of overlays and
// choose by their own prices. The claim is returned unchanged if no overlay changes a type that it allows, or if it has minValues.
func (a *adapter) withCheapestTypes(ctx context.Context, claim *v1.NodeClaim) *v1.NodeClaim {
	s := a.offeredTo(claim)
	flexible := func(r v1.NodeSelectorRequirementWithMinValues) bool { return r.MinValues != nil }
	if a.corrected == nil || s == nil || slices.ContainsFunc(claim.Spec.Requirements, flexible) || s.turn.take(ctx) != nil {
		return claim
	}
	catalog := s.catalog
	s.turn.release()
	if catalog == nil {
		return claim
	}
	best, overlaid, cheapest := map[string]cloud.NanoUSD{}, false, cloud.NanoUSD(-1)
	for it, o := range allowed(a.corrected(ctx, claim.Labels[v1.NodePoolLabelKey], catalog), claim) {
		overlaid = overlaid || o.Overlaid || it.Overlaid
		if price, ok := best[it.Name]; !ok || o.Price < price {
			best[it.Name] = o.Price
		}
		if cheapest < 0 || o.Price < cheapest {
			cheapest = o.Price
		}
	}
	if !overlaid {
		return claim
	}
	maps.DeleteFunc(best, func(_ string, price cloud.NanoUSD) bool { return price > cheapest })
	out := claim.DeepCopy()
	ofType := func(r v1.NodeSelectorRequirementWithMinValues) bool { return r.Key == corev1.LabelInstanceTypeStable }
	out.Spec.Requirements = append(slices.DeleteFunc(out.Spec.Requirements, ofType), v1.NodeSelectorRequirementWithMinValues{
		Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: slices.Sorted(maps.Keys(best))})
	return out
}
