package launch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/ttl"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// api is the part of EC2 that keeping templates needs.
type api interface {
	CreateLaunchTemplate(context.Context, *ec2.CreateLaunchTemplateInput, ...func(*ec2.Options)) (*ec2.CreateLaunchTemplateOutput, error)
	DeleteLaunchTemplate(context.Context, *ec2.DeleteLaunchTemplateInput, ...func(*ec2.Options)) (*ec2.DeleteLaunchTemplateOutput, error)
	DescribeLaunchTemplates(context.Context, *ec2.DescribeLaunchTemplatesInput,
		...func(*ec2.Options)) (*ec2.DescribeLaunchTemplatesOutput, error)
}

const (
	// life is how long a template stays after its last use: with the sweep it is gone from EC2 within a minute.
	life       = 45 * time.Second
	sweepEvery = 5 * time.Second
	adoptEvery = 30 * time.Second
)

// A Keeper makes templates when they are needed, and deletes them when they have not been used for a while. It may be
// used concurrently.
type Keeper struct {
	api     api
	cluster string
	created func(t *Template) // is called for each template that is made
	known   *ttl.Map[string, struct{}]

	mu     sync.Mutex
	making map[string]*call
}

// A call is a template that is being made. Other callers that need the same template wait for it.
type call struct {
	done chan struct{}
	err  error
}

// NewKeeper returns a Keeper for the templates of a cluster.
func NewKeeper(api api, cluster string, created func(*Template)) *Keeper {
	return &Keeper{api: api, cluster: cluster, created: created, known: ttl.New[string, struct{}](life), making: map[string]*call{}}
}

// Ensure makes the template unless it exists, and returns its name.
func (k *Keeper) Ensure(ctx context.Context, t *Template) (string, error) {
	name := t.Name()
	for {
		if k.known.Touch(name) {
			return name, nil
		}
		c, mine := k.begin(name)
		if mine {
			c.err = k.safely(ctx, t)
			k.end(name, c)
		} else {
			select {
			case <-c.done:
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		switch {
		case c.err == nil:
			return name, nil
		case !mine && ec2api.IsUnknownOutcome(c.err):
			continue // the other caller gave up; this caller tries itself
		default:
			return "", c.err
		}
	}
}

// begin returns the call that makes a template, and whether the caller has to make it.
func (k *Keeper) begin(name string) (*call, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c, ok := k.making[name]; ok {
		return c, false
	}
	c := &call{done: make(chan struct{})}
	k.making[name] = c
	return c, true
}

func (k *Keeper) end(name string, c *call) {
	k.mu.Lock()
	delete(k.making, name)
	k.mu.Unlock()
	close(c.done)
}

// safely calls create. A panic becomes an error, because other callers wait for the outcome.
func (k *Keeper) safely(ctx context.Context, t *Template) (err error) {
	defer bug.Catch(&err, "making launch template "+t.Name())
	return k.create(ctx, t)
}

// create makes a template. It does not look first: a template that is not known hardly ever exists, and then the
// error says so.
func (k *Keeper) create(ctx context.Context, t *Template) error {
	in := t.Request()
	if _, err := k.api.CreateLaunchTemplate(ctx, in); err != nil && !ec2api.IsAlreadyExists(err) {
		return fmt.Errorf("create launch template: %w", err)
	}
	k.known.Put(aws.ToString(in.LaunchTemplateName), struct{}{})
	if k.created != nil {
		k.created(t)
	}
	return nil
}

// Forget drops a template that EC2 no longer has, so that the next use makes it again.
func (k *Keeper) Forget(name string) { k.known.Delete(name) }

// Run deletes templates that are no longer used, until ctx ends, also those of an earlier controller. While these
// cannot be listed, its own templates are deleted all the same.
func (k *Keeper) Run(ctx context.Context, watched *telemetry.Loop) error {
	adopted, again := false, time.Now()
	for {
		if !adopted && !time.Now().Before(again) {
			err := watched.Turn(ctx, "taking over launch templates", k.adopt)
			if adopted = err == nil; !adopted && ctx.Err() == nil {
				telemetry.Log(ctx).WarnContext(ctx, "launch templates that an earlier controller left cannot be listed", "error", err)
				again = time.Now().Add(adoptEvery)
			}
		}
		if !watched.Wait(ctx, sweepEvery, nil) {
			return nil
		}
		watched.Turn(ctx, "deleting launch templates", func(ctx context.Context) error { k.sweep(ctx); return nil })
	}
}

// adopt lists the templates of the cluster and treats them as used now.
func (k *Keeper) adopt(ctx context.Context) error {
	names, err := k.list(ctx, ec2api.Filter("tag:"+awsv1.TagClusterName, k.cluster))
	for _, name := range names {
		k.known.Put(name, struct{}{})
	}
	return err
}

// sweep deletes the templates that were not used for their life. A template that cannot be deleted is tried again
// after another life.
func (k *Keeper) sweep(ctx context.Context) {
	for name := range k.known.Sweep() {
		if err := k.delete(ctx, name); err != nil {
			if ctx.Err() == nil {
				telemetry.Log(ctx).WarnContext(ctx, "a launch template that is no longer used cannot be deleted",
					"launch-template", name, "error", err)
			}
			k.known.Put(name, struct{}{})
		}
	}
}

// delete deletes a template; a missing one is no error.
func (k *Keeper) delete(ctx context.Context, name string) error {
	_, err := k.api.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String(name)})
	if ec2api.IsNotFound(err) {
		return nil
	}
	return err
}

// DeleteFor deletes every template of a node class.
func (k *Keeper) DeleteFor(ctx context.Context, class string) error {
	names, err := k.list(ctx, ec2api.Filter("tag:"+awsv1.TagClusterName, k.cluster), ec2api.Filter("tag:"+awsv1.TagNodeClass, class))
	if err != nil {
		return fmt.Errorf("list launch templates: %w", err)
	}
	var errs []error
	for _, name := range names {
		if err := k.delete(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("delete launch template %s: %w", name, err))
			continue
		}
		k.known.Delete(name)
	}
	return errors.Join(errs...)
}

// list returns the names of the templates that satisfy the filters.
func (k *Keeper) list(ctx context.Context, filters ...ec2types.Filter) ([]string, error) {
	var names []string
	pages := ec2.NewDescribeLaunchTemplatesPaginator(k.api, &ec2.DescribeLaunchTemplatesInput{Filters: filters,
		MaxResults: aws.Int32(200)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return names, err
		}
		for _, t := range page.LaunchTemplates {
			names = append(names, aws.ToString(t.LaunchTemplateName))
		}
	}
	return names, nil
}
