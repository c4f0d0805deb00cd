package class

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/ami"
	"karpenter.sh/karpenter/internal/aws/network"
	"karpenter.sh/karpenter/internal/aws/reservation"
)

// findings are what a class's selectors find.
type findings struct {
	tries
	images       []awsv1.AMI
	subnets      []awsv1.Subnet
	unfit        []string
	groups       []awsv1.SecurityGroup
	placement    *awsv1.PlacementGroup
	reservations []awsv1.CapacityReservation
	blocks       []string
	profile      string
	err          map[string]error // by what is looked for
}

func all() *findings {
	return &findings{
		images: []awsv1.AMI{{ID: "ami-1"}}, subnets: []awsv1.Subnet{{ID: "subnet-1", Zone: "a"}}, groups: []awsv1.SecurityGroup{{ID: "sg-1"}},
		profile: "profile", err: map[string]error{},
	}
}

func (f *findings) Subnets(context.Context, *awsv1.EC2NodeClass) (network.Subnets, error) {
	return network.Subnets{Usable: f.subnets, Unfit: f.unfit}, f.err["subnets"]
}

func (f *findings) SecurityGroups(context.Context, *awsv1.EC2NodeClass) ([]awsv1.SecurityGroup, error) {
	return f.groups, f.err["groups"]
}

func (f *findings) Ensure(context.Context, *awsv1.EC2NodeClass) (string, error) {
	return f.profile, f.err["profile"]
}

type imagesOf struct{ *findings }

func (f imagesOf) Find(context.Context, *awsv1.EC2NodeClass, string) ([]awsv1.AMI, error) {
	return f.images, f.err["images"]
}

type placementsOf struct{ *findings }

func (f placementsOf) Find(context.Context, *awsv1.PlacementGroupSelector) (*awsv1.PlacementGroup, error) {
	return f.placement, f.err["placement"]
}

type reservationsOf struct{ *findings }

func (f reservationsOf) Find(context.Context, *awsv1.EC2NodeClass, time.Time) (reservation.Found, error) {
	return reservation.Found{Usable: f.reservations, Others: f.blocks}, f.err["reservations"]
}

// newController looks at a class in an API server whose NodeClaims cannot be written if refuse is set.
func newController(t *testing.T, f *findings, nc *awsv1.EC2NodeClass, claims claimList, refuse error) *Controller {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{awsv1.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(nc).WithObjects(nc)
	for _, c := range claims {
		builder = builder.WithObjects(c)
	}
	kube := builder.WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*v1.NodeClaim); ok && refuse != nil {
				return refuse
			}
			return w.Patch(ctx, o, patch, opts...)
		},
	}).Build()
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(nc), nc); err != nil {
		t.Fatal(err)
	}
	return &Controller{
		Settings: Settings{Reservations: true, Version: func() string { return "1.36" }},
		Kube:     kube, Images: imagesOf{f}, Networks: f, Reservations: reservationsOf{f}, Groups: placementsOf{f}, Profiles: f, Claims: claims,
		Validator: NewValidator(Validator{NoDryRun: true, Cluster: validCluster}),
	}
}

func newClass(edit func(*awsv1.EC2NodeClass)) *awsv1.EC2NodeClass {
	nc := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "1", Generation: 1}}
	nc.Spec.Role = "role"
	nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}}
	edit(nc)
	return nc
}

// state writes the conditions that are not True, with their reasons.
func state(nc *awsv1.EC2NodeClass) []string {
	var out []string
	for _, c := range nc.Status.Conditions {
		if c.Status != metav1.ConditionTrue && c.Type != awsv1.ConditionTypeReady {
			out = append(out, c.Type+"="+string(c.Status)+" "+c.Reason)
		}
	}
	slices.Sort(out)
	return out
}

func TestReconcile(t *testing.T) {
	none := func(*findings) {}
	fail := func(what string, err error) func(*findings) { return func(f *findings) { f.err[what] = err } }
	now := time.Now()
	inGroup := func(nc *awsv1.EC2NodeClass) {
		nc.Spec.PlacementGroupSelector = &awsv1.PlacementGroupSelector{Name: "x"}
	}
	const waits = "ValidationSucceeded=False DependenciesNotReady"
	for name, tc := range map[string]struct {
		edit  func(*findings)
		class func(*awsv1.EC2NodeClass)
		want  []string
		again time.Duration
		fails bool
	}{
		"all is found": {edit: none, again: shortInterval},
		"no images":    {edit: func(f *findings) { f.images = nil }, want: []string{"AMIsReady=False AMINotFound", waits}, again: shortInterval},
		"an alias of a version that there is not": {edit: fail("images", &ami.NoAliasImagesError{}), want: []string{"AMIsReady=False AMINotFound", waits}, again: shortInterval},
		"images of the past":                      {edit: fail("images", &ami.UnsupportedAliasError{Message: "x"}), want: []string{"AMIsReady=False UnsupportedAlias", waits}, again: shortInterval},
		"no subnets":                              {edit: func(f *findings) { f.subnets = nil }, want: []string{"SubnetsReady=False SubnetsNotFound", waits}, again: shortInterval},
		"no groups":                               {edit: func(f *findings) { f.groups = nil }, want: []string{"SecurityGroupsReady=False SecurityGroupsNotFound", waits}, again: shortInterval},
		"a placement group":                       {edit: func(f *findings) { f.placement = &awsv1.PlacementGroup{ID: "pg-1", Name: "x"} }, class: inGroup, again: shortInterval},
		"a placement group that there is not": {edit: none, class: inGroup,
			want: []string{"PlacementGroupReady=False PlacementGroupNotFound"}, again: shortInterval},
		"a placement group that may not be looked up": {edit: fail("placement", refused("UnauthorizedOperation", "")), class: inGroup,
			want: []string{"PlacementGroupReady=False PlacementGroupResolutionFailed"}, again: shortInterval, fails: true},
		"nothing can be looked up, and all is tried": {edit: func(f *findings) {
			for _, what := range []string{"images", "subnets", "groups", "profile", "reservations"} {
				f.err[what] = errors.New("no")
			}
		}, want: []string{
			"AMIsReady=Unknown LookupFailed", "CapacityReservationsReady=Unknown LookupFailed", "InstanceProfileReady=Unknown LookupFailed",
			"SecurityGroupsReady=Unknown LookupFailed", "SubnetsReady=Unknown LookupFailed", "ValidationSucceeded=Unknown DependenciesNotReady",
		}, again: validateAgain, fails: true},
		"AWS is slow, and nothing is said": {edit: fail("subnets", refused("RequestLimitExceeded", "")),
			want: []string{"SubnetsReady=Unknown AwaitingReconciliation", "ValidationSucceeded=Unknown DependenciesNotReady"}, again: shortInterval, fails: true},
		"a reservation that ends soon": {edit: func(f *findings) {
			f.reservations = []awsv1.CapacityReservation{{ID: "cr-1", EndTime: &metav1.Time{Time: now.Add(-time.Minute)}}}
		}, again: time.Second},
		"a reservation that ends much later": {edit: func(f *findings) {
			f.reservations = []awsv1.CapacityReservation{{ID: "cr-1", EndTime: &metav1.Time{Time: now.Add(time.Hour)}}}
		}, again: shortInterval},
		"a kubelet field that nobody knows": {edit: none, class: func(nc *awsv1.EC2NodeClass) { nc.Spec.Kubelet = &awsv1.KubeletConfiguration{Raw: []byte(`{"nope":1}`)} },
			want: []string{"ValidationSucceeded=False InvalidKubeletConfiguration"}, again: shortInterval},
	} {
		t.Run(name, func(t *testing.T) {
			f := all()
			tc.edit(f)
			nc := newClass(func(nc *awsv1.EC2NodeClass) {
				if tc.class != nil {
					tc.class(nc)
				}
			})
			c := newController(t, f, nc, nil, nil)
			again, err := c.Reconcile(t.Context(), nc)
			if again != tc.again || (err != nil) != tc.fails {
				t.Errorf("again in %v, %v; want %v, an error: %v", again, err, tc.again, tc.fails)
			}
			got := &awsv1.EC2NodeClass{}
			if err := c.Kube.Get(t.Context(), client.ObjectKeyFromObject(nc), got); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(state(got), tc.want) || condition.IsTrue(got, awsv1.ConditionTypeReady) != (len(tc.want) == 0) {
				t.Errorf("conditions %q, want %q", state(got), tc.want)
			}
			if !slices.Contains(got.Finalizers, awsv1.TerminationFinalizer) || got.Annotations[awsv1.AnnotationNodeClassHash] == "" {
				t.Errorf("finalizers %v, annotations %v", got.Finalizers, got.Annotations)
			}
			if len(nc.Finalizers) > 0 || len(nc.Status.Conditions) > 0 {
				t.Error("the object that was handed in was changed")
			}
		})
	}
}

// What was found of a placement group stays while it cannot be looked up, and never outlives its selector.
func TestThePlacementGroupOfAClass(t *testing.T) {
	one, two := &awsv1.PlacementGroup{ID: "pg-1", Name: "one"}, &awsv1.PlacementGroup{ID: "pg-2", Name: "two"}
	by := func(name string) *awsv1.PlacementGroupSelector { return &awsv1.PlacementGroupSelector{Name: name} }
	for name, tc := range map[string]struct {
		selector *awsv1.PlacementGroupSelector
		had      *awsv1.PlacementGroup
		found    *awsv1.PlacementGroup
		err      error
		want     *awsv1.PlacementGroup
	}{
		"is found":                                 {by("one"), nil, one, nil, one},
		"is another, made under the same name":     {by("one"), &awsv1.PlacementGroup{ID: "pg-9", Name: "one"}, one, nil, one},
		"goes with its selector":                   {nil, one, one, nil, nil},
		"goes when it is no more":                  {by("one"), one, nil, nil, nil},
		"stays while EC2 is broken":                {by("one"), one, nil, errors.New("no"), one},
		"stays while the right to look is lacking": {by("one"), one, nil, refused("UnauthorizedOperation", ""), one},
		"of another selector does not stay":        {by("two"), one, nil, errors.New("no"), nil},
		"of another selector is replaced":          {by("two"), one, two, nil, two},
	} {
		t.Run(name, func(t *testing.T) {
			f := all()
			f.placement, f.err["placement"] = tc.found, tc.err
			nc := newClass(func(nc *awsv1.EC2NodeClass) {
				nc.Spec.PlacementGroupSelector, nc.Status.PlacementGroup = tc.selector, tc.had
			})
			c := newController(t, f, nc, nil, nil)
			if _, err := c.Reconcile(t.Context(), nc); (err != nil) != (tc.err != nil) {
				t.Error(err)
			}
			got := &awsv1.EC2NodeClass{}
			if err := c.Kube.Get(t.Context(), client.ObjectKeyFromObject(nc), got); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got.Status.PlacementGroup); d != "" {
				t.Errorf("the class's group differs (-want +got):\n%s", d)
			}
		})
	}
}

// Tools know by these words, and by the order of the conditions in Ready's, what a class lacks.
func TestWordsThatToolsKnow(t *testing.T) {
	for name, tc := range map[string]struct {
		edit                func(*findings)
		of, begins, summary string
	}{
		"no images": {func(f *findings) { f.images = nil }, awsv1.ConditionTypeAMIsReady,
			"AMISelector did not match any AMIs: spec.amiSelectorTerms is [", "ValidationSucceeded=False, AMIsReady=False"},
		"an alias without images": {func(f *findings) { f.err["images"] = &ami.NoAliasImagesError{Kubernetes: "1.36"} }, awsv1.ConditionTypeAMIsReady,
			"AMISelector did not match any AMIs: there are no ", "ValidationSucceeded=False, AMIsReady=False"},
		"no subnets with IPv6": {func(f *findings) { f.subnets, f.unfit = nil, []string{"subnet-4"} }, awsv1.ConditionTypeSubnetsReady,
			"SubnetSelector did not match any Subnets that can be used: the cluster's pods have IPv6 addresses", "ValidationSucceeded=False, SubnetsReady=False"},
		"no subnets": {func(f *findings) { f.subnets = nil }, awsv1.ConditionTypeSubnetsReady,
			"SubnetSelector did not match any Subnets: spec.subnetSelectorTerms is [", "ValidationSucceeded=False, SubnetsReady=False"},
		"no groups": {func(f *findings) { f.groups = nil }, awsv1.ConditionTypeSecurityGroupsReady,
			"SecurityGroupSelector did not match any SecurityGroups: spec.securityGroupSelectorTerms is [", "ValidationSucceeded=False, SecurityGroupsReady=False"},
		"neither": {func(f *findings) { f.subnets, f.groups = nil, nil }, awsv1.ConditionTypeSecurityGroupsReady,
			"SecurityGroupSelector did not match any SecurityGroups", "ValidationSucceeded=False, SecurityGroupsReady=False, SubnetsReady=False"},
	} {
		t.Run(name, func(t *testing.T) {
			f := all()
			tc.edit(f)
			nc := newClass(func(nc *awsv1.EC2NodeClass) {
				nc.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{ID: "subnet-0"}}
				nc.Spec.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{ID: "sg-0"}}
				nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{ID: "ami-0"}}
			})
			c := newController(t, f, nc, nil, nil)
			_, _ = c.Reconcile(t.Context(), nc)
			got := &awsv1.EC2NodeClass{}
			if err := c.Kube.Get(t.Context(), client.ObjectKeyFromObject(nc), got); err != nil {
				t.Fatal(err)
			}
			if is := condition.Get(got, tc.of); !strings.HasPrefix(is.Message, tc.begins) {
				t.Errorf("%s says %q, want %q first", tc.of, is.Message, tc.begins)
			}
			if is := condition.Get(got, awsv1.ConditionTypeReady); is.Message != tc.summary {
				t.Errorf("Ready says %q, want %q", is.Message, tc.summary)
			}
		})
	}
}

// A class that selects a capacity block is told that it is not used, and is good without.
func TestReservationsThatCannotBeUsedAreNamed(t *testing.T) {
	f := all()
	f.blocks = []string{"cr-7 (capacity-block)"}
	nc := newClass(func(*awsv1.EC2NodeClass) {})
	c := newController(t, f, nc, nil, nil)
	if _, err := c.Reconcile(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	got := &awsv1.EC2NodeClass{}
	if err := c.Kube.Get(t.Context(), client.ObjectKeyFromObject(nc), got); err != nil {
		t.Fatal(err)
	}
	said := condition.Get(got, awsv1.ConditionTypeCapacityReservationsReady)
	if said.Status != metav1.ConditionTrue || !strings.Contains(said.Message, "not used") || !strings.Contains(said.Message, "cr-7 (capacity-block)") {
		t.Errorf("the condition says %+v, want the reservation that is not used", said)
	}
}

// What was found stays while it cannot be looked up, and goes when nothing is found.
func TestWhatWasFoundBefore(t *testing.T) {
	f := all()
	c := newController(t, f, newClass(func(*awsv1.EC2NodeClass) {}), nil, nil)
	look := func() *awsv1.EC2NodeClass {
		t.Helper()
		nc := &awsv1.EC2NodeClass{}
		for range 2 {
			if err := c.Kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc); err != nil {
				t.Fatal(err)
			}
			_, _ = c.Reconcile(t.Context(), nc)
		}
		return nc
	}
	look()
	f.err["subnets"], f.err["images"], f.subnets, f.images = errors.New("no"), errors.New("no"), nil, nil
	if nc := look(); len(nc.Status.Subnets) != 1 || len(nc.Status.AMIs) != 1 || !condition.IsTrue(nc, awsv1.ConditionTypeReady) {
		t.Errorf("while nothing can be looked up the status is %+v", nc.Status)
	}
	delete(f.err, "subnets")
	delete(f.err, "images")
	if nc := look(); len(nc.Status.Subnets) != 0 || len(nc.Status.AMIs) != 0 || !condition.IsFalse(nc, awsv1.ConditionTypeReady) {
		t.Errorf("when nothing is found the status is %+v", nc.Status)
	}
}

// A cluster that is upgraded before there are images for it goes on with those that it has, and says so.
func TestImagesThatAreNoMoreAreUsed(t *testing.T) {
	f := all()
	c := newController(t, f, newClass(func(*awsv1.EC2NodeClass) {}), nil, nil)
	var told []string
	c.Settings.Unready = func(_ *awsv1.EC2NodeClass, is metav1.Condition) { told = append(told, is.Type+" "+is.Reason) }
	look := func() *awsv1.EC2NodeClass {
		t.Helper()
		nc := &awsv1.EC2NodeClass{}
		for range 2 {
			if err := c.Kube.Get(t.Context(), client.ObjectKey{Name: "default"}, nc); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Reconcile(t.Context(), nc); err != nil {
				t.Fatal(err)
			}
		}
		return nc
	}
	look()
	f.err["images"] = &ami.NoAliasImagesError{Alias: awsv1.Alias{Family: awsv1.AMIFamilyAL2023, Version: "latest"}, Kubernetes: "1.37"}
	look()
	nc := look()
	said := condition.Get(nc, awsv1.ConditionTypeAMIsReady)
	if len(nc.Status.AMIs) != 1 || !condition.IsTrue(nc, awsv1.ConditionTypeReady) || said.Reason != awsv1.ReasonFormerAMIs || !strings.Contains(said.Message, "AL2023 images of version latest for Kubernetes 1.37") {
		t.Errorf("images %v, condition %+v", nc.Status.AMIs, said)
	}
	if want := []string{"AMIsReady FormerAMIs"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q once", told, want)
	}
	nc.Generation++
	nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@v20000101"}}
	if err := c.Kube.Update(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	if nc := look(); len(nc.Status.AMIs) != 0 || condition.Get(nc, awsv1.ConditionTypeAMIsReady).Reason != awsv1.ReasonAMINotFound {
		t.Errorf("another alias that there is not: images %v, conditions %q", nc.Status.AMIs, state(nc))
	}
}

// The claims of a class follow another version of its hash before the class does; one that cannot be written keeps the class's
// hash from changing, and nothing else.
func TestAnotherVersionOfTheHash(t *testing.T) {
	for name, tc := range map[string]struct {
		refuse error
		moved  bool
	}{
		"all can be written":          {nil, true},
		"the claim cannot be written": {errors.New("a webhook says no"), false},
	} {
		t.Run(name, func(t *testing.T) {
			old := map[string]string{awsv1.AnnotationNodeClassHash: "1", awsv1.AnnotationNodeClassHashVersion: "v6"}
			claim := claimOf(awsv1.Group, "default", 1)
			claim.Annotations = old
			nc := newClass(func(nc *awsv1.EC2NodeClass) { nc.Annotations = old })
			c := newController(t, all(), nc, claimList{claim}, tc.refuse)
			if _, err := c.Reconcile(t.Context(), nc); (err != nil) == tc.moved {
				t.Errorf("error = %v", err)
			}
			got, mine := &awsv1.EC2NodeClass{}, &v1.NodeClaim{}
			if err := errors.Join(c.Kube.Get(t.Context(), client.ObjectKeyFromObject(nc), got), c.Kube.Get(t.Context(), client.ObjectKeyFromObject(claim), mine)); err != nil {
				t.Fatal(err)
			}
			for what, of := range map[string]map[string]string{"class": got.Annotations, "claim": mine.Annotations} {
				if moved := of[awsv1.AnnotationNodeClassHashVersion] != "v6" && of[awsv1.AnnotationNodeClassHash] != "1"; moved != tc.moved {
					t.Errorf("annotations of the %s: %v, want new ones: %v", what, of, tc.moved)
				}
			}
			if got.Annotations[awsv1.AnnotationNodeClassHash] != mine.Annotations[awsv1.AnnotationNodeClassHash] {
				t.Error("the claim has drifted")
			}
			if !condition.IsTrue(got, awsv1.ConditionTypeReady) {
				t.Errorf("the class is not ready: %+v", got.Status.Conditions)
			}
		})
	}
}

// A class remembers the images that it found, those in use first, each for the family that it had then, and not without bound.
func TestAClassRemembersItsImages(t *testing.T) {
	image := func(id string) awsv1.AMI { return awsv1.AMI{ID: id, Requirements: nil} }
	var got []awsv1.RecentAMI
	say := func() (out string) {
		for _, r := range got {
			out += r.ID + "/" + r.Family + " "
		}
		return out
	}
	for _, step := range []struct {
		found  []awsv1.AMI
		family string
		want   string
	}{
		{[]awsv1.AMI{image("a1"), image("a2")}, "AL2023", "a1/AL2023 a2/AL2023 "},
		{[]awsv1.AMI{image("a1"), image("a2")}, "AL2023", "a1/AL2023 a2/AL2023 "},
		{[]awsv1.AMI{image("b1")}, "AL2023", "b1/AL2023 a1/AL2023 a2/AL2023 "},
		{nil, "AL2023", "b1/AL2023 a1/AL2023 a2/AL2023 "},
		{[]awsv1.AMI{image("a2")}, "AL2023", "a2/AL2023 b1/AL2023 a1/AL2023 "},
		{[]awsv1.AMI{image("a2")}, "Custom", "a2/Custom a2/AL2023 b1/AL2023 a1/AL2023 "},
	} {
		if got = recent(got, step.found, step.family); say() != step.want {
			t.Errorf("%v: %s, want %s", step.found, say(), step.want)
		}
	}
	for n := range 2 * awsv1.MaxRecentAMIs {
		got = recent(got, []awsv1.AMI{image(strconv.Itoa(n))}, "AL2023")
	}
	if len(got) != awsv1.MaxRecentAMIs || got[0].ID != strconv.Itoa(2*awsv1.MaxRecentAMIs-1) {
		t.Errorf("%d are remembered, %s first", len(got), got[0].ID)
	}
}
