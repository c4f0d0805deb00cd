//go:build apiserver

package apiserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// A rule is one rule of an API, in words, with edits of the kind's base object on both sides of it. An edit is a JSON merge patch
// in YAML: null removes, lists are replaced.
type rule struct {
	kind string
	text string
	ok   []string
	no   []refusal
	on   occasion
}

// A refusal is an edit that the server must refuse, naming the field and the rule.
type refusal struct{ edit, field, says string }

type occasion int

const (
	createAndUpdate occasion = iota
	createOnly               // the field cannot be changed at all, or not by an update
	updateOnly               // the rule is about changes
	statusUpdate             // the field is in the status
)

func (o occasion) String() string {
	return [...]string{"create and update", "create", "update", "status update"}[o]
}

func no(edit, field, says string) refusal { return refusal{edit, field, says} }

// each makes one refusal of the same field and rule for each value, put into the edit at %s.
func each(edit, field, says string, values ...string) []refusal {
	out := make([]refusal, len(values))
	for i, value := range values {
		out[i] = refusal{fmt.Sprintf(edit, value), field, says}
	}
	return out
}

// with puts each value into the edit at %s.
func with(edit string, values ...string) []string {
	out := make([]string, len(values))
	for i, value := range values {
		out[i] = fmt.Sprintf(edit, value)
	}
	return out
}

// bases are the smallest objects that are accepted, by kind.
var bases = map[string]string{
	"NodePool": `
apiVersion: karpenter.sh/v1
kind: NodePool
spec:
  template:
    spec:
      requirements: []
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
`,
	"NodeClaim": `
apiVersion: karpenter.sh/v1
kind: NodeClaim
spec:
  requirements: []
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
`,
	"NodeOverlay": `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
spec:
  requirements: []
`,
	"CommitmentDiscount": `
apiVersion: karpenter.sh/v1alpha1
kind: CommitmentDiscount
spec: {category: Spend, type: ComputeSavingsPlan, quantity: "1"}
`,
	"RolloutPolicy": `
apiVersion: karpenter.sh/v1alpha1
kind: RolloutPolicy
spec: {nodePoolSelector: {}}
`,
	"DisruptionPlan": `
apiVersion: karpenter.sh/v1alpha1
kind: DisruptionPlan
`,
	"CapacityBuffer": `
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {namespace: default}
spec: {}
`,
	"CapacityQuota": `
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityQuota
spec: {limits: {resources: {cpu: 1}}}
`,
	"EC2NodeClass": `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
spec:
  role: node-role
  amiFamily: AL2023
  amiSelectorTerms: [{id: ami-0abc}]
  subnetSelectorTerms: [{id: subnet-0abc}]
  securityGroupSelectorTerms: [{id: sg-0abc}]
`,
}

// statuses are what stored objects of some kinds say from the start.
var statuses = map[string]string{"DisruptionPlan": plannedStatus}

func allRules() []rule {
	return slices.Concat(nodePoolRules(), nodeClaimRules(), nodeOverlayRules(), capacityBufferRules(), capacityQuotaRules(), nodeClassRules(), disruptionPlanRules(), commitmentRules(), rolloutRules())
}

// base returns the kind's base object under a name.
func base(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := parse(cmp.Or(bases[kind], olderBases[kind]))
	if err != nil {
		t.Fatal(err)
	}
	object.SetName(name)
	return object
}

// TestRules runs every rule and prints which tests stand for it.
func TestRules(t *testing.T) { runRules(t, bases, allRules(), "rules.txt") }

func runRules(t *testing.T, bases map[string]string, rules []rule, golden string) {
	stored := map[string]*unstructured.Unstructured{}
	for kind := range bases {
		object := base(t, kind, "stored")
		mustCreate(t, object)
		if status := statuses[kind]; status != "" {
			if err := kube.Status().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, toJSON(t, status))); err != nil {
				t.Fatal(err)
			}
		}
		stored[kind] = object
	}
	refused := map[constraint]bool{}
	var listing strings.Builder
	cases := 0
	for _, r := range rules {
		name := r.kind + "/" + strings.ReplaceAll(r.text, "/", "∕")
		t.Run(name, func(t *testing.T) {
			cases += r.run(t, stored[r.kind], refused)
		})
		fmt.Fprintf(&listing, "%-14s %s → %s/%s (%d accepted, %d refused, on %s)\n", r.kind, r.text, t.Name(), name, len(r.ok), len(r.no), r.on)
	}
	fmt.Printf("rules and their tests: %d rules, %d requests\n%s", len(rules), cases, listing.String())
	compareGolden(t, golden, listing.String())
	checkCoverage(t, bases, refused)
}

// run sends every edit of the rule on every occasion that it is about, and returns the number of requests.
func (r *rule) run(t *testing.T, stored *unstructured.Unstructured, refused map[constraint]bool) int {
	requests := 0
	for _, send := range r.senders(stored) {
		for _, edit := range r.ok {
			requests++
			if err := send.do(t, edit); err != nil {
				t.Errorf("%s with %s was refused: %v", send.name, short(edit), err)
			}
		}
		for _, refusal := range r.no {
			requests++
			err := send.do(t, refusal.edit)
			if problem := refusal.check(err); problem != "" {
				t.Errorf("%s with %s: %s", send.name, short(refusal.edit), problem)
			}
			noteRefusal(r.kind, err, refused)
		}
	}
	return requests
}

type sender struct {
	name string
	do   func(t *testing.T, edit string) error
}

func (r *rule) senders(stored *unstructured.Unstructured) []sender {
	create := sender{"create", func(t *testing.T, edit string) error { return createEdited(t, r.kind, edit) }}
	update := sender{"update", func(t *testing.T, edit string) error { return patch(t, stored, edit, "") }}
	switch r.on {
	case createOnly:
		return []sender{create}
	case updateOnly:
		return []sender{update}
	case statusUpdate:
		return []sender{{"status update", func(t *testing.T, edit string) error { return patch(t, stored, edit, "status") }}}
	default:
		return []sender{create, update}
	}
}

// createEdited asks the server whether it would create the kind's base object with the edit.
func createEdited(t *testing.T, kind, edit string) error {
	t.Helper()
	return kube.Create(t.Context(), edited(t, kind, "created", edit), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
}

// patch asks the server whether it would take the edit of a stored object.
func patch(t *testing.T, stored *unstructured.Unstructured, edit, subresource string) error {
	t.Helper()
	object := stored.DeepCopy()
	change := client.RawPatch(types.MergePatchType, toJSON(t, edit))
	if subresource == "status" {
		return kube.Status().Patch(t.Context(), object, change, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	}
	return kube.Patch(t.Context(), object, change, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
}

func toJSON(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return raw
}

// check says what is wrong with the server's answer, "" if it refused for the expected reason.
func (r *refusal) check(err error) string {
	if err == nil {
		return "was accepted"
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return fmt.Sprintf("failed for another reason: %v", err)
	}
	for _, cause := range causes(status) {
		if cause.Field == r.field && strings.Contains(cause.Message, r.says) {
			return ""
		}
	}
	return fmt.Sprintf("the refusal does not name field %q and rule %q: %v", r.field, r.says, err)
}

func causes(status *apierrors.StatusError) []metav1.StatusCause {
	if status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0 {
		return []metav1.StatusCause{{Message: status.ErrStatus.Message}}
	}
	return status.ErrStatus.Details.Causes
}

func short(edit string) string {
	if len(edit) > 200 {
		return edit[:200] + "…"
	}
	return edit
}

// quote writes a text as YAML.
func quote(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// list writes n items, made by item, as a YAML list.
func list(n int, item func(i int) string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item(i)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// mapping writes n entries, made by entry, as a YAML map.
func mapping(n int, entry func(i int) string) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = entry(i)
	}
	return "{" + strings.Join(entries, ", ") + "}"
}
