package awsmodel

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/testing/awsmodel/boot"
)

// A Cluster is the Kubernetes cluster that machines join.
type Cluster = boot.Cluster

// Config says what world to make. Only the cluster's name is required.
type Config struct {
	Region  string // default us-east-1
	Account string // default 123456789012
	Cluster Cluster
	// Queue is the name of the SQS queue into which EventBridge delivers; default the cluster's name.
	Queue string
	// NodeRole is the role that the cluster admits as a node; default "KarpenterNodeRole-" + the cluster's name.
	NodeRole string
	Timing   Timing
	// Types limits what EC2 offers to these patterns, such as "m5.*"; empty means every type. A small world is a fast one.
	Types []string
	// LocalZones are local zones that the account has opted in to, such as us-east-1-bos-1a. They have no spot machines, and cost more.
	LocalZones []string
	// Seed makes identifiers, lags and faults repeatable.
	Seed   uint64
	Faults Faults
	// Identities says who calls, by access key id. A caller that is not listed may do everything.
	Identities map[string]Identity
	// SpreadSpot lets fleets that ask for spot machines by capacity get them from several pools, as EC2 mostly gives them. Otherwise the
	// first pool gives all that it has.
	SpreadSpot bool
	// Snapshot is a file that keeps the state over restarts; "" keeps it in memory only.
	Snapshot string
	// Join is called when a machine's kubelet registers; once more when it is heard of again, and after a restart
	// for each machine that had joined.
	Join func(Join)
	// Gone is called when a machine stops, goes silent or ceases to exist.
	Gone func(Gone)
}

// Timing is how long machines take. Zero fields have the defaults in the comments; a negative one means at once.
type Timing struct {
	Pending      time.Duration // launch to running: 5 s
	Boot         time.Duration // running to the kubelet's registration: 20 s
	ShuttingDown time.Duration // terminate to terminated: 15 s
	Forget       time.Duration // terminated to no longer described: 1 h
	SpotNotice   time.Duration // interruption warning to termination: 2 min
}

// An Identity is a caller and what it may do.
type Identity struct {
	ARN string
	// Policies are IAM policy documents; with none, everything is allowed.
	Policies [][]byte
	// Boundary, if set, is a permissions boundary: what it does not allow is denied whatever the policies say.
	Boundary []byte
}

func (c Config) withDefaults() Config {
	c.Region = cmp.Or(c.Region, "us-east-1")
	c.Account = cmp.Or(c.Account, "123456789012")
	c.Queue = cmp.Or(c.Queue, c.Cluster.Name)
	c.NodeRole = cmp.Or(c.NodeRole, "KarpenterNodeRole-"+c.Cluster.Name)
	c.Cluster.Version = cmp.Or(c.Cluster.Version, "1.36")
	c.Cluster.ServiceCIDR = cmp.Or(c.Cluster.ServiceCIDR, "10.100.0.0/16")
	t := &c.Timing
	for _, d := range []struct {
		field *time.Duration
		def   time.Duration
	}{
		{&t.Pending, 5 * time.Second}, {&t.Boot, 20 * time.Second}, {&t.ShuttingDown, 15 * time.Second},
		{&t.Forget, time.Hour}, {&t.SpotNotice, 2 * time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.def
		}
		*d.field = max(*d.field, 0)
	}
	return c
}

func (c Config) validate() error {
	if c.Cluster.Name == "" {
		return errors.New("the model needs the cluster's name")
	}
	if awsdata.Zones(c.Region) == nil {
		return fmt.Errorf("the data has no region %q, only %v", c.Region, awsdata.Regions())
	}
	for _, z := range c.LocalZones {
		if !strings.HasPrefix(z, c.Region+"-") {
			return fmt.Errorf("local zone %q does not belong to region %q", z, c.Region)
		}
	}
	for _, p := range c.Types {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("type pattern %q: %w", p, err)
		}
	}
	return c.Faults.validate()
}

// ipv6 reports whether the cluster's pods and services have IPv6 addresses.
func (c Config) ipv6() bool { return strings.Contains(c.Cluster.ServiceCIDR, ":") }

func (c Config) arn(service, resource string) string {
	region := c.Region
	if service == "iam" || service == "sts" {
		region = ""
	}
	return "arn:aws:" + service + ":" + region + ":" + c.Account + ":" + resource
}
