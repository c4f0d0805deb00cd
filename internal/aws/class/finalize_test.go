package class

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// leavings is what a class has left in AWS.
type leavings struct {
	tries
	profiles, templates error // that deleting them ends with
	deleted             []string
}

func (l *leavings) DeleteFor(_ context.Context, nc *awsv1.EC2NodeClass) error {
	l.deleted = append(l.deleted, "profiles of "+nc.Name)
	return l.profiles
}

type templatesOf struct{ *leavings }

func (l templatesOf) DeleteFor(_ context.Context, class string) error {
	l.deleted = append(l.deleted, "templates of "+class)
	return l.templates
}

type claimList []*v1.NodeClaim

func (l claimList) All() []*v1.NodeClaim { return l }

func claimOf(group, class string, n int) *v1.NodeClaim {
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%d", n)}}
	c.Spec.NodeClassRef = &v1.NodeClassReference{Group: group, Kind: "EC2NodeClass", Name: class}
	return c
}

func TestTheEndOfAClass(t *testing.T) {
	none := func(*awsv1.EC2NodeClass) {}
	own := func(nc *awsv1.EC2NodeClass) { nc.Spec.Role, nc.Spec.InstanceProfile = "", new(string) }
	all := []string{"profiles of default", "templates of default"}
	var users claimList
	for i := range 7 {
		users = append(users, claimOf(awsv1.Group, "default", i))
	}
	for name, tc := range map[string]struct {
		edit     func(*awsv1.EC2NodeClass)
		isolated bool
		aws      leavings
		claims   claimList
		deleted  []string
		waits    string
		gone     bool
		fails    bool
	}{
		"nothing uses it":                        {edit: none, deleted: all, gone: true},
		"claims use it":                          {edit: none, claims: users, waits: "waiting for NodeClaims to terminate: claim-0, claim-1, claim-2, claim-3, claim-4 and 2 other(s)"},
		"one claim uses it":                      {edit: none, claims: users[:1], waits: "waiting for NodeClaims to terminate: claim-0"},
		"claims of others use others":            {edit: none, claims: claimList{claimOf(awsv1.Group, "other", 1), claimOf("example.com", "default", 2)}, deleted: all, gone: true},
		"its profile is the user's":              {edit: own, deleted: all[1:], gone: true},
		"IAM cannot be reached":                  {edit: none, isolated: true, deleted: all[1:], gone: true},
		"profiles cannot be deleted":             {edit: none, aws: leavings{profiles: errors.New("no")}, deleted: all[:1], fails: true},
		"templates cannot be deleted":            {edit: none, aws: leavings{templates: errors.New("no")}, deleted: all, fails: true},
		"somebody else keeps it, we are through": {edit: func(nc *awsv1.EC2NodeClass) { nc.Finalizers = []string{"example.com/other"} }},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := awsv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			nc := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "1", Finalizers: []string{awsv1.TerminationFinalizer}}}
			nc.Spec.Role = "role"
			tc.edit(nc)
			kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(nc).Build()
			if err := kube.Delete(t.Context(), nc); err != nil {
				t.Fatal(err)
			}
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(nc), nc); err != nil {
				t.Fatal(err)
			}
			var waits string
			var gone bool
			c := &Controller{
				Settings: Settings{Isolated: tc.isolated, Waiting: func(_ *awsv1.EC2NodeClass, message string) { waits = message }, Gone: func(string) { gone = true }},
				Kube:     kube, Profiles: &tc.aws, Templates: templatesOf{&tc.aws}, Claims: tc.claims, Validator: NewValidator(Validator{}),
			}
			again, err := c.Reconcile(t.Context(), nc)
			if (err != nil) != tc.fails || waits != tc.waits || gone != tc.gone || (again == waitForClaims) != (tc.waits != "") {
				t.Errorf("error %v, again in %v, waits %q, gone %v", err, again, waits, gone)
			}
			if !slices.Equal(tc.aws.deleted, tc.deleted) {
				t.Errorf("deleted %q, want %q", tc.aws.deleted, tc.deleted)
			}
			left := &awsv1.EC2NodeClass{}
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(nc), left); (client.IgnoreNotFound(err) == nil && err != nil) != tc.gone {
				t.Errorf("the class is there: %v, finalizers %v", err, left.Finalizers)
			}
		})
	}
}
