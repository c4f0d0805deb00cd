package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/join"
)

// byHand is the reason of conditions that break made.
const byHand = "BrokenByHand"

// breakNode lets a simulated machine fail, or the simulated AWS.
func breakNode(args []string) error {
	flags := flag.NewFlagSet("karpenter-local break", flag.ContinueOnError)
	condition := flags.String("condition", "", "a `condition` to break instead of Ready, as node monitoring agents set "+
		"them, such as AcceleratedHardwareReady")
	silent := flags.Bool("stop-kubelet", false, "stop the kubelet: the node is Unknown when its lease has run out, within a minute")
	since := flags.Duration("for", 0, "say that it has been so for that long, for those who repair only what stays broken")
	faults := addFaultFlags(flags)
	node, err := oneNode(flags, args)
	if err == nil && faults.wholeAWS() {
		return errors.New("--sold-out, --zone-down and --slow concern AWS as a whole: name no node")
	}
	if faults.wholeAWS() && flags.NArg() == 0 {
		return breakAWS(faults)
	}
	if err != nil {
		return err
	}
	fault, err := faults.chosen()
	if err != nil {
		return err
	}
	if fault != nil {
		if *silent || *condition != "" || *since != 0 {
			return fmt.Errorf("--%s is no fault of the kubelet: leave out --stop-kubelet, --condition and --for", fault.flag)
		}
		return breakMachine(node, fault)
	}
	if *silent && (*condition != "" || *since != 0) {
		return errors.New("a kubelet that was stopped says nothing, neither of a condition nor of a time")
	}
	client, err := clientHere()
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if *silent {
		if err := annotate(ctx, client, node, map[string]any{join.Annotation: nil, join.Broken: "kubelet"}); err != nil {
			return err
		}
		fmt.Printf("The kubelet of %s is stopped; karpenter-local mend %s starts it again.\n", node, node)
		return nil
	}
	broken := corev1.NodeCondition{Type: corev1.NodeReady}
	if *condition != "" {
		broken.Type = corev1.NodeConditionType(*condition)
	} else if err := annotate(ctx, client, node, map[string]any{join.Broken: "ready"}); err != nil {
		return err
	}
	broken.Status, _ = bad(broken.Type)
	broken.Reason, broken.Message = byHand, "karpenter-local break"
	broken.LastTransitionTime = metav1.NewTime(time.Now().Add(-*since))
	if err := setConditions(ctx, client, node, []corev1.NodeCondition{broken}); err != nil {
		return err
	}
	fmt.Printf("Condition %s of %s is %s; karpenter-local mend %s mends it.\n", broken.Type, node, broken.Status, node)
	return nil
}

// mendNode undoes all that was broken.
func mendNode(args []string) error {
	flags := flag.NewFlagSet("karpenter-local mend", flag.ContinueOnError)
	all := flags.Bool("aws", false, "undo what break did to AWS as a whole: sold out machines, zones that are down, slow answers")
	name, err := oneNode(flags, args)
	if *all && name == "" {
		return mendAWS()
	}
	if err != nil {
		return err
	}
	client, err := clientHere()
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var mended []corev1.NodeCondition
	for _, c := range node.Status.Conditions {
		if c.Reason == byHand {
			_, c.Status = bad(c.Type)
			c.Reason, c.Message, c.LastTransitionTime = "Mended", "karpenter-local mend", metav1.Now()
			mended = append(mended, c)
		}
	}
	if len(mended) > 0 {
		if err := setConditions(ctx, client, name, mended); err != nil {
			return err
		}
	}
	if err := annotate(ctx, client, name, map[string]any{join.Annotation: join.AnnotationValue, join.Broken: nil}); err != nil {
		return err
	}
	if id, err := instanceOf(name); err == nil {
		if err := modelCall(http.MethodPost, "heal", map[string]any{"ids": []string{id}}, nil); err != nil {
			return err
		}
	}
	fmt.Printf("%s is mended.\n", name)
	return nil
}

// oneNode reads flags before and after the name of a node, as people write them.
func oneNode(flags *flag.FlagSet, args []string) (string, error) {
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	node := flags.Arg(0)
	if node != "" {
		if err := flags.Parse(flags.Args()[1:]); err != nil {
			return "", err
		}
	}
	if node == "" || flags.NArg() > 0 {
		return "", errors.New("name one node")
	}
	return node, nil
}

// bad is the status of a condition that means trouble, and the status that means that all is well.
func bad(c corev1.NodeConditionType) (trouble, well corev1.ConditionStatus) {
	pressure := []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
		corev1.NodeNetworkUnavailable}
	if slices.Contains(pressure, c) {
		return corev1.ConditionTrue, corev1.ConditionFalse
	}
	return corev1.ConditionFalse, corev1.ConditionTrue
}

// annotate sets annotations of a node; nil removes one.
func annotate(ctx context.Context, client kubernetes.Interface, node string, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func setConditions(ctx context.Context, client kubernetes.Interface, node string, conditions []corev1.NodeCondition) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().PatchStatus(ctx, node, patch)
	return err
}

// clientHere is one for the cluster that runs here.
func clientHere() (kubernetes.Interface, error) {
	dir, err := running()
	if err != nil {
		return nil, err
	}
	return clientOf(dir)
}

func clientOf(dir home.Dir) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", dir.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.Timeout = patience
	return kubernetes.NewForConfig(config)
}
