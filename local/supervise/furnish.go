package supervise

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

//go:embed rights.yaml
var rights []byte

//go:embed usage.yaml
var usage []byte

//go:embed storage.yaml
var storage []byte

// owner is whose fields of objects ours are.
const owner = "karpenter-local"

// furnish gives the cluster what belongs to it before anything is installed: the rights of the simulated kubelets, the
// way to metrics.k8s.io, and storage. What another version left is made like ours.
func (s *supervisor) furnish(ctx context.Context) error {
	all, err := furniture(s.authority.Cert)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.dir.Kubeconfig())
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	for _, o := range all {
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(owner), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("make %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// furniture are the objects. The authority is the one of all servers here.
func furniture(authority []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for document := range bytes.SplitSeq(bytes.Join([][]byte{rights, usage, storage}, []byte("\n---\n")), []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return nil, fmt.Errorf("read what belongs to a cluster: %w", err)
		}
		if o.GetKind() == "APIService" {
			if err := unstructured.SetNestedField(o.Object, base64.StdEncoding.EncodeToString(authority), "spec", "caBundle"); err != nil {
				return nil, err
			}
		}
		all = append(all, o)
	}
	return all, nil
}
