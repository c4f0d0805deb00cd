package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/plane"
)

// soak says whether there is time for the long lists of seeds.
func soak() bool { return os.Getenv("KARPENTER_SOAK") != "" }

// launched asks AWS which machines there have ever been.
func launched(ctx context.Context, r home.Run) ([]awsmodel.Machine, error) {
	url := plane.Plane{Ports: r.Ports}.AWSEndpoint() + "/_model/machines"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var all []awsmodel.Machine
	return all, json.NewDecoder(answer.Body).Decode(&all)
}

// ended says whether a machine holds no capacity any more.
func ended(m awsmodel.Machine) bool { return m.State == "terminated" || m.State == "shutting-down" }

// machines asks AWS which machines hold capacity, by provider id.
func machines(ctx context.Context, r home.Run) ([]string, error) {
	all, err := launched(ctx, r)
	var alive []string
	for _, m := range slices.DeleteFunc(all, ended) {
		alive = append(alive, "aws:///"+m.Zone+"/"+m.ID)
	}
	slices.Sort(alive)
	return alive, err
}

// unequal says where machines, claims and nodes are not the same, and which pool has more than it may.
func (c *cluster) unequal(ctx context.Context, r home.Run) (string, error) {
	running, err := machines(ctx, r)
	if err != nil {
		return "", err
	}
	claims, err := c.claims(ctx)
	if err != nil {
		return "", err
	}
	nodes, err := c.nodes(ctx)
	if err != nil {
		return "", err
	}
	var claimed, joined []string
	for _, c := range claims {
		claimed = append(claimed, c.Status.ProviderID)
	}
	for _, n := range nodes {
		joined = append(joined, n.Spec.ProviderID)
	}
	slices.Sort(claimed)
	slices.Sort(joined)
	if !slices.Equal(running, claimed) || !slices.Equal(running, joined) {
		return fmt.Sprintf("%d machines %v, %d claims %v, %d nodes %v", len(running), running, len(claimed), claimed, len(joined), joined), nil
	}
	return "", nil
}

// checkLimits fails if a pool has more than its limits allow.
func checkLimits(t *testing.T) {
	t.Helper()
	var pools v1.NodePoolList
	if err := shared.List(t.Context(), &pools); err != nil {
		t.Fatal(err)
	}
	for _, pool := range pools.Items {
		for name, limit := range pool.Spec.Limits {
			if used := pool.Status.Resources[name]; used.Cmp(limit) > 0 {
				t.Errorf("pool %s has %s of %s; its limit is %s", pool.Name, used.String(), name, limit.String())
			}
		}
	}
}

// TestAControllerThatIsKilledLosesNothing kills the controller in the middle of things, once for each seed.
func TestAControllerThatIsKilledLosesNothing(t *testing.T) {
	together.enter(t)
	seeds := uint64(2) // another replica leads only after a quarter of a minute; the chaos of simulated time has hundreds
	if soak() {
		seeds = 50
	}
	killing(t, seeds)
}

// On a bad day AWS throttles, shows what was a while ago, and keeps some of its answers to itself.
func TestAControllerThatIsKilledOnABadDayLosesNothing(t *testing.T) {
	together.enter(t)
	seeds := uint64(2)
	if soak() {
		seeds = 30
	}
	faults(t, awsmodel.Faults{Throttle: true, LagMillis: 2000, LostAnswers: .05})
	killing(t, seeds)
}

func killing(t *testing.T, seeds uint64) {
	t.Cleanup(func() { shared.command("kubectl", "scale", "deployment", "inflate", "--replicas=0").Run() })
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			replicas := 1 + random.IntN(60)
			scale(t, "inflate", replicas)
			time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond) // the kill may come at any moment
			killLeader(t)
			running(t, "inflate", replicas)
			eventually(t, func(ctx context.Context) (string, error) { return shared.unequal(ctx, shared.run(t)) })
			checkLimits(t)
		})
	}
	eventually(t, func(ctx context.Context) (string, error) { // the next test wants a controller
		_, err := shared.leader(ctx)
		return "", err
	})
}

// killLeader ends the controller the hard way. It is started again.
func killLeader(t *testing.T) {
	t.Helper()
	eventually(t, func(ctx context.Context) (string, error) {
		leader, err := shared.leader(ctx)
		if err != nil {
			return "", err
		}
		return "", syscall.Kill(leader.PID, syscall.SIGKILL)
	})
}

// TestPodsBindWhereTheyWerePlanned holds down the machines that are bought because kube-scheduler put pods elsewhere than
// planned: pods of two sizes, on several nodes that become usable one after another.
func TestPodsBindWhereTheyWerePlanned(t *testing.T) {
	together.enter(t)
	empty(t)
	began := time.Now()
	big, small := template("big"), template("small")
	big.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("3")
	small.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("500m")
	add(t, deployment("big", 6, big))
	add(t, deployment("small", 24, small))
	running(t, "big", 6)
	running(t, "small", 24)
	claims, err := shared.claims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made := purchases(t, began)
	if all, again := made.count(30); all < len(claims) || again > 1 {
		t.Errorf("%d claims are there, and %d of %d were made by a later plan, which pods that bound elsewhere needed: %+v", len(claims), again, all, made)
	}
	used := map[string]bool{}
	for _, app := range []string{"big", "small"} {
		pods, err := shared.pods(t.Context(), client.MatchingLabels{"app": app})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods {
			used[p.Spec.NodeName] = true
		}
	}
	for _, c := range claims {
		if !used[c.Status.NodeName] {
			t.Errorf("%s was bought for nothing", c.Name)
		}
	}
}
