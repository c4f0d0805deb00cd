package cli

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	o := &objects{pools: []*v1.NodePool{planned}, inFiles: map[string]bool{identity(planned): true}}
	err := o.list(t.Context(), pages{answers: map[string]string{"": `{"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}`}}, &v1.NodePoolList{})
	if err != nil {
		t.Fatal(err)
	}
	if len(o.pools) != 2 || o.pools[0] != planned || o.pools[1].Name != "b" {
		t.Errorf("pools = %v, want the planned one and b", o.pools)
	}
}
