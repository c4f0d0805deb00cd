package awsmodel

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// some returns the machines that a call names, or all; a machine that does not exist, or that the call does not see yet, is an error.
func some(c *call, ids []string) ([]*machine, error) {
	if len(ids) == 0 {
		var out []*machine
		for _, id := range slices.Sorted(maps.Keys(c.world.st.Machines)) {
			out = append(out, c.world.st.Machines[id])
		}
		return out, nil
	}
	var out []*machine
	var lost []string
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		if !strings.HasPrefix(id, "i-") {
			return nil, refuse("InvalidInstanceID.Malformed", "Invalid id: %q (expecting \"i-...\")", id)
		}
		m, ok := c.world.st.Machines[id]
		if !ok || !c.world.sees(id, m.Hidden, c.now) {
			lost = append(lost, id)
			continue
		}
		out = append(out, m)
	}
	switch len(lost) {
	case 0:
		return out, nil
	case 1:
		return nil, refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", lost[0])
	}
	return nil, refuse("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(lost, ", "))
}

func describeInstances(c *call, in *ec2.DescribeInstancesInput) (*ec2.DescribeInstancesOutput, error) {
	if len(in.InstanceIds) > 0 && in.MaxResults != nil {
		return nil, refuse("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	some, err := some(c, in.InstanceIds)
	if err != nil {
		return nil, err
	}
	var out []ec2types.Reservation
	for _, m := range some {
		i, ok := c.world.view(m, c.now)
		if !ok {
			if len(in.InstanceIds) == 0 {
				continue
			}
			i = m.Now // it was found by its id just now
		}
		ok, err := matches(in.Filters, i, instanceFilters, i.Tags)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, ec2types.Reservation{
				ReservationId: aws.String(nameID("r", *i.InstanceId)), OwnerId: &c.world.cfg.Account,
				Groups: []ec2types.GroupIdentifier{}, Instances: []ec2types.Instance{i},
			})
		}
	}
	out, next, err := page(out, in.MaxResults, in.NextToken, 5, 1000,
		func(r ec2types.Reservation) string { return *r.Instances[0].InstanceId })
	return &ec2.DescribeInstancesOutput{Reservations: out, NextToken: next}, err
}

var instanceFilters = filters[ec2types.Instance]{
	"instance-id":             func(i ec2types.Instance) []string { return []string{*i.InstanceId} },
	"instance-state-name":     func(i ec2types.Instance) []string { return []string{string(i.State.Name)} },
	"instance-state-code":     func(i ec2types.Instance) []string { return []string{strconv.Itoa(int(*i.State.Code))} },
	"instance-type":           func(i ec2types.Instance) []string { return []string{string(i.InstanceType)} },
	"instance-lifecycle":      func(i ec2types.Instance) []string { return []string{string(i.InstanceLifecycle)} },
	"image-id":                func(i ec2types.Instance) []string { return []string{aws.ToString(i.ImageId)} },
	"availability-zone":       func(i ec2types.Instance) []string { return []string{aws.ToString(i.Placement.AvailabilityZone)} },
	"availability-zone-id":    func(i ec2types.Instance) []string { return []string{aws.ToString(i.Placement.AvailabilityZoneId)} },
	"placement-group-name":    func(i ec2types.Instance) []string { return []string{aws.ToString(i.Placement.GroupName)} },
	"tenancy":                 func(i ec2types.Instance) []string { return []string{string(i.Placement.Tenancy)} },
	"subnet-id":               func(i ec2types.Instance) []string { return []string{aws.ToString(i.SubnetId)} },
	"vpc-id":                  func(i ec2types.Instance) []string { return []string{aws.ToString(i.VpcId)} },
	"private-dns-name":        func(i ec2types.Instance) []string { return []string{aws.ToString(i.PrivateDnsName)} },
	"private-ip-address":      func(i ec2types.Instance) []string { return []string{aws.ToString(i.PrivateIpAddress)} },
	"client-token":            func(i ec2types.Instance) []string { return []string{aws.ToString(i.ClientToken)} },
	"architecture":            func(i ec2types.Instance) []string { return []string{string(i.Architecture)} },
	"capacity-reservation-id": func(i ec2types.Instance) []string { return []string{aws.ToString(i.CapacityReservationId)} },
	"launch-time": func(i ec2types.Instance) []string {
		return []string{i.LaunchTime.UTC().Format("2006-01-02T15:04:05.000Z")}
	},
	"instance.group-id": func(i ec2types.Instance) []string {
		var out []string
		for _, g := range i.SecurityGroups {
			out = append(out, *g.GroupId)
		}
		return out
	},
	"iam-instance-profile.arn": func(i ec2types.Instance) []string {
		if i.IamInstanceProfile == nil {
			return nil
		}
		return []string{aws.ToString(i.IamInstanceProfile.Arn)}
	},
}

func terminateInstances(c *call, in *ec2.TerminateInstancesInput) (*ec2.TerminateInstancesOutput, error) {
	if len(in.InstanceIds) == 0 {
		return nil, refuse("MissingParameter", "The request must contain the parameter InstanceIds")
	}
	some, err := some(c, in.InstanceIds)
	if err != nil {
		return nil, err
	}
	if n := c.cloud.admitMachines("ec2:TerminateInstances", len(some), c.now); n < len(some) {
		return nil, throttled("ec2")
	}
	changes, err := transition(some, func(m *machine) error {
		c.world.terminate(m, c.now, "Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")
		return nil
	})
	return &ec2.TerminateInstancesOutput{TerminatingInstances: changes}, err
}

// transition does something to each machine, and returns what state each was in and is in now.
func transition(machines []*machine, act func(*machine) error) ([]ec2types.InstanceStateChange, error) {
	out := []ec2types.InstanceStateChange{}
	for _, m := range machines {
		before := *m.Now.State
		if err := act(m); err != nil {
			return nil, err
		}
		out = append(out, ec2types.InstanceStateChange{InstanceId: m.Now.InstanceId, PreviousState: &before,
			CurrentState: copyOf(*m.Now.State)})
	}
	return out, nil
}

// stopInstances stops machines; for the world this is the way to see Karpenter react to a stop.
func stopInstances(c *call, in *ec2.StopInstancesInput) (*ec2.StopInstancesOutput, error) {
	some, err := some(c, in.InstanceIds)
	if err != nil {
		return nil, err
	}
	changes, err := transition(some, func(m *machine) error {
		if m.state() != ec2types.InstanceStateNameRunning {
			return refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be stopped.", m.id())
		}
		c.world.enter(m, ec2types.InstanceStateNameStopping, c.now)
		c.world.tellGone(m, "stopped")
		c.world.at(c.now.Add(c.world.cfg.Timing.ShuttingDown), m.id(), func(w *world, m *machine, now time.Time) {
			if m.state() == ec2types.InstanceStateNameStopping {
				w.enter(m, ec2types.InstanceStateNameStopped, now)
			}
		})
		return nil
	})
	return &ec2.StopInstancesOutput{StoppingInstances: changes}, err
}

func startInstances(c *call, in *ec2.StartInstancesInput) (*ec2.StartInstancesOutput, error) {
	some, err := some(c, in.InstanceIds)
	if err != nil {
		return nil, err
	}
	changes, err := transition(some, func(m *machine) error {
		if m.state() != ec2types.InstanceStateNameStopped {
			return refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be started.", m.id())
		}
		c.world.enter(m, ec2types.InstanceStateNamePending, c.now)
		m.Joined = nil
		c.world.at(c.now.Add(c.world.cfg.Timing.Pending), m.id(), (*world).runs)
		return nil
	})
	return &ec2.StartInstancesOutput{StartingInstances: changes}, err
}

func describeInstanceStatus(c *call, in *ec2.DescribeInstanceStatusInput) (*ec2.DescribeInstanceStatusOutput, error) {
	some, err := some(c, in.InstanceIds)
	if err != nil {
		return nil, err
	}
	var out []ec2types.InstanceStatus
	for _, m := range some {
		i, ok := c.world.view(m, c.now)
		if !ok || i.State.Name != ec2types.InstanceStateNameRunning && !aws.ToBool(in.IncludeAllInstances) {
			continue
		}
		s := status(c, m, i)
		ok, err := matches(in.Filters, s, statusFilters, i.Tags)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, s)
		}
	}
	out, next, err := page(out, in.MaxResults, in.NextToken, 5, 1000, func(s ec2types.InstanceStatus) string { return *s.InstanceId })
	return &ec2.DescribeInstanceStatusOutput{InstanceStatuses: out, NextToken: next}, err
}

func status(c *call, m *machine, i ec2types.Instance) ec2types.InstanceStatus {
	system := m.Impaired
	if system == nil && slices.Contains(c.world.faults.ZonesDown, m.zone()) {
		system = &c.world.started
	}
	return ec2types.InstanceStatus{
		InstanceId: i.InstanceId, InstanceState: i.State, AvailabilityZone: i.Placement.AvailabilityZone,
		AvailabilityZoneId: i.Placement.AvailabilityZoneId,
		SystemStatus:       summary(system), InstanceStatus: summary(m.Broken),
		Events: append([]ec2types.InstanceStatusEvent{}, m.Events...),
	}
}

func summary(since *time.Time) *ec2types.InstanceStatusSummary {
	if since == nil {
		return &ec2types.InstanceStatusSummary{Status: ec2types.SummaryStatusOk, Details: []ec2types.InstanceStatusDetails{{
			Name: ec2types.StatusNameReachability, Status: ec2types.StatusTypePassed,
		}}}
	}
	return &ec2types.InstanceStatusSummary{Status: ec2types.SummaryStatusImpaired, Details: []ec2types.InstanceStatusDetails{{
		Name: ec2types.StatusNameReachability, Status: ec2types.StatusTypeFailed, ImpairedSince: since,
	}}}
}

var statusFilters = filters[ec2types.InstanceStatus]{
	"instance-status.status": func(s ec2types.InstanceStatus) []string { return []string{string(s.InstanceStatus.Status)} },
	"system-status.status":   func(s ec2types.InstanceStatus) []string { return []string{string(s.SystemStatus.Status)} },
	"instance-status.reachability": func(s ec2types.InstanceStatus) []string {
		return []string{
			string(s.InstanceStatus.Details[0].Status)}
	},
	"system-status.reachability": func(s ec2types.InstanceStatus) []string { return []string{string(s.SystemStatus.Details[0].Status)} },
	"instance-state-name":        func(s ec2types.InstanceStatus) []string { return []string{string(s.InstanceState.Name)} },
	"availability-zone":          func(s ec2types.InstanceStatus) []string { return []string{*s.AvailabilityZone} },
	"event.code": func(s ec2types.InstanceStatus) []string {
		var out []string
		for _, e := range s.Events {
			out = append(out, string(e.Code))
		}
		return out
	},
}

func getConsoleOutput(c *call, in *ec2.GetConsoleOutputInput) (*ec2.GetConsoleOutputOutput, error) {
	some, err := some(c, []string{aws.ToString(in.InstanceId)})
	if err != nil {
		return nil, err
	}
	text := strings.Join(some[0].Console, "\r\n")
	return &ec2.GetConsoleOutputOutput{InstanceId: in.InstanceId, Timestamp: aws.Time(c.now),
		Output: aws.String(base64.StdEncoding.EncodeToString([]byte(text)))}, nil
}

func describeVolumes(c *call, in *ec2.DescribeVolumesInput) (*ec2.DescribeVolumesOutput, error) {
	var out []ec2types.Volume
	for _, m := range c.world.st.Machines {
		for _, v := range m.Volumes {
			ok, err := matches(in.Filters, v, volumeFilters, v.Tags)
			if err != nil {
				return nil, err
			}
			if ok && known(in.VolumeIds, v.VolumeId) {
				out = append(out, v)
			}
		}
	}
	out, next, err := page(out, in.MaxResults, in.NextToken, 5, 1000, func(v ec2types.Volume) string { return *v.VolumeId })
	return &ec2.DescribeVolumesOutput{Volumes: out, NextToken: next}, err
}

var volumeFilters = filters[ec2types.Volume]{
	"volume-id":              func(v ec2types.Volume) []string { return []string{*v.VolumeId} },
	"status":                 func(v ec2types.Volume) []string { return []string{string(v.State)} },
	"attachment.instance-id": func(v ec2types.Volume) []string { return []string{*v.Attachments[0].InstanceId} },
	"attachment.device":      func(v ec2types.Volume) []string { return []string{*v.Attachments[0].Device} },
	"volume-type":            func(v ec2types.Volume) []string { return []string{string(v.VolumeType)} },
	"availability-zone":      func(v ec2types.Volume) []string { return []string{aws.ToString(v.AvailabilityZone)} },
}

func describeNetworkInterfaces(c *call, in *ec2.DescribeNetworkInterfacesInput) (*ec2.DescribeNetworkInterfacesOutput, error) {
	var out []ec2types.NetworkInterface
	for _, m := range c.world.st.Machines {
		for _, n := range m.Now.NetworkInterfaces {
			nic := ec2types.NetworkInterface{
				NetworkInterfaceId: n.NetworkInterfaceId, SubnetId: n.SubnetId, VpcId: n.VpcId, Status: n.Status,
				PrivateIpAddress: n.PrivateIpAddress,
				PrivateDnsName:   n.PrivateDnsName, MacAddress: n.MacAddress, OwnerId: n.OwnerId, Groups: n.Groups,
				TagSet: m.NICTags, AvailabilityZone: m.Now.Placement.AvailabilityZone,
				InterfaceType: ec2types.NetworkInterfaceType(aws.ToString(n.InterfaceType)),
				Description:   n.Description, SourceDestCheck: n.SourceDestCheck,
				Attachment: &ec2types.NetworkInterfaceAttachment{
					AttachmentId: n.Attachment.AttachmentId, InstanceId: m.Now.InstanceId,
					DeviceIndex: n.Attachment.DeviceIndex, NetworkCardIndex: n.Attachment.NetworkCardIndex,
					Status: n.Attachment.Status, AttachTime: n.Attachment.AttachTime,
					DeleteOnTermination: n.Attachment.DeleteOnTermination, InstanceOwnerId: &c.world.cfg.Account,
				},
			}
			ok, err := matches(in.Filters, nic, nicFilters, m.NICTags)
			if err != nil {
				return nil, err
			}
			if ok && known(in.NetworkInterfaceIds, nic.NetworkInterfaceId) {
				out = append(out, nic)
			}
		}
	}
	out, next, err := page(out, in.MaxResults, in.NextToken, 5, 1000,
		func(n ec2types.NetworkInterface) string { return *n.NetworkInterfaceId })
	return &ec2.DescribeNetworkInterfacesOutput{NetworkInterfaces: out, NextToken: next}, err
}

var nicFilters = filters[ec2types.NetworkInterface]{
	"network-interface-id":   func(n ec2types.NetworkInterface) []string { return []string{*n.NetworkInterfaceId} },
	"subnet-id":              func(n ec2types.NetworkInterface) []string { return []string{*n.SubnetId} },
	"status":                 func(n ec2types.NetworkInterface) []string { return []string{string(n.Status)} },
	"attachment.instance-id": func(n ec2types.NetworkInterface) []string { return []string{*n.Attachment.InstanceId} },
	"private-ip-address":     func(n ec2types.NetworkInterface) []string { return []string{aws.ToString(n.PrivateIpAddress)} },
	"interface-type":         func(n ec2types.NetworkInterface) []string { return []string{string(n.InterfaceType)} },
}

func describeSpotInstanceRequests(c *call, in *ec2.DescribeSpotInstanceRequestsInput) (*ec2.DescribeSpotInstanceRequestsOutput, error) {
	var out []ec2types.SpotInstanceRequest
	for _, m := range c.world.st.Machines {
		if m.Now.SpotInstanceRequestId == nil {
			continue
		}
		r := ec2types.SpotInstanceRequest{
			SpotInstanceRequestId: m.Now.SpotInstanceRequestId, InstanceId: m.Now.InstanceId,
			State: ec2types.SpotInstanceStateActive, Type: ec2types.SpotInstanceTypeOneTime,
			CreateTime: m.Now.LaunchTime, LaunchedAvailabilityZone: m.Now.Placement.AvailabilityZone, ProductDescription: "Linux/UNIX",
			Status: &ec2types.SpotInstanceStatus{Code: aws.String("fulfilled"), UpdateTime: m.Now.LaunchTime},
		}
		if m.BidStatus != "" {
			r.Status.Code = &m.BidStatus
		}
		if !m.alive() {
			r.State = ec2types.SpotInstanceStateClosed
		}
		ok, err := matches(in.Filters, r, requestFilters, nil)
		if err != nil {
			return nil, err
		}
		if ok && known(in.SpotInstanceRequestIds, r.SpotInstanceRequestId) {
			out = append(out, r)
		}
	}
	out, next, err := page(out, in.MaxResults, in.NextToken, 5, 1000,
		func(r ec2types.SpotInstanceRequest) string { return *r.SpotInstanceRequestId })
	return &ec2.DescribeSpotInstanceRequestsOutput{SpotInstanceRequests: out, NextToken: next}, err
}

var requestFilters = filters[ec2types.SpotInstanceRequest]{
	"state":       func(r ec2types.SpotInstanceRequest) []string { return []string{string(r.State)} },
	"status-code": func(r ec2types.SpotInstanceRequest) []string { return []string{aws.ToString(r.Status.Code)} },
	"instance-id": func(r ec2types.SpotInstanceRequest) []string { return []string{aws.ToString(r.InstanceId)} },
}
