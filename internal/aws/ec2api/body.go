package ec2api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// A wholeBodies sends requests with a copy of their body. The SDK closes its body as soon as an answer begins. If the
// transport has not seen the end of the body by then, it takes the request for broken and cuts the connection, and
// long answers fail.
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
