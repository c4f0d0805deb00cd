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
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// maxUserData is the user data that EC2 takes, in bytes before they are encoded.
const maxUserData = 16384

// templateMade records the size of the user data of a class, and warns before it is too large: labels, taints and a longer
// certificate authority add to it.
func (p *Provider) templateMade(t *launch.Template) {
	size := len(t.UserData)
	p.in.Metrics.NodeClassUserData.WithLabelValues(t.Class.Name).Set(float64(size))
	if size*10 >= maxUserData*9 {
		slog.Warn("the user data of an EC2NodeClass comes close to what EC2 takes; shorten spec.userData",
			"EC2NodeClass", t.Class.Name, "bytes", size, "limit", maxUserData)
	}
}

// observer counts calls of AWS.
func (p *Provider) observer() ec2api.Observer {
	m := p.in.Metrics
	code := func(c ec2api.Call) string { return strconv.Itoa(c.Status) }
	return ec2api.Observer{
		Call: func(c ec2api.Call) {
			m.AWSRequests.WithLabelValues(c.Service, c.Operation, code(c)).Inc()
			m.AWSRequestDuration.WithLabelValues(c.Service, c.Operation, code(c)).Observe(c.Took.Seconds())
			m.AWSRetries.WithLabelValues(c.Service, c.Operation, code(c)).Observe(float64(c.Retries))
		},
		Attempt: func(c ec2api.Call) {
			p.attempted(c)
			m.AWSAttempts.WithLabelValues(c.Service, c.Operation, code(c)).Inc()
			m.AWSAttemptDuration.WithLabelValues(c.Service, c.Operation, code(c)).Observe(c.Took.Seconds())
		},
	}
}

// launchCalls are the calls of EC2 that a launch waits for.
var launchCalls = []string{"CreateFleet", "CreateLaunchTemplate"}

// refusalLife is how long a refused attempt of a call explains why launches wait for it.
const refusalLife = 30 * time.Second

// attempted remembers why attempts of launches fail while they are repeated: until the call gives up, nothing else would say.
func (p *Provider) attempted(c ec2api.Call) {
	switch {
	case !slices.Contains(launchCalls, c.Operation):
	case c.Code == "":
		p.refusals.Delete(c.Operation)
	default:
		p.refusals.Put(c.Operation, c.Code)
	}
}

// launchPatience is how long a launch may take before it is said what it waits for.
const launchPatience = 3 * time.Second

// tellIfSlow says on the claim why its launch takes long, if attempts fail. What it returns ends that.
func (p *Provider) tellIfSlow(claim *v1.NodeClaim) (end func()) {
	timer := time.AfterFunc(launchPatience, func() {
		for _, call := range launchCalls {
			if code, ok := p.refusals.Get(call); ok {
				p.in.Events.Publish(telemetry.Event{
					Object: telemetry.ClaimRef(claim), Reason: telemetry.LaunchFailed, Key: []string{string(claim.UID), code},
					Message: fmt.Sprintf("EC2 refuses %s for now (%s); it is tried again", call, code),
				})
			}
		}
	})
	return func() { timer.Stop() }
}

// reportNarrow tells of a spot launch that can name few types, once in a while for each pool: its owner can widen it.
func (p *Provider) reportNarrow(claim *v1.NodeClaim, types int) {
	p.in.Events.Publish(telemetry.Event{
		Object: telemetry.ClaimRef(claim), Reason: telemetry.FewInstanceTypes, Key: []string{claim.Labels[v1.NodePoolLabelKey]},
		Message: fmt.Sprintf("The spot launch names %d instance type(s), fewer than %d: the NodeClaim lists no more "+
			"below the price of on-demand; "+
			"a NodePool that allows more types is interrupted less", types, flexible),
	})
}

func (p *Provider) batchSent(batcher string, size int, open time.Duration) {
	p.in.Metrics.BatcherSize.WithLabelValues(batcher).Observe(float64(size))
	p.in.Metrics.BatcherTime.WithLabelValues(batcher).Observe(open.Seconds())
}

// launchFailed receives every failure, also when another choice of the same call was launched.
func (p *Provider) launchFailed(f fleet.Failure) {
	if f.Reservation != "" && f.Out() {
		p.reservations.UsedUp(f.Reservation)
	}
	p.in.Metrics.InstanceLaunchFailures.WithLabelValues(f.Zone, p.zoneID(f.Zone), f.CapacityType, f.Reason()).Inc()
}

func (p *Provider) terminationFailed(providerID string) {
	zone := strings.Split(strings.TrimPrefix(providerID, "aws:///"), "/")[0]
	p.in.Metrics.InstanceTerminationFailures.WithLabelValues(zone, p.zoneID(zone)).Inc()
}

// zoneID is the id of a zone, "" if no class has a subnet there.
func (p *Provider) zoneID(zone string) string {
	for _, nc := range p.classes.All() {
		for _, s := range nc.Status.Subnets {
			if s.Zone == zone {
				return s.ZoneID
			}
		}
	}
	return ""
}

func (p *Provider) classWaits(nc *awsv1.EC2NodeClass, message string) {
	p.in.Events.Publish(telemetry.Event{Object: classRef(nc), Reason: telemetry.WaitingOnNodeClaimTermination,
		Message: message, Key: []string{nc.Name}})
}

func (p *Provider) classUnready(nc *awsv1.EC2NodeClass, c metav1.Condition) {
	p.in.Events.Publish(telemetry.Event{
		Object: classRef(nc), Reason: telemetry.NodeClassNotReady, Message: c.Reason + ": " + c.Message,
		Key: []string{nc.Name, c.Type, c.Message},
	})
}

func (p *Provider) classBootstrapsTwice(nc *awsv1.EC2NodeClass) {
	p.in.Events.Publish(telemetry.Event{
		Object: classRef(nc), Reason: telemetry.BootstrapsTwice, Key: []string{nc.Name},
		Message: "spec.userData calls /etc/eks/bootstrap.sh, and Karpenter bootstraps the node too: remove the call, " +
			"or use amiFamily Custom and leave all of it to spec.userData",
	})
}

func (p *Provider) classGone(name string) {
	p.in.Metrics.NodeClassUserData.DeleteLabelValues(name)
}

func classRef(nc *awsv1.EC2NodeClass) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: awsv1.GroupVersion.String(), Kind: "EC2NodeClass", Name: nc.Name, UID: nc.UID}
}
