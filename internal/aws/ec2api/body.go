package ec2api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// wholeBodies hands requests over with a body of their own. The SDK closes its body as soon as there is an answer, and an answer
// that was quick finds the transport about to see whether the body has ended: it takes the closed body for a broken request,
// and cuts the connection while the answer is being read. Long answers then fail and are asked for again.
type wholeBodies struct{ next aws.HTTPClient }

func withWholeBodies(next aws.HTTPClient) aws.HTTPClient {
	if next == nil {
		next = awshttp.NewBuildableClient()
	}
	return wholeBodies{next}
}

// Do implements aws.HTTPClient.
func (c wholeBodies) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		return c.next.Do(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the request's body: %w", err)
	}
	r = r.WithContext(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	return c.next.Do(r)
}
