package disrupt

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// nearTo wants a pod of an application to be in the same domain.
func nearTo(key, app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}}
	}
}

// TestSeatsStayWhereTheyAre has a pod on its way from a to x. The pod of b would have a place if that went to y.
func TestSeatsStayWhereTheyAre(t *testing.T) {
	for name, tc := range map[string]struct {
		cpu   string // of the pod of b
		after time.Duration
		want  []string
	}{
		"it fits beside it":                 {"1", 0, []string{"underutilized b"}},
		"it does not":                       {"2", 0, nil},
		"it does not, but nobody is coming": {"2", 11 * time.Minute, []string{"underutilized b"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand).node("b", "p", "one", onDemand).
				node("x", "p", "one", onDemand, protectedEdit).pods("x", "filler", 1, "1500m", "1Gi").
				node("y", "p", "one", onDemand, protectedEdit).pods("y", "filler", 1, "3", "1Gi").
				pods("a", "web", 1, "1", "1Gi").pods("b", "web", 1, tc.cpu, "1Gi")
			f.store.Update(func(d *cluster.Draft) {
				d.MarkForRemoval("claim-a")
				d.Plan(cluster.PodKey{Namespace: "default", Name: "web-a-0"}, "x", noon.Add(-tc.after))
			})
			if got := say(newPlanner(realEngine()).Propose(openForRoom(f.world()))); !slices.Equal(got, tc.want) {
				t.Errorf("proposed %q, want %q", got, tc.want)
			}
		})
	}
}

// TestPodsThatAreAwaited has a pod of web that waits for x, which boots in zone a, and a pod of db on b in some zone.
func TestPodsThatAreAwaited(t *testing.T) {
	zoneKey := corev1.LabelTopologyZone
	open := func(n *corev1.Node, c *v1.NodeClaim) {
		n.Spec.ProviderID = "another"
		c.Status.ProviderID, c.Status.NodeName = "", ""
		delete(c.Labels, zoneKey)
		c.Status.Conditions = nil
	}
	elsewhere := func(p *corev1.Pod) { p.Namespace = "other" }
	both := func(edits ...func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, edit := range edits {
				edit(p)
			}
		}
	}
	for name, tc := range map[string]struct {
		web, db func(*corev1.Pod)
		zone    string // of b
		x       func(*corev1.Node, *v1.NodeClaim)
		after   time.Duration
		awaited bool
	}{
		"nobody minds":                                {plain, plain, "a", zone("a"), 0, false},
		"it wants to be near it":                      {nearTo(zoneKey, "db"), plain, "a", zone("a"), 0, true},
		"and nobody waits any more":                   {nearTo(zoneKey, "db"), plain, "a", zone("a"), 11 * time.Minute, false},
		"near it, but it is in another zone":          {nearTo(zoneKey, "db"), plain, "b", zone("a"), 0, false},
		"near it, in a zone that is not known yet":    {nearTo(zoneKey, "db"), plain, "b", open, 0, true},
		"near somebody else":                          {nearTo(zoneKey, "web"), plain, "a", zone("a"), 0, false},
		"both want to be near it":                     {nearTo(zoneKey, "db"), nearTo(zoneKey, "db"), "a", zone("a"), 0, true},
		"on its host, where it is not":                {nearTo(corev1.LabelHostname, "db"), plain, "a", zone("a"), 0, false},
		"apart from it":                               {apartByZone, plain, "b", zone("a"), 0, false},
		"it spreads with it":                          {spreadOver(zoneKey, "db", 1), plain, "b", zone("a"), 0, true},
		"which is in another namespace":               {spreadOver(zoneKey, "db", 1), elsewhere, "b", zone("a"), 0, false},
		"near it, whatever the namespace of the pods": {nearTo(zoneKey, "db"), elsewhere, "a", zone("a"), 0, true},
		"both spread":                                 {spreadOver(zoneKey, "db", 1), spreadOver(zoneKey, "db", 1), "b", zone("a"), 0, false},
		"both spread, each over other pods":           {spreadOver(zoneKey, "db", 1), spreadOver(zoneKey, "web", 1), "b", zone("a"), 0, true},
		"it would like to spread":                     {wish(spreadOver(zoneKey, "db", 1)), plain, "b", zone("a"), 0, false},
		"it spreads over hosts":                       {spreadOver(corev1.LabelHostname, "db", 1), plain, "b", zone("a"), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("b", "p", "one", onDemand, zone(tc.zone)).node("x", "p", "one", onDemand, tc.x).
				pods("b", "db", 1, "1", "1Gi", both(tc.db, func(p *corev1.Pod) { p.Labels["app"] = "db" })).
				pods("none", "web", 1, "1", "1Gi", waits, tc.web, func(p *corev1.Pod) { p.Labels["app"] = "web" })
			f.store.Update(func(d *cluster.Draft) {
				d.Plan(cluster.PodKey{Namespace: "default", Name: "web-none-0"}, "claim-x", noon.Add(-tc.after))
			})
			s := surveyOf(f.world())
			at := slices.IndexFunc(s.rows, func(c *Candidate) bool { return c.Name() == "b" })
			block := s.rows[at].Block
			if got := block != nil && block.Code == Awaited; got != tc.awaited || block != nil && !got {
				t.Errorf("blocked by %+v, want awaited = %v", block, tc.awaited)
			}
		})
	}
}

// TestStepsThatUpsetAwaitedPods has a pod of web that waits for x in zone a, and a step that puts a pod of db somewhere.
func TestStepsThatUpsetAwaitedPods(t *testing.T) {
	zoneKey, hostKey := corev1.LabelTopologyZone, corev1.LabelHostname
	plain := func(*corev1.Pod) {}
	place := func(node string) func(*Step, *cluster.Pod) {
		return func(s *Step, p *cluster.Pod) { s.Place = []engine.Placement{{Pod: p, Node: node}} }
	}
	open := func(zones ...string) func(*Step, *cluster.Pod) {
		return func(s *Step, p *cluster.Pod) {
			s.Open = []engine.Opening{{Claim: &v1.NodeClaim{}, Pods: []*cluster.Pod{p}, Zones: zones, CapacityTypes: []string{onDemand}}}
		}
	}
	for name, tc := range map[string]struct {
		web, db func(*corev1.Pod)
		step    func(*Step, *cluster.Pod)
		upsets  bool
	}{
		"a pod that is counted comes to the host":     {spreadOver(hostKey, "db", 1), plain, place("x"), true},
		"it comes to another host":                    {spreadOver(hostKey, "db", 1), plain, place("b"), false},
		"it comes to the zone":                        {spreadOver(zoneKey, "db", 1), plain, place("y"), true},
		"it comes to another zone":                    {spreadOver(zoneKey, "db", 1), plain, place("b"), false},
		"it spreads in the same way":                  {spreadOver(zoneKey, "db", 1), spreadOver(zoneKey, "db", 1), place("y"), false},
		"another pod comes":                           {spreadOver(zoneKey, "web", 1), plain, place("y"), false},
		"the pod has no constraint":                   {plain, plain, place("x"), false},
		"a node may be opened in the zone":            {spreadOver(zoneKey, "db", 1), plain, open("a", "b"), true},
		"it is opened in another zone":                {spreadOver(zoneKey, "db", 1), plain, open("b"), false},
		"it may be opened in a new zone":              {spreadOver(zoneKey, "web", 1), plain, open("b", "c"), true},
		"a new zone, and hosts are what is spread":    {spreadOver(hostKey, "web", 1), plain, open("b", "c"), false},
		"a node of a capacity type that is there":     {spreadOver(v1.CapacityTypeLabelKey, "web", 1), plain, open("c"), false},
		"a label of nodes of which the claim is mute": {spreadOver("team", "web", 1), plain, open("a"), true},
	} {
		t.Run(name, func(t *testing.T) {
			in := func(value string) func(*corev1.Node, *v1.NodeClaim) {
				return func(n *corev1.Node, c *v1.NodeClaim) {
					zone(value)(n, c)
					n.Labels["team"] = "one"
				}
			}
			f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("b", "p", "one", onDemand, in("b")).
				node("x", "p", "one", onDemand, in("a")).node("y", "p", "one", onDemand, in("a")).
				pods("b", "db", 1, "1", "1Gi", tc.db, func(p *corev1.Pod) { p.Labels["app"] = "db" }).
				pods("none", "web", 1, "1", "1Gi", waits, tc.web, func(p *corev1.Pod) { p.Labels["app"] = "web" })
			f.store.Update(func(d *cluster.Draft) { d.Plan(cluster.PodKey{Namespace: "default", Name: "web-none-0"}, "x", noon) })
			snap, step := f.store.Snapshot(), &Step{}
			tc.step(step, snap.Pod(cluster.PodKey{Namespace: "default", Name: "db-b-0"}))
			if got := awaitedOf(snap, noon).upsetBy(step); got != tc.upsets {
				t.Errorf("upset: %v, want %v", got, tc.upsets)
			}
		})
	}
}
