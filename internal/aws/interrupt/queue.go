package interrupt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/kit/parallel"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// queueAPI is the part of SQS that a queue needs.
type queueAPI interface {
	GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessage(context.Context, *sqs.DeleteMessageInput, ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
}

// A Queue is the queue of interruption messages.
type Queue struct {
	API  queueAPI
	Name string
	// Act carries a message out. A message whose action fails comes again after a while.
	Act func(context.Context, Message) error
	// Metrics counts; it may not be nil.
	Metrics *telemetry.Metrics
}

const (
	atOnce     = 10 // messages in one answer, and messages in work
	visibility = 20 // seconds until a message that was not deleted comes again
	longPoll   = 20 // seconds that SQS waits for messages
	slowest    = time.Minute
)

// Run receives messages until ctx ends. If the queue cannot be reached, it tries again with growing pauses.
func (q *Queue) Run(ctx context.Context) error {
	const name = "interruption"
	ctx = telemetry.WithController(ctx, name)
	watched := q.Metrics.Loop(name, 1)
	defer q.Metrics.End(watched)
	url, wait := "", time.Second
	for ctx.Err() == nil {
		err := watched.Turn(ctx, "reading the interruption queue", func(ctx context.Context) error { return q.turn(ctx, watched, &url) })
		if err == nil {
			wait = time.Second
			continue
		}
		if ctx.Err() != nil {
			break
		}
		telemetry.Log(ctx).ErrorContext(ctx, "the interruption queue cannot be read", "queue", q.Name, "error", err)
		watched.Wait(ctx, wait, nil)
		wait = min(2*wait, slowest)
	}
	return nil
}

// turn finds the queue's address if it is not known, receives messages and handles them.
func (q *Queue) turn(ctx context.Context, watched *telemetry.Loop, url *string) error {
	if *url == "" {
		out, err := q.API.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(q.Name)})
		if err != nil {
			return fmt.Errorf("find the queue: %w", err)
		}
		*url = aws.ToString(out.QueueUrl)
	}
	out, err := q.API.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: url, MaxNumberOfMessages: atOnce, VisibilityTimeout: visibility, WaitTimeSeconds: longPoll,
		MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{sqstypes.MessageSystemAttributeNameSentTimestamp},
		MessageAttributeNames:       []string{"All"},
	})
	if err != nil {
		return fmt.Errorf("receive messages: %w", err)
	}
	errs := parallel.Of(out.Messages, atOnce, dealing, func(m sqstypes.Message) error { return q.handle(ctx, *url, m) })
	for i, err := range errs {
		if _, panicked := errors.AsType[*bug.Panic](err); panicked {
			watched.Panicked()
		}
		if err != nil && ctx.Err() == nil {
			telemetry.Log(ctx).ErrorContext(ctx, "an interruption message could not be dealt with and comes again",
				"message", aws.ToString(out.Messages[i].MessageId), "error", err)
		}
	}
	return nil
}

func dealing(m sqstypes.Message) string { return "dealing with message " + aws.ToString(m.MessageId) }

// handle carries one message out and deletes it. A message whose action failed is not deleted, so it comes again.
func (q *Queue) handle(ctx context.Context, url string, raw sqstypes.Message) error {
	m, err := parse(aws.ToString(raw.Body), accountOf(url))
	if err != nil {
		telemetry.Log(ctx).WarnContext(ctx, "a message of the interruption queue is no event of this account and is dropped", "error", err)
	}
	q.Metrics.InterruptionReceived.WithLabelValues(string(m.Kind)).Inc()
	if m.Kind != NoOp {
		if err := q.Act(ctx, m); err != nil {
			return err
		}
		q.Metrics.InterruptionQueueDuration.Observe(time.Since(begun(m, raw)).Seconds())
	}
	if _, err := q.API.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: raw.ReceiptHandle}); err != nil {
		return fmt.Errorf("delete message: %w", err)
	}
	q.Metrics.InterruptionDeleted.Inc()
	return nil
}

// accountOf returns the account in the address of a queue, https://HOST/ACCOUNT/NAME.
func accountOf(queueURL string) string {
	parts := strings.Split(queueURL, "/")
	return parts[max(0, len(parts)-2)]
}

// begun returns when a message was made: by its own time, else when it was sent.
func begun(m Message, raw sqstypes.Message) time.Time {
	if !m.Time.IsZero() {
		return m.Time
	}
	ms, err := strconv.ParseInt(raw.Attributes[string(sqstypes.MessageSystemAttributeNameSentTimestamp)], 10, 64)
	if err != nil {
		return time.Now()
	}
	return time.UnixMilli(ms)
}
