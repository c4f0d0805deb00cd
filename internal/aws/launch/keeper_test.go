package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
)

// templates is an EC2 with launch templates.
type templates struct {
	mu      sync.Mutex
	names   []string
	creates int
	slow    time.Duration
	refuse  error
	wrong   error // that creating ends with
	hidden  bool  // they may not be listed
}

func (e *templates) CreateLaunchTemplate(_ context.Context, in *ec2.CreateLaunchTemplateInput, _ ...func(*ec2.Options)) (*ec2.CreateLaunchTemplateOutput, error) {
	time.Sleep(e.slow)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.creates++
	if e.wrong != nil {
		return nil, e.wrong
	}
	name := aws.ToString(in.LaunchTemplateName)
	if slices.Contains(e.names, name) {
		return nil, &smithy.GenericAPIError{Code: "InvalidLaunchTemplateName.AlreadyExistsException"}
	}
	e.names = append(e.names, name)
	return &ec2.CreateLaunchTemplateOutput{}, nil
}

func (e *templates) DeleteLaunchTemplate(_ context.Context, in *ec2.DeleteLaunchTemplateInput, _ ...func(*ec2.Options)) (*ec2.DeleteLaunchTemplateOutput, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse != nil {
		return nil, e.refuse
	}
	e.names = slices.DeleteFunc(e.names, func(n string) bool { return n == aws.ToString(in.LaunchTemplateName) })
	return &ec2.DeleteLaunchTemplateOutput{}, nil
}

func (e *templates) DescribeLaunchTemplates(context.Context, *ec2.DescribeLaunchTemplatesInput, ...func(*ec2.Options)) (*ec2.DescribeLaunchTemplatesOutput, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hidden {
		return nil, &smithy.GenericAPIError{Code: "UnauthorizedOperation"}
	}
	out := &ec2.DescribeLaunchTemplatesOutput{}
	for _, n := range e.names {
		out.LaunchTemplates = append(out.LaunchTemplates, ec2types.LaunchTemplate{LaunchTemplateName: aws.String(n)})
	}
	return out, nil
}

// let makes EC2 refuse to delete with an error, or not if it is nil.
func (e *templates) let(refuse error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse = refuse
}

// show lets templates be listed.
func (e *templates) show() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hidden = false
}

func (e *templates) there() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.names)
}

func template(image string) *Template {
	return &Template{Class: &awsv1.EC2NodeClass{}, Family: awsv1.AMIFamilyAL2023, ImageID: image}
}

func TestOneTemplateIsMadeForAllWhoNeedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &templates{slow: time.Second}
		k := NewKeeper(e, "demo", nil)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := k.Ensure(t.Context(), template("ami-1")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if e.creates != 1 {
			t.Errorf("ten launches made %d calls, want one", e.creates)
		}
		k.Forget(template("ami-1").Name())
		if _, err := k.Ensure(t.Context(), template("ami-1")); err != nil {
			t.Errorf("a template that EC2 still has is an error: %v", err)
		}
	})
}

func TestTemplatesLiveWhileTheyAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &templates{names: []string{"left by another controller"}}
		k := NewKeeper(e, "demo", nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go k.Run(ctx, nil)
		for i := range 4 {
			if _, err := k.Ensure(ctx, template("ami-1")); err != nil {
				t.Fatal(err)
			}
			if i == 3 {
				e.let(errors.New("throttled"))
			}
			time.Sleep(30 * time.Second)
		}
		if want := []string{template("ami-1").Name()}; !slices.Equal(e.there(), want) {
			t.Errorf("templates = %v, want the one in use", e.there())
		}
		time.Sleep(30 * time.Second)
		e.let(nil)
		time.Sleep(time.Minute)
		if len(e.there()) > 0 {
			t.Errorf("templates = %v are left although nobody uses them", e.there())
		}
	})
}

// A controller that may not list templates still deletes its own, and those of its predecessor once it may.
func TestTemplatesAreDeletedThoughTheyCannotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &templates{names: []string{"left by another controller"}, hidden: true}
		k := NewKeeper(e, "demo", nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go k.Run(ctx, nil)
		if _, err := k.Ensure(ctx, template("ami-1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if want := []string{"left by another controller"}; !slices.Equal(e.there(), want) {
			t.Errorf("templates = %v, want only %v", e.there(), want)
		}
		e.show()
		time.Sleep(2 * time.Minute)
		if len(e.there()) > 0 {
			t.Errorf("templates = %v are left", e.there())
		}
	})
}

// A template that cannot be made is an error for all who wait for it, and is tried again by the next; one who waits may leave.
func TestTemplatesThatCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &templates{slow: time.Second, wrong: &smithy.GenericAPIError{Code: "UnauthorizedOperation"}}
		k := NewKeeper(e, "demo", func(*Template) { t.Error("a template counts as made") })
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := k.Ensure(t.Context(), template("ami-1")); ec2api.Code(err) != "UnauthorizedOperation" {
					t.Errorf("error = %v", err)
				}
			})
		}
		hasty, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		wg.Go(func() {
			time.Sleep(time.Microsecond)
			if _, err := k.Ensure(hasty, template("ami-1")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who cannot wait gets %v", err)
			}
		})
		wg.Wait()
		if _, err := k.Ensure(t.Context(), template("ami-1")); err == nil || e.creates != 2 {
			t.Errorf("error = %v after %d calls, want two", err, e.creates)
		}
	})
}

func TestDeleteForDeletesAllThatItCan(t *testing.T) {
	e := &templates{names: []string{"a", "b"}}
	k := NewKeeper(e, "demo", nil)
	e.let(errors.New("no"))
	if err := k.DeleteFor(t.Context(), "default"); err == nil {
		t.Error("templates that stay are no error")
	}
	e.let(&smithy.GenericAPIError{Code: "InvalidLaunchTemplateName.NotFoundException"})
	if err := k.DeleteFor(t.Context(), "default"); err != nil {
		t.Errorf("templates that are gone are an error: %v", err)
	}
	e.let(nil)
	if err := k.DeleteFor(t.Context(), "default"); err != nil || len(e.there()) > 0 {
		t.Errorf("templates %v are left, %v", e.there(), err)
	}
}

func TestNameFollowsWhatTheTemplateSays(t *testing.T) {
	base := template("ami-1").Name()
	seen := map[string]string{base: "nothing"}
	for what, edit := range map[string]func(*Template){
		"the image":       func(t *Template) { t.ImageID = "ami-2" },
		"user data":       func(t *Template) { t.UserData = "x" },
		"tenancy":         func(t *Template) { t.Tenancy = "dedicated" },
		"capacity type":   func(t *Template) { t.CapacityType = "spot" },
		"tags":            func(t *Template) { t.Tags = map[string]string{"a": "b"} },
		"EFA":             func(t *Template) { t.EFA = 2 },
		"enclave":         func(t *Template) { t.Enclave = true },
		"reservation":     func(t *Template) { t.Reservations, t.ReservationID = true, "cr-1" },
		"no reservations": func(t *Template) { t.Reservations = true },
		"profile":         func(t *Template) { t.Class.Status.InstanceProfile = "p" },
	} {
		one := template("ami-1")
		edit(one)
		if other, ok := seen[one.Name()]; ok {
			t.Errorf("changing %s gives the name of %s", what, other)
		}
		seen[one.Name()] = what
	}
	if template("ami-1").Name() != base {
		t.Error("equal templates have different names")
	}
}

func TestMetadataIPv6IsLeftOutWhereItIsUnknown(t *testing.T) {
	one := template("ami-1")
	one.Class.Spec.MetadataOptions = &awsv1.MetadataOptions{HTTPProtocolIPv6: aws.String("disabled")}
	for region, want := range map[string]string{"us-east-1": "disabled", "us-iso-east-1": ""} {
		one.Region = region
		if got := one.Request().LaunchTemplateData.MetadataOptions.HttpProtocolIpv6; string(got) != want {
			t.Errorf("%s: protocol %q, want %q", region, got, want)
		}
	}
	if aws.ToString(one.Class.Spec.MetadataOptions.HTTPProtocolIPv6) != "disabled" {
		t.Error("the class was changed")
	}
}

func TestIPv6Interfaces(t *testing.T) {
	one := template("ami-1")
	one.IPv6 = true
	n := int32(0)
	one.Class.Spec.IPPrefixCount = &n
	nic := one.Request().LaunchTemplateData.NetworkInterfaces[0]
	if fmt.Sprint(aws.ToInt32(nic.Ipv6PrefixCount), aws.ToBool(nic.PrimaryIpv6), aws.ToInt32(nic.Ipv6AddressCount), nic.Ipv4PrefixCount == nil) != "0 true 1 true" {
		t.Errorf("interface = %+v", nic)
	}
}
