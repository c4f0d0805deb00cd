package lifecycle_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestNext(t *testing.T) {
	gpu := corev1.ResourceName("nvidia.com/gpu")
	startup := corev1.Taint{Key: "cni", Effect: corev1.TaintEffectNoSchedule}
	for name, tc := range map[string]struct {
		claim    *v1.NodeClaim
		nodes    []*corev1.Node
		after    time.Duration
		settings lifecycle.Settings
		needOpen bool
		want     string
	}{
		"a new claim gets the finalizer before anything else": {
			claim: claim(func(c *v1.NodeClaim) { c.Finalizers = nil }), want: "prepare",
		},
		"a claim with the finalizer is launched": {claim: claim(), want: "launch until 5m0s"},
		"a claim that was not launched after five minutes is given up": {
			claim: claim(), after: 5 * time.Minute, want: "give up launch_timeout",
		},
		"the launch timer runs from the condition, not from the creation": {
			claim: claim(set(v1.ConditionTypeLaunched, "Unknown", 4*time.Minute)), after: 6 * time.Minute, want: "launch until 9m0s",
		},
		"a launched claim waits for its node": {
			claim: claim(launched), want: "write Registered=Unknown/NodeNotFound until 15m0s",
		},
		"a claim whose node did not join after fifteen minutes is given up": {
			claim: claim(launched), after: 15 * time.Minute, want: "give up registration_timeout",
		},
		"a claim with two nodes says so and waits for somebody to solve it": {
			claim: claim(launched), nodes: []*corev1.Node{node(), node()}, after: time.Minute,
			want: "write Registered=False/MultipleNodesFound until 16m0s",
		},
		"a registered claim is never given up": {
			claim: claim(launched, registered), nodes: []*corev1.Node{node(joined)}, after: 24 * time.Hour,
			want: "write Initialized=Unknown/NodeNotReady",
		},
		"a node that joins is registered and loses the unregistered taint": {
			claim: claim(launched), nodes: []*corev1.Node{node()},
			want: "write Registered=True Initialized=Unknown/NodeNotReady, node registered, taints not-ready; reached registered opened until 10m0s",
		},
		"a node that joins without the taint is registered all the same": {
			claim: claim(launched), nodes: []*corev1.Node{node(bare)},
			want: "write Registered=True Initialized=Unknown/NodeNotReady, node registered, taints ; reached without taint registered until 10m0s",
		},
		"a ready node is registered and initialized at once": {
			claim: claim(launched), nodes: []*corev1.Node{node(bare, ready)},
			want: "write Registered=True Initialized=True, node registered initialized, taints ; reached without taint registered initialized",
		},
		"the taints of the claim come with registration": {
			claim: claim(launched, func(c *v1.NodeClaim) { c.Spec.StartupTaints = []corev1.Taint{startup} }), nodes: []*corev1.Node{node(ready)},
			want: "write Registered=True Initialized=Unknown/StartupTaintsExist, node registered, taints cni; reached registered opened until 10m0s",
		},
		"a node that asks not to have taints synced gets none": {
			claim: claim(launched, func(c *v1.NodeClaim) { c.Spec.Taints = []corev1.Taint{startup} }),
			nodes: []*corev1.Node{node(bare, ready, label(v1.NodeDoNotSyncTaintsLabelKey, "true"))},
			want:  "write Registered=True Initialized=True, node registered initialized, taints ; reached without taint registered initialized",
		},
		"any other value of that label changes nothing": {
			claim: claim(launched, func(c *v1.NodeClaim) { c.Spec.Taints = []corev1.Taint{startup} }),
			nodes: []*corev1.Node{node(bare, ready, label(v1.NodeDoNotSyncTaintsLabelKey, "yes"))},
			want:  "write Registered=True Initialized=True, node registered initialized, taints cni; reached without taint registered initialized",
		},
		"a startup taint that was taken off does not come back": {
			claim: claim(launched, func(c *v1.NodeClaim) { c.Spec.StartupTaints = []corev1.Taint{startup} }),
			nodes: []*corev1.Node{node(joined, ready)},
			want:  "write Registered=True Initialized=True, node registered initialized, taints ; reached registered initialized",
		},
		"a taint that a node loses by itself delays initialization": {
			claim: claim(launched, registered), nodes: []*corev1.Node{node(joined, ready, taint("readiness.k8s.io/network", corev1.TaintEffectNoSchedule))},
			want: "write Initialized=Unknown/KnownEphemeralTaintsExist until 10m0s",
		},
		"but is not worth a write while the node has hardly become ready": {
			claim: claim(launched, registered), nodes: []*corev1.Node{node(joined, ready, taint("readiness.k8s.io/network", corev1.TaintEffectNoSchedule), func(n *corev1.Node) {
				n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(time.Minute))
			})},
			after: time.Minute + time.Second, want: "wait until 1m3s",
		},
		"a requested resource that the node does not offer yet delays initialization": {
			claim: claim(launched, registered, func(c *v1.NodeClaim) {
				c.Spec.Resources.Requests = corev1.ResourceList{gpu: resource.MustParse("1"), "zero": resource.MustParse("0")}
			}),
			nodes: []*corev1.Node{node(joined, ready)}, want: "write Initialized=Unknown/ResourceNotRegistered until 10m0s",
		},
		"an initialized claim needs nothing, even if its node is not ready any more": {
			claim: claim(launched, registered, initialized), nodes: []*corev1.Node{node(joined, was)}, want: "wait",
		},
		"an initialized claim keeps a taint that comes back": {
			claim: claim(launched, registered, initialized),
			nodes: []*corev1.Node{node(joined, was, ready, taint(v1.UnregisteredTaintKey, corev1.TaintEffectNoExecute))}, after: time.Hour, want: "wait",
		},
		"a Node that a kubelet made anew joins again": {
			claim: claim(launched, registered, initialized), nodes: []*corev1.Node{node(ready)}, after: time.Hour,
			want: "write, node registered initialized, taints ; reached registered opened initialized",
		},
		"a Node that a kubelet made anew joins before it is ready, and its claim stays what it was": {
			claim: claim(launched, registered, initialized), nodes: []*corev1.Node{node()}, after: time.Hour,
			want: "write, node registered, taints not-ready; reached registered opened",
		},
		"a Node that joined again waits until it is ready": {
			claim: claim(launched, registered, initialized), nodes: []*corev1.Node{node(joined)}, after: time.Hour, want: "wait",
		},
		"a Node that joined again is initialized when it is ready": {
			claim: claim(launched, registered, initialized), nodes: []*corev1.Node{node(joined, ready)}, after: time.Hour,
			want: "write, node registered initialized, taints ; reached initialized",
		},
		"a Node that is shown as it was before it joined does not join again": {
			claim: claim(launched, registered, initialized), nodes: []*corev1.Node{node(ready)}, after: time.Minute - 1, want: "wait until 1m0s",
		},
		"a Node that came without the taint was registered once": {
			claim: claim(launched, registered), nodes: []*corev1.Node{node(bare)}, after: time.Hour, want: "write Initialized=Unknown/NodeNotReady",
		},
		"a Node that was made anew and goes is left alone": {
			claim: claim(launched, registered, initialized), nodes: []*corev1.Node{node(ready, func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: start} })},
			after: time.Hour, want: "wait",
		},
		"two Nodes of which one was made anew are left alone": {
			claim: claim(launched, registered, initialized), nodes: []*corev1.Node{node(ready), node(joined, was, ready)}, after: time.Hour, want: "wait",
		},
		"the node of a registered claim that vanished is reported": {
			claim: claim(launched, registered), want: "write Initialized=Unknown/NodeNotFound until 10m0s",
		},
		"a held taint stays until the node is ready": {
			claim: claim(launched), nodes: []*corev1.Node{node()}, settings: lifecycle.Settings{HoldTaint: time.Minute},
			want: "write Registered=True Initialized=Unknown/NodeNotReady, node registered, taints unregistered not-ready; reached registered until 1m0s",
		},
		"a taint that would keep the network away is not held": {
			claim: claim(launched), nodes: []*corev1.Node{node()}, settings: lifecycle.Settings{HoldTaint: time.Minute}, needOpen: true,
			want: "write Registered=True Initialized=Unknown/NodeNotReady, node registered, taints not-ready; reached registered opened until 10m0s",
		},
		"a held taint goes when nothing else keeps pods away": {
			claim: claim(launched, registered), nodes: []*corev1.Node{node(joined, bare, ready, taint(v1.UnregisteredTaintKey, corev1.TaintEffectNoExecute))},
			settings: lifecycle.Settings{HoldTaint: time.Minute},
			want:     "write Initialized=True, node registered initialized, taints ; reached opened initialized",
		},
		"a held taint goes after its time, so that nothing that needs it gone waits for ever": {
			claim: claim(launched, registered), nodes: []*corev1.Node{node(joined, bare, taint(v1.UnregisteredTaintKey, corev1.TaintEffectNoExecute))},
			settings: lifecycle.Settings{HoldTaint: time.Minute}, after: time.Minute,
			want: "write Initialized=Unknown/NodeNotReady, node registered, taints ; reached opened until 10m0s",
		},
		"a crash after the node was written and before the claim was is made good": {
			claim: claim(launched), nodes: []*corev1.Node{node(joined)},
			want: "write Registered=True Initialized=Unknown/NodeNotReady; reached registered until 10m0s",
		},
		"conditions that are final follow the generation": {
			claim: claim(launched, registered, initialized, func(c *v1.NodeClaim) { c.Generation = 2 }), nodes: []*corev1.Node{node(joined, was, ready)},
			want: "write",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.claim.DeepCopy()
			now := start.Add(tc.after)
			step := lifecycle.Next(lifecycle.View{Claim: tc.claim, Nodes: tc.nodes, NeedsOpenNode: tc.needOpen}, now, tc.settings)
			if got := describe(step, before); got != tc.want {
				t.Errorf("step = %s\n   want  %s", got, tc.want)
			}
			if diff := cmp.Diff(before, tc.claim); diff != "" {
				t.Errorf("Next changed the claim:\n%s", diff)
			}
		})
	}
}

func TestNextIsSettledAfterItsOwnStep(t *testing.T) {
	c, n := claim(launched), node(bare, ready)
	step := lifecycle.Next(lifecycle.View{Claim: c, Nodes: []*corev1.Node{n}}, start, lifecycle.Settings{})
	again := lifecycle.Next(lifecycle.View{Claim: step.Claim, Nodes: []*corev1.Node{step.Node}}, start.Add(time.Hour), lifecycle.Settings{})
	if got := describe(again, step.Claim); got != "wait" {
		t.Errorf("after its own step: %s, want wait", got)
	}
}

func TestJoinedNodeCarriesWhatTheClaimSays(t *testing.T) {
	c := claim(launched, func(c *v1.NodeClaim) {
		c.Labels = map[string]string{"team": "a", v1.NodePoolLabelKey: "default"}
		c.Annotations = map[string]string{"note": "x", v1.LaunchTokenAnnotationKey: "2", v1.DisruptionCommandAnnotationKey: "{}"}
		c.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "b", Effect: corev1.TaintEffectNoSchedule}}
	})
	n := node(label("team", "old"), taint("dedicated", corev1.TaintEffectNoSchedule))
	lifecycle.Join(n, c)
	lifecycle.Join(n, c) // again, after a crash
	if n.Labels["team"] != "a" || n.Labels[v1.NodePoolLabelKey] != "default" || n.Annotations["note"] != "x" {
		t.Errorf("labels %v, annotations %v", n.Labels, n.Annotations)
	}
	for _, key := range []string{v1.LaunchTokenAnnotationKey, v1.DisruptionCommandAnnotationKey} {
		if _, ok := n.Annotations[key]; ok {
			t.Errorf("%s, which is the claim's own, is on the node", key)
		}
	}
	if len(n.Finalizers) != 1 || len(n.OwnerReferences) != 1 || n.OwnerReferences[0].UID != c.UID {
		t.Errorf("finalizers %v, owners %v, want one of each", n.Finalizers, n.OwnerReferences)
	}
	dedicated := 0
	for _, taint := range n.Spec.Taints {
		if taint.Key == "dedicated" {
			dedicated++
		}
	}
	if dedicated != 1 {
		t.Errorf("taints %v: key and effect must be there once", n.Spec.Taints)
	}
}

func TestLaunchedTakesTheMachinesWord(t *testing.T) {
	c := claim(func(c *v1.NodeClaim) {
		c.Labels = map[string]string{"team": "a", "both": "claim"}
		c.Annotations = map[string]string{"both": "claim"}
		c.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
			{Key: "custom", Operator: "In", Values: []string{"one"}}, {Key: "many", Operator: "In", Values: []string{"a", "b"}},
			{Key: corev1.LabelHostname, Operator: "In", Values: []string{"h"}},
		}
	})
	before := c.DeepCopy()
	got := lifecycle.Launched(c, cloud.Machine{
		ProviderID: "id", ImageID: "ami", Labels: map[string]string{"zone": "z", "both": "cloud"}, Annotations: map[string]string{"both": "cloud"},
	}, start, sentence.Lack)
	if diff := cmp.Diff(map[string]string{"team": "a", "both": "claim", "zone": "z", "custom": "one"}, got.Labels); diff != "" {
		t.Errorf("labels: %s", diff)
	}
	if again := lifecycle.Next(lifecycle.View{Claim: got}, start.Add(time.Minute), lifecycle.Settings{Words: sentence.Lack}); again.Kind != lifecycle.Prepare && again.Kind != lifecycle.Wait {
		t.Errorf("after the launch: %s, want that everything is said already", describe(again, got))
	}
	if diff := cmp.Diff(before, c); diff != "" {
		t.Errorf("the claim that was launched was changed: %s", diff)
	}
	if got.Annotations["both"] != "cloud" || got.Status.ProviderID != "id" || got.Status.ImageID != "ami" || !condition.IsTrue(got, v1.ConditionTypeLaunched) {
		t.Errorf("claim = %+v", got)
	}
}

func TestFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"no capacity gives the claim up":             {fmt.Errorf("launch: %w", &cloud.NoCapacityError{Err: errors.New("dry")}), "give up insufficient_capacity"},
		"a node class that is not ready gives it up": {&cloud.ClassNotReadyError{Err: errors.New("x")}, "give up nodeclass_not_ready"},
		"one that nobody has judged yet is waited for, with the same token": {
			fmt.Errorf("launch: %w", &cloud.ClassNotReadyError{Err: errors.New("not looked at"), Unjudged: true}), v1.ReasonNodeClassReadinessUnknown + ": launch: node class not ready: not looked at, token ",
		},
		"a refusal is told with its reason, and the next launch is a new one": {
			fmt.Errorf("launch: %w", &cloud.LaunchError{Reason: "Denied", Message: "may not", Err: errors.New("403")}), "Denied: may not, token 1",
		},
		"an unknown outcome is asked for again with the same token": {errors.New("connection reset"), "LaunchFailed: connection reset, token "},
		"a long error is cut":            {errors.New(strings.Repeat("x", 300)), "LaunchFailed: " + strings.Repeat("x", 300) + "..., token "},
		"an error that just fits is not": {errors.New(strings.Repeat("x", 299)), "LaunchFailed: " + strings.Repeat("x", 299) + ", token "},
	} {
		t.Run(name, func(t *testing.T) {
			f := lifecycle.Failed(claim(), tc.err, start)
			got := "give up " + string(f.GiveUp)
			if f.GiveUp == "" {
				c := condition.Get(f.Claim, v1.ConditionTypeLaunched)
				got = fmt.Sprintf("%s: %s, token %s", c.Reason, c.Message, f.Claim.Annotations[v1.LaunchTokenAnnotationKey])
				if c.Status != "Unknown" {
					t.Errorf("Launched is %s; only Unknown is tried again", c.Status)
				}
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestEnd(t *testing.T) {
	grace := func(c *v1.NodeClaim) { c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour} }
	leaving := node(joined)
	leaving.DeletionTimestamp = &metav1.Time{Time: start}
	for name, tc := range map[string]struct {
		claim *v1.NodeClaim
		nodes []*corev1.Node
		want  lifecycle.Ending
	}{
		"a claim without our finalizer is not ours to end": {claim(launched, func(c *v1.NodeClaim) { c.Finalizers = nil }), nil, lifecycle.Nothing},
		"a grace period is written down first":             {claim(launched, registered, grace), []*corev1.Node{node(joined)}, lifecycle.Stamp},
		"a deadline that stands is kept": {
			lifecycle.WithDeadline(claim(launched, registered, grace), start), []*corev1.Node{node(joined)}, lifecycle.DeleteNodes,
		},
		"every node goes before the machine does": {claim(launched, registered), []*corev1.Node{leaving, node(joined)}, lifecycle.DeleteNodes},
		"nodes that are leaving are waited for":   {claim(launched, registered), []*corev1.Node{leaving}, lifecycle.AwaitNodes},
		"without nodes the machine is stopped":    {claim(launched, registered), nil, lifecycle.StopMachine},
		"a node that was opened before a crash is drained, though its claim does not say that it registered": {
			claim(launched), []*corev1.Node{node(func(n *corev1.Node) { n.Labels = map[string]string{v1.NodeRegisteredLabelKey: "true"} })}, lifecycle.DeleteNodes,
		},
		"the node of a claim that never registered is left":   {claim(launched), []*corev1.Node{node()}, lifecycle.StopMachine},
		"a claim that was never launched has nothing to stop": {claim(), nil, lifecycle.Finish},
	} {
		t.Run(name, func(t *testing.T) {
			tc.claim.DeletionTimestamp = &metav1.Time{Time: start}
			if got := lifecycle.End(lifecycle.View{Claim: tc.claim, Nodes: tc.nodes}); got != tc.want {
				t.Errorf("End = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestOrphaned(t *testing.T) {
	old := cloud.Machine{ProviderID: "id", ClaimName: "c", Created: start.Add(-time.Minute)}
	leaving := claim()
	leaving.DeletionTimestamp = &metav1.Time{Time: start}
	for name, tc := range map[string]struct {
		machine      cloud.Machine
		byID, byName *v1.NodeClaim
		want         bool
	}{
		"a machine with its claim is none":                         {old, claim(launched), claim(launched), false},
		"a machine that no claim knows is one":                     {old, nil, nil, true},
		"a young machine may still be written down":                {cloud.Machine{Created: start.Add(-29 * time.Second)}, nil, nil, false},
		"a machine whose claim has no machine yet will be adopted": {old, nil, claim(), false},
		"a second machine of a claim is one":                       {old, nil, claim(launched), true},
		"a claim that is being deleted adopts nothing":             {old, nil, leaving, true},
		"a machine that is stopping is left alone":                 {cloud.Machine{Deleting: true}, nil, nil, false},
		"a machine that a launch waits for gets its claim yet":     {cloud.Machine{Awaited: true}, nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lifecycle.Orphaned(tc.machine, tc.byID, tc.byName, start); got != tc.want {
				t.Errorf("Orphaned = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	for name, tc := range map[string]struct {
		outcomes string // + and -
		want     lifecycle.Verdict
	}{
		"nothing is known of a new pool":             {"", lifecycle.NothingKnown},
		"one success is enough":                      {"+", lifecycle.Healthy},
		"one failure says little":                    {"-", lifecycle.Healthy},
		"two failures say enough":                    {"--", lifecycle.Unhealthy},
		"also with a success between them":           {"-+-", lifecycle.Unhealthy},
		"what was long ago does not count any more":  {"--+++", lifecycle.Healthy},
		"two failures count while they are recalled": {"--++", lifecycle.Unhealthy},
	} {
		t.Run(name, func(t *testing.T) {
			var h lifecycle.Health
			for _, o := range tc.outcomes {
				h = h.With(o == '+')
			}
			if got := h.Verdict(); got != tc.want {
				t.Errorf("verdict = %d, want %d", got, tc.want)
			}
		})
	}
	if lifecycle.HealthOf(lifecycle.Unhealthy).With(true).Verdict() != lifecycle.Unhealthy {
		t.Error("after a restart an unhealthy pool became healthy with one success")
	}
}

// describe tells a step in words. Only conditions that changed are named.
func describe(s lifecycle.Step, before *v1.NodeClaim) string {
	switch s.Kind {
	case lifecycle.Prepare:
		return "prepare"
	case lifecycle.Launch:
		return "launch" + until(s)
	case lifecycle.GiveUp:
		return "give up " + string(s.Reason)
	case lifecycle.Wait:
		return "wait" + until(s)
	case lifecycle.Reboot:
		return "reboot" + until(s)
	}
	out := "write"
	if s.Claim != nil {
		for _, kind := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized} {
			was, is := condition.Get(before, kind), condition.Get(s.Claim, kind)
			if was != nil && was.Status == is.Status && was.Reason == is.Reason || was == nil && is.Reason == v1.ReasonAwaitingReconciliation {
				continue
			}
			out += " " + kind + "=" + string(is.Status)
			if is.Status != "True" {
				out += "/" + is.Reason
			}
		}
	}
	if s.Node != nil {
		out += ", node"
		if s.Node.Labels[v1.NodeRegisteredLabelKey] == "true" {
			out += " registered"
		}
		if s.Node.Labels[v1.NodeInitializedLabelKey] == "true" {
			out += " initialized"
		}
		var taints []string
		for _, t := range s.Node.Spec.Taints {
			taints = append(taints, t.Key[strings.LastIndex(t.Key, "/")+1:])
		}
		out += ", taints " + strings.Join(taints, " ")
	}
	if len(s.Reached) > 0 {
		names := map[lifecycle.Milestone]string{
			lifecycle.Registered: "registered", lifecycle.RegisteredWithoutTaint: "without taint", lifecycle.Opened: "opened", lifecycle.Initialized: "initialized",
			lifecycle.RebootObserved: "observed",
		}
		out += "; reached"
		for _, m := range s.Reached {
			out += " " + names[m]
		}
	}
	return out + until(s)
}

func until(s lifecycle.Step) string {
	if s.Until.IsZero() {
		return ""
	}
	return " until " + s.Until.Sub(start).String()
}

func claim(edits ...func(*v1.NodeClaim)) *v1.NodeClaim {
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "c", UID: "claim-uid", Generation: 1, Finalizers: []string{v1.TerminationFinalizer}, CreationTimestamp: metav1.NewTime(start),
	}}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func set(conditionType string, status metav1.ConditionStatus, after time.Duration) func(*v1.NodeClaim) {
	return func(c *v1.NodeClaim) {
		condition.Set(c, metav1.Condition{Type: conditionType, Status: status, Reason: conditionType}, start.Add(after))
	}
}

func launched(c *v1.NodeClaim) {
	set(v1.ConditionTypeLaunched, "True", 0)(c)
	c.Status.ProviderID = "id"
}

func registered(c *v1.NodeClaim) {
	set(v1.ConditionTypeRegistered, "True", 0)(c)
	c.Status.NodeName = "n"
}

func initialized(c *v1.NodeClaim) { set(v1.ConditionTypeInitialized, "True", 0)(c) }

// node is one that has just joined: not ready, with the taints that go with it.
func node(edits ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	n.Spec.ProviderID = "id"
	n.Spec.Taints = []corev1.Taint{v1.UnregisteredTaint(), {Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
	for _, edit := range edits {
		edit(n)
	}
	return n
}

func bare(n *corev1.Node) { n.Spec.Taints = nil }

// joined nodes are what Join makes of them.
func joined(n *corev1.Node) {
	n.Spec.Taints = nil
	lifecycle.Join(n, claim(launched))
}

// was is a node that has been initialized.
func was(n *corev1.Node) { label(v1.NodeInitializedLabelKey, "true")(n) }

func ready(n *corev1.Node) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	var kept []corev1.Taint
	for _, t := range n.Spec.Taints {
		if t.Key != corev1.TaintNodeNotReady {
			kept = append(kept, t)
		}
	}
	n.Spec.Taints = kept
}

func label(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, key, value) }
}

func taint(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

func TestNeedsOpenNode(t *testing.T) {
	for name, tc := range map[string]struct {
		hostNetwork bool
		tolerations []corev1.Toleration
		want        bool
	}{
		"pods that wait for the network themselves": {want: false},
		"a network that runs anywhere":              {true, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, false},
		"a network that stays away": {true, []corev1.Toleration{
			{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, {Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists},
		}, true},
		"a network that knows our taint": {true, []corev1.Toleration{{Key: v1.UnregisteredTaintKey, Operator: corev1.TolerationOpExists}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ds := &appsv1.DaemonSet{}
			ds.Spec.Template.Spec = corev1.PodSpec{HostNetwork: tc.hostNetwork, Tolerations: tc.tolerations}
			if got := lifecycle.NeedsOpenNode(ds); got != tc.want {
				t.Errorf("needs an open node: %v, want %v", got, tc.want)
			}
		})
	}
}

// Reasons are values of labels: queries ask for them.
func TestReasonsAreWhatQueriesKnow(t *testing.T) {
	got := []lifecycle.Reason{
		lifecycle.InsufficientCapacity, lifecycle.NodeClassNotReady, lifecycle.LaunchTimeout, lifecycle.RegistrationTimeout, lifecycle.Expired, lifecycle.GarbageCollected,
	}
	want := []lifecycle.Reason{"insufficient_capacity", "nodeclass_not_ready", "launch_timeout", "registration_timeout", "expired", "garbage_collected"}
	if !slices.Equal(got, want) {
		t.Errorf("reasons = %q, want %q", got, want)
	}
}
