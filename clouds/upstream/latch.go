package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// latchAnnotation marks the Node of a machine that is latched. A machine without a Node is marked on its NodePool, by an annotation that
// ends with a hash of the provider id and whose value is the provider id.
const latchAnnotation = "upstream.karpenter.sh/latched"

// A latch is what this process knows of the mark of a machine.
type latch struct {
	set  bool
	pool string // the NodePool that bears the mark; "" if none does
}

// SetLatch implements cloud.Provider.
func (a *adapter) SetLatch(ctx context.Context, providerID string, latched bool) error {
	m, err := a.get(ctx, providerID)
	if err != nil {
		return err
	}
	a.mu.Lock()
	known := a.latches[providerID]
	a.mu.Unlock()
	known.set = latched
	kept := false
	var errs []error
	for n := range a.nodes.Each() {
		if n.Spec.ProviderID == providerID {
			kept = true
			node := &corev1.Node{}
			node.Name = n.Name
			errs = append(errs, a.annotate(ctx, node, latchAnnotation, "true", latched))
		}
	}
	if latched && !kept {
		known.pool = m.Labels[v1.NodePoolLabelKey]
	}
	if known.pool != "" {
		kept = true
		errs = append(errs, a.annotatePool(ctx, known.pool, providerID, latched))
	}
	if latched && !kept {
		errs = append(errs, fmt.Errorf("machine %s has neither a Node nor a NodePool that could bear the mark", providerID))
	}
	if err := errors.Join(errs...); err != nil {
		return err // it is asked for again
	}
	a.mu.Lock()
	a.latches[providerID] = known
	a.mu.Unlock()
	return nil
}

func (a *adapter) annotatePool(ctx context.Context, name, providerID string, latched bool) error {
	hash := fnv.New64a()
	hash.Write([]byte(providerID))
	pool := &v1.NodePool{}
	pool.Name = name
	return a.annotate(ctx, pool, fmt.Sprintf("%s-%016x", latchAnnotation, hash.Sum64()), providerID, latched)
}

// annotate sets an annotation of an object, or takes it off. There is nothing to take off an object that is gone.
func (a *adapter) annotate(ctx context.Context, o client.Object, key, value string, set bool) error {
	change := map[string]any{key: nil}
	if set {
		change[key] = value
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": change}})
	if err != nil {
		return err
	}
	err = a.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, raw))
	if !set {
		err = client.IgnoreNotFound(err)
	}
	if err != nil {
		return fmt.Errorf("mark %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// readLatches reads the marks on NodePools, and takes off those of machines that are gone.
func (a *adapter) readLatches(ctx context.Context) error {
	var pools v1.NodePoolList
	if err := a.client.List(ctx, &pools); err != nil {
		return err
	}
	for i := range pools.Items {
		for key, id := range pools.Items[i].Annotations {
			if !strings.HasPrefix(key, latchAnnotation+"-") {
				continue
			}
			if _, err := a.get(ctx, id); errors.Is(err, cloud.ErrNotFound) {
				if err := a.annotatePool(ctx, pools.Items[i].Name, id, false); err != nil {
					return err
				}
				continue
			}
			a.mu.Lock()
			a.latches[id] = latch{set: true, pool: pools.Items[i].Name}
			a.mu.Unlock()
		}
	}
	return nil
}
