package rollout_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/drift"
	"karpenter.sh/karpenter/internal/core/rollout"
)

var known = label.NewVocabulary(v1.Labels(), awsv1.Labels())

// templated is a pool with a template that has a label and a node class.
func templated(label, class string) *v1.NodePool {
	p := pool()
	p.Spec.Template.Labels = map[string]string{"image": label}
	p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: class}
	return p
}

// madeFrom is a claim of a pool's template that runs an image.
func madeFrom(p *v1.NodePool, name string, created time.Time, image string) *v1.NodeClaim {
	c := claim(name, created, "")
	stamp := drift.PoolStamp(p)
	c.Annotations = map[string]string{v1.NodePoolHashAnnotationKey: stamp.Hash, v1.NodePoolHashVersionAnnotationKey: stamp.Version}
	c.Spec.NodeClassRef = p.Spec.Template.Spec.NodeClassRef
	c.Status.ImageID = image
	return c
}

// A rollout ends in one step of its entry. What it leaves behind is what the watched machines of the template run.
func TestWhatIsRememberedAsGood(t *testing.T) {
	present, earlier := templated("2", "default"), templated("1", "default")
	before := &v1alpha1.RolloutState{Passed: metav1.Time{Time: start.Add(-time.Hour)}, Template: "before", Images: []string{"ami-0"}}
	watched := madeFrom(present, "a", start, "ami-2")
	now := start.Add(2 * time.Hour)
	back := madeFrom(present, "back", start, "ami-1")
	back.Annotations[v1.LastGoodImagesAnnotationKey] = "ami-1"
	for name, tc := range map[string]struct {
		claims []*v1.NodeClaim
		entry  func(*v1alpha1.RolloutPool)
		look   func(*rollout.Look)
		want   []string // images; nil for what was remembered before
		goesOn bool     // the rollout has not ended
	}{
		"a watched machine":                     {claims: []*v1.NodeClaim{watched}, want: []string{"ami-2"}},
		"machines of two architectures":         {claims: []*v1.NodeClaim{watched, madeFrom(present, "b", start, "ami-3")}, want: []string{"ami-2", "ami-3"}},
		"one that came while they were watched": {claims: []*v1.NodeClaim{watched, madeFrom(present, "b", start.Add(90*time.Minute), "ami-3")}, want: []string{"ami-2"}},
		"no machine":                            {},
		"only one that came while nothing was":  {claims: []*v1.NodeClaim{madeFrom(present, "b", start.Add(90*time.Minute), "ami-3")}},
		"a machine of another template":         {claims: []*v1.NodeClaim{madeFrom(earlier, "b", start, "ami-1")}},
		"a machine that went back":              {claims: []*v1.NodeClaim{back}},
		"a machine that a user excused":         {claims: []*v1.NodeClaim{watched}, entry: func(e *v1alpha1.RolloutPool) { e.JudgedSince = &metav1.Time{Time: start.Add(time.Minute)} }},
		"a gate trips at the same look":         {claims: []*v1.NodeClaim{watched}, look: func(l *rollout.Look) { l.Trips = true }, goesOn: true},
		"a machine is not ready":                {claims: []*v1.NodeClaim{watched}, look: func(l *rollout.Look) { l.Waits = true }, goesOn: true},
		"another spec at the same look":         {claims: []*v1.NodeClaim{watched}, look: func(l *rollout.Look) { l.Revision = "new" }},
		"an old machine is left":                {claims: []*v1.NodeClaim{watched, claim("old", start.Add(-time.Hour), "x")}, goesOn: true},
		"its time is not over":                  {claims: []*v1.NodeClaim{watched}, entry: func(e *v1alpha1.RolloutPool) { e.BakingSince = &metav1.Time{Time: now} }, goesOn: true},
	} {
		t.Run(name, func(t *testing.T) {
			entry := v1alpha1.RolloutPool{Name: "default", Revision: "r", Since: &metav1.Time{Time: start}, Step: 1,
				BakingSince: &metav1.Time{Time: start.Add(time.Hour)}, LastGood: before}
			if tc.entry != nil {
				tc.entry(&entry)
			}
			snap := snapshot(tc.claims, policy("careful", start, func(p *v1alpha1.RolloutPolicy) { p.Spec.Steps[1].Bake.Duration = time.Hour }))
			_, of := rollout.Read(snap)
			look := &rollout.Look{Pool: present, Revision: "r", Fleet: rollout.Fleets(snap, map[string]time.Time{"default": start})["default"]}
			if tc.look != nil {
				tc.look(look)
			}
			got := of["default"].Next(&entry, look, now)
			if ended := got.Since == nil; ended == tc.goesOn {
				t.Errorf("ended is %t: %+v", ended, got)
			}
			if tc.want == nil {
				if got.LastGood != before {
					t.Errorf("%+v is remembered", got.LastGood)
				}
				return
			}
			if s := got.LastGood; !slices.Equal(s.Images, tc.want) || !strings.Contains(s.Template, `"image":"2"`) || !s.Passed.Time.Equal(now) {
				t.Errorf("%+v is remembered", got.LastGood)
			}
		})
	}
}

func TestTheStatusOfAPolicyIsBounded(t *testing.T) {
	pools := make([]v1alpha1.RolloutPool, 4)
	for i := range pools {
		pools[i].LastGood = &v1alpha1.RolloutState{Template: strings.Repeat("x", 100<<10)}
	}
	rollout.Bound(pools)
	if pools[0].LastGood == nil || pools[1].LastGood == nil || pools[2].LastGood != nil || pools[3].LastGood != nil {
		t.Errorf("%v", pools)
	}
}

// remembered is the state of a pool's template.
func remembered(p *v1.NodePool) *v1alpha1.RolloutState {
	text := fmt.Sprintf(`{"metadata":{"labels":{"image":%q}},"spec":{"nodeClassRef":{"group":%q,"kind":%q,"name":%q}}}`,
		p.Spec.Template.Labels["image"], awsv1.Group, awsv1.Kind, p.Spec.Template.Spec.NodeClassRef.Name)
	return &v1alpha1.RolloutState{Template: text, Images: []string{"ami-1", "ami-2"}}
}

// A state may name the node class that the pool has, and another only where a machine vouches for it.
func TestWhichStateIsRestored(t *testing.T) {
	present, sameClass, otherClass := templated("2", "default"), templated("1", "default"), templated("1", "other")
	present.Annotations = map[string]string{"kept": "yes", v1.NodePoolHashAnnotationKey: "x"}
	other := &cluster.NodeClass{Group: awsv1.Group, Kind: awsv1.Kind, Name: "other"}
	ofOtherPool := madeFrom(otherClass, "a", start, "ami-1")
	ofOtherPool.Labels = map[string]string{v1.NodePoolLabelKey: "beside"}
	for name, tc := range map[string]struct {
		state  *v1alpha1.RolloutState
		claims []*v1.NodeClaim
		class  *cluster.NodeClass
		want   error
	}{
		"nothing passed":                       {want: rollout.ErrNothingPassed},
		"of the class of the pool":             {state: remembered(sameClass)},
		"of another class, without a machine":  {state: remembered(otherClass), class: other, want: rollout.ErrOtherClass},
		"of another class, with a machine":     {state: remembered(otherClass), class: other, claims: []*v1.NodeClaim{madeFrom(otherClass, "a", start, "ami-1")}},
		"of a class that is gone":              {state: remembered(otherClass), claims: []*v1.NodeClaim{madeFrom(otherClass, "a", start, "ami-1")}, want: rollout.ErrOtherClass},
		"of a class that goes":                 {state: remembered(otherClass), class: &cluster.NodeClass{Group: awsv1.Group, Kind: awsv1.Kind, Name: "other", Deleting: true}, claims: []*v1.NodeClaim{madeFrom(otherClass, "a", start, "ami-1")}, want: rollout.ErrOtherClass},
		"the machine is of another pool":       {state: remembered(otherClass), class: other, claims: []*v1.NodeClaim{ofOtherPool}, want: rollout.ErrOtherClass},
		"the machine is of another template":   {state: remembered(otherClass), class: other, claims: []*v1.NodeClaim{madeFrom(templated("3", "other"), "a", start, "ami-1")}, want: rollout.ErrOtherClass},
		"the machine has another class itself": {state: remembered(otherClass), class: other, claims: []*v1.NodeClaim{madeFrom(sameClass, "a", start, "ami-1")}, want: rollout.ErrOtherClass},
	} {
		t.Run(name, func(t *testing.T) {
			store := cluster.NewStore()
			store.Update(func(d *cluster.Draft) {
				for _, c := range tc.claims {
					d.PutClaim(c)
				}
				if tc.class != nil {
					d.PutNodeClass(tc.class)
				}
			})
			got, err := rollout.Restore(store.Snapshot(), present, tc.state, known)
			if !errors.Is(err, tc.want) {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			if got.Annotations[v1.LastGoodImagesAnnotationKey] != "ami-1,ami-2" || got.Annotations["kept"] != "yes" ||
				got.Annotations[v1.NodePoolHashAnnotationKey] != drift.PoolStamp(got).Hash || got.Spec.Template.Labels["image"] != "1" {
				t.Errorf("%v, %v", got.Annotations, got.Spec.Template)
			}
			if present.Spec.Template.Labels["image"] != "2" || present.Annotations[v1.NodePoolHashAnnotationKey] != "x" {
				t.Error("the pool itself was changed")
			}
		})
	}
}

func TestATemplateThatPoolsMayNotHaveIsNotRestored(t *testing.T) {
	s := remembered(templated("1", "default"))
	for _, template := range []string{"{", strings.Replace(s.Template, `"image"`, `"kubernetes.io/hostname"`, 1),
		strings.Replace(s.Template, `"spec":{`, `"spec":{"requirements":[{"key":"a","operator":"Nonsense"}],`, 1)} {
		if got, err := rollout.Restore(snapshot(nil), templated("2", "default"), &v1alpha1.RolloutState{Template: template}, known); err == nil {
			t.Errorf("%s: %v", template, got)
		}
	}
}

// A claim that went back is neither new nor stale in the rollout that goes on, and has not drifted while the pool is stopped.
func TestAClaimThatWentBackIsAnOldMachine(t *testing.T) {
	back := claim("back", start.Add(time.Minute), "NodePoolDrifted")
	back.Annotations = map[string]string{v1.LastGoodImagesAnnotationKey: ""}
	fresh := claim("fresh", start.Add(time.Minute), "")
	f := rollout.Fleets(snapshot([]*v1.NodeClaim{back, fresh}), map[string]time.Time{"default": start})["default"]
	if f.Drifted != 1 || f.Stale != 0 || len(f.Fresh) != 1 || f.Fresh[0].Claim.Name != "fresh" {
		t.Errorf("%+v", f)
	}
	var j rollout.Judge
	sound := claim("sound", start, "")
	sound.Annotations = back.Annotations
	v := j.Look(snapshot([]*v1.NodeClaim{sound}), rollout.Limits{Pool: "default", Since: start, Ready: time.Minute}, start.Add(time.Hour))
	if v.Machines != 0 || v.Waits {
		t.Errorf("a machine that went back is judged: %+v", v)
	}
	for name, tc := range map[string]struct {
		claim *v1.NodeClaim
		edit  func(*v1alpha1.RolloutPolicy)
		want  bool
	}{
		"stopped":             {claim: back, want: true},
		"one that did not":    {claim: fresh},
		"resumed":             {claim: back, edit: func(p *v1alpha1.RolloutPolicy) { p.Status.Pools[0].Tripped = nil }},
		"a new spec":          {claim: back, edit: func(p *v1alpha1.RolloutPolicy) { p.Status.Pools[0].Revision = "x" }},
		"it is to pause only": {claim: back, edit: func(p *v1alpha1.RolloutPolicy) { p.Spec.OnFailure = v1alpha1.RolloutPause }},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy("careful", start, func(p *v1alpha1.RolloutPolicy) {
				p.Spec.OnFailure = v1alpha1.RolloutLastGood
				p.Status.Pools = []v1alpha1.RolloutPool{{Name: "default", Revision: rollout.Revision(snapshot(nil), pool()), Tripped: &metav1.Time{Time: start}}}
			})
			if tc.edit != nil {
				tc.edit(p)
			}
			if got := rollout.StandsIn(snapshot(nil, p), tc.claim, pool()); got != tc.want {
				t.Errorf("StandsIn = %t", got)
			}
		})
	}
}

// A pool that is stopped without a rollout of its own gets no machines but for pods that wait either.
func TestAStoppedPoolWithoutARolloutStaysStill(t *testing.T) {
	p := policy("careful", start, func(p *v1alpha1.RolloutPolicy) {
		p.Status.Pools = []v1alpha1.RolloutPool{{Name: "default", Revision: rollout.Revision(snapshot(nil), pool()), Tripped: &metav1.Time{Time: start}}}
	})
	if a := rollout.Allowances(snapshot(nil, p), start)["default"]; !a.Still || a.State != rollout.Tripped {
		t.Errorf("%+v", a)
	}
}
