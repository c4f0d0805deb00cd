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

// variants caches changed copies of node classes. A copy has the kubelet configuration that v1beta1 left in an annotation of a NodePool, or
// the images to which a stopped rollout went back, or both. Caches of the provider are keyed by the pointer of a class, so the same changes
// must always give the same copy.
type variants struct {
	mu   sync.Mutex
	made map[variant]*awsv1.EC2NodeClass
}

// mostVariants is the greatest number of copies of all classes together. Without it, a program that edits an annotation in a loop would
// fill the memory.
const mostVariants = 64

// A variant identifies a copy: the class, and the texts of both annotations, "" for no change.
type variant struct {
	class           *awsv1.EC2NodeClass
	kubelet, images string
}

// readyClassFor returns the ready class with this name for a pool or claim with these annotations. If v1beta1 is supported, the kubelet
// configuration in the annotation that v1beta1 used replaces that of the class. Otherwise this annotation is ignored, because authors of
// NodePools must not change what only authors of classes decide. If the other annotation names images, goBack puts them into the class.
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

// class returns the copy of a class for a variant, from the cache if it is there. It drops copies of older versions of the class, and all
// copies when there are mostVariants.
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

// kubeletOf reads a kubelet configuration of v1beta1 and checks it like that of a class.
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

// goBack makes the machines of a class start from those of the given images that the class has found before (status.recentAMIs), for the
// family that it has now. The IDs come from annotations, which may be forged: other images are ignored, so that they cannot be chosen that
// way.
//
// The old images are put before the present ones, which machines get if no old image fits them. The selector terms are replaced by the IDs
// of the old images, because the version of Bottlerocket is read from the terms. If no image is known, nothing changes.
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

// parsesSoon returns an error if a JSON document has a number that would take long to parse. It checks the document as encoding/json writes
// it again, so that escapes cannot hide such a number.
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
