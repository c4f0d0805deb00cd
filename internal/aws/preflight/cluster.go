package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/clusterinfo"
	"karpenter.sh/karpenter/internal/explain/minor"
)

// roleAnnotation gives EKS the role of a service account when Pod Identity is not used.
const roleAnnotation = "eks.amazonaws.com/role-arn"

// podIdentityAgent is an add-on of EKS and its DaemonSet, which hands credentials to pods.
const podIdentityAgent = "eks-pod-identity-agent"

// definitions are the kinds that the controller reads, with the version that it reads them in.
var definitions = []struct{ name, version string }{
	{"nodepools." + v1.Group, "v1"}, {"nodeclaims." + v1.Group, "v1"}, {"nodeoverlays." + v1.Group, "v1alpha1"},
	{"disruptionplans." + v1.Group, "v1alpha1"},
	{"ec2nodeclasses." + awsv1.Group, "v1"}, {"capacitybuffers.autoscaling.x-k8s.io", "v1beta1"},
}

// minorOf returns the minor of a version, or the version itself if it cannot be read.
func minorOf(version string) string {
	minor, err := clusterinfo.Minor(version)
	if err != nil {
		return version
	}
	return minor
}

// judgeVersion checks that Karpenter supports the cluster's version, and names the features for which it is too old.
func (l *look) judgeVersion() []Finding {
	if !clusterinfo.Supported(l.minor) {
		return one(Missing, l.aws("eks update-cluster-version --name %s --kubernetes-version VERSION", l.Cluster),
			"Kubernetes %s is not supported", l.minor)
	}
	found := one(OK, "", "%s is active, Kubernetes %s", l.Cluster, l.minor)
	if v, err := minor.Parse(l.minor); err == nil {
		if off := minor.Off(v, minor.Hints(), minor.Devices()); len(off) > 0 {
			found[0].Message += ", which is too old for " + strings.Join(off, " and ")
		}
	}
	return found
}

// checkDefinitions checks that the cluster serves Karpenter's kinds.
func (l *look) checkDefinitions(ctx context.Context) ([]Finding, error) {
	const command = "kubectl apply --server-side -f karpenter-crds.yaml"
	var missing, old []string
	for _, d := range definitions {
		var crd apiextensionsv1.CustomResourceDefinition
		err := l.kube.Get(ctx, client.ObjectKey{Name: d.name}, &crd)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, d.name)
		case err != nil:
			return nil, err
		case !slices.ContainsFunc(crd.Spec.Versions, func(have apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return have.Name == d.version && have.Served
		}):
			old = append(old, d.name+" in "+d.version)
		}
	}
	switch {
	case len(missing) > 0:
		return one(Missing, command, "there is no definition of %s", strings.Join(missing, ", ")), nil
	case len(old) > 0:
		return one(Missing, command, "the cluster does not serve %s", strings.Join(old, ", ")), nil
	}
	return one(OK, "", "all %d are there", len(definitions)), nil
}

// checkPools reads pools and classes. Without the definitions there are none.
func (l *look) checkPools(ctx context.Context) ([]Finding, error) {
	var pools v1.NodePoolList
	var classes awsv1.EC2NodeClassList
	for _, list := range []client.ObjectList{&pools, &classes} {
		if err := l.kube.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("read pools and classes: %w", err)
		}
	}
	l.pools, l.classes = pools.Items, classes.Items
	var found []Finding
	for i := range l.pools {
		ref := l.pools[i].Spec.Template.Spec.NodeClassRef
		if ref == nil || ref.Group != awsv1.Group {
			continue
		}
		if !slices.ContainsFunc(l.classes, func(c awsv1.EC2NodeClass) bool { return c.Name == ref.Name }) {
			found = append(found, one(Missing, "kubectl edit nodepool "+l.pools[i].Name,
				"NodePool %s names an EC2NodeClass %s that does not exist", l.pools[i].Name, ref.Name)...)
		}
	}
	switch {
	case len(found) > 0:
		return found, nil
	case len(l.pools) == 0 || len(l.classes) == 0:
		return one(Warning, "kubectl apply -f nodepool.yaml -f ec2nodeclass.yaml",
			"%d NodePools and %d EC2NodeClasses: without both nothing is launched", len(l.pools), len(l.classes)), nil
	}
	return one(OK, "", "%d NodePools, %d EC2NodeClasses", len(l.pools), len(l.classes)), nil
}

// defaultClass returns the class of docs/getting-started, which stands for the classes that will be created.
func (l *look) defaultClass() awsv1.EC2NodeClass {
	here := map[string]string{v1.Group + "/discovery": l.Cluster}
	c := awsv1.EC2NodeClass{}
	c.Name = "default"
	c.Spec.Role = l.NodeRole
	c.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}}
	c.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{Tags: here}}
	c.Spec.SecurityGroupSelectorTerms = []awsv1.SecurityGroupSelectorTerm{{Tags: here}}
	return c
}

// all returns the classes to check; the default class if there is none.
func (l *look) all() []awsv1.EC2NodeClass {
	if len(l.classes) == 0 {
		return []awsv1.EC2NodeClass{l.defaultClass()}
	}
	return l.classes
}

// annotatedRole returns the role that the service account names by annotation, "" if it names none.
func (l *look) annotatedRole(ctx context.Context) (string, error) {
	var account corev1.ServiceAccount
	err := l.kube.Get(ctx, client.ObjectKey{Namespace: l.Namespace, Name: l.ServiceAccount}, &account)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return account.Annotations[roleAnnotation], err
}

// checkServiceAccount checks that the controller's service account gets the controller's role.
func (l *look) checkServiceAccount(ctx context.Context) ([]Finding, error) {
	role, err := l.annotatedRole(ctx)
	if err != nil {
		return nil, err
	}
	who := l.Namespace + "/" + l.ServiceAccount
	want := l.roleARN(l.ControllerRole)
	switch role {
	case want:
		return one(OK, "", "%s takes %s by its annotation", who, role), nil
	case "":
	default:
		command := fmt.Sprintf("kubectl -n %s annotate --overwrite serviceaccount %s %s=%s", l.Namespace,
			l.ServiceAccount, roleAnnotation, want)
		return one(Warning, command, "%s takes %s, not %s; say --controller-role if that is meant", who, role, want), nil
	}
	out, err := l.eks.ListPodIdentityAssociations(ctx, &eks.ListPodIdentityAssociationsInput{ClusterName: &l.Cluster,
		Namespace: &l.Namespace, ServiceAccount: &l.ServiceAccount})
	if err != nil {
		return nil, err
	}
	if len(out.Associations) == 0 {
		command := l.aws("eks create-pod-identity-association --cluster-name %s --namespace %s --service-account %s "+
			"--role-arn %s", l.Cluster, l.Namespace, l.ServiceAccount, want)
		return one(Missing, command, "%s has no role: neither Pod Identity nor an annotation gives it one", who), nil
	}
	var agent appsv1.DaemonSet
	err = l.kube.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: podIdentityAgent}, &agent)
	switch {
	case apierrors.IsNotFound(err):
		return one(Warning, l.aws("eks create-addon --cluster-name %s --addon-name %s", l.Cluster, podIdentityAgent),
			"%s gets its role from Pod Identity, whose agent kube-system/%s is not there; only nodes of EKS Auto Mode "+
				"do without", who, podIdentityAgent), nil
	case err != nil:
		return nil, err
	}
	return one(OK, "", "%s gets its role from Pod Identity", who), nil
}

// checkDNS checks that the cluster has a DNS service.
func (l *look) checkDNS(ctx context.Context) ([]Finding, error) {
	var dns corev1.Service
	err := l.kube.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kube-dns"}, &dns)
	switch {
	case apierrors.IsNotFound(err):
		return one(Warning, l.aws("eks create-addon --cluster-name %s --addon-name coredns", l.Cluster),
			"there is no service kube-system/kube-dns: nodes of some image families are not told where DNS is, unless "+
				"spec.kubelet.clusterDNS says so"), nil
	case err != nil:
		return nil, err
	}
	return one(OK, "", "%s", dns.Spec.ClusterIP), nil
}
