package class

import (
	"net/http"
	"testing"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

func TestAnExplanationIsTheSameForEveryAttempt(t *testing.T) {
	attempt := func(request string) error {
		return &smithy.OperationError{ServiceID: "EKS", OperationName: "DescribeCluster", Err: &awshttp.ResponseError{RequestID: request, ResponseError: &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: 404}},
			Err:      &smithy.GenericAPIError{Code: "ResourceNotFoundException", Message: "No cluster found for name: demo."},
		}}}
	}
	const want = "ResourceNotFoundException: No cluster found for name: demo."
	if a, b := explain(attempt("one")), explain(attempt("two")); a != want || b != want {
		t.Errorf("explained as %q and %q, want %q", a, b, want)
	}
}
