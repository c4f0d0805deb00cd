package class

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// checkSchema lists the fields that the kubelet does not know, at any depth, or whose values have the wrong type.
func checkSchema(fields map[string]any) []string {
	document := maps.Clone(fields)
	document["apiVersion"], document["kind"] = kubelet.SchemeGroupVersion.String(), "KubeletConfiguration"
	if _, ok := document["maxPods"].(string); ok {
		document["maxPods"] = 0 // an expression; judged elsewhere
	}
	text, err := json.Marshal(document)
	if err != nil {
		return []string{err.Error()}
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(kubelet.SchemeGroupVersion, &kubelet.KubeletConfiguration{})
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	if _, _, err := decoder.Decode(text, nil, &kubelet.KubeletConfiguration{}); err != nil {
		if strict, ok := runtime.AsStrictDecodingError(err); ok {
			out := make([]string, len(strict.Errors()))
			for i, e := range strict.Errors() {
				out[i] = e.Error()
			}
			return out
		}
		return []string{strings.TrimPrefix(fmt.Sprint(err), "json: ")}
	}
	return nil
}
