package preflight

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
)

// role returns a role, nil if it does not exist.
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

// A statement is one statement of a trust policy. Its fields may be texts, lists or maps, so words looks through
// them.
type statement struct {
	Effect                       string
	Action, Principal, Condition any
}

// trusted returns the statements of a role's trust policy that allow something.
func trusted(role *iamtypes.Role) []statement {
	text, err := url.QueryUnescape(aws.ToString(role.AssumeRolePolicyDocument))
	if err != nil {
		return nil
	}
	var doc struct{ Statement json.RawMessage }
	if json.Unmarshal([]byte(text), &doc) != nil {
		return nil
	}
	var all []statement
	if json.Unmarshal(doc.Statement, &all) != nil {
		all = make([]statement, 1)
		if json.Unmarshal(doc.Statement, &all[0]) != nil {
			return nil
		}
	}
	return slices.DeleteFunc(all, func(s statement) bool { return s.Effect != "Allow" })
}

// A roleTrust is what a role must allow a service of AWS before the service can use it.
type roleTrust struct {
	service string
	actions []string
}

var (
	pods     = roleTrust{"pods.eks.amazonaws.com", []string{"sts:AssumeRole", "sts:TagSession"}}
	machines = roleTrust{"ec2.amazonaws.com", []string{"sts:AssumeRole"}}
	// inChina is how roles there mostly call EC2; some use the other name.
	inChina = roleTrust{"ec2.amazonaws.com.cn", []string{"sts:AssumeRole"}}
)

// lacks returns an action that the role's trust policy does not allow the service, "" if it allows all.
func (g roleTrust) lacks(role *iamtypes.Role) string {
	statements := trusted(role)
	for _, action := range g.actions {
		if !slices.ContainsFunc(statements, func(s statement) bool {
			return s.allows(action) &&
				slices.Contains(words(s.Principal), g.service)
		}) {
			return action
		}
	}
	return ""
}

// command returns the command that lets the service, and nothing else, use the role.
func (g roleTrust) command(role string) string {
	return fmt.Sprintf(`aws iam update-assume-role-policy --role-name %s --policy-document `+
		`'{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"%s"},"Action":["%s"]}]}'`,
		role[strings.LastIndex(role, "/")+1:], g.service, strings.Join(g.actions, `","`))
}

// trustsSubject reports whether the role's trust policy allows tokens about the subject, and from which token
// providers.
func trustsSubject(role *iamtypes.Role, subject string) (providers []string, ok bool) {
	for _, s := range trusted(role) {
		if s.allows("sts:AssumeRoleWithWebIdentity") && slices.ContainsFunc(words(s.Condition),
			func(pattern string) bool { return matches(pattern, subject) }) {
			providers, ok = append(providers, words(s.Principal)...), true
		}
	}
	return providers, ok
}

// allows reports whether a statement names an action.
func (s statement) allows(action string) bool {
	return slices.ContainsFunc(words(s.Action), func(pattern string) bool {
		return matches(strings.ToLower(pattern), strings.ToLower(action))
	})
}

// matches reports whether a text matches a pattern of a policy.
func matches(pattern, text string) bool {
	ok, err := path.Match(pattern, text)
	return ok && err == nil
}

// words returns all texts in a part of a policy that are not names of fields.
func words(piece any) []string {
	var all []string
	switch piece := piece.(type) {
	case string:
		return []string{piece}
	case []any:
		for _, p := range piece {
			all = append(all, words(p)...)
		}
	case map[string]any:
		for _, p := range piece {
			all = append(all, words(p)...)
		}
	}
	return all
}

// checkControllerRole checks that the controller's role exists and trusts what gives it to the service account.
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
	if annotated != "" {
		return l.judgeWebIdentity(role), nil
	}
	if action := pods.lacks(role); action != "" {
		return one(Missing, pods.command(l.ControllerRole), "%s does not trust Pod Identity (%s) with %s",
			l.ControllerRole, pods.service, action), nil
	}
	return one(OK, "", "%s", l.ControllerRole), nil
}

// judgeWebIdentity checks a role that the service account names by annotation: it must trust the account, by the
// cluster's own token issuer.
func (l *look) judgeWebIdentity(role *iamtypes.Role) []Finding {
	subject := "system:serviceaccount:" + l.Namespace + ":" + l.ServiceAccount
	issuer := l.aws("eks describe-cluster --name %s --query cluster.identity.oidc.issuer --output text", l.Cluster)
	command := l.deploy("Namespace="+l.Namespace, "ServiceAccount="+l.ServiceAccount, `OIDCProvider="$(`+issuer+` | sed 's#https://##')"`)
	providers, ok := trustsSubject(role, subject)
	switch {
	case !ok:
		return one(Missing, command, "%s does not trust %s", l.ControllerRole, subject)
	case l.issuer != "" && !slices.ContainsFunc(providers,
		func(arn string) bool { return strings.HasSuffix(arn, ":oidc-provider/"+l.issuer) }):
		return one(Missing, command, "%s trusts %s of another cluster: this one's issuer is %s", l.ControllerRole, subject, l.issuer)
	}
	return one(OK, "", "%s", l.ControllerRole)
}

// checkReboots asks IAM whether the controller's role may reboot machines of the cluster.
func (l *look) checkReboots(ctx context.Context) ([]Finding, error) {
	role, err := l.role(ctx, l.ControllerRole)
	if err != nil || role == nil { // the check of the role says that there is none
		return nil, err
	}
	tag := func(key, value string) iamtypes.ContextEntry {
		return iamtypes.ContextEntry{ContextKeyName: aws.String("aws:ResourceTag/" + key), ContextKeyValues: []string{value},
			ContextKeyType: iamtypes.ContextKeyTypeEnumString}
	}
	out, err := l.iam.SimulatePrincipalPolicy(ctx, &iam.SimulatePrincipalPolicyInput{
		PolicySourceArn: role.Arn, ActionNames: []string{"ec2:RebootInstances"},
		ResourceArns: []string{arn.ARN{Partition: cmp.Or(l.me.Partition, "aws"), Service: "ec2", Region: l.cfg.Region,
			AccountID: l.me.AccountID, Resource: "instance/i-0123456789abcdef0"}.String()},
		ContextEntries: []iamtypes.ContextEntry{
			tag(awsv1.TagClusterPrefix+l.Cluster, awsv1.TagClusterOwned), tag(awsv1.TagNodePool, "default"),
		},
	})
	if err != nil {
		return nil, err
	}
	for _, r := range out.EvaluationResults {
		if r.EvalDecision != iamtypes.PolicyEvaluationDecisionTypeAllowed {
			return one(Warning, l.deploy(), "%s may not reboot machines (ec2:RebootInstances): with the gate RebootForRepair, a machine "+
				"that a reboot may mend is replaced all the same", l.ControllerRole), nil
		}
	}
	return one(OK, "", "%s may reboot machines, which the gate RebootForRepair has it do", l.ControllerRole), nil
}

// checkNodeRoles checks the roles that classes name.
func (l *look) checkNodeRoles(ctx context.Context) ([]Finding, error) {
	var found []Finding
	seen := map[string]bool{}
	for _, c := range l.all() {
		name := c.Spec.Role
		if name == "" || seen[name] {
			continue
		}
		seen[name] = true
		f, err := l.nodeRole(ctx, &c)
		if err != nil {
			return found, err
		}
		found = append(found, f...)
	}
	return found, nil
}

// nodeRole checks the role of a class's nodes: that EC2 may use it, and that the cluster accepts machines with it.
func (l *look) nodeRole(ctx context.Context, c *awsv1.EC2NodeClass) ([]Finding, error) {
	name := c.Spec.Role
	role, err := l.role(ctx, name)
	if err != nil {
		return nil, err
	}
	if role == nil && name != l.NodeRole { // what the template makes has another name
		return one(Missing, "kubectl edit ec2nodeclass "+c.Name, "there is no role %s, which %s names", name, about(c)), nil
	}
	if role == nil {
		return one(Missing, l.deploy(), "there is no role %s", name), nil
	}
	takers := []roleTrust{machines}
	if l.me.Partition == "aws-cn" {
		takers = []roleTrust{inChina, machines}
	}
	if !slices.ContainsFunc(takers, func(g roleTrust) bool { return g.lacks(role) == "" }) {
		return one(Missing, takers[0].command(name), "machines may not take %s: it does not trust EC2 (%s)", name, takers[0].service), nil
	}
	arn := aws.ToString(role.Arn)
	create := l.aws("eks create-access-entry --cluster-name %s --principal-arn %s --type EC2_LINUX", l.Cluster, arn)
	switch as, err := l.accessOf(ctx, arn); {
	case err != nil:
		return nil, err
	case as == people:
		command := l.aws("eks delete-access-entry --cluster-name %s --principal-arn %s", l.Cluster, arn) + " && " + create
		return one(Missing, command, "the access entry of %s is one for people: machines cannot join with it", name), nil
	case as == noAccess:
		return one(Missing, create, "the cluster does not take machines with %s: it has neither an access entry nor a "+
			"line with the group system:nodes in aws-auth", name), nil
	}
	return one(OK, "", "%s, and the cluster takes its machines", name), nil
}

// An access says as what a cluster accepts a role.
type access int

const (
	noAccess access = iota
	people
	node
)

// accessOf returns as what the cluster accepts a role: by its access entry, or by the ConfigMap aws-auth.
func (l *look) accessOf(ctx context.Context, arn string) (access, error) {
	out, err := l.eks.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{ClusterName: &l.Cluster, PrincipalArn: &arn})
	var none *ekstypes.ResourceNotFoundException
	var mapOnly *ekstypes.InvalidRequestException // clusters that know aws-auth only
	if err == nil {
		// The other types are for machines, each of a kind; no principal gets the group of nodes by an entry of this one.
		if aws.ToString(out.AccessEntry.Type) == "STANDARD" {
			return people, nil
		}
		return node, nil
	}
	if !errors.As(err, &none) && !errors.As(err, &mapOnly) {
		return noAccess, err
	}
	var auth corev1.ConfigMap
	if err := l.kube.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "aws-auth"}, &auth); client.IgnoreNotFound(err) != nil {
		return noAccess, err
	}
	if mapped(auth.Data["mapRoles"], arn) {
		return node, nil
	}
	return noAccess, nil
}

// mapped reports whether aws-auth makes nodes of what has a role. It holds roles without their paths.
func mapped(lines, arn string) bool {
	var all []struct {
		RoleARN string
		Groups  []string
	}
	if yaml.Unmarshal([]byte(lines), &all) != nil {
		return false
	}
	begin, rest, _ := strings.Cut(arn, ":role/")
	plain := begin + ":role/" + rest[strings.LastIndex(rest, "/")+1:]
	for _, line := range all {
		if line.RoleARN == plain && slices.Contains(line.Groups, "system:nodes") {
			return true
		}
	}
	return false
}

// checkProfiles checks the instance profiles that classes name.
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
			found = append(found, one(Missing, l.deploy(),
				"there is no instance profile %s, which EC2NodeClass %s names", name, c.Name)...)
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

// checkQueue checks that the queue of interruption messages exists.
func (l *look) checkQueue(ctx context.Context) ([]Finding, error) {
	_, err := l.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &l.Queue})
	if code := ec2api.Code(err); strings.Contains(code, "QueueDoesNotExist") || strings.Contains(code, "NonExistentQueue") {
		var parameters []string
		if l.Queue != l.Cluster {
			parameters = append(parameters, "QueueName="+l.Queue)
		}
		return one(Missing, l.deploy(parameters...),
			"there is no queue %s: nodes would not be drained before spot machines are taken away", l.Queue), nil
	}
	if err != nil {
		return nil, err
	}
	return one(OK, "", "%s; the value settings.interruptionQueue has to name it", l.Queue), nil
}

// checkSpotRole checks that the role exists without which EC2 refuses the first spot machine of an account.
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
	return one(Missing, "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
		"this account never had a spot machine, and Karpenter may not create the role that EC2 wants for one"), nil
}

// buysSpot reports whether a pool may buy spot machines.
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
