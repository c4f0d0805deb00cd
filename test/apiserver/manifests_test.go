//go:build apiserver

package apiserver

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bufferv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// manifest is the text of a file below testdata. A file that holds part of a spec is completed: the smallest object of
// the kind that it must belong to gets it.
func manifest(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if strings.Contains(text, "apiVersion:") {
		return text
	}
	kind, edit := "NodePool", "{}"
	if strings.Contains(text, "amiSelectorTerms") {
		kind, edit = "EC2NodeClass", "{spec: {amiFamily: null, amiSelectorTerms: null}}"
	}
	object := edited(t, kind, "completed", edit)
	object.SetName("completed-" + strings.ToLower(strings.TrimSuffix(filepath.Base(path), ".yaml")))
	var spec map[string]any
	if err := yaml.Unmarshal(raw, &spec); err != nil {
		t.Fatal(err)
	}
	original, err := yaml.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := yaml.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return merged(t, string(original), string(patch))
}

func merged(t *testing.T, original, patch string) string {
	t.Helper()
	out, err := mergePatch(toJSON(t, original), toJSON(t, patch))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func manifests(t *testing.T, folder string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no manifests in %s: %v", folder, err)
	}
	return paths
}

// objects splits a manifest.
func objects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, part := range strings.Split(text, "\n---\n") {
		object, err := parse(part)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, object)
	}
	return out
}

// TestManifestsApply applies what users keep in Git: twice by kubectl, then by a program that patches it. Nothing may
// change what the first time made.
func TestManifestsApply(t *testing.T) {
	typed := typedClient(t)
	for _, path := range manifests(t, "valid") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			text := manifest(t, path)
			t.Cleanup(func() {
				for _, object := range objects(t, text) {
					if err := kube.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
						t.Error(err)
					}
				}
			})
			for _, want := range []string{"created", "unchanged"} {
				out, problems, err := kubectl(t, text, "apply", "--validate=strict", "-f", "-")
				if err != nil {
					t.Fatalf("kubectl apply: %v: %s", err, problems)
				}
				for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
					if !strings.HasSuffix(line, want) {
						t.Errorf("kubectl apply says %q, want %s", line, want)
					}
				}
			}
			for _, object := range objects(t, text) {
				checkRoundTrip(t, typed, object)
			}
		})
	}
}

func typedClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, v1alpha1.AddToScheme, awsv1.AddToScheme, bufferv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	typed, err := client.New(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return typed
}

// checkRoundTrip compares what is stored with what was applied, before and after a program changed its annotations.
func checkRoundTrip(t *testing.T, typed client.Client, applied *unstructured.Unstructured) {
	t.Helper()
	checkContains(t, applied)
	object, err := typed.Scheme().New(applied.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	stored := object.(client.Object)
	if err := typed.Get(t.Context(), client.ObjectKeyFromObject(applied), stored); err != nil {
		t.Fatal(err)
	}
	if stored.GetGeneration() != 1 {
		t.Errorf("%s has generation %d after it was applied twice", applied.GetName(), stored.GetGeneration())
	}
	before := stored.DeepCopyObject().(client.Object)
	stored.SetAnnotations(map[string]string{"touched": "true"})
	if err := typed.Patch(t.Context(), stored, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if stored.GetGeneration() != 1 {
		t.Errorf("%s has generation %d after a program changed its annotations", applied.GetName(), stored.GetGeneration())
	}
	checkContains(t, applied)
}

// checkContains fails unless the stored object holds everything that was applied, exactly as it was written.
func checkContains(t *testing.T, applied *unstructured.Unstructured) {
	t.Helper()
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(applied.GroupVersionKind())
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(applied), stored); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(applied.Object["spec"], within(stored.Object["spec"], applied.Object["spec"])); diff != "" {
		t.Errorf("%s (-applied +stored):\n%s", applied.GetName(), diff)
	}
}

// within is value without the map entries that shape does not have: what defaults added.
func within(value, shape any) any {
	switch s := shape.(type) {
	case map[string]any:
		v, ok := value.(map[string]any)
		if !ok {
			return value
		}
		out := map[string]any{}
		for key, inner := range s {
			if have, ok := v[key]; ok {
				out[key] = within(have, inner)
			}
		}
		return out
	case []any:
		v, ok := value.([]any)
		if !ok || len(v) != len(s) {
			return value
		}
		out := make([]any, len(s))
		for i := range s {
			out[i] = within(v[i], s[i])
		}
		return out
	default:
		return value
	}
}

// TestInvalidManifestsAreRefused says that what is wrong in a manifest is named: the field and the rule.
func TestInvalidManifestsAreRefused(t *testing.T) {
	header := regexp.MustCompile(`(?m)^# refused: ([^:]+): (?:[A-Z][a-z ]+: )?(.+)$`)
	for _, path := range manifests(t, "invalid") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want := header.FindStringSubmatch(string(raw))
			if want == nil {
				t.Fatal("the file does not say how it is refused")
			}
			_, problems, err := kubectl(t, manifest(t, path), "apply", "-f", "-")
			if err == nil {
				t.Fatal("it was accepted")
			}
			if !strings.Contains(problems, want[1]+":") || !strings.Contains(problems, want[2]) {
				t.Errorf("kubectl says %q, want field %q and rule %q", problems, want[1], want[2])
			}
		})
	}
}
