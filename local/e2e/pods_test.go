package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/local/plane"
)

// template is a pod of one CPU.
func template(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "c", Image: "pause",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
				}},
			}},
		},
	}
}

func deployment(name string, replicas int32, pods corev1.PodTemplateSpec) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: meta(name), Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector(name), Template: pods}}
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "default"} }

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// add makes an object for the time of the test and waits at its end until the cluster is empty again.
func add(t *testing.T, o client.Object) {
	t.Helper()
	if err := shared.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		background := metav1.DeletePropagationBackground
		if err := shared.Delete(context.Background(), o, &client.DeleteOptions{PropagationPolicy: &background}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// running waits until that many pods of the app run in the cluster of most tests.
func running(t *testing.T, app string, want int) []corev1.Pod {
	t.Helper()
	return shared.running(t, app, want)
}

// running waits until that many pods of the app run.
func (c *cluster) running(t *testing.T, app string, want int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	eventually(t, func(ctx context.Context) (string, error) {
		var err error
		if pods, err = c.pods(ctx, client.MatchingLabels{"app": app}); err != nil {
			return "", err
		}
		n := 0
		for _, p := range pods {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				n++
			}
		}
		if n == want && len(pods) == want {
			return "", nil
		}
		return fmt.Sprintf("%d of %d pods of %s run", n, want, app), nil
	})
	return pods
}

// empty waits until there is neither node nor claim.
func empty(t *testing.T) {
	t.Helper()
	eventually(t, func(ctx context.Context) (string, error) {
		nodes, err := shared.nodes(ctx)
		if err != nil {
			return "", err
		}
		claims, err := shared.claims(ctx)
		if err != nil {
			return "", err
		}
		if len(nodes)+len(claims) == 0 {
			return "", nil
		}
		return fmt.Sprintf("%d nodes and %d claims are left", len(nodes), len(claims)), nil
	})
}

func scale(t *testing.T, deployment string, replicas int) {
	t.Helper()
	shared.do(t, "kubectl", "scale", "deployment", deployment, fmt.Sprintf("--replicas=%d", replicas))
}

func TestPodsGetNodesAndTheNodesGoWithThem(t *testing.T) {
	together.enter(t)
	empty(t)
	guide := section(t, "getting-started.md", "")
	if len(guide) != 4 {
		t.Fatalf("the guide begins with %d blocks of commands, want those that start the cluster, scale, look, and scale back", len(guide))
	}
	begin := time.Now()
	shared.typed(t, guide[1])
	pods := running(t, "inflate", 10)
	t.Logf("10 pods ran after %s", time.Since(begin).Round(100*time.Millisecond))

	nodes, err := shared.nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	claims, err := shared.claims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owned := map[string]bool{}
	for _, c := range claims {
		owned[c.Status.ProviderID] = true
	}
	used := map[string]bool{}
	for _, p := range pods {
		used[p.Spec.NodeName] = true
	}
	for _, n := range nodes {
		if !owned[n.Spec.ProviderID] {
			t.Errorf("node %s belongs to no claim", n.Name)
		}
		if !used[n.Name] {
			t.Errorf("node %s was bought for nothing", n.Name)
		}
		for _, taint := range n.Spec.Taints {
			if taint.Key == v1.UnregisteredTaintKey {
				t.Errorf("node %s runs pods and is not registered", n.Name)
			}
		}
	}
	if len(nodes) != len(claims) {
		t.Errorf("%d nodes, %d claims", len(nodes), len(claims))
	}

	begin = time.Now()
	atPods, atTheRest := looks(t, pods[0].Name, claims[0].Name, claims[0].Status.NodeName)
	for _, command := range append(atPods, guide[2], "karpenter resume --pool default") {
		shared.typed(t, command)
	}
	t.Logf("people looked at it for %s", time.Since(begin).Round(100*time.Millisecond))

	begin = time.Now()
	asking := section(t, "steering.md", "Approval")
	t.Cleanup(func() {
		shared.command("kubectl", "annotate", "nodepool", "default", "karpenter.sh/disruption-approval-", "karpenter.sh/disruption-auto-approve-").Run()
	})
	shared.typed(t, asking[0])
	shared.typed(t, guide[3])
	for _, command := range atTheRest { // nodes stay for a while
		shared.typed(t, command)
	}
	decides(t, asking)
	empty(t)
	t.Logf("the nodes were gone after %s", time.Since(begin).Round(100*time.Millisecond))
}

// decides has people decide about nodes that should go, by the commands of the page: a plan is denied and its nodes stay, the next one is approved, and
// what is left is approved by a rule.
func decides(t *testing.T, page []string) {
	t.Helper()
	typed := strings.Split(page[1], "\n") // look, approve, deny, look, approve with kubectl
	if len(page) != 3 || len(typed) != 5 {
		t.Fatalf("the page has %q", page)
	}
	named := regexp.MustCompile(`underutilized-\w+`)
	plan := decided(t, typed[0], named.ReplaceAllString(typed[2], "PLAN")+" || true", "Denied")
	claims, err := shared.claims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(shared.do(t, "kubectl", "get", "disruptionplan", plan, "-o", "jsonpath={.status.step.remove[*].nodeClaim}")) {
		if !slices.ContainsFunc(claims, func(c v1.NodeClaim) bool { return c.Name == name && c.DeletionTimestamp == nil }) {
			t.Errorf("%s went although somebody said no", name)
		}
	}
	shared.typed(t, typed[3]+"\nkubectl delete disruptionplan "+plan)
	decided(t, typed[0], named.ReplaceAllString(typed[4], "PLAN")+" --dry-run=server\n"+named.ReplaceAllString(typed[1], "PLAN")+" || true", "CarriedOut")
	shared.typed(t, page[2])
}

// decided says yes or no to a plan of those that are listed, and waits until it is in that phase. Where it was superseded meanwhile another one is asked about.
func decided(t *testing.T, list, command, phase string) (plan string) {
	t.Helper()
	waits := regexp.MustCompile(`(?m)^([a-z]+-[0-9a-f]+)\s.*\s$`) // nothing is in the last column of those about which nobody has decided
	eventually(t, func(context.Context) (string, error) {
		if plan == "" {
			m := waits.FindStringSubmatch(shared.typed(t, list))
			if m == nil {
				return "no plan waits", nil
			}
			plan = m[1]
			shared.typed(t, strings.ReplaceAll(command, "PLAN", plan))
		}
		said := plan + " is " + shared.do(t, "kubectl", "get", "disruptionplan", plan, "-o", "jsonpath={.status.phase}")
		switch said {
		case plan + " is " + phase:
			return "", nil
		case plan + " is Superseded":
			plan = ""
		}
		return said, nil
	})
	return plan
}

func TestJobsSucceed(t *testing.T) {
	together.enter(t)
	job := &batchv1.Job{ObjectMeta: meta("sums"), Spec: batchv1.JobSpec{Template: template("sums")}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	add(t, job)
	eventually(t, func(ctx context.Context) (string, error) {
		if err := shared.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return "", err
		}
		if job.Status.Succeeded == 1 {
			return "", nil
		}
		return "the job has not succeeded", nil
	})
}

func TestStatefulSetsAndDaemonSetsRun(t *testing.T) {
	together.enter(t)
	replicas := int32(2)
	add(t, &appsv1.StatefulSet{ObjectMeta: meta("store"), Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: selector("store"), Template: template("store"),
	}})
	daemon := template("daemon")
	daemon.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	add(t, &appsv1.DaemonSet{ObjectMeta: meta("daemon"), Spec: appsv1.DaemonSetSpec{Selector: selector("daemon"), Template: daemon}})
	running(t, "store", 2)
	nodes, err := shared.nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	running(t, "daemon", len(nodes))
}

func TestABudgetHoldsAnEvictionBack(t *testing.T) {
	together.enter(t)
	add(t, deployment("guarded", 1, template("guarded")))
	none := intstr.FromInt32(0)
	add(t, &policyv1.PodDisruptionBudget{ObjectMeta: meta("guarded"), Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: &none, Selector: selector("guarded"),
	}})
	pod := running(t, "guarded", 1)[0]
	eventually(t, func(ctx context.Context) (string, error) {
		err := shared.SubResource("eviction").Create(ctx, &pod, &policyv1.Eviction{})
		if apierrors.IsTooManyRequests(err) {
			return "", nil
		}
		return fmt.Sprintf("the eviction was answered with %v", err), nil
	})
}

func TestTheControllerMayDoWhatItsChartAllowsAndNoMore(t *testing.T) {
	together.enter(t)
	user := "system:serviceaccount:" + plane.Namespace + ":" + plane.ServiceAccount
	for what, want := range map[string]bool{
		"create nodeclaims.karpenter.sh":                true,
		"list pods":                                     true,
		"create pods/eviction":                          true,
		"delete nodes":                                  true,
		"patch ec2nodeclasses.karpenter.k8s.aws":        true,
		"create nodes":                                  false,
		"create pods":                                   false,
		"get secrets":                                   false,
		"delete nodepools.karpenter.sh":                 false,
		"create clusterroles.rbac.authorization.k8s.io": false,
	} {
		verb, target, _ := strings.Cut(what, " ")
		target, group, _ := strings.Cut(target, ".")
		target, sub, _ := strings.Cut(target, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: target, Subresource: sub},
		}}
		if err := shared.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != want {
			t.Errorf("%s: allowed = %t, want %t", what, review.Status.Allowed, want)
		}
	}
}

// The chart's rights are enough, and its policy about pods/status lets hints pass. Pods of the most frequent sort are told nothing, hence two sorts.
func TestTheAPIServerForbidsKarpenterNoChange(t *testing.T) {
	together.enter(t)
	few, many := template("few"), template("many")
	few.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("3")
	add(t, deployment("few", 2, few))
	add(t, deployment("many", 4, many))
	running(t, "few", 2)
	running(t, "many", 4)
	written := func() int { return counted(t, "karpenter_hints_total", `outcome="written"`) }
	if kubernetes != "" && kubernetes < "1.35" { // its kube-scheduler does not read them
		if n := written(); n > 0 {
			t.Errorf("%d hints were written for nothing", n)
		}
		if said := shared.do(t, "logs", "controller"); !strings.Contains(said, "hints to kube-scheduler (from 1.35 on)") {
			t.Errorf("the log does not say that hints are off:\n%s", said)
		}
	} else {
		eventually(t, func(context.Context) (string, error) {
			if written() == 0 {
				return "no hint was written", nil
			}
			return "", nil
		})
	}
	for _, method := range []string{"DELETE", "PATCH", "POST", "PUT"} {
		if n := counted(t, "client_go_request_total", fmt.Sprintf(`code="403",method=%q`, method)); n > 0 {
			t.Errorf("%d requests of the method %s were forbidden", n, method)
		}
	}
	if counted(t, "client_go_request_total", `method="PATCH"`) == 0 {
		t.Error("requests are not counted")
	}
}
