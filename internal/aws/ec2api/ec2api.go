// Package ec2api sets up the AWS clients and translates AWS's errors, once, into what callers act on.
package ec2api

import (
	"context"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go/middleware"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// RequestTimeout is the longest that one call may take, with all its retries.
const RequestTimeout = 4 * time.Minute

// Clients are the AWS services that Karpenter calls.
type Clients struct {
	EC2     *ec2.Client
	IAM     *iam.Client
	SSM     *ssm.Client
	SQS     *sqs.Client
	EKS     *eks.Client
	Pricing *pricing.Client
	Shifts  *arczonalshift.Client
	Plans   *savingsplans.Client
}

// New returns clients that share a configuration, whose retryer they keep if it has one. version goes into the user
// agent; observer receives each call.
func New(cfg aws.Config, version string, observer Observer) *Clients {
	cfg = cfg.Copy()
	if cfg.Retryer == nil {
		cfg.Retryer = func() aws.Retryer { return Retryer(nil) }
	}
	cfg.HTTPClient = withWholeBodies(cfg.HTTPClient)
	cfg.APIOptions = append(cfg.APIOptions, awsmiddleware.AddUserAgentKey(v1.Group+"-"+version), observer.middlewares, limited)
	return &Clients{
		EC2: ec2.NewFromConfig(cfg), IAM: iam.NewFromConfig(cfg), SSM: ssm.NewFromConfig(cfg), SQS: sqs.NewFromConfig(cfg),
		EKS: eks.NewFromConfig(cfg), Shifts: arczonalshift.NewFromConfig(cfg), Plans: savingsplans.NewFromConfig(cfg),
		Pricing: pricing.NewFromConfig(cfg, func(o *pricing.Options) {
			// The price list is served from a few regions only, whatever region it is about.
			o.Region = pricingRegion(cfg.Region)
		}),
	}
}

// limited ends calls that get no answer within RequestTimeout. The kernel notices a dead connection only after a
// quarter of an hour, and spot notices must not wait that long.
func limited(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("LimitCall",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
			middleware.InitializeOutput, middleware.Metadata, error,
		) {
			ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
			defer cancel()
			return next.HandleInitialize(ctx, in)
		}), middleware.After)
}

// Retryer repeats throttled and failed calls with growing pauses. Each call has its own budget of retries; the SDK's
// budget is shared by all calls of a client, so that one storm would make unrelated calls fail. wait sets the pauses;
// nil is the SDK's random backoff.
func Retryer(wait retry.BackoffDelayer) aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.Backoff = wait
		o.MaxAttempts = 12
		o.MaxBackoff = 8 * time.Second
		o.RateLimiter = ratelimit.None
	})
}

// Once returns a retryer that never retries.
func Once() aws.Retryer { return aws.NopRetryer{} }

// pricingRegion returns the region whose price list service answers for region.
func pricingRegion(region string) string {
	switch {
	case strings.HasPrefix(region, "ap-"):
		return "ap-south-1"
	case strings.HasPrefix(region, "cn-"):
		return "cn-northwest-1"
	case strings.HasPrefix(region, "eu-"):
		return "eu-central-1"
	}
	return "us-east-1"
}
