package cluster

import (
	"iter"

	resourcev1 "k8s.io/api/resource/v1"

	"karpenter.sh/karpenter/internal/kit/bounded"
)

// What dynamic resource allocation is about. The tables are empty where it is not planned for.

// PutResourceClaim takes over a ResourceClaim.
func (d *Draft) PutResourceClaim(c *resourcev1.ResourceClaim) {
	d.resourceClaims.put(bounded.Object(c))
}

// DeleteResourceClaim forgets a ResourceClaim.
func (d *Draft) DeleteResourceClaim(namespace, name string) {
	d.resourceClaims.delete(objectKey{namespace, name})
}

// PutResourceClaimTemplate takes over a ResourceClaimTemplate.
func (d *Draft) PutResourceClaimTemplate(t *resourcev1.ResourceClaimTemplate) {
	d.claimTemplates.put(bounded.Object(t))
}

// DeleteResourceClaimTemplate forgets a ResourceClaimTemplate.
func (d *Draft) DeleteResourceClaimTemplate(namespace, name string) {
	d.claimTemplates.delete(objectKey{namespace, name})
}

// PutDeviceClass takes over a DeviceClass.
func (d *Draft) PutDeviceClass(c *resourcev1.DeviceClass) { d.deviceClasses.put(c) }

// DeleteDeviceClass forgets a DeviceClass.
func (d *Draft) DeleteDeviceClass(name string) { d.deviceClasses.delete(objectKey{"", name}) }

// PutResourceSlice takes over a ResourceSlice.
func (d *Draft) PutResourceSlice(s *resourcev1.ResourceSlice) {
	d.resourceSlices.put(bounded.Object(s))
}

// DeleteResourceSlice forgets a ResourceSlice.
func (d *Draft) DeleteResourceSlice(name string) { d.resourceSlices.delete(objectKey{"", name}) }

// ResourceClaims yields the ResourceClaims by namespace and name.
func (s *Snapshot) ResourceClaims() iter.Seq[*resourcev1.ResourceClaim] {
	return s.resourceClaims.all()
}

// ResourceClaim returns a ResourceClaim, or nil.
func (s *Snapshot) ResourceClaim(namespace, name string) *resourcev1.ResourceClaim {
	return lookup(&s.resourceClaims, namespace, name)
}

// ResourceClaimTemplate returns a ResourceClaimTemplate, or nil.
func (s *Snapshot) ResourceClaimTemplate(namespace, name string) *resourcev1.ResourceClaimTemplate {
	return lookup(&s.claimTemplates, namespace, name)
}

// ResourceClaimTemplates yields the ResourceClaimTemplates by namespace and name.
func (s *Snapshot) ResourceClaimTemplates() iter.Seq[*resourcev1.ResourceClaimTemplate] {
	return s.claimTemplates.all()
}

// DeviceClasses yields the DeviceClasses by name.
func (s *Snapshot) DeviceClasses() iter.Seq[*resourcev1.DeviceClass] { return s.deviceClasses.all() }

// DeviceClass returns a DeviceClass, or nil.
func (s *Snapshot) DeviceClass(name string) *resourcev1.DeviceClass {
	return lookup(&s.deviceClasses, "", name)
}

// ResourceSlices yields the ResourceSlices by name.
func (s *Snapshot) ResourceSlices() iter.Seq[*resourcev1.ResourceSlice] {
	return s.resourceSlices.all()
}
