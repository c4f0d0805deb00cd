package memapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fieldselector "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// A Client is a client.Client of a Server. Its calls take no time, unless Delay says so.
type Client struct {
	server *Server
	name   string
	// Delay is how long every call takes: half of it before the server acts, half until the answer is there. A context that ends in
	// the second half loses the answer, not the act.
	Delay time.Duration
	// Careful clients must say which incarnation of an object they mean to delete or evict: another one of the same name may have taken
	// its place since they looked.
	Careful bool
}

// Client returns a client. The name is only told to faults.
func (s *Server) Client(name string) *Client { return &Client{server: s, name: name} }

var _ client.Client = (*Client)(nil)

// begin waits as a call does and asks whether it is to fail. On success the server is locked.
func (c *Client) begin(ctx context.Context, verb, subresource string, k key) error {
	if err := c.travel(ctx); err != nil {
		return err
	}
	s := c.server
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if err := s.ask(fault, Request{verb, subresource, k.Kind, k.NamespacedName, c.name}); err != nil {
			return err
		}
	}
	s.mu.Lock()
	return nil
}

func (s *Server) ask(fault func(Request) error, r Request) error {
	s.asking.Lock()
	defer s.asking.Unlock()
	return fault(r)
}

// travel takes as long as a request or an answer is on its way.
func (c *Client) travel(ctx context.Context) error {
	if c.Delay > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(c.Delay / 2):
		}
	}
	return ctx.Err()
}

// answer unlocks the server and waits until the answer is there. What went wrong on the server is the answer, too.
func (c *Client) answer(ctx context.Context, err *error) {
	c.server.mu.Unlock()
	if lost := c.travel(ctx); lost != nil {
		*err = lost
	}
}

// Get implements client.Client.
func (c *Client) Get(ctx context.Context, name client.ObjectKey, o client.Object, _ ...client.GetOption) (err error) {
	k := c.server.keyOf(o)
	k.NamespacedName = name
	if err := c.begin(ctx, "get", "", k); err != nil {
		return err
	}
	defer c.answer(ctx, &err)
	found := c.server.objects[k]
	if found == nil {
		return notFound(k)
	}
	assign(o, found)
	return nil
}

func assign(to, from client.Object) {
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(copyOf(from)).Elem())
}

// List implements client.Client. It knows namespaces, label selectors and the node of pods.
func (c *Client) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (err error) {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	node, onNode, err := nodeSelected(options.FieldSelector)
	if err != nil {
		return err
	}
	gvk, err := apiutil.GVKForObject(list, c.server.scheme)
	if err != nil {
		return err
	}
	kind := schema.GroupKind{Group: gvk.Group, Kind: gvk.Kind[:len(gvk.Kind)-len("List")]}
	if err := c.begin(ctx, "list", "", key{GroupKind: kind}); err != nil {
		return err
	}
	defer c.answer(ctx, &err)
	var items []runtime.Object
	for k := range c.server.shelf(kind).all() {
		o := c.server.objects[k]
		if options.Namespace != "" && k.Namespace != options.Namespace ||
			options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		if pod, ok := o.(*corev1.Pod); onNode && (!ok || pod.Spec.NodeName != node) {
			continue
		}
		items = append(items, copyOf(o))
	}
	return meta.SetList(list, items)
}

// nodeSelected returns the node that a field selector asks for.
func nodeSelected(s fieldselector.Selector) (node string, selected bool, err error) {
	if s == nil || s.Empty() {
		return "", false, nil
	}
	node, selected = s.RequiresExactMatch("spec.nodeName")
	if !selected || len(s.Requirements()) > 1 {
		return "", false, fmt.Errorf("memapi: field selector %s is not supported", s)
	}
	return node, true, nil
}

// Create implements client.Client.
func (c *Client) Create(ctx context.Context, o client.Object, options ...client.CreateOption) (err error) {
	k := c.server.keyOf(o)
	if err := c.begin(ctx, "create", "", k); err != nil {
		return err
	}
	s := c.server
	defer c.answer(ctx, &err)
	if asked := (&client.CreateOptions{}).ApplyOptions(options); len(asked.DryRun) > 0 {
		return nil
	}
	made := copyOf(o)
	if made.GetName() == "" {
		s.uids++
		made.SetName(fmt.Sprintf("%s%05x", made.GetGenerateName(), s.uids))
		k = s.keyOf(made)
	}
	if s.objects[k] != nil {
		return apierrors.NewAlreadyExists(resource(k), k.Name)
	}
	made.SetUID("")
	made.SetDeletionTimestamp(nil)
	made.SetCreationTimestamp(metav1.Time{})
	if hasStatus(made) {
		if made, err = withoutStatus(made); err != nil {
			return err
		}
	}
	s.born(made)
	s.store(k, made)
	assign(o, made)
	return nil
}

// bare is a new object of the same kind.
func bare(o client.Object) client.Object {
	return reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
}

func withoutStatus(o client.Object) (client.Object, error) {
	all, err := fields(o)
	if err != nil {
		return nil, err
	}
	delete(all, "status")
	raw, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	out := bare(o)
	return out, json.Unmarshal(raw, out)
}

// hasStatus reports whether a create ignores the status of the object.
func hasStatus(o client.Object) bool {
	switch o.(type) {
	case *corev1.Node, *corev1.Pod: // kubelets and tests create them with a status
		return false
	}
	return true
}

// Update implements client.Client.
func (c *Client) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return c.update(ctx, o, "")
}

func (c *Client) update(ctx context.Context, o client.Object, subresource string) (err error) {
	k := c.server.keyOf(o)
	if err := c.begin(ctx, "update", subresource, k); err != nil {
		return err
	}
	defer c.answer(ctx, &err)
	got, err := c.server.replace(k, func(map[string]any) (map[string]any, error) { return fields(o) }, subresource)
	if err != nil {
		return err
	}
	assign(o, got)
	return nil
}

// Patch implements client.Client. Every patch is taken as a merge patch.
func (c *Client) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	return c.patch(ctx, o, p, "")
}

func (c *Client) patch(ctx context.Context, o client.Object, p client.Patch, subresource string) (err error) {
	k := c.server.keyOf(o)
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	if p.Type() != types.MergePatchType {
		return fmt.Errorf("memapi: patches of type %s are not supported", p.Type())
	}
	if err := c.begin(ctx, "patch", subresource, k); err != nil {
		return err
	}
	s := c.server
	defer c.answer(ctx, &err)
	got, err := s.replace(k, func(before map[string]any) (map[string]any, error) {
		var patch map[string]any
		err := json.Unmarshal(data, &patch)
		return mergePatch(before, patch), err
	}, subresource)
	if err != nil {
		return err
	}
	assign(o, got)
	return nil
}

// mergePatch applies a patch as RFC 7396 says.
func mergePatch(base any, patch map[string]any) map[string]any {
	old, _ := base.(map[string]any)
	out := maps.Clone(old)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(out, k)
		case map[string]any:
			out[k] = mergePatch(out[k], v)
		default:
			out[k] = v
		}
	}
	return out
}

// Delete implements client.Client.
func (c *Client) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) (err error) {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	k := c.server.keyOf(o)
	if err := c.begin(ctx, "delete", "", k); err != nil {
		return err
	}
	s := c.server
	defer c.answer(ctx, &err)
	old := s.objects[k]
	if old == nil {
		return notFound(k)
	}
	if err := c.checkPreconditions(k, old, options.Preconditions); err != nil {
		return err
	}
	if p := options.PropagationPolicy; p != nil && *p == metav1.DeletePropagationOrphan {
		s.orphan(k)
	}
	s.remove(k, options.GracePeriodSeconds)
	return nil
}

func (c *Client) checkPreconditions(k key, o client.Object, p *metav1.Preconditions) error {
	switch {
	case c.Careful && (p == nil || p.UID == nil):
		return apierrors.NewBadRequest(fmt.Sprintf("memapi: %s %s is to go, whichever it is", k.Kind, k.Name))
	case p == nil:
	case p.UID != nil && *p.UID != o.GetUID():
		return apierrors.NewConflict(resource(k), k.Name, fmt.Errorf("uid is %s, not %s", o.GetUID(), *p.UID))
	case p.ResourceVersion != nil && *p.ResourceVersion != o.GetResourceVersion():
		return apierrors.NewConflict(resource(k), k.Name, fmt.Errorf("resource version is %s, not %s",
			o.GetResourceVersion(), *p.ResourceVersion))
	}
	return nil
}

// DeleteAllOf implements client.Client.
func (c *Client) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return fmt.Errorf("memapi: DeleteAllOf is not supported")
}

// Apply implements client.Client.
func (c *Client) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return fmt.Errorf("memapi: Apply is not supported")
}

// Status implements client.Client.
func (c *Client) Status() client.SubResourceWriter { return subresource{c, "status"} }

// SubResource implements client.Client. It knows status and eviction.
func (c *Client) SubResource(name string) client.SubResourceClient { return subresource{c, name} }

// Scheme implements client.Client.
func (c *Client) Scheme() *runtime.Scheme { return c.server.scheme }

// RESTMapper implements client.Client. There is none.
func (c *Client) RESTMapper() meta.RESTMapper { return nil }

// GroupVersionKindFor implements client.Client.
func (c *Client) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, c.server.scheme)
}

// IsObjectNamespaced implements client.Client.
func (c *Client) IsObjectNamespaced(o runtime.Object) (bool, error) {
	accessor, err := meta.Accessor(o)
	return err == nil && accessor.GetNamespace() != "", err
}

type subresource struct {
	client *Client
	name   string
}

func (r subresource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return fmt.Errorf("memapi: get of subresource %s is not supported", r.name)
}

func (r subresource) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return r.client.update(ctx, o, r.name)
}

func (r subresource) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	return r.client.patch(ctx, o, p, r.name)
}

func (r subresource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return fmt.Errorf("memapi: Apply of subresource %s is not supported", r.name)
}

// Create evicts a pod.
func (r subresource) Create(ctx context.Context, o, body client.Object, _ ...client.SubResourceCreateOption) (err error) {
	eviction, ok := body.(*policyv1.Eviction)
	if r.name != "eviction" || !ok {
		return fmt.Errorf("memapi: create of subresource %s is not supported", r.name)
	}
	c := r.client
	s := c.server
	k := s.keyOf(o)
	if err := c.begin(ctx, "create", r.name, k); err != nil {
		return err
	}
	defer c.answer(ctx, &err)
	pod, ok := s.objects[k].(*corev1.Pod)
	if !ok {
		return notFound(k)
	}
	return c.evict(k, pod, eviction)
}

func (c *Client) evict(k key, pod *corev1.Pod, e *policyv1.Eviction) error {
	options := metav1.DeleteOptions{}
	if e.DeleteOptions != nil {
		options = *e.DeleteOptions
	}
	if err := c.checkPreconditions(k, pod, options.Preconditions); err != nil {
		return err
	}
	s := c.server
	running := pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
	if running {
		if err := s.useBudget(pod); err != nil {
			return err
		}
	}
	s.remove(k, options.GracePeriodSeconds)
	return nil
}

// useBudget counts an eviction against the pod's budget, or refuses it.
func (s *Server) useBudget(pod *corev1.Pod) error {
	var budgets []*policyv1.PodDisruptionBudget
	for k := range s.shelf(policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget").GroupKind()).all() {
		b := s.objects[k].(*policyv1.PodDisruptionBudget)
		if b.Namespace != pod.Namespace {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.Labels)) {
			budgets = append(budgets, b)
		}
	}
	switch {
	case len(budgets) == 0:
		return nil
	case len(budgets) > 1:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	case budgets[0].Status.DisruptionsAllowed <= 0:
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		err.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf(
				"The disruption budget %s needs more healthy pods", budgets[0].Name),
		}}}
		return err
	}
	b := budgets[0].DeepCopy()
	b.Status.DisruptionsAllowed--
	s.store(s.keyOf(b), b)
	return nil
}
