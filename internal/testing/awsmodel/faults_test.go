package awsmodel

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"
)

// once is a client that does not try again.
func (w *harness) once() *ec2.Client {
	return ec2.NewFromConfig(w.AWSConfig(), func(o *ec2.Options) { o.RetryMaxAttempts = 1 })
}

func (w *harness) set(t *testing.T, change func(*Faults)) {
	t.Helper()
	if err := w.SetFaults(change); err != nil {
		t.Fatal(err)
	}
}

func TestBucketsAreEC2s(t *testing.T) {
	for name, tc := range map[string]struct {
		call     func(t *testing.T, w *harness, c *ec2.Client) error
		burst    int // calls that pass at once
		inSecond int // further calls that pass one second later
	}{
		"a filtered describe": {func(t *testing.T, w *harness, c *ec2.Client) error {
			_, err := c.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{MaxResults: aws.Int32(1000)})
			return err
		}, 100, 20},
		"a describe of everything": {func(t *testing.T, w *harness, c *ec2.Client) error {
			_, err := c.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
			return err
		}, 50, 10},
		"a mutation": {func(t *testing.T, w *harness, c *ec2.Client) error {
			_, err := c.DeleteLaunchTemplate(t.Context(), &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String("nobody")})
			return err
		}, 50, 5},
		"CreateTags, which has its own": {func(t *testing.T, w *harness, c *ec2.Client) error {
			_, err := c.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{"i-0"}, Tags: tagList("a", "b")})
			return err
		}, 100, 10},
		"RunInstances, the tightest": {func(t *testing.T, w *harness, c *ec2.Client) error {
			_, err := c.RunInstances(t.Context(), &ec2.RunInstancesInput{MinCount: aws.Int32(1), MaxCount: aws.Int32(1), ImageId: aws.String("ami-0")})
			return err
		}, 5, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{Faults: Faults{Throttle: true}}, func(t *testing.T, w *harness) {
				client := w.once()
				passed := func() int {
					n := 0
					for code(tc.call(t, w, client)) != "RequestLimitExceeded" {
						if n++; n > 1000 {
							t.Fatal("never throttled")
						}
					}
					return n
				}
				if got := passed(); got != tc.burst {
					t.Errorf("%d calls pass at once, want %d", got, tc.burst)
				}
				time.Sleep(time.Second)
				if got := passed(); got != tc.inSecond {
					t.Errorf("%d calls pass a second later, want %d", got, tc.inSecond)
				}
			})
		})
	}
}

func TestMachinesHaveABucketOfTheirOwn(t *testing.T) {
	inWorld(t, Config{Faults: Faults{Throttle: true, Buckets: map[string]Bucket{"ec2:RunInstances/instances": {Size: 3, PerSecond: 1}}}}, func(t *testing.T, w *harness) {
		in := w.fleetOf(t, w.prepare(t, al2023), odTarget, 5, "m5.large/us-east-1a")
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), in))
		if len(out.Instances[0].InstanceIds) != 3 || len(out.Errors) != 1 || *out.Errors[0].ErrorCode != "RequestLimitExceeded" {
			t.Errorf("outcome %v", outcome(out))
		}
	})
}

func TestThrottledCallsSucceedWhenTheClientTriesAgain(t *testing.T) {
	inWorld(t, Config{Faults: Faults{Buckets: map[string]Bucket{"ssm:GetParameter": {Size: 1, PerSecond: 5}}}}, func(t *testing.T, w *harness) {
		client := ssm.NewFromConfig(w.AWSConfig())
		for range 3 {
			must[*ssm.GetParameterOutput](t)(client.GetParameter(t.Context(), &ssm.GetParameterInput{
				Name: aws.String("/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/recommended/image_id"),
			}))
		}
	})
}

func TestALostAnswerIsOfACallThatWasCarriedOut(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		in := w.fleetOf(t, w.prepare(t, al2023), odTarget, 1, "m5.large/us-east-1a")
		w.set(t, func(f *Faults) { f.LostAnswers = 1 })
		in.ClientToken = aws.String("lost")
		_, err := w.once().CreateFleet(t.Context(), in)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("error %v, want a broken connection", err)
		}
		if n := len(w.Alive()); n != 1 {
			t.Fatalf("%d machines live, want 1", n)
		}
		w.set(t, func(f *Faults) { f.LostAnswers = 0 })
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), in))
		if got := w.Alive(); len(got) != 1 || got[0].ID != out.Instances[0].InstanceIds[0] {
			t.Errorf("the repeated call tells of %v, alive are %v", out.Instances, got)
		}
	})
}

func TestDescribeLagsBehindForAWhile(t *testing.T) {
	inWorld(t, Config{Faults: Faults{LagMillis: 10000}, Seed: 3}, func(t *testing.T, w *harness) {
		var name string
		w.set(t, func(f *Faults) { f.LagMillis = 0 })
		name = w.prepare(t, al2023)
		in := w.fleetOf(t, name, odTarget, 20, "m5.large/us-east-1a")
		w.set(t, func(f *Faults) { f.LagMillis = 10000 })
		must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), in))
		list := func() int {
			out := must[*ec2.DescribeInstancesOutput](t)(w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{MaxResults: aws.Int32(1000)}))
			return len(out.Reservations)
		}
		if n := list(); n == 20 {
			t.Error("every machine is described at once in spite of the lag")
		}
		w.set(t, func(f *Faults) { f.LagMillis = 0 })
		time.Sleep(11 * time.Second)
		if n := list(); n != 20 {
			t.Errorf("when the lag has passed, %d of 20 machines are described", n)
		}
	})
}

func TestFailuresAreInjected(t *testing.T) {
	inWorld(t, Config{Faults: Faults{Fail: map[string]Failure{"ec2:Describe*": {Code: "InternalError", Message: "An internal error has occurred", Status: 500}}}}, func(t *testing.T, w *harness) {
		_, err := w.once().DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
		if code(err) != "InternalError" {
			t.Errorf("error %v", err)
		}
		if got := w.Log(); len(got) != 1 || got[0].Error != "InternalError" || got[0].Operation != "ec2:DescribeSubnets" {
			t.Errorf("log = %+v", got)
		}
	})
}

func TestLatencyDelaysAnswers(t *testing.T) {
	inWorld(t, Config{Faults: Faults{LatencyMillis: 1000}}, func(t *testing.T, w *harness) {
		start := time.Now()
		must[*ec2.DescribeSubnetsOutput](t)(w.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{}))
		if took := time.Since(start); took < 500*time.Millisecond || took > 1500*time.Millisecond {
			t.Errorf("the answer took %v, want about a second", took)
		}
	})
}

// messages receives everything that is in the queue, as detail-type and state.
func (w *harness) messages(t *testing.T) []string {
	t.Helper()
	client := sqs.NewFromConfig(w.AWSConfig())
	url := must[*sqs.GetQueueUrlOutput](t)(client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("demo")})).QueueUrl
	var got []string
	for {
		out := must[*sqs.ReceiveMessageOutput](t)(client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10, WaitTimeSeconds: 1}))
		if len(out.Messages) == 0 {
			return got
		}
		for _, m := range out.Messages {
			got = append(got, *m.Body)
			must[*sqs.DeleteMessageOutput](t)(client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: m.ReceiptHandle}))
		}
	}
}

func count(list []string, part string) int {
	n := 0
	for _, s := range list {
		if strings.Contains(s, part) {
			n++
		}
	}
	return n
}

func TestSpotInterruptionGivesNoticeAndTakesTheMachine(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, w.prepare(t, al2023), spotTarget, 1, "m5.large/us-east-1a")))
		id := out.Instances[0].InstanceIds[0]
		time.Sleep(time.Minute)
		w.messages(t)
		if err := w.Interrupt(id); err != nil {
			t.Fatal(err)
		}
		if got := w.messages(t); count(got, `"detail-type":"EC2 Spot Instance Interruption Warning"`) != 1 || count(got, `"instance-id":"`+id+`"`) != 1 {
			t.Errorf("messages %q", got)
		}
		time.Sleep(115 * time.Second)
		if got := w.stateOf(t, id); got != "running" {
			t.Errorf("before its notice has passed the machine is %s", got)
		}
		time.Sleep(10 * time.Second)
		if got := w.stateOf(t, id); got != "shutting-down" {
			t.Errorf("after its notice the machine is %s", got)
		}
		time.Sleep(time.Minute)
		if got := w.messages(t); count(got, `"state":"shutting-down"`) != 1 || count(got, `"state":"terminated"`) != 1 {
			t.Errorf("messages %q", got)
		}
	})
}

func TestSpotInterruptionsComeAtTheirRate(t *testing.T) {
	inWorld(t, Config{Faults: Faults{SpotInterruptionsPerHour: 1}, Seed: 7}, func(t *testing.T, w *harness) {
		name := w.prepare(t, al2023)
		must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, name, spotTarget, 100, "m5.large/us-east-1a")))
		must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, name, odTarget, 10, "m5.large/us-east-1a")))
		time.Sleep(time.Hour + 3*time.Minute)
		spot, other := 0, 0
		for _, m := range w.Alive() {
			if m.CapacityType == "spot" {
				spot++
			} else {
				other++
			}
		}
		if spot < 22 || spot > 55 || other != 10 { // 100/e is 37
			t.Errorf("after an hour %d of 100 spot machines and %d of 10 others live", spot, other)
		}
	})
}

func TestWhatHealthAndStatusTell(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, w.prepare(t, al2023), odTarget, 3, "m5.large/us-east-1a")))
		ids := out.Instances[0].InstanceIds
		time.Sleep(time.Minute)
		for _, err := range []error{w.Impair(ids[0]), w.BreakInstance(ids[1]), w.Schedule(ids[2], ec2types.EventCodeInstanceRetirement, time.Now().Add(time.Hour)), w.Rebalance(ids[2])} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for filter, want := range map[string]string{"system-status.status=impaired": ids[0], "instance-status.status=impaired": ids[1], "event.code=instance-retirement": ids[2]} {
			name, value, _ := strings.Cut(filter, "=")
			got := must[*ec2.DescribeInstanceStatusOutput](t)(w.ec2.DescribeInstanceStatus(t.Context(), &ec2.DescribeInstanceStatusInput{
				Filters: []ec2types.Filter{{Name: &name, Values: []string{value}}},
			}))
			if len(got.InstanceStatuses) != 1 || *got.InstanceStatuses[0].InstanceId != want {
				t.Errorf("%s shows %+v, want %s", filter, got.InstanceStatuses, want)
			}
		}
		if got := w.messages(t); count(got, `"source":"aws.health"`) != 1 || count(got, "Rebalance Recommendation") != 1 || count(got, `"entityValue":"`+ids[2]+`"`) != 1 {
			t.Errorf("messages %q", got)
		}
		synctest.Wait()
		if len(w.gone()) != 2 || w.gone()[0].State != "unreachable" {
			t.Errorf("gone = %+v", w.gone())
		}
		before := len(w.joins())
		if err := w.Heal(ids[0]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(w.joins()) != before+1 {
			t.Error("a machine that was healed does not join again")
		}
	})
}

func TestAZoneGoesSilentAndComesBack(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, w.prepare(t, al2023), odTarget, 2, "m5.large/us-east-1a")))
		time.Sleep(time.Minute)
		w.set(t, func(f *Faults) { f.ZonesDown = []string{"us-east-1a"} })
		synctest.Wait()
		if len(w.gone()) != 2 {
			t.Errorf("gone = %+v, want both", w.gone())
		}
		w.set(t, func(f *Faults) { f.ZonesDown = nil })
		synctest.Wait()
		if len(w.joins()) != 4 {
			t.Errorf("%d joins, want two machines twice", len(w.joins()))
		}
	})
}

func TestDeadOnArrival(t *testing.T) {
	inWorld(t, Config{Faults: Faults{DeadOnArrival: 1}}, func(t *testing.T, w *harness) {
		must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, w.prepare(t, al2023), odTarget, 1, "m5.large/us-east-1a")))
		time.Sleep(time.Hour)
		if len(w.joins()) != 0 || count(w.Machines()[0].Console, "kernel panic") != 1 {
			t.Errorf("joins %v, console %q", w.joins(), w.Machines()[0].Console)
		}
	})
}

func TestWrongUserDataShowsOnTheConsole(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, w.prepare(t, strings.Replace(al2023, "name: demo", "name: other", 1)), odTarget, 1, "m5.large/us-east-1a")))
		time.Sleep(time.Hour)
		got := must[*ec2.GetConsoleOutputOutput](t)(w.ec2.GetConsoleOutput(t.Context(), &ec2.GetConsoleOutputInput{InstanceId: &out.Instances[0].InstanceIds[0]}))
		if text := decode(t, *got.Output); len(w.joins()) != 0 || !strings.Contains(text, `Unauthorized: the token is for cluster "other"`) {
			t.Errorf("%d joins, console %q", len(w.joins()), text)
		}
	})
}

func TestSnapshotKeepsTheWorld(t *testing.T) {
	file := filepath.Join(t.TempDir(), "world.json")
	var id string
	inWorld(t, Config{Snapshot: file}, func(t *testing.T, w *harness) {
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, w.prepare(t, al2023), spotTarget, 1, "m5.large/us-east-1a")))
		id = out.Instances[0].InstanceIds[0]
		time.Sleep(time.Minute)
	})
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	inWorld(t, Config{Snapshot: file}, func(t *testing.T, w *harness) {
		synctest.Wait()
		if len(w.joins()) != 1 || w.joins()[0].InstanceID != id || w.joins()[0].Capacity.Cpu().Value() != 2 {
			t.Errorf("joins after the restart: %+v, want %s", w.joins(), id)
		}
		if got := w.stateOf(t, id); got != "running" {
			t.Errorf("after the restart the machine is %s", got)
		}
		in := w.fleetOf(t, "nodes", odTarget, 1, "m5.large/us-east-1a")
		out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), in))
		if out.Instances[0].InstanceIds[0] == id {
			t.Error("an identifier was given out twice")
		}
	})
}

func TestSwitchesOverHTTP(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *harness) {
		do := func(method, path, body string) (int, string) {
			rec := httptest.NewRecorder()
			w.Handler().ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
			return rec.Code, rec.Body.String()
		}
		if status, body := do(http.MethodPut, "/_model/faults", `{"Pools": [{"Match": "*/m5.*/*", "Depth": 0}], "Throttle": true}`); status != 200 || !w.Faults().Throttle || len(w.Faults().Pools) != 1 {
			t.Errorf("faults: %d %s", status, body)
		}
		if status, _ := do(http.MethodPut, "/_model/faults", `{"Pools": [{"Match": "["}]}`); status != 400 {
			t.Errorf("a malformed pattern is answered with %d", status)
		}
		if status, _ := do(http.MethodPut, "/_model/faults", `{"Nonsense": 1}`); status != 400 {
			t.Errorf("an unknown switch is answered with %d", status)
		}
		if status, body := do(http.MethodPost, "/_model/interrupt", `{"ids": ["i-0"]}`); status != 400 || !strings.Contains(body, "no machine") {
			t.Errorf("interrupting nobody: %d %s", status, body)
		}
		if status, _ := do(http.MethodPost, "/_model/message", `{"body": "not an event"}`); status != 200 || count(w.messages(t), "not an event") != 1 {
			t.Errorf("a message of one's own does not arrive: %d", status)
		}
		if status, body := do(http.MethodGet, "/_model/machines", ""); status != 200 || strings.TrimSpace(body) != "null" && !strings.HasPrefix(body, "[") {
			t.Errorf("machines: %d %s", status, body)
		}
	})
}

func TestOnePortServesEveryServiceOverTheNetwork(t *testing.T) {
	c, err := New(Config{Cluster: demo})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	cfg := c.AWSConfig()
	cfg.BaseEndpoint, cfg.HTTPClient = &server.URL, server.Client()
	ctx := t.Context()
	must[*ec2.DescribeSubnetsOutput](t)(ec2.NewFromConfig(cfg).DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{}))
	must[*sqs.GetQueueUrlOutput](t)(sqs.NewFromConfig(cfg).GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("demo")}))
	must[*eks.DescribeClusterOutput](t)(eks.NewFromConfig(cfg).DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String("demo")}))
	must[*iam.ListRolesOutput](t)(iam.NewFromConfig(cfg).ListRoles(ctx, &iam.ListRolesInput{}))
	role := must[*sts.AssumeRoleWithWebIdentityOutput](t)(sts.NewFromConfig(cfg).AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: aws.String("arn:aws:iam::123456789012:role/karpenter"), RoleSessionName: aws.String("pod"), WebIdentityToken: aws.String("token"),
	}))
	if *role.AssumedRoleUser.Arn != "arn:aws:sts::123456789012:assumed-role/karpenter/pod" {
		t.Errorf("assumed %s", *role.AssumedRoleUser.Arn)
	}
	if err := c.SetFaults(func(f *Faults) { f.LostAnswers, f.LostAnswersOf = 1, []string{"ec2:CreatePlacementGroup"} }); err != nil {
		t.Fatal(err)
	}
	client := ec2.NewFromConfig(cfg, func(o *ec2.Options) { o.RetryMaxAttempts = 1 })
	if _, err := client.CreatePlacementGroup(ctx, &ec2.CreatePlacementGroupInput{GroupName: aws.String("g")}); err == nil || code(err) == "" {
		t.Errorf("the answer arrived: %v", err)
	}
	if got := c.Log(); !got[len(got)-1].Lost {
		t.Errorf("the last call is %+v, want a lost answer", got[len(got)-1])
	}
	cfg.Region = "eu-west-2"
	if _, err := ec2.NewFromConfig(cfg).DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{}); code(err) != "AuthFailure" {
		t.Errorf("another region: %v", err)
	}
}

// What is drawn about a call or a machine is the same however often something else was asked in the meantime, and whatever came of that.
func TestOthersDoNotChangeWhatHappens(t *testing.T) {
	play := func(others int) (seen []string) {
		faults := Faults{
			LatencyMillis: 200, LagMillis: 5000, DeadOnArrival: 0.3, SpotInterruptionsPerHour: 10,
			Fail: map[string]Failure{"ec2:CreateTags": {Code: "Unavailable", Share: 0.5}, "ec2:DescribeSecurityGroups": {Code: "Unavailable", Share: 0.5}},
		}
		inWorld(t, Config{Seed: 5}, func(t *testing.T, w *harness) {
			template := w.prepare(t, al2023)
			w.set(t, func(f *Faults) { *f = faults })
			for range 4 {
				began := time.Now()
				out := must[*ec2.CreateFleetOutput](t)(w.ec2.CreateFleet(t.Context(), w.fleetOf(t, template, spotTarget, 5, "m5.large/us-east-1a")))
				seen = append(seen, time.Since(began).String(), strings.Join(out.Instances[0].InstanceIds, " "))
				var wait sync.WaitGroup
				for range others {
					wait.Go(func() { _, _ = w.once().DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{}) })
				}
				time.Sleep(time.Second)
				wait.Wait()
				_, err := w.once().CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: out.Instances[0].InstanceIds[:1], Tags: tagList("a", "b")})
				seen = append(seen, code(err))
			}
			time.Sleep(20 * time.Minute)
			for _, j := range noted(w, &w.joined) {
				seen = append(seen, "joined: "+j.NodeName)
			}
			for _, m := range w.Alive() {
				seen = append(seen, "alive: "+m.ID)
			}
		})
		return seen
	}
	alone := play(0)
	if diff := cmp.Diff(alone, play(7)); diff != "" {
		t.Errorf("beside others (+) it is not as alone (-):\n%s", diff)
	}
	if n := len(alone); n < 12+2 || n > 12+35 || slices.Index(alone, "Unavailable") < 0 {
		t.Errorf("the faults of this world do not show: %q", alone)
	}
}
