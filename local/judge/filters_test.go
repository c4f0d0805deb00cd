package judge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	schedulerruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// asked are the plugins whose filters judge. The others of kube-scheduler are about devices, images and gangs.
var asked = []string{
	names.NodeUnschedulable, names.NodeName, names.TaintToleration, names.NodeAffinity, names.NodePorts, names.NodeResourcesFit,
	names.VolumeRestrictions, names.NodeVolumeLimits, names.VolumeBinding, names.VolumeZone, names.PodTopologySpread, names.InterPodAffinity,
	names.NodeDeclaredFeatures,
}

// filters are kube-scheduler's filter plugins over a picture of a cluster that the test changes as it likes. They are made once and
// serve many pictures, one after the other.
type filters struct {
	framework framework.Framework
	picture   *picture
	feeds     map[string]*feed // by kind
}

func newFilters(ctx context.Context) (*filters, error) {
	metrics.Register()
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := defaults.Profiles[0]
	profile.Plugins = &config.Plugins{}
	for _, name := range append(slices.Clone(asked), names.PrioritySort, names.DefaultBinder) {
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, config.Plugin{Name: name})
	}
	f := &filters{picture: &picture{}, feeds: map[string]*feed{}}
	f.picture.clear()
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	for kind, object := range map[string]runtime.Object{
		"PersistentVolume": &corev1.PersistentVolume{}, "PersistentVolumeClaim": &corev1.PersistentVolumeClaim{},
		"StorageClass": &storagev1.StorageClass{}, "CSINode": &storagev1.CSINode{}, "Namespace": &corev1.Namespace{},
	} {
		feed := newFeed()
		f.feeds[kind] = feed
		factory.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return feed })
	}
	f.framework, err = schedulerruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), &profile,
		schedulerruntime.WithClientSet(client), schedulerruntime.WithInformerFactory(factory), schedulerruntime.WithSnapshotSharedLister(f.picture),
		schedulerruntime.WithSharedCSIManager(f.picture), schedulerruntime.WithParallelism(1), schedulerruntime.WithLogger(klog.Logger(logr.Discard())))
	return f, err
}

// clear empties the picture.
func (f *filters) clear() {
	f.picture.clear()
	for _, feed := range f.feeds {
		for _, object := range feed.objects() {
			feed.remove(object)
		}
	}
}

// ask returns an opinion on one pod in the picture as it is now.
func (f *filters) ask(pod *corev1.Pod) *opinion {
	o := &opinion{f: f, pod: pod, state: framework.NewCycleState()}
	only, status, _ := f.framework.RunPreFilterPlugins(context.Background(), o.state, pod)
	if !status.IsSuccess() {
		o.everywhere = reasonOf(status)
	}
	if only != nil && !only.AllNodes() {
		o.only = only.NodeNames
	}
	return o
}

// An opinion is what the filters think of one pod.
type opinion struct {
	f          *filters
	pod        *corev1.Pod
	state      fwk.CycleState
	everywhere string // why no node will do
	only       sets.Set[string]
}

// on says why the pod may not run on a node; "" if it may.
func (o *opinion) on(node string) string {
	if o.everywhere != "" {
		return o.everywhere
	}
	if o.only != nil && !o.only.Has(node) {
		return "another node is asked for"
	}
	return reasonOf(o.f.framework.RunFilterPlugins(context.Background(), o.state, o.pod, o.f.picture.infos[node]))
}

func reasonOf(s *fwk.Status) string {
	if s.IsSuccess() {
		return ""
	}
	return s.Plugin() + ": " + strings.Join(s.Reasons(), ", ")
}

// A picture is the Nodes, and the pods on them, that the plugins look at.
type picture struct {
	infos map[string]*framework.NodeInfo
	csi   map[string]*storagev1.CSINode
}

func (p *picture) clear() {
	p.infos, p.csi = map[string]*framework.NodeInfo{}, map[string]*storagev1.CSINode{}
}

func (p *picture) addNode(n *corev1.Node) {
	info := framework.NewNodeInfo()
	info.SetNode(n)
	p.infos[n.Name] = info
}

func (p *picture) names() []string { return slices.Sorted(maps.Keys(p.infos)) }

func (p *picture) NodeInfos() fwk.NodeInfoLister           { return p }
func (p *picture) StorageInfos() fwk.StorageInfoLister     { return p }
func (p *picture) PodGroupStates() fwk.PodGroupStateLister { return nil } // asked by no plugin of ours
func (p *picture) CSINodes() fwk.CSINodeLister             { return csiNodes{p} }

func (p *picture) which(want func(*framework.NodeInfo) bool) []fwk.NodeInfo {
	var out []fwk.NodeInfo
	for _, name := range p.names() {
		if info := p.infos[name]; want(info) {
			out = append(out, info)
		}
	}
	return out
}

// List and its neighbours implement what the plugins ask a snapshot.
func (p *picture) List() ([]fwk.NodeInfo, error) {
	return p.which(func(*framework.NodeInfo) bool { return true }), nil
}

func (p *picture) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) {
	return p.which(func(n *framework.NodeInfo) bool { return len(n.PodsWithAffinity) > 0 }), nil
}

func (p *picture) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return p.which(func(n *framework.NodeInfo) bool { return len(n.PodsWithRequiredAntiAffinity) > 0 }), nil
}

func (p *picture) IsPVCUsedByPods(key string) bool {
	return len(p.which(func(n *framework.NodeInfo) bool { return n.PVCRefCounts[key] > 0 })) > 0
}

func (p *picture) Get(name string) (fwk.NodeInfo, error) {
	if info := p.infos[name]; info != nil {
		return info, nil
	}
	return nil, fmt.Errorf("there is no node %s", name)
}
