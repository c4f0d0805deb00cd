package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/class"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

// variants keeps a copy of a node class for each kubelet configuration that v1beta1 left in an annotation of a NodePool, and for the images
// of each state that a stopped rollout went back to. Caches of the provider are keyed by the pointer of a class, so equal variants get
// the same copy.
type variants struct {
	mu   sync.Mutex
	made map[variant]*awsv1.EC2NodeClass
}

// mostVariants bounds the copies of all classes: an author who edits an annotation in a loop fills no memory.
const mostVariants = 64

type variant struct {
	class           *awsv1.EC2NodeClass
	kubelet, images string
}

// readyClassFor returns the class of a pool or claim. Where v1beta1 is supported, the kubelet configuration that v1beta1 kept in the pool
// replaces the class's. Otherwise the annotation is ignored: authors of NodePools must not reach what only authors of classes decide.
// Where the pool or claim goes back to images, those of them that the class has found replace its present ones.
func (c *classes) readyClassFor(ctx context.Context, name string, annotations map[string]string) (*awsv1.EC2NodeClass, error) {
	nc, err := c.readyClass(ctx, name)
	want := variant{nc, annotations[v1.KubeletCompatibilityAnnotationKey], annotations[v1.LastGoodImagesAnnotationKey]}
	if !c.env.settings.V1Beta1 {
		want.kubelet = ""
	}
	if err != nil || want.kubelet == "" && want.images == "" {
		return nc, err
	}
	out, err := c.variants.class(want)
	if err != nil {
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf("annotation %s: %w", v1.KubeletCompatibilityAnnotationKey, err)}
	}
	return out, nil
}

// class returns a copy of a class with another kubelet configuration or images.
func (k *variants) class(want variant) (*awsv1.EC2NodeClass, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if made := k.made[want]; made != nil {
		return made, nil
	}
	out := want.class.DeepCopy()
	if want.kubelet != "" {
		kubelet, err := kubeletOf(want.kubelet)
		if err != nil {
			return nil, err
		}
		out.Spec.Kubelet = kubelet
	}
	if want.images != "" {
		goBack(out, strings.Split(want.images, ","))
	}
	maps.DeleteFunc(k.made, func(old variant, _ *awsv1.EC2NodeClass) bool {
		return old.class != want.class && old.class.Name == want.class.Name
	})
	if k.made == nil || len(k.made) >= mostVariants {
		k.made = map[variant]*awsv1.EC2NodeClass{}
	}
	k.made[want] = out
	return out, nil
}

// kubeletOf reads a kubelet configuration of v1beta1.
func kubeletOf(text string) (*awsv1.KubeletConfiguration, error) {
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
	return kubelet, nil
}

// goBack makes the machines of a class start from images that it has found before. Only images that its own selector terms have found, for
// the family that it still has, count: who writes NodeClaims, or the status of a RolloutPolicy, chooses no others. Machines that none of
// them is for start from the present images. The terms become those of the images, since the version of Bottlerocket is read from them.
func goBack(nc *awsv1.EC2NodeClass, ids []string) {
	var images []awsv1.AMI
	var terms []awsv1.AMISelectorTerm
	family := nc.AMIFamily()
	for _, old := range nc.Status.RecentAMIs {
		if old.Family == family && slices.Contains(ids, old.ID) {
			images = append(images, old.AMI)
			terms = append(terms, awsv1.AMISelectorTerm{ID: old.ID})
		}
	}
	if len(images) > 0 {
		nc.Spec.AMIFamily, nc.Spec.AMISelectorTerms = &family, terms
		nc.Status.AMIs = append(images, nc.Status.AMIs...)
	}
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
