package awsmodel

import (
	"errors"
	"fmt"
	"net/http"

	"karpenter.sh/karpenter/internal/testing/awsmodel/wire"
)

// A fault is an error that AWS answers.
type fault struct {
	code, message string
	status        int
	query         string // the code of the older protocol, for services that still tell it
}

func (f *fault) Error() string { return f.code + ": " + f.message }

func refuse(code, format string, args ...any) *fault {
	return &fault{code: code, message: fmt.Sprintf(format, args...), status: http.StatusBadRequest}
}

func refuseWith(status int, code, format string, args ...any) *fault {
	f := refuse(code, format, args...)
	f.status = status
	return f
}

// asFault turns any error into an error that AWS could answer.
func asFault(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	if p, ok := errors.AsType[*wire.ParameterError](err); ok {
		return refuse(p.Code, "%s", p.Message)
	}
	return refuseWith(http.StatusInternalServerError, "InternalError", "%v", err)
}

func throttled(service string) *fault {
	if service == "ec2" {
		return refuseWith(http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded.")
	}
	return refuse(throttlingCode(service), "Rate exceeded")
}

func throttlingCode(service string) string {
	if service == "iam" || service == "sts" {
		return "Throttling"
	}
	return "ThrottlingException"
}
