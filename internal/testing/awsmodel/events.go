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
func (w *world) deliver(source, kind string, resources []string, detail any, now time.Time) {
	body, err := json.Marshal(envelope{
		Version: "0", ID: w.uuid(), DetailType: kind, Source: source, Account: w.cfg.Account,
		Time: now.UTC().Truncate(time.Second), Region: w.cfg.Region, Resources: resources, Detail: detail,
	})
	if err != nil {
		return // cannot happen: the details below all have a JSON form
	}
	w.send(w.cfg.Queue, string(body), nil, now)
}

func (w *world) instanceARN(m *machine) string { return w.cfg.arn("ec2", "instance/"+m.id()) }

func (w *world) stateChanged(m *machine, name ec2types.InstanceStateName, now time.Time) {
	w.deliver("aws.ec2", "EC2 Instance State-change Notification", []string{w.instanceARN(m)},
		map[string]string{"instance-id": m.id(), "state": string(name)}, now)
}

func (w *world) spotWarning(m *machine, now time.Time) {
	w.deliver("aws.ec2", "EC2 Spot Instance Interruption Warning", []string{w.instanceARN(m)},
		map[string]string{"instance-id": m.id(), "instance-action": "terminate"}, now)
}

func (w *world) rebalance(m *machine, now time.Time) {
	w.deliver("aws.ec2", "EC2 Instance Rebalance Recommendation", []string{w.instanceARN(m)},
		map[string]string{"instance-id": m.id()}, now)
}

func (w *world) schedule(m *machine, code ec2types.EventCode, notBefore, now time.Time) {
	text := "The instance is scheduled for " + string(code)
	id := w.newID("instance-event")
	m.Events = append(m.Events, ec2types.InstanceStatusEvent{Code: code, Description: &text, InstanceEventId: &id, NotBefore: &notBefore})
	w.deliver("aws.health", "AWS Health Event", []string{m.id()}, map[string]any{
		"eventArn":          "arn:aws:health:" + w.cfg.Region + "::event/EC2/" + healthCode(code) + "/" + id,
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
	return c.each(ids, func(w *world, m *machine, now time.Time) {
		w.deliver("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", []string{w.instanceARN(m)},
			map[string]string{"instance-id": m.id(), "instance-action": "terminate"}, now)
	})
}

// SendRaw puts any text into the interruption queue, for what no AWS would send.
func (c *Cloud) SendRaw(body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.world.send(c.world.cfg.Queue, body, nil, time.Now())
}
