package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// readObjects reads Kubernetes objects as YAML.
func (w *World) readObjects(text string) error {
	r := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		var raw map[string]any
		if err := r.Decode(&raw); err == io.EOF {
			w.putSpares()
			return nil
		} else if err != nil {
			return err
		}
		if len(raw) == 0 {
			continue
		}
		if err := w.putObject(raw); err != nil {
			return err
		}
	}
}

// putObject puts one object into the store, by its kind.
func (w *World) putObject(raw map[string]any) error {
	kind, _ := raw["kind"].(string)
	var err error
	w.Store.Update(func(d *cluster.Draft) {
		switch kind {
		case "Pod":
			p, bad := decode[corev1.Pod](raw)
			if err = bad; err == nil {
				w.putPod(d, p)
			}
		case "Spare":
			p, bad := decode[corev1.Pod](raw)
			if err = bad; err == nil {
				w.spare(p)
			}
		case "DaemonSet":
			err = put(w, d, raw, func(d *cluster.Draft, o *appsv1.DaemonSet) { o.UID = types.UID(o.Name); cluster.DaemonSets.Put(d, o) })
		case "PersistentVolumeClaim":
			err = put(w, d, raw, cluster.PVCs.Put)
		case "PersistentVolume":
			err = put(w, d, raw, cluster.PVs.Put)
		case "StorageClass":
			err = put(w, d, raw, cluster.StorageClasses.Put)
		case "CSIDriver":
			err = put(w, d, raw, cluster.CSIDrivers.Put)
		case "ResourceClaim":
			err = put(w, d, raw, cluster.ResourceClaims.Put)
		case "ResourceClaimTemplate":
			err = put(w, d, raw, cluster.ClaimTemplates.Put)
		case "DeviceClass":
			err = put(w, d, raw, cluster.DeviceClasses.Put)
		case "ResourceSlice":
			err = put(w, d, raw, cluster.ResourceSlices.Put)
		case "DeviceTaintRule":
			err = put(w, d, raw, cluster.DeviceTaintRules.Put)
		case "CSINode":
			err = put(w, d, raw, (*cluster.Draft).PutCSINode)
		case "Namespace":
			err = put(w, d, raw, cluster.Namespaces.Put)
		case "CapacityQuota":
			err = put(w, d, raw, cluster.Quotas.Put)
		case "PodDisruptionBudget":
			err = put(w, d, raw, cluster.PDBs.Put)
		case "Service":
			err = put(w, d, raw, cluster.Services.Put)
		case "ReplicaSet":
			err = put(w, d, raw, func(d *cluster.Draft, o *appsv1.ReplicaSet) { d.PutOwnerSelector(types.UID(o.Name), o.Spec.Selector) })
		case "NodePool":
			err = put(w, d, raw, func(d *cluster.Draft, p *v1.NodePool) {
				cluster.Pools.Put(d, p)
				w.Pools = append(w.Pools, engine.Pool{Pool: p, Catalog: w.catalogOf(p.Name)})
			})
		case "Node":
			err = put(w, d, raw, func(d *cluster.Draft, n *corev1.Node) { d.PutNode(n); markGoing(d, n) })
		case "NodeClaim":
			err = put(w, d, raw, func(d *cluster.Draft, c *v1.NodeClaim) { d.PutClaim(c); markGoing(d, c) })
		default:
			err = fmt.Errorf("unknown kind %q", kind)
		}
	})
	return err
}

// markGoing marks a machine for removal if its object has the annotation "going".
func markGoing(d *cluster.Draft, o metav1.Object) {
	if o.GetAnnotations()[goingAnnotation] != "" {
		d.MarkForRemoval(o.GetName())
	}
}

// put decodes an object, notes it in w.Objects, and stores it by to.
func put[T any, P interface {
	*T
	runtime.Object
}](w *World, d *cluster.Draft, raw map[string]any, to func(*cluster.Draft, P)) error {
	o, err := decode[T](raw)
	if err == nil {
		w.Objects = append(w.Objects, P(o))
		to(d, P(o))
	}
	return err
}

// decode returns an object of a type from decoded JSON.
func decode[T any](raw map[string]any) (*T, error) {
	b, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	o := new(T)
	return o, json.Unmarshal(b, o)
}

// readDeletions reads what disappears before a round: pod/NAME, a pod of namespace default, or node/NAME, a node with its claim.
func (w *World) readDeletions(text string) error {
	for _, l := range lines(text) {
		kind, name, _ := strings.Cut(l.name, "/")
		switch kind {
		case "pod":
			w.Store.Update(func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: "default", Name: name}) })
			w.pending = slices.DeleteFunc(w.pending, func(p *corev1.Pod) bool { return p.Name == name })
		case "node":
			w.Store.Update(func(d *cluster.Draft) { d.DeleteNode(name); d.DeleteClaim("claim-" + name) })
		default:
			return fmt.Errorf("cannot delete %q", l.name)
		}
	}
	return nil
}
