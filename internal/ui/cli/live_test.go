package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// pages answers list calls page by page, and decodes each into the caller's list as a client of the API server does.
type pages struct {
	client.Reader
	answers map[string]string // by continue token
}

func (p pages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	return json.Unmarshal([]byte(p.answers[o.Continue]), list)
}

func TestObjectsOfEveryPageAreRead(t *testing.T) {
	o := &objects{}
	err := o.list(t.Context(), pages{answers: map[string]string{
		"":  `{"metadata": {"continue": "2"}, "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}`,
		"2": `{"metadata": {"continue": "3"}, "items": [{"metadata": {"name": "c"}}]}`,
		"3": `{"items": [{"metadata": {"name": "d"}}]}`,
	}}, &v1.NodePoolList{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range o.pools {
		got = append(got, p.Name)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "d"}, got); diff != "" {
		t.Error(diff)
	}
}

// A pool in a file and in the cluster is one pool: the file says what it is to become.
func TestFilesGoBeforeTheCluster(t *testing.T) {
	planned := &v1.NodePool{}
	planned.Name, planned.Spec.Weight = "a", new(int32(7))
	o := &objects{pools: []*v1.NodePool{planned}, inFiles: map[string]bool{objectKey(planned): true}}
	err := o.list(t.Context(), pages{answers: map[string]string{"": `{"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}`}}, &v1.NodePoolList{})
	if err != nil {
		t.Fatal(err)
	}
	if len(o.pools) != 2 || o.pools[0] != planned || o.pools[1].Name != "b" {
		t.Errorf("pools = %v, want the planned one and b", o.pools)
	}
}

// Pods that a Deployment of a file has in the cluster already are not planned again.
func TestPodsOfTheClusterCount(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "of the file"}}
	d.Spec.Replicas = new(int32(5))
	o := &objects{apps: workloads{deployments: []*appsv1.Deployment{d}}, inFiles: map[string]bool{objectKey(d): true}}
	owner := func(kind, name string) string {
		return fmt.Sprintf(`"namespace": "default", "ownerReferences": [{"apiVersion": "apps/v1", "kind": %q, "name": %q, "uid": "uid of %s", "controller": true}]`, kind, name, name)
	}
	for _, page := range []struct {
		list  client.ObjectList
		items string
	}{
		{&appsv1.ReplicaSetList{}, `{"metadata": {"name": "web-1", "uid": "uid of web-1", ` + owner("Deployment", "web") + `}},
			{"metadata": {"name": "alone", "namespace": "default"}, "spec": {"replicas": 9}}`},
		{&corev1.PodList{}, `{"metadata": {"name": "web-1-a", ` + owner("ReplicaSet", "web-1") + `}}, {"metadata": {"name": "web-1-b", ` + owner("ReplicaSet", "web-1") + `}},
			{"metadata": {"name": "other", ` + owner("ReplicaSet", "other-1") + `}}`},
	} {
		if err := o.list(t.Context(), pages{answers: map[string]string{"": `{"items": [` + page.items + `]}`}}, page.list); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.expand(mostPods); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range o.pods {
		got = append(got, p.Name)
	}
	if diff := cmp.Diff([]string{"web-1-a", "web-1-b", "other", "web-0", "web-1", "web-2"}, got); diff != "" {
		t.Error(diff)
	}
}

// What there is of devices is read page by page like everything else, and a server that does not know them has none.
func TestDevicesOfAClusterAreRead(t *testing.T) {
	o := &objects{}
	if err := o.readDevices(t.Context(), pages{answers: map[string]string{"": `{"items": [{"metadata": {"name": "a", "namespace": "default"}}]}`}}); err != nil {
		t.Fatal(err)
	}
	if len(o.resourceClaims) != 1 || len(o.claimTemplates) != 1 || len(o.deviceClasses) != 1 || len(o.resourceSlices) != 1 {
		t.Errorf("read %+v, want one of each kind", o.deviceObjects)
	}
	unknown := refusing{err: &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "resource.k8s.io", Kind: "DeviceClass"}}}
	if err := (&objects{}).readDevices(t.Context(), unknown); err != nil {
		t.Errorf("a server without devices: %v", err)
	}
	if err := (&objects{}).readDevices(t.Context(), refusing{err: errors.New("forbidden")}); err == nil {
		t.Error("devices that may not be read count as none")
	}
}

// refusing answers no list.
type refusing struct {
	client.Reader
	err error
}

func (r refusing) List(context.Context, client.ObjectList, ...client.ListOption) error { return r.err }
