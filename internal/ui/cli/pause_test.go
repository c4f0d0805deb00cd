package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/paused"
)

// pausable is a cluster of two pools; each has a node that is an hour old, and the first one node that is being drained.
func pausable(t *testing.T, now time.Time) client.Client {
	t.Helper()
	scheme, err := planScheme()
	if err != nil {
		t.Fatal(err)
	}
	claim := func(name, pool string) *v1.NodeClaim {
		c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.NodePoolLabelKey: pool}, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
		c.Spec.ExpireAfter = v1.MustParseNillableDuration("2h")
		c.Status.NodeName = "node-" + name
		return c
	}
	going := claim("going", "a")
	going.Finalizers, going.DeletionTimestamp = []string{v1.TerminationFinalizer}, &metav1.Time{Time: now}
	forever := claim("forever", "a")
	forever.Spec.ExpireAfter = v1.MustParseNillableDuration(v1.Never)
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", Annotations: map[string]string{"mine": "stays"}}},
		&v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"mine": "stays"}}}, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "b"}},
		claim("one", "a"), claim("two", "b"), going, forever,
	).Build()
}

// halts says for each switch how the controller reads it.
func halts(t *testing.T, c client.Client, now time.Time) string {
	t.Helper()
	var out []string
	for _, o := range append(switches(nil), switches([]string{"a", "b"})...) {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		if h, halted := paused.Read(o.GetAnnotations(), now); halted {
			out = append(out, fmt.Sprintf("%s: %s %q%s", switchName(o), timeText(h.Until), h.Reason, h.Unread))
		}
		if o.GetName() != "b" && o.GetAnnotations()["mine"] != "stays" {
			t.Errorf("%s lost an annotation", switchName(o))
		}
	}
	return strings.Join(out, "; ")
}

func TestPause(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	const drained = "being drained already, and go: node-going\n"
	for name, tc := range map[string]struct {
		stop       pauseRequest
		want, said string
	}{
		"the whole cluster until it is resumed": {pauseRequest{}, `the whole cluster:  ""`,
			"the whole cluster: no node is removed voluntarily until karpenter resume ends it\n" + drained},
		"for a time in which nodes expire": {pauseRequest{length: 2 * time.Hour, reason: "sale"}, `the whole cluster: 2026-05-01T14:00:00Z "sale"`,
			"the whole cluster: no node is removed voluntarily until 2026-05-01T14:00:00Z\n" + drained +
				"reach their expireAfter before that, and go then: node-one at 2026-05-01T13:00:00Z, node-two at 2026-05-01T13:00:00Z\n"},
		"for a time in which none does": {pauseRequest{length: time.Hour}, `the whole cluster: 2026-05-01T13:00:00Z ""`,
			"the whole cluster: no node is removed voluntarily until 2026-05-01T13:00:00Z\n" + drained},
		"one pool": {pauseRequest{pools: []string{"b"}, length: 2 * time.Hour}, `NodePool b: 2026-05-01T14:00:00Z ""`,
			"NodePool b: no node is removed voluntarily until 2026-05-01T14:00:00Z\nreach their expireAfter before that, and go then: node-two at 2026-05-01T13:00:00Z\n"},
		"two pools": {pauseRequest{pools: []string{"a", "b"}}, `NodePool a:  ""; NodePool b:  ""`,
			"NodePool a: no node is removed voluntarily until karpenter resume ends it\nNodePool b: no node is removed voluntarily until karpenter resume ends it\n" + drained},
	} {
		t.Run(name, func(t *testing.T) {
			c := pausable(t, now)
			var out bytes.Buffer
			if err := tc.stop.write(t.Context(), &out, c, now); err != nil {
				t.Fatal(err)
			}
			if got := halts(t, c, now); got != tc.want {
				t.Errorf("paused: %s, want %s", got, tc.want)
			}
			if out.String() != tc.said {
				t.Errorf("said:\n%swant:\n%s", out.String(), tc.said)
			}
		})
	}
}

// A second pause without a reason does not keep that of the first.
func TestResume(t *testing.T) {
	now := time.Now()
	c := pausable(t, now)
	for _, s := range []pauseRequest{{reason: "old"}, {}, {pools: []string{"a"}}, {pools: []string{"b"}}} {
		if err := s.write(t.Context(), &bytes.Buffer{}, c, now); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		pools      []string
		left, said string
	}{
		{[]string{"a"}, `the whole cluster:  ""; NodePool b:  ""`,
			"NodePool a: not paused any more\nthe whole cluster is still paused until karpenter resume ends it\nNodePool b is still paused until karpenter resume ends it\n"},
		{nil, `NodePool b:  ""`, "the whole cluster: not paused any more\nNodePool b is still paused until karpenter resume ends it\n"},
		{[]string{"b"}, "", "NodePool b: not paused any more\n"},
	} {
		var out bytes.Buffer
		if err := removePauses(t.Context(), &out, c, tc.pools); err != nil {
			t.Fatal(err)
		}
		if got := halts(t, c, now); got != tc.left || out.String() != tc.said {
			t.Errorf("after resume %v: paused %s, want %s; said\n%s", tc.pools, got, tc.left, out.String())
		}
	}
}

// A resume of the whole cluster ends what the breaker began, and no pause of a user.
func TestResumeEndsTheBreakersPauses(t *testing.T) {
	now := time.Now()
	c := pausable(t, now)
	if err := (pauseRequest{pools: []string{"a", "b"}}).write(t.Context(), &bytes.Buffer{}, c, now); err != nil {
		t.Fatal(err)
	}
	if err := writeAnnotations(t.Context(), c, switches([]string{"a"})[0], map[string]any{v1.PausedByAnnotationKey: v1.PausedByBreaker}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := removePauses(t.Context(), &out, c, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := halts(t, c, now), `NodePool b:  ""`; got != want {
		t.Errorf("paused %s, want %s; said\n%s", got, want, out.String())
	}
}

func TestPauseSaysWhatIsWrong(t *testing.T) {
	for args, want := range map[string]string{
		"pause default":                       "--pool",
		"pause 2h default":                    "default",
		"pause --for -1h":                     "negative",
		"pause --for soon":                    "soon",
		"resume default":                      "--pool",
		"pause --kubeconfig /no/such/file":    "/no/such/file",
		"resume --kubeconfig /no/such/file":   "/no/such/file",
		"pause --pool a --pool b --no-such-f": "no-such-f",
	} {
		var errs bytes.Buffer
		if code := Run(t.Context(), Env{Out: &bytes.Buffer{}, Err: &errs}, strings.Fields(args)); code != exitBadInput || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: code %d, %q", args, code, errs.String())
		}
	}
	if err := (pauseRequest{pools: []string{"none"}}).write(t.Context(), &bytes.Buffer{}, pausable(t, time.Now()), time.Now()); err == nil || !strings.Contains(err.Error(), "NodePool none") {
		t.Errorf("error = %v, want one that names the pool", err)
	}
}

func TestADurationMayComeFirst(t *testing.T) {
	now := time.Now()
	c := pausable(t, now)
	env := Env{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Cluster: func(string) (client.Client, error) { return c, nil }}
	if code := Run(t.Context(), env, strings.Fields("pause 2h --pool b")); code != exitFine {
		t.Fatalf("code %d, %s", code, env.Err)
	}
	pool := switches([]string{"b"})[0]
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
		t.Fatal(err)
	}
	if h, _ := paused.Read(pool.GetAnnotations(), now); h.Until.Sub(now).Round(time.Minute) != 2*time.Hour {
		t.Errorf("paused until %v", h.Until)
	}
}
