package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// Limits of one preview: it runs in the controller.
const (
	mostPreviewPods = 2000
	previewTime     = 10 * time.Second
)

// Preview returns the JSON of "karpenter plan -o json" for the pods of some manifests, for the page of the
// controller. in holds the cluster, its pools and the settings; its pods are replaced. It gives up after previewTime,
// because it runs inside the controller.
func Preview(ctx context.Context, manifests []byte, in engine.Question) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	var err error
	if in.Pods, err = previewPods(ctx, manifests, in.Snap); err != nil {
		return nil, err
	}
	in.Ended = func() bool { return ctx.Err() != nil }
	began := time.Now()
	r := newReport(engine.New(awsv1.Labels()).Plan(in), time.Since(began).Seconds())
	if ctx.Err() != nil {
		return nil, fmt.Errorf("it takes longer than %s; try fewer pods", previewTime)
	}
	r.explainSpot(&in)
	return json.Marshal(r)
}

// previewPods returns the pods that the workloads in manifests would have, completed as in assemble but with the
// cluster's priority classes. New volumes are left out.
func previewPods(ctx context.Context, manifests []byte, snap *cluster.Snapshot) ([]*cluster.Pod, error) {
	docs, err := parse("line", manifests)
	if err != nil {
		return nil, err
	}
	o, err := typed(ctx, docs)
	if err != nil {
		return nil, err
	}
	if len(o.pools)+len(o.classes)+len(o.nodes)+len(o.claims) > 0 {
		return nil, errors.New("the preview takes pods and their workloads, on the NodePools that are there; karpenter plan -f FILE " +
			"--kubeconfig FILE plans with other NodePools and classes")
	}
	if err := o.expand(mostPreviewPods); err != nil {
		return nil, err
	}
	switch {
	case len(o.pods) > mostPreviewPods:
		return nil, fmt.Errorf("these are %d pods, and at most %d can be planned here; karpenter plan takes more", len(o.pods),
			mostPreviewPods)
	case len(o.pods) == 0:
		return nil, errors.New("there is no pod in it: paste Pods, Deployments, StatefulSets, Jobs or CronJobs")
	}
	o.applyPodDefaults()
	o.priorityClasses = slices.AppendSeq(o.priorityClasses, cluster.PriorityClasses.All(snap))
	if unknown := o.fillPriorities(); len(unknown) > 0 {
		return nil, fmt.Errorf("there is no PriorityClass named %s; the cluster would refuse the pods", strings.Join(unknown, ", "))
	}
	o.leaveOutNewVolumes()
	o.markUnschedulable()
	return o.store().Snapshot().Provisionable(), nil
}

// leaveOutNewVolumes removes from pods the volumes that would be created for them: most are created where their pod
// goes.
func (o *objects) leaveOutNewVolumes() {
	made := map[types.NamespacedName]bool{}
	for _, c := range o.volumes.pvcs {
		made[nameOf(c)] = true
	}
	for _, p := range o.pods {
		p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			claim := v.PersistentVolumeClaim
			return v.Ephemeral != nil || claim != nil && made[types.NamespacedName{Namespace: p.Namespace, Name: claim.ClaimName}]
		})
	}
}
