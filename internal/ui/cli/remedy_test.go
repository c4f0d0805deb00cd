package cli

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// random makes a value as package json decodes it.
func random(r *rand.Rand, depth int) any {
	switch n := r.IntN(6); {
	case depth == 0 || n < 2:
		return fmt.Sprint("it's ", r.IntN(3))
	case n < 4:
		out := map[string]any{}
		for range r.IntN(4) {
			out[fmt.Sprint("a/~", r.IntN(4))] = random(r, depth-1)
		}
		return out
	default:
		out := []any{}
		for range r.IntN(4) {
			out = append(out, random(r, depth-1))
		}
		return out
	}
}

// A patch between two objects makes one of the other, whatever they are.
func TestAPatchMakesOneObjectOfAnother(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, b := map[string]any{"x": random(r, 3)}, map[string]any{"x": random(r, 3)}
		ops, err := json.Marshal(patchBetween("", a, b))
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(ops)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if string(ops) != "null" {
			if text, err = patch.Apply(text); err != nil {
				t.Fatalf("%v: %s on %v", err, ops, a)
			}
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, got); diff != "" {
			t.Fatalf("%s on %v:\n%s", ops, a, diff)
		}
	}
}

// Commands are short where little changes, and survive a shell.
func TestACommandNamesWhatChanges(t *testing.T) {
	from := &v1.NodePool{}
	from.Name, from.Spec.Limits = "p", v1.Limits{"cpu": resource.MustParse("6")}
	to := from.DeepCopy()
	to.Spec.Limits["cpu"] = resource.MustParse("8")
	if got, want := patchCommand("nodepool", from, to), `kubectl patch nodepool p --type=json -p '[{"op":"replace","path":"/spec/limits/cpu","value":"8"}]'`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.Spec.NodeSelector = "shop", "web-0", map[string]string{"a/b": "it's"}
	other := pod.DeepCopy()
	other.Spec.NodeSelector["a/b"] = "<it's not>"
	if got, want := patchCommand("pod", pod, other), `kubectl patch pod web-0 -n shop --type=json -p '[{"op":"replace","path":"/spec/nodeSelector/a~1b","value":"<it'\''s not>"}]'`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := patchCommand("pod", pod, pod); got != "" {
		t.Errorf("nothing changes, and the command is %s", got)
	}
	for _, list := range []string{"[1,2,3]", "[1,2,3,4]", "[1,3]", "[]"} {
		var a, b []any
		if err := json.Unmarshal([]byte("[1,2,3]"), &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(list), &b); err != nil {
			t.Fatal(err)
		}
		for _, op := range patchBetween("/x", a, b) {
			if op.Op == "replace" && !strings.Contains(op.Path, "/x/") {
				t.Errorf("%s is made by replacing the whole list", list)
			}
		}
	}
}
