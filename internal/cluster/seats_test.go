package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// A seater is a draft with four machines, of which old is to be removed, and with pods that wait, run and go on it.
type seater struct {
	*Draft
	pods map[string]*corev1.Pod
	// admitted is set where the API server labels pods with the topology of their node when they are bound, as from Kubernetes 1.35 on.
	admitted bool
}

var seatTime = time.Unix(1000, 0)

func newSeater() *seater {
	s := &seater{Draft: newDraft(), pods: map[string]*corev1.Pod{}}
	s.clock = seatTime
	for _, name := range []string{"a", "b", "c", "old"} {
		s.PutClaim(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name, UID: types.UID("claim-" + name)}, Status: v1.NodeClaimStatus{ProviderID: name}})
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		n.Spec.ProviderID = name
		s.PutNode(n)
	}
	s.MarkForRemoval("old")
	return s
}

// put adds a pod, on a node unless that is "". What edits do to it lasts.
func (s *seater) put(name, node string, edits ...func(*corev1.Pod)) *seater {
	p := s.pods[name]
	if p == nil {
		yes := true
		p = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}}}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: &yes}}
	}
	p = p.DeepCopy()
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodPending
	delete(p.Labels, corev1.LabelTopologyZone)
	if s.admitted && node != "" {
		p.Labels[corev1.LabelTopologyZone] = "zone-of-" + node
	}
	if node != "" {
		p.Status.Phase = corev1.PodRunning
	}
	for _, edit := range edits {
		edit(p)
	}
	s.pods[name] = p
	s.PutPod(p)
	return s
}

func (s *seater) end(name string) *seater {
	s.DeletePod(PodKey{"default", name})
	delete(s.pods, name)
	return s
}

func (s *seater) plan(name, target string) *seater {
	s.Plan(PodKey{"default", name}, target, seatTime.Add(-time.Minute))
	return s
}

// seated lists the seats as "pod=claim" or, where it is vacant, "-=claim".
func (s *seater) seated() []string {
	var out []string
	for seat := range s.publish().Seats() {
		out = append(out, cmp.Or(seat.Pod.Name, "-")+"="+seat.Target)
	}
	return out
}

func stopping(p *corev1.Pod) {
	p.DeletionTimestamp = &metav1.Time{Time: seatTime}
}

func ofStatefulSet(p *corev1.Pod) { p.OwnerReferences[0].Kind = "StatefulSet" }
func unowned(p *corev1.Pod)       { p.OwnerReferences = nil }
func called(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} }
}
func asking(cpu string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"size": cpu} }
}
func elsewhere(p *corev1.Pod) { p.Namespace = "other" }
func gated(p *corev1.Pod) {
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "later"}}
}
func ended(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}
func nominated(p *corev1.Pod) { p.Status.NominatedNodeName = "b" }
func ephemeral(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
}

func device(p *corev1.Pod)      { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }
func ofDaemonSet(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }

func TestSeats(t *testing.T) {
	for name, tc := range map[string]struct {
		story func(*seater)
		want  []string
	}{
		"a plan gives a pod a seat":                      {func(s *seater) { s.put("p", "").plan("p", "claim-a") }, []string{"p=claim-a"}},
		"on a node it is a seat of the node's claim":     {func(s *seater) { s.put("p", "").plan("p", "a") }, []string{"p=claim-a"}},
		"a later plan moves it":                          {func(s *seater) { s.put("p", "").plan("p", "a").plan("p", "b") }, []string{"p=claim-b"}},
		"a pod that is gone gets none":                   {func(s *seater) { s.put("p", "").end("p").plan("p", "a") }, nil},
		"nor one that is stopping":                       {func(s *seater) { s.put("p", "old", stopping).plan("p", "a") }, nil},
		"nor one that runs where it may stay":            {func(s *seater) { s.put("p", "b").plan("p", "a") }, nil},
		"one on a node that is to go does":               {func(s *seater) { s.put("p", "old").plan("p", "a") }, []string{"p=claim-a"}},
		"and loses it when the node may stay":            {func(s *seater) { s.put("p", "old").plan("p", "a").Unmark("old") }, nil},
		"unless its claim is being deleted":              {func(s *seater) { s.put("p", "old").plan("p", "a"); deleting(s); s.Unmark("old") }, []string{"p=claim-a"}},
		"binding takes the seat":                         {func(s *seater) { s.put("p", "").plan("p", "a").put("p", "a") }, nil},
		"binding elsewhere frees it":                     {func(s *seater) { s.put("p", "").plan("p", "a").put("p", "b") }, nil},
		"a pod that waited and is gone frees it":         {func(s *seater) { s.put("p", "").plan("p", "a").end("p") }, nil},
		"and so does one that is stopping":               {func(s *seater) { s.put("p", "").plan("p", "a").put("p", "", stopping) }, nil},
		"even where it is one of a StatefulSet":          {func(s *seater) { s.put("p", "", ofStatefulSet).plan("p", "a").put("p", "", stopping) }, nil},
		"or another one has its name":                    {func(s *seater) { s.put("p", "").plan("p", "a").put("p", "", anew) }, nil},
		"the end of the machine is the end of its seats": {func(s *seater) { s.put("p", "").plan("p", "a"); s.DeleteClaim("claim-a") }, nil},
		"the end of its Node alone is not":               {func(s *seater) { s.put("p", "").plan("p", "a"); s.DeleteNode("a") }, []string{"p=claim-a"}},
		"the seat of a running pod that stops is vacant": {func(s *seater) { s.put("p", "old").plan("p", "a").put("p", "old", stopping) }, []string{"-=claim-a"}},
		"of one in a StatefulSet not before it is gone":  {func(s *seater) { s.put("p", "old", ofStatefulSet).plan("p", "a").put("p", "old", stopping) }, []string{"p=claim-a"}},
		"then it is": {func(s *seater) { s.put("p", "old", ofStatefulSet).plan("p", "a").put("p", "old", stopping).end("p") }, []string{"-=claim-a"}},
		"its successor of the same name takes it":     {func(s *seater) { s.put("p", "old", ofStatefulSet).plan("p", "a").end("p").put("p", "", ofStatefulSet) }, []string{"p=claim-a"}},
		"also if nobody saw the first one go":         {func(s *seater) { s.put("p", "old").plan("p", "a").put("p", "", anew) }, []string{"p=claim-a"}},
		"of one that failed it is vacant":             {func(s *seater) { s.put("p", "old").plan("p", "a").put("p", "old", ended(corev1.PodFailed)) }, []string{"-=claim-a"}},
		"one that succeeded does not come back":       {func(s *seater) { s.put("p", "old").plan("p", "a").put("p", "old", ended(corev1.PodSucceeded)) }, nil},
		"nor one that nobody owns":                    {func(s *seater) { s.put("p", "old", unowned).plan("p", "a").end("p") }, nil},
		"nor is room kept on a machine that goes too": {func(s *seater) { s.put("p", "old").plan("p", "a").MarkForRemoval("a"); s.end("p") }, nil},
		"the next pod takes it, whatever its name":    {func(s *seater) { s.put("p", "old").plan("p", "a").end("p").put("q", "") }, []string{"q=claim-a"}},
		"no two pods take one seat":                   {func(s *seater) { s.put("p", "old").plan("p", "a").end("p").put("q", "").put("r", "") }, []string{"q=claim-a"}},
		"the oldest vacant one first":                 {func(s *seater) { twoGo(s); s.put("q", "") }, []string{"-=claim-b", "q=claim-a"}},
		"one on a machine that goes is left out":      {func(s *seater) { twoGo(s); s.MarkForRemoval("a"); s.put("q", "") }, []string{"-=claim-a", "q=claim-b"}},
		"a pod with other labels does not":            {func(s *seater) { s.put("p", "old").plan("p", "a").end("p").put("q", "", called("db")) }, []string{"-=claim-a"}},
		"nor one that asks for something else":        {func(s *seater) { s.put("p", "old").plan("p", "a").end("p").put("q", "", asking("2")) }, []string{"-=claim-a"}},
		"nor one of another namespace":                {func(s *seater) { s.put("p", "old").plan("p", "a").end("p").put("q", "", elsewhere) }, []string{"-=claim-a"}},
		"nor one that is not to be scheduled yet":     {func(s *seater) { s.put("p", "old").plan("p", "a").end("p").put("q", "", gated) }, []string{"-=claim-a"}},
		"nor one that somebody nominated":             {func(s *seater) { s.put("p", "old").plan("p", "a").end("p").put("q", "", nominated) }, []string{"-=claim-a"}},
		"nor one of a DaemonSet":                      {func(s *seater) { s.put("p", "old").plan("p", "a").end("p").put("q", "", ofDaemonSet) }, []string{"-=claim-a"}},
		"nor one that is held back": {func(s *seater) {
			s.put("q", "")
			s.Hold(PodKey{"default", "q"})
			s.put("p", "old").plan("p", "a").end("p").put("q", "")
		}, []string{"-=claim-a"}},
		"one that was held back until a plan had a place for it takes one": {func(s *seater) {
			s.put("q", "")
			s.Hold(PodKey{"default", "q"})
			s.plan("q", "b").Unplan(PodKey{"default", "q"})
			s.put("p", "old").plan("p", "a").end("p").put("q", "")
		}, []string{"q=claim-a"}},
		"a pod that is bound to it takes it too":          {func(s *seater) { s.put("p", "old").plan("p", "a").end("p").put("q", "a") }, nil},
		"one that is bound elsewhere does not":            {func(s *seater) { s.put("p", "old").plan("p", "a").end("p").put("q", "b") }, []string{"-=claim-a"}},
		"nor a stranger":                                  {func(s *seater) { s.put("p", "old").plan("p", "a").end("p").put("q", "a", called("db")) }, []string{"-=claim-a"}},
		"who sits down elsewhere leaves its seat in turn": {func(s *seater) { s.put("p", "").plan("p", "a").put("q", "").plan("q", "b").put("p", "b") }, []string{"q=claim-a"}},
		"also to one that is still to come": {func(s *seater) {
			s.put("q", "old").plan("q", "b").end("q")
			s.Plan(PodKey{"default", "p"}, "a", seatTime)
			exchange(s)
		}, []string{"-=claim-a"}},
		"who keeps its turn before those that got vacant later": {func(s *seater) {
			s.put("r", "").plan("r", "c")
			twoGo(s)
			s.put("r", "a")
			s.put("q", "")
		}, []string{"-=claim-b", "q=claim-c"}},
		"but not on a machine that goes": {func(s *seater) {
			s.put("p", "").plan("p", "a").put("q", "").plan("q", "b").MarkForRemoval("a")
			s.put("p", "b")
		}, nil},
		"who has none takes nobody's":       {func(s *seater) { s.put("q", "").plan("q", "b").put("p", "b") }, []string{"q=claim-b"}},
		"strangers leave each other theirs": {func(s *seater) { s.put("p", "", called("db")).plan("p", "a").put("q", "").plan("q", "b").put("p", "b") }, []string{"q=claim-b"}},
		"and so do pods with volumes of their own": {func(s *seater) {
			s.put("p", "", ephemeral).plan("p", "a").put("q", "", ephemeral).plan("q", "b").put("p", "b")
		}, []string{"q=claim-b"}},
		"or devices of their own": {func(s *seater) {
			s.put("p", "", device).plan("p", "a").put("q", "", device).plan("q", "b").put("p", "b")
		}, []string{"q=claim-b"}},
		"a pod that was changed is of another kind":        {func(s *seater) { s.put("p", "old").plan("p", "a").put("p", "old", called("db")).end("p").put("q", "") }, []string{"-=claim-a"}},
		"a seat that was given away again is no longer on": {func(s *seater) { s.put("p", "").plan("p", "a"); s.Unplan(PodKey{"default", "p"}) }, nil},
		"vacant ones are cleared when they are old":        {func(s *seater) { twoGo(s); s.DropVacant(seatTime) }, []string{"-=claim-b"}},
	} {
		for version, admitted := range map[string]bool{"": false, " where bound pods get the labels of their zone": true} {
			t.Run(name+version, func(t *testing.T) {
				s := newSeater()
				s.admitted = admitted
				tc.story(s)
				if got := s.seated(); !slices.Equal(got, tc.want) {
					t.Errorf("seats = %q, want %q", got, tc.want)
				}
			})
		}
	}
}

func deleting(s *seater) {
	c := s.machines.claims["claim-old"].DeepCopy()
	c.DeletionTimestamp = &metav1.Time{Time: seatTime}
	s.PutClaim(c)
}

func anew(p *corev1.Pod) { p.UID = "another" }

// twoGo leaves a vacant seat on a, and a second later one on b.
func twoGo(s *seater) {
	s.put("p", "old").plan("p", "a").put("o", "old").plan("o", "b").end("p")
	s.clock = s.clock.Add(time.Second)
	s.end("o")
}

// exchange has a pod with a seat on a, which was not to be had when another one got vacant on b, bind to b.
func exchange(s *seater) {
	s.Hold(PodKey{"default", "p"})
	s.put("p", "").plan("p", "a").put("p", "b")
}

// The time of a promise that is passed on begins anew, and that of a vacant seat does not.
func TestTimesOfSeats(t *testing.T) {
	later := seatTime.Add(time.Hour)
	planned := seatTime.Add(-time.Minute)
	for name, tc := range map[string]struct {
		story func(*seater)
		want  time.Time
	}{
		"a plan has its time":              {func(s *seater) { s.put("p", "").plan("p", "a") }, planned},
		"and so has the next one":          {func(s *seater) { s.put("p", "").plan("p", "a"); s.Plan(PodKey{"default", "p"}, "a", later) }, later},
		"which stays when its pod changes": {func(s *seater) { s.put("p", "").plan("p", "a").put("p", "", called("db")) }, planned},
		"a pod goes":                       {func(s *seater) { s.put("p", "old").plan("p", "a"); s.clock = later; s.end("p") }, later},
		"and another one comes": {func(s *seater) {
			s.put("p", "old").plan("p", "a").end("p")
			s.clock = later
			s.put("q", "")
		}, later},
		"two pods change seats": {func(s *seater) {
			s.put("p", "").plan("p", "a").put("q", "").plan("q", "b")
			s.clock = later
			s.put("p", "b")
		}, later},
		"one changes with a pod that is still to come": {func(s *seater) {
			s.put("q", "old").plan("q", "b").end("q")
			s.clock = later
			exchange(s)
		}, seatTime},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeater()
			tc.story(s)
			for seat := range s.publish().Seats() {
				if !seat.At.Equal(tc.want) {
					t.Errorf("it is kept since %v, want %v", seat.At, tc.want)
				}
			}
			if n := len(s.seated()); n != 1 {
				t.Errorf("%d seats, want one", n)
			}
		})
	}
}

// TestSeatsAgreeWithARegister has pods of three kinds come, bind and go at random, while a register follows them by the rules of Seat alone,
// with none of the indexes.
func TestSeatsAgreeWithARegister(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 17))
		s, r := newSeater(), register{pods: map[string]registered{}}
		s.admitted = seed%2 == 1
		var names []string
		for step := range 400 {
			at := rng.IntN(max(1, len(names)))
			act := rng.IntN(10)
			kind := fmt.Sprint("kind-", rng.IntN(3))
			target := []string{"claim-a", "claim-b"}[rng.IntN(2)]
			switch {
			case act < 2 || len(names) == 0:
				name := fmt.Sprint("pod-", step)
				node := []string{"", "", "old", "a"}[rng.IntN(4)]
				names = append(names, name)
				s.put(name, node, called(kind))
				r.come(name, kind, node)
			case act < 5:
				s.plan(names[at], target)
				r.plan(names[at], target)
			case act < 7:
				if node := []string{"a", "b"}[rng.IntN(2)]; s.pods[names[at]].Spec.NodeName == "" {
					s.put(names[at], node)
					r.bind(names[at], node)
				}
			case act < 8:
				s.Unplan(PodKey{"default", names[at]})
				r.drop(names[at])
			default:
				s.end(names[at])
				r.end(names[at])
				names = slices.Delete(names, at, at+1)
			}
			if got, want := slices.Sorted(slices.Values(s.seated())), r.seated(); !slices.Equal(got, want) {
				t.Fatalf("seed %d step %d: seats = %q, want %q", seed, step, got, want)
			}
			s.agree(t)
		}
	}
}

// agree looks whether the indexes of a draft say what its table says, and whether only kinds with pods or vacant seats are held on to.
func (s *seater) agree(t *testing.T) {
	t.Helper()
	on, vacant := map[string]map[seatKey]struct{}{}, map[kind][]uint64{}
	for seat := range s.publish().Seats() {
		if on[seat.Target] == nil {
			on[seat.Target] = map[seatKey]struct{}{}
		}
		on[seat.Target][seat.key()] = struct{}{}
		if seat.Vacant() {
			vacant[seat.kind()] = append(vacant[seat.kind()], seat.vacancy)
		}
	}
	if !maps.EqualFunc(on, s.seating.on, maps.Equal) || !maps.EqualFunc(vacant, s.seating.vacant, slices.Equal) {
		t.Errorf("indexes %v and %v do not say what the seats are: %v and %v", s.seating.on, s.seating.vacant, on, vacant)
	}
}

// A register is the naive twin: pods, and seats in the order in which they were made.
type register struct {
	pods  map[string]registered
	seats []registeredSeat
}

type registered struct{ kind, node string }

type registeredSeat struct{ pod, kind, claim string }

func (r *register) find(match func(registeredSeat) bool) *registeredSeat {
	best := -1
	for i := range r.seats {
		if match(r.seats[i]) && (best < 0 || r.seats[i].pod < r.seats[best].pod) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	return &r.seats[best]
}

func (r *register) of(pod string) *registeredSeat {
	return r.find(func(s registeredSeat) bool { return s.pod == pod && pod != "" })
}

func (r *register) drop(pod string) {
	r.seats = slices.DeleteFunc(r.seats, func(s registeredSeat) bool { return s.pod == pod })
}

func (r *register) come(pod, kind, node string) {
	r.pods[pod] = registered{kind, node}
	if node != "" {
		r.bind(pod, node)
		return
	}
	if s := r.find(func(s registeredSeat) bool { return s.pod == "" && s.kind == kind }); s != nil {
		s.pod = pod
	}
}

func (r *register) plan(pod, claim string) {
	p := r.pods[pod]
	if p.node == "a" || p.node == "b" {
		return
	}
	if s := r.of(pod); s != nil {
		s.claim = claim
		return
	}
	r.seats = append(r.seats, registeredSeat{pod, p.kind, claim})
}

func (r *register) bind(pod, node string) {
	p := r.pods[pod]
	r.pods[pod] = registered{p.kind, node}
	own := r.of(pod)
	if own != nil && own.claim == "claim-"+node {
		r.drop(pod)
		return
	}
	taken := r.find(func(s registeredSeat) bool {
		return s.kind == p.kind && s.claim == "claim-"+node && (s.pod == "" || own != nil)
	})
	switch {
	case taken == nil:
		r.drop(pod)
	case own != nil:
		taken.claim = own.claim
		r.drop(pod)
	default:
		at := slices.IndexFunc(r.seats, func(s registeredSeat) bool { return s == *taken })
		r.seats = slices.Delete(r.seats, at, at+1)
	}
}

func (r *register) end(pod string) {
	s, p := r.of(pod), r.pods[pod]
	delete(r.pods, pod)
	if s == nil {
		return
	}
	claim := s.claim
	r.drop(pod)
	if p.node == "old" {
		r.seats = append(r.seats, registeredSeat{"", p.kind, claim})
	}
}

func (r *register) seated() []string {
	out := make([]string, 0, len(r.seats))
	for _, s := range r.seats {
		out = append(out, cmp.Or(s.pod, "-")+"="+s.claim)
	}
	slices.Sort(out)
	return out
}

// A kind that only a vacant seat is for is not forgotten: the pod that comes is of the same one.
func TestAVacantSeatHoldsOnToItsKind(t *testing.T) {
	s := newSeater().put("p", "old").plan("p", "a").end("p")
	for i := range 5000 {
		name := fmt.Sprint("other-", i)
		s.put(name, "", asking(name), called(name)).end(name)
	}
	if got := s.put("q", "").seated(); !slices.Equal(got, []string{"q=claim-a"}) {
		t.Errorf("seats = %q, want that of the pod that came", got)
	}
	s.end("q")
	for i := range 5000 {
		name := fmt.Sprint("more-", i)
		s.put(name, "old", asking(name), called(name)).plan(name, "a").end(name).DropVacant(s.clock)
	}
	if classes, labels := s.intern.Len(); classes > 2000 || labels > 2000 {
		t.Errorf("%d classes and %d label sets are remembered of pods that are gone", classes, labels)
	}
}
