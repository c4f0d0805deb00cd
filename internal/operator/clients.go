package operator

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bufferv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/compat/generations"
	"karpenter.sh/karpenter/internal/explain/minor"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// clients are the clients of the API server, each with a rate limit of its own, so that many requests of one kind do not delay the
// others.
type clients struct {
	rest      *rest.Config
	main      client.WithWatch // claims, nodes, and what is read of the kinds of Kubernetes
	raw       rest.Interface   // for custom resources that are watched
	version   server
	evictions client.Client
	hints     client.Client
	events    client.Client
	reviews   client.Client // token and access reviews, for readers of metrics
	rewrites  client.Client // rewrites objects that are stored in older versions
	groups    []string      // API groups of Karpenter's kinds
}

// server asks the API server about itself.
type server interface {
	ServerVersion() (*apimachineryversion.Info, error)
	ServerGroups() (*metav1.APIGroupList, error)
}

const (
	evictionQPS, evictionBurst = 100, 200
	// Hints are useful for a moment only, so they are written at a high rate.
	hintQPS, hintBurst = 500, 1000
	// Events are for people and may be late.
	eventQPS, eventBurst = 50, 100
	// Reviews are few, because any client that reaches the port can cause them.
	reviewQPS, reviewBurst = 5, 10
	// Rewriting is done once, beside everything else: 5,000 objects take half a minute.
	rewriteQPS, rewriteBurst = 150, 150
)

// scheme returns a scheme with every kind that Karpenter reads or writes, including those of the provider.
func scheme(of NodeClasses) (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1.AddToScheme, v1alpha1.AddToScheme, bufferv1beta1.AddToScheme,
		apiextensionsv1.AddToScheme, of.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("scheme: %w", err)
		}
	}
	return s, nil
}

// newClients makes the clients. Their requests are counted and timed.
func newClients(o Options, m *telemetry.Metrics) (*clients, error) {
	kinds, err := scheme(o.NodeClasses)
	if err != nil {
		return nil, err
	}
	newClient := func(qps, burst int) (client.WithWatch, *rest.Config, error) {
		c := rest.CopyConfig(o.REST)
		c.QPS, c.Burst, c.RateLimiter = float32(qps), burst, nil
		if c.UserAgent == "" {
			c.UserAgent = "karpenter"
		}
		c.Wrap(countRequests(m))
		w, err := client.NewWithWatch(c, client.Options{Scheme: kinds})
		if err != nil {
			return nil, nil, fmt.Errorf("API client: %w", err)
		}
		return w, c, nil
	}
	out := &clients{groups: []string{v1.Group, o.NodeClasses.Group}}
	if out.main, out.rest, err = newClient(o.Settings.Client.QPS, o.Settings.Client.Burst); err != nil {
		return nil, err
	}
	bare := rest.CopyConfig(out.rest) // without group and version: each request sets its whole path
	bare.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()
	if out.raw, err = rest.UnversionedRESTClientFor(bare); err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	if out.version, err = discovery.NewDiscoveryClientForConfig(out.rest); err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	if out.evictions, _, err = newClient(evictionQPS, evictionBurst); err != nil {
		return nil, err
	}
	if out.hints, _, err = newClient(hintQPS, hintBurst); err != nil {
		return nil, err
	}
	if out.events, _, err = newClient(eventQPS, eventBurst); err != nil {
		return nil, err
	}
	if out.reviews, _, err = newClient(reviewQPS, reviewBurst); err != nil {
		return nil, err
	}
	if out.rewrites, _, err = newClient(rewriteQPS, rewriteBurst); err != nil {
		return nil, err
	}
	return out, nil
}

func (c *clients) writeEvent(ctx context.Context, e *corev1.Event) error {
	return c.events.Create(ctx, e)
}

// kubernetes asks the API server for its version.
func (c *clients) kubernetes() (*version.Version, error) {
	info, err := c.version.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("read the server's version: %w", err)
	}
	return minor.Parse(info.GitVersion)
}

// understandsHints reports whether kube-scheduler of this version uses hints.
func (c *clients) understandsHints() (bool, error) {
	v, err := c.kubernetes()
	return err == nil && minor.Hints().In(v), err
}

// tellVersion logs the version of Kubernetes, and the features that are switched on but need a newer one.
func (c *clients) tellVersion(ctx context.Context, s *Settings) {
	v, err := c.kubernetes()
	if err != nil {
		telemetry.Log(ctx).Warn("it is not known which Kubernetes this is", "error", err)
		return
	}
	var wanted []minor.Feature
	if s.Hints.Enabled {
		wanted = append(wanted, minor.Hints())
	}
	if s.Scheduling.Devices {
		wanted = append(wanted, minor.Devices())
	}
	if off := minor.Off(v, wanted...); len(off) > 0 {
		telemetry.Log(ctx).Warn("this Kubernetes is too old for features that are on: they do nothing", "kubernetes", v.String(),
			"features", off)
		return
	}
	telemetry.Log(ctx).Info("Kubernetes found", "kubernetes", v.String())
}

// tellUnconverted logs an error if the definitions serve v1beta1 although no webhook converts it: requests for it fail, and so does every
// read of an object that is stored in it.
func (c *clients) tellUnconverted(ctx context.Context) {
	groups, err := c.version.ServerGroups()
	if err != nil {
		return // only this log line is lost
	}
	for _, g := range groups.Groups {
		served := slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == generations.V1Beta1 })
		if served && slices.Contains(c.groups, g.Name) {
			telemetry.Log(ctx).Error("v1beta1 is served and no webhook converts it: set v1beta1 to serve, or to drop to be "+
				"rid of it", "group", g.Name)
		}
	}
}
