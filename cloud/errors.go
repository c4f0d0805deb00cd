package cloud

import (
	"errors"
	"fmt"
)

// ErrNotFound says that the machine does not exist, or no longer exists.
var ErrNotFound = errors.New("machine not found")

// ErrRebootRefused says that the cloud does not reboot the machine, and that to try again would not help.
var ErrRebootRefused = errors.New("the cloud refuses to reboot the machine")

// A NoCapacityError says that the cloud has no machine now that the claim allows. The claim is given up, and its pods are planned again
// without the offerings that are out of stock.
type NoCapacityError struct{ Err error }

func (e *NoCapacityError) Error() string { return fmt.Sprintf("no capacity: %v", e.Err) }
func (e *NoCapacityError) Unwrap() error { return e.Err }

// A ClassNotReadyError says that the node class cannot be used yet. The claim is given up, unless the class has not been judged yet:
// then the launch is tried again until the claim's launch time has passed.
type ClassNotReadyError struct {
	Err      error
	Unjudged bool // the class has not been seen, or has no verdict yet on its present spec
}

func (e *ClassNotReadyError) Error() string { return fmt.Sprintf("node class not ready: %v", e.Err) }
func (e *ClassNotReadyError) Unwrap() error { return e.Err }

// A LaunchError is any other refusal to launch, with a reason and message for the claim's Launched condition. The
// launch is tried again until the claim's launch time has passed.
type LaunchError struct {
	Reason  string // CamelCase, for the condition
	Message string // for people: what failed and what to change
	Err     error
}

func (e *LaunchError) Error() string { return fmt.Sprintf("%s: %s: %v", e.Reason, e.Message, e.Err) }
func (e *LaunchError) Unwrap() error { return e.Err }
