package cli

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/kit/selector"
)

// deviceObjects are the objects of dynamic resource allocation.
type deviceObjects struct {
	resourceClaims []*resourcev1.ResourceClaim
	claimTemplates []*resourcev1.ResourceClaimTemplate
	deviceClasses  []*resourcev1.DeviceClass
	resourceSlices []*resourcev1.ResourceSlice
}

// usesDevices reports whether a pod, DaemonSet or PodTemplate has resource claims.
func (o *objects) usesDevices() bool {
	asks := func(spec *corev1.PodSpec) bool { return len(spec.ResourceClaims) > 0 }
	for _, d := range o.apps.daemonSets {
		if asks(&d.Spec.Template.Spec) {
			return true
		}
	}
	for _, t := range o.apps.podTemplates {
		if asks(&t.Template.Spec) {
			return true
		}
	}
	return slices.ContainsFunc(o.pods, func(p *corev1.Pod) bool { return asks(&p.Spec) })
}

// readDevices adds the objects about devices of a cluster. Kinds that the API server does not know are skipped.
func (o *objects) readDevices(ctx context.Context, c client.Reader) error {
	for _, list := range []client.ObjectList{
		&resourcev1.ResourceClaimList{}, &resourcev1.ResourceClaimTemplateList{}, &resourcev1.DeviceClassList{},
		&resourcev1.ResourceSliceList{},
	} {
		if err := o.list(ctx, c, list); err != nil && !meta.IsNoMatchError(err) {
			return err
		}
	}
	return nil
}

// identifyDevices calls namespaced for each claim and claim template. See identifyAll.
func (o *deviceObjects) identifyDevices(namespaced func(m *metav1.ObjectMeta, kind string)) {
	for _, c := range o.resourceClaims {
		namespaced(&c.ObjectMeta, "ResourceClaim")
	}
	for _, t := range o.claimTemplates {
		namespaced(&t.ObjectMeta, "ResourceClaimTemplate")
	}
}

// planForDevices makes the plan include resource claims, unless --ignore-dra-requests is given, and prints which of
// the two it is. It does nothing if no pod has resource claims.
func (p *planFlags) planForDevices(env Env, o *objects, in *engine.Question) {
	if !o.usesDevices() {
		return
	}
	if p.ignoreDRA {
		fmt.Fprintln(env.Err, "pods that use resource claims are refused, as by a controller that has settings.ignoreDRARequests: true")
		return
	}
	fmt.Fprintln(env.Err, "resource claims are planned for, as by a controller that has settings.ignoreDRARequests: false")
	in.Settings.Selects = selector.Selects
}

// olderDevices reports whether a kind is one about devices in a version that is not read, and returns the error text.
// Such an object must not be left out silently, because the plan would be wrong.
func olderDevices(gvk schema.GroupVersionKind) (text string, older bool) {
	switch gvk.Kind {
	case "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice":
	default:
		return "", false
	}
	if gvk.Group != resourcev1.GroupName || gvk.Version == resourcev1.SchemeGroupVersion.Version {
		return "", false
	}
	return fmt.Sprintf("%s %s is not read; write it as %s", gvk.GroupVersion(), gvk.Kind, resourcev1.SchemeGroupVersion), true
}
