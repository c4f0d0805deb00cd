package drain

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/evict"
	"karpenter.sh/karpenter/internal/kit/parallel"
	"karpenter.sh/karpenter/internal/kit/ztime"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// Times and numbers of evictions.
const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = 10 * time.Second
	// newsDelay is how long the watch may take to show an accepted eviction. After that the eviction is requested again.
	newsDelay = 5 * time.Second
	atOnce    = 10 // requests for one node at the same time
)

// A queue remembers for which pods of a node an eviction or deletion was requested, and when to request it again.
type queue struct {
	mu   sync.Mutex
	pods map[podID]*try
}

// A podID names a pod, and tells it from a later pod of the same name.
type podID struct {
	cluster.PodKey
	uid types.UID
}

// A try is what is remembered of the requests for one pod.
type try struct {
	next     time.Time // no request before this time
	failures int       // in a row
}

// A job is one turn of the drain of a node.
type job struct {
	row      *cluster.Node
	claim    *v1.NodeClaim
	plan     evict.Plan
	deadline time.Time // by which the node must be drained
}

// run sends the evictions and deletions of the plan that are due, and returns when to look again, zero if there is nothing to send.
func (q *queue) run(ctx context.Context, l *Loop, j job) time.Time {
	q.keep(j.plan.Waiting)
	var requests []request
	ask := func(p *cluster.Pod, send func() bool) {
		if t := q.tryOf(p); !time.Now().Before(t.next) {
			requests = append(requests, request{p, t, send})
		}
	}
	for _, d := range j.plan.Delete {
		ask(d.Pod, func() bool { return l.delete(ctx, j, d) })
	}
	for _, p := range j.plan.Evict {
		ask(p, func() bool { return l.evict(ctx, j, p) })
	}
	parallel.Of(requests, atOnce, request.doing, request.do)
	again := j.plan.Until // if it is zero and nothing is due, the end of a pod makes the loop look again
	for _, t := range q.due(j.plan) {
		again = ztime.Sooner(again, t)
	}
	return again
}

// A request is an eviction or deletion of one pod. send reports whether the API server accepted it.
type request struct {
	pod  *cluster.Pod
	try  *try
	send func() bool
}

func (r request) doing() string { return "asking pod " + r.pod.Namespace + "/" + r.pod.Name + " to go" }

// do sends the request, and plans the next one by its outcome. A panic counts as a failure.
func (r request) do() error {
	done := false
	defer func() { r.try.answered(done) }()
	done = r.send()
	return nil
}

// keep forgets pods that are no longer waited for.
func (q *queue) keep(waiting []*cluster.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id := range q.pods {
		if !slices.ContainsFunc(waiting, func(p *cluster.Pod) bool { return idOf(p) == id }) {
			delete(q.pods, id)
		}
	}
}

func idOf(p *cluster.Pod) podID { return podID{p.PodKey, p.UID} }

// tryOf returns what is remembered of a pod, to be changed in place.
func (q *queue) tryOf(p *cluster.Pod) *try {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.pods[idOf(p)]
	if t == nil {
		t = &try{}
		q.pods[idOf(p)] = t
	}
	return t
}

// due returns the times of the next requests of a plan.
func (q *queue) due(plan evict.Plan) []time.Time {
	var out []time.Time
	for _, p := range plan.Evict {
		out = append(out, q.tryOf(p).next)
	}
	for _, d := range plan.Delete {
		out = append(out, q.tryOf(d.Pod).next)
	}
	return out
}

// answered sets the time of the next request for a pod: after newsDelay if this one was accepted, else with exponential backoff.
func (t *try) answered(done bool) {
	if done {
		t.next, t.failures = time.Now().Add(newsDelay), 0
		return
	}
	t.next = time.Now().Add(min(firstRetry<<min(t.failures, 10), longestRetry))
	t.failures++
}

// evict requests the eviction of one pod, and reports whether it was accepted or the pod is gone. A refusal by a PodDisruptionBudget is
// not an error: an event reports it, and the request is sent again later.
func (l *Loop) evict(ctx context.Context, j job, p *cluster.Pod) (done bool) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	err := l.Evictions.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    pod.ObjectMeta,
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	})
	if ctx.Err() != nil {
		return false
	}
	l.Metrics.PodEvictionRequests.WithLabelValues(code(err)).Inc()
	switch {
	case err == nil:
		l.reportEvicted(j, p)
		return true
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another pod of the same name
		return true
	case apierrors.IsTooManyRequests(err):
		l.reportRefused(j.row.Node, p, "a PodDisruptionBudget would be violated")
	case apierrors.IsInternalError(err):
		l.reportRefused(j.row.Node, p, "the API server cannot evict it: "+err.Error())
	default:
		telemetry.Log(ctx).Error("eviction failed, trying again", "Node", j.row.Name, "Pod", p.Namespace+"/"+p.Name, "error", err)
	}
	return false
}

// code returns the HTTP status of an API server's answer, for metrics.
func code(err error) string {
	if err == nil {
		return strconv.Itoa(http.StatusOK)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return strconv.Itoa(int(status.Status().Code))
	}
	return strconv.Itoa(http.StatusInternalServerError)
}

// delete deletes a pod that would outlive the node's deadline, with the grace period that is left. It reports whether that was accepted
// or the pod is gone.
func (l *Loop) delete(ctx context.Context, j job, d evict.Deletion) (done bool) {
	p := d.Pod
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	err := l.Evictions.Delete(ctx, pod, client.GracePeriodSeconds(int64(d.Grace/time.Second)), client.Preconditions{UID: &p.UID})
	switch {
	case err == nil:
		l.reportForced(j, d)
		return true
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another pod of the same name
		return true
	}
	if ctx.Err() == nil {
		telemetry.Log(ctx).Error("deleting a pod failed, trying again", "Node", j.row.Name, "Pod", p.Namespace+"/"+p.Name, "error", err)
	}
	return false
}
