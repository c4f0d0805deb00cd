package awsmodel

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	shifttypes "github.com/aws/aws-sdk-go-v2/service/arczonalshift/types"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
)

// An Account is what its owner has set up besides machines and networks, and what AWS grants it. It does not change by itself.
type Account struct {
	// NodeEntries are the ARNs of roles that the cluster has access entries for nodes for.
	NodeEntries []string
	// PeoplesEntries are the ARNs of roles that it has entries for as for people, which machines cannot join with.
	PeoplesEntries []string
	// Associations are the service accounts, as namespace/name, that Pod Identity gives a role.
	Associations []string
	// Unmanaged says that ARC does not manage the cluster; else Shifts are the zones, by id, from which traffic is
	// shifted away, and until when.
	Unmanaged bool
	Shifts    map[string]time.Time
	// Quotas are limits of EC2 by their codes, such as virtual CPUs of running machines.
	Quotas map[string]float64
	// Reserved and Plans are the Reserved Instances and Savings Plans that were bought.
	Reserved []ec2types.ReservedInstances
	Plans    []SavingsPlan
}

// Codes of quotas of EC2: virtual CPUs of running machines of the standard families.
const (
	QuotaOnDemand = "L-1216C47A"
	QuotaSpot     = "L-34B43A08"
)

// ready is an account in which a cluster's owner has forgotten nothing.
func (c Config) ready() Account {
	return Account{
		NodeEntries:  []string{c.arn("iam", "role/"+c.NodeRole)},
		Associations: []string{"kube-system/karpenter"},
		Quotas:       map[string]float64{QuotaOnDemand: 5000, QuotaSpot: 5000},
	}
}

func getManagedResource(c *call, in *arczonalshift.GetManagedResourceInput) (*arczonalshift.GetManagedResourceOutput, error) {
	arn := c.world.cfg.arn("eks", "cluster/"+c.world.boot.Name)
	if aws.ToString(in.ResourceIdentifier) != arn || c.world.account.Unmanaged {
		return nil, refuseWith(http.StatusNotFound, "ResourceNotFoundException",
			"The resource %s is not managed by ARC zonal shift.", aws.ToString(in.ResourceIdentifier))
	}
	out := &arczonalshift.GetManagedResourceOutput{Arn: &arn, Name: &c.world.boot.Name,
		AppliedWeights: map[string]float32{}, ZonalShifts: []shifttypes.ZonalShiftInResource{}}
	for _, zone := range slices.Sorted(maps.Keys(c.world.account.Shifts)) {
		until := c.world.account.Shifts[zone]
		if until.After(c.now) {
			out.ZonalShifts = append(out.ZonalShifts, shifttypes.ZonalShiftInResource{
				AppliedStatus: shifttypes.AppliedStatusApplied, AwayFrom: &zone, Comment: aws.String("impaired"),
				ExpiryTime: &until, StartTime: &c.world.started,
				ResourceIdentifier: &arn, ZonalShiftId: aws.String(nameID("shift", zone)),
			})
		}
	}
	return out, nil
}

// SetAccount changes what was set up.
func (c *Cloud) SetAccount(change func(*Account)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.world.account)
}

// RemoveRole lets a role disappear, whatever has it.
func (c *Cloud) RemoveRole(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.world.st.Roles, name)
	c.world.changed()
}

func describeAccessEntry(c *call, in *eks.DescribeAccessEntryInput) (*eks.DescribeAccessEntryOutput, error) {
	arn := aws.ToString(in.PrincipalArn)
	entry := &ekstypes.AccessEntry{ClusterName: in.ClusterName, PrincipalArn: &arn}
	switch here := aws.ToString(in.ClusterName) == c.world.boot.Name; {
	case here && slices.Contains(c.world.account.NodeEntries, arn):
		entry.Type, entry.KubernetesGroups = aws.String("EC2_LINUX"), []string{"system:nodes"}
	case here && slices.Contains(c.world.account.PeoplesEntries, arn):
		entry.Type = aws.String("STANDARD")
	default:
		return nil, refuseWith(http.StatusNotFound, "ResourceNotFoundException",
			"The specified principalArn could not be found. You can view your available access entries with 'list-access-entries'.")
	}
	return &eks.DescribeAccessEntryOutput{AccessEntry: entry}, nil
}

func listPodIdentityAssociations(c *call, in *eks.ListPodIdentityAssociationsInput) (*eks.ListPodIdentityAssociationsOutput, error) {
	out := &eks.ListPodIdentityAssociationsOutput{Associations: []ekstypes.PodIdentityAssociationSummary{}}
	if slices.Contains(c.world.account.Associations, aws.ToString(in.Namespace)+"/"+aws.ToString(in.ServiceAccount)) {
		out.Associations = append(out.Associations, ekstypes.PodIdentityAssociationSummary{
			ClusterName: in.ClusterName, Namespace: in.Namespace, ServiceAccount: in.ServiceAccount, AssociationId: aws.String("a-model"),
		})
	}
	return out, nil
}

// GetServiceQuotaInput is a request to Service Quotas. The provider links no client of that service, nor does the model.
type GetServiceQuotaInput struct{ ServiceCode, QuotaCode *string }

// GetServiceQuotaOutput is the answer.
type GetServiceQuotaOutput struct{ Quota *ServiceQuota }

// ServiceQuota is one limit.
type ServiceQuota struct {
	QuotaCode *string
	Value     *float64
}

func getServiceQuota(c *call, in *GetServiceQuotaInput) (*GetServiceQuotaOutput, error) {
	value, ok := c.world.account.Quotas[aws.ToString(in.QuotaCode)]
	if !ok || aws.ToString(in.ServiceCode) != "ec2" {
		return nil, refuse("NoSuchResourceException", "The request failed because the specified service quota does not exist.")
	}
	return &GetServiceQuotaOutput{&ServiceQuota{in.QuotaCode, &value}}, nil
}
