// Package preflight reads an AWS account and a cluster and says what Karpenter would miss in them, each time with the command that
// mends it. It changes nothing, and it asks with the rights of its user, not with the controller's.
package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
)

// A State says how a thing was found.
type State string

// States, the worst last. What could not be read may be missing.
const (
	OK      State = "ok"
	Warning State = "warning" // Karpenter runs, but not as one would like
	Unknown State = "unknown"
	Missing State = "missing"
)

// A Finding is one line of the answer.
type Finding struct {
	Check   string `json:"check"`
	State   State  `json:"state"`
	Message string `json:"message"`
	Command string `json:"command,omitempty"` // what mends it
}

// Names are the names of what is checked. Only the cluster's is needed: the others have the defaults of the
// installation's templates.
type Names struct {
	Cluster        string
	Namespace      string // of the controller
	ServiceAccount string
	ControllerRole string
	NodeRole       string // of clusters without an EC2NodeClass
	Queue          string
}

func (n Names) withDefaults() Names {
	n.Namespace = cmp.Or(n.Namespace, "kube-system")
	n.ServiceAccount = cmp.Or(n.ServiceAccount, "karpenter")
	n.ControllerRole = cmp.Or(n.ControllerRole, "KarpenterControllerRole-"+n.Cluster)
	n.NodeRole = cmp.Or(n.NodeRole, "KarpenterNodeRole-"+n.Cluster)
	n.Queue = cmp.Or(n.Queue, n.Cluster)
	return n
}

// An Input says what is checked.
type Input struct {
	Names Names
	AWS   aws.Config
	Kube  client.Reader
	// Version asks the API server for its version.
	Version func(context.Context) (string, error)
}

// A look is one preflight: where to ask, and the first answers.
type look struct {
	Names
	cfg     aws.Config
	kube    client.Reader
	version func(context.Context) (string, error)
	ec2     *ec2.Client
	eks     *eks.Client
	iam     *iam.Client
	sqs     *sqs.Client
	ssm     *ssm.Client
	minor   string // version of the cluster, such as 1.36; empty while it is not known
	issuer  string // who signs the tokens of its service accounts, as roles name it; empty while it is not known
	me      arn.ARN
	silent  asked
	classes []awsv1.EC2NodeClass
	pools   []v1.NodePool
}

// Run makes every check, also after a failed one.
func Run(ctx context.Context, in Input) []Finding {
	l := &look{
		Names: in.Names.withDefaults(), cfg: in.AWS, kube: in.Kube, version: in.Version,
		ec2: ec2.NewFromConfig(in.AWS), eks: eks.NewFromConfig(in.AWS), iam: iam.NewFromConfig(in.AWS),
		sqs: sqs.NewFromConfig(in.AWS), ssm: ssm.NewFromConfig(in.AWS),
	}
	var all []Finding
	for _, c := range []struct {
		name string
		make func(*look, context.Context) ([]Finding, error)
		asks asked
	}{
		{"account", (*look).checkAccount, nobody},
		{"cluster", (*look).checkCluster, nobody},
		{"definitions", (*look).checkDefinitions, cluster},
		{"pools", (*look).checkPools, cluster},
		{"service account", (*look).checkServiceAccount, account | cluster},
		{"controller role", (*look).checkControllerRole, account | cluster},
		{"reboots", (*look).checkReboots, account},
		{"node role", (*look).checkNodeRoles, account | cluster},
		{"instance profile", (*look).checkProfiles, account | cluster},
		{"subnets", (*look).checkSubnets, account | cluster},
		{"security groups", (*look).checkSecurityGroups, account | cluster},
		{"images", (*look).checkImages, account | cluster},
		{"queue", (*look).checkQueue, account},
		{"DNS", (*look).checkDNS, cluster},
		{"spot role", (*look).checkSpotRole, account},
		{"quotas", (*look).checkQuotas, account},
	} {
		for _, f := range l.try(ctx, c.make, c.asks) {
			f.Check = c.name
			all = append(all, f)
		}
	}
	return all
}

// An asked is a set of servers that a check needs.
type asked int

const (
	account asked = 1 << iota
	cluster
	nobody asked = 0
)

// try makes one check. A server that did not answer once is not asked again: an address without a host takes long to
// time out.
func (l *look) try(ctx context.Context, check func(*look, context.Context) ([]Finding, error), asks asked) []Finding {
	switch {
	case asks&account&l.silent != 0:
		return one(Unknown, "", "AWS cannot be asked")
	case asks&cluster&l.silent != 0:
		return one(Unknown, "", "the API server cannot be asked")
	}
	found, err := check(l, ctx)
	if err != nil {
		found = append(found, Finding{State: Unknown, Message: explain(err)})
	}
	return found
}

// explain returns the text of an error, and who did not answer.
func explain(err error) string {
	if ec2api.IsDenied(err) {
		return "you may not read this: " + ec2api.Explain(err)
	}
	way, ok := errors.AsType[*url.Error](err)
	if !ok {
		return err.Error()
	}
	who := "the API server"
	if call, ok := errors.AsType[*smithy.OperationError](err); ok {
		who = call.Service()
	}
	return fmt.Sprintf("%s does not answer: %v", who, way.Err)
}

// one returns a single finding.
func one(state State, command, format string, args ...any) []Finding {
	return []Finding{{State: state, Message: fmt.Sprintf(format, args...), Command: command}}
}

// checkAccount checks the user's AWS credentials.
func (l *look) checkAccount(ctx context.Context) ([]Finding, error) {
	if _, err := l.cfg.Credentials.Retrieve(ctx); err != nil {
		l.silent |= account
		return one(Missing, "aws configure", "you have no credentials for AWS: %v", err), nil
	}
	me, err := sts.NewFromConfig(l.cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil && ec2api.Code(err) == "" { // another service may be within reach
		return nil, err
	}
	if err != nil {
		return one(Missing, "aws sts get-caller-identity", "AWS does not take your credentials: %v", err), nil
	}
	if l.me, err = arn.Parse(aws.ToString(me.Arn)); err != nil {
		return nil, err
	}
	return one(OK, "", "%s in account %s, region %s", l.me, l.me.AccountID, l.cfg.Region), nil
}

// checkCluster checks that the cluster exists and that its API server answers.
func (l *look) checkCluster(ctx context.Context) ([]Finding, error) {
	version, versionErr := l.version(ctx)
	if versionErr == nil {
		l.minor = minorOf(version)
	} else {
		l.silent |= cluster
	}
	unreached := one(Missing, l.aws("eks update-kubeconfig --name %s", l.Cluster), "the API server does not answer: %v", versionErr)
	if l.silent&account != 0 {
		if versionErr != nil {
			return unreached, nil
		}
		return one(Unknown, "", "AWS cannot be asked"), nil
	}
	out, err := l.eks.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &l.Cluster})
	if _, way := errors.AsType[*url.Error](err); way && l.me.AccountID == "" {
		l.silent |= account // STS was silent as well
	}
	var none *ekstypes.ResourceNotFoundException
	switch {
	case errors.As(err, &none):
		return one(Missing, "aws eks list-clusters --region "+l.cfg.Region, "there is no EKS cluster %s in %s",
			l.Cluster, l.cfg.Region), nil
	case err != nil && versionErr != nil:
		return append(unreached, Finding{State: Unknown, Message: explain(err)}), nil
	case err != nil:
		return nil, err
	case out.Cluster.Status != ekstypes.ClusterStatusActive:
		return one(Missing, l.aws("eks wait cluster-active --name %s", l.Cluster), "the cluster is %s", out.Cluster.Status), nil
	}
	if id := out.Cluster.Identity; id != nil && id.Oidc != nil {
		l.issuer = strings.TrimPrefix(aws.ToString(id.Oidc.Issuer), "https://")
	}
	if versionErr != nil {
		return unreached, nil
	}
	return l.judgeVersion(), nil
}

// aws returns a command of the AWS CLI, with the region.
func (l *look) aws(format string, args ...any) string {
	return "aws " + fmt.Sprintf(format, args...) + " --region " + l.cfg.Region
}

// deploy returns the command that makes everything in the account that Karpenter needs. Parameters come before the
// region, which ends the list.
func (l *look) deploy(parameters ...string) string {
	return l.aws("cloudformation deploy --stack-name Karpenter-%s --template-file karpenter-cloudformation.yaml "+
		"--capabilities CAPABILITY_NAMED_IAM --parameter-overrides %s",
		l.Cluster, strings.Join(append([]string{"ClusterName=" + l.Cluster}, parameters...), " "))
}

// roleARN returns the ARN of a role of the account.
func (l *look) roleARN(name string) string {
	return arn.ARN{Partition: cmp.Or(l.me.Partition, "aws"), Service: "iam", AccountID: l.me.AccountID, Resource: "role/" + name}.String()
}
