package awsmodel

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/testing/awsmodel/boot"
)

// A Join is a machine whose kubelet registers with the cluster. All of it comes from the machine and its user data.
type Join struct {
	InstanceID, ProviderID, NodeName, PrivateIP string
	Zone, ZoneID, Region                        string
	InstanceType, Arch, OS, OSImage, ImageID    string
	KubeletVersion                              string
	Labels                                      map[string]string
	Taints                                      []corev1.Taint
	Capacity, Allocatable                       corev1.ResourceList
	Volumes                                     int // EBS volumes that its CSI driver finds room for
	BootID                                      string
}

// A Gone says that a machine no longer serves the cluster. State is "shutting-down" or "stopped" when its kubelet has ended, "rebooting"
// when it ends and will join again, "unreachable" when it is silent, and "terminated" when it has ceased to exist. Reason is EC2's code for
// who ended it, such as "Client.UserInitiatedShutdown".
type Gone struct {
	InstanceID, ProviderID, NodeName, State, Reason string
}

func (w *world) providerID(m *machine) string { return "aws:///" + m.zone() + "/" + m.id() }

var stateCodes = map[ec2types.InstanceStateName]int32{
	ec2types.InstanceStateNamePending: 0, ec2types.InstanceStateNameRunning: 16, ec2types.InstanceStateNameShuttingDown: 32,
	ec2types.InstanceStateNameTerminated: 48, ec2types.InstanceStateNameStopping: 64, ec2types.InstanceStateNameStopped: 80,
}

func stateOf(name ec2types.InstanceStateName) *ec2types.InstanceState {
	return &ec2types.InstanceState{Name: name, Code: aws.Int32(stateCodes[name])}
}

func (w *world) enter(m *machine, name ec2types.InstanceStateName, now time.Time) {
	w.edit(m, now, func(i *ec2types.Instance) { i.State = stateOf(name) })
	w.stateChanged(m, name, now)
}

// start begins the life of a machine that was just launched.
func (w *world) start(m *machine, now time.Time) {
	w.stateChanged(m, m.state(), now)
	w.at(now.Add(w.cfg.Timing.Pending), m.id(), (*world).runs)
	if m.Now.InstanceLifecycle == ec2types.InstanceLifecycleTypeSpot {
		w.drawInterruption(m, now)
	}
}

func (w *world) runs(m *machine, now time.Time) {
	if m.state() != ec2types.InstanceStateNamePending {
		return
	}
	w.enter(m, ec2types.InstanceStateNameRunning, now)
	w.at(now.Add(w.cfg.Timing.Boot), m.id(), (*world).boots)
}

// boots lets the machine read its user data and, if that makes a node, register it.
func (w *world) boots(m *machine, now time.Time) {
	if m.state() != ec2types.InstanceStateNameRunning || m.Joined != nil {
		return
	}
	img, _ := w.image(aws.ToString(m.Now.ImageId))
	m.Console = append(m.Console, fmt.Sprintf("%s boots image %s", m.id(), aws.ToString(img.Image.Name)))
	if w.chance("boot of "+m.id(), w.faults.DeadOnArrival) {
		m.Console = append(m.Console, "kernel panic: the machine is broken")
		return
	}
	efa := 0
	for _, n := range m.Now.NetworkInterfaces {
		if kind := aws.ToString(n.InterfaceType); kind == "efa" || kind == "efa-only" {
			efa++
		}
	}
	it := w.data.facts[string(m.Now.InstanceType)]
	host := boot.Machine{
		Family: img.Family, Build: img.Build, Arch: archOf(m.Now.Architecture), Type: it,
		NodeName: aws.ToString(m.Now.PrivateDnsName), Zone: m.zone(), ZoneID: aws.ToString(m.Now.Placement.AvailabilityZoneId),
		Region: w.cfg.Region, RootGiB: m.RootGiB, Role: w.admitted(m), EFA: efa,
	}
	node, console := boot.Run(host, w.boot, m.UserData)
	m.Console = append(m.Console, console...)
	if node == nil {
		return
	}
	m.Joined = &Join{
		InstanceID: m.id(), ProviderID: w.providerID(m), NodeName: host.NodeName, PrivateIP: aws.ToString(m.Now.PrivateIpAddress),
		Zone: host.Zone, ZoneID: host.ZoneID, Region: host.Region, InstanceType: it.Name, Arch: host.Arch,
		OS: node.OS, OSImage: node.OSImage, ImageID: aws.ToString(m.Now.ImageId), KubeletVersion: "v" + img.Kubernetes + ".0-eks",
		Labels: node.Labels, Taints: node.Taints, Capacity: node.Capacity, Allocatable: node.Allocatable,
		Volumes: roomForVolumes(m, it, node.OS), BootID: bootID(m),
	}
	if slices.Contains(w.faults.ZonesDown, host.Zone) {
		m.Silent = true
		return
	}
	w.tellJoin(*m.Joined)
}

// bootID differs from boot to boot of a machine.
func bootID(m *machine) string { return fmt.Sprintf("%s-boot-%d", m.id(), m.Reboots) }

// reboot ends what runs on a machine, and lets it join again. It mends what an instance status check finds.
func (w *world) reboot(m *machine, now time.Time) {
	m.Reboots++
	m.Broken = nil
	w.tellGone(m, "rebooting")
	w.at(now.Add(w.cfg.Timing.Boot), m.id(), func(w *world, m *machine, _ time.Time) {
		if m.state() != ec2types.InstanceStateNameRunning || m.Joined == nil {
			return
		}
		m.Joined.BootID = bootID(m)
		if m.Silent {
			w.speak(m)
		} else {
			w.tellJoin(*m.Joined)
		}
	})
}

// roomForVolumes is what the CSI driver counts when it starts: what EC2 attaches to such a machine, without what is
// attached by then. Where interfaces count too, that is all but the first, and the spare interface that the VPC network
// plug-in has attached on Linux.
func roomForVolumes(m *machine, t *awsdata.InstanceType, os string) int {
	room := t.EBS.MaxAttachments - len(m.Volumes)
	if t.EBS.AttachmentLimit == "shared" {
		interfaces := len(m.Now.NetworkInterfaces)
		room -= interfaces - 1
		if os == "linux" && t.Network.MaxInterfaces > interfaces {
			room--
		}
	}
	return max(0, room)
}

func archOf(a ec2types.ArchitectureValues) string {
	if a == ec2types.ArchitectureValuesArm64 {
		return "arm64"
	}
	return "amd64"
}

func (w *world) tellJoin(j Join) {
	if w.cfg.Join != nil {
		j.Labels = maps.Clone(j.Labels)
		w.outbox = append(w.outbox, func() { w.cfg.Join(j) })
		w.changed()
	}
}

func (w *world) tellGone(m *machine, state string) {
	if w.cfg.Gone != nil && m.Joined != nil {
		g := Gone{InstanceID: m.id(), ProviderID: m.Joined.ProviderID, NodeName: m.Joined.NodeName, State: state}
		if why := m.Now.StateReason; why != nil {
			g.Reason = aws.ToString(why.Code)
		}
		w.outbox = append(w.outbox, func() { w.cfg.Gone(g) })
		w.changed()
	}
}

// terminate begins the end of a machine. It does nothing to a machine that is ending already.
func (w *world) terminate(m *machine, now time.Time, code, message string) {
	if !m.alive() {
		return
	}
	w.enter(m, ec2types.InstanceStateNameShuttingDown, now)
	w.edit(m, now, func(i *ec2types.Instance) {
		i.StateReason = &ec2types.StateReason{Code: &code, Message: &message}
		i.StateTransitionReason = aws.String(fmt.Sprintf("%s (%s)", message, now.UTC().Format("2006-01-02 15:04:05 MST")))
	})
	w.tellGone(m, "shutting-down")
	w.at(now.Add(w.cfg.Timing.ShuttingDown), m.id(), (*world).ends)
}

func (w *world) ends(m *machine, now time.Time) {
	if m.state() != ec2types.InstanceStateNameShuttingDown {
		return
	}
	w.enter(m, ec2types.InstanceStateNameTerminated, now)
	w.edit(m, now, func(i *ec2types.Instance) { // a terminated machine has lost its network and volumes
		i.NetworkInterfaces, i.BlockDeviceMappings, i.SecurityGroups = nil, nil, nil
		i.PrivateIpAddress, i.SubnetId, i.VpcId, i.PublicIpAddress = nil, nil, nil, nil
		i.PrivateDnsName, i.PublicDnsName = aws.String(""), aws.String("")
	})
	m.Ended = now
	m.Volumes = nil
	w.releaseAddresses(m)
	w.releaseReservation(m)
	w.tellGone(m, "terminated")
	w.at(now.Add(w.cfg.Timing.Forget), m.id(), (*world).forget)
}

func (w *world) forget(m *machine, _ time.Time) {
	if m.state() == ec2types.InstanceStateNameTerminated {
		delete(w.st.Machines, m.id())
		maps.DeleteFunc(w.lots, func(about string, _ uint64) bool { return strings.HasSuffix(about, m.id()) })
	}
}

// drawInterruption decides whether and when a spot machine is interrupted by itself.
func (w *world) drawInterruption(m *machine, now time.Time) {
	rate := w.faults.SpotInterruptionsPerHour
	if rate <= 0 {
		return
	}
	wait := time.Duration(-math.Log(1-w.draw("interruption of "+m.id())) / rate * float64(time.Hour))
	w.at(now.Add(wait), m.id(), func(w *world, m *machine, now time.Time) {
		if w.faults.SpotInterruptionsPerHour == rate { // the rate may have been changed since
			w.interrupt(m, now)
		}
	})
}

func (w *world) drawInterruptions(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(w.st.Machines)) {
		if m := w.st.Machines[id]; m.alive() && m.Now.InstanceLifecycle == ec2types.InstanceLifecycleTypeSpot {
			w.drawInterruption(m, now)
		}
	}
}

// interrupt gives a spot machine its notice and takes it away when the notice has passed.
func (w *world) interrupt(m *machine, now time.Time) {
	if !m.alive() || m.Now.InstanceLifecycle != ec2types.InstanceLifecycleTypeSpot || m.BidStatus == markedForTermination {
		return
	}
	m.BidStatus = markedForTermination
	w.spotWarning(m, now)
	w.at(now.Add(w.cfg.Timing.SpotNotice), m.id(), func(w *world, m *machine, now time.Time) {
		w.terminate(m, now, "Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination")
	})
}

const markedForTermination = "marked-for-termination"

// Interrupt gives spot machines their two minutes' notice.
func (c *Cloud) Interrupt(ids ...string) error {
	return c.each(ids, (*world).interrupt)
}

// Rebalance tells that spot machines are at an elevated risk of interruption.
func (c *Cloud) Rebalance(ids ...string) error {
	return c.each(ids, (*world).rebalance)
}

// Schedule announces maintenance of a machine, as DescribeInstanceStatus and AWS Health show it.
func (c *Cloud) Schedule(id string, event ec2types.EventCode, notBefore time.Time) error {
	return c.each([]string{id}, func(w *world, m *machine, now time.Time) { w.schedule(m, event, notBefore, now) })
}

// Impair makes a machine's system status check fail and its kubelet go silent; Heal undoes it.
func (c *Cloud) Impair(ids ...string) error {
	return c.each(ids, func(w *world, m *machine, now time.Time) {
		m.Impaired = &now
		w.hush(m)
	})
}

// BreakInstance makes a machine's instance status check fail, as after a kernel panic.
func (c *Cloud) BreakInstance(ids ...string) error {
	return c.each(ids, func(w *world, m *machine, now time.Time) {
		m.Broken = &now
		w.hush(m)
	})
}

// Heal makes a machine whole again.
func (c *Cloud) Heal(ids ...string) error {
	return c.each(ids, func(w *world, m *machine, _ time.Time) {
		m.Impaired, m.Broken = nil, nil
		w.speak(m)
	})
}

// Kill terminates machines as a person at the console would.
func (c *Cloud) Kill(ids ...string) error {
	return c.each(ids, func(w *world, m *machine, now time.Time) {
		w.terminate(m, now, "Client.UserInitiatedShutdown", "User initiated")
	})
}

func (c *Cloud) each(ids []string, what func(*world, *machine, time.Time)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.world.advance(now)
	for _, id := range ids {
		m, ok := c.world.st.Machines[id]
		if !ok {
			return fmt.Errorf("there is no machine %s", id)
		}
		what(c.world, m, now)
	}
	c.world.changed()
	return nil
}

func (w *world) hush(m *machine) {
	if !m.Silent {
		m.Silent = true
		w.tellGone(m, "unreachable")
	}
}

func (w *world) speak(m *machine) {
	if m.Silent && m.Impaired == nil && m.Broken == nil && !slices.Contains(w.faults.ZonesDown, m.zone()) {
		m.Silent = false
		if m.Joined != nil && m.state() == ec2types.InstanceStateNameRunning {
			w.tellJoin(*m.Joined)
		}
	}
}

func (w *world) inZone(zone string, what func(*world, *machine)) {
	for _, id := range slices.Sorted(maps.Keys(w.st.Machines)) {
		if m := w.st.Machines[id]; m.alive() && m.zone() == zone {
			what(w, m)
		}
	}
}

// A Machine is a machine as the world's owner sees it, not as a lagging describe call does.
type Machine struct {
	ID, State, InstanceType, Zone, ImageID string
	CapacityType                           string // spot, on-demand or reserved
	Subnet, Profile, Template              string
	Fleet, Context                         string
	Tags                                   map[string]string
	Launched                               time.Time
	Joined, Silent                         bool
	NodeName, BootID                       string
	Console                                []string
	UserData                               string
}

// Machines returns every machine that is remembered, terminated ones too, by id.
func (c *Cloud) Machines() []Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.world.advance(time.Now())
	var out []Machine
	for _, id := range slices.Sorted(maps.Keys(c.world.st.Machines)) {
		m := c.world.st.Machines[id]
		o := Machine{
			ID: id, State: string(m.state()), InstanceType: string(m.Now.InstanceType), Zone: m.zone(),
			ImageID: aws.ToString(m.Now.ImageId), CapacityType: m.Pool.capacityType, Subnet: aws.ToString(m.Now.SubnetId),
			Template: m.Template, Fleet: m.Fleet, Context: m.Context, Tags: map[string]string{}, Launched: aws.ToTime(m.Now.LaunchTime),
			Joined: m.Joined != nil, Silent: m.Silent, NodeName: aws.ToString(m.Now.PrivateDnsName), BootID: bootID(m),
			Console: slices.Clone(m.Console), UserData: m.UserData,
		}
		if m.Now.IamInstanceProfile != nil {
			o.Profile = aws.ToString(m.Now.IamInstanceProfile.Arn)
		}
		for _, t := range m.Now.Tags {
			o.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
		}
		out = append(out, o)
	}
	return out
}

// Alive returns the machines that hold capacity: pending, running, stopping and stopped ones.
func (c *Cloud) Alive() []Machine {
	return slices.DeleteFunc(c.Machines(), func(m Machine) bool {
		return m.State == string(ec2types.InstanceStateNameShuttingDown) || m.State == string(ec2types.InstanceStateNameTerminated)
	})
}

// resume sets going again what a snapshot remembers.
func (w *world) resume(now time.Time) {
	t := w.cfg.Timing
	for _, id := range slices.Sorted(maps.Keys(w.st.Machines)) {
		m := w.st.Machines[id]
		switch m.state() {
		case ec2types.InstanceStateNamePending:
			w.at(now.Add(t.Pending), id, (*world).runs)
		case ec2types.InstanceStateNameShuttingDown:
			w.at(now.Add(t.ShuttingDown), id, (*world).ends)
		case ec2types.InstanceStateNameTerminated:
			w.at(m.Ended.Add(t.Forget), id, (*world).forget)
		case ec2types.InstanceStateNameRunning:
			switch {
			case m.Joined == nil && len(m.Console) == 0:
				w.at(now.Add(t.Boot), id, (*world).boots)
			case m.Joined != nil && !m.Silent:
				w.tellJoin(*m.Joined)
			}
			if m.Now.InstanceLifecycle == ec2types.InstanceLifecycleTypeSpot {
				w.drawInterruption(m, now)
			}
			if m.BidStatus == markedForTermination {
				m.BidStatus = ""
				w.interrupt(m, now)
			}
		}
	}
}
