package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"karpenter.sh/karpenter/internal/aws/policy"
)

// An account is what a template makes in one. Documents are JSON values, so that how they are written does not matter.
type account struct {
	Roles    map[string]role
	Policies map[string]any
	Profiles map[string]profile
	Queue    queue
	Rules    map[string]rule
}

type role struct {
	Trust    any
	Path     string
	Policies []string // names, or ARNs of AWS's own
}

type profile struct{ Path, Role string }

type queue struct {
	Name, Retention, Encrypted string
	Policy                     any
	PolicyOf                   []string // the addresses of the queues that have it
}

type rule struct {
	Pattern         any
	TargetID, Queue string
}

// A place is where a template is used, and what it is told.
type place struct {
	partition, suffix, region                       string
	cluster, queue, oidc, namespace, serviceAccount string
	commitments                                     string // whether they are imported
}

const accountID = "123456789012"

var places = map[string]place{
	"the commercial partition":           {partition: "aws", suffix: "amazonaws.com", region: "us-east-1", cluster: "demo"},
	"China":                              {partition: "aws-cn", suffix: "amazonaws.com.cn", region: "cn-north-1", cluster: "demo"},
	"GovCloud":                           {partition: "aws-us-gov", suffix: "amazonaws.com", region: "us-gov-west-1", cluster: "demo"},
	"a queue with a name of its own":     {partition: "aws", suffix: "amazonaws.com", region: "eu-west-1", cluster: "my-cluster", queue: "my-cluster-karpenter"},
	"the role of the service account":    {partition: "aws", suffix: "amazonaws.com", region: "eu-west-1", cluster: "demo", oidc: "oidc.example.com/id/EXAMPLE"},
	"commitments that are imported":      {partition: "aws", suffix: "amazonaws.com", region: "eu-west-1", cluster: "demo", commitments: "true"},
	"another namespace and account name": {partition: "aws", suffix: "amazonaws.com", region: "eu-west-1", cluster: "demo", oidc: "oidc.example.com/id/EXAMPLE", namespace: "karpenter", serviceAccount: "scaler"},
}

// Both templates make the same, and what they let the controller do is, to the letter, what the model of AWS lets it do wherever the
// provider, the local cluster and the tests of the policies run.
func TestTemplatesMakeWhatTheControllerIsTestedWith(t *testing.T) {
	for name, p := range places {
		t.Run(name, func(t *testing.T) {
			formed, terraformed := readCloudFormation(t, p), readTerraform(t, p)
			if diff := cmp.Diff(formed, terraformed); diff != "" {
				t.Errorf("CloudFormation and Terraform differ:\n%s", diff)
			}
			if diff := cmp.Diff(p.want(t), formed.Policies); diff != "" {
				t.Errorf("the controller's policies differ from those that it is tested with:\n%s", diff)
			}
			wantNames(t, p, formed)
			wantTrust(t, p, formed)
		})
	}
}

func (p place) queueName() string {
	if p.queue != "" {
		return p.queue
	}
	return p.cluster
}

// want are the policies that the model enforces, under the names that they have in an account.
func (p place) want(t *testing.T) map[string]any {
	t.Helper()
	documents, err := policy.Documents(policy.Names{
		Partition: p.partition, Region: p.region, AccountID: accountID, ClusterName: p.cluster, NodeRole: "KarpenterNodeRole-" + p.cluster, Queue: p.queueName(),
	})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{
		"node-lifecycle": "NodeLifecycle", "iam-integration": "IAMIntegration", "eks-integration": "EKSIntegration", "interruption": "Interruption",
		"resource-discovery": "ResourceDiscovery",
		"zonal-shift":        "ZonalShift",
		"commitments":        "Commitments",
	}
	out := map[string]any{}
	for file, text := range documents {
		if file == "commitments" && p.commitments == "" {
			continue
		}
		out["KarpenterController"+names[file]+"Policy-"+p.cluster] = value(t, string(text))
	}
	return out
}

// wantNames fails unless what is made has the names that people's commands use.
func wantNames(t *testing.T, p place, a account) {
	t.Helper()
	node, controller := "KarpenterNodeRole-"+p.cluster, "KarpenterControllerRole-"+p.cluster
	if got := slices.Sorted(maps.Keys(a.Roles)); !slices.Equal(got, []string{controller, node}) {
		t.Errorf("roles %v", got)
	}
	if a.Roles[node].Path != "/" || a.Roles[controller].Path != "/" { // policies and commands name them without one
		t.Errorf("the roles have the paths %q and %q", a.Roles[node].Path, a.Roles[controller].Path)
	}
	if diff := cmp.Diff(map[string]profile{"KarpenterNodeInstanceProfile-" + p.cluster: {"/", node}}, a.Profiles); diff != "" {
		t.Error(diff)
	}
	if got, want := a.Roles[controller].Policies, slices.Sorted(maps.Keys(a.Policies)); !slices.Equal(got, want) {
		t.Errorf("the controller has %v, want %v", got, want)
	}
	prefix := "arn:" + p.partition + ":iam::aws:policy/"
	workers := []string{prefix + "AmazonEC2ContainerRegistryPullOnly", prefix + "AmazonEKSWorkerNodePolicy", prefix + "AmazonEKS_CNI_Policy", prefix + "AmazonSSMManagedInstanceCore"}
	if got := a.Roles[node].Policies; !slices.Equal(got, workers) {
		t.Errorf("nodes have %v, want %v", got, workers)
	}
	if at := []string{"https://queue/" + p.queueName()}; !slices.Equal(a.Queue.PolicyOf, at) {
		t.Errorf("the queue's policy is that of %v, want %v", a.Queue.PolicyOf, at)
	}
	if a.Queue.Name != p.queueName() || a.Queue.Retention != "300" || a.Queue.Encrypted != "true" {
		t.Errorf("queue %+v", a.Queue)
	}
	if got := slices.Sorted(maps.Keys(a.Rules)); len(got) != 5 {
		t.Errorf("rules %v", got)
	}
	for name, r := range a.Rules {
		if want := "arn:" + p.partition + ":sqs:" + p.region + ":" + accountID + ":" + p.queueName(); r.Queue != want || r.TargetID == "" {
			t.Errorf("rule %s sends to %q, want %q", name, r.Queue, want)
		}
	}
}

// wantTrust fails unless nobody but machines, and the controller of this cluster, may take the roles.
func wantTrust(t *testing.T, p place, a account) {
	t.Helper()
	service := func(name string) map[string]any { return map[string]any{"Service": name} }
	machines := []any{map[string]any{"Sid": "AllowMachines", "Effect": "Allow", "Principal": service("ec2." + p.suffix), "Action": "sts:AssumeRole"}}
	if diff := cmp.Diff(machines, a.Roles["KarpenterNodeRole-"+p.cluster].Trust.(map[string]any)["Statement"]); diff != "" {
		t.Errorf("nodes' role:\n%s", diff)
	}
	controller := []any{map[string]any{
		"Sid": "AllowPodIdentityOfTheCluster", "Effect": "Allow", "Principal": service("pods.eks.amazonaws.com"), "Action": []any{"sts:AssumeRole", "sts:TagSession"},
		"Condition": map[string]any{
			"StringEquals": map[string]any{"aws:SourceAccount": accountID},
			"ArnEquals":    map[string]any{"aws:SourceArn": "arn:" + p.partition + ":eks:" + p.region + ":" + accountID + ":cluster/" + p.cluster},
		},
	}}
	if p.oidc != "" {
		subject := "system:serviceaccount:" + or(p.namespace, "kube-system") + ":" + or(p.serviceAccount, "karpenter")
		controller = append(controller, map[string]any{
			"Sid": "AllowServiceAccountOfTheCluster", "Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity",
			"Principal": map[string]any{"Federated": "arn:" + p.partition + ":iam::" + accountID + ":oidc-provider/" + p.oidc},
			"Condition": map[string]any{"StringEquals": map[string]any{p.oidc + ":aud": "sts.amazonaws.com", p.oidc + ":sub": subject}},
		})
	}
	if diff := cmp.Diff(controller, a.Roles["KarpenterControllerRole-"+p.cluster].Trust.(map[string]any)["Statement"]); diff != "" {
		t.Errorf("controller's role:\n%s", diff)
	}
	to := "arn:" + p.partition + ":sqs:" + p.region + ":" + accountID + ":" + p.queueName()
	senders := []any{
		map[string]any{
			"Sid": "AllowRulesOfTheAccount", "Effect": "Allow", "Principal": service("events.amazonaws.com"), "Action": "sqs:SendMessage", "Resource": to,
			"Condition": map[string]any{"ArnLike": map[string]any{"aws:SourceArn": "arn:" + p.partition + ":events:" + p.region + ":" + accountID + ":rule/*"}},
		},
		map[string]any{
			"Sid": "DenyHTTP", "Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": to,
			"Condition": map[string]any{"Bool": map[string]any{"aws:SecureTransport": "false"}},
		},
	}
	if diff := cmp.Diff(senders, a.Queue.Policy.(map[string]any)["Statement"]); diff != "" {
		t.Errorf("queue:\n%s", diff)
	}
}

// onlyRead fails if a resource says something that is not compared here: a policy within a role, a rule that is switched off.
func onlyRead(t *testing.T, of string, said, read []string) {
	t.Helper()
	for _, name := range said {
		if !slices.Contains(read, name) {
			t.Errorf("%s says %s, which nobody looks at", of, name)
		}
	}
}

func or(text, otherwise string) string {
	if text != "" {
		return text
	}
	return otherwise
}

// value reads a JSON document. One in which a place was not filled in is not what anybody meant.
func value(t *testing.T, text string) any {
	t.Helper()
	if strings.Contains(text, "${") {
		t.Errorf("a place is not filled in:\n%s", text)
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return v
}

func installFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "install", "aws", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func texts(v any) []string {
	var out []string
	for _, item := range v.([]any) {
		out = append(out, fmt.Sprint(item))
	}
	slices.Sort(out)
	return out
}
