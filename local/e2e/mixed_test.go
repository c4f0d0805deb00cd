package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/local/plane"
)

// mixed is a deployment of random size whose pods ask for something besides room.
func mixed(r *rand.Rand, i int) *appsv1.Deployment {
	app := fmt.Sprintf("mixed-%d", i)
	pods := template(app)
	pods.Labels["mixed"] = "yes"
	pods.Spec.TerminationGracePeriodSeconds = new(int64(0))
	pods.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(100*(1+r.IntN(20))), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(1+r.IntN(20))<<27, resource.BinarySI),
	}
	own := corev1.PodAffinityTerm{LabelSelector: selector(app), TopologyKey: corev1.LabelTopologyZone}
	switch i % 6 {
	case 0:
		pods.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector(app),
		}}
	case 1:
		own.TopologyKey = corev1.LabelHostname
		pods.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{own}}}
	case 2:
		pods.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{own}}}
	case 3:
		pods.Spec.NodeSelector = map[string]string{"karpenter.sh/capacity-type": []string{"spot", "on-demand"}[r.IntN(2)]}
	case 4:
		pods.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}}
	}
	return deployment(app, int32(1+r.IntN(5)), pods)
}

// TestDeploymentsOfAllSortsRunAndNoNodeIsLeftOver starts deployments with mixed constraints at once: all their pods run, no node stays that
// runs none of them, and nothing was bought for a pod for which something had been bought, unless another pod took its place.
func TestDeploymentsOfAllSortsRunAndNoNodeIsLeftOver(t *testing.T) {
	together.enter(t)
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			empty(t)
			began, taken := time.Now(), displaced(t)
			r := rand.New(rand.NewPCG(seed, 3))
			want := 0
			for i := range 6 {
				d := mixed(r, i)
				want += int(*d.Spec.Replicas)
				add(t, d)
			}
			bought := map[string]bool{}
			eventually(t, func(ctx context.Context) (string, error) {
				claims, err := shared.claims(ctx)
				if err != nil {
					return "", err
				}
				for i := range claims {
					bought[claims[i].Name] = true
				}
				return allRun(ctx, want)
			})
			eventually(t, idle)
			made := purchases(t, began)
			claims, again := made.count(want)
			if claims < len(bought) {
				t.Errorf("%d claims were seen, and %d planned: %+v", len(bought), claims, made)
			}
			if taken = displaced(t) - taken; again > taken {
				t.Errorf("%d claims for %d pods were seen, and planned: %+v; some pod was bought for twice, though only %d were because kube-scheduler had given their place to another",
					len(bought), want, made, taken)
			}
		})
	}
}

// displaced is how many machines the controller bought, by its own count, because kube-scheduler gave a pod's place to another one. It is told where
// pods are meant to go, and on a busy machine does not always hear it in time.
func displaced(t *testing.T) int {
	t.Helper()
	return counted(t, "karpenter_nodeclaims_created_for_displaced_pods_total", `nodepool="default"`)
}

// A purchase is what one plan opens, and for how many pods.
type purchase struct {
	Message string    `json:"message"`
	Time    time.Time `json:"time"`
	Claims  int       `json:"nodeclaims"`
	Pods    int       `json:"pods"`
}

// All that was bought, in the order of time.
type shopping []purchase

// count returns how many claims were made, and how many of them after something had been bought for that many pods.
func (s shopping) count(want int) (claims, again int) {
	pods := 0
	for _, p := range s {
		if pods >= want {
			again += p.Claims
		}
		claims, pods = claims+p.Claims, pods+p.Pods
	}
	return claims, again
}

// purchases returns what the controller has bought for waiting pods since a time, by the logs of all its pods, whose lines may name theirs.
func purchases(t *testing.T, since time.Time) shopping {
	t.Helper()
	var out shopping
	for line := range strings.Lines(shared.do(t, "logs", plane.Controller)) {
		var p purchase
		if at := strings.Index(line, "{"); at >= 0 && json.Unmarshal([]byte(line[at:]), &p) == nil && p.Time.After(since) && strings.HasPrefix(p.Message, "computed new nodeclaim") {
			out = append(out, p)
		}
	}
	return out
}

// allRun says how many of the mixed pods do not run yet.
func allRun(ctx context.Context, want int) (string, error) {
	pods, err := shared.pods(ctx, client.MatchingLabels{"mixed": "yes"})
	if err != nil {
		return "", err
	}
	n := 0
	for _, p := range pods {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			n++
		}
	}
	if n == want {
		return "", nil
	}
	return fmt.Sprintf("%d of %d pods run", n, want), nil
}

// idle names a node that runs none of the mixed pods.
func idle(ctx context.Context) (string, error) {
	pods, err := shared.pods(ctx, client.MatchingLabels{"mixed": "yes"})
	if err != nil {
		return "", err
	}
	nodes, err := shared.nodes(ctx)
	if err != nil {
		return "", err
	}
	for _, n := range nodes {
		if !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == n.Name }) {
			return "node " + n.Name + " runs none of the pods", nil
		}
	}
	return "", nil
}
