package ec2api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

func apiError(code, message string) error {
	return &smithy.OperationError{ServiceID: "EC2", OperationName: "CreateFleet", Err: &smithy.GenericAPIError{Code: code, Message: message}}
}

func TestErrorsAreToldApart(t *testing.T) {
	type answers struct{ notFound, exists, denied, throttled, dryRun, unknown, server bool }
	for name, tc := range map[string]struct {
		err  error
		want answers
	}{
		"an instance that is gone":   {apiError("InvalidInstanceID.NotFound", ""), answers{notFound: true}},
		"a placement group":          {apiError("InvalidPlacementGroup.Unknown", ""), answers{notFound: true}},
		"a profile that exists":      {apiError("EntityAlreadyExists", ""), answers{exists: true}},
		"a missing permission":       {apiError("UnauthorizedOperation", ""), answers{denied: true}},
		"a throttled call":           {apiError("RequestLimitExceeded", ""), answers{throttled: true}},
		"a permitted dry run":        {apiError("DryRunOperation", ""), answers{dryRun: true}},
		"a caller who gave up":       {fmt.Errorf("call: %w", context.DeadlineExceeded), answers{unknown: true}},
		"a lost answer":              {errors.New("connection reset"), answers{unknown: true}},
		"a failure of AWS":           {&smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: 503}}, Err: apiError("InternalError", "")}, answers{server: true}},
		"nothing wrong":              {nil, answers{}},
		"an invalid parameter value": {apiError("InvalidParameterValue", ""), answers{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := answers{IsNotFound(tc.err), IsAlreadyExists(tc.err), IsDenied(tc.err), IsThrottled(tc.err), DryRunPassed(tc.err), IsUnknownOutcome(tc.err), IsServerFault(tc.err)}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// deaf is a server that never answers.
type deaf struct{}

func (deaf) Do(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestACallWithoutAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(aws.Config{Region: "us-east-1", HTTPClient: deaf{}, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")}, "test", Observer{})
		begun := time.Now()
		_, err := c.EC2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
		if took := time.Since(begun); took != RequestTimeout || !IsUnknownOutcome(err) {
			t.Errorf("the call ended after %v with %v, want %v and that nobody knows its outcome", took, err, RequestTimeout)
		}
	})
}

// busy is a server that has no time for anybody.
type busy struct{ calls int }

func (b *busy) Do(*http.Request) (*http.Response, error) {
	b.calls++
	return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
}

// A world that has to be the same each time says itself how long to wait before a call is tried again.
func TestAConfigurationMaySayWhenToTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &busy{}
		cfg := aws.Config{Region: "us-east-1", HTTPClient: server, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")}
		cfg.Retryer = func() aws.Retryer {
			return Retryer(retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) { return time.Duration(attempt) * time.Second, nil }))
		}
		begun := time.Now()
		_, err := New(cfg, "test", Observer{}).EC2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
		const waited = (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10 + 11) * time.Second
		if took := time.Since(begun); took != waited || server.calls != 12 || err == nil {
			t.Errorf("the call ended after %v and %d attempts with %v, want %v and 12", took, server.calls, err, waited)
		}
	})
}

// heard is a connection that notes how callers present themselves.
type heard struct{ agents []string }

func (h *heard) Do(r *http.Request) (*http.Response, error) {
	h.agents = append(h.agents, r.UserAgent())
	return nil, errors.New("no answer")
}

// Who reads CloudTrail tells Karpenter's calls, and the version that made them, by the user agent.
func TestCallsNameTheirCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heard
		c := New(aws.Config{Region: "us-east-1", HTTPClient: &h, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")}, "1.2.3", Observer{})
		if _, err := c.EC2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{}); err == nil {
			t.Error("a call without answer is no error")
		}
		for _, agent := range h.agents {
			if !strings.Contains(agent, "karpenter.sh-1.2.3") {
				t.Errorf("the user agent %q does not say karpenter.sh-1.2.3", agent)
			}
		}
		if len(h.agents) == 0 {
			t.Error("nothing was sent")
		}
	})
}

// A called host is remembered, and never answers.
type host struct{ names map[string]bool }

func (h *host) Do(r *http.Request) (*http.Response, error) {
	h.names[r.URL.Host] = true
	return nil, errors.New("no answer")
}

// Each partition has endpoints of its own, and the price list is served from few regions.
func TestEveryPartitionHasItsEndpoints(t *testing.T) {
	for region, want := range map[string][2]string{
		"us-west-2":      {"ec2.us-west-2.amazonaws.com", "api.pricing.us-east-1.amazonaws.com"},
		"eu-west-2":      {"ec2.eu-west-2.amazonaws.com", "api.pricing.eu-central-1.amazonaws.com"},
		"ap-northeast-1": {"ec2.ap-northeast-1.amazonaws.com", "api.pricing.ap-south-1.amazonaws.com"},
		"cn-north-1":     {"ec2.cn-north-1.amazonaws.com.cn", "api.pricing.cn-northwest-1.amazonaws.com.cn"},
		"us-gov-west-1":  {"ec2.us-gov-west-1.amazonaws.com", "api.pricing.us-east-1.amazonaws.com"}, // which is never called: package price
		"us-iso-east-1":  {"ec2.us-iso-east-1.c2s.ic.gov", "api.pricing.us-east-1.amazonaws.com"},    // nor is this, in an isolated VPC
	} {
		t.Run(region, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i, call := range []func(*Clients) error{
					func(c *Clients) error {
						_, err := c.EC2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
						return err
					},
					func(c *Clients) error {
						_, err := c.Pricing.GetProducts(t.Context(), &pricing.GetProductsInput{ServiceCode: aws.String("x")})
						return err
					},
				} {
					h := &host{map[string]bool{}}
					if call(New(aws.Config{Region: region, HTTPClient: h, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")}, "1", Observer{})) == nil {
						t.Error("a call without answer is no error")
					}
					if len(h.names) != 1 || !h.names[want[i]] {
						t.Errorf("called %v, want %s", h.names, want[i])
					}
				}
			})
		})
	}
}

func TestDenial(t *testing.T) {
	for name, tc := range map[string]struct{ message, want string }{
		"the message names the action": {
			"You are not authorized to perform this operation. User: arn:x is not authorized to perform: ec2:RunInstances on resource: y because no identity-based policy allows the ec2:RunInstances action",
			"UnauthorizedOperation: not authorized to perform ec2:RunInstances (the controller's IAM policy does not allow it)",
		},
		"the call names the action": {
			"You are not authorized to perform this operation.",
			"UnauthorizedOperation: not authorized to perform ec2:CreateFleet (the controller's IAM policy does not allow it)",
		},
		"an organization's policy": {
			"User: x is not authorized to perform: ec2:CreateFleet with an explicit deny in a service control policy",
			"UnauthorizedOperation: not authorized to perform ec2:CreateFleet (denied by a service control policy of the organization)",
		},
		"a permissions boundary": {
			"User: x is not authorized to perform: ec2:CreateFleet because no permissions boundary allows the ec2:CreateFleet action",
			"UnauthorizedOperation: not authorized to perform ec2:CreateFleet (denied by the permissions boundary of the controller's role)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Denial(apiError("UnauthorizedOperation", tc.message)); got != tc.want {
				t.Errorf("Denial = %q, want %q", got, tc.want)
			}
		})
	}
}

// What stands in a condition must not change from one try to the next: each change would be another try at once.
func TestExplainLeavesOutWhatDiffersEachTime(t *testing.T) {
	answered := func(id string, err error) error {
		response := &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: 400}}, Err: err}
		return fmt.Errorf("describe: %w", &smithy.OperationError{ServiceID: "EC2", OperationName: "DescribeSubnets", Err: &awshttp.ResponseError{ResponseError: response, RequestID: id}})
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"an error of AWS":      {answered("a", &smithy.GenericAPIError{Code: "InvalidParameterValue", Message: "no such filter"}), "InvalidParameterValue: no such filter"},
		"a missing permission": {answered("a", &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "Encoded authorization failure message: x9"}), "UnauthorizedOperation: not authorized to perform ec2:DescribeSubnets (the controller's IAM policy does not allow it)"},
		"a broken connection":  {answered("a", errors.New("read tcp 10.0.0.1:43210: connection reset")), "EC2 does not answer DescribeSubnets"},
		"an error of our own":  {errors.New("user data is not valid TOML"), "user data is not valid TOML"},
	} {
		if got := Explain(tc.err); got != tc.want {
			t.Errorf("%s: Explain = %q, want %q", name, got, tc.want)
		}
	}
}
