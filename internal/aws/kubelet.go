package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/class"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

// kubelets keeps a copy of a node class for each kubelet configuration that v1beta1 left in an annotation of a NodePool. Caches of the
// provider are keyed by the pointer of a class, so equal configurations get the same copy.
type kubelets struct {
	mu   sync.Mutex
	made map[kubeletKey]*awsv1.EC2NodeClass
}

// mostKubelets bounds the copies of all classes: an author who edits the annotation in a loop fills no memory.
const mostKubelets = 64

type kubeletKey struct {
	class   *awsv1.EC2NodeClass
	kubelet string
}

// readyClassFor returns the class of a pool or claim. Where v1beta1 is supported, the kubelet configuration that v1beta1 kept in the pool
// replaces the class's. Otherwise the annotation is ignored: authors of NodePools must not reach what only authors of classes decide.
func (c *classes) readyClassFor(ctx context.Context, name string, annotations map[string]string) (*awsv1.EC2NodeClass, error) {
	nc, err := c.readyClass(ctx, name)
	kubelet := annotations[v1.KubeletCompatibilityAnnotationKey]
	if err != nil || kubelet == "" || !c.env.settings.V1Beta1 {
		return nc, err
	}
	out, err := c.kubelets.classWith(nc, kubelet)
	if err != nil {
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf("annotation %s: %w", v1.KubeletCompatibilityAnnotationKey, err)}
	}
	return out, nil
}

// classWith returns a copy of a class with another kubelet configuration. The same configuration gives the same copy: caches know a
// class by its pointer.
func (k *kubelets) classWith(nc *awsv1.EC2NodeClass, text string) (*awsv1.EC2NodeClass, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := kubeletKey{nc, text}
	if made := k.made[key]; made != nil {
		return made, nil
	}
	if err := parsesSoon(text); err != nil {
		return nil, err
	}
	kubelet, err := awsv1.ParseManagedKubelet(text)
	if err != nil {
		return nil, err
	}
	if bad := class.CheckKubelet(kubelet); len(bad) > 0 {
		return nil, errors.New(strings.Join(bad, "; "))
	}
	out := nc.DeepCopy()
	out.Spec.Kubelet = kubelet
	maps.DeleteFunc(k.made, func(old kubeletKey, _ *awsv1.EC2NodeClass) bool {
		return old.class != nc && old.class.Name == nc.Name
	})
	if k.made == nil || len(k.made) >= mostKubelets {
		k.made = map[kubeletKey]*awsv1.EC2NodeClass{}
	}
	k.made[key] = out
	return out, nil
}

// parsesSoon returns an error if a document has a number that takes long to parse, however it is written.
func parsesSoon(text string) error {
	var document any
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return err
	}
	plain, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return bounded.JSON(plain)
}
