package cli

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

func TestOrphans(t *testing.T) {
	scheme, err := planScheme()
	if err != nil {
		t.Fatal(err)
	}
	node := func(name, pool, id string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if pool != "" {
			n.Labels = map[string]string{v1.NodePoolLabelKey: pool}
		}
		n.Spec.ProviderID = id
		return n
	}
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	claim.Status.ProviderID = "id-claimed"
	for name, tc := range map[string]struct {
		decision decision
		want     string // the Nodes that are annotated
		err      string
	}{
		"one that is named":                {decision{v1.OrphanAdopt, false, []string{"lost-1"}}, "lost-1=adopt", ""},
		"all of them":                      {decision{v1.OrphanTerminate, true, nil}, "lost-1=terminate lost-2=terminate", ""},
		"not one that has a claim":         {decision{v1.OrphanTerminate, false, []string{"lost-1", "claimed"}}, "", "node claimed"},
		"not one that is not of Karpenter": {decision{v1.OrphanTerminate, false, []string{"other"}}, "", "node other"},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
				node("lost-1", "default", "id-1"), node("lost-2", "default", "id-2"), node("claimed", "default", "id-claimed"), node("other", "", "id-3"), claim,
			).Build()
			found, err := findOrphans(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			err = annotateOrphans(t.Context(), Env{Out: &bytes.Buffer{}}, c, found, tc.decision)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error = %v, want %q", err, tc.err)
			}
			var got []string
			var nodes corev1.NodeList
			if err := c.List(t.Context(), &nodes, &client.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes.Items {
				if wish := n.Annotations[v1.OrphanAnnotationKey]; wish != "" {
					got = append(got, n.Name+"="+wish)
				}
			}
			if text := strings.Join(got, " "); text != tc.want {
				t.Errorf("annotated %q, want %q", text, tc.want)
			}
		})
	}
}

func TestOrphansAreListed(t *testing.T) {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1.NodePoolLabelKey: "p"}, Annotations: map[string]string{v1.OrphanAnnotationKey: "adopt"}}}
	n.Spec.ProviderID = "id"
	var out bytes.Buffer
	if err := listOrphans(Env{Out: &out}, []corev1.Node{n}); err != nil {
		t.Fatal(err)
	}
	if want := "NODE  NODEPOOL  MACHINE  DECIDED\nn     p         id       adopt\n"; out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}

func TestOrphansNeedBothOrNeither(t *testing.T) {
	for _, args := range []string{"orphans adopt", "orphans node-1", "orphans --all"} {
		var errs bytes.Buffer
		if code := Run(t.Context(), Env{Out: &bytes.Buffer{}, Err: &errs}, strings.Fields(args)); code != exitBadInput || !strings.Contains(errs.String(), "together") {
			t.Errorf("%s: code %d, %q", args, code, errs.String())
		}
	}
}
