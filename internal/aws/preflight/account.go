package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
)

// partition is the part of the world that a region is in, as ARNs name it.
func partition(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	}
	return "aws"
}

// role reads a role; nil is none.
func (l *look) role(ctx context.Context, name string) (*iamtypes.Role, error) {
	name = name[strings.LastIndex(name, "/")+1:]
	out, err := l.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
	var none *iamtypes.NoSuchEntityException
	if errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return out.Role, nil
}

// trusts says whether the role's trust policy lets somebody take it by that action: one whose principal's name, or whose condition on
// the subject of a token, is the one that is asked for.
func trusts(role *iamtypes.Role, action, who string) bool {
	text, err := url.QueryUnescape(aws.ToString(role.AssumeRolePolicyDocument))
	if err != nil {
		return false
	}
	var doc struct{ Statement []json.RawMessage }
	if json.Unmarshal([]byte(text), &doc) != nil {
		return false
	}
	return slices.ContainsFunc(doc.Statement, func(raw json.RawMessage) bool {
		s := string(raw)
		return strings.Contains(s, `"Allow"`) && strings.Contains(s, `"`+action+`"`) && strings.Contains(s, `"`+who+`"`)
	})
}

func (l *look) checkControllerRole(ctx context.Context) ([]Finding, error) {
	role, err := l.role(ctx, l.ControllerRole)
	if err != nil {
		return nil, err
	}
	if role == nil {
		return one(Missing, l.deploy(), "there is no role %s", l.ControllerRole), nil
	}
	annotated, err := l.annotatedRole(ctx)
	if err != nil {
		return nil, err
	}
	subject := "system:serviceaccount:" + l.Namespace + ":" + l.ServiceAccount
	switch {
	case annotated != "" && !trusts(role, "sts:AssumeRoleWithWebIdentity", subject):
		command := l.deploy() + fmt.Sprintf(` Namespace=%s ServiceAccount=%s OIDCProvider="$(aws eks describe-cluster --name %s --query cluster.identity.oidc.issuer --output text | sed 's#https://##')"`, l.Namespace, l.ServiceAccount, l.Cluster)
		return one(Missing, command, "%s does not trust %s", l.ControllerRole, subject), nil
	case annotated == "" && !trusts(role, "sts:AssumeRole", "pods.eks.amazonaws.com"):
		return one(Missing, l.deploy(), "%s does not trust Pod Identity (pods.eks.amazonaws.com)", l.ControllerRole), nil
	}
	return one(OK, "", "%s", l.ControllerRole), nil
}

func (l *look) checkNodeRoles(ctx context.Context) ([]Finding, error) {
	var found []Finding
	seen := map[string]bool{}
	for _, c := range l.all() {
		name := c.Spec.Role
		if name == "" || seen[name] {
			continue
		}
		seen[name] = true
		f, err := l.nodeRole(ctx, name)
		if err != nil {
			return found, err
		}
		found = append(found, f...)
	}
	return found, nil
}

// nodeRole looks at one role of nodes: that machines may take it, and that the cluster takes machines that have it.
func (l *look) nodeRole(ctx context.Context, name string) ([]Finding, error) {
	role, err := l.role(ctx, name)
	if err != nil {
		return nil, err
	}
	if role == nil {
		return one(Missing, l.deploy(), "there is no role %s", name), nil
	}
	if !trusts(role, "sts:AssumeRole", "ec2.amazonaws.com") && !trusts(role, "sts:AssumeRole", "ec2.amazonaws.com.cn") {
		return one(Missing, l.deploy(), "machines may not take %s: it does not trust EC2", name), nil
	}
	arn := aws.ToString(role.Arn)
	admitted, err := l.admits(ctx, arn)
	if err != nil {
		return nil, err
	}
	if !admitted {
		command := l.aws("eks create-access-entry --cluster-name %s --principal-arn %s --type EC2_LINUX", l.Cluster, arn)
		return one(Missing, command, "the cluster does not take machines with %s: it has neither an access entry nor a line in aws-auth", name), nil
	}
	return one(OK, "", "%s, and the cluster takes its machines", name), nil
}

// admits says whether the cluster lets machines with the role join.
func (l *look) admits(ctx context.Context, arn string) (bool, error) {
	_, err := l.eks.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{ClusterName: &l.Cluster, PrincipalArn: &arn})
	var none *ekstypes.ResourceNotFoundException
	var mapOnly *ekstypes.InvalidRequestException // clusters that know aws-auth only
	if err == nil {
		return true, nil
	}
	if !errors.As(err, &none) && !errors.As(err, &mapOnly) {
		return false, err
	}
	var auth corev1.ConfigMap
	if err := l.kube.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "aws-auth"}, &auth); client.IgnoreNotFound(err) != nil {
		return false, err
	}
	return strings.Contains(auth.Data["mapRoles"], arn), nil
}

func (l *look) checkProfiles(ctx context.Context) ([]Finding, error) {
	var found []Finding
	for _, c := range l.all() {
		name := aws.ToString(c.Spec.InstanceProfile)
		if name == "" {
			continue
		}
		out, err := l.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
		var none *iamtypes.NoSuchEntityException
		switch {
		case errors.As(err, &none):
			found = append(found, one(Missing, l.deploy(), "there is no instance profile %s, which EC2NodeClass %s names", name, c.Name)...)
		case err != nil:
			return found, err
		case len(out.InstanceProfile.Roles) == 0:
			command := l.aws("iam add-role-to-instance-profile --instance-profile-name %s --role-name %s", name, l.NodeRole)
			found = append(found, one(Missing, command, "there is no role in instance profile %s", name)...)
		default:
			found = append(found, one(OK, "", "%s", name)...)
		}
	}
	return found, nil
}

func (l *look) checkQueue(ctx context.Context) ([]Finding, error) {
	_, err := l.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &l.Queue})
	if code := ec2api.Code(err); strings.Contains(code, "QueueDoesNotExist") || strings.Contains(code, "NonExistentQueue") {
		return one(Missing, l.deploy(), "there is no queue %s: nodes would not be drained before spot machines are taken away", l.Queue), nil
	}
	if err != nil {
		return nil, err
	}
	return one(OK, "", "%s; the value settings.interruptionQueue has to name it", l.Queue), nil
}

// checkSpotRole looks for the role without which EC2 refuses the first spot machine of an account.
func (l *look) checkSpotRole(ctx context.Context) ([]Finding, error) {
	role, err := l.role(ctx, "AWSServiceRoleForEC2Spot")
	switch {
	case err != nil:
		return nil, err
	case role != nil:
		return one(OK, "", "AWSServiceRoleForEC2Spot"), nil
	case len(l.pools) > 0 && !slices.ContainsFunc(l.pools, buysSpot):
		return one(OK, "", "not needed: no NodePool allows spot"), nil
	}
	return one(Missing, "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com", "this account never had a spot machine, and Karpenter may not create the role that EC2 wants for one"), nil
}

// buysSpot says whether a pool may buy spot machines.
func buysSpot(p v1.NodePool) bool {
	for _, r := range p.Spec.Template.Spec.Requirements {
		if r.Key == v1.CapacityTypeLabelKey && r.Operator == corev1.NodeSelectorOpIn && !slices.Contains(r.Values, v1.CapacityTypeSpot) {
			return false
		}
	}
	return true
}

// about names a class in a message.
func about(c *awsv1.EC2NodeClass) string { return "EC2NodeClass " + c.Name }
