package conversion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/crds"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// every is how often certificate and definitions are looked at. For so long, and no longer, a replica may serve with a certificate that
// was replaced because it was of no use, and a definition that another program wrote may lack v1beta1.
const every = 5 * time.Second

// Settings say whether and where v1beta1 is served.
type Settings struct {
	// Leaving drops v1beta1 from the definitions once nothing is stored in it, instead of adding it.
	Leaving bool
	// Port is where the webhook listens.
	Port int
	// Host is the address to listen at; "" for all of the machine.
	Host string
	// Namespace holds the Secret and the Service; Service is its name, which the Secret shares.
	Namespace, Service string
	// URL is how the API server reaches the webhook where no Service leads to it.
	URL string
}

// A Service serves v1beta1.
type Service struct {
	settings Settings
	client   client.Client
	metrics  *telemetry.Metrics
	webhook  *webhook
	kinds    []definition
}

// A definition is a kind that has v1beta1.
type definition struct {
	name      string
	v1, older apiextensionsv1.CustomResourceDefinitionVersion
}

// New returns a service that has not started. The client must ask the API server, not a cache.
func New(c client.Client, s Settings, m *telemetry.Metrics) (*Service, error) {
	all, err := crds.Definitions()
	if err != nil {
		return nil, err
	}
	out := &Service{settings: s, client: c, metrics: m, webhook: &webhook{gate: newGate(), reader: c, panics: m.ConversionPanics}}
	for _, crd := range all {
		older, err := crds.Older(crd.Name)
		if err != nil {
			return nil, err
		}
		if older != nil {
			out.kinds = append(out.kinds, definition{crd.Name, crd.Spec.Versions[0], *older})
		}
	}
	return out, nil
}

// Run serves on this replica and sees to certificate and definitions, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	kept := make(chan struct{})
	go func() { defer close(kept); s.keep(ctx) }()
	err := s.webhook.listen(ctx, net.JoinHostPort(s.settings.Host, strconv.Itoa(s.settings.Port)))
	stop()
	<-kept
	return err
}

// keep takes a turn every few seconds.
func (s *Service) keep(ctx context.Context) {
	s.metrics.Repeat(ctx, telemetry.Chore{Name: "conversion", What: "keeping certificate and definitions",
		Failed: "certificate or definitions of v1beta1 could not be kept", Every: every, Turn: s.turn})
}

// turn reads Secret and definitions and writes what is not as it should be. What another replica wrote meanwhile is read in the next turn.
func (s *Service) turn(ctx context.Context, now time.Time) error {
	defs, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	bundle, err := s.certificate(ctx, defs, now)
	if err != nil {
		return err
	}
	var errs []error
	for i, d := range s.kinds {
		if crd := defs[i]; crd != nil {
			errs = append(errs, s.define(ctx, d, crd, bundle))
		}
	}
	return errors.Join(errs...)
}

// definitions reads those of the cluster; nil where one is not installed.
func (s *Service) definitions(ctx context.Context) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	out := make([]*apiextensionsv1.CustomResourceDefinition, len(s.kinds))
	for i, d := range s.kinds {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		err := s.client.Get(ctx, client.ObjectKey{Name: d.name}, crd)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read definition %s: %w", d.name, err)
		}
		out[i] = crd
	}
	return out, nil
}

// certificate sees to the Secret, takes up what it holds, and returns what clients shall trust.
func (s *Service) certificate(ctx context.Context, defs []*apiextensionsv1.CustomResourceDefinition, now time.Time) ([]byte, error) {
	held := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.settings.Namespace, Name: s.settings.Service},
		Type: corev1.SecretTypeTLS}
	err := s.client.Get(ctx, client.ObjectKeyFromObject(held), held)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, fmt.Errorf("read Secret %s: %w", held.Name, err)
	}
	wanted, err := renewed(held.Data, s.host(), now, func(cert []byte) bool { return trusted(defs, cert) })
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	changed := held.DeepCopy()
	changed.Data = wanted
	switch {
	case missing:
		err = s.client.Create(ctx, changed)
	case !equality.Semantic.DeepEqual(held.Data, wanted):
		err = s.client.Update(ctx, changed)
	}
	if err != nil { // also when another replica was faster: its certificate is read in the next turn
		return nil, fmt.Errorf("write Secret %s: %w", held.Name, err)
	}
	serving, err := pair{wanted[certKey], wanted[keyKey]}.usable(s.host(), now)
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", held.Name, err)
	}
	s.webhook.certificate.Store(serving)
	return wanted[bundleKey], nil
}

// trusted reports whether all definitions that are there trust a certificate.
func trusted(defs []*apiextensionsv1.CustomResourceDefinition, cert []byte) bool {
	for _, crd := range defs {
		if crd != nil && !trusts(crd, cert) {
			return false
		}
	}
	return true
}

// define writes one definition, if it is not as it should be.
func (s *Service) define(ctx context.Context, d definition, crd *apiextensionsv1.CustomResourceDefinition, bundle []byte) error {
	wanted := crd.DeepCopy()
	switch {
	case !s.settings.Leaving || stale(crd) && has(crd, d.older.Name):
		served(wanted, d.v1, d.older, s.call(bundle))
	case has(crd, d.older.Name):
		dropped(wanted)
	}
	if equality.Semantic.DeepEqual(crd.Spec, wanted.Spec) {
		return nil
	}
	if err := s.client.Update(ctx, wanted); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("write definition %s: %w", d.name, err)
	}
	telemetry.Log(ctx).Info("definition written", "name", d.name, "v1beta1", has(wanted, d.older.Name))
	return nil
}

// call says how the API server reaches the webhook.
func (s *Service) call(bundle []byte) apiextensionsv1.WebhookClientConfig {
	if s.settings.URL != "" {
		at := s.settings.URL + path
		return apiextensionsv1.WebhookClientConfig{URL: &at, CABundle: bundle}
	}
	p, port := path, int32(servicePort)
	return apiextensionsv1.WebhookClientConfig{CABundle: bundle, Service: &apiextensionsv1.ServiceReference{
		Namespace: s.settings.Namespace, Name: s.settings.Service, Path: &p, Port: &port,
	}}
}

// servicePort is the port of the Service, whatever the webhook listens on.
const servicePort = 8443

// host is the name by which the API server calls.
func (s *Service) host() string {
	if at, err := url.Parse(s.settings.URL); err == nil && at.Hostname() != "" {
		return at.Hostname()
	}
	return fmt.Sprintf("%s.%s.svc", s.settings.Service, s.settings.Namespace)
}
