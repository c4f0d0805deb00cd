package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/core/shape"
)

// of makes an offering: "spot a 10" is spot in zone a for 10; "-" in front means that it is out; reserved ones have a
// fourth field, what is left.
func of(text string) cloud.Offering {
	o := cloud.Offering{Available: !strings.HasPrefix(text, "-")}
	var ct, zone string
	var price int64
	n, _ := fmt.Sscanf(strings.TrimPrefix(text, "-"), "%s %s %d %d", &ct, &zone, &price, &o.Reserved)
	if n < 3 {
		panic(text)
	}
	o.Price = cloud.NanoUSD(price)
	o.Labels = map[string]string{v1.CapacityTypeLabelKey: ct, corev1.LabelTopologyZone: zone}
	if ct == v1.CapacityTypeReserved {
		o.Labels[awsv1.LabelCapacityReservationID] = fmt.Sprintf("cr-%s-%d", zone, o.Reserved)
	}
	return o
}

func kind(name string, cpu string, exotic bool, offerings ...string) *cloud.InstanceType {
	it := &cloud.InstanceType{
		Name: name, Exotic: exotic, Labels: map[string][]string{corev1.LabelInstanceTypeStable: {name}},
		Capacity: corev1.ResourceList{"cpu": resource.MustParse(cpu)},
	}
	for _, text := range offerings {
		it.Offerings = append(it.Offerings, of(text))
	}
	return it
}

type reqs = []v1.NodeSelectorRequirementWithMinValues

func in(key string, values ...string) v1.NodeSelectorRequirementWithMinValues {
	return v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: "In", Values: values}
}

// text writes a choice as "capacity type: type[zone …] …".
func (c Choice) text() string {
	var b strings.Builder
	b.WriteString(c.CapacityType + ":")
	for _, candidate := range c.Candidates {
		var zones []string
		for _, o := range candidate.Offerings {
			zones = append(zones, o.Zone())
		}
		fmt.Fprintf(&b, " %s%v", candidate.Type.Name, zones)
	}
	return b.String()
}

func TestChoose(t *testing.T) {
	capacityTypes := func(values ...string) v1.NodeSelectorRequirementWithMinValues {
		return in(v1.CapacityTypeLabelKey, values...)
	}
	small := kind("small", "2", false, "on-demand a 100", "on-demand b 100", "spot a 40", "spot b 41")
	large := kind("large", "8", false, "on-demand a 400", "spot a 120")
	metal := kind("metal", "64", true, "on-demand a 50", "spot a 20")
	both := capacityTypes("spot", "on-demand")
	two, three := 2, 3
	family := func(it *cloud.InstanceType, name string) *cloud.InstanceType {
		it.Labels[awsv1.LabelInstanceFamily] = []string{name}
		return it
	}
	families := v1.NodeSelectorRequirementWithMinValues{Key: awsv1.LabelInstanceFamily, Operator: "Exists", MinValues: &two}
	c5, m5 := family(kind("c5", "2", false, "on-demand a 100", "spot a 40"), "c5"), family(kind("m5", "2", false, "on-demand a 120"), "m5")
	x5 := family(kind("x5", "2", false, "reserved a 1 2", "spot b 90"), "x5")
	x5.Labels[corev1.LabelTopologyZone], m5.Labels[corev1.LabelTopologyZone] = []string{"b"}, []string{"a"}
	r5 := family(kind("r5", "2", false, "reserved a 1 2", "reserved a 1 3", "reserved b 1 1", "spot a 50"), "r5")
	// A type that is sold in two zones and two ways, of which one zone is out.
	twice := kind("twice", "2", false, "on-demand a 100", "-on-demand b 100", "spot a 40", "-spot b 41")
	twice.Labels[corev1.LabelTopologyZone], twice.Labels[v1.CapacityTypeLabelKey] = []string{"a", "b"}, []string{"on-demand", "spot"}
	atLeast := func(n *int, key string, values ...string) v1.NodeSelectorRequirementWithMinValues {
		r := in(key, values...)
		r.MinValues = n
		return r
	}
	for name, tc := range map[string]struct {
		types []*cloud.InstanceType
		needs reqs
		cpu   string
		want  string
	}{
		"on-demand, cheapest first":                    {[]*cloud.InstanceType{large, small}, reqs{capacityTypes("on-demand")}, "1", "on-demand: small[a b] large[a]"},
		"spot goes before on-demand, in all zones":     {[]*cloud.InstanceType{large, small}, reqs{both}, "1", "spot: small[a b]"},
		"spot dearer than on-demand is dropped":        {[]*cloud.InstanceType{kind("x", "2", false, "on-demand a 100", "spot a 101")}, reqs{both}, "1", "on-demand: x[a]"},
		"what does not hold the requests is dropped":   {[]*cloud.InstanceType{large, small}, reqs{capacityTypes("on-demand")}, "4", "on-demand: large[a]"},
		"a zone that is asked for":                     {[]*cloud.InstanceType{large, small}, reqs{capacityTypes("on-demand"), in(corev1.LabelTopologyZone, "b")}, "1", "on-demand: small[b]"},
		"exotic types wait behind ordinary ones":       {[]*cloud.InstanceType{metal, large}, reqs{capacityTypes("on-demand")}, "1", "on-demand: large[a]"},
		"exotic types alone are taken":                 {[]*cloud.InstanceType{metal}, reqs{capacityTypes("on-demand")}, "1", "on-demand: metal[a]"},
		"exotic types that alone are large enough":     {[]*cloud.InstanceType{metal, large}, reqs{capacityTypes("on-demand")}, "9", "on-demand: metal[a]"},
		"what is out is not sent":                      {[]*cloud.InstanceType{kind("x", "2", false, "-spot a 10", "on-demand a 100")}, reqs{both}, "1", "on-demand: x[a]"},
		"reserved goes first, the fullest reservation": {[]*cloud.InstanceType{kind("x", "2", false, "reserved a 1 2", "reserved a 1 5", "reserved b 1 1", "on-demand a 100"), small}, nil, "1", "reserved: x[a b]"},
		"reserved that is not allowed":                 {[]*cloud.InstanceType{kind("x", "2", false, "reserved a 1 2", "on-demand a 100")}, reqs{capacityTypes("on-demand")}, "1", "on-demand: x[a]"},
		"a reservation that is asked for":              {[]*cloud.InstanceType{kind("x", "2", false, "reserved a 1 2", "reserved b 1 9", "on-demand a 100")}, reqs{in(awsv1.LabelCapacityReservationID, "cr-a-2")}, "1", "reserved: x[a]"},
		"nothing outside of a reservation asked for":   {[]*cloud.InstanceType{small}, reqs{in(awsv1.LabelCapacityReservationID, "cr-a-2")}, "1", ""},
		"nothing fits":                                           {[]*cloud.InstanceType{small}, nil, "100", ""},
		"minValues keep exotic and dear types":                   {[]*cloud.InstanceType{large, small, metal}, reqs{both, {Key: corev1.LabelInstanceTypeStable, Operator: "Exists", MinValues: &three}}, "1", "spot: metal[a] small[a b] large[a]"},
		"minValues of capacity types, of which a launch has one": {[]*cloud.InstanceType{twice}, reqs{atLeast(&two, v1.CapacityTypeLabelKey, "on-demand", "spot")}, "1", "spot: twice[a]"},
		"minValues of zones, of which one is out":                {[]*cloud.InstanceType{twice}, reqs{both, atLeast(&two, corev1.LabelTopologyZone, "a", "b")}, "1", "spot: twice[a]"},
		"minValues of zones that the type is not sold in":        {[]*cloud.InstanceType{twice}, reqs{both, atLeast(&three, corev1.LabelTopologyZone, "a", "b", "c")}, "1", ""},
		"minValues that on-demand alone meets":                   {[]*cloud.InstanceType{c5, m5}, reqs{both, families}, "1", "on-demand: c5[a] m5[a]"},
		"minValues that spot meets":                              {[]*cloud.InstanceType{c5, m5, r5}, reqs{both, families}, "1", "spot: c5[a] r5[a]"},
		"minValues that a reservation does not meet":             {[]*cloud.InstanceType{c5, r5}, reqs{families}, "1", "spot: c5[a] r5[a]"},
		"minValues that reservations meet":                       {[]*cloud.InstanceType{c5, r5, x5}, reqs{families}, "1", "reserved: r5[a b] x5[a]"},
		"minValues of zones of all that is listed":               {[]*cloud.InstanceType{m5, x5}, reqs{both, atLeast(&two, corev1.LabelTopologyZone, "a", "b")}, "1", "spot: x5[b]"},
		"minValues that capacity types meet only together":       {[]*cloud.InstanceType{m5, r5}, reqs{both, families}, "1", "spot: r5[a]"},
		"minValues that cannot be kept refuse the claim":         {[]*cloud.InstanceType{large, small}, reqs{both, {Key: corev1.LabelInstanceTypeStable, Operator: "Exists", MinValues: &three}}, "1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &v1.NodeClaim{Spec: v1.NodeClaimSpec{Requirements: tc.needs}}
			claim.Spec.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(tc.cpu)}
			got, err := Choose(tc.types, claim, shape.DefaultBand)
			if tc.want == "" {
				if err == nil {
					t.Errorf("chose %s, want a refusal", got.text())
				}
				return
			}
			if err != nil || got.text() != tc.want {
				t.Errorf("chose %s, %v; want %s", got.text(), err, tc.want)
			}
		})
	}
	t.Run("relaxed minValues launch what there is", func(t *testing.T) {
		claim := &v1.NodeClaim{Spec: v1.NodeClaimSpec{Requirements: reqs{{Key: corev1.LabelInstanceTypeStable, Operator: "Exists", MinValues: &three}}}}
		claim.Annotations = map[string]string{v1.NodeClaimMinValuesRelaxedAnnotationKey: "true"}
		if _, err := Choose([]*cloud.InstanceType{small}, claim, shape.DefaultBand); err != nil {
			t.Error(err)
		}
		claim.Spec.Requirements = reqs{both, {Key: awsv1.LabelInstanceFamily, Operator: "Exists", MinValues: &two}} // lowered to two
		for _, choose := range []func([]*cloud.InstanceType, *v1.NodeClaim, shape.Band) (Choice, error){Choose, ChooseWidely} {
			if got, err := choose([]*cloud.InstanceType{c5, m5}, claim, shape.DefaultBand); err != nil || got.text() != "on-demand: c5[a] m5[a]" {
				t.Errorf("chose %s, %v, want what meets those that are left", got.text(), err)
			}
		}
	})
	t.Run("a wide choice has no band", func(t *testing.T) {
		claim := &v1.NodeClaim{Spec: v1.NodeClaimSpec{Requirements: reqs{capacityTypes("spot")}}}
		if got, err := ChooseWidely([]*cloud.InstanceType{large, small}, claim, shape.DefaultBand); err != nil || got.text() != "spot: small[a b] large[a]" {
			t.Errorf("chose %s, %v", got.text(), err)
		}
	})
	t.Run("the cheapest sixty make room for values that minValues ask for", func(t *testing.T) {
		var many []*cloud.InstanceType
		for i := range 100 {
			it := kind(fmt.Sprintf("t%03d", i), "2", false, fmt.Sprintf("on-demand a %d", 100+i))
			it.Labels[awsv1.LabelInstanceCPU] = []string{map[bool]string{true: "4", false: "8"}[i < 90]}
			it.Labels[awsv1.LabelInstanceFamily] = []string{fmt.Sprint("f", i/50)}
			many = append(many, it)
		}
		cpu := reqs{{Key: awsv1.LabelInstanceCPU, Operator: "Exists", MinValues: &two}, {Key: awsv1.LabelInstanceFamily, Operator: "Exists", MinValues: &two}}
		got, err := Choose(many, &v1.NodeClaim{Spec: v1.NodeClaimSpec{Requirements: cpu}}, shape.DefaultBand)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range got.Candidates {
			names = append(names, c.Type.Name)
		}
		if len(names) != 60 || names[58] != "t058" || names[59] != "t090" {
			t.Errorf("sent are %v, want the cheapest 59 and the cheapest of the other size", names)
		}
		cpu[0].MinValues = &three
		if _, err := Choose(many, &v1.NodeClaim{Spec: v1.NodeClaimSpec{Requirements: cpu}}, shape.DefaultBand); err == nil {
			t.Error("minValues that no types have are no refusal")
		}
	})
	t.Run("what minValues ask for has a place among what one launch takes", func(t *testing.T) {
		var many []*cloud.InstanceType
		for i := range 60 {
			it := kind(fmt.Sprintf("t%03d", i), "2", false)
			for z := range 6 {
				it.Offerings = append(it.Offerings, of(fmt.Sprintf("on-demand %c %d", 'a'+z, 100+10*i+z)))
			}
			many = append(many, family(it, fmt.Sprint("f", i/59)))
		}
		got, err := Choose(many, &v1.NodeClaim{Spec: v1.NodeClaimSpec{Requirements: reqs{families}}}, shape.DefaultBand)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, c := range got.Candidates {
			n += len(c.Offerings)
		}
		if last := got.Candidates[59]; n != shape.MostOverrides || last.Type.Name != "t059" || len(last.Offerings) != 1 || last.Offerings[0].Zone() != "a" {
			t.Errorf("%d offerings are sent, of them %d of %s", n, len(last.Offerings), last.Type.Name)
		}
	})
	t.Run("at most sixty types are sent", func(t *testing.T) {
		var many []*cloud.InstanceType
		for i := range 100 {
			many = append(many, kind(fmt.Sprintf("t%03d", i), "2", false, fmt.Sprintf("on-demand a %d", 1000-i)))
		}
		got, err := Choose(many, &v1.NodeClaim{}, shape.DefaultBand)
		if err != nil || len(got.Candidates) != 60 || got.Candidates[0].Type.Name != "t099" {
			t.Errorf("%d types are sent, first %s; %v", len(got.Candidates), got.Candidates[0].Type.Name, err)
		}
	})
}

// What a claim's condition says is the same at each try, and names what is missing.
func TestCallFailed(t *testing.T) {
	of := func(code, message string) error {
		return &smithy.OperationError{ServiceID: "EC2", OperationName: "CreateFleet", Err: fmt.Errorf("https response error StatusCode: 400, RequestID: 1-2-3, %w",
			&smithy.GenericAPIError{Code: code, Message: message})}
	}
	for name, tc := range map[string]struct {
		err             error
		reason, message string // "" where the error stays as it is
	}{
		"something of EC2":               {of("InvalidParameterCombination", "no"), v1.ReasonLaunchFailed, "InvalidParameterCombination: no"},
		"a permission that is not named": {of("UnauthorizedOperation", "Encoded: x9"), "Unauthorized", "UnauthorizedOperation: not authorized to perform ec2:CreateFleet (the controller's IAM policy does not allow it)"},
		"something that we know":         {of("RequestLimitExceeded", "Request limit exceeded."), "RequestLimitExceeded", "EC2 throttles this account's requests"},
		"a lost answer":                  {errors.New("connection reset"), "", ""},
		"EC2 failed on the way":          {&smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: 500}}, Err: of("InternalError", "")}, "", ""},
		"throttled, which EC2 calls a failure of its own": {&smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: 503}}, Err: of("RequestLimitExceeded", "")},
			"RequestLimitExceeded", "EC2 throttles this account's requests"},
		"nobody waits any longer":   {context.DeadlineExceeded, "", ""},
		"a class that is not ready": {&cloud.ClassNotReadyError{Err: errors.New("no")}, "", ""},
	} {
		err := ErrorOfCall(tc.err)
		var refused *cloud.LaunchError
		if errors.As(err, &refused) != (tc.reason != "") || refused != nil && (refused.Reason != tc.reason || refused.Message != tc.message) {
			t.Errorf("%s: %v, want reason %s and %q", name, err, tc.reason, tc.message)
		}
		if !errors.Is(err, tc.err) {
			t.Errorf("%s: the error is lost in %v", name, err)
		}
	}
}

// Reasons of single failures, which metrics show also when the launch found something else.
func TestReasonOfAFailure(t *testing.T) {
	for code, want := range map[string]string{
		"MaxSpotInstanceCountExceeded": "SpotQuotaExceeded", "VcpuLimitExceeded": "VCPULimitExceeded", "MaxFleetCountExceeded": "FleetQuotaExceeded",
		"InsufficientFreeAddressesInSubnet": "InsufficientFreeAddressesInSubnet", "InvalidLaunchTemplateId.NotFound": "LaunchTemplateNotFound",
		"InvalidAMIID.Malformed": "InvalidAMIID", "RequestLimitExceeded": "RequestLimitExceeded", noServiceRole: "SpotSLRCreationFailed",
		"InsufficientInstanceCapacity": v1.ReasonLaunchFailed, "AccessDenied": "Unauthorized",
	} {
		if got := (Failure{Code: code}).Reason(); got != want {
			t.Errorf("the reason of %s is %s, want %s", code, got, want)
		}
	}
}

func fleetError(code, message, instanceType, subnet string) ec2types.CreateFleetError {
	return ec2types.CreateFleetError{ErrorCode: aws.String(code), ErrorMessage: aws.String(message),
		LaunchTemplateAndOverrides: &ec2types.LaunchTemplateAndOverridesResponse{
			Overrides: &ec2types.FleetLaunchTemplateOverrides{InstanceType: ec2types.InstanceType(instanceType), SubnetId: aws.String(subnet)},
		}}
}

func TestFailures(t *testing.T) {
	zones := map[string]string{"subnet-a": "z-a"}
	dry := fleetError("InsufficientInstanceCapacity", "no", "m5.large", "subnet-a")
	for name, tc := range map[string]struct {
		errs       []ec2types.CreateFleetError
		noCapacity bool
		reason     string
		out        []shortage.Pool
		subnetOut  bool
	}{
		"out of stock":                      {[]ec2types.CreateFleetError{dry}, true, "", []shortage.Pool{{CapacityType: "spot", InstanceType: "m5.large", Zone: "z-a"}}, false},
		"a quota":                           {[]ec2types.CreateFleetError{fleetError("MaxSpotInstanceCountExceeded", "x", "m5.large", "subnet-a")}, true, "", []shortage.Pool{{CapacityType: "spot", InstanceType: "m5.large", Zone: "z-a"}}, false},
		"a price that rose above the limit": {[]ec2types.CreateFleetError{fleetError("SpotMaxPriceTooLow", "x", "m5.large", "subnet-a")}, true, "", []shortage.Pool{{CapacityType: "spot", InstanceType: "m5.large", Zone: "z-a"}}, false},
		"a full subnet":                     {[]ec2types.CreateFleetError{fleetError("InsufficientFreeAddressesInSubnet", "x", "m5.large", "subnet-a")}, true, "", []shortage.Pool{{CapacityType: "spot", InstanceType: "m5.large", Zone: "z-a"}}, true},
		"no service role: spot is out":      {[]ec2types.CreateFleetError{fleetError(noServiceRole, "x", "m5.large", "subnet-a")}, true, "", []shortage.Pool{{CapacityType: "spot", InstanceType: "any", Zone: "z-q"}}, false},
		"a missing permission":              {[]ec2types.CreateFleetError{fleetError("UnauthorizedOperation", "You are not authorized to perform: ec2:RunInstances", "m5.large", "subnet-a")}, false, "Unauthorized", nil, false},
		"a mixture is no lack of stock":     {[]ec2types.CreateFleetError{dry, fleetError("InvalidParameter", "Security group sg-1 and subnet subnet-a belong to different networks", "m5.large", "subnet-a")}, false, "SecurityGroupSubnetVPCMismatch", nil, false},
		"throttling marks nothing":          {[]ec2types.CreateFleetError{fleetError("RequestLimitExceeded", "slow down", "m5.large", "subnet-a")}, false, "RequestLimitExceeded", nil, false},
		"an image that is gone":             {[]ec2types.CreateFleetError{fleetError("InvalidAMIID.NotFound", "x", "m5.large", "subnet-a")}, false, "AMINotFound", nil, false},
		"a profile that EC2 does not see":   {[]ec2types.CreateFleetError{fleetError("InvalidParameterValue", "Value (x) for parameter iamInstanceProfile.name is invalid", "m5.large", "subnet-a")}, false, "InstanceProfileNameInvalid", nil, false},
		"a reason without what it is about": {[]ec2types.CreateFleetError{{ErrorCode: aws.String("VcpuLimitExceeded")}}, true, "", nil, false},
		"a reason without a word":           {[]ec2types.CreateFleetError{{}}, false, v1.ReasonLaunchFailed, nil, false},
		"an account that is not verified":   {[]ec2types.CreateFleetError{fleetError("PendingVerification", "x", "m5.large", "subnet-a")}, false, "AccountPendingVerification", nil, false},
		"an account of the free tier":       {[]ec2types.CreateFleetError{fleetError("InvalidParameterCombination", "The specified instance type is not eligible for Free Tier", "m5.large", "subnet-a")}, false, "FreeTierIneligible", nil, false},
		"too much user data":                {[]ec2types.CreateFleetError{fleetError("InvalidUserData.Malformed", "User data is limited to 16384 bytes", "m5.large", "subnet-a")}, false, "UserDataSizeLimitExceeded", nil, false},
		"an image of somebody else":         {[]ec2types.CreateFleetError{fleetError("AuthFailure", "Not authorized for images: [ami-1]", "m5.large", "subnet-a")}, false, "AMIAuthorizationFailure", nil, false},
		"EC2 is broken":                     {[]ec2types.CreateFleetError{fleetError("InternalError", "x", "m5.large", "subnet-a")}, false, "InternalError", nil, false},
		"too many fleets":                   {[]ec2types.CreateFleetError{fleetError("MaxFleetCountExceeded", "x", "m5.large", "subnet-a")}, true, "", []shortage.Pool{{CapacityType: "spot", InstanceType: "m5.large", Zone: "z-a"}}, false},
		"something else":                    {[]ec2types.CreateFleetError{fleetError("Odd", "x", "m5.large", "subnet-a")}, false, v1.ReasonLaunchFailed, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := shortage.New()
			failures := failuresOf(tc.errs, &Order{CapacityType: "spot"}, zones)
			for _, f := range failures {
				f.Mark(s)
			}
			err := launchFailure(failures)
			var none *cloud.NoCapacityError
			var refused *cloud.LaunchError
			if errors.As(err, &none) != tc.noCapacity {
				t.Errorf("error = %v, want no capacity %v", err, tc.noCapacity)
			}
			if errors.As(err, &refused) && refused.Reason != tc.reason {
				t.Errorf("reason = %s, want %s", refused.Reason, tc.reason)
			}
			for _, p := range tc.out {
				if !s.Out(p) {
					t.Errorf("%v is not out", p)
				}
			}
			if len(tc.out) == 0 && len(tc.errs) == 1 && s.Out(shortage.Pool{CapacityType: "spot", InstanceType: "m5.large", Zone: "z-a"}) {
				t.Error("the pool is out")
			}
			if s.SubnetOut("subnet-a") != tc.subnetOut {
				t.Errorf("the subnet is out: %v, want %v", !tc.subnetOut, tc.subnetOut)
			}
		})
	}
}

func TestFailuresInPlacementGroups(t *testing.T) {
	place := shortage.Place{Group: "pg-1", Partition: "2"}
	here := shortage.Pool{CapacityType: "on-demand", InstanceType: "m5.large", Zone: "z-a", Place: place}
	other, beside, elsewhere := here, here, here
	other.InstanceType, beside.Place, elsewhere.Zone = "c5.large", shortage.Place{}, "z-b"
	for name, tc := range map[string]struct {
		code, message string
		out, not      []shortage.Pool
	}{
		"no machine of the type": {"InsufficientInstanceCapacity", "no capacity", []shortage.Pool{here}, []shortage.Pool{other, beside, elsewhere}},
		"a spread group that is full in a zone": {"InsufficientInstanceCapacity", "Spread placement group g has reached its limit of 7 running instances", []shortage.Pool{here, other},
			[]shortage.Pool{beside, elsewhere}},
		"a cluster group that is in another zone": {"InvalidPlacementGroup.InUse", "The placement group 'g' is in use in another availability zone: z-b", []shortage.Pool{here, other},
			[]shortage.Pool{beside, elsewhere}},
	} {
		t.Run(name, func(t *testing.T) {
			s := shortage.New()
			failures := failuresOf([]ec2types.CreateFleetError{fleetError(tc.code, tc.message, "m5.large", "subnet-a")},
				&Order{CapacityType: "on-demand", Place: place}, map[string]string{"subnet-a": "z-a"})
			failures[0].Mark(s)
			var dry *cloud.NoCapacityError
			if err := launchFailure(failures); !errors.As(err, &dry) {
				t.Errorf("the launch fails with %v, want no capacity", err)
			}
			for _, p := range tc.out {
				if !s.Out(p) {
					t.Errorf("%v is not out", p)
				}
			}
			for _, p := range tc.not {
				if s.Out(p) {
					t.Errorf("%v is out", p)
				}
			}
		})
	}
}

func TestReservedFailureMarksNoPool(t *testing.T) {
	o := &Order{CapacityType: "reserved", Templates: []Template{
		{Name: "lt-1", Reservation: "cr-1", Overrides: []Override{{InstanceType: "m5.large", Zone: "z-b"}}},
		{Name: "lt-2", Reservation: "cr-2", Overrides: []Override{{InstanceType: "m5.large", Zone: "z-a"}}},
	}}
	errs := []ec2types.CreateFleetError{fleetError("ReservationCapacityExceeded", "x", "m5.large", "subnet-a"),
		fleetError("InvalidCapacityReservationState.Unavailable", "x", "m5.large", "subnet-a")}
	errs = append(errs, fleetError(noAddresses, "x", "m5.large", "subnet-a"))
	for i, f := range failuresOf(errs, o, map[string]string{"subnet-a": "z-a"}) {
		s := shortage.New()
		f.Mark(s)
		usedUp, marked := i == 0, i == 1 // a full one is known by its count, and without addresses it is the subnet that is out
		if f.Reservation != "cr-2" || !f.Out() || f.UsedUp() != usedUp || s.ReservationOut("cr-2") != marked {
			t.Errorf("%s is of reservation %q, used up: %v, marked: %v; want cr-2, %v, %v",
				f.Code, f.Reservation, f.UsedUp(), s.ReservationOut("cr-2"), usedUp, marked)
		}
		if s.ReservationOut("cr-1") || s.Out(shortage.Pool{CapacityType: "reserved", InstanceType: "m5.large", Zone: "z-a"}) {
			t.Errorf("%s marks another reservation or the pool", f.Code)
		}
	}
}

func TestLaunchedOf(t *testing.T) {
	o := &Order{Templates: []Template{{Name: "lt", Overrides: []Override{{InstanceType: "m5.large", Zone: "z-a", ImageID: "ami-1"}}}}}
	sets := []ec2types.CreateFleetInstance{
		{InstanceType: "m5.large", InstanceIds: []string{"i-2", "i-1"}, LaunchTemplateAndOverrides: &ec2types.LaunchTemplateAndOverridesResponse{
			Overrides: &ec2types.FleetLaunchTemplateOverrides{SubnetId: aws.String("subnet-a")}}},
		{InstanceType: "m5.large", InstanceIds: []string{"i-3"}}, // an answer that says next to nothing
	}
	want := []Launched{
		{"i-1", "m5.large", "z-a", "subnet-a", "ami-1", "lt"}, {"i-2", "m5.large", "z-a", "subnet-a", "ami-1", "lt"},
		{"i-3", "m5.large", "z-a", "", "ami-1", "lt"},
	}
	if d := cmp.Diff(want, launchedOf(sets, o, map[string]string{"subnet-a": "z-a"})); d != "" {
		t.Errorf("machines differ (-want +got):\n%s", d)
	}
}

func TestRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		order  Order
		target ec2types.DefaultTargetCapacityType
		spot   ec2types.SpotAllocationStrategy
		other  ec2types.FleetOnDemandAllocationStrategy
	}{
		"spot":                           {Order{CapacityType: "spot"}, "spot", "price-capacity-optimized", ""},
		"spot, by overlays' prices":      {Order{CapacityType: "spot", Prioritized: true}, "spot", "capacity-optimized-prioritized", ""},
		"on demand":                      {Order{CapacityType: "on-demand"}, "on-demand", "", "lowest-price"},
		"on demand, by overlays' prices": {Order{CapacityType: "on-demand", Prioritized: true}, "on-demand", "", "prioritized"},
		"reserved":                       {Order{CapacityType: "reserved"}, "on-demand", "", "lowest-price"},
		"with a context":                 {Order{CapacityType: "reserved", Context: "c"}, "on-demand", "", "lowest-price"},
	} {
		o := tc.order
		o.Tags = map[string]string{"b": "2", "a": "1"}
		o.Templates = []Template{{Name: "lt", Overrides: []Override{{InstanceType: "m5.large", Zone: "z-a", ImageID: "ami-1", Priority: 0.5}}}}
		in := Request(&o, 3, map[string]string{"z-a": "subnet-a"}, "token")
		if in.TargetCapacitySpecification.DefaultTargetCapacityType != tc.target || aws.ToInt32(in.TargetCapacitySpecification.TotalTargetCapacity) != 3 || in.Type != "instant" {
			t.Errorf("%s: type %s, target %+v", name, in.Type, in.TargetCapacitySpecification)
		}
		if (in.SpotOptions != nil) != (tc.spot != "") || in.SpotOptions != nil && in.SpotOptions.AllocationStrategy != tc.spot {
			t.Errorf("%s: spot options %+v, want %q", name, in.SpotOptions, tc.spot)
		}
		if (in.OnDemandOptions != nil) != (tc.other != "") || in.OnDemandOptions != nil && in.OnDemandOptions.AllocationStrategy != tc.other {
			t.Errorf("%s: on-demand options %+v, want %q", name, in.OnDemandOptions, tc.other)
		}
		if aws.ToString(in.Context) != o.Context || (in.Context == nil) != (o.Context == "") {
			t.Errorf("%s: context %v", name, in.Context)
		}
		var tagged []string
		for _, s := range in.TagSpecifications {
			tagged = append(tagged, fmt.Sprint(s.ResourceType, " ", aws.ToString(s.Tags[0].Key), aws.ToString(s.Tags[1].Key)))
		}
		if want := []string{"instance ab", "volume ab", "fleet ab"}; !slices.Equal(tagged, want) {
			t.Errorf("%s: tags on %q, want %q", name, tagged, want)
		}
		override := in.LaunchTemplateConfigs[0].Overrides[0]
		if aws.ToString(override.SubnetId) != "subnet-a" || aws.ToString(override.AvailabilityZone) != "z-a" || aws.ToString(override.ImageId) != "ami-1" || aws.ToFloat64(override.Priority) != 0.5 {
			t.Errorf("%s: override %+v", name, override)
		}
	}
}

func TestRequestNamesNoZoneWithoutSubnet(t *testing.T) {
	o := &Order{CapacityType: "on-demand", Prioritized: true, Templates: []Template{
		{Name: "lt-1", Overrides: []Override{{InstanceType: "m5.large", Zone: "z-a"}, {InstanceType: "m5.large", Zone: "z-b"}, {InstanceType: "m5.large", Zone: "z-a"}}},
		{Name: "lt-2", Overrides: []Override{{InstanceType: "c5.large", Zone: "z-b"}}},
	}}
	got := Request(o, 7, map[string]string{"z-a": "subnet-a"}, "token")
	if len(got.LaunchTemplateConfigs) != 1 || len(got.LaunchTemplateConfigs[0].Overrides) != 1 {
		t.Errorf("configurations = %+v, want one with one override", got.LaunchTemplateConfigs)
	}
	if *got.TargetCapacitySpecification.TotalTargetCapacity != 7 || got.OnDemandOptions.AllocationStrategy != "prioritized" {
		t.Errorf("capacity %d, strategy %s", *got.TargetCapacitySpecification.TotalTargetCapacity, got.OnDemandOptions.AllocationStrategy)
	}
	if Request(o, 1, nil, "token") != nil {
		t.Error("a call without any override is made")
	}
	if !slices.Equal(sorted(nil), nil) {
		t.Error("no overrides become some")
	}
}
