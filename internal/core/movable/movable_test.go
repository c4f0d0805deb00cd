package movable_test

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/movable"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type edit = func(*corev1.Pod)

// pod is a row as the store makes it: a running pod of a ReplicaSet that started a minute ago.
func pod(edits ...edit) *cluster.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p", Labels: map[string]string{"app": "web"}}}
	p.Spec.NodeName = "n"
	p.Status.Phase = corev1.PodRunning
	p.Status.StartTime = new(metav1.NewTime(now.Add(-time.Minute)))
	owned("apps/v1", "ReplicaSet")(p)
	for _, e := range edits {
		e(p)
	}
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) { d.PutPod(p) })
	return store.Snapshot().Pod(cluster.PodKey{Namespace: p.Namespace, Name: p.Name})
}

func owned(version, kind string) edit {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "o", UID: types.UID("o"), Controller: new(true)}}
	}
}

func ownerless(p *corev1.Pod) { p.OwnerReferences = nil }
func failed(p *corev1.Pod)    { p.Status.Phase = corev1.PodFailed }
func succeeded(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
func unstarted(p *corev1.Pod) { p.Status.StartTime = nil }

// ending pods have to be gone by then.
func ending(in time.Duration) edit {
	return func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now.Add(in)} }
}

func protected(value string) edit {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: value} }
}

func tolerates(t corev1.Toleration) edit {
	return func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{t} }
}

func ready(s corev1.ConditionStatus) edit {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: s}}
	}
}

var (
	deployment  = owned("apps/v1", "ReplicaSet")
	statefulSet = owned("apps/v1", "StatefulSet")
	daemonSet   = owned("apps/v1", "DaemonSet")
	mirror      = owned("v1", "Node")
	anything    = tolerates(corev1.Toleration{Operator: corev1.TolerationOpExists})
)

// TestWhatPodsAre is the table of predicates of the specification.
func TestWhatPodsAre(t *testing.T) {
	type is struct{ Reschedulable, Evictable, Drainable, WaitingEviction bool }
	for name, tc := range map[string]struct {
		edits []edit
		want  is
	}{
		"a running pod":                                           {nil, is{true, true, true, true}},
		"a pod without an owner":                                  {[]edit{ownerless}, is{true, true, true, true}},
		"a pod of a StatefulSet":                                  {[]edit{statefulSet}, is{true, true, true, true}},
		"a pod of a DaemonSet needs no other home":                {[]edit{daemonSet}, is{false, true, true, true}},
		"a pod of somebody else's DaemonSet is an ordinary one":   {[]edit{owned("example.com/v1", "DaemonSet")}, is{true, true, true, true}},
		"a mirror pod belongs to its node":                        {[]edit{mirror}, is{}},
		"a pod that succeeded":                                    {[]edit{succeeded}, is{Drainable: true}},
		"a pod that failed":                                       {[]edit{failed}, is{Drainable: true}},
		"a stopping pod of a Deployment is replaced already":      {[]edit{deployment, ending(time.Minute)}, is{Drainable: true, WaitingEviction: true}},
		"a stopping pod of a StatefulSet comes back":              {[]edit{statefulSet, ending(time.Minute)}, is{Reschedulable: true, Drainable: true, WaitingEviction: true}},
		"one that has ended and stops comes back, too":            {[]edit{statefulSet, failed, ending(time.Minute)}, is{Reschedulable: true, Drainable: true}},
		"one that has ended and is not told to stop is not moved": {[]edit{statefulSet, failed}, is{Drainable: true}},
		"a pod that should have ended a minute ago is waited for": {[]edit{ending(-time.Minute)}, is{Drainable: true, WaitingEviction: true}},
		"a second later it is not":                                {[]edit{ending(-61 * time.Second)}, is{}},
		"a protected pod is waited for and not evicted":           {[]edit{protected("true")}, is{true, false, true, true}},
		"a pod that tolerates everything stays to the end":        {[]edit{anything}, is{Reschedulable: true}},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(tc.edits...)
			got := is{movable.Reschedulable(p), movable.Evictable(p, now), movable.Drainable(p, now), movable.WaitingEviction(p, now)}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestToleratesDisrupted(t *testing.T) {
	for name, tc := range map[string]struct {
		toleration corev1.Toleration
		want       bool
	}{
		"everything":                         {corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		"every taint that keeps pods out":    {corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, true},
		"every taint that throws pods out":   {corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}, false},
		"the taint, whatever its value":      {corev1.Toleration{Key: v1.DisruptedTaintKey, Operator: corev1.TolerationOpExists}, true},
		"the taint with no value":            {corev1.Toleration{Key: v1.DisruptedTaintKey, Operator: corev1.TolerationOpEqual}, true},
		"the taint, and equality by default": {corev1.Toleration{Key: v1.DisruptedTaintKey}, true},
		"the taint with a value":             {corev1.Toleration{Key: v1.DisruptedTaintKey, Operator: corev1.TolerationOpEqual, Value: "true"}, false},
		"a cordoned node":                    {corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}, false},
		"the taint, above a number":          {corev1.Toleration{Key: v1.DisruptedTaintKey, Operator: "Gt", Value: "1"}, false},
		"no key and a value":                 {corev1.Toleration{Operator: corev1.TolerationOpEqual}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := movable.ToleratesDisrupted(pod(tolerates(tc.toleration))); got != tc.want {
				t.Errorf("ToleratesDisrupted = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestProtected(t *testing.T) {
	held := func(until time.Duration) movable.Protection {
		return movable.Protection{Held: true, Until: now.Add(until)}
	}
	for name, tc := range map[string]struct {
		edits []edit
		want  movable.Protection
	}{
		"no annotation":                               {nil, movable.Protection{}},
		"true holds for ever":                         {[]edit{protected("true")}, movable.Protection{Held: true}},
		"true in other letters means nothing":         {[]edit{protected("True")}, movable.Protection{Invalid: true}},
		"false means nothing":                         {[]edit{protected("false")}, movable.Protection{Invalid: true}},
		"a duration counts from the start of the pod": {[]edit{protected("1h30m")}, held(89 * time.Minute)},
		"until it is over":                            {[]edit{protected("60s")}, movable.Protection{Elapsed: true}},
		"and not a moment earlier":                    {[]edit{protected("61s")}, held(time.Second)},
		"a pod that has not started is held":          {[]edit{protected("1s"), unstarted}, movable.Protection{Held: true}},
		"no time at all means nothing":                {[]edit{protected("0s")}, movable.Protection{Invalid: true}},
		"less than nothing neither":                   {[]edit{protected("-1h")}, movable.Protection{Invalid: true}},
		"nor does a number without a unit":            {[]edit{protected("30")}, movable.Protection{Invalid: true}},
		"a pod that has ended is not protected":       {[]edit{protected("true"), succeeded}, movable.Protection{}},
		"nor is one that stops":                       {[]edit{protected("1h"), ending(time.Minute)}, movable.Protection{}},
		"a pod of a DaemonSet is":                     {[]edit{protected("true"), daemonSet}, movable.Protection{Held: true}},
		"and a mirror pod":                            {[]edit{protected("true"), mirror}, movable.Protection{Held: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := movable.Protected(pod(tc.edits...), now); got != tc.want {
				t.Errorf("Protected = %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestEvictionCost(t *testing.T) {
	cost := func(text string) edit {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: text} }
	}
	own := func(text, kubernetes string) edit {
		return func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1.DisruptionCostAnnotationKey: text, corev1.PodDeletionCost: kubernetes}
		}
	}
	priority := func(n int32) edit { return func(p *corev1.Pod) { p.Spec.Priority = &n } }
	for name, tc := range map[string]struct {
		edits []edit
		want  float64
	}{
		"an ordinary pod":                      {nil, 1},
		"a deletion cost":                      {[]edit{cost("134217728")}, 2},
		"a negative one":                       {[]edit{cost("-268435456")}, -1},
		"a fraction, which is no number here":  {[]edit{cost("67108864.0")}, 1},
		"Karpenter's own annotation":           {[]edit{own("67108864", "134217728")}, 1.5},
		"which says nothing":                   {[]edit{own("1e3", "134217728")}, 2},
		"which is too large":                   {[]edit{own("2147483648", "")}, 1},
		"the largest":                          {[]edit{cost("2147483647")}, 10},
		"the least":                            {[]edit{cost("-2147483648")}, -10},
		"one that is no number":                {[]edit{cost("much")}, 1},
		"one that says that it is none":        {[]edit{cost("NaN")}, 1},
		"a priority":                           {[]edit{priority(1 << 25)}, 2},
		"the highest that users may set":       {[]edit{priority(1_000_000_000)}, 10},
		"the lowest":                           {[]edit{priority(math.MinInt32)}, -10},
		"both add up":                          {[]edit{cost("134217728"), priority(1 << 26)}, 4},
		"a high priority outweighs a low cost": {[]edit{cost("-134217728"), priority(1 << 26)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := movable.EvictionCost(pod(tc.edits...)); !(math.Abs(got-tc.want) <= 1e-6) {
				t.Errorf("EvictionCost = %v, want %v", got, tc.want)
			}
		})
	}
}

// web is a budget over the pods of the application "web".
func web(edits ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for _, e := range edits {
		e(b)
	}
	return b
}

func TestBudgets(t *testing.T) {
	type budget = func(*policyv1.PodDisruptionBudget)
	allows := func(n int32) budget {
		return func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = n }
	}
	named := func(name string) budget { return func(b *policyv1.PodDisruptionBudget) { b.Name = name } }
	selects := func(s *metav1.LabelSelector) budget {
		return func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = s }
	}
	most := func(v intstr.IntOrString) budget {
		return func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = &v }
	}
	least := func(v intstr.IntOrString) budget {
		return func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = &v }
	}
	policy := func(p policyv1.UnhealthyPodEvictionPolicyType) budget {
		return func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = &p }
	}
	elsewhere := func(b *policyv1.PodDisruptionBudget) { b.Namespace = "other" }
	type pdbs = []*policyv1.PodDisruptionBudget
	for name, tc := range map[string]struct {
		budgets pdbs
		edits   []edit
		blocks  bool // the node is no candidate
		several bool
		stays   bool // the pod gets no place beforehand
	}{
		"no budget":                             {},
		"one that allows a disruption":          {budgets: pdbs{web(allows(1))}},
		"one that allows none now":              {budgets: pdbs{web()}, blocks: true},
		"one of another namespace":              {budgets: pdbs{web(elsewhere)}},
		"one that selects everybody":            {budgets: pdbs{web(selects(&metav1.LabelSelector{}))}, blocks: true},
		"one without a selector selects nobody": {budgets: pdbs{web(selects(nil))}},
		"one whose selector is broken selects nobody": {budgets: pdbs{web(selects(&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}))}},
		"two budgets always block":                     {budgets: pdbs{web(allows(1)), web(named("also"), allows(1))}, blocks: true, several: true, stays: true},
		"maxUnavailable 0 can never allow one":         {budgets: pdbs{web(most(intstr.FromInt32(0)))}, blocks: true, stays: true},
		"maxUnavailable 0% neither":                    {budgets: pdbs{web(most(intstr.FromString("0%")))}, blocks: true, stays: true},
		"minAvailable 100% neither":                    {budgets: pdbs{web(least(intstr.FromString("100%")))}, blocks: true, stays: true},
		"maxUnavailable 1 may":                         {budgets: pdbs{web(most(intstr.FromInt32(1)))}, blocks: true},
		"a number of minAvailable may":                 {budgets: pdbs{web(least(intstr.FromInt32(100)))}, blocks: true},
		"AlwaysAllow lets unready pods go":             {budgets: pdbs{web(most(intstr.FromInt32(0)), policy(policyv1.AlwaysAllow))}, edits: []edit{ready(corev1.ConditionFalse)}},
		"and no others":                                {budgets: pdbs{web(most(intstr.FromInt32(0)), policy(policyv1.AlwaysAllow))}, edits: []edit{ready(corev1.ConditionTrue)}, blocks: true, stays: true},
		"nor those of which nobody knows":              {budgets: pdbs{web(policy(policyv1.AlwaysAllow))}, blocks: true},
		"IfHealthyBudget holds unready pods, too":      {budgets: pdbs{web(policy(policyv1.IfHealthyBudget))}, edits: []edit{ready(corev1.ConditionFalse)}, blocks: true},
		"two budgets hold unready pods, too":           {budgets: pdbs{web(policy(policyv1.AlwaysAllow)), web(named("also"), policy(policyv1.AlwaysAllow))}, edits: []edit{ready(corev1.ConditionFalse)}, blocks: true, several: true, stays: true},
		"a pod of a DaemonSet is held":                 {budgets: pdbs{web()}, edits: []edit{daemonSet}, blocks: true, stays: true},
		"a mirror pod is not":                          {budgets: pdbs{web()}, edits: []edit{mirror}, stays: true},
		"nor is a pod that has ended":                  {budgets: pdbs{web()}, edits: []edit{succeeded}, stays: true},
		"nor one that stops":                           {budgets: pdbs{web()}, edits: []edit{ending(time.Minute)}, stays: true},
		"nor one of a StatefulSet, which comes back":   {budgets: pdbs{web(most(intstr.FromInt32(0)))}, edits: []edit{statefulSet, ending(time.Minute)}},
		"nor one that tolerates everything":            {budgets: pdbs{web()}, edits: []edit{anything}},
		"a protected pod blocks by itself and stays":   {budgets: pdbs{web()}, edits: []edit{protected("true")}, stays: true},
		"a pod whose protection is over is held again": {budgets: pdbs{web()}, edits: []edit{protected("1s")}, blocks: true},
	} {
		t.Run(name, func(t *testing.T) {
			var compiled []movable.PDB
			for _, b := range tc.budgets {
				compiled = append(compiled, movable.Compile(b))
			}
			all, p := movable.NewPDBs(compiled), pod(tc.edits...)
			for range 2 { // the second time from memory
				got, several := all.Blocking(p, now)
				if (got != nil) != tc.blocks || several != tc.several {
					t.Errorf("Blocking = %v, %v; want %v, %v", got, several, tc.blocks, tc.several)
				}
				if stays := !all.CurrentlyReschedulable(p, now); stays != tc.stays {
					t.Errorf("it stays: %v, want %v", stays, tc.stays)
				}
			}
		})
	}
}
