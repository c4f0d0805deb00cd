package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

// readTimeout bounds one list call.
const readTimeout = time.Minute

// readCluster adds the objects of a live cluster; it only lists. Workloads are not read, because their pods exist.
// ReplicaSets are read if files hold Deployments: they tell which pods those have already. With uninstalled, the
// kinds of Karpenter may be unknown to the cluster.
func (o *objects) readCluster(ctx context.Context, env Env, kubeconfig string, uninstalled bool) error {
	c, err := env.cluster(kubeconfig)
	if err != nil {
		return err
	}
	lists := []client.ObjectList{
		&v1.NodePoolList{}, &v1.NodeClaimList{}, &awsv1.EC2NodeClassList{}, &corev1.NodeList{}, &corev1.PodList{}, &appsv1.DaemonSetList{},
		&policyv1.PodDisruptionBudgetList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolumeList{},
		&storagev1.StorageClassList{},
		&storagev1.CSINodeList{}, &corev1.NamespaceList{}, &schedulingv1.PriorityClassList{}, &corev1.ServiceList{},
	}
	if len(o.apps.deployments) > 0 {
		lists = append(lists, &appsv1.ReplicaSetList{})
	}
	for _, list := range lists {
		if err := o.list(ctx, c, list); err != nil && !(uninstalled && meta.IsNoMatchError(errors.Unwrap(err))) {
			return err
		}
	}
	// These kinds came later than others, and a role of an older chart does not let everybody read them.
	for _, list := range []client.ObjectList{&storagev1.CSIDriverList{}, &v1alpha1.NodeOverlayList{}, &v1alpha1.DisruptionPlanList{},
		&v1alpha1.CommitmentDiscountList{}, &v1alpha1.RolloutPolicyList{}, &autoscalingv1beta1.CapacityQuotaList{}} {
		if err := o.list(ctx, c, list); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsForbidden(err) {
			return err
		}
	}
	return o.readBuffers(ctx, c)
}

// clusterFlag adds the flag --kubeconfig of commands that need a cluster.
func clusterFlag(flags *flag.FlagSet) *string {
	return flags.String("kubeconfig", "", "the kubeconfig of the cluster; KUBECONFIG, or the one of kubectl, if empty; "+
		"inside a pod none is needed")
}

// cluster returns a client of the cluster of a kubeconfig.
func (e Env) cluster(kubeconfig string) (client.Client, error) {
	if e.Cluster != nil {
		return e.Cluster(kubeconfig)
	}
	return clusterClient(kubeconfig)
}

// clusterClient returns a client of a cluster. Without a kubeconfig it looks where kubectl does: KUBECONFIG, the home
// folder, the pod's own.
func clusterClient(kubeconfig string) (client.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	config.Timeout, config.QPS = readTimeout, -1 // a command reads little; the API server limits it where it has to
	scheme, err := planScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return c, nil
}

// list reads all objects of one kind, in pages, and adds those that files do not hold. It decodes each page into a
// new list, because JSON is decoded over the items that a list already has.
func (o *objects) list(ctx context.Context, c client.Reader, empty client.ObjectList) error {
	next := ""
	for {
		list, ok := empty.DeepCopyObject().(client.ObjectList)
		if !ok {
			return fmt.Errorf("%T is no list", empty)
		}
		err := c.List(ctx, list, client.Limit(1000), client.Continue(next))
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("the cluster does not know %T; are Karpenter's CRDs installed? %w", list, err)
		}
		if err != nil {
			return fmt.Errorf("read the cluster: %w", err)
		}
		err = meta.EachListItem(list, func(item runtime.Object) error {
			if o.inFiles[objectKey(item)] {
				o.noteClusterClass(item)
				return nil // the file has its new version
			}
			if rs, ok := item.(*appsv1.ReplicaSet); ok && metav1.GetControllerOf(rs) == nil {
				return nil // its pods exist
			}
			if !o.add(item) {
				return errors.New("unexpected kind in a list")
			}
			return nil
		})
		if err != nil {
			return err
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// noteClusterClass notes the cluster's version of an EC2NodeClass that a file also has. The class of the file gets
// the status of that version, because a file has none; without conditions, which are about the old content.
func (o *objects) noteClusterClass(item runtime.Object) {
	class, ok := item.(*awsv1.EC2NodeClass)
	if !ok {
		return
	}
	if o.clusterClasses == nil {
		o.clusterClasses = map[string]*awsv1.EC2NodeClass{}
	}
	o.clusterClasses[class.Name] = class
	for _, c := range o.classes {
		if c.Name == class.Name {
			c.Status = *class.Status.DeepCopy()
			c.Status.Conditions = nil // they are about the class in the cluster, not the one in the file
		}
	}
}
