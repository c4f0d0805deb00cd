package aws

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/cloud/cloudtest"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/mirror"
	"karpenter.sh/karpenter/internal/aws/policy"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
)

// TestMain lets garbage lie for longer: little is alive in these worlds.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	slog.SetLogLoggerLevel(slog.LevelError)
	os.Exit(m.Run())
}

// A world is a provider over the model of AWS and an API server in memory, with its loops running.
type world struct {
	cloud    *awsmodel.Cloud
	kube     client.WithWatch
	provider *Provider
	settings Settings
	events   *eventLog
	crash    context.CancelFunc // ends the provider that was started last, and its loops
}

// eventLog keeps the events that were written.
type eventLog struct {
	mu   sync.Mutex
	list []corev1.Event
}

func (l *eventLog) write(_ context.Context, e *corev1.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, *e)
	return nil
}

func (l *eventLog) has(reason telemetry.Reason, object string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.list {
		if e.Reason == string(reason) && e.InvolvedObject.Name == object {
			return true
		}
	}
	return false
}

// says tells whether an event of an object says just this.
func (l *eventLog) says(reason telemetry.Reason, object, message string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.list, func(e corev1.Event) bool {
		return e.Reason == string(reason) && e.InvolvedObject.Name == object && e.Message == message
	})
}

// testScheme is built once: nothing is added to it later.
var testScheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1.AddToScheme(s), awsv1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
})

// apiServer is one in memory.
func apiServer() client.WithWatch {
	return fake.NewClientBuilder().WithScheme(testScheme()).
		WithStatusSubresource(&awsv1.EC2NodeClass{}, &v1.NodeClaim{}, &v1.NodePool{}, &corev1.Node{}).
		WithObjects(defaultClass(), defaultPool(), dnsService()).Build()
}

func fastTiming() awsmodel.Timing {
	return awsmodel.Timing{
		Pending: 20 * time.Millisecond, Boot: 50 * time.Millisecond, ShuttingDown: 50 * time.Millisecond,
		Forget: time.Minute, SpotNotice: 2 * time.Second,
	}
}

// newWorld starts a model and a provider, and waits for the class "default" to be ready.
func newWorld(t testing.TB, cfg awsmodel.Config, edit func(*Settings)) *world {
	t.Helper()
	w := newUnreadyWorld(t, cfg, edit)
	w.waitReady(t, "default")
	return w
}

// newUnreadyWorld starts a model and a provider.
func newUnreadyWorld(t testing.TB, cfg awsmodel.Config, edit func(*Settings)) *world {
	t.Helper()
	cfg.Cluster = awsmodel.Cluster{Name: "demo", Endpoint: "https://k8s.example", CA: "Q0E=", Version: "1.36", ServiceCIDR: "10.100.0.0/16"}
	if cfg.Timing == (awsmodel.Timing{}) {
		cfg.Timing = fastTiming()
	}
	if cfg.Types == nil {
		cfg.Types = []string{"m5.*", "m6g.*", "c5.*", "t3.*", "r5.*", "g5.xlarge", "m5d.*", "m5.metal"}
	}
	if cfg.Identities == nil {
		cfg.Identities = map[string]awsmodel.Identity{"AKIACONTROLLER": controllerIdentity(t)}
	}
	c, err := awsmodel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{cloud: c, settings: DefaultSettings(), events: &eventLog{}}
	w.settings.ClusterName, w.settings.EKSControlPlane, w.settings.ClusterCABundle = "demo", true, "Q0E="
	if edit != nil {
		edit(&w.settings)
	}
	run(t, c.Run)
	w.kube = apiServer()
	w.provider = w.start(t)
	return w
}

// controllerIdentity is the controller under the policies that ship with it.
func controllerIdentity(t testing.TB) awsmodel.Identity {
	docs, err := policy.Documents(policy.Names{
		Partition: "aws", Region: "us-east-1", AccountID: "123456789012", ClusterName: "demo",
		NodeRole: "KarpenterNodeRole-demo", Queue: "demo",
	})
	if err != nil {
		t.Fatal(err)
	}
	id := awsmodel.Identity{ARN: "arn:aws:sts::123456789012:assumed-role/controller/session"}
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		id.Policies = append(id.Policies, docs[name])
	}
	return id
}

// run runs a loop until the test ends.
func run(t testing.TB, loop func(context.Context) error) { runUnder(t, context.Background(), loop) }

// runUnder runs a loop until the test or its process ends.
func runUnder(t testing.TB, process context.Context, loop func(context.Context) error) {
	ctx, cancel := context.WithCancel(process)
	done := make(chan error, 1)
	go func() { done <- loop(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("loop: %v", err)
		}
	})
}

// mirrored are the claims and nodes of a cluster, followed without a store.
func mirrored(kube client.WithWatch) (followed[*v1.NodeClaim], followed[*corev1.Node]) {
	return followed[*v1.NodeClaim]{mirror.New[*v1.NodeClaim](kube, func() client.ObjectList { return &v1.NodeClaimList{} })},
		followed[*corev1.Node]{mirror.New[*corev1.Node](kube, func() client.ObjectList { return &corev1.NodeList{} })}
}

// followed makes Objects of a mirror.
type followed[T client.Object] struct{ *mirror.Mirror[T] }

func (f followed[T]) Each() iter.Seq[T] { return slices.Values(f.All()) }

// start makes another provider for the same AWS and cluster, as after a restart.
func (w *world) start(t testing.TB) *Provider {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	w.crash = cancel
	metrics := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds("karpenter_k8s_aws_ec2nodeclass"))
	events := telemetry.NewEvents(w.events.write, metrics)
	runUnder(t, ctx, events.Run)
	claims, nodes := mirrored(w.kube)
	runUnder(t, ctx, claims.Run)
	runUnder(t, ctx, nodes.Run)
	p, err := New(ctx, w.settings, Input{
		Config: w.cloud.AWSConfigFor("AKIACONTROLLER"), Kube: w.kube, Claims: claims, Nodes: nodes, Metrics: metrics, Events: events, Version: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, loop := range append(p.Always(), p.Leader()...) {
		runUnder(t, ctx, loop)
	}
	return p
}

func defaultClass() *awsv1.EC2NodeClass {
	discovery := map[string]string{v1.Group + "/discovery": "demo"}
	return &awsv1.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class-1", Generation: 1},
		Spec: awsv1.EC2NodeClassSpec{
			Role:                       "KarpenterNodeRole-demo",
			AMISelectorTerms:           []awsv1.AMISelectorTerm{{Alias: "al2023@latest"}},
			SubnetSelectorTerms:        []awsv1.SubnetSelectorTerm{{Tags: discovery}},
			SecurityGroupSelectorTerms: []awsv1.SecurityGroupSelectorTerm{{Tags: discovery}},
			Tags:                       map[string]string{"team": "x"},
		},
	}
}

func classRefTo(name string) *v1.NodeClassReference {
	return &v1.NodeClassReference{Group: awsv1.Group, Kind: "EC2NodeClass", Name: name}
}

func defaultPool() *v1.NodePool {
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool-1"}}
	p.Spec.Template.Spec.NodeClassRef = classRefTo("default")
	p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
		{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: []string{"spot", "on-demand"}},
	}
	return p
}

func dnsService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"}, Spec: corev1.ServiceSpec{ClusterIP: "10.100.0.10"},
	}
}

func newClaim(name string) *v1.NodeClaim {
	return &v1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: cloudtest.UID(name), CreationTimestamp: metav1.Now(),
			Labels: map[string]string{v1.NodePoolLabelKey: "default", awsv1.LabelNodeClass: "default"},
		},
		Spec: v1.NodeClaimSpec{
			NodeClassRef: classRefTo("default"),
			Requirements: []v1.NodeSelectorRequirementWithMinValues{
				{Key: v1.NodePoolLabelKey, Operator: "In", Values: []string{"default"}},
				{Key: corev1.LabelArchStable, Operator: "In", Values: []string{"amd64"}},
				{Key: v1.CapacityTypeLabelKey, Operator: "In", Values: []string{"on-demand"}},
			},
			Resources: v1.ResourceRequirements{Requests: corev1.ResourceList{
				"cpu": resource.MustParse("1"), "memory": resource.MustParse("2Gi"), "pods": resource.MustParse("3"),
			}},
		},
	}
}

func (w *world) waitReady(t testing.TB, name string) *awsv1.EC2NodeClass {
	t.Helper()
	nc := &awsv1.EC2NodeClass{}
	eventually(t, func() error {
		if err := w.kube.Get(t.Context(), client.ObjectKey{Name: name}, nc); err != nil {
			return err
		}
		if !condition.IsTrue(nc, awsv1.ConditionTypeReady) {
			return fmt.Errorf("conditions: %+v", nc.Status.Conditions)
		}
		if _, err := w.provider.classes.readyClass(t.Context(), name); err != nil {
			return err
		}
		return nil
	})
	return nc
}

// patience is how long a test waits that is not in a bubble, for what takes moments on a machine that has nothing else to do.
const patience = 5 * time.Minute

// eventually repeats a question until it is answered.
func eventually(t testing.TB, ask func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", patience, err)
		}
	}
}

func (w *world) faults(t testing.TB, change func(*awsmodel.Faults)) {
	t.Helper()
	if err := w.cloud.SetFaults(change); err != nil {
		t.Fatal(err)
	}
}

func conformWorld(t *testing.T, faults func(*awsmodel.Faults)) *cloudtest.World {
	w := newWorld(t, awsmodel.Config{Types: []string{"m5.*", "c5.large"}}, nil)
	if faults != nil {
		w.faults(t, faults)
	}
	bad := defaultPool()
	bad.Spec.Template.Spec.NodeClassRef = classRefTo("missing")
	return &cloudtest.World{
		Provider: w.provider, Pool: defaultPool(), Claim: newClaim, BadPool: bad,
		RunDry: func() {
			w.faults(t, func(f *awsmodel.Faults) { f.Pools = append(f.Pools, awsmodel.PoolRule{Match: "*/*/*", Depth: 0}) })
		},
		LoseAnswer: func() {
			w.faults(t, func(f *awsmodel.Faults) { f.LostAnswers, f.LostAnswersOf = 1, []string{"ec2:CreateFleet"} })
		},
		Bequeath: w.bequeath,
		Restart: func(t *testing.T) cloud.Provider {
			w.crash()
			return w.start(t)
		},
		Patience: patience,
	}
}

// bequeath gives a machine the tags of one that 0.31 launched, and takes ours.
func (w *world) bequeath(t *testing.T, providerID, provisioner string) {
	t.Helper()
	people, ids := ec2.NewFromConfig(w.cloud.AWSConfig()), []string{instanceID(providerID)}
	tags := map[string]string{awsv1.TagProvisioner: provisioner, awsv1.TagClusterPrefix + "demo": awsv1.TagClusterOwned, awsv1.TagManagedBy: "demo"}
	var gone []ec2types.Tag
	for _, key := range []string{awsv1.TagNodePool, awsv1.TagNodeClaim, awsv1.TagNodeClass, awsv1.TagClusterName} {
		gone = append(gone, ec2types.Tag{Key: aws.String(key)})
	}
	eventually(t, func() error {
		if _, err := people.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: ids, Tags: gone}); err != nil {
			return err
		}
		_, err := people.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: ids, Tags: ec2api.Tags(tags)})
		return err
	})
}

func TestConformance(t *testing.T) {
	cloudtest.ConformInBubble(t, func(t *testing.T) *cloudtest.World { return conformWorld(t, nil) })
}
