package crashtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestNothingVoluntaryWithoutApprovalOrWhilePaused lives through pods that come and go, restarts, two processes at once, people who pause and
// resume and approve at random: a node that disruption deletes belongs to a plan that somebody approved, and nothing is paused.
func TestNothingVoluntaryWithoutApprovalOrWhilePaused(t *testing.T) {
	var went, pauses atomic.Int64
	t.Cleanup(func() {
		if went.Load() == 0 || pauses.Load() == 0 {
			t.Errorf("%d nodes went and %d pauses began: nothing was tried", went.Load(), pauses.Load())
		}
	})
	sim.EachSeed(t, "STEER_SEEDS", 50, 1000, func(t *testing.T, seed uint64) {
		s := &steered{trial: newTrial(t, seed), approved: map[string]bool{}}
		s.live(&pauses)
		went.Add(int64(s.went))
	})
}

// steered is a world whose pool wants to be asked.
type steered struct {
	*trial
	pods int

	mu       sync.Mutex
	approved map[string]bool // names of plans
	paused   time.Time       // since when, zero while nothing is
	went     int
}

func (s *steered) live(pauses *atomic.Int64) {
	s.disrupt = true
	memapi.Edit(s.API, "", "default", func(p *v1.NodePool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1.ApprovalAnnotationKey, "manual")
		p.Spec.Disruption.ConsolidateAfter, p.Spec.Disruption.ConsolidationPolicy = v1.After(0), v1.ConsolidationPolicyWhenEmptyOrUnderutilized
		p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "50%"}}
	})
	s.API.SetFault(s.judge)
	ctx, stop := context.WithCancel(s.t.Context())
	world := make(chan struct{})
	go func() { s.Run(ctx); close(world) }()
	end := s.start()
	for range 12 {
		switch s.rand.IntN(7) {
		case 0:
			end()
			time.Sleep(s.between(0, 10*time.Second))
			end = s.start()
		case 1:
			other := s.start()
			time.Sleep(s.between(0, 20*time.Second))
			other()
		case 2:
			s.pause(pauses)
		case 3:
			s.resume()
		}
		s.approve()
		if s.rand.IntN(2) == 0 {
			s.come(1 + s.rand.IntN(12))
		} else {
			s.leave()
		}
		time.Sleep(s.between(0, 90*time.Second))
	}
	end()
	stop()
	<-world
	time.Sleep(time.Minute) // machines that are still stopping do so
}

// judge looks at each deletion of a claim that carries the record of a step.
func (s *steered) judge(r memapi.Request) error {
	if r.Verb != "delete" || r.Kind != "NodeClaim" || !strings.HasPrefix(r.Client, "process") {
		return nil
	}
	claim, ok := sim.Find[*v1.NodeClaim](s.World, r.Name.Name)
	if !ok || !strings.Contains(claim.Annotations[v1.DisruptionCommandAnnotationKey], `"role":"candidate"`) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.went++
	if !s.paused.IsZero() && time.Since(s.paused) > time.Second {
		s.t.Errorf("%s is deleted %v after everything was paused", claim.Name, time.Since(s.paused))
	}
	for name := range s.approved {
		if strings.Contains(claim.Annotations[v1.DisruptionCommandAnnotationKey], fmt.Sprintf(`"plan":%q`, name)) {
			return nil
		}
	}
	s.t.Errorf("%s is deleted, which nobody approved: %s", claim.Name, claim.Annotations[v1.DisruptionCommandAnnotationKey])
	return nil
}

// approve says yes to half of the plans that wait, and no to a few.
func (s *steered) approve() {
	for _, p := range memapi.All[*v1alpha1.DisruptionPlan](s.API) {
		decision := v1alpha1.DisruptionApproved
		switch s.rand.IntN(6) {
		case 0, 1, 2:
		case 3:
			decision = v1alpha1.DisruptionDenied
		default:
			continue
		}
		if !p.Open() || p.Spec.Decision != "" {
			continue
		}
		if decision == v1alpha1.DisruptionApproved {
			s.mu.Lock()
			s.approved[p.Name] = true
			s.mu.Unlock()
		}
		memapi.Edit(s.API, "", p.Name, func(p *v1alpha1.DisruptionPlan) { p.Spec.Decision = decision })
	}
}

func (s *steered) pause(pauses *atomic.Int64) {
	s.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1.PausedNamespace, Annotations: map[string]string{v1.PausedAnnotationKey: "true"}}})
	pauses.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused.IsZero() {
		s.paused = time.Now()
	}
}

func (s *steered) resume() {
	s.mu.Lock()
	s.paused = time.Time{}
	s.mu.Unlock()
	s.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1.PausedNamespace}})
}

// come adds pods.
func (s *steered) come(n int) {
	for range n {
		s.pods++
		s.API.Put(sim.Pod(fmt.Sprintf("pod-%03d", s.pods), podCPU))
	}
}

// leave ends half of the pods.
func (s *steered) leave() {
	for _, p := range memapi.All[*corev1.Pod](s.API) {
		if p.DeletionTimestamp == nil && s.rand.IntN(2) == 0 {
			sim.Delete(s.t, s.World, p)
		}
	}
}
