//go:build apiserver

package apiserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
)

// edited is the kind's base object with an edit.
func edited(t *testing.T, kind, name, edit string) *unstructured.Unstructured {
	t.Helper()
	object := base(t, kind, name)
	raw, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	merged, err := mergePatch(raw, toJSON(t, edit))
	if err != nil {
		t.Fatal(err)
	}
	object = &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(merged); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestDefaults says what the server fills in.
func TestDefaults(t *testing.T) {
	for name, tc := range map[string]struct {
		kind, edit string
		part       []string // of the object
		want       string
	}{
		"a pool gets the whole disruption stanza": {"NodePool", "{}", []string{"spec", "disruption"},
			`{consolidateAfter: 0s, consolidationPolicy: WhenEmptyOrUnderutilized, budgets: [{nodes: "10%"}]}`},
		"a pool with part of the stanza gets the rest": {"NodePool", "{spec: {disruption: {consolidationPolicy: WhenEmpty}}}", []string{"spec", "disruption"},
			`{consolidateAfter: 0s, consolidationPolicy: WhenEmpty, budgets: [{nodes: "10%"}]}`},
		"an empty list of budgets stays empty": {"NodePool", "{spec: {disruption: {budgets: []}}}", []string{"spec", "disruption"},
			`{consolidateAfter: 0s, consolidationPolicy: WhenEmptyOrUnderutilized, budgets: []}`},
		"a budget without nodes is ten percent": {"NodePool", "{spec: {disruption: {budgets: [{reasons: [Empty]}]}}}", []string{"spec", "disruption", "budgets"},
			`[{nodes: "10%", reasons: [Empty]}]`},
		"a static pool gets the stanza too": {"NodePool", "{spec: {replicas: 2}}", []string{"spec", "disruption", "consolidateAfter"}, "0s"},
		"nodes of a pool expire after 720h": {"NodePool", "{}", []string{"spec", "template", "spec", "expireAfter"}, "720h"},
		"a pool has no nodes":               {"NodePool", "{}", []string{"status", "nodes"}, "0"},
		"a claim expires after 720h":        {"NodeClaim", "{}", []string{"spec", "expireAfter"}, "720h"},
		"a buffer is active capacity":       {"CapacityBuffer", "{}", []string{"spec", "provisioningStrategy"}, "buffer.x-k8s.io/active-capacity"},
		"metadata options of a class": {"EC2NodeClass", "{}", []string{"spec", "metadataOptions"},
			"{httpEndpoint: enabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 1, httpTokens: required}"},
		"metadata options of a class, each on its own": {"EC2NodeClass", "{spec: {metadataOptions: {httpTokens: optional}}}", []string{"spec", "metadataOptions"},
			"{httpEndpoint: enabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 1, httpTokens: optional}"},
		"empty metadata options of a class": {"EC2NodeClass", "{spec: {metadataOptions: {}}}", []string{"spec", "metadataOptions"},
			"{httpEndpoint: enabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 1, httpTokens: required}"},
		"nothing else of a class": {"EC2NodeClass", "{spec: {metadataOptions: {httpTokens: optional}}}", []string{"spec"},
			`{role: node-role, amiFamily: AL2023, amiSelectorTerms: [{id: ami-0abc}], subnetSelectorTerms: [{id: subnet-0abc}], securityGroupSelectorTerms: [{id: sg-0abc}],
			  metadataOptions: {httpEndpoint: enabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 1, httpTokens: optional}}`},
		"nothing of an overlay": {"NodeOverlay", "{}", []string{"spec"}, "{requirements: []}"},
	} {
		t.Run(name, func(t *testing.T) {
			object := edited(t, tc.kind, "defaults", tc.edit)
			mustCreate(t, object)
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Fatal(err)
			}
			got, _, err := unstructured.NestedFieldNoCopy(object.Object, tc.part...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decoded(t, tc.want), reencoded(t, got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", strings.Join(tc.part, "."), diff)
			}
		})
	}
}

func decoded(t *testing.T, text string) any {
	t.Helper()
	var out any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func reencoded(t *testing.T, value any) any {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, string(raw))
}

// TestSpecRuleMessages shows what a user reads when several rules are broken at once.
func TestSpecRuleMessages(t *testing.T) {
	err := createEdited(t, "NodePool", "{spec: {replicas: 1, weight: 5, limits: {cpu: 1}}}")
	for _, want := range []string{"only limits.nodes may be set together with replicas", "weight may not be set together with replicas"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("refusal %v does not say %q", err, want)
		}
	}
}

// TestStaticPools says what updates a static pool allows.
func TestStaticPools(t *testing.T) {
	pool := edited(t, "NodePool", "static", "{spec: {replicas: 1, limits: {nodes: 5}}}")
	mustCreate(t, pool)
	for name, tc := range map[string]struct{ edit, want string }{
		"more replicas":              {"{spec: {replicas: 7}}", ""},
		"no replicas":                {"{spec: {replicas: 0}}", ""},
		"another limit":              {"{spec: {limits: {nodes: 9}}}", ""},
		"no limits":                  {"{spec: {limits: null}}", ""},
		"it cannot become dynamic":   {"{spec: {replicas: null}}", "replicas cannot be added or removed"},
		"a weight":                   {"{spec: {weight: 1}}", "weight may not be set together with replicas"},
		"a limit besides nodes":      {"{spec: {limits: {cpu: 1}}}", "only limits.nodes may be set together with replicas"},
		"a negative number of nodes": {"{spec: {replicas: -1}}", "greater than or equal to 0"},
	} {
		t.Run(name, func(t *testing.T) {
			err := patch(t, pool, tc.edit, "")
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want a refusal with %q", err, tc.want)
			}
		})
	}
}

// TestScale scales a static pool as kubectl and autoscalers do.
func TestScale(t *testing.T) {
	pool := edited(t, "NodePool", "scaled", "{spec: {replicas: 1}}")
	mustCreate(t, pool)
	if _, problems, err := kubectl(t, "", "scale", "nodepool/scaled", "--replicas=4"); err != nil {
		t.Fatalf("kubectl scale: %v: %s", err, problems)
	}
	out, problems, err := kubectl(t, "", "get", "nodepool", "scaled", "--subresource=scale", "-o", "jsonpath={.spec.replicas} {.status.replicas}")
	if err != nil {
		t.Fatalf("kubectl get scale: %v: %s", err, problems)
	}
	if out != "4 0" {
		t.Errorf("spec and status replicas are %q, want 4 and 0", out)
	}
}

// TestTheLargestObjects puts the longest lists that the schemas allow into one object, on create and on update, so that the cost of
// all rules together is known to stay below what a server spends on one request.
func TestTheLargestObjects(t *testing.T) {
	long := func(i, n int) string { return fmt.Sprintf("k%d-%s", i, strings.Repeat("x", n)) }
	requirements := list(100, func(i int) string {
		return fmt.Sprintf("{key: example.com/%s, operator: In, minValues: 50, values: %s}", long(i, 290), list(60, func(j int) string { return long(j, 55) }))
	})
	taints := list(100, func(i int) string {
		return fmt.Sprintf("{key: %s, value: %s, effect: NoSchedule}", long(i, 50), long(i, 50))
	})
	tags := mapping(20, func(i int) string { return fmt.Sprintf("%s: %s", long(i, 110), long(i, 240)) })
	for name, tc := range map[string]struct{ kind, edit, change string }{
		"pool": {"NodePool", fmt.Sprintf("{spec: {template: {metadata: {labels: %s}, spec: {requirements: %s, taints: %s, startupTaints: %s}}, disruption: {budgets: %s}, limits: %s}}",
			mapping(100, func(i int) string { return fmt.Sprintf("example.com/%s: %s", long(i, 50), long(i, 55)) }), requirements, taints, taints,
			list(50, func(int) string {
				return `{nodes: "1", schedule: "0 9 * * mon-fri", duration: 8h, reasons: [Empty, Drifted, Underutilized]}`
			}),
			mapping(100, func(i int) string { return fmt.Sprintf("example.com/%s: 1", long(i, 50)) })), "{spec: {weight: 3}}"},
		"claim":   {"NodeClaim", fmt.Sprintf("{spec: {requirements: %s, taints: %s, startupTaints: %s}}", requirements, taints, taints), "{metadata: {labels: {a: b}}}"},
		"overlay": {"NodeOverlay", fmt.Sprintf("{spec: {requirements: %s, capacity: %s}}", strings.ReplaceAll(requirements, "minValues: 50, ", ""), mapping(100, func(i int) string { return fmt.Sprintf("example.com/%s: 1", long(i, 50)) })), "{spec: {weight: 3}}"},
		"class": {"EC2NodeClass", fmt.Sprintf("{spec: {amiSelectorTerms: %[1]s, subnetSelectorTerms: %[1]s, securityGroupSelectorTerms: %[1]s, capacityReservationSelectorTerms: %[1]s, tags: %[2]s, blockDeviceMappings: %[3]s, networkInterfaces: %[4]s}}",
			list(30, func(int) string { return "{tags: " + tags + "}" }),
			mapping(50, func(i int) string { return fmt.Sprintf("%s: %s", long(i, 110), long(i, 240)) }),
			list(50, func(i int) string {
				return fmt.Sprintf("{deviceName: /dev/sd%d, rootVolume: %t, ebs: {volumeSize: 100Gi, snapshotID: snap-1, volumeInitializationRate: 100}}", i, i == 0)
			}),
			list(150, func(i int) string {
				kind := "interface"
				if i%2 == 1 {
					kind = "efa-only"
				}
				return fmt.Sprintf("{networkCardIndex: %d, deviceIndex: %d, interfaceType: %s}", i/2, i%2, kind)
			})), "{spec: {context: c}}"},
	} {
		t.Run(name, func(t *testing.T) {
			object := edited(t, tc.kind, "largest", tc.edit)
			mustCreate(t, object)
			if err := patch(t, object, tc.change, ""); err != nil {
				t.Errorf("update: %v", err)
			}
		})
	}
}

// TestGoObjectsRoundTrip writes each kind with a typed client and reads it back.
func TestGoObjectsRoundTrip(t *testing.T) {
	typed := typedClient(t)
	scheme := typed.Scheme()
	known := label.NewVocabulary(v1.Labels(), awsv1.Labels())
	for kind := range bases {
		t.Run(kind, func(t *testing.T) {
			loose := base(t, kind, "typed")
			object, err := scheme.New(loose.GroupVersionKind())
			if err != nil {
				t.Fatal(err)
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(loose.Object, object); err != nil {
				t.Fatal(err)
			}
			stored := object.(client.Object)
			if err := typed.Create(t.Context(), stored); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = kube.Delete(t.Context(), loose) })
			generation := stored.GetGeneration()

			// What the typed client read, it can write back without changing the object, and conditions can be set on it.
			if err := typed.Update(t.Context(), stored); err != nil {
				t.Fatalf("update: %v", err)
			}
			if stored.GetGeneration() != generation {
				t.Errorf("writing back what was read made generation %d of %d", stored.GetGeneration(), generation)
			}
			conditioned, ok := stored.(condition.Object)
			if !ok {
				return // a plan has a phase
			}
			condition.Init(conditioned)
			condition.SetTrue(conditioned, "ValidationSucceeded", time.Now())
			if err := typed.Status().Update(t.Context(), stored); err != nil {
				t.Fatalf("status update: %v", err)
			}
			if !condition.IsTrue(conditioned, "ValidationSucceeded") {
				t.Error("the condition did not come back")
			}
			if pool, ok := stored.(*v1.NodePool); ok {
				if err := pool.Validate(known); err != nil {
					t.Errorf("the smallest pool does not pass validation at run time: %v", err)
				}
			}
		})
	}
}

// TestDurationsKeepTheirText says that a duration is stored and written back as its author wrote it.
func TestDurationsKeepTheirText(t *testing.T) {
	pool := edited(t, "NodePool", "durations", "{spec: {disruption: {consolidateAfter: 60m}, template: {spec: {expireAfter: 1440h}}}}")
	mustCreate(t, pool)
	typed := typedClient(t)
	read := &v1.NodePool{}
	if err := typed.Get(t.Context(), client.ObjectKeyFromObject(pool), read); err != nil {
		t.Fatal(err)
	}
	if got := *read.Spec.Disruption.ConsolidateAfter.Duration; got != time.Hour {
		t.Errorf("consolidateAfter = %v", got)
	}
	metav1.SetMetaDataLabel(&read.ObjectMeta, "touched", "true")
	if err := typed.Update(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
		t.Fatal(err)
	}
	after, _, _ := unstructured.NestedString(pool.Object, "spec", "disruption", "consolidateAfter")
	expire, _, _ := unstructured.NestedString(pool.Object, "spec", "template", "spec", "expireAfter")
	if after != "60m" || expire != "1440h" || pool.GetGeneration() != 1 {
		t.Errorf("after an update by a program: consolidateAfter %q, expireAfter %q, generation %d", after, expire, pool.GetGeneration())
	}
}

// TestLabelsAreReplacedAndAnnotationsMerged says what server-side apply does with the two maps of the template.
func TestLabelsAreReplacedAndAnnotationsMerged(t *testing.T) {
	apply := func(owner, metadata string) {
		t.Helper()
		object := edited(t, "NodePool", "applied", "{spec: {template: {metadata: "+metadata+"}}}")
		if err := kube.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(owner), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	apply("one", "{labels: {a: one}, annotations: {a: one}}")
	t.Cleanup(func() { _ = kube.Delete(t.Context(), base(t, "NodePool", "applied")) })
	apply("two", "{labels: {b: two}, annotations: {b: two}}")
	object := base(t, "NodePool", "applied")
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	got, _, _ := unstructured.NestedMap(object.Object, "spec", "template", "metadata")
	want := map[string]any{"labels": map[string]any{"b": "two"}, "annotations": map[string]any{"a": "one", "b": "two"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("template metadata (-want +got):\n%s", diff)
	}
}

// TestUnknownFieldsAreReported says that a misspelt field does not pass silently where the client asks for strictness.
func TestUnknownFieldsAreReported(t *testing.T) {
	for kind, edit := range map[string]string{
		"NodePool": "{spec: {template: {spec: {kubelet: {maxPods: 5}}}}}", "NodeClaim": "{spec: {weight: 1}}",
		"EC2NodeClass": "{spec: {subnetSelector: {}}}", "NodeOverlay": "{spec: {cost: 1}}", "CapacityBuffer": "{spec: {size: 1}}", "CapacityQuota": "{spec: {size: 1}}", "RolloutPolicy": "{spec: {size: 1}}",
	} {
		if err := createEdited(t, kind, edit); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%s with %s: %v", kind, edit, err)
		}
	}
}

// mergePatch applies a JSON merge patch.
func mergePatch(original, patch []byte) ([]byte, error) { return jsonpatch.MergePatch(original, patch) }
