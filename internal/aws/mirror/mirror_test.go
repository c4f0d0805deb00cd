package mirror

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

func TestMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := awsv1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		class := func(name string) *awsv1.EC2NodeClass {
			return &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		}
		kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(class("b"), class("a")).Build()
		m := New[*awsv1.EC2NodeClass](kube, func() client.ObjectList { return &awsv1.EC2NodeClassList{} })
		var told []string
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		m.Subscribe(ctx, func(name string) { told = append(told, name) })
		done.Go(func() { m.Run(ctx) })
		if !m.WaitForSync(ctx) {
			t.Fatal("no first list")
		}
		synctest.Wait()
		names := func() (out []string) {
			for _, nc := range m.All() {
				out = append(out, nc.Name)
			}
			return out
		}
		if !slices.Equal(names(), []string{"a", "b"}) || !slices.Equal(told, []string{"a", "b"}) {
			t.Errorf("objects %v, told %v", names(), told)
		}
		a, _ := m.Get("a")
		next := a.DeepCopy()
		next.Spec.Role = "r"
		if err := kube.Update(ctx, next); err != nil {
			t.Fatal(err)
		}
		if err := kube.Delete(ctx, class("b")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if now, _ := m.Get("a"); now == a || now.Spec.Role != "r" || a.Spec.Role != "" {
			t.Error("a change did not replace the row")
		}
		if !slices.Equal(names(), []string{"a"}) || !slices.Equal(told[2:], []string{"a", "b"}) {
			t.Errorf("objects %v, told %v", names(), told)
		}
		cancel()
		done.Wait()
	})
}

func TestNoteTakesNothingBack(t *testing.T) {
	class := func(uid types.UID, version string) *awsv1.EC2NodeClass {
		return &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid, ResourceVersion: version}}
	}
	for name, tc := range map[string]struct {
		known, noted *awsv1.EC2NodeClass
		taken        bool
	}{
		"our own write":                    {class("1", "9"), class("1", "10"), true},
		"a write that the watch has shown": {class("1", "10"), class("1", "10"), true},
		"a write that somebody changed":    {class("1", "11"), class("1", "10"), false},
		"an object that is gone":           {nil, class("1", "10"), false},
		"an object that was made anew":     {class("2", "5"), class("1", "10"), false},
	} {
		m := New[*awsv1.EC2NodeClass](nil, nil)
		if tc.known != nil {
			m.put("a", &tc.known)
		}
		told := 0
		m.Subscribe(t.Context(), func(string) { told++ })
		m.Note(tc.noted)
		got, ok := m.Get("a")
		taken := ok && got.UID == tc.noted.UID && got.ResourceVersion == tc.noted.ResourceVersion && got != tc.known
		if taken != tc.taken || (told == 1) != tc.taken {
			t.Errorf("%s: taken over %v, told %d times; want %v", name, taken, told, tc.taken)
		}
	}
}
