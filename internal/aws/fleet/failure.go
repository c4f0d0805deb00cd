package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/shortage"
)

// A Failure is one reason that EC2 gives for a machine that was not launched.
type Failure struct {
	Code, Message string
	InstanceType  string
	Zone, Subnet  string // as far as EC2 says
	CapacityType  string
	Reservation   string // "" for none
	Place         shortage.Place
}

const (
	noAddresses   = "InsufficientFreeAddressesInSubnet"
	noPlace       = "ReservationCapacityExceeded"
	noServiceRole = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
	elsewhere     = "InvalidPlacementGroup.InUse" // a cluster placement group has its machines in another zone
)

// outCodes are the codes of EC2 that mean that it has no machine to give.
var outCodes = []string{
	"InsufficientInstanceCapacity", "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "UnfulfillableCapacity", "Unsupported",
	"MaxFleetCountExceeded", noPlace, "InvalidCapacityReservationState.Unavailable", "SpotMaxPriceTooLow",
	noAddresses, elsewhere,
}

// failuresOf reads the errors of an order's fleet. zones has the zone of each subnet that was asked for.
func failuresOf(errs []ec2types.CreateFleetError, order *Order, zones map[string]string) []Failure {
	out := make([]Failure, 0, len(errs))
	for _, e := range errs {
		f := Failure{Code: aws.ToString(e.ErrorCode), Message: aws.ToString(e.ErrorMessage),
			CapacityType: order.CapacityType, Place: order.Place}
		if e.LaunchTemplateAndOverrides != nil && e.LaunchTemplateAndOverrides.Overrides != nil {
			o := e.LaunchTemplateAndOverrides.Overrides
			f.InstanceType, f.Subnet, f.Zone = string(o.InstanceType), aws.ToString(o.SubnetId), aws.ToString(o.AvailabilityZone)
			if f.Zone == "" {
				f.Zone = zones[f.Subnet]
			}
			f.Reservation = order.reservationOf(f.InstanceType, f.Zone)
		}
		out = append(out, f)
	}
	return out
}

// Mark records in the list of shortages what a failure says about what can be had.
func (f Failure) Mark(s *shortage.List) {
	switch {
	case f.Code == noServiceRole:
		s.MarkCapacityType(v1.CapacityTypeSpot)
	case !f.Out():
	case f.full():
		s.MarkGroup(f.Place.Group, f.Zone)
	default:
		switch {
		case f.CapacityType != v1.CapacityTypeReserved && f.InstanceType != "":
			s.Mark(shortage.Pool{CapacityType: f.CapacityType, InstanceType: f.InstanceType, Zone: f.Zone, Place: f.Place})
		case f.Reservation != "" && !f.UsedUp() && f.Code != noAddresses:
			s.MarkReservation(f.Reservation)
		}
		if f.Code == noAddresses && f.Subnet != "" {
			s.MarkSubnet(f.Subnet)
		}
	}
}

// full reports whether the placement group takes no further machine of any type in the zone: it is spread and has as
// many as it may, or has its machines elsewhere.
func (f Failure) full() bool {
	if f.Place.Group == "" || f.Zone == "" {
		return false
	}
	return f.Code == elsewhere || strings.Contains(strings.ToLower(f.Message), "spread placement group")
}

// Out reports whether there was no machine to be had, and nothing else was wrong.
func (f Failure) Out() bool { return slices.Contains(outCodes, f.Code) }

// UsedUp reports whether no place is left in the reservation.
func (f Failure) UsedUp() bool { return f.Reservation != "" && f.Code == noPlace }

// Scarce reports whether EC2 has no more machines of the type in the zone.
func (f Failure) Scarce() bool {
	return f.InstanceType != "" && (f.Code == "InsufficientInstanceCapacity" || f.Code == "UnfulfillableCapacity")
}

// Reason returns a word for conditions and metrics.
func (f Failure) Reason() string { reason, _ := explain(f.Code + ": " + f.Message); return reason }

func (f Failure) String() string {
	if f.InstanceType == "" {
		return fmt.Sprintf("%s: %s", f.Code, f.Message)
	}
	return fmt.Sprintf("%s: %s (%s in %s)", f.Code, f.Message, f.InstanceType, f.Zone)
}

// launchFailure returns the error of a launch that gave nothing: NoCapacityError if all failures mean that nothing is
// to be had.
func launchFailure(failures []Failure) error {
	texts := make([]string, len(failures))
	for i, f := range failures {
		texts[i] = f.String()
	}
	slices.Sort(texts)
	texts = slices.Compact(texts)
	err := errors.New(strings.Join(texts, "; "))
	allOut := len(failures) > 0
	for _, f := range failures {
		allOut = allOut && (f.Out() || f.Code == noServiceRole)
	}
	if allOut {
		return &cloud.NoCapacityError{Err: err}
	}
	return launchError(err)
}

// LacksServiceRole reports whether spot machines cannot be launched before a role is created, and the message about
// it.
func LacksServiceRole(err error) (message string, ok bool) {
	if err == nil || !strings.Contains(err.Error(), noServiceRole) {
		return "", false
	}
	_, message = explain(noServiceRole)
	return message, true
}

// launchError gives an error its reason and a message for people.
func launchError(err error) error {
	reason, message := explain(err.Error())
	switch {
	case ec2api.Code(err) == "": // an error of a fleet's answer, or of our own
	case reason == "Unauthorized":
		message = ec2api.Denial(err) // which knows the call, also where AWS does not name the action
	case reason == v1.ReasonLaunchFailed:
		message = ec2api.Explain(err)
	}
	return &cloud.LaunchError{Reason: reason, Message: message, Err: err}
}

func launchErrorOf(reason string, err error) error {
	return &cloud.LaunchError{Reason: reason, Message: err.Error(), Err: err}
}

// ErrorOfCall turns the error of a whole call into the error that the caller acts on. Unknown outcomes, and errors
// that have such a type already, stay unchanged.
func ErrorOfCall(err error) error {
	var known *cloud.LaunchError
	var dry *cloud.NoCapacityError
	var unready *cloud.ClassNotReadyError
	if Unsure(err) || errors.As(err, &known) || errors.As(err, &dry) || errors.As(err, &unready) {
		return err
	}
	return launchError(err)
}

// Unsure reports whether a failed call may have launched something: its answer was lost, or EC2 failed on the way.
// The same call with the same token finds out.
func Unsure(err error) bool {
	return errors.Is(err, ErrLaunchedBefore) || ec2api.IsUnknownOutcome(err) || ec2api.IsServerFault(err) && !ec2api.IsThrottled(err)
}

// deniedCode returns the code in an error's text that means a missing permission, "" if there is none.
func deniedCode(text string) string {
	for _, code := range []string{"UnauthorizedOperation", "AccessDenied", "AuthFailure"} {
		if strings.Contains(text, code) {
			return code
		}
	}
	return ""
}

// explain returns the reason and the message for an error's text. The first match counts, so special cases stand
// before general ones.
func explain(text string) (reason, message string) {
	has := func(parts ...string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
	}
	switch {
	case has(noServiceRole):
		return "SpotSLRCreationFailed", "the service-linked role AWSServiceRoleForEC2Spot does not exist and the " +
			"controller may not create it; create it with: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
	case has("Not authorized for images"):
		return "AMIAuthorizationFailure", "the machine image is not shared with this account"
	case deniedCode(text) != "":
		return "Unauthorized", ec2api.DenialOf(deniedCode(text), errors.New(text))
	case has("InvalidParameter", "belong to different networks"):
		return "SecurityGroupSubnetVPCMismatch", "security groups and subnets of the node class are in different VPCs"
	case has("iamInstanceProfile.name is invalid"):
		return "InstanceProfileNameInvalid", "the instance profile does not exist, or EC2 does not see it yet"
	case has("InvalidLaunchTemplateId.NotFound"), has("InvalidLaunchTemplateName.NotFoundException"):
		return "LaunchTemplateNotFound", "the launch template was deleted; it is made again at the next try"
	case has("User data is limited to"):
		return "UserDataSizeLimitExceeded", "the user data is larger than the 16 KiB that EC2 takes"
	case has("InvalidAMIID.Malformed"):
		return "InvalidAMIID", "the machine image's id is malformed"
	case has("InvalidAMIID.NotFound"):
		return "AMINotFound", "the machine image does not exist in this region"
	case has("RequestLimitExceeded"):
		return "RequestLimitExceeded", "EC2 throttles this account's requests"
	case has("InternalError"):
		return "InternalError", "EC2 failed"
	case has("not eligible for Free Tier"):
		return "FreeTierIneligible", "the account is limited to types of the free tier"
	case has("MaxFleetCountExceeded"):
		return "FleetQuotaExceeded", "the account's number of fleets is used up"
	case has("PendingVerification"):
		return "AccountPendingVerification", "AWS is still verifying the account"
	case has("MaxSpotInstanceCountExceeded"):
		return "SpotQuotaExceeded", "the account's quota of spot machines is used up"
	case has("VcpuLimitExceeded"):
		return "VCPULimitExceeded", "the account's quota of vCPUs is used up"
	case has(noAddresses):
		return noAddresses, "the subnet has no free addresses"
	case has(elsewhere):
		return "PlacementGroupInUse", "the cluster placement group has its machines in another zone"
	}
	return v1.ReasonLaunchFailed, text
}
