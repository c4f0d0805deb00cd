//go:build apiserver

package conversion

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/api/crds"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/compat/legacy"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// legacyDefinitions are those of the chart, as it renders them without annotations.
func legacyDefinitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile("../../charts/karpenter-crd/templates/legacy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var plain strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "{{") && strings.TrimSpace(line) != "annotations:" {
			plain.WriteString(line)
		}
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for part := range strings.SplitSeq(plain.String(), "---\n") {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict([]byte(part), crd); err != nil {
			t.Fatal(err)
		}
		out = append(out, crd)
	}
	return out
}

// olds are what somebody applies: two that work together, one that cannot be converted, and one whose name is taken.
const olds = `
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: web}
spec: {consolidation: {enabled: true}, weight: 3, kubeletConfiguration: {maxPods: 50}, providerRef: {name: shared}}
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: shared}
spec: {instanceProfile: nodes, subnetSelector: {a: b}, securityGroupSelector: {a: b}}
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: own}
spec: {launchTemplate: mine}
---
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: general}
spec: {providerRef: {name: shared}, kubeletConfiguration: {maxPods: 50}}
`

func metrics() *telemetry.Metrics {
	return telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
}

// reports are the events that a loop has published.
type reports struct {
	mu   sync.Mutex
	said []string
}

func (r *reports) write(_ context.Context, e *corev1.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, e.InvolvedObject.Name+": "+e.Message)
	return nil
}

// told runs a loop until every old object has the condition that is wanted of it.
func (c *cluster) told(t *testing.T, keep bool, want map[string]string) *reports {
	t.Helper()
	out := &reports{}
	events := telemetry.NewEvents(out.write, metrics())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- legacy.New(c, keep, events, nil).Run(ctx) }()
	go func() { ended <- events.Run(ctx) }()
	eventually(t, "told", func() error {
		for name, reason := range want {
			kind, name, _ := strings.Cut(name, " ")
			o := c.old(t, kind, name)
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			if len(conditions) != 1 || conditions[0].(map[string]any)["reason"] != reason {
				return fmt.Errorf("%s %s has the conditions %v, want %s", kind, name, conditions, reason)
			}
		}
		return nil
	})
	eventually(t, "events", func() error {
		out.mu.Lock()
		defer out.mu.Unlock()
		if len(out.said) == 0 {
			return fmt.Errorf("nobody has said anything")
		}
		return nil
	})
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return out
}

func (c *cluster) old(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	gvk := schema.GroupVersionKind{Group: "karpenter.k8s.aws", Version: "v1alpha1", Kind: kind}
	if kind == "Provisioner" {
		gvk = schema.GroupVersionKind{Group: v1.Group, Version: "v1alpha5", Kind: kind}
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, o); err != nil {
		t.Fatal(err)
	}
	return o
}

func (c *cluster) pool(t *testing.T, name string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1.GroupVersion.WithKind("NodePool"))
	return o, c.Get(t.Context(), client.ObjectKey{Name: name}, o)
}

func TestProvisionersThatSomebodyApplies(t *testing.T) {
	t.Parallel()
	definitions, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	c := startWith(t, append(definitions, legacyDefinitions(t)...))
	eventually(t, "applied", func() error {
		out, err := c.kubectl(t, olds, "apply", "-f", "-")
		if err != nil {
			return fmt.Errorf("%s", out)
		}
		if !strings.Contains(out, "karpenter convert -f FILE") {
			t.Errorf("nobody is told of the newer kind: %s", out)
		}
		return nil
	})
	said := c.told(t, false, map[string]string{
		"Provisioner web": v1.ReasonOlderKind, "Provisioner general": v1.ReasonOlderKind, "AWSNodeTemplate shared": v1.ReasonOlderKind, "AWSNodeTemplate own": v1.ReasonNotConvertible,
	})
	if all := strings.Join(said.said, "\n"); !strings.Contains(all, "web: nothing is launched for this kind: apply NodePool web") || !strings.Contains(all, "own: launchTemplate has no counterpart") {
		t.Errorf("said:\n%s", all)
	}
	if pools, err := c.list(t, "NodePool", "v1"); err != nil || len(pools) != 0 {
		t.Errorf("%d pools that nobody asked for, %v", len(pools), err)
	}

	taken := strings.NewReplacer("v1beta1", "v1", `"name":"default"`, `"group":"karpenter.k8s.aws","kind":"EC2NodeClass","name":"default"`,
		`"kubelet":{"maxPods":42},`, "", `,"disruption":{"consolidationPolicy":"WhenUnderutilized","expireAfter":"36h"}`, "").Replace(pool)
	if out, err := c.kubectl(t, taken, "apply", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	c.told(t, true, map[string]string{
		"Provisioner web": v1.ReasonKeptInStep, "Provisioner general": v1.ReasonNameTaken, "AWSNodeTemplate shared": v1.ReasonKeptInStep, "AWSNodeTemplate own": v1.ReasonNotConvertible,
	})
	made, err := c.pool(t, "web")
	if err != nil {
		t.Fatal(err)
	}
	if owners := made.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != c.old(t, "Provisioner", "web").GetUID() {
		t.Errorf("owners = %v", owners)
	}
	if class := dig(made.Object, "spec", "template", "spec", "nodeClassRef", "name"); class != "shared" {
		t.Errorf("class = %v", class)
	}
	if other, err := c.pool(t, "general"); err != nil || len(other.GetOwnerReferences()) != 0 {
		t.Errorf("somebody else's pool was taken: %v, %v", other.GetOwnerReferences(), err)
	}

	if out, err := c.kubectl(t, strings.Replace(olds, "weight: 3", "weight: 7", 1), "apply", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	c.again(t)
	after, err := c.pool(t, "web")
	if err != nil || dig(after.Object, "spec", "weight") != int64(7) {
		t.Errorf("weight = %v, %v", dig(after.Object, "spec", "weight"), err)
	}
	c.again(t)
	if last, err := c.pool(t, "web"); err != nil || last.GetResourceVersion() != after.GetResourceVersion() {
		t.Errorf("a pool that is in step was written again: %v", err)
	}
}

// again runs a loop for one turn.
func (c *cluster) again(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	looked := &counting{Client: c, done: stop}
	if err := legacy.New(looked, true, telemetry.NewEvents(func(context.Context, *corev1.Event) error { return nil }, metrics()), nil).Run(ctx); err != nil {
		t.Error(err)
	}
}

// counting ends its loop when the second turn begins to read.
type counting struct {
	client.Client
	lists int
	done  func()
}

func (c *counting) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if c.lists++; c.lists > 2 {
		c.done()
	}
	return c.Client.List(ctx, list, opts...)
}
