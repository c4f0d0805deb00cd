package endtoend

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

func TestARowThatThePeerWinsIsPrinted(t *testing.T) {
	result := func(side Side, dollars ...float64) Result {
		r := Result{Side: side, Scenario: "some pods: fewer", Running: time.Second, Nodes: 1, Dollars: dollars[0]}
		for i, d := range dollars {
			r.Samples = append(r.Samples, Sample{At: time.Duration(i+1) * time.Minute, Dollars: d, Evictions: i})
		}
		return r
	}
	text := Report([]Result{result(Side{Name: "ours"}, 3, 2, 2), result(Side{Name: "theirs", Peer: true}, 2, 2, 1)})
	for _, want := range []string{
		"| some pods | theirs | 1 s | 0.0 s | 0 MiB | 1 | 2.00 | **1.500** |", "| some pods: fewer | ours | 3.00 | 3.00 | 2.00 | 2.00 | 2.33 | 2 | 0 | 0.0 s | – |",
		"| some pods: fewer | theirs | 2.00 | 2.00 | 2.00 | 1.00 | 1.67 | 2 | 0 | 0.0 s | **2.000** |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}

func TestACourseIsATableOfItsOwn(t *testing.T) {
	r := Result{Side: Side{Name: "ours"}, Scenario: "pods: busy", Course: true, Samples: []Sample{{At: time.Minute, Dollars: 2, Evictions: 3}}, Waits: []time.Duration{time.Second, 2 * time.Second, 9 * time.Second}}
	text := Report([]Result{r})
	if want := "| pods: busy | ours | 2.00 | 3 | 2 s, 9 s, 9 s | 0.0 s | – |"; !strings.Contains(text, want) || strings.Contains(text, "after 3 min") {
		t.Errorf("there is no %s in\n%s", want, text)
	}
}

func TestAStormIsATableOfItsOwn(t *testing.T) {
	ours, theirs := Result{Side: Side{Name: "ours"}, Scenario: "pods, dry", Storm: true, Failed: 3, Nodes: 2, Dollars: 1}, Result{Side: Side{Name: "theirs", Peer: true}, Scenario: "pods, dry", Storm: true, Failed: 40, Nodes: 1, Dollars: 2, Running: time.Minute}
	text := Report([]Result{ours, theirs})
	for _, want := range []string{"| pods, dry | ours | 0 s | 3 | 2 | 1.00 | – |", "| pods, dry | theirs | 60 s | 40 | 1 | 2.00 | **0.500** |"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
	if text := Report([]Result{{Side: Side{Name: "ours"}, Scenario: "pods"}}); strings.Contains(text, "failed") {
		t.Errorf("a storm is told of that there was not:\n%s", text)
	}
}

func TestAClaimThatNeverHadAMachineFailed(t *testing.T) {
	f := &failed{}
	claim := &unstructured.Unstructured{Object: map[string]any{}}
	f.went(claim)
	_ = unstructured.SetNestedField(claim.Object, "kwok://a", "status", "providerID")
	f.went(claim)
	if f.count() != 1 {
		t.Errorf("%d failed, want the one without a machine", f.count())
	}
}

// TestPoolsRunOut: the switches of the model of AWS that are no business of a storm stay as they are, and the peer's file has what has run out.
func TestPoolsRunOut(t *testing.T) {
	faults := []byte(`{"Throttle": true, "Pools": [{"Match": "*/m5.*/*", "Depth": 3}]}`)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			faults, _ = io.ReadAll(r.Body)
		}
		_, _ = w.Write(faults)
	}))
	defer model.Close()
	c := &cluster{dir: t.TempDir()}
	run := fmt.Sprintf(`{"Ports": {"aws": %s}}`, model.URL[strings.LastIndex(model.URL, ":")+1:])
	if err := os.WriteFile(c.file("run.json"), []byte(run), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, pools := range map[string][]string{
		`{"Pools":[{"Depth":0,"Match":"*/c7.*/*"}],"Throttle":true}`: {"*/c7.*/*"}, `{"Pools":[],"Throttle":true}`: nil,
	} {
		if err := c.runOut(t.Context(), pools); err != nil || string(faults) != want {
			t.Errorf("error %v, faults %s, want %s", err, faults, want)
		}
	}
	c.side.Peer = true
	if err := c.runOut(t.Context(), []string{"*/c7.*/*", "*/m7.*/*"}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(c.file("scarce")); err != nil || string(text) != "*/c7.*/*\n*/m7.*/*" {
		t.Errorf("error %v, the file has %q", err, text)
	}
}

func TestTheCourseIsTheSameForBoth(t *testing.T) {
	s := Scenario{Course: course()}
	if again := course(); !slices.Equal(s.Course, again) || s.watched() < 5*time.Minute {
		t.Errorf("%d turns in %s, then %d", len(s.Course), s.watched(), len(again))
	}
	for _, x := range s.Course {
		if x.Load >= busy || x.Replicas < 1 {
			t.Errorf("turn %+v", x)
		}
	}
}

func TestAnEvictedPodIsCountedOnce(t *testing.T) {
	p := &pods{running: map[types.UID]bool{}, evicted: map[types.UID]bool{}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	p.seen(pod)
	if running, evicted := p.count(); running != 1 || evicted != 0 {
		t.Errorf("%d run, %d evicted", running, evicted)
	}
	p.seen(pod)
	if waited := p.forget(); len(waited) != 1 {
		t.Errorf("one pod began to run, %d waited", len(waited))
	}
	going := pod.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	going.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	p.seen(going)
	p.went(going)
	if running, evicted := p.count(); running != 0 || evicted != 1 {
		t.Errorf("%d run, %d evicted", running, evicted)
	}
	scaled := pod.DeepCopy()
	scaled.UID = "b"
	p.seen(scaled)
	p.went(scaled)
	if running, evicted := p.count(); running != 0 || evicted != 1 {
		t.Errorf("a pod that its owner took away counts: %d run, %d evicted", running, evicted)
	}
}

func TestANodeOfAnotherSizeIsNoticed(t *testing.T) {
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("29")}
	catalog := &cloud.Catalog{Types: []*cloud.InstanceType{{Name: "m5.large", Capacity: room, Offerings: make([]cloud.Offering, 1)}}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1.NodePoolLabelKey: poolName, corev1.LabelInstanceTypeStable: "m5.large"}}, Status: corev1.NodeStatus{Allocatable: room}}
	c := &cluster{Client: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(node).Build()}
	if err := alike(context.Background(), c, catalog); err != nil {
		t.Error(err)
	}
	node.Status.Allocatable = room.DeepCopy()
	node.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("9Gi")
	c.Client = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(node).Build()
	if err := alike(context.Background(), c, catalog); err == nil || !strings.Contains(err.Error(), "9Gi of memory") {
		t.Errorf("error = %v", err)
	}
}

func TestHowManyAreLeft(t *testing.T) {
	for want, l := range map[int]Load{1000: {Replicas: 1000}, 175: {Replicas: 500, Keep: 0.35}, 2: {Replicas: 20, Keep: 0.1}} {
		if got := l.left(); got != want {
			t.Errorf("%+v: %d left, want %d", l, got, want)
		}
	}
}
