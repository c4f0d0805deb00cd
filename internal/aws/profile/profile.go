// Package profile makes, finds and removes the instance profiles through which machines get their role.
//
// Profiles that Karpenter makes lie under a path that names the cluster and the node class, and a class gets a new one
// when its role changes: running machines keep theirs until they are replaced. Profiles outside the path are
// never touched.
package profile

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/ttl"
)

// api is the part of IAM that profiles need.
type api interface {
	GetInstanceProfile(context.Context, *iam.GetInstanceProfileInput, ...func(*iam.Options)) (*iam.GetInstanceProfileOutput, error)
	CreateInstanceProfile(context.Context, *iam.CreateInstanceProfileInput,
		...func(*iam.Options)) (*iam.CreateInstanceProfileOutput, error)
	AddRoleToInstanceProfile(context.Context, *iam.AddRoleToInstanceProfileInput,
		...func(*iam.Options)) (*iam.AddRoleToInstanceProfileOutput, error)
	RemoveRoleFromInstanceProfile(context.Context, *iam.RemoveRoleFromInstanceProfileInput,
		...func(*iam.Options)) (*iam.RemoveRoleFromInstanceProfileOutput, error)
	DeleteInstanceProfile(context.Context, *iam.DeleteInstanceProfileInput,
		...func(*iam.Options)) (*iam.DeleteInstanceProfileOutput, error)
	ListInstanceProfiles(context.Context, *iam.ListInstanceProfilesInput, ...func(*iam.Options)) (*iam.ListInstanceProfilesOutput, error)
}

// ErrUnchecked says that the profile which a class has may be right or wrong: IAM did not let us look.
var ErrUnchecked = errors.New("the instance profile cannot be checked")

// A NoRoleError says that a role does not exist.
type NoRoleError struct {
	Role string
	err  error
}

func (e *NoRoleError) Error() string { return e.err.Error() }

// Unwrap returns what IAM said.
func (e *NoRoleError) Unwrap() error { return e.err }

const (
	knownLife     = 15 * time.Minute
	recentLife    = time.Minute
	protectedLife = time.Hour
	noRoleLife    = time.Minute
)

// A Keeper keeps the profiles of a cluster's node classes. It may be used concurrently.
type Keeper struct {
	api             api
	region, cluster string
	unique          func() string // part of a new profile's name

	roles     *ttl.Map[string, string]    // profile → role, as IAM said
	recent    *ttl.Map[recentKey, string] // → profile that was just made
	protected *ttl.Map[string, struct{}]  // profiles that are not collected yet
	noRole    *ttl.Map[string, error]     // roles that IAM does not know
	gate      chan struct{}               // held while a profile is made
}

// NewKeeper returns a Keeper. unique makes names that were never used.
func NewKeeper(api api, region, cluster string, unique func() string) *Keeper {
	return &Keeper{
		api: api, region: region, cluster: cluster, unique: unique,
		roles: ttl.New[string, string](knownLife), recent: ttl.New[recentKey, string](recentLife),
		protected: ttl.New[string, struct{}](protectedLife), noRole: ttl.New[string, error](noRoleLife),
		gate: make(chan struct{}, 1),
	}
}

// Ensure returns the profile for a class: the user's own, or one with the class's role.
func (k *Keeper) Ensure(ctx context.Context, nc *awsv1.EC2NodeClass) (string, error) {
	current := nc.Status.InstanceProfile
	if current != "" {
		k.protected.Put(current, struct{}{})
	}
	if nc.Spec.InstanceProfile != nil {
		return *nc.Spec.InstanceProfile, nil
	}
	if name, ok := k.knownFor(nc); ok {
		return name, nil // without waiting for others' calls
	}
	select {
	case k.gate <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-k.gate }()
	if name, ok := k.knownFor(nc); ok {
		return name, nil
	}
	role := roleName(nc.Spec.Role)
	if current != "" {
		has, err := k.roleOf(ctx, current)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrUnchecked, err)
		}
		if has == role {
			return current, nil
		}
	}
	name, err := k.create(ctx, nc, role)
	if err != nil {
		return "", err
	}
	k.forget()
	k.recent.Put(recentKeyOf(nc), name)
	k.protected.Put(name, struct{}{})
	k.roles.Put(name, role)
	return name, nil
}

// forget drops entries that have expired: classes, roles and profiles come and go as long as the process lives.
func (k *Keeper) forget() {
	k.recent.Sweep()
	k.roles.Sweep()
	k.noRole.Sweep()
}

// A recentKey identifies a node class with its role.
type recentKey struct {
	class types.UID
	role  string
}

func recentKeyOf(nc *awsv1.EC2NodeClass) recentKey { return recentKey{nc.UID, nc.Spec.Role} }

// knownFor returns the profile of a class if it is known to be right without a call: it was just made, or looked at.
func (k *Keeper) knownFor(nc *awsv1.EC2NodeClass) (string, bool) {
	if name, ok := k.recent.Get(recentKeyOf(nc)); ok {
		return name, true
	}
	current := nc.Status.InstanceProfile
	role, ok := k.roles.Get(current)
	return current, ok && current != "" && role == roleName(nc.Spec.Role)
}

// roleName returns the last part of a role that may be given with its path.
func roleName(role string) string { return path.Base(role) }

// roleOf returns the role in a profile, "" for a profile without role or a profile that does not exist.
func (k *Keeper) roleOf(ctx context.Context, name string) (string, error) {
	if role, ok := k.roles.Get(name); ok {
		return role, nil
	}
	out, err := k.api.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
	if ec2api.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("get instance profile %s: %w", name, err)
	}
	role := roleIn(out.InstanceProfile)
	if role != "" {
		k.roles.Put(name, role)
	}
	return role, nil
}

func roleIn(p *iamtypes.InstanceProfile) string {
	if p == nil || len(p.Roles) == 0 {
		return ""
	}
	return aws.ToString(p.Roles[0].RoleName)
}

// Exists asks IAM whether a profile exists.
func (k *Keeper) Exists(ctx context.Context, name string) (bool, error) {
	_, err := k.api.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
	if ec2api.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// create makes a profile with a role. If the role cannot be added, it deletes the profile again.
func (k *Keeper) create(ctx context.Context, nc *awsv1.EC2NodeClass, role string) (string, error) {
	if err, ok := k.noRole.Get(role); ok {
		return "", err
	}
	name := k.Name(nc.Name, k.unique())
	_, err := k.api.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{
		InstanceProfileName: &name, Path: aws.String(k.path(string(nc.UID))), Tags: k.tags(nc),
	})
	if err != nil && !ec2api.IsAlreadyExists(err) {
		return "", fmt.Errorf("create instance profile: %w", err)
	}
	_, err = k.api.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &name, RoleName: &role})
	if err == nil {
		return name, nil
	}
	missing := ec2api.IsNotFound(err) && !aboutProfile(err)
	err = fmt.Errorf("add role %s to instance profile: %w", role, err)
	if missing {
		err = &NoRoleError{role, err}
		k.forget()
		k.noRole.Put(role, err)
	}
	return "", errors.Join(err, k.Delete(ctx, name))
}

// aboutProfile reports whether IAM did not find the profile, which it may not show yet, and not the role.
func aboutProfile(err error) bool {
	return strings.Contains(strings.ToLower(ec2api.Message(err)), "instance profile")
}

// Name returns the name of a profile of a class.
func (k *Keeper) Name(class, unique string) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s/%s", k.region, class, unique)
	return fmt.Sprintf("%s_%d", k.cluster, h.Sum64())
}

// legacyName returns the name that old releases gave to the one profile of a class, outside any path.
func (k *Keeper) legacyName(class string) string {
	h := fnv.New64() // FNV-1, not 1a: it must be the name that was given then
	h.Write([]byte(k.region + class))
	return fmt.Sprintf("%s_%d", k.cluster, h.Sum64())
}

// path returns the path of all profiles of the cluster, or of one class by its UID.
func (k *Keeper) path(uid string) string {
	p := fmt.Sprintf("/karpenter/%s/%s/", k.region, k.cluster)
	if uid != "" {
		p += uid + "/"
	}
	return p
}

// tags returns the tags of a class's profile, sorted.
func (k *Keeper) tags(nc *awsv1.EC2NodeClass) []iamtypes.Tag {
	all := maps.Clone(nc.Spec.Tags)
	if all == nil {
		all = map[string]string{}
	}
	all[awsv1.TagClusterPrefix+k.cluster] = awsv1.TagClusterOwned
	all[awsv1.TagClusterName] = k.cluster
	all[awsv1.TagNodeClass] = nc.Name
	all[corev1.LabelTopologyRegion] = k.region
	out := make([]iamtypes.Tag, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, iamtypes.Tag{Key: aws.String(key), Value: aws.String(all[key])})
	}
	return out
}

// Delete removes a profile with its role. A missing profile is no error.
func (k *Keeper) Delete(ctx context.Context, name string) error {
	out, err := k.api.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
	if ec2api.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get instance profile %s: %w", name, err)
	}
	for _, role := range out.InstanceProfile.Roles {
		_, err := k.api.RemoveRoleFromInstanceProfile(ctx,
			&iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: &name, RoleName: role.RoleName})
		if err != nil && !ec2api.IsNotFound(err) {
			return fmt.Errorf("remove role from instance profile %s: %w", name, err)
		}
	}
	if _, err := k.api.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{
		InstanceProfileName: &name}); err != nil && !ec2api.IsNotFound(err) {
		return fmt.Errorf("delete instance profile %s: %w", name, err)
	}
	k.roles.Delete(name)
	return nil
}

// DeleteFor removes every profile that was made for a class.
func (k *Keeper) DeleteFor(ctx context.Context, nc *awsv1.EC2NodeClass) error {
	names, err := k.list(ctx, k.path(string(nc.UID)))
	if err != nil {
		return err
	}
	if legacy := k.legacyName(nc.Name); validName.MatchString(legacy) {
		names = append(names, legacy)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, k.Delete(ctx, name))
	}
	return errors.Join(errs...)
}

var validName = regexp.MustCompile(`^[\w+=,.@-]{1,128}$`)

// Collect removes the profiles of this cluster that are neither in use nor protected.
func (k *Keeper) Collect(ctx context.Context, used map[string]bool) error {
	names, err := k.list(ctx, k.path(""))
	if err != nil {
		return err
	}
	k.protected.Sweep()
	var errs []error
	for _, name := range names {
		if _, protected := k.protected.Get(name); !used[name] && !protected {
			errs = append(errs, k.Delete(ctx, name))
		}
	}
	return errors.Join(errs...)
}

// list returns the names of the profiles under a path.
func (k *Keeper) list(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	pages := iam.NewListInstanceProfilesPaginator(k.api, &iam.ListInstanceProfilesInput{PathPrefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list instance profiles: %w", err)
		}
		for _, p := range page.InstanceProfiles {
			names = append(names, aws.ToString(p.InstanceProfileName))
		}
	}
	return names, nil
}
