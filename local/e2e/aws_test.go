package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/local/plane"
)

// group is a node label that keeps the pods and nodes of a test to themselves.
const group = "e2e.karpenter.local/group"

// model sends a body to one of the switches of AWS.
func model(t *testing.T, method, path string, body any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	url := plane.Plane{Ports: shared.run(t).Ports}.AWSEndpoint() + "/_model/" + path
	request, err := http.NewRequestWithContext(context.Background(), method, url, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if said, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s: %s", method, path, answer.Status, said)
	}
}

// faults gives AWS a bad time until the test ends.
func faults(t *testing.T, f awsmodel.Faults) {
	t.Helper()
	model(t, http.MethodPut, "faults", f)
	t.Cleanup(func() { model(t, http.MethodPut, "faults", awsmodel.Faults{}) })
}

// class is a node class like the default one.
func class(name string) *awsv1.EC2NodeClass {
	here := map[string]string{v1.Group + "/discovery": plane.ClusterName}
	c := &awsv1.EC2NodeClass{Spec: awsv1.EC2NodeClassSpec{
		Role:                       "KarpenterNodeRole-" + plane.ClusterName,
		AMISelectorTerms:           []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}},
		SubnetSelectorTerms:        []awsv1.SubnetSelectorTerm{{Tags: here}},
		SecurityGroupSelectorTerms: []awsv1.SecurityGroupSelectorTerm{{Tags: here}},
	}}
	c.Name = name
	return c
}

// pool makes nodes of a class for the pods of a group, and lets go of them at once.
func pool(name, class string, capacityTypes ...string) *v1.NodePool {
	p := &v1.NodePool{}
	p.Name = name
	template := &p.Spec.Template
	template.Labels = map[string]string{group: name}
	template.Spec.NodeClassRef = &v1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: class}
	template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
		{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: capacityTypes},
		{Key: corev1.LabelArchStable, Operator: "In", Values: []string{v1.ArchitectureAmd64}},
	}
	p.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmpty
	p.Spec.Disruption.ConsolidateAfter = v1.After(0)
	return p
}

// podOf is a pod of a group.
func podOf(name string, cpus string) corev1.PodTemplateSpec {
	p := template(name)
	p.Spec.NodeSelector = map[string]string{group: name}
	p.Spec.TerminationGracePeriodSeconds = new(int64)
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpus)
	return p
}

func claimsOf(ctx context.Context, pool string) ([]v1.NodeClaim, error) {
	var list v1.NodeClaimList
	err := shared.List(ctx, &list, client.MatchingLabels{v1.NodePoolLabelKey: pool})
	return list.Items, err
}

// fleet returns the claims of a pool.
func fleet(t *testing.T, pool string) []v1.NodeClaim {
	t.Helper()
	claims, err := claimsOf(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return claims
}

func machineID(c *v1.NodeClaim) string {
	return c.Status.ProviderID[strings.LastIndex(c.Status.ProviderID, "/")+1:]
}

// TestPodsLeaveASpotMachineWhenTheReplacementIsReady interrupts the machine of some pods, and looks at what was first: the
// replacement or the evictions.
func TestPodsLeaveASpotMachineWhenTheReplacementIsReady(t *testing.T) {
	together.enter(t)
	const name = "spot"
	add(t, pool(name, "default", v1.CapacityTypeSpot))
	add(t, deployment(name, 3, podOf(name, "500m")))
	running(t, name, 3)
	old := fleet(t, name)
	notice := time.Now()
	for i := range old {
		model(t, http.MethodPost, "interrupt", map[string][]string{"ids": {machineID(&old[i])}})
	}
	evicted := false
	eventually(t, func(ctx context.Context) (string, error) {
		pods, err := shared.pods(ctx, client.MatchingLabels{"app": name})
		if err != nil {
			return "", err
		}
		moved := slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.CreationTimestamp.Time.After(notice.Truncate(time.Second)) })
		claims, err := claimsOf(ctx, name)
		if err != nil {
			return "", err
		}
		if moved && !evicted {
			evicted = true
			wantReplacement(t, claims, old, time.Since(notice))
		}
		if left := slices.ContainsFunc(claims, func(c v1.NodeClaim) bool { return among(old, c) }); left || len(claims) == 0 {
			return "the interrupted claims are not gone", nil
		}
		return "", nil
	})
	running(t, name, 3)
	t.Logf("the interrupted machines were replaced %s after the notice", time.Since(notice).Round(100*time.Millisecond))
}

func among(old []v1.NodeClaim, c v1.NodeClaim) bool {
	return slices.ContainsFunc(old, func(o v1.NodeClaim) bool { return o.Name == c.Name })
}

// wantReplacement fails if the first eviction came while no other machine was ready, earlier than 45 s after the notice.
func wantReplacement(t *testing.T, claims, old []v1.NodeClaim, since time.Duration) {
	t.Helper()
	for i := range claims {
		if !among(old, claims[i]) && condition.IsTrue(&claims[i], v1.ConditionTypeInitialized) {
			return
		}
	}
	if since < 45*time.Second {
		t.Errorf("pods were evicted %s after the notice, before a replacement was initialised", since)
	}
}

// TestADryPoolCostsNoRound takes away what was bought for a pod, and asks for the same once more.
func TestADryPoolCostsNoRound(t *testing.T) {
	together.enter(t)
	const name = "dry"
	add(t, pool(name, "default", v1.CapacityTypeOnDemand))
	add(t, deployment(name, 1, podOf(name, "3")))
	running(t, name, 1)
	first := fleet(t, name)
	kind := first[0].Labels[corev1.LabelInstanceTypeStable]
	faults(t, awsmodel.Faults{Pools: []awsmodel.PoolRule{{Match: "*/" + kind + "/*", Depth: 0}}})
	before := created(t, name)
	scale(t, name, 2)
	begin := time.Now()
	running(t, name, 2)
	t.Logf("the second pod ran after %s", time.Since(begin).Round(100*time.Millisecond))
	second := slices.DeleteFunc(fleet(t, name), func(c v1.NodeClaim) bool { return among(first, c) })
	if len(second) != 1 || second[0].Labels[corev1.LabelInstanceTypeStable] == kind {
		t.Fatalf("the second pod made %d claims, want one that is no %s", len(second), kind)
	}
	if n := created(t, name) - before; n != 1 {
		t.Errorf("%d claims were made for one pod, want one", n)
	}
}

// created counts how many claims of a pool were ever made, by Karpenter's own metric.
func created(t *testing.T, pool string) int {
	t.Helper()
	return counted(t, "karpenter_nodeclaims_created_total", `nodepool="`+pool+`"`)
}

// scraped returns all metrics of the controller that leads.
func (c *cluster) scraped(t *testing.T) string {
	t.Helper()
	leader, err := c.leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.do(t, "kubectl", "get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8080/proxy/metrics", plane.Namespace, leader.Pod))
}

// counted is the sum of one of Karpenter's counters over the series with a label.
func counted(t *testing.T, metric, label string) int {
	t.Helper()
	total := 0
	for line := range strings.Lines(shared.scraped(t)) {
		if strings.HasPrefix(line, metric+"{") && strings.Contains(line, label) {
			var n int
			if _, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &n); err != nil {
				t.Fatalf("metric %q: %v", line, err)
			}
			total += n
		}
	}
	return total
}

// TestNewImagesRollTheFleetWithinBudget pins a class to the older of two images while nodes run the newer one.
func TestNewImagesRollTheFleetWithinBudget(t *testing.T) {
	together.enter(t)
	const name, nodes = "rolling", 2
	nc := class(name)
	add(t, nc)
	p := pool(name, name, v1.CapacityTypeOnDemand)
	p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "1"}}
	add(t, p)
	alone := podOf(name, "500m")
	alone.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: selector(name), TopologyKey: corev1.LabelHostname}},
	}}
	add(t, deployment(name, nodes, alone))
	running(t, name, nodes)
	old := fleet(t, name)

	base := nc.DeepCopy()
	nc.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@v20260715"}}
	if err := shared.Patch(t.Context(), nc, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	begin, worst, fewest := time.Now(), 0, nodes
	eventually(t, func(ctx context.Context) (string, error) {
		claims, err := claimsOf(ctx, name)
		if err != nil {
			return "", err
		}
		pods, err := shared.pods(ctx, client.MatchingLabels{"app": name})
		if err != nil {
			return "", err
		}
		leaving, stale, ready := 0, 0, 0
		for _, c := range claims {
			if among(old, c) {
				stale++
				if c.DeletionTimestamp != nil && !condition.IsTrue(&c, v1.ConditionTypeInstanceTerminating) {
					leaving++
				}
			}
		}
		for _, p := range pods {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				ready++
			}
		}
		worst, fewest = max(worst, leaving), min(fewest, ready)
		if stale > 0 || len(claims) != nodes || ready != nodes {
			return fmt.Sprintf("%d of %d claims have the old image, %d pods run", stale, len(claims), ready), nil
		}
		return "", nil
	})
	t.Logf("%d nodes were rolled in %s", nodes, time.Since(begin).Round(100*time.Millisecond))
	if worst > 1 || fewest < nodes-1 {
		t.Errorf("at worst %d nodes were on their way out and %d pods ran; the budget is one node", worst, fewest)
	}
	for _, c := range fleet(t, name) {
		if c.Status.ImageID == old[0].Status.ImageID {
			t.Errorf("claim %s still runs %s", c.Name, c.Status.ImageID)
		}
	}
}

// TestADeniedActionIsNamed asks for what the controller's policy does not allow: passing another role to machines.
func TestADeniedActionIsNamed(t *testing.T) {
	together.enter(t)
	nc := class("denied")
	nc.Spec.Role = "Administrator"
	add(t, nc)
	eventually(t, func(ctx context.Context) (string, error) {
		if err := shared.Get(ctx, client.ObjectKeyFromObject(nc), nc); err != nil {
			return "", err
		}
		c := condition.Get(nc, awsv1.ConditionTypeInstanceProfileReady)
		if c == nil || c.Status != "False" {
			return fmt.Sprintf("the condition is %+v", c), nil
		}
		for _, want := range []string{"AccessDenied", "iam:PassRole"} {
			if !strings.Contains(c.Message, want) {
				return fmt.Sprintf("the condition says %q, want %s in it", c.Message, want), nil
			}
		}
		return "", nil
	})
}

// TestALaunchThatIsDeniedIsToldOnTheClaim takes the right to launch away.
func TestALaunchThatIsDeniedIsToldOnTheClaim(t *testing.T) {
	together.enter(t)
	const name = "refused"
	faults(t, awsmodel.Faults{Fail: map[string]awsmodel.Failure{"ec2:CreateFleet": {
		Code: "UnauthorizedOperation", Status: http.StatusForbidden,
		Message: "You are not authorized to perform this operation. User: arn:aws:sts::1:assumed-role/x is not authorized to perform: ec2:CreateFleet",
	}}})
	add(t, pool(name, "default", v1.CapacityTypeOnDemand))
	add(t, deployment(name, 1, podOf(name, "500m")))
	eventually(t, func(ctx context.Context) (string, error) {
		claims, err := claimsOf(ctx, name)
		if err != nil {
			return "", err
		}
		var said []string
		for i := range claims {
			if c := condition.Get(&claims[i], v1.ConditionTypeLaunched); c != nil {
				said = append(said, c.Message)
			}
		}
		if text := strings.Join(said, "\n"); !strings.Contains(text, "UnauthorizedOperation") || !strings.Contains(text, "ec2:CreateFleet") {
			return fmt.Sprintf("%d claims say %q, want the code and the action", len(claims), text), nil
		}
		return "", nil
	})
	model(t, http.MethodPut, "faults", awsmodel.Faults{})
	running(t, name, 1)
}

// TestTheEnvironmentNamesNoProfile evaluates what env prints, as people do, in a shell with a profile of their own: the aws command
// looks for a profile even if its name is empty, and old ones do not look for an endpoint.
func TestTheEnvironmentNamesNoProfile(t *testing.T) {
	together.enter(t)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "aws"), []byte("#!/bin/sh\necho \"aws $*\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	const script = `AWS_PROFILE=mine; export AWS_PROFILE; PATH="$2:$PATH"; eval "$1"; echo "${AWS_PROFILE-none} $AWS_REGION $AWS_DEFAULT_REGION $AWS_ENDPOINT_URL"; aws sqs "two words"`
	out, err := exec.Command("sh", "-c", script, "sh", shared.do(t, "env"), folder).CombinedOutput()
	endpoint := plane.Plane{Ports: shared.run(t).Ports}.AWSEndpoint()
	want := fmt.Sprintf("none %s %s %s\naws --endpoint-url %s sqs two words\n", plane.Region, plane.Region, endpoint, endpoint)
	if err != nil || string(out) != want {
		t.Errorf("the shell has %q, %v; want %q", out, err, want)
	}
}

// TestTheSDKHasNothingToSay fails if answers of AWS were cut off, which the SDK mends by asking again and tells in its own log.
func TestTheSDKHasNothingToSay(t *testing.T) {
	together.enter(t)
	for line := range strings.Lines(shared.do(t, "logs", plane.Controller)) {
		if strings.HasPrefix(line, "SDK ") {
			t.Errorf("the SDK said: %s", line)
		}
	}
}
