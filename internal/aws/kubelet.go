package aws

import (
	"context"
	"fmt"
	"sync"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// kubelets are classes with the kubelet's configuration of pools that v1beta1 wrote, each made once: what is worked out for a class is
// remembered by its pointer.
type kubelets struct {
	mu   sync.Mutex
	made map[kubeletKey]*awsv1.EC2NodeClass
}

type kubeletKey struct {
	class   *awsv1.EC2NodeClass
	kubelet string
}

// readyClassFor is the class of a pool or claim. A kubelet configuration that v1beta1 kept in the pool counts before the class's.
func (p *Provider) readyClassFor(ctx context.Context, name string, annotations map[string]string) (*awsv1.EC2NodeClass, error) {
	nc, err := p.readyClass(ctx, name)
	kubelet := annotations[v1.KubeletCompatibilityAnnotationKey]
	if err != nil || kubelet == "" {
		return nc, err
	}
	return p.kubelets.with(nc, kubelet)
}

func (k *kubelets) with(nc *awsv1.EC2NodeClass, kubelet string) (*awsv1.EC2NodeClass, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := kubeletKey{nc, kubelet}
	if made := k.made[key]; made != nil {
		return made, nil
	}
	out := nc.DeepCopy()
	out.Spec.Kubelet = &awsv1.KubeletConfiguration{Raw: []byte(kubelet)}
	if _, err := out.Spec.Kubelet.Managed(); err != nil {
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf("annotation %s: %w", v1.KubeletCompatibilityAnnotationKey, err)}
	}
	if k.made == nil {
		k.made = map[kubeletKey]*awsv1.EC2NodeClass{}
	}
	for old := range k.made {
		if old.class != nc && old.class.Name == nc.Name {
			delete(k.made, old)
		}
	}
	k.made[key] = out
	return out, nil
}
