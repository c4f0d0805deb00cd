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
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
	// newsDelay is how long the news of an accepted eviction may take to arrive, before it is asked for again.
	newsDelay = 5 * time.Second
	atOnce    = 10 // requests for one node at the same time
)

// A queue remembers which pods of one node were asked to go, and when to ask again.
type queue struct {
	mu   sync.Mutex
	pods map[podID]*try
}

// A podID is one incarnation of a pod.
type podID struct {
	cluster.PodKey
	uid types.UID
}

type try struct {
	next     time.Time
	failures int
}

// A job is what to ask for.
type job struct {
	row      *cluster.Node
	claim    *v1.NodeClaim
	plan     evict.Plan
	deadline time.Time
}

// run asks for what is due, and returns when the next request is.
func (q *queue) run(ctx context.Context, l *Loop, j job) time.Time {
	q.keep(j.plan.Waiting)
	var requests []request
	ask := func(p *cluster.Pod, send func() bool) {
		if t := q.try(p); !time.Now().Before(t.next) {
			requests = append(requests, request{p, t, send})
		}
	}
	for _, d := range j.plan.Delete {
		ask(d.Pod, func() bool { return l.delete(ctx, j, d) })
	}
	for _, p := range j.plan.Evict {
		ask(p, func() bool { return l.evict(ctx, j, p) })
	}
	parallel.Of(requests, atOnce, request.doing, request.make)
	again := j.plan.Until // zero where there is nothing to ask: pods are on their way, and their end is news
	for _, t := range q.due(j.plan) {
		again = ztime.Sooner(again, t)
	}
	return again
}

// A request asks one pod to go. send reports whether the API server agreed.
type request struct {
	pod  *cluster.Pod
	try  *try
	send func() bool
}

func (r request) doing() string { return "asking pod " + r.pod.Namespace + "/" + r.pod.Name + " to go" }

// make sends the request and notes what became of it; a panic is a failure.
func (r request) make() error {
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

func (q *queue) try(p *cluster.Pod) *try {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.pods[idOf(p)]
	if t == nil {
		t = &try{}
		q.pods[idOf(p)] = t
	}
	return t
}

// due are the times of the next requests.
func (q *queue) due(plan evict.Plan) []time.Time {
	var out []time.Time
	for _, p := range plan.Evict {
		out = append(out, q.try(p).next)
	}
	for _, d := range plan.Delete {
		out = append(out, q.try(d.Pod).next)
	}
	return out
}

// answered plans the next request for a pod, later and later while they fail.
func (t *try) answered(done bool) {
	if done {
		t.next, t.failures = time.Now().Add(newsDelay), 0
		return
	}
	t.next = time.Now().Add(min(firstRetry<<min(t.failures, 10), lastRetry))
	t.failures++
}

// evict asks for the eviction of one pod. A refusal is no error: the pod's budget says when it may go.
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

// delete ends a pod that would outlive the node's deadline.
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
