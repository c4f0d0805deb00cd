package ec2api

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Code returns AWS's code of an error, "" if it is not AWS's.
func Code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// Message returns AWS's own words for an error, or the error's text.
func Message(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorMessage()
	}
	return err.Error()
}

// IsNotFound reports whether what was asked for does not exist.
func IsNotFound(err error) bool { return slices.Contains(notFound, Code(err)) }

var notFound = []string{
	"InvalidCapacityReservationId.NotFound", "InvalidInstanceID.NotFound", "InvalidLaunchTemplateName.NotFoundException",
	"InvalidLaunchTemplateId.NotFound", "InvalidPlacementGroup.Unknown", "NoSuchEntity", "ParameterNotFound",
	"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue",
}

// IsAlreadyExists reports whether what was to be made exists.
func IsAlreadyExists(err error) bool {
	return slices.Contains([]string{"EntityAlreadyExists", "InvalidLaunchTemplateName.AlreadyExistsException"}, Code(err))
}

// IsDenied reports whether a permission is missing.
func IsDenied(err error) bool { return isDeniedCode(Code(err)) }

func isDeniedCode(code string) bool {
	return slices.Contains([]string{
		"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure", "AuthorizationError",
		"AuthorizationErrorException",
	}, code)
}

// IsThrottled reports whether AWS asks to slow down.
func IsThrottled(err error) bool {
	return slices.Contains([]string{"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"}, Code(err))
}

// IsServerFault reports whether AWS failed, and not the request.
func IsServerFault(err error) bool {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.HTTPStatusCode() >= 500 {
		return true
	}
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorFault() == smithy.FaultServer
}

// DryRunPassed reports whether a dry run would have been allowed: AWS answers a permitted dry run with an error.
func DryRunPassed(err error) bool { return Code(err) == "DryRunOperation" }

// IsUnknownOutcome reports whether it is not known if a failed call had its effect: it was given up, or its answer
// was lost.
func IsUnknownOutcome(err error) bool {
	if _, doubt := errors.AsType[*doubtError](err); doubt {
		return true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return err != nil && Code(err) == ""
}

// A doubtError is the error of a call whose last attempt was throttled, and of which an earlier attempt may have had
// its effect.
type doubtError struct{ error }

func (e *doubtError) Unwrap() error { return e.error }

// mayHaveEffect reports whether a single failed attempt may have had its effect.
func mayHaveEffect(err error) bool {
	return IsUnknownOutcome(err) || IsServerFault(err) && !IsThrottled(err)
}

// deniedAction returns the IAM action that an error is about, such as "ec2:RunInstances": the action that the message names,
// else that of the call.
func deniedAction(err error) string {
	if m := actionPattern.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	var op *smithy.OperationError
	if errors.As(err, &op) {
		return strings.ToLower(op.Service()) + ":" + op.Operation()
	}
	return ""
}

// Explain returns what went wrong in words that are the same each time: without ids and addresses of single requests.
func Explain(err error) string {
	var op *smithy.OperationError
	switch code := Code(err); {
	case IsDenied(err):
		return Denial(err)
	case code != "":
		return code + ": " + Message(err)
	case errors.As(err, &op):
		return fmt.Sprintf("%s does not answer %s", op.Service(), op.Operation())
	}
	return err.Error()
}

var actionPattern = regexp.MustCompile(`not authorized to perform: ([a-z0-9-]+:[A-Za-z]+)`)

// Denial returns what a denied call lacks: AWS's code, the action, and which kind of policy denies it.
func Denial(err error) string {
	return DenialOf(Code(err), err)
}

// DenialOf is Denial for an error that does not carry its code, as those in a fleet's answer.
func DenialOf(code string, err error) string {
	return fmt.Sprintf("%s: not authorized to perform %s %s", code, deniedAction(err), denialCause(err.Error()))
}

// denialCause returns which kind of policy denied a call, by AWS's message.
func denialCause(text string) string {
	switch {
	case strings.Contains(text, "explicit deny in a permissions boundary"), strings.Contains(text, "no permissions boundary allows"):
		return "(denied by the permissions boundary of the controller's role)"
	case strings.Contains(text, "explicit deny in a service control policy"), strings.Contains(text, "no service control policy allows"):
		return "(denied by a service control policy of the organization)"
	}
	return "(the controller's IAM policy does not allow it)"
}
