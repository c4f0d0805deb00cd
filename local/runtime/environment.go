package runtime

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// PortsEnv tells the controller at which ports of this machine it listens instead of its configured ports, as
// 8080:53211,8081:53212.
const PortsEnv = "KARPENTER_LOCAL_PORTS"

// ofTheMachine are the variables of this machine that a process needs, whatever its pod says.
var ofTheMachine = []string{"PATH", "HOME", "TMPDIR"}

// An environment is what a container finds, by name.
type environment map[string]string

// list returns the variables as a process takes them.
func (e environment) list() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(e)) {
		all = append(all, name+"="+e[name])
	}
	return all
}

// move gives a program that does not know PortsEnv the ports of this machine, in the variables that name its ports.
func (e environment) move(ports map[int32]int) {
	for port, at := range ports {
		for name, value := range e {
			if strings.HasSuffix(name, "_PORT") && value == fmt.Sprint(port) {
				e[name] = fmt.Sprint(at)
			}
		}
	}
}

// machine is what every process of this machine finds.
func machine(given []string) environment {
	e := environment{}
	for _, name := range ofTheMachine {
		if value, ok := os.LookupEnv(name); ok {
			e[name] = value
		}
	}
	for _, variable := range given {
		name, value, _ := strings.Cut(variable, "=")
		e[name] = value
	}
	return e
}

// A source tells what variables refer to.
type source struct {
	client kubernetes.Interface
	pod    *corev1.Pod // with its addresses
	node   Node
}

// add adds the pod's settings of the container to e.
func (s source) add(ctx context.Context, c *corev1.Container, e environment) error {
	e["HOSTNAME"] = cmp.Or(s.pod.Spec.Hostname, s.pod.Name)
	told := environment{}
	for _, from := range c.EnvFrom {
		if err := s.addAll(ctx, from, told); err != nil {
			return err
		}
	}
	for _, v := range c.Env {
		value, found, err := s.value(ctx, c, v, told)
		if err != nil {
			return fmt.Errorf("variable %s of container %s: %w", v.Name, c.Name, err)
		}
		if found {
			told[v.Name] = value
		}
	}
	maps.Copy(e, told)
	s.limit(c, e, told)
	return nil
}

// limit makes the container's limits those of Go's runtime, as it would find them in a container, unless the pod says
// something else.
func (s source) limit(c *corev1.Container, e, told environment) {
	if memory := c.Resources.Limits.Memory(); !memory.IsZero() && told["GOMEMLIMIT"] == "" {
		e["GOMEMLIMIT"] = fmt.Sprint(memory.Value())
	}
	if cpu := c.Resources.Limits.Cpu(); !cpu.IsZero() && told["GOMAXPROCS"] == "" {
		e["GOMAXPROCS"] = fmt.Sprint(max(2, cpu.Value())) // rounded up
	}
}

// addAll adds all of a ConfigMap or a Secret.
func (s source) addAll(ctx context.Context, from corev1.EnvFromSource, told environment) error {
	data, err := map[string]string(nil), error(nil)
	optional := false
	switch {
	case from.ConfigMapRef != nil:
		optional = isTrue(from.ConfigMapRef.Optional)
		data, err = s.configMap(ctx, from.ConfigMapRef.Name)
	case from.SecretRef != nil:
		optional = isTrue(from.SecretRef.Optional)
		data, err = s.secret(ctx, from.SecretRef.Name)
	}
	if apierrors.IsNotFound(err) && optional {
		return nil
	}
	for name, value := range data {
		told[from.Prefix+name] = value
	}
	return err
}

// value returns the value of a variable; there may be none where it is optional.
func (s source) value(ctx context.Context, c *corev1.Container, v corev1.EnvVar, told environment) (string, bool, error) {
	from := v.ValueFrom
	switch {
	case from == nil:
		return expansion.Expand(v.Value, expansion.MappingFuncFor(told)), true, nil
	case from.FieldRef != nil:
		value, err := s.field(from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		ref := from.ResourceFieldRef
		value, err := resource.ExtractResourceValueByContainerNameAndNodeAllocatable(ref, s.pod,
			cmp.Or(ref.ContainerName, c.Name), s.node.Allocatable)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := s.configMap(ctx, ref.Name)
		return one(data, err, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := s.secret(ctx, ref.Name)
		return one(data, err, ref.Key, ref.Optional)
	}
	return "", false, fmt.Errorf("this runtime does not know where its value comes from")
}

func one(data map[string]string, err error, key string, optional *bool) (string, bool, error) {
	value, found := data[key]
	if !found && isTrue(optional) && (err == nil || apierrors.IsNotFound(err)) {
		return "", false, nil
	}
	if err == nil && !found {
		err = fmt.Errorf("there is no key %s", key)
	}
	return value, found, err
}

// field is a field of the pod.
func (s source) field(path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return s.pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return s.pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return s.pod.Status.HostIP, nil
	case "status.podIP", "status.podIPs":
		return s.pod.Status.PodIP, nil
	}
	return fieldpath.ExtractFieldPathAsString(s.pod, path)
}

func (s source) configMap(ctx context.Context, name string) (map[string]string, error) {
	found, err := s.client.CoreV1().ConfigMaps(s.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return found.Data, nil
}

func (s source) secret(ctx context.Context, name string) (map[string]string, error) {
	found, err := s.client.CoreV1().Secrets(s.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	data := map[string]string{}
	for key, value := range found.Data {
		data[key] = string(value)
	}
	return data, nil
}

func isTrue(b *bool) bool { return b != nil && *b }
