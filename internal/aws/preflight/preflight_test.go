package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/policy"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// A world is an account and a cluster in which everything is ready, until something is broken.
type world struct {
	t       *testing.T
	cloud   *awsmodel.Cloud
	kube    client.Client
	version string
	names   Names
	caller  string
}

const trust = `{"Version":"2012-10-17","Statement":[
 {"Effect":"Allow","Principal":{"Service":"pods.eks.amazonaws.com"},"Action":["sts:AssumeRole","sts:TagSession"]},
 {"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::123456789012:oidc-provider/oidc.eks.us-east-1.amazonaws.com/id/demo"},"Action":"sts:AssumeRoleWithWebIdentity",
  "Condition":{"StringEquals":{"x:sub":"system:serviceaccount:kube-system:karpenter"}}}]}`

func newWorld(t *testing.T) *world {
	t.Helper()
	documents, err := policy.Documents(policy.Names{Partition: "aws", Region: "us-east-1", AccountID: "123456789012", ClusterName: "demo", NodeRole: "KarpenterNodeRole-demo", Queue: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := awsmodel.New(awsmodel.Config{
		Cluster: awsmodel.Cluster{Name: "demo"}, Types: []string{"m5.large"},
		Identities: map[string]awsmodel.Identity{
			"CONTROLLER": {ARN: "arn:aws:iam::123456789012:role/c", Policies: [][]byte{documents["interruption"]}},
			"ROLE":       {ARN: "arn:aws:iam::123456789012:role/KarpenterControllerRole-demo", Policies: [][]byte{documents["node-lifecycle"]}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, cloud: cloud, version: "1.36", names: Names{Cluster: "demo"}, caller: "MODEL"}
	w.makeRole("KarpenterControllerRole-demo", trust)
	w.makeRole("AWSServiceRoleForEC2Spot", `{}`)
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1.AddToScheme(scheme), awsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w.kube = fake.NewClientBuilder().WithScheme(scheme).Build()
	dns := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"}, Spec: corev1.ServiceSpec{ClusterIP: "10.100.0.10"}}
	class := (&look{Names: w.names.withDefaults()}).defaultClass()
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}
	pool.Spec.Limits = v1.Limits{corev1.ResourceCPU: resource.MustParse("1000")}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "karpenter"}}
	agent := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "eks-pod-identity-agent"}}
	for _, o := range []client.Object{dns, &class, pool, account, agent} {
		w.must(w.kube.Create(t.Context(), o))
	}
	for _, d := range definitions {
		w.must(w.kube.Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: d.name},
			Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: d.version, Served: true}}},
		}))
	}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) makeRole(name, trust string) {
	w.t.Helper()
	w.cloud.RemoveRole(name)
	_, err := iam.NewFromConfig(w.cloud.AWSConfig()).CreateRole(w.t.Context(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: &trust})
	w.must(err)
}

func (w *world) run() []Finding {
	return Run(w.t.Context(), Input{Names: w.names, AWS: w.cloud.AWSConfigFor(w.caller), Kube: w.kube, Version: func(context.Context) (string, error) {
		if w.version == "" {
			return "", errors.New("connection refused")
		}
		return w.version, nil
	}})
}

// class and pool change what the cluster has.
func (w *world) class(change func(*awsv1.EC2NodeClass)) {
	var c awsv1.EC2NodeClass
	w.must(w.kube.Get(w.t.Context(), client.ObjectKey{Name: "default"}, &c))
	change(&c)
	w.must(w.kube.Update(w.t.Context(), &c))
}

func (w *world) pool(change func(*v1.NodePool)) {
	var p v1.NodePool
	w.must(w.kube.Get(w.t.Context(), client.ObjectKey{Name: "default"}, &p))
	change(&p)
	w.must(w.kube.Update(w.t.Context(), &p))
}

func (w *world) remove(o client.Object, namespace, name string) {
	o.SetNamespace(namespace)
	o.SetName(name)
	w.must(w.kube.Delete(w.t.Context(), o))
}

func (w *world) annotate(role string) {
	var a corev1.ServiceAccount
	w.must(w.kube.Get(w.t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "karpenter"}, &a))
	a.Annotations = map[string]string{roleAnnotation: role}
	w.must(w.kube.Update(w.t.Context(), &a))
}

// untag takes the tag of discovery from all subnets but those that are kept.
func (w *world) untagSubnets(keep int) {
	client := ec2.NewFromConfig(w.cloud.AWSConfig())
	out, err := client.DescribeSubnets(w.t.Context(), &ec2.DescribeSubnetsInput{})
	w.must(err)
	for _, s := range out.Subnets[keep:] {
		w.untag(client, *s.SubnetId)
	}
}

func (w *world) untag(client *ec2.Client, id string) {
	_, err := client.DeleteTags(w.t.Context(), &ec2.DeleteTagsInput{Resources: []string{id}, Tags: []ec2types.Tag{{Key: aws.String("karpenter.sh/discovery")}}})
	w.must(err)
}

func (w *world) removeQueue() {
	client := sqs.NewFromConfig(w.cloud.AWSConfig())
	url, err := client.GetQueueUrl(w.t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("demo")})
	w.must(err)
	_, err = client.DeleteQueue(w.t.Context(), &sqs.DeleteQueueInput{QueueUrl: url.QueueUrl})
	w.must(err)
}

func TestNothingIsMissingWhereAllIsReady(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"Pod Identity":                    func(w *world) {},
		"the role of the service account": func(w *world) { w.annotate(controllerRole) },
		"nodes that aws-auth lets in":     byConfigMap,
		"nodes that aws-auth lets in, with a path": func(w *world) {
			mapsRole(w, "- {rolearn: arn:aws:iam::123456789012:role/machines, groups: [system:nodes]}\n")
			_, err := iam.NewFromConfig(w.cloud.AWSConfig()).CreateRole(w.t.Context(), &iam.CreateRoleInput{RoleName: aws.String("machines"), Path: aws.String("/team/"), AssumeRolePolicyDocument: aws.String(machinesTrust)})
			w.must(err)
			w.class(func(c *awsv1.EC2NodeClass) { c.Spec.Role = "/team/machines" })
		},
		"no spot, and no role for it":       func(w *world) { w.cloud.RemoveRole("AWSServiceRoleForEC2Spot"); w.pool(onDemandOnly) },
		"a chart that is not installed yet": func(w *world) { w.remove(&corev1.ServiceAccount{}, "kube-system", "karpenter") },
		"a class with a profile of its own": withProfile(true),
		"the role of the service account, and no agent": func(w *world) {
			w.annotate(controllerRole)
			w.remove(&appsv1.DaemonSet{}, "kube-system", "eks-pod-identity-agent")
		},
		"a trust policy with one statement, and patterns": func(w *world) {
			w.annotate(controllerRole)
			w.makeRole("KarpenterControllerRole-demo", `{"Statement":{"Effect":"Allow","Principal":{"Federated":["arn:aws:iam::123456789012:oidc-provider/other","`+issuer+`"]},
 "Action":["sts:assumerolewith*"],"Condition":{"StringLike":{"x:sub":"system:serviceaccount:kube-system:*"}}}}`)
		},
		"a pool of another provider's":       func(w *world) { w.pool(func(p *v1.NodePool) { p.Spec.Template.Spec.NodeClassRef = elsewhere }) },
		"a version as API servers say it":    func(w *world) { w.version = "1.36+" },
		"a role that is named with its path": func(w *world) { w.class(func(c *awsv1.EC2NodeClass) { c.Spec.Role = "/team/KarpenterNodeRole-demo" }) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			change(w)
			for _, f := range w.run() {
				if f.State != OK {
					t.Errorf("%+v", f)
				}
				if f.Command != "" {
					t.Errorf("a command for what is in order: %+v", f)
				}
			}
		})
	}
}

func TestWhatTheClusterIsTooOldForIsSaid(t *testing.T) {
	for version, want := range map[string]string{
		"1.36":  "demo is active, Kubernetes 1.36",
		"1.35+": "demo is active, Kubernetes 1.35",
		"1.34":  "demo is active, Kubernetes 1.34, which is too old for hints to kube-scheduler (from 1.35 on)",
		"1.33":  "demo is active, Kubernetes 1.33, which is too old for hints to kube-scheduler (from 1.35 on) and devices by resource claims (from 1.34 on)",
	} {
		w := newWorld(t)
		w.version = version
		for _, f := range w.run() {
			if f.Check == "cluster" && (f.State != OK || f.Message != want) {
				t.Errorf("%s: %s %q, want ok and %q", version, f.State, f.Message, want)
			}
		}
	}
}

const (
	controllerRole = "arn:aws:iam::123456789012:role/KarpenterControllerRole-demo"
	issuer         = "arn:aws:iam::123456789012:oidc-provider/oidc.eks.us-east-1.amazonaws.com/id/demo"
)

// elsewhere is a class that this provider knows nothing about.
var elsewhere = &v1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "simulated"}

func byConfigMap(w *world) {
	mapsRole(w, "- rolearn: arn:aws:iam::123456789012:role/KarpenterNodeRole-demo\n  username: system:node:{{EC2PrivateDNSName}}\n  groups: [system:bootstrappers, system:nodes]\n")
}

// mapsRole has the cluster let in whom these lines of aws-auth name, and nobody else.
func mapsRole(w *world, lines string) {
	w.cloud.SetAccount(func(a *awsmodel.Account) { a.NodeEntries = nil })
	w.must(w.kube.Create(w.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"},
		Data:       map[string]string{"mapRoles": lines},
	}))
}

func onDemandOnly(p *v1.NodePool) {
	p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: []string{"on-demand"}}}
}

func withProfile(role bool) func(w *world) {
	return func(w *world) {
		client, name := iam.NewFromConfig(w.cloud.AWSConfig()), "KarpenterNodeInstanceProfile-demo"
		_, err := client.CreateInstanceProfile(w.t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: &name})
		w.must(err)
		if role {
			_, err := client.AddRoleToInstanceProfile(w.t.Context(), &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &name, RoleName: aws.String("KarpenterNodeRole-demo")})
			w.must(err)
		}
		w.class(func(c *awsv1.EC2NodeClass) { c.Spec.Role, c.Spec.InstanceProfile = "", &name })
	}
}

const (
	machinesTrust = `{"Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`
	trustsPods    = `aws iam update-assume-role-policy --role-name KarpenterControllerRole-demo --policy-document '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"pods.eks.amazonaws.com"},"Action":["sts:AssumeRole","sts:TagSession"]}]}'`
)

// Each world lacks one thing. That is told, with the command that mends it, and nothing else is.
func TestWhatIsMissing(t *testing.T) {
	discovery := func(value string) map[string]string { return map[string]string{"karpenter.sh/discovery": value} }
	for name, tc := range map[string]struct {
		breaks  func(w *world)
		check   string
		state   State
		message string
		command string
	}{
		"another region's cluster": {func(w *world) {
			w.names.Cluster = "prod"
			w.names.ControllerRole = "KarpenterControllerRole-demo"
			w.names.Queue = "demo"
		}, "cluster", Missing, "no EKS cluster prod in us-east-1", "aws eks list-clusters"},
		"an API server that does not answer": {func(w *world) { w.version = "" }, "cluster", Missing, "connection refused", "aws eks update-kubeconfig --name demo"},
		"a version that is too new":          {func(w *world) { w.version = "1.99" }, "cluster", Missing, "1.99 is not supported", "update-cluster-version"},
		"a version that is too old":          {func(w *world) { w.version = "1.20" }, "cluster", Missing, "1.20 is not supported", "update-cluster-version"},
		"a definition that is not there":     {func(w *world) { w.remove(&apiextensionsv1.CustomResourceDefinition{}, "", "nodeclaims.karpenter.sh") }, "definitions", Missing, "nodeclaims.karpenter.sh", "kubectl apply --server-side -f karpenter-crds.yaml"},
		"no definition of plans to approve": {func(w *world) {
			w.remove(&apiextensionsv1.CustomResourceDefinition{}, "", "disruptionplans.karpenter.sh")
		}, "definitions", Missing, "disruptionplans.karpenter.sh", "kubectl apply --server-side -f karpenter-crds.yaml"},
		"no definition of overlays": {func(w *world) { w.remove(&apiextensionsv1.CustomResourceDefinition{}, "", "nodeoverlays.karpenter.sh") }, "definitions", Missing, "nodeoverlays.karpenter.sh", "kubectl apply --server-side -f karpenter-crds.yaml"},
		"no definition of buffers": {func(w *world) {
			w.remove(&apiextensionsv1.CustomResourceDefinition{}, "", "capacitybuffers.autoscaling.x-k8s.io")
		}, "definitions", Missing, "capacitybuffers.autoscaling.x-k8s.io", "kubectl apply --server-side -f karpenter-crds.yaml"},
		"a definition of an older release":         {oldDefinition, "definitions", Missing, "nodepools.karpenter.sh in v1", "kubectl apply --server-side"},
		"a definition that is not served":          {unserved, "definitions", Missing, "ec2nodeclasses.karpenter.k8s.aws in v1", "kubectl apply --server-side"},
		"no pool":                                  {func(w *world) { w.remove(&v1.NodePool{}, "", "default") }, "pools", Warning, "0 NodePools and 1 EC2NodeClasses", "kubectl apply"},
		"a pool without its class":                 {func(w *world) { w.pool(func(p *v1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Name = "gpu" }) }, "pools", Missing, "EC2NodeClass gpu that does not exist", "kubectl edit nodepool default"},
		"a service account without a role":         {func(w *world) { w.cloud.SetAccount(func(a *awsmodel.Account) { a.Associations = nil }) }, "service account", Missing, "has no role", "create-pod-identity-association --cluster-name demo --namespace kube-system --service-account karpenter --role-arn arn:aws:iam::123456789012:role/KarpenterControllerRole-demo"},
		"a service account with another":           {func(w *world) { w.annotate("arn:aws:iam::123456789012:role/other") }, "service account", Warning, "role/other", "annotate --overwrite serviceaccount karpenter eks.amazonaws.com/role-arn="},
		"no role for the controller":               {func(w *world) { w.cloud.RemoveRole("KarpenterControllerRole-demo") }, "controller role", Missing, "no role KarpenterControllerRole-demo", "cloudformation deploy --stack-name Karpenter-demo"},
		"no agent that hands it over":              {func(w *world) { w.remove(&appsv1.DaemonSet{}, "kube-system", "eks-pod-identity-agent") }, "service account", Warning, "kube-system/eks-pod-identity-agent is not there", "eks create-addon --cluster-name demo --addon-name eks-pod-identity-agent"},
		"a role that trusts no pods":               {func(w *world) { w.makeRole("KarpenterControllerRole-demo", `{"Statement":[]}`) }, "controller role", Missing, "does not trust Pod Identity", trustsPods},
		"a role with a trust that nobody can read": {func(w *world) { w.makeRole("KarpenterControllerRole-demo", `nonsense`) }, "controller role", Missing, "does not trust Pod Identity", trustsPods},
		"a role that is denied to pods": {func(w *world) {
			w.makeRole("KarpenterControllerRole-demo", strings.ReplaceAll(trust, `"Allow"`, `"Deny"`))
		}, "controller role", Missing, "does not trust Pod Identity", trustsPods},
		"a role that pods may only tag": {func(w *world) {
			w.makeRole("KarpenterControllerRole-demo", strings.ReplaceAll(trust, `"sts:AssumeRole",`, ``))
		}, "controller role", Missing, "with sts:AssumeRole", trustsPods},
		"a role that pods may not tag": {func(w *world) {
			w.makeRole("KarpenterControllerRole-demo", strings.ReplaceAll(trust, `,"sts:TagSession"`, ``))
		}, "controller role", Missing, "with sts:TagSession", trustsPods},
		"a role that trusts something else, and says so of pods": {func(w *world) {
			w.makeRole("KarpenterControllerRole-demo", `{"Statement":[{"Sid":"pods.eks.amazonaws.com","Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":["sts:AssumeRole","sts:TagSession"]}]}`)
		}, "controller role", Missing, "does not trust Pod Identity", trustsPods},
		"a token that is good for something else": {func(w *world) {
			w.annotate(controllerRole)
			w.makeRole("KarpenterControllerRole-demo", strings.ReplaceAll(trust, "sts:AssumeRoleWithWebIdentity", "sts:TagSession"))
		}, "controller role", Missing, "does not trust system:serviceaccount:kube-system:karpenter", "OIDCProvider="},
		"a role that trusts another cluster's account": {func(w *world) {
			w.annotate(controllerRole)
			w.makeRole("KarpenterControllerRole-demo", strings.ReplaceAll(trust, "id/demo", "id/before"))
		}, "controller role", Missing, "of another cluster: this one's issuer is oidc.eks.us-east-1.amazonaws.com/id/demo", "OIDCProvider="},
		"a role that trusts another account": {func(w *world) {
			w.annotate(controllerRole)
			w.makeRole("KarpenterControllerRole-demo", strings.ReplaceAll(trust, "kube-system:karpenter", "karpenter:karpenter"))
		}, "controller role", Missing, "does not trust system:serviceaccount:kube-system:karpenter", `ClusterName=demo Namespace=kube-system ServiceAccount=karpenter OIDCProvider="$(aws eks describe-cluster --name demo --query cluster.identity.oidc.issuer --output text --region us-east-1 | sed 's#https://##')" --region us-east-1`},
		"no role for nodes":                 {func(w *world) { w.class(func(c *awsv1.EC2NodeClass) { c.Spec.Role = "KarpenterNodeRole-x" }) }, "node role", Missing, "no role KarpenterNodeRole-x, which EC2NodeClass default names", "kubectl edit ec2nodeclass default"},
		"no role of the template for nodes": {func(w *world) { w.cloud.RemoveRole("KarpenterNodeRole-demo") }, "node role", Missing, "no role KarpenterNodeRole-demo", "cloudformation deploy"},
		"a role that machines may not take": {func(w *world) { w.makeRole("KarpenterNodeRole-demo", `{"Statement":[]}`) }, "node role", Missing, "does not trust EC2 (ec2.amazonaws.com)", `aws iam update-assume-role-policy --role-name KarpenterNodeRole-demo --policy-document '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":["sts:AssumeRole"]}]}'`},
		"a role that only machines in China may take": {func(w *world) {
			w.makeRole("KarpenterNodeRole-demo", strings.ReplaceAll(machinesTrust, "amazonaws.com", "amazonaws.com.cn"))
		}, "node role", Missing, "does not trust EC2 (ec2.amazonaws.com)", `"Service":"ec2.amazonaws.com"`},
		"a role that the cluster refuses": {func(w *world) { w.cloud.SetAccount(func(a *awsmodel.Account) { a.NodeEntries = nil }) }, "node role", Missing, "neither an access entry", "create-access-entry --cluster-name demo --principal-arn arn:aws:iam::123456789012:role/KarpenterNodeRole-demo --type EC2_LINUX"},
		"a role that is let in as people are": {func(w *world) {
			w.cloud.SetAccount(func(a *awsmodel.Account) { a.NodeEntries, a.PeoplesEntries = nil, a.NodeEntries })
		}, "node role", Missing, "is one for people", "aws eks delete-access-entry --cluster-name demo --principal-arn arn:aws:iam::123456789012:role/KarpenterNodeRole-demo --region us-east-1 && aws eks create-access-entry"},
		"aws-auth with a role whose name only begins so": {func(w *world) {
			mapsRole(w, "- {rolearn: arn:aws:iam::123456789012:role/KarpenterNodeRole-demo-2, groups: [system:nodes]}\n")
		}, "node role", Missing, "neither an access entry", "create-access-entry"},
		"aws-auth that makes no nodes": {func(w *world) {
			mapsRole(w, "- {rolearn: arn:aws:iam::123456789012:role/KarpenterNodeRole-demo, groups: [system:masters]}\n")
		}, "node role", Missing, "neither an access entry", "create-access-entry"},
		"aws-auth that nobody can read": {func(w *world) { mapsRole(w, "[arn:aws:iam::123456789012:role/KarpenterNodeRole-demo") }, "node role", Missing, "neither an access entry", "create-access-entry"},
		"a controller that may not reboot machines": {func(w *world) {
			w.names.ControllerRole = "c"
			w.makeRole("c", trust)
		}, "reboots", Warning, "c may not reboot machines (ec2:RebootInstances)", "cloudformation deploy"},
		"a profile that is not there": {func(w *world) {
			w.class(func(c *awsv1.EC2NodeClass) { c.Spec.Role, c.Spec.InstanceProfile = "", aws.String("p") })
		}, "instance profile", Missing, "no instance profile p", "cloudformation deploy"},
		"a profile without a role": {withProfile(false), "instance profile", Missing, "no role in instance profile", "add-role-to-instance-profile"},
		"no subnet with the tag":   {func(w *world) { w.untagSubnets(0) }, "subnets", Missing, "selects no subnet", "create-tags --resources SUBNET-ID... --tags Key=karpenter.sh/discovery,Value=demo"},
		"subnets of one zone":      {func(w *world) { w.untagSubnets(1) }, "subnets", Warning, "in one zone", "SUBNET-ID-OF-ANOTHER-ZONE"},
		"subnets that are full":    {fullSubnets, "subnets", Missing, "free addresses together", "LARGER-SUBNET-ID"},
		"no security group with the tag": {func(w *world) {
			w.class(func(c *awsv1.EC2NodeClass) { c.Spec.SecurityGroupSelectorTerms[0].Tags = discovery("x") })
		}, "security groups", Missing, "selects no security group", "clusterSecurityGroupId"},
		"an alias of a release that never was": {func(w *world) {
			w.class(func(c *awsv1.EC2NodeClass) { c.Spec.AMISelectorTerms[0].Alias = "al2023@v19990101" })
		}, "images", Missing, "default", "kubectl edit ec2nodeclass default"},
		"an image that is gone": {func(w *world) {
			w.class(func(c *awsv1.EC2NodeClass) {
				c.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{ID: "ami-0123456789abcdef0"}}
			})
		}, "images", Missing, "selects no image", "kubectl edit ec2nodeclass default"},
		"no queue":                        {(*world).removeQueue, "queue", Missing, "no queue demo", "ClusterName=demo --region us-east-1"},
		"no queue of that name":           {func(w *world) { w.names.Queue = "spots" }, "queue", Missing, "no queue spots", "ClusterName=demo QueueName=spots --region us-east-1"},
		"no DNS":                          {func(w *world) { w.remove(&corev1.Service{}, "kube-system", "kube-dns") }, "DNS", Warning, "kube-dns", "create-addon --cluster-name demo --addon-name coredns"},
		"an account without spot":         {func(w *world) { w.cloud.RemoveRole("AWSServiceRoleForEC2Spot") }, "spot role", Missing, "never had a spot machine", "create-service-linked-role --aws-service-name spot.amazonaws.com"},
		"a new account's quota":           {func(w *world) { w.cloud.SetAccount(func(a *awsmodel.Account) { a.Quotas[awsmodel.QuotaOnDemand] = 5 }) }, "quotas", Missing, "5 virtual CPUs of on-demand", "--quota-code L-1216C47A --desired-value 1000"},
		"a quota below the pools' limits": {func(w *world) { w.cloud.SetAccount(func(a *awsmodel.Account) { a.Quotas[awsmodel.QuotaSpot] = 640 }) }, "quotas", Warning, "640 virtual CPUs of spot machines, the limits of the NodePools come to 1000", "L-34B43A08"},
		"a quota that cannot be read":     {func(w *world) { w.cloud.SetAccount(func(a *awsmodel.Account) { a.Quotas = nil }) }, "quotas", Unknown, "does not exist", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.breaks(w)
			var wrong []Finding
			for _, f := range w.run() {
				if f.State != OK {
					wrong = append(wrong, f)
				}
			}
			if len(wrong) == 0 {
				t.Fatal("nothing was found")
			}
			f := wrong[0]
			if f.Check != tc.check || f.State != tc.state || !strings.Contains(f.Message, tc.message) || !strings.Contains(f.Command, tc.command) || (f.Command == "") != (tc.command == "") {
				t.Errorf("found %+v, want %s %s, %q, mended by %q", f, tc.check, tc.state, tc.message, tc.command)
			}
			for _, f := range wrong[1:] {
				if !follows[name] || f.State == OK {
					t.Errorf("found besides: %+v", f)
				}
			}
		})
	}
}

// follows are states of which one thing that is missing leads to another.
var follows = map[string]bool{"another region's cluster": true, "an API server that does not answer": true, "a version that is too new": true, "a version that is too old": true}

func oldDefinition(w *world) {
	var d apiextensionsv1.CustomResourceDefinition
	w.must(w.kube.Get(w.t.Context(), client.ObjectKey{Name: "nodepools.karpenter.sh"}, &d))
	d.Spec.Versions[0].Name = "v1beta1"
	w.must(w.kube.Update(w.t.Context(), &d))
}

// unserved leaves the version in the definition, but the API server does not serve it.
func unserved(w *world) {
	var d apiextensionsv1.CustomResourceDefinition
	w.must(w.kube.Get(w.t.Context(), client.ObjectKey{Name: "ec2nodeclasses.karpenter.k8s.aws"}, &d))
	d.Spec.Versions[0].Served = false
	w.must(w.kube.Update(w.t.Context(), &d))
}

func fullSubnets(w *world) {
	w.untagSubnets(0)
	for i, zone := range []string{"us-east-1a", "us-east-1b"} {
		w.cloud.AddSubnet(zone, fmt.Sprintf("10.0.25%d.0/28", i), map[string]string{"karpenter.sh/discovery": "demo"})
	}
}

// Somebody who may read little learns what he could not see, and is not told that all is well.
func TestWhatMayNotBeReadIsSaid(t *testing.T) {
	w := newWorld(t)
	w.caller = "CONTROLLER" // which here may read the queue and nothing else
	states := map[string]State{}
	for _, f := range w.run() {
		states[f.Check] = f.State
	}
	for check, want := range map[string]State{"queue": OK, "cluster": Unknown, "subnets": Unknown, "security groups": Unknown, "controller role": Unknown, "node role": Unknown} {
		if states[check] != want {
			t.Errorf("%s is %s, want %s", check, states[check], want)
		}
	}
}

// abroad is the model's account in another partition: it has another region, and everything in it is called accordingly.
type abroad struct {
	aws.HTTPClient
	region, partition string
	hosts             map[string]bool
}

func (a abroad) Do(r *http.Request) (*http.Response, error) {
	a.hosts[r.URL.Host] = true
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	here := strings.NewReplacer("arn:"+a.partition+":", "arn:aws:", url.QueryEscape("arn:"+a.partition+":"), url.QueryEscape("arn:aws:"), a.region, "us-east-1")
	in := r.Clone(r.Context())
	in.Body = io.NopCloser(strings.NewReader(here.Replace(string(body))))
	in.URL.Path, in.URL.RawPath = here.Replace(r.URL.Path), here.Replace(r.URL.RawPath)
	in.Header.Set("Authorization", here.Replace(r.Header.Get("Authorization")))
	out, err := a.HTTPClient.Do(in)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(out.Body)
	if err != nil {
		return nil, err
	}
	there := strings.NewReplacer("arn:aws:", "arn:"+a.partition+":", url.QueryEscape("arn:aws:"), url.QueryEscape("arn:"+a.partition+":"), "us-east-1", a.region)
	out.Body = io.NopCloser(strings.NewReader(there.Replace(string(text))))
	out.Header.Del("Content-Length")
	return out, nil
}

// In China and in GovCloud services have other names, and so has everything that they call by its ARN.
func TestOtherPartitions(t *testing.T) {
	for partition, tc := range map[string]struct{ region, suffix, machines string }{
		"aws":        {"us-west-2", ".us-west-2.amazonaws.com", "ec2.amazonaws.com"},
		"aws-cn":     {"cn-north-1", ".cn-north-1.amazonaws.com.cn", "ec2.amazonaws.com.cn"},
		"aws-us-gov": {"us-gov-west-1", ".us-gov-west-1.amazonaws.com", "ec2.amazonaws.com"},
	} {
		t.Run(partition, func(t *testing.T) {
			w := newWorld(t)
			w.makeRole("KarpenterNodeRole-demo", strings.ReplaceAll(machinesTrust, "ec2.amazonaws.com", tc.machines))
			w.annotate("arn:" + partition + ":iam::123456789012:role/KarpenterControllerRole-demo")
			hosts := map[string]bool{}
			run := func() []Finding {
				cfg := w.cloud.AWSConfig()
				cfg.Region, cfg.BaseEndpoint = tc.region, nil
				cfg.HTTPClient = abroad{cfg.HTTPClient, tc.region, partition, hosts}
				return Run(t.Context(), Input{Names: w.names, AWS: cfg, Kube: w.kube, Version: func(context.Context) (string, error) { return w.version, nil }})
			}
			for _, f := range run() {
				if f.State != OK {
					t.Errorf("%+v", f)
				}
			}
			for host := range hosts {
				if !strings.HasSuffix(host, tc.suffix) && !strings.HasPrefix(host, "iam.") {
					t.Errorf("%s was asked, want one that ends with %s", host, tc.suffix)
				}
			}
			if !hosts["servicequotas"+tc.suffix] {
				t.Errorf("quotas were asked for elsewhere: %v", slices.Sorted(maps.Keys(hosts)))
			}
			w.makeRole("KarpenterNodeRole-demo", `{"Statement":[]}`)
			w.annotate("")
			w.cloud.SetAccount(func(a *awsmodel.Account) { a.Associations = nil })
			var commands strings.Builder
			for _, f := range run() {
				commands.WriteString(f.Command + "\n")
			}
			for _, want := range []string{"--role-arn arn:" + partition + ":iam::123456789012:role/KarpenterControllerRole-demo --region " + tc.region, `"Service":"` + tc.machines + `"`} {
				if !strings.Contains(commands.String(), want) {
					t.Errorf("no command has %s:\n%s", want, commands.String())
				}
			}
		})
	}
}

// nowhere is an AWS, or its part for some services, that nobody can reach.
type nowhere struct {
	aws.HTTPClient
	services []string
	asked    map[string]int
}

func (n nowhere) Do(r *http.Request) (*http.Response, error) {
	for _, service := range n.services {
		if strings.Contains(r.Header.Get("Authorization"), "/"+service+"/") {
			n.asked[service]++
			return nil, &url.Error{Op: "Post", URL: "https://" + service + ".example/", Err: errors.New("dial tcp 10.0.0.1:443: i/o timeout")}
		}
	}
	return n.HTTPClient.Do(r)
}

// Who does not answer is named, and is not said to refuse anything; what depends on nobody else is looked at all the same.
func TestWhoeverDoesNotAnswerIsNamed(t *testing.T) {
	w := newWorld(t)
	answers := func(change func(*Input)) map[string]Finding {
		in := Input{Names: w.names, AWS: w.cloud.AWSConfig(), Kube: w.kube, Version: func(context.Context) (string, error) { return w.version, nil }}
		in.AWS.RetryMaxAttempts = 1
		change(&in)
		found := map[string]Finding{}
		for _, f := range Run(t.Context(), in) {
			found[f.Check] = f
		}
		return found
	}
	check := func(t *testing.T, found map[string]Finding, want map[string]string) {
		t.Helper()
		for check, f := range found {
			if words, wrong := want[check]; wrong != (f.State != OK) || !strings.Contains(f.Message, words) {
				t.Errorf("%+v, want %q", f, words)
			}
		}
	}
	const cannot, timeout = "the API server cannot be asked", "does not answer: dial tcp 10.0.0.1:443: i/o timeout"
	t.Run("the API server", func(t *testing.T) {
		reads := 0
		found := answers(func(in *Input) {
			in.Kube = silent{in.Kube, &reads}
			in.Version = func(context.Context) (string, error) { return "", errors.New("i/o timeout") }
		})
		check(t, found, map[string]string{
			"cluster": "the API server does not answer: i/o timeout", "definitions": cannot, "pools": cannot, "service account": cannot, "controller role": cannot,
			"node role": cannot, "instance profile": cannot, "subnets": cannot, "security groups": cannot, "images": cannot, "DNS": cannot,
		})
		if reads != 0 {
			t.Errorf("it was asked %d times more", reads)
		}
	})
	t.Run("some services", func(t *testing.T) {
		asked := map[string]int{}
		found := answers(func(in *Input) {
			in.AWS.HTTPClient = nowhere{in.AWS.HTTPClient, []string{"sts", "servicequotas", "sqs"}, asked}
		})
		check(t, found, map[string]string{"account": "STS " + timeout, "queue": "SQS " + timeout, "quotas": "Service Quotas " + timeout})
	})
	t.Run("all of AWS", func(t *testing.T) {
		asked, all := map[string]int{}, []string{"sts", "eks", "iam", "ec2", "ssm", "sqs", "servicequotas"}
		found := answers(func(in *Input) { in.AWS.HTTPClient = nowhere{in.AWS.HTTPClient, all, asked} })
		want := map[string]string{"account": "STS " + timeout, "cluster": "EKS " + timeout}
		for name := range found {
			if want[name] == "" && name != "definitions" && name != "pools" && name != "DNS" {
				want[name] = "AWS cannot be asked"
			}
		}
		check(t, found, want)
		if diff := cmp.Diff(map[string]int{"sts": 1, "eks": 1}, asked); diff != "" {
			t.Errorf("asked:\n%s", diff)
		}
	})
	t.Run("both", func(t *testing.T) {
		reads := 0
		found := answers(func(in *Input) {
			in.AWS.HTTPClient = nowhere{in.AWS.HTTPClient, []string{"eks"}, map[string]int{}}
			in.Kube = silent{in.Kube, &reads}
			in.Version = func(context.Context) (string, error) { return "", errors.New("i/o timeout") }
		})
		if f := found["cluster"]; f.Message != "EKS "+timeout {
			t.Errorf("of the cluster it is said last %+v", f)
		}
	})
	t.Run("nobody has a key", func(t *testing.T) {
		found := answers(func(in *Input) { in.AWS.Credentials = keyless{} })
		if f := found["account"]; f.State != Missing || f.Command != "aws configure" || !strings.Contains(f.Message, "no credentials") {
			t.Errorf("of the account it is said %+v", f)
		}
		for name, f := range found {
			if kube := name == "definitions" || name == "pools" || name == "DNS"; name != "account" && (f.State == OK) != kube || f.State == Unknown && f.Message != "AWS cannot be asked" {
				t.Errorf("%+v", f)
			}
		}
	})
	t.Run("credentials that are refused", func(t *testing.T) {
		found := answers(func(in *Input) { in.AWS.HTTPClient = stranger{in.AWS.HTTPClient} })
		if f := found["account"]; f.State != Missing || f.Command != "aws sts get-caller-identity" || !strings.Contains(f.Message, "does not take your credentials") {
			t.Errorf("of the account it is said %+v", f)
		}
	})
}

// silent counts who asks an API server that does not answer.
type silent struct {
	client.Reader
	reads *int
}

func (s silent) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	*s.reads++
	return &url.Error{Op: "Get", URL: "https://10.0.0.1", Err: errors.New("i/o timeout")}
}

func (s silent) List(context.Context, client.ObjectList, ...client.ListOption) error {
	*s.reads++
	return &url.Error{Op: "Get", URL: "https://10.0.0.1", Err: errors.New("i/o timeout")}
}

// stranger is an AWS that does not know who asks.
type stranger struct{ aws.HTTPClient }

func (s stranger) Do(r *http.Request) (*http.Response, error) {
	if !strings.Contains(r.Header.Get("Authorization"), "/sts/") {
		return s.HTTPClient.Do(r)
	}
	const text = `<ErrorResponse><Error><Type>Sender</Type><Code>InvalidClientTokenId</Code><Message>The security token is invalid.</Message></Error></ErrorResponse>`
	return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

type keyless struct{}

func (keyless) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{}, errors.New("no EC2 IMDS role found")
}
