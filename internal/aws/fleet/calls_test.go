package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/shortage"
)

// machines is an EC2 that knows machines by id. A call about one that spoils gets its error, whoever else it is about.
type machines struct {
	fleet  func(*ec2.CreateFleetInput) (*ec2.CreateFleetOutput, error)
	spoils map[string]error
	shown  []string // the only ones that are listed

	mu    sync.Mutex
	calls []string // the ids of each call that stops machines
}

func (m *machines) CreateFleet(_ context.Context, in *ec2.CreateFleetInput, _ ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error) {
	return m.fleet(in)
}

func (m *machines) DescribeInstances(_ context.Context, in *ec2.DescribeInstancesInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	out := &ec2.DescribeInstancesOutput{}
	for _, id := range in.Filters[0].Values {
		if err := m.spoils[id]; err != nil {
			return nil, err
		}
		if slices.Contains(m.shown, id) {
			out.Reservations = append(out.Reservations, ec2types.Reservation{Instances: []ec2types.Instance{{InstanceId: aws.String(id)}}})
		}
	}
	return out, nil
}

func (m *machines) TerminateInstances(_ context.Context, in *ec2.TerminateInstancesInput, _ ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, strings.Join(in.InstanceIds, " "))
	out := &ec2.TerminateInstancesOutput{}
	for _, id := range in.InstanceIds {
		if err := m.spoils[id]; err != nil {
			return nil, err
		}
		out.TerminatingInstances = append(out.TerminatingInstances, ec2types.InstanceStateChange{InstanceId: aws.String(id)})
	}
	return out, nil
}

// anySubnet has a subnet in every zone.
type anySubnet struct{}

func (anySubnet) Pick(byZone map[string][]string, _ map[string]int, _ int) (map[string]string, func(map[string]int)) {
	picked := map[string]string{}
	for zone, ids := range byZone {
		picked[zone] = ids[0]
	}
	return picked, func(map[string]int) {}
}

func newFleet(t *testing.T, m *machines, failed func(Failure)) *Fleet {
	return New(t.Context(), m, anySubnet{}, shortage.New(), Settings{Cluster: "demo", Token: func() string { return "token" }, Failed: failed})
}

// at once asks for each and returns the answers by what was asked for.
func atOnce[Out any](of []string, ask func(string) Out) map[string]Out {
	out := map[string]Out{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, one := range of {
		wg.Go(func() {
			got := ask(one)
			mu.Lock()
			defer mu.Unlock()
			out[one] = got
		})
	}
	wg.Wait()
	return out
}

func refusal(code string) error { return &smithy.GenericAPIError{Code: code, Message: code} }

// One machine that cannot be stopped keeps no other alive; what fails for all is not repeated for each.
func TestOneMachineSpoilsNoOthersEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		spoils error
		others bool // they are stopped
		calls  int
	}{
		"a machine that does not exist":      {refusal("InvalidInstanceID.NotFound"), true, 4},
		"a machine that somebody protected":  {refusal("OperationNotPermitted"), true, 4},
		"a machine that may not be stopped":  {refusal("UnauthorizedOperation"), true, 4},
		"a machine in an unexpected state":   {refusal("IncorrectInstanceState"), true, 4},
		"EC2 asks to slow down":              {refusal("RequestLimitExceeded"), false, 1},
		"nobody knows what became of it all": {context.DeadlineExceeded, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &machines{spoils: map[string]error{"i-bad": tc.spoils}}
				f := newFleet(t, m, nil)
				errs := atOnce([]string{"i-1", "i-bad", "i-2"}, func(id string) error { return f.Terminate(t.Context(), id) })
				if errs["i-bad"] == nil {
					t.Error("what EC2 refused counts as stopped")
				}
				for _, id := range []string{"i-1", "i-2"} {
					if (errs[id] == nil) != tc.others {
						t.Errorf("%s: %v, want it stopped: %v", id, errs[id], tc.others)
					}
				}
				if len(m.calls) != tc.calls {
					t.Errorf("calls = %q, want %d", m.calls, tc.calls)
				}
			})
		})
	}
}

func TestLookupsShareACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &machines{shown: []string{"i-1", "i-2"}}, nil)
		errs := atOnce([]string{"i-1", "i-2", "i-3"}, func(id string) error { _, err := f.Describe(t.Context(), id); return err })
		if errs["i-1"] != nil || errs["i-2"] != nil || !errors.Is(errs["i-3"], ErrUnknown) {
			t.Errorf("answers = %v, want only i-3 unknown", errs)
		}
	})
}

// Equal orders get one machine each; whoever is left gets what EC2 said, and it is counted once however many share it.
func TestAPartlyFilledFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machines{fleet: func(in *ec2.CreateFleetInput) (*ec2.CreateFleetOutput, error) {
			if n := aws.ToInt32(in.TargetCapacitySpecification.TotalTargetCapacity); n != 3 {
				t.Errorf("%d machines are asked for, want one for each", n)
			}
			return &ec2.CreateFleetOutput{
				Instances: []ec2types.CreateFleetInstance{{InstanceType: "m5.large", InstanceIds: []string{"i-1"}}},
				Errors:    []ec2types.CreateFleetError{fleetError("InsufficientInstanceCapacity", "none", "m5.large", "subnet-a")},
			}, nil
		}}
		counted := 0
		f := newFleet(t, m, func(Failure) { counted++ })
		o := &Order{CapacityType: "on-demand", Subnets: map[string][]string{"z-a": {"subnet-a"}},
			Templates: []Template{{Name: "lt", Overrides: []Override{{InstanceType: "m5.large", Zone: "z-a"}}}}}
		launched := 0
		for _, err := range atOnce([]string{"a", "b", "c"}, func(string) error { _, err := f.Launch(t.Context(), o); return err }) {
			var dry *cloud.NoCapacityError
			switch {
			case err == nil:
				launched++
			case !errors.As(err, &dry):
				t.Errorf("error = %v, want that there is no capacity", err)
			}
		}
		if launched != 1 || counted != 1 || !f.stock.Out(shortage.Pool{CapacityType: "on-demand", InstanceType: "m5.large", Zone: "z-a"}) {
			t.Errorf("%d launched, %d failures counted, the pool is out: %v; want one of each", launched, counted, f.stock.Out(shortage.Pool{CapacityType: "on-demand", InstanceType: "m5.large", Zone: "z-a"}))
		}
	})
}

func TestSurplusMachinesAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machines{fleet: func(*ec2.CreateFleetInput) (*ec2.CreateFleetOutput, error) {
			return &ec2.CreateFleetOutput{Instances: []ec2types.CreateFleetInstance{{InstanceType: "m5.large", InstanceIds: []string{"i-2", "i-1"}}}}, nil
		}}
		f := newFleet(t, m, nil)
		o := &Order{Subnets: map[string][]string{"z-a": {"subnet-a"}}, Tags: map[string]string{},
			Templates: []Template{{Name: "lt", Overrides: []Override{{InstanceType: "m5.large", Zone: "z-a"}}}}}
		got, err := f.Launch(t.Context(), o)
		if err != nil || got.InstanceID != "i-1" || !slices.Equal(m.calls, []string{"i-2"}) {
			t.Errorf("launched %s, %v, stopped %q; want i-1, and i-2 stopped", got.InstanceID, err, m.calls)
		}
	})
}
