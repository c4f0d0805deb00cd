//go:build apiserver

package apiserver

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// rendered is what the chart renders with all its policies; a test beside it sees to that.
const rendered = "../../local/release/testdata/golden/policies.yaml"

const controller = "system:serviceaccount:karpenter:karpenter"

// policies are the chart's policies and their bindings.
func policies(t *testing.T) (all []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(rendered)
	if err != nil {
		t.Fatal(err)
	}
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		for document := range bytes.SplitSeq(part, []byte("\n# karpenter/")) {
			if !bytes.Contains(document, []byte("kind: ValidatingAdmissionPolicy")) {
				continue
			}
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(document, &o.Object); err != nil {
				t.Fatalf("%v in\n%s", err, document)
			}
			all = append(all, o)
		}
	}
	if len(all) != 10 {
		t.Fatalf("%d policies and bindings, want five of each", len(all))
	}
	return all
}

// untilForgotten waits when the test has ended, after all that is deleted: the server acts upon a policy for a moment after that.
func untilForgotten(t *testing.T, pool *unstructured.Unstructured) {
	t.Cleanup(func() {
		err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, soon, true, func(ctx context.Context) (bool, error) {
			return !apierrors.IsForbidden(kube.Create(ctx, pool, client.DryRunAll)), nil
		})
		if err != nil {
			t.Errorf("policies that are deleted still refuse: %v", err)
		}
	})
}

// installPolicies gives the server the chart's policies until the test ends, and waits until each of them refuses something.
func installPolicies(t *testing.T) {
	t.Helper()
	untilForgotten(t, edited(t, "NodePool", "probe", `{}`))
	for _, o := range policies(t) {
		mustCreate(t, o)
	}
	grant(t, controller, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "pods/status"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"*"}})
	d := deployment(t, "probe", nil)
	p := waitingPod(t, "probe")
	forbidden := map[string]func() error{
		"karpenter-hints": func() error {
			return as(t, controller).Status().Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"status":{"message":"x"}}`)), client.DryRunAll)
		},
		"karpenter-surge": func() error {
			return as(t, controller).Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":9}}`)), client.DryRunAll)
		},
		"karpenter-nodepools": func() error { return kube.Create(t.Context(), edited(t, "NodePool", "probe", `{}`), client.DryRunAll) },
		"karpenter-pass-role": func() error {
			return as(t, "nobody-yet").Create(t.Context(), edited(t, "EC2NodeClass", "probe", `{spec: {role: r}}`), client.DryRunAll)
		},
	}
	grant(t, "nobody-yet", rbacv1.PolicyRule{APIGroups: []string{"karpenter.k8s.aws"}, Resources: []string{"ec2nodeclasses"}, Verbs: []string{"*"}})
	for name, try := range forbidden {
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, soon, true, func(context.Context) (bool, error) {
			err := try()
			return err != nil && strings.Contains(err.Error(), "'"+name+"'"), nil
		})
		if err != nil {
			t.Fatalf("%s refuses nothing: %v", name, try())
		}
	}
}

// as is a client of somebody.
func as(t *testing.T, user string) client.Client {
	t.Helper()
	config := rest.CopyConfig(restConfig)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// grant gives somebody rights until the test ends.
func grant(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	name := "test-" + strings.ReplaceAll(user, ":", "-")
	mustCreate(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	mustCreate(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
}

func waitingPod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "a"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	mustCreate(t, p)
	return p
}

// deployment makes a Deployment whose pod template has annotations.
func deployment(t *testing.T, name string, annotations map[string]string) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": "a"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels, d.Spec.Template.Annotations = labels, annotations
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	mustCreate(t, d)
	return d
}

func TestPolicies(t *testing.T) {
	mustCreate(t, edited(t, "NodePool", "older", `{}`))
	installPolicies(t)
	t.Run("hints", testHints)
	t.Run("surge", testSurge)
	t.Run("roles", testRoles)
	t.Run("templates", testTemplates)
}

// Where labels are forbidden and none is asked for, pools need not have any.
func TestForbiddenLabelsAlone(t *testing.T) {
	const role = `{spec: {template: {metadata: {labels: {node-role.kubernetes.io/infra: ""}}}}}`
	untilForgotten(t, edited(t, "NodePool", "probe", role))
	for _, o := range policies(t) {
		if o.GetName() != "karpenter-nodepools" {
			continue
		}
		if rules, found, _ := unstructured.NestedSlice(o.Object, "spec", "validations"); found {
			rules = slices.DeleteFunc(rules, func(rule any) bool {
				return !strings.Contains(rule.(map[string]any)["message"].(string), "that begins with node-role.kubernetes.io/")
			})
			if err := unstructured.SetNestedSlice(o.Object, rules, "spec", "validations"); err != nil || len(rules) != 2 {
				t.Fatalf("%d rules about labels, error %v", len(rules), err)
			}
		}
		mustCreate(t, o)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		return apierrors.IsForbidden(kube.Create(t.Context(), edited(t, "NodePool", "probe", role), client.DryRunAll)), nil
	})
	if err != nil {
		t.Fatalf("nothing is refused: %v", err)
	}
	for name, edit := range map[string]string{
		"no metadata":     `{spec: {template: {metadata: null}}}`,
		"no labels":       `{spec: {template: {metadata: {labels: null, annotations: {a: b}}}}}`,
		"no requirements": `{spec: {template: {spec: {requirements: []}}}}`,
	} {
		if err := kube.Create(t.Context(), edited(t, "NodePool", "new", edit), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testHints(t *testing.T) {
	const neighbour = "system:serviceaccount:karpenter:karpenter-sidecar"
	grant(t, neighbour, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "pods/status"}, Verbs: []string{"*"}})
	node := waitingPod(t, "waits")
	for name, tc := range map[string]struct {
		patch   string
		refused bool
	}{
		"a hint":                          {`{"status":{"nominatedNodeName":"a"}}`, false},
		"another hint":                    {`{"status":{"nominatedNodeName":"b"}}`, false},
		"no hint":                         {`{"status":{"nominatedNodeName":null}}`, false},
		"addresses":                       {`{"status":{"podIPs":[{"ip":"10.0.0.1"}],"podIP":"10.0.0.1"}}`, true},
		"readiness":                       {`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, true},
		"a phase":                         {`{"status":{"phase":"Running"}}`, true},
		"what is there, gone":             {`{"status":{"phase":null}}`, true},
		"a hint, and a phase":             {`{"status":{"nominatedNodeName":"c","phase":"Running"}}`, true},
		"a label, by which Services find": {`{"metadata":{"labels":{"app":"b"}},"status":{"nominatedNodeName":"d"}}`, true},
		"a new label":                     {`{"metadata":{"labels":{"more":"b"}}}`, true},
		"no labels":                       {`{"metadata":{"labels":null}}`, true},
		"an annotation":                   {`{"metadata":{"annotations":{"more":"b"}}}`, true},
		"a finalizer":                     {`{"metadata":{"finalizers":["example.com/more"]}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := as(t, controller).Status().Patch(t.Context(), node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(tc.patch)))
			if tc.refused != apierrors.IsForbidden(err) || !tc.refused && err != nil {
				t.Errorf("refused: %v, want %t", err, tc.refused)
			}
			for who, c := range map[string]client.Client{"an administrator": kube, neighbour: as(t, neighbour)} {
				if err := c.Status().Patch(t.Context(), node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(tc.patch)), client.DryRunAll); err != nil {
					t.Errorf("%s is refused as well: %v", who, err)
				}
			}
		})
	}
}

// The controller may restart a Deployment, and change nothing else of it.
func testSurge(t *testing.T) {
	for _, d := range []*appsv1.Deployment{deployment(t, "plain", nil), deployment(t, "annotated", map[string]string{"a": "b"})} {
		for name, tc := range map[string]struct {
			patch   string
			refused bool
		}{
			"a restart":          {`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-05-01T12:00:00Z"}}}}}`, false},
			"another restart":    {`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-05-01T13:00:00Z"}}}}}`, false},
			"replicas":           {`{"spec":{"replicas":2}}`, true},
			"a pause":            {`{"spec":{"paused":true}}`, true},
			"an image":           {`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"other"}]}}}}`, true},
			"an account":         {`{"spec":{"template":{"spec":{"serviceAccountName":"admin"}}}}`, true},
			"other annotations":  {`{"spec":{"template":{"metadata":{"annotations":{"more":"x"}}}}}`, true},
			"its annotations":    {`{"spec":{"template":{"metadata":{"annotations":{"a":"c"}}}}}`, true},
			"template's labels":  {`{"spec":{"template":{"metadata":{"labels":{"more":"x"}}}}}`, true},
			"the object's":       {`{"metadata":{"annotations":{"more":"x"}}}`, true},
			"labels":             {`{"metadata":{"labels":{"more":"x"}}}`, true},
			"a finalizer":        {`{"metadata":{"finalizers":["example.com/more"]}}`, true},
			"a restart and more": {`{"spec":{"replicas":3,"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-05-01T14:00:00Z"}}}}}`, true},
		} {
			t.Run(d.Name+": "+name, func(t *testing.T) {
				err := as(t, controller).Patch(t.Context(), d.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(tc.patch)))
				if tc.refused != apierrors.IsForbidden(err) || !tc.refused && err != nil {
					t.Errorf("refused: %v, want %t", err, tc.refused)
				}
				if err := kube.Patch(t.Context(), d.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(tc.patch)), client.DryRunAll); err != nil {
					t.Errorf("an administrator is refused as well: %v", err)
				}
			})
		}
	}
}

func testRoles(t *testing.T) {
	const editor, team = "editor", "team"
	classes := rbacv1.PolicyRule{APIGroups: []string{"karpenter.k8s.aws"}, Resources: []string{"ec2nodeclasses"}, Verbs: []string{"*"}}
	grant(t, editor, classes)
	grant(t, team, classes,
		rbacv1.PolicyRule{APIGroups: []string{"karpenter.k8s.aws"}, Resources: []string{"noderoles"}, ResourceNames: []string{"theirs"}, Verbs: []string{"use"}},
		rbacv1.PolicyRule{APIGroups: []string{"karpenter.k8s.aws"}, Resources: []string{"instanceprofiles"}, ResourceNames: []string{"profile"}, Verbs: []string{"use"}})
	mustCreate(t, edited(t, "EC2NodeClass", "there", `{spec: {role: others}}`))
	create := func(edit string) func(client.Client) error {
		return func(c client.Client) error {
			return c.Create(t.Context(), edited(t, "EC2NodeClass", "new", edit), client.DryRunAll)
		}
	}
	patch := func(text string) func(client.Client) error {
		return func(c client.Client) error {
			return c.Patch(t.Context(), edited(t, "EC2NodeClass", "there", `{}`), client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll)
		}
	}
	for name, tc := range map[string]struct {
		user    string
		do      func(client.Client) error
		refused string
	}{
		"no role may be used":                             {editor, create(`{spec: {role: theirs}}`), "noderoles"},
		"no profile may be used":                          {editor, create(`{spec: {role: null, instanceProfile: profile}}`), "instanceprofiles"},
		"the team's role":                                 {team, create(`{spec: {role: theirs}}`), ""},
		"the team's profile":                              {team, create(`{spec: {role: null, instanceProfile: profile}}`), ""},
		"another role":                                    {team, create(`{spec: {role: others}}`), "noderoles"},
		"another profile":                                 {team, create(`{spec: {role: null, instanceProfile: theirs}}`), "instanceprofiles"},
		"user data that would run with another role":      {team, patch(`{"spec":{"userData":"#!/bin/sh"}}`), "noderoles"},
		"a label, of a class with another role":           {team, patch(`{"metadata":{"labels":{"a":"b"}}}`), ""},
		"whoever may do everything may use every role":    {"", create(`{spec: {role: others}}`), ""},
		"whoever may do everything may change every spec": {"", patch(`{"spec":{"userData":"#!/bin/sh"}}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := kube
			if tc.user != "" {
				c = as(t, tc.user)
			}
			err := tc.do(c)
			if tc.refused == "" && err != nil || tc.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("error = %v, want %q", err, tc.refused)
			}
		})
	}
}

func testTemplates(t *testing.T) {
	const good = `{spec: {limits: {cpu: 10}, template: {metadata: {labels: {team: a}}, spec: {requirements: [{key: karpenter.k8s.aws/instance-category, operator: In, values: [c]}]}}}}`
	for name, tc := range map[string]struct{ edit, refused string }{
		"all that is asked for": {good, ""},
		"the other class": {
			`{spec: {limits: {cpu: 10}, template: {metadata: {labels: {team: a, node-role: b}}, spec: {nodeClassRef: {name: gpu}, requirements: [{key: karpenter.k8s.aws/instance-category, operator: In, values: [c]}, {key: node-role.kubernetes.io, operator: Exists}]}}}}`, "",
		},
		"no limits":     {`{spec: {template: {metadata: {labels: {team: a}}}}}`, "spec.limits"},
		"empty limits":  {`{spec: {limits: {}, template: {metadata: {labels: {team: a}}}}}`, "spec.limits"},
		"no labels":     {`{spec: {limits: {cpu: 10}}}`, "must have team"},
		"another label": {`{spec: {limits: {cpu: 10}, template: {metadata: {labels: {teams: a}}}}}`, "must have team"},
		"a role of the control plane": {
			`{spec: {limits: {cpu: 10}, template: {metadata: {labels: {team: a, node-role.kubernetes.io/infra: ""}}}}}`, "none that begins with node-role",
		},
		"another role of the control plane": {
			`{spec: {limits: {cpu: 10}, template: {metadata: {labels: {team: a, node-role.kubernetes.io/control-plane: ""}}}}}`, "none that begins with node-role",
		},
		"another role by requirement, among others": {
			`{spec: {limits: {cpu: 10}, template: {metadata: {labels: {team: a}}, spec: {requirements: [{key: kubernetes.io/os, operator: Exists}, {key: node-role.kubernetes.io/control-plane, operator: Exists}]}}}}`, "no key that begins with node-role",
		},
		"a role by requirement": {
			`{spec: {limits: {cpu: 10}, template: {metadata: {labels: {team: a}}, spec: {requirements: [{key: node-role.kubernetes.io/infra, operator: Exists}]}}}}`, "no key that begins with node-role",
		},
		"every machine": {
			`{spec: {limits: {cpu: 10}, template: {metadata: {labels: {team: a}}, spec: {requirements: []}}}}`, "must list values of karpenter.k8s.aws/instance-category",
		},
		"every machine but some": {
			`{spec: {limits: {cpu: 10}, template: {metadata: {labels: {team: a}}, spec: {requirements: [{key: karpenter.k8s.aws/instance-category, operator: NotIn, values: [x]}]}}}}`, "must list values of karpenter.k8s.aws/instance-category",
		},
		"values of something else": {
			`{spec: {limits: {cpu: 10}, template: {metadata: {labels: {team: a}}, spec: {requirements: [{key: kubernetes.io/arch, operator: In, values: [arm64]}]}}}}`, "must list values of karpenter.k8s.aws/instance-category",
		},
		"a class for others": {
			`{spec: {limits: {cpu: 10}, template: {metadata: {labels: {team: a}}, spec: {nodeClassRef: {name: secret}, requirements: [{key: karpenter.k8s.aws/instance-category, operator: In, values: [c]}]}}}}`, "must name one of default, gpu",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := kube.Create(t.Context(), edited(t, "NodePool", "new", tc.edit), client.DryRunAll)
			if tc.refused == "" && err != nil || tc.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("error = %v, want %q", err, tc.refused)
			}
		})
	}
	// A pool from before the policy is left in peace until somebody changes its spec: Karpenter writes its annotations.
	for text, refused := range map[string]bool{
		`{"metadata":{"annotations":{"a":"b"}}}`: false,
		`{"spec":{"weight":3}}`:                  true,
		`{"spec":{"weight":3,"limits":{"cpu":"1"},"template":{"metadata":{"labels":{"team":"a"}},"spec":{"requirements":[{"key":"karpenter.k8s.aws/instance-category","operator":"In","values":["c"]}]}}}}`: false,
	} {
		err := kube.Patch(t.Context(), edited(t, "NodePool", "older", `{}`), client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll)
		if refused != apierrors.IsForbidden(err) || !refused && err != nil {
			t.Errorf("%s: %v, refused: %t", text, err, refused)
		}
	}
}
