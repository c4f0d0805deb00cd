package aws

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/launch"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// maxUserData is the user data that EC2 takes, in bytes before they are encoded.
const maxUserData = 16384

// templateMade records the size of the user data of a class, and warns before it is too large for EC2.
func (c *classes) templateMade(t *launch.Template) {
	size := len(t.UserData)
	c.env.in.Metrics.NodeClassUserData.WithLabelValues(t.Class.Name).Set(float64(size))
	if size*10 >= maxUserData*9 {
		slog.Warn("the user data of an EC2NodeClass comes close to what EC2 takes; shorten spec.userData",
			"EC2NodeClass", t.Class.Name, "bytes", size, "limit", maxUserData)
	}
}

// observer returns what counts calls of AWS, and remembers why attempts of launches fail.
func (e *environment) observer() ec2api.Observer {
	m := e.in.Metrics
	status := func(c ec2api.Call) string { return strconv.Itoa(c.Status) }
	return ec2api.Observer{
		Call: func(c ec2api.Call) {
			m.AWSRequests.WithLabelValues(c.Service, c.Operation, status(c)).Inc()
			m.AWSRequestDuration.WithLabelValues(c.Service, c.Operation, status(c)).Observe(c.Took.Seconds())
			m.AWSRetries.WithLabelValues(c.Service, c.Operation, status(c)).Observe(float64(c.Retries))
		},
		Attempt: func(c ec2api.Call) {
			e.attempted(c)
			m.AWSAttempts.WithLabelValues(c.Service, c.Operation, status(c)).Inc()
			m.AWSAttemptDuration.WithLabelValues(c.Service, c.Operation, status(c)).Observe(c.Took.Seconds())
		},
	}
}

// launchCalls are the calls of EC2 that a launch waits for.
var launchCalls = []string{"CreateFleet", "CreateLaunchTemplate"}

// refusalLife is how long a refused attempt of a call explains why launches wait for it.
const refusalLife = 30 * time.Second

// attempted remembers the error code of a launch call that is repeated. Until the call gives up, nothing else tells
// why a launch takes long.
func (e *environment) attempted(c ec2api.Call) {
	switch {
	case !slices.Contains(launchCalls, c.Operation):
	case c.Code == "":
		e.refusals.Delete(c.Operation)
	default:
		e.refusals.Put(c.Operation, c.Code)
	}
}

// launchPatience is how long a launch may take before an event says what it waits for.
const launchPatience = 3 * time.Second

// tellIfSlow publishes an event on the claim if its launch takes longer than launchPatience because EC2 refuses
// calls. end stops the wait.
func (e *environment) tellIfSlow(claim *v1.NodeClaim) (end func()) {
	timer := time.AfterFunc(launchPatience, func() {
		for _, call := range launchCalls {
			if code, ok := e.refusals.Get(call); ok {
				e.in.Events.Publish(telemetry.Event{
					Object: telemetry.ClaimRef(claim), Reason: telemetry.LaunchFailed, Key: []string{string(claim.UID), code},
					Message: fmt.Sprintf("EC2 refuses %s for now (%s); it is tried again", call, code),
				})
			}
		}
	})
	return func() { timer.Stop() }
}

// reportNarrow publishes an event about a spot launch that can name few types, once in a while for each pool: its
// owner can allow more.
func (e *environment) reportNarrow(claim *v1.NodeClaim, types int) {
	e.in.Events.Publish(telemetry.Event{
		Object: telemetry.ClaimRef(claim), Reason: telemetry.FewInstanceTypes, Key: []string{claim.Labels[v1.NodePoolLabelKey]},
		Message: fmt.Sprintf("The spot launch names %d instance type(s), fewer than %d: the NodeClaim lists no more "+
			"below the price of on-demand; "+
			"a NodePool that allows more types is interrupted less", types, flexible),
	})
}

// reportShare publishes an event about a spot launch for which every offering has its share already, once in a while
// for each pool.
func (e *environment) reportShare(claim *v1.NodeClaim, share string) {
	e.in.Events.Publish(telemetry.Event{
		Object: telemetry.ClaimRef(claim), Reason: telemetry.SpotShareExceeded, Key: []string{claim.Labels[v1.NodePoolLabelKey]},
		Message: fmt.Sprintf("Every type and zone that the claim may be bought as on spot has %s of the pool's spot machines, or of a "+
			"workload's, already (%s): it is launched where there is least of it; a NodePool that allows more types and zones "+
			"keeps the share", share, v1.SpotMaxShareAnnotationKey),
	})
}

func (e *environment) batchSent(batcher string, size int, open time.Duration) {
	e.in.Metrics.BatcherSize.WithLabelValues(batcher).Observe(float64(size))
	e.in.Metrics.BatcherTime.WithLabelValues(batcher).Observe(open.Seconds())
}

// launchFailed notes a failure of a launch call, also if the call launched something else.
func (k *market) launchFailed(f fleet.Failure) {
	if f.UsedUp() {
		k.reservations.UsedUp(f.Reservation)
	}
	if f.CapacityType == v1.CapacityTypeSpot && f.Scarce() {
		k.risks.Failed(price.Pool{Type: f.InstanceType, Zone: f.Zone})
	}
	k.env.in.Metrics.InstanceLaunchFailures.WithLabelValues(f.Zone, k.classes.zoneID(f.Zone), f.CapacityType, f.Reason()).Inc()
}

func (ms *machines) terminationFailed(providerID string) {
	zone := strings.Split(strings.TrimPrefix(providerID, "aws:///"), "/")[0]
	ms.env.in.Metrics.InstanceTerminationFailures.WithLabelValues(zone, ms.classes.zoneID(zone)).Inc()
}

// zoneID returns the id of a zone, "" if no class has a subnet there.
func (c *classes) zoneID(zone string) string {
	for _, nc := range c.objects.All() {
		for _, s := range nc.Status.Subnets {
			if s.Zone == zone {
				return s.ZoneID
			}
		}
	}
	return ""
}

func (c *classes) classWaits(nc *awsv1.EC2NodeClass, message string) {
	c.env.in.Events.Publish(telemetry.Event{Object: classRef(nc), Reason: telemetry.WaitingOnNodeClaimTermination,
		Message: message, Key: []string{nc.Name}})
}

func (c *classes) classUnready(nc *awsv1.EC2NodeClass, why metav1.Condition) {
	c.env.in.Events.Publish(telemetry.Event{
		Object: classRef(nc), Reason: telemetry.NodeClassNotReady, Message: why.Reason + ": " + why.Message,
		Key: []string{nc.Name, why.Type, why.Message},
	})
}

func (c *classes) classBootstrapsTwice(nc *awsv1.EC2NodeClass) {
	c.env.in.Events.Publish(telemetry.Event{
		Object: classRef(nc), Reason: telemetry.BootstrapsTwice, Key: []string{nc.Name},
		Message: "spec.userData calls /etc/eks/bootstrap.sh, and Karpenter bootstraps the node too: remove the call, " +
			"or use amiFamily Custom and leave all of it to spec.userData",
	})
}

func (c *classes) classGone(name string) {
	c.env.in.Metrics.NodeClassUserData.DeleteLabelValues(name)
}

func classRef(nc *awsv1.EC2NodeClass) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: awsv1.GroupVersion.String(), Kind: "EC2NodeClass", Name: nc.Name, UID: nc.UID}
}
