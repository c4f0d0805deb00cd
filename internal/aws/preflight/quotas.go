package preflight

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
)

// Quotas of EC2 that limit most fleets first: virtual CPUs of running machines of the standard families.
var quotas = []struct{ code, what string }{{"L-1216C47A", "on-demand"}, {"L-34B43A08", "spot"}}

// few is what new accounts get at first: hardly a machine.
const few = 32

// checkQuotas checks that the account may run enough virtual CPUs.
func (l *look) checkQuotas(ctx context.Context) ([]Finding, error) {
	wanted := l.wanted()
	var found []Finding
	for _, q := range quotas {
		value, err := l.quota(ctx, q.code)
		if err != nil {
			return found, &smithy.OperationError{ServiceID: "Service Quotas", OperationName: "GetServiceQuota", Err: err}
		}
		command := l.aws("service-quotas request-service-quota-increase --service-code ec2 --quota-code %s "+
			"--desired-value %d", q.code, max(wanted, 4*few))
		switch {
		case value < few:
			found = append(found, one(Missing, command, "EC2 lets you run %g virtual CPUs of %s machines", value, q.what)...)
		case float64(wanted) > value:
			found = append(found, one(Warning, command,
				"EC2 lets you run %g virtual CPUs of %s machines, the limits of the NodePools come to %d", value, q.what, wanted)...)
		default:
			found = append(found, one(OK, "", "%g virtual CPUs of %s machines", value, q.what)...)
		}
	}
	return found, nil
}

// wanted returns how many virtual CPUs the pools may buy together, as far as they have limits.
func (l *look) wanted() int64 {
	var n int64
	for i := range l.pools {
		if cpus, ok := l.pools[i].Spec.Limits[corev1.ResourceCPU]; ok {
			n += cpus.Value()
		}
	}
	return n
}

// quota asks for a quota. It makes the request by hand, because a client for one operation is not worth linking.
func (l *look) quota(ctx context.Context, code string) (float64, error) {
	const service = "servicequotas"
	body, err := json.Marshal(map[string]string{"ServiceCode": "ec2", "QuotaCode": code})
	if err != nil {
		return 0, err
	}
	endpoint, err := l.endpoint(ctx, service)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/x-amz-json-1.1")
	request.Header.Set("X-Amz-Target", "ServiceQuotasV20190624.GetServiceQuota")
	who, err := l.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return 0, err
	}
	hash := sha256.Sum256(body)
	if err := signer.NewSigner().SignHTTP(ctx, who, request, hex.EncodeToString(hash[:]), service, l.cfg.Region, time.Now()); err != nil {
		return 0, err
	}
	return send(l.cfg.HTTPClient, request)
}

// endpoint returns the address of a service in the region, derived from that of SSM, whose client knows the domains
// of all partitions.
func (l *look) endpoint(ctx context.Context, service string) (string, error) {
	if l.cfg.BaseEndpoint != nil {
		return *l.cfg.BaseEndpoint + "/", nil
	}
	beside, err := ssm.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, ssm.EndpointParameters{Region: &l.cfg.Region})
	if err != nil {
		return "", err
	}
	return "https://" + service + strings.TrimPrefix(beside.URI.Host, "ssm") + "/", nil
}

// send sends the request for a quota and reads the answer.
func send(c aws.HTTPClient, request *http.Request) (float64, error) {
	if c == nil {
		c = http.DefaultClient
	}
	answer, err := c.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return 0, err
	}
	var told struct{ Quota struct{ Value float64 } }
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("ask for the quotas of EC2: %s", text)
	}
	err = json.Unmarshal(text, &told)
	return told.Quota.Value, err
}
