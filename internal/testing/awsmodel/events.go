package awsmodel

import (
	"encoding/json"
	"strings"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// An envelope is an event as EventBridge delivers it.
type envelope struct {
	Version    string    `json:"version"`
	ID         string    `json:"id"`
	DetailType string    `json:"detail-type"`
	Source     string    `json:"source"`
	Account    string    `json:"account"`
	Time       time.Time `json:"time"`
	Region     string    `json:"region"`
	Resources  []string  `json:"resources"`
	Detail     any       `json:"detail"`
}

// deliver puts an event into the interruption queue.
func (c *Cloud) deliver(source, kind string, resources []string, detail any, now time.Time) {
	body, err := json.Marshal(envelope{
		Version: "0", ID: c.uuid(), DetailType: kind, Source: source, Account: c.cfg.Account,
		Time: now.UTC().Truncate(time.Second), Region: c.cfg.Region, Resources: resources, Detail: detail,
	})
	if err != nil {
		return // cannot happen: the details below all have a JSON form
	}
	c.send(c.cfg.Queue, string(body), nil, now)
}

func (c *Cloud) instanceARN(m *machine) string { return c.cfg.arn("ec2", "instance/"+m.id()) }

func (c *Cloud) stateChanged(m *machine, name ec2types.InstanceStateName, now time.Time) {
	c.deliver("aws.ec2", "EC2 Instance State-change Notification", []string{c.instanceARN(m)},
		map[string]string{"instance-id": m.id(), "state": string(name)}, now)
}

func (c *Cloud) spotWarning(m *machine, now time.Time) {
	c.deliver("aws.ec2", "EC2 Spot Instance Interruption Warning", []string{c.instanceARN(m)},
		map[string]string{"instance-id": m.id(), "instance-action": "terminate"}, now)
}

func (c *Cloud) rebalance(m *machine, now time.Time) {
	c.deliver("aws.ec2", "EC2 Instance Rebalance Recommendation", []string{c.instanceARN(m)},
		map[string]string{"instance-id": m.id()}, now)
}

func (c *Cloud) schedule(m *machine, code ec2types.EventCode, notBefore, now time.Time) {
	text := "The instance is scheduled for " + string(code)
	id := c.newID("instance-event")
	m.Events = append(m.Events, ec2types.InstanceStatusEvent{Code: code, Description: &text, InstanceEventId: &id, NotBefore: &notBefore})
	c.deliver("aws.health", "AWS Health Event", []string{m.id()}, map[string]any{
		"eventArn":          "arn:aws:health:" + c.cfg.Region + "::event/EC2/" + healthCode(code) + "/" + id,
		"service":           "EC2",
		"eventTypeCode":     healthCode(code),
		"eventTypeCategory": "scheduledChange",
		"startTime":         notBefore.UTC().Format(time.RFC1123),
		"eventDescription":  []map[string]string{{"language": "en_US", "latestDescription": text}},
		"affectedEntities":  []map[string]string{{"entityValue": m.id()}},
	}, now)
}

func healthCode(code ec2types.EventCode) string {
	return "AWS_EC2_" + strings.ToUpper(strings.ReplaceAll(string(code), "-", "_")) + "_SCHEDULED"
}

// ReservationWarning tells that a machine in a capacity reservation is about to be interrupted.
func (c *Cloud) ReservationWarning(ids ...string) error {
	return c.each(ids, func(c *Cloud, m *machine, now time.Time) {
		c.deliver("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", []string{c.instanceARN(m)},
			map[string]string{"instance-id": m.id(), "instance-action": "terminate"}, now)
	})
}

// SendRaw puts any text into the interruption queue, for what no AWS would send.
func (c *Cloud) SendRaw(body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.send(c.cfg.Queue, body, nil, time.Now())
}
