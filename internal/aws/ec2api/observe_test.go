package ec2api

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// throttling loses so many answers, and then has no time for anybody.
type throttling struct{ lost int }

func (s *throttling) Do(*http.Request) (*http.Response, error) {
	if s.lost > 0 {
		s.lost--
		return nil, errors.New("connection reset")
	}
	const body = `<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slow down</Message></Error></Errors></Response>`
	return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// A call that is throttled in the end may have had its effect if the answer of an earlier attempt was lost.
func TestAThrottledCallIsInDoubtAfterALostAnswer(t *testing.T) {
	for lost, doubt := range map[int]bool{0: false, 1: true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := aws.Config{Region: "us-east-1", HTTPClient: &throttling{lost}, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")}
			cfg.Retryer = func() aws.Retryer {
				return Retryer(retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Second, nil }))
			}
			var calls []Call
			attempts := 0
			seen := Observer{Call: func(c Call) { calls = append(calls, c) }, Attempt: func(Call) { attempts++ }}
			_, err := New(cfg, "test", seen).EC2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
			if !IsThrottled(err) || IsUnknownOutcome(err) != doubt {
				t.Errorf("after %d lost answers the outcome is unknown: %t, want %t: %v", lost, IsUnknownOutcome(err), doubt, err)
			}
			if len(calls) != 1 || attempts < 2 || calls[0].Retries != attempts-1 {
				t.Errorf("%d attempts, and calls %+v", attempts, calls)
			}
		})
	}
}
