package generations

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"

	"karpenter.sh/karpenter/api/crds"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// A version is one kind in one version, as the API server knows it.
type version struct {
	apiVersion, kind string
	schema           *apiextensionsv1.JSONSchemaProps
	structural       *structuralschema.Structural
}

// versions reads the definitions of the kinds that are converted, in both versions.
func versions(t *testing.T) (beta, hub []version) {
	t.Helper()
	definitions, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitions {
		old, err := crds.Older(definition.Name)
		if err != nil {
			t.Fatal(err)
		}
		if old == nil {
			continue
		}
		kind, group := definition.Spec.Names.Kind, definition.Spec.Group
		beta = append(beta, newVersion(t, group+"/v1beta1", kind, old))
		hub = append(hub, newVersion(t, group+"/v1", kind, &definition.Spec.Versions[0]))
	}
	if len(beta) != 3 {
		t.Fatalf("%d kinds have a version v1beta1, want 3", len(beta))
	}
	return beta, hub
}

func newVersion(t *testing.T, apiVersion, kind string, v *apiextensionsv1.CustomResourceDefinitionVersion) version {
	t.Helper()
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	return version{apiVersion, kind, v.Schema.OpenAPIV3Schema, structural}
}

// A dice makes random objects of a schema: every field may be there or not.
type dice struct{ *rand.Rand }

func (d dice) object(v version) tree {
	o := d.value("", v.schema).(tree)
	o["apiVersion"], o["kind"] = v.apiVersion, v.kind
	metadata := tree{"name": "thing", "labels": tree{v1.NodePoolLabelKey: "general"}}
	if d.IntN(2) == 0 {
		metadata["annotations"] = tree{"team": "blue"}
	}
	o["metadata"] = metadata
	return o
}

// texts are values that mean something in some field.
var texts = map[string][]string{
	"alias":               {"al2@latest", "al2023@v20240807", "bottlerocket@1.20.0", "windows2022@latest", "nonsense"},
	"amiFamily":           {"AL2", "AL2023", "Bottlerocket", "Ubuntu", "Custom", "Windows2019"},
	"consolidationPolicy": {"WhenEmpty", "WhenUnderutilized", "WhenEmptyOrUnderutilized", "Balanced", "Other"},
	"consolidateAfter":    {"0s", "30s", "1h30m", "Never", "720h"},
	"expireAfter":         {"720h", "24h", "Never", "60m"},
	"group":               {"karpenter.k8s.aws", "example.org"},
	"apiVersion":          {"karpenter.k8s.aws/v1beta1", "example.org/v1", "odd"},
}

func (d dice) value(field string, s *apiextensionsv1.JSONSchemaProps) any {
	switch {
	case len(s.Enum) > 0 && (s.Type == "string" || s.Type == "") && texts[field] == nil:
		return strings.Trim(string(s.Enum[d.IntN(len(s.Enum))].Raw), `"`)
	case s.XIntOrString:
		return []any{int64(d.IntN(100)), "12Gi", "500m"}[d.IntN(3)]
	case s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields:
		return tree{"maxPods": int64(d.IntN(200)), "cpuManagerPolicy": "static"}
	}
	switch s.Type {
	case "object":
		return d.fields(s)
	case "array":
		list := []any{}
		for range d.IntN(4) {
			list = append(list, d.value(field, s.Items.Schema))
		}
		return list
	case "integer":
		return int64(d.IntN(100))
	case "boolean":
		return d.IntN(2) == 0
	}
	if known := texts[field]; known != nil {
		return known[d.IntN(len(known))]
	}
	return []string{"a", "b", "10%", "v-" + fmt.Sprint(d.IntN(1000))}[d.IntN(4)]
}

func (d dice) fields(s *apiextensionsv1.JSONSchemaProps) tree {
	out := tree{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		inner := s.Properties[name]
		if name == "apiVersion" && s.Properties["metadata"].Type != "" || name == "metadata" && s.Properties["kind"].Type != "" {
			continue // of the object itself
		}
		// What has a default is there once the API server has read the object.
		if slices.Contains(s.Required, name) || inner.Default != nil || d.IntN(3) > 0 {
			out[name] = d.value(name, &inner)
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		for i := range d.IntN(3) {
			out[fmt.Sprint("key", i)] = d.value("", s.AdditionalProperties.Schema)
		}
	}
	return out
}

// rounds is how many objects of each version are tried: 10,000 over the three kinds and two ways in a plain run.
func rounds() int {
	if os.Getenv("KARPENTER_SOAK") != "" {
		return 100_000
	}
	return 1_667
}

// twoDays is what every pool says in these tests.
func twoDays(string) (string, error) { return "48h", nil }

// Nobody loses a field by reading an object in one version and writing it back.
func TestRoundTrips(t *testing.T) {
	beta, hub := versions(t)
	for i := range beta {
		for _, way := range []struct{ from, to version }{{beta[i], hub[i]}, {hub[i], beta[i]}} {
			name := way.from.kind + " from " + way.from.apiVersion
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d := dice{rand.New(rand.NewPCG(uint64(i), 15))}
				for n := range rounds() {
					if !roundTrip(t, d.object(way.from), way.from, way.to) {
						t.Fatalf("object %d", n)
					}
				}
			})
		}
	}
}

// roundTrip checks one object there and back.
func roundTrip(t *testing.T, original tree, from, to version) bool {
	t.Helper()
	before := clone(original)
	there, err := Convert(original, strings.Split(to.apiVersion, "/")[1], twoDays)
	if err != nil {
		t.Error(err)
		return false
	}
	if !reflect.DeepEqual(before, any(original)) {
		t.Errorf("converting changed its input:\n%s", cmp.Diff(before, any(original)))
	}
	pruned := clone(there).(tree)
	pruning.Prune(pruned, to.structural, true)
	if !reflect.DeepEqual(pruned, there) {
		t.Errorf("fields that %s does not have:\n%s", to.apiVersion, cmp.Diff(pruned, there))
	}
	back, err := Convert(there, strings.Split(from.apiVersion, "/")[1], twoDays)
	if err != nil {
		t.Error(err)
		return false
	}
	if from.kind == "NodeClaim" && strings.HasSuffix(from.apiVersion, V1Beta1) {
		takeAnnotation(back, v1.V1FieldsAnnotationKey) // remembers the age that the claim got from its pool
	}
	if !reflect.DeepEqual(original, back) {
		t.Errorf("there and back (-before +after):\n%s\nby way of %s", cmp.Diff(original, back), asJSON(there))
	}
	return !t.Failed()
}
