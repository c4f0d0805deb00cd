// Package interrupt learns from AWS which machines are going away, and calls Act so that their NodeClaims are deleted in
// time.
//
// Messages come from an SQS queue into which EventBridge delivers events (message.go, queue.go). Broken machines without
// a message are found by asking EC2 for their status (status.go). A message that cannot be read is logged and dropped.
package interrupt

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Kind is what a message says.
type Kind string

// The kinds of messages.
const (
	NoOp                 Kind = "no_op"
	SpotInterrupted      Kind = "spot_interrupted"
	Rebalance            Kind = "rebalance_recommendation"
	Stopped              Kind = "instance_stopped"
	Terminated           Kind = "instance_terminated"
	ReservationReclaimed Kind = "capacity_reservation_interrupted"
	// that a capacity block ends soon is known from the block; no message says so
	ReservationEnding Kind = "capacity_reservation_expiring"
	ScheduledChange   Kind = "scheduled_change"
	InstanceStatus    Kind = "instance_status"
	SystemStatus      Kind = "system_status"
	EventStatus       Kind = "event_status"
)

// A Message is one message, read.
type Message struct {
	Kind      Kind
	Instances []string // ids
	Time      time.Time
}

// envelope is what EventBridge wraps around every event.
type envelope struct {
	Version    string    `json:"version"`
	Source     string    `json:"source"`
	DetailType string    `json:"detail-type"`
	Account    string    `json:"account"`
	Time       time.Time `json:"time"`
	Detail     detail    `json:"detail"`
}

// detail has the fields of all events that are read.
type detail struct {
	InstanceID        string `json:"instance-id"`
	State             string `json:"state"`
	Service           string `json:"service"`
	EventTypeCategory string `json:"eventTypeCategory"`
	AffectedEntities  []struct {
		EntityValue string `json:"entityValue"`
	} `json:"affectedEntities"`
}

// parse reads a message of the queue. Events that mean nothing to Karpenter are NoOp. It returns an error if the text
// is no event, or an event of another account, because the machines of the cluster are in the account of the queue.
func parse(text, account string) (Message, error) {
	var e envelope
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return Message{Kind: NoOp}, err
	}
	m := Message{Kind: e.kind(), Time: e.Time}
	if m.Kind == NoOp {
		return m, nil
	}
	if e.Account != "" && e.Account != account {
		return Message{Kind: NoOp, Time: e.Time}, fmt.Errorf("the event is of account %s, the queue of %s", e.Account, account)
	}
	ids := []string{e.Detail.InstanceID}
	if m.Kind == ScheduledChange {
		ids = ids[:0]
		for _, entity := range e.Detail.AffectedEntities {
			ids = append(ids, entity.EntityValue)
		}
	}
	for _, id := range ids {
		if strings.HasPrefix(id, "i-") && !slices.Contains(m.Instances, id) {
			m.Instances = append(m.Instances, id)
		}
	}
	return m, nil
}

// kind returns the kind of an event.
func (e *envelope) kind() Kind {
	if e.Version != "0" {
		return NoOp
	}
	switch e.Source + "/" + e.DetailType {
	case "aws.ec2/EC2 Spot Instance Interruption Warning":
		return SpotInterrupted
	case "aws.ec2/EC2 Instance Rebalance Recommendation":
		return Rebalance
	case "aws.ec2/EC2 Capacity Reservation Instance Interruption Warning":
		return ReservationReclaimed
	case "aws.ec2/EC2 Instance State-change Notification":
		switch strings.ToLower(e.Detail.State) {
		case "stopping", "stopped":
			return Stopped
		case "shutting-down", "terminated":
			return Terminated
		}
	case "aws.health/AWS Health Event":
		if e.Detail.Service == "EC2" && e.Detail.EventTypeCategory == "scheduledChange" {
			return ScheduledChange
		}
	}
	return NoOp
}
