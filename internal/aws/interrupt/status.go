package interrupt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// statusAPI is the part of EC2 that tells about broken machines.
type statusAPI interface {
	DescribeInstanceStatus(context.Context, *ec2.DescribeInstanceStatusInput,
		...func(*ec2.Options)) (*ec2.DescribeInstanceStatusOutput, error)
}

// A Poller asks EC2 for machines that fail checks or have scheduled events.
type Poller struct {
	API     statusAPI
	Act     func(context.Context, Message) error
	Metrics *telemetry.Metrics

	counted map[impairment]bool // those that were counted and have not recovered
}

// An impairment is a category of trouble that an instance has.
type impairment struct {
	instance string
	category Kind
}

// impairedFor is how long a check must have failed before it counts: many recover by themselves.
const impairedFor = 2 * time.Minute

// queries returns the calls that find these machines.
func queries() []*ec2.DescribeInstanceStatusInput {
	of := func(name string, values ...string) *ec2.DescribeInstanceStatusInput {
		return &ec2.DescribeInstanceStatusInput{Filters: []ec2types.Filter{ec2api.Filter(name, values...)}, MaxResults: aws.Int32(1000)}
	}
	return []*ec2.DescribeInstanceStatusInput{
		of("instance-status.status", "impaired"),
		of("system-status.status", "impaired"),
		of("event.code", "instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"),
	}
}

// Poll asks once, and acts on each machine. It is called from one goroutine.
func (p *Poller) Poll(ctx context.Context) error {
	found := map[string]ec2types.InstanceStatus{}
	for _, q := range queries() {
		pages := ec2.NewDescribeInstanceStatusPaginator(p.API, q)
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				if ec2api.IsDenied(err) {
					return fmt.Errorf("broken machines are not noticed: %s", ec2api.Denial(err))
				}
				return fmt.Errorf("describe instance status: %w", err)
			}
			for _, s := range page.InstanceStatuses {
				found[aws.ToString(s.InstanceId)] = s
			}
		}
	}
	seen := map[impairment]bool{}
	var failed error
	for id, s := range found {
		categories := categoriesOf(s, time.Now())
		for _, c := range categories {
			key := impairment{id, c}
			seen[key] = true
			if !p.counted[key] {
				p.Metrics.InterruptionStatusUnhealthy.WithLabelValues(categoryName(c)).Inc()
			}
		}
		if len(categories) == 0 {
			continue
		}
		// A failed check goes before an appointment: such a machine cannot be drained.
		failed = errors.Join(failed, p.Act(ctx, Message{Kind: categories[0], Instances: []string{id}, Time: time.Now()}))
	}
	p.counted = seen
	return failed
}

// categoryName returns the label of a category in metrics.
func categoryName(k Kind) string {
	switch k {
	case InstanceStatus:
		return "InstanceStatus"
	case SystemStatus:
		return "SystemStatus"
	}
	return "EventStatus"
}

// categoriesOf returns what is wrong with a machine, the worst first.
func categoriesOf(s ec2types.InstanceStatus, now time.Time) []Kind {
	var out []Kind
	if failing(s.InstanceStatus, now) {
		out = append(out, InstanceStatus)
	}
	if failing(s.SystemStatus, now) {
		out = append(out, SystemStatus)
	}
	for _, e := range s.Events {
		// An event that is over keeps standing there for a week, with its end in the description.
		if text := aws.ToString(e.Description); !strings.HasPrefix(text, "[Completed]") && !strings.HasPrefix(text, "[Canceled]") {
			out = append(out, EventStatus)
			break
		}
	}
	return out
}

// failing reports whether a check has failed for impairedFor.
func failing(s *ec2types.InstanceStatusSummary, now time.Time) bool {
	if s == nil || s.Status != ec2types.SummaryStatusImpaired {
		return false
	}
	for _, d := range s.Details {
		if d.Status == ec2types.StatusTypeFailed && d.ImpairedSince != nil && now.Sub(*d.ImpairedSince) >= impairedFor {
			return true
		}
	}
	return false
}
