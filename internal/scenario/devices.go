package scenario

import (
	"encoding/json"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"karpenter.sh/karpenter/internal/cluster"
)

// devices writes the objects of dynamic resource allocation, without the parameters that drivers get. It writes
// nothing if devices are not planned for, or if names are replaced: selectors have names in expressions.
func (w *writer) devices() {
	if w.in.Settings.Selects == nil || !w.keep {
		return
	}
	snap := w.in.Snap
	for o := range cluster.DeviceClasses.All(snap) {
		w.device("DeviceClass", &metav1.ObjectMeta{Name: o.Name}, resourcev1.DeviceClassSpec{Selectors: o.Spec.Selectors}, nil)
	}
	for o := range cluster.ResourceSlices.All(snap) {
		w.device("ResourceSlice", &metav1.ObjectMeta{Name: o.Name}, o.Spec, nil)
	}
	for o := range cluster.DeviceTaintRules.All(snap) {
		w.device("DeviceTaintRule", &metav1.ObjectMeta{Name: o.Name}, o.Spec, nil)
	}
	for o := range cluster.ClaimTemplates.All(snap) {
		spec := *o.Spec.DeepCopy()
		spec.Spec.Devices.Config = nil
		w.device("ResourceClaimTemplate", &metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace}, map[string]any{"spec": spec.Spec}, nil)
	}
	for o := range cluster.ResourceClaims.All(snap) {
		c := o.DeepCopy()
		c.Spec.Devices.Config, c.Status.Devices = nil, nil
		if c.Status.Allocation != nil {
			c.Status.Allocation.Devices.Config = nil
		}
		for i := range c.Status.ReservedFor { // pods of stories have their name for a UID
			by := &c.Status.ReservedFor[i]
			by.UID = types.UID(c.Namespace + "/" + by.Name)
		}
		meta := &metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace, DeletionTimestamp: c.DeletionTimestamp}
		if name := c.Annotations[resourcev1.PodResourceClaimAnnotation]; name != "" {
			meta.Annotations = map[string]string{resourcev1.PodResourceClaimAnnotation: name}
			for _, owner := range c.OwnerReferences {
				meta.OwnerReferences = append(meta.OwnerReferences,
					metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name,
						UID: types.UID(c.Namespace + "/" + owner.Name)})
			}
		}
		w.device("ResourceClaim", meta, c.Spec, c.Status)
	}
}

// device writes one object of dynamic resource allocation if there is room for it.
func (w *writer) device(kind string, meta *metav1.ObjectMeta, spec, status any) {
	fields := map[string]any{"kind": kind, "metadata": meta, "spec": spec}
	if status != nil {
		fields["status"] = status
	}
	if text, err := json.Marshal(fields); err == nil && len(text)+1 <= w.left {
		w.left -= len(text) + 1
		w.more.Write(append(text, '\n'))
	}
}
