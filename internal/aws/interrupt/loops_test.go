package interrupt

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

func metrics() *telemetry.Metrics { return telemetry.NewMetrics(prometheus.NewRegistry(), nil) }

// clinic is an EC2 that tells of machines which are not well, to every question alike.
type clinic struct {
	ill   []ec2types.InstanceStatus
	err   error
	asked []string
}

func (c *clinic) DescribeInstanceStatus(_ context.Context, in *ec2.DescribeInstanceStatusInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstanceStatusOutput, error) {
	c.asked = append(c.asked, aws.ToString(in.Filters[0].Name))
	return &ec2.DescribeInstanceStatusOutput{InstanceStatuses: c.ill}, c.err
}

func broken(id string, since time.Time) ec2types.InstanceStatus {
	return ec2types.InstanceStatus{InstanceId: &id,
		InstanceStatus: &ec2types.InstanceStatusSummary{Status: "impaired", Details: []ec2types.InstanceStatusDetails{{Status: "failed", ImpairedSince: &since}}},
		Events:         []ec2types.InstanceStatusEvent{{Code: "instance-stop", Description: aws.String("soon")}},
	}
}

// A machine is acted on at each poll until it is gone, and counted once until it has recovered.
func TestPoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &clinic{ill: []ec2types.InstanceStatus{broken("i-1", time.Now().Add(-time.Hour)), broken("i-2", time.Now().Add(-time.Hour))}}
		var acted []string
		p := &Poller{API: c, Metrics: metrics(), Act: func(_ context.Context, m Message) error {
			acted = append(acted, string(m.Kind)+" "+m.Instances[0])
			if m.Instances[0] == "i-1" {
				return errors.New("not now")
			}
			return nil
		}}
		counted := func(category string, want float64) {
			t.Helper()
			if got := testutil.ToFloat64(p.Metrics.InterruptionStatusUnhealthy.WithLabelValues(category)); got != want {
				t.Errorf("%s is counted %v times, want %v", category, got, want)
			}
		}
		for range 2 {
			if err := p.Poll(t.Context()); err == nil {
				t.Error("what could not be done is no error")
			}
		}
		slices.Sort(acted)
		if want := []string{"instance_status i-1", "instance_status i-1", "instance_status i-2", "instance_status i-2"}; !slices.Equal(acted, want) {
			t.Errorf("acted on %q, want %q: once each time, on the worst", acted, want)
		}
		if want := []string{"instance-status.status", "system-status.status", "event.code"}; !slices.Equal(c.asked[:3], want) {
			t.Errorf("asked for %q, want %q", c.asked[:3], want)
		}
		counted("InstanceStatus", 2)
		counted("EventStatus", 2)
		ill := c.ill
		c.ill = ill[:1]
		_ = p.Poll(t.Context())
		c.ill = ill
		_ = p.Poll(t.Context())
		counted("InstanceStatus", 3)
		c.err = &smithy.GenericAPIError{Code: "UnauthorizedOperation"}
		if err := p.Poll(t.Context()); err == nil {
			t.Error("a missing permission is no error")
		}
		c.err = nil
		_ = p.Poll(t.Context())
		counted("InstanceStatus", 3) // what could not be asked has not recovered
	})
}

// mailbox is an SQS with one queue, which may be missing for a while.
type mailbox struct {
	mu       sync.Mutex
	missing  int // so many calls more
	messages []string
	deleted  []string
	asked    []time.Time
}

func (b *mailbox) GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, time.Now())
	if b.missing > 0 {
		b.missing--
		return nil, &smithy.GenericAPIError{Code: "AWS.SimpleQueueService.NonExistentQueue"}
	}
	return &sqs.GetQueueUrlOutput{QueueUrl: aws.String("url")}, nil
}

func (b *mailbox) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	b.mu.Lock()
	n := min(len(b.messages), int(in.MaxNumberOfMessages))
	out := &sqs.ReceiveMessageOutput{}
	for _, text := range b.messages[:n] {
		out.Messages = append(out.Messages, sqstypes.Message{Body: aws.String(text), ReceiptHandle: aws.String(text)})
	}
	b.messages = b.messages[n:]
	b.mu.Unlock()
	if n == 0 {
		select {
		case <-time.After(time.Duration(in.WaitTimeSeconds) * time.Second):
		case <-ctx.Done():
		}
	}
	return out, ctx.Err()
}

func (b *mailbox) DeleteMessage(_ context.Context, in *sqs.DeleteMessageInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deleted = append(b.deleted, aws.ToString(in.ReceiptHandle))
	return &sqs.DeleteMessageOutput{}, nil
}

func spotNotice(id string) string {
	return `{"version":"0","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","detail":{"instance-id":"` + id + `"}}`
}

// The queue may come later than the controller. What is done is deleted, what could not be done comes again by itself.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &mailbox{missing: 3, messages: []string{spotNotice("i-1"), spotNotice("i-bad"), "no event", `{"version":"0","source":"aws.s3","detail-type":"x"}`}}
		for range 20 {
			b.messages = append(b.messages, spotNotice("i-2"))
		}
		var mu sync.Mutex
		var acted []string
		q := &Queue{API: b, Name: "demo", Metrics: metrics(), Act: func(_ context.Context, m Message) error {
			mu.Lock()
			defer mu.Unlock()
			acted = append(acted, m.Instances[0])
			if m.Instances[0] == "i-bad" {
				return errors.New("not now")
			}
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- q.Run(ctx) }()
		time.Sleep(time.Minute)
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.asked) != 4 || b.asked[3].Sub(b.asked[0]) != 7*time.Second {
			t.Errorf("the queue was looked for at %v, want four times, later and later", b.asked)
		}
		if len(acted) != 22 || len(b.deleted) != 23 || slices.Contains(b.deleted, spotNotice("i-bad")) {
			t.Errorf("%d messages were acted on and %d deleted, want 22 and 23: all but the one that failed", len(acted), len(b.deleted))
		}
		for kind, want := range map[Kind]float64{SpotInterrupted: 22, NoOp: 2} {
			if got := testutil.ToFloat64(q.Metrics.InterruptionReceived.WithLabelValues(string(kind))); got != want {
				t.Errorf("%v messages of kind %s are counted, want %v", got, kind, want)
			}
		}
		if got := testutil.ToFloat64(q.Metrics.InterruptionDeleted); got != 23 {
			t.Errorf("%v deleted messages are counted, want 23", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the end of the program is an error: %v", err)
		}
	})
}

// A message over which we panic comes again, as one that failed. The others, and the loop, go on.
func TestAPanicOverAMessageIsAFailureOfThatMessage(t *testing.T) {
	bug.Expect(t)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	synctest.Test(t, func(t *testing.T) {
		b := &mailbox{messages: []string{spotNotice("i-bad"), spotNotice("i-1")}}
		q := &Queue{API: b, Name: "demo", Metrics: metrics(), Act: func(_ context.Context, m Message) error {
			if m.Instances[0] == "i-bad" {
				panic("no")
			}
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- q.Run(ctx) }()
		time.Sleep(30 * time.Second)
		b.mu.Lock()
		b.messages = append(b.messages, spotNotice("i-bad"), spotNotice("i-2")) // the first came again
		b.mu.Unlock()
		time.Sleep(time.Minute)
		b.mu.Lock()
		defer b.mu.Unlock()
		if want := []string{spotNotice("i-1"), spotNotice("i-2")}; !slices.Equal(b.deleted, want) {
			t.Errorf("deleted %q, want %q", b.deleted, want)
		}
		if got := testutil.ToFloat64(q.Metrics.ReconcilePanics.WithLabelValues("interruption")); got != 2 {
			t.Errorf("%v panics were counted, want two", got)
		}
		cancel()
		<-ended
	})
}
