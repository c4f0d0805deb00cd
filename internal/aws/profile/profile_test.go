package profile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// A world is a keeper over the model's IAM.
type world struct {
	*Keeper
	aws *awsmodel.Cloud
}

func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		c, err := awsmodel.New(awsmodel.Config{Cluster: awsmodel.Cluster{Name: "demo"}, Types: []string{"m5.large"}})
		if err != nil {
			t.Fatal(err)
		}
		c.AddRole("one")
		c.AddRole("two")
		w := &world{aws: c}
		w.restart()
		test(t, w)
	})
}

// restart is a new controller that remembers nothing.
func (w *world) restart() {
	serial := len(w.aws.Log())
	w.Keeper = NewKeeper(iam.NewFromConfig(w.aws.AWSConfig()), "us-east-1", "demo", func() string {
		serial++
		return fmt.Sprint(serial)
	})
}

// profiles are the names of IAM's profiles, with their roles.
func (w *world) profiles() (out []string) {
	for _, p := range w.aws.Profiles() {
		out = append(out, p.Name+"="+p.Role)
	}
	slices.Sort(out)
	return out
}

func class(name, role string) *awsv1.EC2NodeClass {
	return &awsv1.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec:       awsv1.EC2NodeClassSpec{Role: role, Tags: map[string]string{"team": "x"}},
	}
}

// ensure does what the class's controller does.
func (w *world) ensure(t *testing.T, nc *awsv1.EC2NodeClass) string {
	t.Helper()
	name, err := w.Ensure(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	nc.Status.InstanceProfile = name
	return name
}

func TestAProfileIsMadeOnceWithPathAndTags(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		nc := class("default", "one")
		name := w.ensure(t, nc)
		calls := len(w.aws.Log())
		for range 3 {
			if again := w.ensure(t, nc); again != name {
				t.Errorf("profile %s, then %s", name, again)
			}
		}
		if n := len(w.aws.Log()); n != calls {
			t.Errorf("%d calls for what is known", n-calls)
		}
		got := w.aws.Profiles()
		if len(got) != 1 || got[0].Path != "/karpenter/us-east-1/demo/uid-default/" || got[0].Role != "one" {
			t.Fatalf("profiles = %+v", got)
		}
		for key, want := range map[string]string{
			"team": "x", "kubernetes.io/cluster/demo": "owned", "eks:eks-cluster-name": "demo", "karpenter.k8s.aws/ec2nodeclass": "default",
			"topology.kubernetes.io/region": "us-east-1",
		} {
			if got[0].Tags[key] != want {
				t.Errorf("tag %s = %q, want %q", key, got[0].Tags[key], want)
			}
		}
	})
}

func TestALostStatusMakesNoSecondProfile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		nc := class("default", "one")
		first := w.ensure(t, nc)
		nc.Status.InstanceProfile = "" // the write of the status was lost
		if second := w.ensure(t, nc); second != first {
			t.Errorf("profile %s, then %s", first, second)
		}
	})
}

func TestWhatAClassHasIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		role string // as the class says it later
		keep bool
	}{
		"the same role":                    {"one", true},
		"the same role, now with its path": {"service-role/one", true},
		"another role":                     {"two", false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				nc := class("default", "one")
				first := w.ensure(t, nc)
				time.Sleep(2 * knownLife)
				w.restart()
				nc.Spec.Role = tc.role
				second := w.ensure(t, nc)
				if (second == first) != tc.keep {
					t.Errorf("profile %s, then %s", first, second)
				}
				if want := map[bool]int{true: 1, false: 2}[tc.keep]; len(w.profiles()) != want {
					t.Errorf("profiles = %q, want %d: machines that run need the old one", w.profiles(), want)
				}
			})
		})
	}
}

func TestAProfileThatSomebodyDeletedIsMadeAnew(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		nc := class("default", "one")
		first := w.ensure(t, nc)
		if err := w.Delete(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * recentLife)
		if second := w.ensure(t, nc); second == first || len(w.profiles()) != 1 {
			t.Errorf("profile %s, then %s of %q", first, second, w.profiles())
		}
	})
}

func TestClassesWithOneRoleHaveProfilesOfTheirOwn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if a, b := w.ensure(t, class("a", "one")), w.ensure(t, class("b", "one")); a == b {
			t.Errorf("both have %s", a)
		}
	})
}

func TestTheUsersOwnProfileIsNeverTouched(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		nc := class("default", "")
		nc.Spec.InstanceProfile = new(string)
		*nc.Spec.InstanceProfile = "mine"
		if name := w.ensure(t, nc); name != "mine" || len(w.aws.Log()) > 0 {
			t.Errorf("profile %s after %d calls, want mine after none", name, len(w.aws.Log()))
		}
	})
}

func TestARoleThatDoesNotExistIsAskedForOnceAMinute(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		nc := class("default", "three")
		creates := func() int { return w.aws.Calls()["iam:CreateInstanceProfile"] }
		for range 5 {
			if _, err := w.Ensure(t.Context(), nc); err == nil || !strings.Contains(err.Error(), "three") {
				t.Fatalf("error = %v, want one that names the role", err)
			}
		}
		if creates() != 1 || len(w.profiles()) > 0 {
			t.Errorf("%d creations, %q left", creates(), w.profiles())
		}
		w.aws.AddRole("three")
		time.Sleep(noRoleLife + time.Second)
		w.ensure(t, nc)
	})
}

// Classes with roles that do not exist, and classes that come and go, are not remembered for ever.
func TestWhatHasRunOutIsForgotten(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 5 {
			if _, err := w.Ensure(t.Context(), class(fmt.Sprint("lost-", i), fmt.Sprint("lost-", i))); err == nil {
				t.Error("a role that does not exist is no error")
			}
			w.ensure(t, class(fmt.Sprint("class-", i), "one"))
			time.Sleep(knownLife + time.Second)
		}
		if left := len(w.noRole.Sweep()) + len(w.recent.Sweep()) + len(w.roles.Sweep()); left > 3 {
			t.Errorf("%d things are remembered that have run out, want one of each kind at most", left)
		}
	})
}

// hidden is an IAM that does not show yet what was made.
type hidden struct{ api }

func (hidden) AddRoleToInstanceProfile(context.Context, *iam.AddRoleToInstanceProfileInput, ...func(*iam.Options)) (*iam.AddRoleToInstanceProfileOutput, error) {
	return nil, &smithy.GenericAPIError{Code: "NoSuchEntity", Message: "Instance Profile demo_1_role cannot be found."}
}

func TestAProfileThatIsNotShownYetIsNoMissingRole(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		iam := w.api
		w.api = hidden{iam}
		var noRole *NoRoleError
		if _, err := w.Ensure(t.Context(), class("default", "one")); err == nil || errors.As(err, &noRole) {
			t.Errorf("error = %v, want one that blames no role", err)
		}
		w.api = iam
		w.ensure(t, class("default", "one"))
		if got := w.profiles(); len(got) != 1 {
			t.Errorf("profiles = %q, want one", got)
		}
		if _, err := w.Ensure(t.Context(), class("default", "two/three")); !errors.As(err, &noRole) || noRole.Role != "three" {
			t.Errorf("error = %v, want that there is no role three", err)
		}
	})
}

// slow is an IAM that takes an hour to make a profile.
type slow struct{ api }

func (s slow) CreateInstanceProfile(ctx context.Context, in *iam.CreateInstanceProfileInput, f ...func(*iam.Options)) (*iam.CreateInstanceProfileOutput, error) {
	time.Sleep(time.Hour)
	return s.api.CreateInstanceProfile(ctx, in, f...)
}

func TestWhatIsKnownWaitsForNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		known := class("known", "one")
		first := w.ensure(t, known)
		w.api = slow{w.api}
		made := make(chan error)
		go func() { _, err := w.Ensure(t.Context(), class("new", "one")); made <- err }()
		time.Sleep(2 * recentLife)
		begun := time.Now()
		if name := w.ensure(t, known); name != first || time.Since(begun) > 0 {
			t.Errorf("profile %s after %v, want %s at once", name, time.Since(begun), first)
		}
		if err := <-made; err != nil {
			t.Error(err)
		}
	})
}

func TestCollect(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		nc := class("default", "one")
		old := w.ensure(t, nc)
		nc.Spec.Role = "two"
		used := w.ensure(t, nc)
		foreign := "foreign"
		if _, err := w.api.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: &foreign}); err != nil {
			t.Fatal(err)
		}
		collect := func(used ...string) {
			t.Helper()
			in := map[string]bool{}
			for _, name := range used {
				in[name] = true
			}
			if err := w.Collect(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		}
		collect(used)
		if len(w.profiles()) != 3 {
			t.Errorf("profiles = %q: the one before the last is protected for an hour", w.profiles())
		}
		time.Sleep(protectedLife + time.Second)
		collect(used, old)
		if len(w.profiles()) != 3 {
			t.Errorf("profiles = %q: a machine uses the old one", w.profiles())
		}
		collect(used)
		if want := []string{used + "=two", "foreign="}; !slices.Equal(w.profiles(), want) {
			t.Errorf("profiles = %q, want %q", w.profiles(), want)
		}
	})
}

func TestDeleteForRemovesAllOfAClassAndNoOther(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		nc, other := class("default", "one"), class("other", "one")
		w.ensure(t, nc)
		nc.Spec.Role = "two"
		w.ensure(t, nc)
		kept := w.ensure(t, other)
		old, role := w.legacyName("default"), "one"
		if _, err := w.api.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: &old}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.api.AddRoleToInstanceProfile(t.Context(), &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &old, RoleName: &role}); err != nil {
			t.Fatal(err)
		}
		for range 2 { // what is gone is no error
			if err := w.DeleteFor(t.Context(), nc); err != nil {
				t.Fatal(err)
			}
		}
		if want := []string{kept + "=one"}; !slices.Equal(w.profiles(), want) {
			t.Errorf("profiles = %q, want %q", w.profiles(), want)
		}
	})
}
