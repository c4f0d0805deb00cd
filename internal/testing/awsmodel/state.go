package awsmodel

import (
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// state is everything that a snapshot keeps. Answers are spelled after the lock is released, so what a pointer in here points to
// is replaced, never changed.
type state struct {
	Serial       uint64 // the last identifier given out
	Started      time.Time
	Machines     map[string]*machine
	Templates    map[string]*template // by id
	Profiles     map[string]*profile  // by name
	Roles        map[string]*iamtypes.Role
	Queues       map[string]*queue // by name
	Stacks       map[string]*stack // by name
	Reservations map[string]*ec2types.CapacityReservation
	Groups       map[string]*ec2types.PlacementGroup // by id
	Tokens       map[string]*token                   // by operation and client token
	Vpcs         []ec2types.Vpc
	Subnets      []*subnet
	Firewalls    []ec2types.SecurityGroup
	Images       []image
	Parameters   map[string]parameter // SSM, by name
}

// A machine is one instance and what the world knows of it beyond what DescribeInstances tells.
type machine struct {
	Now ec2types.Instance
	seen[ec2types.Instance]
	UserData  string
	Pool      pool
	RootGiB   int64
	NICTags   []ec2types.Tag
	Volumes   []ec2types.Volume
	Console   []string
	Joined    *Join
	Reboots   int
	Silent    bool // does not answer, though it runs
	Events    []ec2types.InstanceStatusEvent
	Impaired  *time.Time // the system status check fails since
	Broken    *time.Time // the instance status check fails since
	Ended     time.Time  // when it was terminated
	Hidden    time.Time  // describe calls may not know it before
	Template  string
	Fleet     string
	Context   string // that the fleet was given
	BidStatus string // of the spot request
}

func (m *machine) id() string                        { return *m.Now.InstanceId }
func (m *machine) state() ec2types.InstanceStateName { return m.Now.State.Name }
func (m *machine) zone() string                      { return *m.Now.Placement.AvailabilityZone }

// alive machines hold capacity and an address.
func (m *machine) alive() bool {
	switch m.state() {
	case ec2types.InstanceStateNamePending, ec2types.InstanceStateNameRunning, ec2types.InstanceStateNameStopping,
		ec2types.InstanceStateNameStopped:
		return true
	}
	return false
}

// seen is the older version of something that describe calls may still show.
type seen[T any] struct {
	Old      *T
	OldUntil time.Time
}

// was keeps old as what may be seen until the time given. While an older version may be seen already, that one stays.
func (s *seen[T]) was(old T, now, until time.Time) {
	if !until.After(now) {
		return
	}
	if s.Old == nil || !s.OldUntil.After(now) {
		s.Old = &old
	}
	s.OldUntil = until
}

// edit changes a machine; describe calls may lag behind.
func (w *world) edit(m *machine, now time.Time, change func(*ec2types.Instance)) {
	old := m.Now
	old.Tags = slices.Clone(old.Tags)
	if old.State != nil {
		s := *old.State
		old.State = &s
	}
	m.was(old, now, now.Add(w.lag(m.id())))
	m.Now.Tags = slices.Clone(m.Now.Tags)
	change(&m.Now)
	w.changed()
}

// view returns what a describe call sees of a machine, false if it does not see it.
func (w *world) view(m *machine, now time.Time) (ec2types.Instance, bool) {
	if !w.sees(m.id(), m.Hidden, now) {
		return ec2types.Instance{}, false
	}
	if m.Old != nil && !w.sees(m.id(), m.OldUntil, now) {
		return *m.Old, true
	}
	return m.Now, true
}

// sees reports whether a describe call sees something that was made a moment ago.
func (w *world) sees(what string, hidden, now time.Time) bool {
	return !now.Before(hidden) || !w.chance("look at "+what, 0.5)
}

// A pool is what capacity comes from.
type pool struct {
	capacityType, instanceType, zone string
}

func (p pool) String() string { return p.capacityType + "/" + p.instanceType + "/" + p.zone }

// MarshalText and UnmarshalText keep a pool in a snapshot.
func (p pool) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p *pool) UnmarshalText(text []byte) error {
	*p = parsePool(string(text))
	return nil
}

// used counts the machines that each pool holds.
func (w *world) used() map[pool]int {
	out := map[pool]int{}
	for _, m := range w.st.Machines {
		if m.alive() {
			out[m.Pool]++
		}
	}
	return out
}

// A subnet is one subnet and the addresses that are taken.
type subnet struct {
	Subnet  ec2types.Subnet
	Outpost []string          // types that the Outpost has on which the subnet is
	Next    uint32            // where to look for a free address first
	Taken   map[uint32]string // offset from the start to the machine
}

// A token remembers the answer to a call with a client token.
type token struct {
	Request uint64 // hash
	Answer  []byte // JSON of the output
	At      time.Time
}

func tagValue(tags []ec2types.Tag, key string) (string, bool) {
	for _, t := range tags {
		if aws.ToString(t.Key) == key {
			return aws.ToString(t.Value), true
		}
	}
	return "", false
}

// withTags returns tags with those of more added or replaced, sorted by key.
func withTags(tags, more []ec2types.Tag) []ec2types.Tag {
	out := slices.Clone(tags)
	for _, t := range more {
		i := slices.IndexFunc(out, func(o ec2types.Tag) bool { return aws.ToString(o.Key) == aws.ToString(t.Key) })
		if i >= 0 {
			out[i] = t
			continue
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b ec2types.Tag) int { return compare(aws.ToString(a.Key), aws.ToString(b.Key)) })
	return out
}

// tagsFor collects the tags that specs set on one kind of resource.
func tagsFor(specs []ec2types.TagSpecification, kind ec2types.ResourceType) []ec2types.Tag {
	var out []ec2types.Tag
	for _, s := range specs {
		if s.ResourceType == kind {
			out = withTags(out, s.Tags)
		}
	}
	return out
}

// templateTags collects the tags that a launch template sets on one kind of resource.
func templateTags(d *ec2types.RequestLaunchTemplateData, kind ec2types.ResourceType) []ec2types.Tag {
	var out []ec2types.Tag
	for _, s := range d.TagSpecifications {
		if s.ResourceType == kind {
			out = withTags(out, s.Tags)
		}
	}
	return out
}
