package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/batch"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/kit/parallel"
	"karpenter.sh/karpenter/internal/kit/sleep"
)

// api is the part of EC2 that machines need.
type api interface {
	CreateFleet(context.Context, *ec2.CreateFleetInput, ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error)
	DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error)
	TerminateInstances(context.Context, *ec2.TerminateInstancesInput, ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error)
}

// subnets knows which subnets have free addresses.
type subnets interface {
	// Pick returns, by zone, the subnet with most free addresses, and takes n times pods of each zone as spoken for until
	// done is called with the subnets that were really used.
	Pick(byZone map[string][]string, pods map[string]int, n int) (picked map[string]string, done func(used map[string]int))
}

// A Launched machine is a machine that CreateFleet returned.
type Launched struct {
	InstanceID   string
	InstanceType string
	Zone, Subnet string
	ImageID      string
	Template     string
}

// Settings of a Fleet.
type Settings struct {
	Cluster string
	// Token makes the token by which EC2 knows a repeated call for several claims.
	Token func() string
	// Observe receives each batch; nil to leave it.
	Observe func(batcher string, size int, open time.Duration)
	// Failed receives each failure that EC2 reports, once; nil to leave it.
	Failed func(Failure)
	// Zones counts the machines of a pool by zone; nil if they are not counted.
	Zones func(pool string) map[string]int
}

// A Fleet launches, finds and stops machines. It may be used concurrently.
type Fleet struct {
	api      api
	subnets  subnets
	stock    *shortage.List
	settings Settings
	ledger   ledger

	launches   *batch.Batcher[string, *Order, Launched]
	lookups    *batch.Batcher[struct{}, string, ec2types.Instance]
	ofClaims   *batch.Batcher[struct{}, string, []ec2types.Instance]
	terminates *batch.Batcher[struct{}, string, struct{}]
}

// filterValues is EC2's limit for the values of all filters of one call. A call that looks for the machines of claims
// also filters by cluster and by state.
const filterValues = 200

// New returns a Fleet whose calls end when base does.
func New(base context.Context, api api, subnets subnets, s *shortage.List, settings Settings) *Fleet {
	f := &Fleet{api: api, subnets: subnets, stock: s, settings: settings}
	f.launches = batch.New(base, f.window("create_fleet", 35*time.Millisecond, 1000), f.launch)
	f.lookups = batch.New(base, f.window("describe_instances", 100*time.Millisecond, filterValues), f.describe)
	f.ofClaims = batch.New(base, f.window("describe_instances", 100*time.Millisecond, filterValues-1-len(present)), f.describeClaims)
	f.terminates = batch.New(base, f.window("terminate_instances", 100*time.Millisecond, 500), f.terminate)
	return f
}

// window returns the settings of a batch, whose size is observed under a name.
func (f *Fleet) window(name string, idle time.Duration, size int) batch.Settings {
	return batch.Settings{Idle: idle, Max: time.Second, Size: size, Observe: func(n int, open time.Duration) {
		if f.settings.Observe != nil {
			f.settings.Observe(name, n, open)
		}
	}}
}

// Launch starts one machine of an order, together with equal orders that arrive at the same time.
func (f *Fleet) Launch(ctx context.Context, o *Order) (Launched, error) {
	return f.launches.Do(ctx, o.Key(), o)
}

// ErrNoSubnet says that no zone of an order has a subnet to launch into.
var ErrNoSubnet = errors.New("no zone that the launch may use has a subnet")

// launch makes the calls for all orders of a batch, which are equal: one call for each zone among which the machines
// are divided, or one call if EC2 chooses the zone.
func (f *Fleet) launch(ctx context.Context, _ string, orders []*Order) []batch.Result[Launched] {
	ctx, cancel := context.WithTimeout(ctx, ec2api.RequestTimeout)
	defer cancel()
	o := orders[0]
	if !o.spreadsZones() {
		return f.launchIn(ctx, orders, "")
	}
	zones, there := o.cheapestZones(firstOf(o.Subnets)), map[string]int{}
	if len(zones) == 0 {
		return f.launchIn(ctx, orders, "")
	}
	if f.settings.Zones != nil {
		there = f.settings.Zones(o.Tags[awsv1.TagNodePool])
	}
	shares, done := f.ledger.share(o.Tags[awsv1.TagNodePool], zones, there, len(orders))
	defer done()
	out := make([]batch.Result[Launched], len(orders))
	var wg sync.WaitGroup
	rest := out
	for _, zone := range slices.Sorted(maps.Keys(shares)) {
		mine, into := orders[:shares[zone]], rest[:shares[zone]]
		orders, rest = orders[shares[zone]:], rest[shares[zone]:]
		wg.Go(func() {
			var err error
			defer func() {
				for i := range into {
					if err != nil {
						into[i].Err = err
					}
				}
			}()
			defer bug.Catch(&err, "launching machines in "+zone)
			copy(into, f.launchIn(ctx, mine, zone))
		})
	}
	wg.Wait()
	return out
}

// firstOf returns one subnet of each zone that has some.
func firstOf(subnets map[string][]string) map[string]string {
	out := make(map[string]string, len(subnets))
	for zone, list := range subnets {
		if len(list) > 0 {
			out[zone] = list[0]
		}
	}
	return out
}

// launchIn makes one call for equal orders, preferring a zone unless it is "". Machines beyond the number of orders
// are stopped.
func (f *Fleet) launchIn(ctx context.Context, orders []*Order, zone string) []batch.Result[Launched] {
	out := make([]batch.Result[Launched], len(orders))
	machines, failures, err := f.call(ctx, orders[0], len(orders), zone)
	for _, failure := range failures {
		failure.Mark(f.stock)
		if f.settings.Failed != nil {
			f.settings.Failed(failure)
		}
	}
	for i := range out {
		switch {
		case i < len(machines):
			out[i].Value = machines[i]
		case err != nil:
			out[i].Err = ErrorOfCall(err)
		default:
			out[i].Err = launchFailure(failures)
		}
	}
	if len(machines) > len(orders) {
		// No claim asked for these: they would run without a claim until the next collection.
		f.stop(ctx, machines[len(orders):])
	}
	return out
}

// stop stops machines that no claim asked for.
func (f *Fleet) stop(ctx context.Context, machines []Launched) {
	ids := make([]string, len(machines))
	for i, m := range machines {
		ids[i] = m.InstanceID
	}
	// A failure leaves them to the collection of machines without a claim.
	_, _ = f.api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
}

// call makes one CreateFleet call for n machines. It repeats a call whose outcome is unknown, and calls with another
// zone or token if EC2 knows the token from an earlier call for the claim.
func (f *Fleet) call(ctx context.Context, o *Order, n int, zone string) ([]Launched, []Failure, error) {
	picked, done := f.subnets.Pick(o.Subnets, o.Pods, n)
	zones := make(map[string]string, len(picked))
	for zone, subnet := range picked {
		zones[subnet] = zone
	}
	used := map[string]int{}
	defer func() { done(used) }()
	token := f.settings.Token()
	if n == 1 {
		// A machine of one claim can be told from others after a crash.
		token, o = o.Token, o.forOne()
	}
	in := Request(o.sentTo(zone), n, picked, token)
	if in == nil {
		return nil, nil, launchErrorOf("SubnetResolutionFailed", ErrNoSubnet)
	}
	answer, err := f.api.CreateFleet(ctx, in)
	for n > 1 && ec2api.IsUnknownOutcome(err) && sleep.For(ctx, askAgain) {
		// Another call for these claims would buy again: of this one EC2 knows the token, and says what became of it.
		answer, err = f.api.CreateFleet(ctx, in)
	}
	for _, other := range o.cheapestZones(picked) {
		if zone == "" || other == zone || ec2api.Code(err) != mismatch {
			continue
		}
		// The claim was launched before, when another zone had the fewest machines: the same call has the same answer.
		answer, err = f.api.CreateFleet(ctx, Request(o.sentTo(other), n, picked, token))
	}
	if ec2api.Code(err) == mismatch {
		if o.InDoubt {
			return nil, nil, fmt.Errorf("%w: %w", ErrLaunchedBefore, err)
		}
		// The claim was launched before under other conditions, and nothing came of it: this is a new launch.
		in.ClientToken = aws.String(f.settings.Token())
		answer, err = f.api.CreateFleet(ctx, in)
	}
	if ec2api.Code(err) == noServiceRole { // as an error of the call it means the same as an error of each override
		return nil, []Failure{{Code: noServiceRole, Message: ec2api.Message(err), CapacityType: o.CapacityType}}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	machines := launchedOf(answer.Instances, o, zones)
	for _, m := range machines {
		used[m.Subnet]++
	}
	failures := failuresOf(answer.Errors, o, zones)
	if len(machines) < n && len(failures) == 0 {
		failures = []Failure{{Code: "UnfulfillableCapacity", CapacityType: o.CapacityType,
			Message: fmt.Sprintf("EC2 launched %d of %d machines and gave no reason", len(machines), n)}}
	}
	return machines, failures, nil
}

// askAgain is how long after EC2 stayed silent about a call for several claims it is asked again.
const askAgain = 5 * time.Second

// ErrLaunchedBefore says that EC2 knows an earlier call for the claim, with an unknown outcome.
var ErrLaunchedBefore = errors.New("EC2 was asked for a machine of this claim before, with other words, and may not show it yet")

// mismatch is the error of EC2 for a token that it knows from another call.
const mismatch = "IdempotentParameterMismatch"

// launchedOf reads the machines of an answer, sorted by id.
func launchedOf(sets []ec2types.CreateFleetInstance, o *Order, zones map[string]string) []Launched {
	var out []Launched
	for _, set := range sets {
		m := Launched{InstanceType: string(set.InstanceType)}
		if lt := set.LaunchTemplateAndOverrides; lt != nil {
			if lt.LaunchTemplateSpecification != nil {
				m.Template = aws.ToString(lt.LaunchTemplateSpecification.LaunchTemplateName)
			}
			if lt.Overrides != nil {
				m.Zone, m.Subnet = aws.ToString(lt.Overrides.AvailabilityZone), aws.ToString(lt.Overrides.SubnetId)
				m.ImageID = aws.ToString(lt.Overrides.ImageId)
				if m.InstanceType == "" {
					m.InstanceType = string(lt.Overrides.InstanceType)
				}
			}
		}
		if zone := zones[m.Subnet]; zone != "" {
			m.Zone = zone
		}
		m.complete(o)
		for _, id := range set.InstanceIds {
			one := m
			one.InstanceID = id
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b Launched) int { return compareIDs(a.InstanceID, b.InstanceID) })
	return out
}

// complete fills in what the answer of EC2 left out, from the order.
func (m *Launched) complete(o *Order) {
	for _, t := range o.Templates {
		for _, ov := range t.Overrides {
			if ov.InstanceType != m.InstanceType || m.Zone != "" && ov.Zone != m.Zone {
				continue
			}
			if m.ImageID == "" {
				m.ImageID = ov.ImageID
			}
			if m.Template == "" {
				m.Template = t.Name
			}
			if m.Zone == "" && !slices.ContainsFunc(t.Overrides,
				func(x Override) bool { return x.InstanceType == ov.InstanceType && x.Zone != ov.Zone }) {
				m.Zone = ov.Zone
			}
			return
		}
	}
}

func compareIDs(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// states in which a machine is not gone.
var present = []string{"pending", "running", "stopping", "stopped", "shutting-down"}

// Errors about machines that are not there. A machine that was just launched may be unknown for a while; a machine that is
// gone stays so.
var (
	ErrGone    = errors.New("the machine is terminated")
	ErrUnknown = errors.New("EC2 does not know the machine")
)

// Describe finds one machine by its id. It returns ErrGone or ErrUnknown for a machine that does not exist.
func (f *Fleet) Describe(ctx context.Context, id string) (ec2types.Instance, error) {
	return f.lookups.Do(ctx, struct{}{}, id)
}

// describe looks up a batch of machines by id.
func (f *Fleet) describe(ctx context.Context, _ struct{}, ids []string) []batch.Result[ec2types.Instance] {
	ctx, cancel := context.WithTimeout(ctx, ec2api.RequestTimeout)
	defer cancel()
	wanted := slices.Compact(slices.Sorted(slices.Values(ids)))
	found := map[string]ec2types.Instance{}
	err := f.pages(ctx, []ec2types.Filter{ec2api.Filter("instance-id", wanted...)}, func(i ec2types.Instance) {
		found[aws.ToString(i.InstanceId)] = i
	})
	out := make([]batch.Result[ec2types.Instance], len(ids))
	for n, id := range ids {
		i, ok := found[id]
		switch {
		case ok && i.State != nil && i.State.Name == ec2types.InstanceStateNameTerminated:
			out[n].Err = ErrGone
		case ok:
			out[n].Value = i
		case err != nil:
			out[n].Err = err
		default:
			out[n].Err = ErrUnknown
		}
	}
	return out
}

// OfClaim finds the machines that were launched for one claim and are not gone.
func (f *Fleet) OfClaim(ctx context.Context, claim string) ([]ec2types.Instance, error) {
	return f.ofClaims.Do(ctx, struct{}{}, claim)
}

// describeClaims looks up the machines of a batch of claims by their tags.
func (f *Fleet) describeClaims(ctx context.Context, _ struct{}, claims []string) []batch.Result[[]ec2types.Instance] {
	names := slices.Compact(slices.Sorted(slices.Values(claims)))
	found, err := f.List(ctx, ec2api.Filter("tag:"+awsv1.TagClusterName, f.settings.Cluster),
		ec2api.Filter("tag:"+awsv1.TagNodeClaim, names...))
	byClaim := map[string][]ec2types.Instance{}
	for _, i := range found {
		name := ec2api.TagMap(i.Tags)[awsv1.TagNodeClaim]
		byClaim[name] = append(byClaim[name], i)
	}
	out := make([]batch.Result[[]ec2types.Instance], len(claims))
	for n, name := range claims {
		out[n] = batch.Result[[]ec2types.Instance]{Value: byClaim[name], Err: err}
	}
	return out
}

// List returns every machine that satisfies the filters and is not gone.
func (f *Fleet) List(ctx context.Context, filters ...ec2types.Filter) ([]ec2types.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, ec2api.RequestTimeout)
	defer cancel()
	var out []ec2types.Instance
	err := f.pages(ctx, append(slices.Clone(filters), ec2api.Filter("instance-state-name", present...)),
		func(i ec2types.Instance) { out = append(out, i) })
	return out, err
}

// pages calls each for every instance that satisfies the filters.
func (f *Fleet) pages(ctx context.Context, filters []ec2types.Filter, each func(ec2types.Instance)) error {
	pages := ec2.NewDescribeInstancesPaginator(f.api, &ec2.DescribeInstancesInput{
		Filters: filters, MaxResults: aws.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				each(i)
			}
		}
	}
	return nil
}

// Terminate begins to stop a machine. It returns ErrUnknown for a machine that does not exist.
func (f *Fleet) Terminate(ctx context.Context, id string) error {
	_, err := f.terminates.Do(ctx, struct{}{}, id)
	return err
}

// stopsAtOnce is how many machines are stopped one by one at the same time.
const stopsAtOnce = 10

// terminate stops machines together; if that fails, one by one, because one machine that does not exist, or that an
// operator protected, makes the whole call fail.
func (f *Fleet) terminate(ctx context.Context, _ struct{}, ids []string) []batch.Result[struct{}] {
	ctx, cancel := context.WithTimeout(ctx, ec2api.RequestTimeout)
	defer cancel()
	stopped, err := f.stopIDs(ctx, slices.Compact(slices.Sorted(slices.Values(ids))))
	// What failed for reasons that concern no single machine would fail again for each.
	final := len(ids) == 1 || ec2api.IsThrottled(err) || ec2api.IsServerFault(err) || ec2api.IsUnknownOutcome(err)
	errs := parallel.Of(ids, stopsAtOnce, func(id string) string { return "stopping machine " + id }, func(id string) error {
		switch {
		case stopped[id]:
			return nil
		case final:
			return gone(err)
		}
		_, err := f.stopIDs(ctx, []string{id})
		return gone(err)
	})
	out := make([]batch.Result[struct{}], len(ids))
	for i := range out {
		out[i].Err = errs[i]
	}
	return out
}

// stopIDs asks EC2 to stop machines, and returns those that it stops.
func (f *Fleet) stopIDs(ctx context.Context, ids []string) (map[string]bool, error) {
	answer, err := f.api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
	if err != nil {
		return nil, err
	}
	stopped := map[string]bool{}
	for _, c := range answer.TerminatingInstances {
		stopped[aws.ToString(c.InstanceId)] = true
	}
	return stopped, nil
}

// gone returns ErrUnknown for an error about a machine that does not exist, else the error.
func gone(err error) error {
	if ec2api.IsNotFound(err) {
		return ErrUnknown
	}
	return err
}

// Wait blocks until every call that was begun has been answered.
func (f *Fleet) Wait() {
	f.launches.Wait()
	f.lookups.Wait()
	f.ofClaims.Wait()
	f.terminates.Wait()
}
