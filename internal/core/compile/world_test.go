package compile

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
)

func TestRunningPodsAreCountedByNamespaceAndLabels(t *testing.T) {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		for _, p := range []struct{ namespace, name, app, node string }{
			{"a", "1", "web", "n"}, {"a", "2", "web", "n"}, {"a", "3", "web", "m"}, {"a", "4", "db", "n"},
			{"b", "1", "db", "n"}, {"b", "2", "db", "m"}, {"c", "1", "web", ""},
		} {
			d.PutPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name, Labels: map[string]string{"app": p.app}}, Spec: corev1.PodSpec{NodeName: p.node}})
		}
	})
	w := &world{snap: store.Snapshot()}
	w.readRunning()
	got := map[string]map[string]map[string]int32{}
	for ns, sets := range w.labels.sets {
		got[ns] = map[string]map[string]int32{}
		for i, l := range sets {
			on := map[string]int32{}
			for _, c := range w.running[ns][i] {
				on[c.node] += c.n
			}
			got[ns][l.Map["app"]] = on
		}
	}
	want := map[string]map[string]map[string]int32{
		"a": {"web": {"n": 2, "m": 1}, "db": {"n": 1}},
		"b": {"db": {"n": 1, "m": 1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("running = %v, want %v", got, want)
	}
}

func TestInitialisedNodesAreTheFirstBins(t *testing.T) {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		d.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		for _, name := range []string{"c", "b"} {
			d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	})
	var got []string
	for _, n := range NewMemory(apilabel.NewVocabulary(v1.Labels())).worldOf(store.Snapshot()).nodes {
		got = append(got, n.row.Name)
	}
	if want := []string{"b", "c", "a"}; !slices.Equal(got, want) {
		t.Errorf("bins = %q, want %q", got, want)
	}
}
