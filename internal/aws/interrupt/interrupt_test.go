package interrupt

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

func event(source, detailType, detail string) string {
	return `{"version":"0","id":"1","account":"123456789012","region":"us-east-1","resources":[],"time":"2026-05-01T10:00:00Z",` +
		`"source":"` + source + `","detail-type":"` + detailType + `","detail":` + detail + `}`
}

func TestParse(t *testing.T) {
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		text string
		want Message
	}{
		"spot interruption": {event("aws.ec2", "EC2 Spot Instance Interruption Warning", `{"instance-id":"i-1","instance-action":"terminate"}`),
			Message{SpotInterrupted, []string{"i-1"}, at}},
		"rebalance recommendation": {event("aws.ec2", "EC2 Instance Rebalance Recommendation", `{"instance-id":"i-1"}`),
			Message{Rebalance, []string{"i-1"}, at}},
		"a machine is stopping": {event("aws.ec2", "EC2 Instance State-change Notification", `{"instance-id":"i-1","state":"stopping"}`),
			Message{Stopped, []string{"i-1"}, at}},
		"a machine has stopped, in capitals": {event("aws.ec2", "EC2 Instance State-change Notification", `{"instance-id":"i-1","state":"STOPPED"}`),
			Message{Stopped, []string{"i-1"}, at}},
		"a machine is shutting down": {event("aws.ec2", "EC2 Instance State-change Notification", `{"instance-id":"i-1","state":"shutting-down"}`),
			Message{Terminated, []string{"i-1"}, at}},
		"a machine has terminated": {event("aws.ec2", "EC2 Instance State-change Notification", `{"instance-id":"i-1","state":"terminated"}`),
			Message{Terminated, []string{"i-1"}, at}},
		"a machine starts": {event("aws.ec2", "EC2 Instance State-change Notification", `{"instance-id":"i-1","state":"pending"}`),
			Message{Kind: NoOp, Time: at}},
		"a reservation is reclaimed": {event("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", `{"instance-id":"i-1"}`),
			Message{ReservationReclaimed, []string{"i-1"}, at}},
		"a scheduled change of several machines": {event("aws.health", "AWS Health Event",
			`{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"i-1"},{"entityValue":"i-2"},{"entityValue":"i-1"},{"entityValue":"vol-3"}]}`),
			Message{ScheduledChange, []string{"i-1", "i-2"}, at}},
		"another service's change": {event("aws.health", "AWS Health Event", `{"service":"RDS","eventTypeCategory":"scheduledChange"}`),
			Message{Kind: NoOp, Time: at}},
		"an event that is only for information": {event("aws.health", "AWS Health Event", `{"service":"EC2","eventTypeCategory":"issue"}`),
			Message{Kind: NoOp, Time: at}},
		"an unknown event":   {event("aws.s3", "Object Created", `{}`), Message{Kind: NoOp, Time: at}},
		"another version":    {`{"version":"1","source":"aws.ec2","detail-type":"EC2 Instance Rebalance Recommendation"}`, Message{Kind: NoOp}},
		"no instance at all": {event("aws.ec2", "EC2 Spot Instance Interruption Warning", `{}`), Message{Kind: SpotInterrupted, Time: at}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(tc.text, "123456789012")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("message differs (-want +got):\n%s", d)
			}
		})
	}
	for _, text := range []string{"", "hello", `{"time":5}`, `[]`} {
		if m, err := parse(text, ""); err == nil || m.Kind != NoOp {
			t.Errorf("parse(%q) = %v, %v; want an error", text, m, err)
		}
	}
}

// EventBridge sends what is read, and nothing else: an event without its rule never arrives, and a rule that nobody reads for costs money.
func TestEveryEventThatIsReadHasItsRule(t *testing.T) {
	text, err := os.ReadFile("../policy/account/rules.json")
	if err != nil {
		t.Fatal(err)
	}
	var rules map[string]struct {
		Source []string
		Kind   []string `json:"detail-type"`
	}
	if err := json.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	sent := map[Kind]bool{}
	for name, r := range rules {
		read := false
		for _, state := range []string{"stopping", "shutting-down"} {
			m, err := parse(event(strings.Join(r.Source, " "), strings.Join(r.Kind, " "), `{"instance-id":"i-1","state":"`+state+`","service":"EC2","eventTypeCategory":"scheduledChange"}`), "123456789012")
			if err != nil {
				t.Fatal(err)
			}
			read = read || m.Kind != NoOp
			sent[m.Kind] = true
		}
		if !read {
			t.Errorf("nobody reads what %s sends", name)
		}
	}
	for _, kind := range []Kind{SpotInterrupted, Rebalance, Stopped, Terminated, ReservationReclaimed, ScheduledChange} {
		if !sent[kind] {
			t.Errorf("no rule sends what is read as %s", kind)
		}
	}
}

// A bus that forwards events of other accounts must not bring a machine down.
func TestEventsOfOtherAccountsAreDropped(t *testing.T) {
	const queue = "https://sqs.us-east-1.amazonaws.com/123456789012/karpenter"
	text := event("aws.ec2", "EC2 Spot Instance Interruption Warning", `{"instance-id":"i-1"}`)
	if m, err := parse(text, accountOf(queue)); err != nil || m.Kind != SpotInterrupted {
		t.Errorf("an event of the queue's account gives %v, %v", m, err)
	}
	m, err := parse(strings.Replace(text, "123456789012", "999999999999", 1), accountOf(queue))
	if err == nil || m.Kind != NoOp || len(m.Instances) > 0 {
		t.Errorf("an event of another account gives %v, %v; want an error", m, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(event("aws.ec2", "EC2 Spot Instance Interruption Warning", `{"instance-id":"i-1"}`))
	f.Add(event("aws.health", "AWS Health Event", `{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"i-1"}]}`))
	f.Add(`{"detail":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parse(text, "123456789012")
		if err != nil && (m.Kind != NoOp || len(m.Instances) > 0) {
			t.Errorf("a text that is no event says %v", m)
		}
		for _, id := range m.Instances {
			if len(id) < 2 || id[:2] != "i-" {
				t.Errorf("%q is taken for an instance", id)
			}
		}
	})
}

func TestCategories(t *testing.T) {
	now := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	check := func(status ec2types.StatusType, since time.Duration) *ec2types.InstanceStatusSummary {
		return &ec2types.InstanceStatusSummary{Status: ec2types.SummaryStatusImpaired, Details: []ec2types.InstanceStatusDetails{
			{Status: status, ImpairedSince: aws.Time(now.Add(-since))},
		}}
	}
	events := func(descriptions ...string) []ec2types.InstanceStatusEvent {
		var out []ec2types.InstanceStatusEvent
		for _, d := range descriptions {
			out = append(out, ec2types.InstanceStatusEvent{Code: ec2types.EventCodeInstanceRetirement, Description: aws.String(d)})
		}
		return out
	}
	for name, tc := range map[string]struct {
		status ec2types.InstanceStatus
		want   []Kind
	}{
		"a healthy machine":                    {ec2types.InstanceStatus{}, nil},
		"its check failed for two minutes":     {ec2types.InstanceStatus{InstanceStatus: check("failed", 2*time.Minute)}, []Kind{InstanceStatus}},
		"its check failed a moment ago":        {ec2types.InstanceStatus{InstanceStatus: check("failed", time.Minute)}, nil},
		"its check passed":                     {ec2types.InstanceStatus{InstanceStatus: check("passed", time.Hour)}, nil},
		"its host failed":                      {ec2types.InstanceStatus{SystemStatus: check("failed", time.Hour)}, []Kind{SystemStatus}},
		"an appointment":                       {ec2types.InstanceStatus{Events: events("retirement")}, []Kind{EventStatus}},
		"an appointment that is over":          {ec2types.InstanceStatus{Events: events("[Completed] retirement", "[Canceled] reboot")}, nil},
		"an appointment beside one that ended": {ec2types.InstanceStatus{Events: events("[Completed] reboot", "retirement")}, []Kind{EventStatus}},
		"a failed check and an appointment: the check goes first": {
			ec2types.InstanceStatus{SystemStatus: check("failed", time.Hour), Events: events("retirement")}, []Kind{SystemStatus, EventStatus}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := categoriesOf(tc.status, now); !slices.Equal(got, tc.want) {
				t.Errorf("categoriesOf = %v, want %v", got, tc.want)
			}
		})
	}
}

// Kinds are values of labels, and reasons of deletions: queries ask for them.
func TestKindsAreWhatQueriesKnow(t *testing.T) {
	got := []Kind{NoOp, SpotInterrupted, Rebalance, Stopped, Terminated, ReservationReclaimed, ScheduledChange, InstanceStatus, SystemStatus, EventStatus}
	want := []Kind{
		"no_op", "spot_interrupted", "rebalance_recommendation", "instance_stopped", "instance_terminated", "capacity_reservation_interrupted",
		"scheduled_change", "instance_status", "system_status", "event_status",
	}
	if !slices.Equal(got, want) {
		t.Errorf("kinds = %q, want %q", got, want)
	}
}
