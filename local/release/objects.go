package release

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubectl/pkg/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"karpenter.sh/karpenter/local/plane"
)

// patience is how long a new definition may take until its objects can be made.
const patience = 30 * time.Second

// Objects makes the objects that a local cluster starts with: a node class, a node pool, and a Deployment to play with. What
// the user has changed stays unchanged.
func Objects(ctx context.Context, kubeconfig string, wish Wish, log *slog.Logger) error {
	p, err := find(wish.Provider)
	if err != nil {
		return err
	}
	return createAll(ctx, kubeconfig, log, p.first, wish.Cluster)
}

// createAll makes the objects of a file that the cluster does not have.
func createAll(ctx context.Context, kubeconfig string, log *slog.Logger, file, cluster string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // no limit
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	all, err := read(file, cluster)
	if err != nil {
		return err
	}
	for _, o := range all {
		// As if the user had applied it: their own apply of an object of that name then neither warns nor leaves our fields behind.
		if err := util.CreateApplyAnnotation(o, unstructured.UnstructuredJSONScheme); err != nil {
			return fmt.Errorf("annotate %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if err := create(ctx, c, o); err != nil {
			return fmt.Errorf("create %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		log.Info("is there", "kind", o.GetKind(), "name", o.GetName())
	}
	return nil
}

// create makes the object unless there is one. It waits until the object's definition is served.
func create(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := c.Create(ctx, o.DeepCopy())
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// read returns the objects of a file, with the name of the cluster, "" for the usual name.
func read(name, cluster string) ([]*unstructured.Unstructured, error) {
	text, err := objects.ReadFile("objects/" + name)
	if err != nil {
		return nil, err
	}
	named := cmp.Or(cluster, plane.ClusterName)
	renamed := strings.NewReplacer("KarpenterNodeRole-"+plane.ClusterName, "KarpenterNodeRole-"+named,
		"discovery: "+plane.ClusterName, "discovery: "+named).Replace(string(text))
	var all []*unstructured.Unstructured
	for _, document := range documents([]byte(renamed)) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		all = append(all, o)
	}
	return all, nil
}
