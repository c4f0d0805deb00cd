package disrupt

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// zone puts a node into a zone.
func zone(name string) func(*corev1.Node, *v1.NodeClaim) {
	return func(n *corev1.Node, c *v1.NodeClaim) {
		n.Labels[corev1.LabelTopologyZone], c.Labels[corev1.LabelTopologyZone] = name, name
	}
}

// apartByZone keeps pods of an application in different zones.
func apartByZone(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}}}}}}
}

// TestWhereAPodIsAboutToGoCounts has a pod on a, which is being removed, that is planned onto x and has not been evicted yet. b could go if
// its pod fit beside it.
func TestWhereAPodIsAboutToGoCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		cpu    string // of the pod on x already
		quiet  bool   // a pod came or went on x a short while ago
		second bool   // there is another node with room in the zone of x
		edit   []func(*corev1.Pod)
		want   []string
	}{
		"there is room for both":                             {"1", false, false, nil, []string{"underutilized b"}},
		"there is room for one":                              {"2", false, false, nil, nil},
		"they must not be in one zone":                       {"1", false, false, []func(*corev1.Pod){apartByZone}, nil},
		"nor on another node of it":                          {"1", false, true, []func(*corev1.Pod){apartByZone}, nil},
		"room for one there, and for another on a neighbour": {"2", false, true, nil, []string{"underutilized b"}},
		"x takes nobody, and its neighbour has room for one": {"1", true, true, nil, []string{"underutilized b"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").
				node("a", "p", "one", onDemand, zone("a")).node("b", "p", "one", onDemand, zone("b")).
				node("x", "p", "one", onDemand, zone("c"), protectedEdit).pods("x", "filler", 1, tc.cpu, "1Gi")
			if tc.second {
				f.node("y", "p", "one", onDemand, zone("c"), protectedEdit).pods("y", "filler", 1, "1", "1Gi")
			}
			if tc.quiet {
				f.pools["p"].Pool.Spec.Disruption.ConsolidateAfter = v1.After(time.Minute)
				f.node("x", "p", "one", onDemand, zone("c"), protectedEdit, func(_ *corev1.Node, c *v1.NodeClaim) { condition.Clear(c, v1.ConditionTypeConsolidatable, noon) })
				f.pods("y", "late", 1, "1", "1Gi")
			}
			f.pods("a", "web", 1, "1600m", "1Gi", tc.edit...).pods("b", "web", 1, "1400m", "1Gi", tc.edit...)
			f.store.Update(func(d *cluster.Draft) {
				d.MarkForRemoval("claim-a")
				d.Plan(cluster.PodKey{Namespace: "default", Name: "web-a-0"}, "x", noon)
			})
			w := f.world()
			if got := say(newPlanner(realEngine()).Propose(openForRoom(w))); !slices.Equal(got, tc.want) {
				t.Errorf("proposed %q, want %q", got, tc.want)
			}
		})
	}
}

// openForRoom is a world in which nothing can be opened, so that only room counts. Without any pool nothing would be asked at all.
func openForRoom(w *World) *World {
	w.Pools["p"].Pool.Spec.Limits = v1.Limits{v1.ResourceNodes: resource.MustParse("0")}
	return w
}

func protectedEdit(n *corev1.Node, _ *v1.NodeClaim) {
	n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
}

// TestDriftedNodesOfOnePassGoTogether has a and b, each of which could go alone, because there is room for its pod in zone c. The node
// between them is stuck, so they are not asked about together.
func TestDriftedNodesOfOnePassGoTogether(t *testing.T) {
	drifted := func(_ *corev1.Node, c *v1.NodeClaim) {
		condition.SetTrue(c, v1.ConditionTypeDrifted, noon.Add(-time.Hour))
	}
	for name, tc := range map[string]struct {
		pod  func(*corev1.Pod)
		want []string
	}{
		"pods that mind nobody":            {func(*corev1.Pod) {}, []string{"drifted a", "drifted b"}},
		"pods that must be in other zones": {apartByZone, []string{"drifted a"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p", allowing("2")).
				node("a", "p", "one", onDemand, zone("a"), drifted).node("aa", "p", "one", onDemand, zone("a"), drifted).node("b", "p", "one", onDemand, zone("b"), drifted).
				node("x", "p", "one", onDemand, zone("c"), protectedEdit).pods("x", "filler", 1, "2", "1Gi").
				node("y", "p", "one", onDemand, zone("c"), protectedEdit).pods("y", "filler", 1, "2", "1Gi").
				pods("a", "web", 1, "1500m", "1Gi", tc.pod).pods("b", "web", 1, "1500m", "1Gi", tc.pod).pods("b", "daemon", 1, "2", "1Gi", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }).pods("aa", "large", 1, "3500m", "1Gi")
			if got := say(newPlanner(realEngine()).Propose(openForRoom(f.world()))); !slices.Equal(got, tc.want) {
				t.Errorf("proposed %q, want %q", got, tc.want)
			}
		})
	}
}

// TestStepsOfTwoAnswers takes a step of each of two answers, in both orders.
func TestStepsOfTwoAnswers(t *testing.T) {
	over := func(key string, edit func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			edit(p)
			for _, term := range p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key, LabelSelector: term.LabelSelector}}}
			}
			p.Spec.Affinity.PodAntiAffinity = nil
		}
	}
	spreadHard := spreadOver(corev1.LabelTopologyZone, "web", 1)
	for name, tc := range map[string]struct {
		app      string // of the second pod
		one, two func(*corev1.Pod)
		same     bool // they are of one answer
		want     bool // both are taken
	}{
		"nobody minds":                         {"web", plain, plain, false, true},
		"both mind":                            {"web", apartByZone, apartByZone, false, false},
		"only one does":                        {"web", apartByZone, plain, false, false},
		"the one minds somebody else":          {"db", apartByZone, plain, false, true},
		"of one answer":                        {"web", apartByZone, apartByZone, true, true},
		"hosts are no matter":                  {"web", apart("web"), apart("web"), false, true},
		"a spread over zones":                  {"web", spreadHard, spreadHard, false, false},
		"one that is a wish":                   {"web", wish(spreadHard), wish(spreadHard), false, true},
		"one that wants to be near the other":  {"web", over(corev1.LabelTopologyZone, apartByZone), plain, false, false},
		"on the same host, where it goes also": {"web", over(corev1.LabelHostname, apartByZone), plain, false, true},
	} {
		for _, order := range []string{"ab", "ba"} {
			t.Run(name+" "+order, func(t *testing.T) {
				f := newFixture(shape("one", 4, 16, 0.2, 0)).pool("p").node("a", "p", "one", onDemand).node("b", "p", "one", onDemand).
					pods("a", "web", 1, "1", "1Gi", tc.one).pods("b", tc.app, 1, "1", "1Gi", tc.two)
				s := surveyOf(f.world()).search()
				took := 0
				s.taken.next()
				for _, name := range order {
					at := slices.IndexFunc(s.survey.rows, func(r *Candidate) bool { return r.Name() == string(name) })
					if !tc.same {
						s.taken.next()
					}
					if step := s.survey.rows[at : at+1]; !s.taken.with(step) {
						s.taken.take(step)
						took++
					}
				}
				if want := map[bool]int{true: 2, false: 1}[tc.want]; took != want {
					t.Errorf("%d steps were taken, want %d", took, want)
				}
			})
		}
	}
}

func plain(*corev1.Pod) {}

// wish makes a spread one that may be violated.
func wish(edit func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		edit(p)
		for i := range p.Spec.TopologySpreadConstraints {
			p.Spec.TopologySpreadConstraints[i].WhenUnsatisfiable = corev1.ScheduleAnyway
		}
	}
}
