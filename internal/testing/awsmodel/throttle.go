package awsmodel

import (
	"strings"
	"time"
)

// A Bucket is a token bucket: it holds at most Size tokens and gains PerSecond.
type Bucket struct {
	Size, PerSecond float64
}

// EC2's documented request buckets for the operations that are modelled. What is not listed falls into the category of
// its verb: nonMutating for Describe, Get, List and Search, mutating for the rest.
var (
	nonMutating = Bucket{100, 20}
	unfiltered  = Bucket{50, 10} // some describe calls without filter, ids or page size
	mutating    = Bucket{50, 5}

	requestBuckets = map[string]Bucket{
		"ec2:CreateLaunchTemplateVersion": {100, 5},
		"ec2:CreateTags":                  {100, 10},
		"ec2:DeleteTags":                  {100, 10},
		"ec2:RunInstances":                {5, 2},
		"ec2:StartInstances":              {5, 2},
		"ec2:TerminateInstances":          {100, 5},
		"ec2:DescribeInstanceTopology":    {1, 1},
	}
	// resourceBuckets count machines, not calls. Those of a fleet count as run.
	resourceBuckets = map[string]Bucket{
		"ec2:RunInstances":       {1000, 2},
		"ec2:TerminateInstances": {1000, 20},
		"ec2:StartInstances":     {1000, 2},
		"ec2:StopInstances":      {1000, 20},
	}
	unfilteredOperations = map[string]bool{
		"ec2:DescribeInstances": true, "ec2:DescribeInstanceStatus": true, "ec2:DescribeNetworkInterfaces": true,
		"ec2:DescribeSecurityGroups": true, "ec2:DescribeVolumes": true, "ec2:DescribeSpotInstanceRequests": true,
	}
	// otherBuckets are the documented default rates of the other services.
	otherBuckets = map[string]Bucket{
		"ssm:GetParameter": {40, 40}, "ssm:GetParameters": {40, 40}, "ssm:GetParametersByPath": {40, 40},
	}
)

const perMachine = "/instances"

type bucket struct {
	Bucket
	tokens float64
	filled time.Time
}

// take removes n tokens, or none and false if there are fewer.
func (b *bucket) take(n float64, now time.Time) bool {
	b.fill(now)
	if b.tokens < n {
		return false
	}
	b.tokens -= n
	return true
}

// takeUpTo removes as many of n tokens as there are.
func (b *bucket) takeUpTo(n int, now time.Time) int {
	b.fill(now)
	got := min(n, int(b.tokens))
	b.tokens -= float64(got)
	return got
}

func (b *bucket) fill(now time.Time) {
	if now.After(b.filled) {
		b.tokens = min(b.Size, b.tokens+b.PerSecond*now.Sub(b.filled).Seconds())
		b.filled = now
	}
}

// bucketFor returns the bucket of a name, nil if it is unlimited now. Buckets begin full.
func (c *Cloud) bucketFor(name string, documented Bucket, known bool, now time.Time) *bucket {
	size, ok := c.world.faults.Buckets[name]
	if !ok {
		if !c.world.faults.Throttle || !known {
			return nil
		}
		size = documented
	}
	b, ok := c.buckets[name]
	if !ok {
		b = &bucket{Bucket: size, tokens: size.Size, filled: now}
		c.buckets[name] = b
	}
	return b
}

// admit takes a request token for op, or says that the caller must wait.
func (c *Cloud) admit(op string, filtered bool, now time.Time) bool {
	documented, known := documentedBucket(op, filtered)
	name := op
	if !filtered && unfilteredOperations[op] {
		name += "/unfiltered"
	}
	b := c.bucketFor(name, documented, known, now)
	return b == nil || b.take(1, now)
}

func documentedBucket(op string, filtered bool) (Bucket, bool) {
	service, verb, _ := strings.Cut(op, ":")
	if service != "ec2" {
		b, ok := otherBuckets[op]
		return b, ok
	}
	if b, ok := requestBuckets[op]; ok {
		return b, true
	}
	if unfilteredOperations[op] && !filtered {
		return unfiltered, true
	}
	for _, prefix := range []string{"Describe", "Get", "List", "Search"} {
		if strings.HasPrefix(verb, prefix) {
			return nonMutating, true
		}
	}
	return mutating, true
}

// admitMachines takes up to n machine tokens of op and says how many it got.
func (c *Cloud) admitMachines(op string, n int, now time.Time) int {
	documented, known := resourceBuckets[op]
	b := c.bucketFor(op+perMachine, documented, known, now)
	if b == nil {
		return n
	}
	return b.takeUpTo(n, now)
}
