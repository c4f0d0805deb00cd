package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// However many processors read a file, its objects and what is wrong with it come in the order in which they stand there.
func TestAFileIsReadInOrder(t *testing.T) {
	var text strings.Builder
	var want, wrong []string
	for i := range 300 {
		name := fmt.Sprintf("map-%03d", i)
		switch i % 10 {
		case 3:
			fmt.Fprintf(&text, "---\nkind: ConfigMap\nmetadata: {name: %s}\n", name)
			wrong = append(wrong, fmt.Sprintf("maps.yaml:%d: the object has no apiVersion or no kind; add both", 1+strings.Count(text.String(), "\n")-3))
		case 7:
			fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {host: a}\n", name)
			want = append(want, name)
		default:
			fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n", name)
			want = append(want, name)
		}
	}
	docs, err := parse("maps.yaml", []byte(text.String()))
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, wrong) {
		t.Errorf("errors %q, want %q", got, wrong)
	}
	var names []string
	for _, d := range docs {
		names = append(names, d.obj.GetName())
	}
	if !slices.Equal(names, want) {
		t.Errorf("objects %q, want %q", names, want)
	}
	all, err := typed(t.Context(), docs)
	unknown := strings.Split(err.Error(), "\n")
	if len(unknown) != 30 || !slices.IsSortedFunc(unknown, byLine) {
		t.Errorf("unknown fields: %q", unknown)
	}
	if len(all.pods) != 240 || !slices.IsSortedFunc(all.pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d pods, want 240 in order", len(all.pods))
	}
}

// byLine compares errors by the line that they name.
func byLine(a, b string) int {
	var x, y int
	_, _ = fmt.Sscanf(a, "maps.yaml:%d:", &x)
	_, _ = fmt.Sscanf(b, "maps.yaml:%d:", &y)
	return x - y
}

// BenchmarkRead reads as many pods as a GPU cluster of a known trace has, as kubectl prints them, up to what the engine is asked.
func BenchmarkRead(b *testing.B) {
	var text strings.Builder
	for i := range 8152 {
		fmt.Fprintf(&text, `---
apiVersion: v1
kind: Pod
metadata:
  name: pod-%04d
  namespace: default
  labels: {app: "%d"}
spec:
  containers:
    - name: main
      image: registry.k8s.io/pause:3.10
      resources:
        requests:
          cpu: %dm
          memory: 4Gi
`, i, i%103, 100+i%103*10)
	}
	for b.Loop() {
		docs, err := parse("pods.yaml", []byte(text.String()))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := typed(b.Context(), docs); err != nil {
			b.Fatal(err)
		}
	}
}
