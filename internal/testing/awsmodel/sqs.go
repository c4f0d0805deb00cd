package awsmodel

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"karpenter.sh/karpenter/internal/kit/ztime"
)

// A queue is a standard queue: messages come at least once and in no promised order.
type queue struct {
	Created  time.Time
	Messages []*message
}

type message struct {
	ID, Body   string
	Sent       time.Time
	First      time.Time // received first
	VisibleAt  time.Time
	Receipt    string
	Received   int
	Attributes map[string]sqstypes.MessageAttributeValue `json:",omitempty"`
}

const (
	retention         = 300 * time.Second // of the interruption queue
	defaultVisibility = 30 * time.Second
	maxReceive        = 10
	maxWait           = 20
)

func (w *world) send(name, body string, attributes map[string]sqstypes.MessageAttributeValue, now time.Time) *message {
	q, ok := w.st.Queues[name]
	if !ok {
		return nil // EventBridge drops what has no target
	}
	m := &message{ID: w.uuid(), Body: body, Sent: now, VisibleAt: now, Attributes: attributes}
	q.Messages = append(q.Messages, m)
	close(w.news)
	w.news = make(chan struct{})
	w.changed()
	return m
}

func (w *world) uuid() string {
	w.st.Serial++
	a, b := mix(w.cfg.Seed^w.st.Serial*0xd6e8feb86659fd93), mix(w.st.Serial)
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", a>>32, a>>16&0xffff, a>>4&0xfff, b&0xfff, b>>16)
}

func (w *world) queueURL(name string) string {
	return "https://sqs." + w.cfg.Region + ".amazonaws.com/" + w.cfg.Account + "/" + name
}

func (c *call) queue(url *string) (string, *queue, error) {
	text := aws.ToString(url)
	name := text[strings.LastIndex(text, "/")+1:]
	q, ok := c.world.st.Queues[name]
	if !ok {
		return name, nil, noQueue()
	}
	q.Messages = slices.DeleteFunc(q.Messages, func(m *message) bool { return c.now.Sub(m.Sent) > retention })
	return name, q, nil
}

func noQueue() *fault {
	f := refuse("QueueDoesNotExist", "The specified queue does not exist.")
	f.query = "AWS.SimpleQueueService.NonExistentQueue"
	return f
}

func getQueueURL(c *call, in *sqs.GetQueueUrlInput) (*sqs.GetQueueUrlOutput, error) {
	name := aws.ToString(in.QueueName)
	if _, ok := c.world.st.Queues[name]; !ok {
		return nil, noQueue()
	}
	return &sqs.GetQueueUrlOutput{QueueUrl: aws.String(c.world.queueURL(name))}, nil
}

func listQueues(c *call, in *sqs.ListQueuesInput) (*sqs.ListQueuesOutput, error) {
	out := &sqs.ListQueuesOutput{QueueUrls: []string{}}
	for _, name := range slices.Sorted(maps.Keys(c.world.st.Queues)) {
		if strings.HasPrefix(name, aws.ToString(in.QueueNamePrefix)) {
			out.QueueUrls = append(out.QueueUrls, c.world.queueURL(name))
		}
	}
	return out, nil
}

func createQueue(c *call, in *sqs.CreateQueueInput) (*sqs.CreateQueueOutput, error) {
	name := aws.ToString(in.QueueName)
	if _, ok := c.world.st.Queues[name]; !ok {
		c.world.st.Queues[name] = &queue{Created: c.now}
	}
	return &sqs.CreateQueueOutput{QueueUrl: aws.String(c.world.queueURL(name))}, nil
}

func deleteQueue(c *call, in *sqs.DeleteQueueInput) (*sqs.DeleteQueueOutput, error) {
	name, _, err := c.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	delete(c.world.st.Queues, name)
	return &sqs.DeleteQueueOutput{}, nil
}

func sendMessage(c *call, in *sqs.SendMessageInput) (*sqs.SendMessageOutput, error) {
	name, _, err := c.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	m := c.world.send(name, aws.ToString(in.MessageBody), in.MessageAttributes, c.now)
	return &sqs.SendMessageOutput{MessageId: &m.ID, MD5OfMessageBody: aws.String(digest(m.Body))}, nil
}

func digest(body string) string {
	sum := md5.Sum([]byte(body))
	return hex.EncodeToString(sum[:])
}

// receiveMessage waits for messages, with the world unlocked, for as long as the caller asks.
func receiveMessage(c *call, in *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
	most := int(in.MaxNumberOfMessages)
	if most == 0 {
		most = 1
	}
	if most < 1 || most > maxReceive {
		return nil, refuse("InvalidParameterValue",
			"Value %d for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.", most)
	}
	if in.WaitTimeSeconds < 0 || in.WaitTimeSeconds > maxWait {
		return nil, refuse("InvalidParameterValue",
			"Value %d for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.", in.WaitTimeSeconds)
	}
	deadline := c.now.Add(time.Duration(in.WaitTimeSeconds) * time.Second)
	for {
		_, q, err := c.queue(in.QueueUrl)
		if err != nil {
			return nil, err
		}
		got, next := take(c, q, most, in)
		if len(got) > 0 || !c.now.Before(deadline) {
			return &sqs.ReceiveMessageOutput{Messages: got}, nil
		}
		if err := await(c, ztime.Sooner(deadline, next)); err != nil {
			return nil, err
		}
	}
}

// await unlocks the world until a message arrives or the time comes.
func await(c *call, until time.Time) error {
	news := c.world.news
	c.cloud.mu.Unlock()
	defer func() {
		c.cloud.mu.Lock()
		c.now = time.Now()
		c.world.advance(c.now)
	}()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-c.ctx.Done():
		return c.ctx.Err()
	case <-news:
	case <-timer.C:
	}
	return nil
}

// take receives up to n visible messages, and says when the next one becomes visible.
func take(c *call, q *queue, n int, in *sqs.ReceiveMessageInput) (got []sqstypes.Message, next time.Time) {
	hide := defaultVisibility
	if in.VisibilityTimeout > 0 {
		hide = time.Duration(in.VisibilityTimeout) * time.Second
	}
	for _, m := range q.Messages {
		if m.VisibleAt.After(c.now) {
			next = ztime.Sooner(m.VisibleAt, next)
			continue
		}
		if len(got) == n {
			break
		}
		m.VisibleAt = c.now.Add(hide)
		m.Receipt = signed(c.world.uuid())
		m.Received++
		if m.First.IsZero() {
			m.First = c.now
		}
		got = append(got, received(c, m, in))
	}
	return got, next
}

// signed returns a receipt handle that says by itself that this queue service issued it, as those of SQS do.
func signed(id string) string { return id + "." + digest(id) }

func issued(receipt string) bool {
	id, _, ok := strings.Cut(receipt, ".")
	return ok && signed(id) == receipt
}

func received(c *call, m *message, in *sqs.ReceiveMessageInput) sqstypes.Message {
	out := sqstypes.Message{MessageId: &m.ID, Body: &m.Body, MD5OfBody: aws.String(digest(m.Body)), ReceiptHandle: aws.String(m.Receipt)}
	all := map[string]string{
		"SentTimestamp":                    strconv.FormatInt(m.Sent.UnixMilli(), 10),
		"ApproximateReceiveCount":          strconv.Itoa(m.Received),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(m.First.UnixMilli(), 10),
		"SenderId":                         "AIDAIENQZJOLO23YVJ4VO",
	}
	//lint:ignore SA1019 older clients, the aws CLI among them, still send AttributeNames
	legacy := values(in.AttributeNames)
	for name, v := range all {
		asked := func(n string) bool { return n == "All" || n == name }
		if slices.ContainsFunc(values(in.MessageSystemAttributeNames), asked) || slices.ContainsFunc(legacy, asked) {
			if out.Attributes == nil {
				out.Attributes = map[string]string{}
			}
			out.Attributes[name] = v
		}
	}
	if len(in.MessageAttributeNames) > 0 && len(m.Attributes) > 0 {
		out.MessageAttributes = m.Attributes
	}
	return out
}

func deleteMessage(c *call, in *sqs.DeleteMessageInput) (*sqs.DeleteMessageOutput, error) {
	_, q, err := c.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	receipt := aws.ToString(in.ReceiptHandle)
	if !issued(receipt) {
		return nil, refuse("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
	}
	q.Messages = slices.DeleteFunc(q.Messages, func(m *message) bool { return m.Receipt == receipt })
	return &sqs.DeleteMessageOutput{}, nil
}

func purgeQueue(c *call, in *sqs.PurgeQueueInput) (*sqs.PurgeQueueOutput, error) {
	_, q, err := c.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	q.Messages = nil
	return &sqs.PurgeQueueOutput{}, nil
}

func getQueueAttributes(c *call, in *sqs.GetQueueAttributesInput) (*sqs.GetQueueAttributesOutput, error) {
	name, q, err := c.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	visible := 0
	for _, m := range q.Messages {
		if !m.VisibleAt.After(c.now) {
			visible++
		}
	}
	all := map[string]string{
		"QueueArn":                              c.world.cfg.arn("sqs", name),
		"ApproximateNumberOfMessages":           strconv.Itoa(visible),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(len(q.Messages) - visible),
		"CreatedTimestamp":                      strconv.FormatInt(q.Created.Unix(), 10),
		"MessageRetentionPeriod":                strconv.Itoa(int(retention.Seconds())),
		"VisibilityTimeout":                     strconv.Itoa(int(defaultVisibility.Seconds())),
		"SqsManagedSseEnabled":                  "true",
	}
	out := map[string]string{}
	for k, v := range all {
		if slices.Contains(values(in.AttributeNames), "All") || slices.Contains(values(in.AttributeNames), k) {
			out[k] = v
		}
	}
	return &sqs.GetQueueAttributesOutput{Attributes: out}, nil
}
