package memapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// A Server holds the objects.
type Server struct {
	scheme *runtime.Scheme

	mu       sync.Mutex
	objects  map[key]client.Object // never changed, only replaced
	shelves  map[schema.GroupKind]*shelf
	kinds    []schema.GroupKind         // of shelves, in the order in which they were first used
	owned    map[types.UID]map[key]bool // by owner
	version  int64
	uids     int64
	watchers []*watcher
	fault    func(Request) error
	skew     time.Duration

	asking sync.Mutex // held while a fault is asked
}

type key struct {
	schema.GroupKind
	types.NamespacedName
}

// A Request is what a fault may look at.
type Request struct {
	Verb        string // get, list, create, update, patch, delete
	Subresource string // status, eviction or ""
	Kind        string
	Name        types.NamespacedName
	Client      string // the name of the client that asks
}

// New makes an empty server for the kinds of a scheme.
func New(scheme *runtime.Scheme) *Server {
	return &Server{scheme: scheme, objects: map[key]client.Object{}, shelves: map[schema.GroupKind]*shelf{},
		owned: map[types.UID]map[key]bool{}}
}

// SetFault installs a function that may refuse requests from now on; nil refuses none. It is asked about one request at a time, so that
// it may count what it sees; it may read and edit objects, but neither wait nor use a client.
func (s *Server) SetFault(f func(Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// SetSkew puts the server's clock forward against that of its clients, or back, from now on: the times that it writes are others.
func (s *Server) SetSkew(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = d
}

// Put writes an object unchanged, status and all, whether it was there or not. It is how tests set up a world and how they
// play kubelet and scheduler.
func (s *Server) Put(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o = copyOf(o)
	k := s.keyOf(o)
	if old, ok := s.objects[k]; ok {
		if o.GetUID() == "" {
			o.SetUID(old.GetUID())
		}
		if created := o.GetCreationTimestamp(); created.IsZero() {
			o.SetCreationTimestamp(old.GetCreationTimestamp())
		}
	} else {
		s.born(o)
	}
	s.store(k, o)
}

// Edit changes one object as Put does, and reports whether it is there.
func Edit[T client.Object](s *Server, namespace, name string, edit func(T)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keyOf(blank[T]())
	k.NamespacedName = types.NamespacedName{Namespace: namespace, Name: name}
	old, ok := s.objects[k]
	if !ok {
		return false
	}
	o := copyOf(old).(T)
	edit(o)
	s.store(k, o)
	return true
}

// Remove takes an object away at once, whatever its finalizers.
func (s *Server) Remove(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.keyOf(o); s.objects[k] != nil {
		s.drop(k)
	}
}

// Each calls look for each object of one kind, in order of creation. It must not change them, nor keep the server waiting.
func Each[T client.Object](s *Server, look func(T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.shelf(s.keyOf(blank[T]()).GroupKind).all() {
		look(s.objects[k].(T))
	}
}

// blank is an object without anything in it.
func blank[T client.Object]() T {
	var zero T
	return reflect.New(reflect.TypeOf(zero).Elem()).Interface().(T)
}

// All returns copies of the objects of one kind, in order of creation.
func All[T client.Object](s *Server) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []T
	for k := range s.shelf(s.keyOf(blank[T]()).GroupKind).all() {
		out = append(out, copyOf(s.objects[k]).(T))
	}
	return out
}

func (s *Server) keyOf(o client.Object) key {
	gvk, err := apiutil.GVKForObject(o, s.scheme)
	if err != nil {
		panic(fmt.Sprintf("memapi: %v", err))
	}
	return key{gvk.GroupKind(), client.ObjectKeyFromObject(o)}
}

// born gives a new object what the API server does.
func (s *Server) born(o client.Object) {
	if o.GetUID() == "" {
		s.uids++
		o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-9000-%012x", s.uids)))
	}
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(s.now())
	}
	if o.GetGeneration() == 0 {
		o.SetGeneration(1)
	}
}

func (s *Server) now() metav1.Time {
	return metav1.NewTime(time.Now().Add(s.skew).Truncate(time.Second))
}

// store replaces an object and tells the watchers. An object that is being deleted goes with its last finalizer.
func (s *Server) store(k key, o client.Object) {
	old := s.objects[k]
	if old == nil {
		s.shelf(k.GroupKind).add(k)
	} else {
		s.disown(k, old)
	}
	for _, r := range o.GetOwnerReferences() {
		if s.owned[r.UID] == nil {
			s.owned[r.UID] = map[key]bool{}
		}
		s.owned[r.UID][k] = true
	}
	s.version++
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.objects[k] = o
	if _, pod := o.(*corev1.Pod); !pod && o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		s.drop(k)
		return
	}
	s.tell(o, false)
}

// drop removes an object, and then what it owned.
func (s *Server) drop(k key) {
	o := s.objects[k]
	delete(s.objects, k)
	s.shelf(k.GroupKind).remove(k)
	s.disown(k, o)
	s.version++
	o = copyOf(o)
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.tell(o, true)
	for _, other := range s.ownedBy(o) {
		if s.objects[other] != nil {
			s.remove(other, nil)
		}
	}
}

// disown forgets whose an object is.
func (s *Server) disown(k key, o client.Object) {
	for _, r := range o.GetOwnerReferences() {
		delete(s.owned[r.UID], k)
		if len(s.owned[r.UID]) == 0 {
			delete(s.owned, r.UID)
		}
	}
}

// ownedBy are the objects that an object owns, by kind and name.
func (s *Server) ownedBy(owner client.Object) []key {
	return slices.SortedFunc(maps.Keys(s.owned[owner.GetUID()]), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// orphan lets go of what an object owns.
func (s *Server) orphan(k key) {
	owner := s.objects[k]
	for _, other := range s.ownedBy(owner) {
		dependent := copyOf(s.objects[other])
		dependent.SetOwnerReferences(slices.DeleteFunc(dependent.GetOwnerReferences(),
			func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() }))
		s.store(other, dependent)
	}
}

// remove deletes an object as the API server does: at once, or when finalizers and grace allow it.
func (s *Server) remove(k key, grace *int64) {
	o := s.objects[k]
	if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		s.removePod(k, pod, grace)
		return
	}
	if len(o.GetFinalizers()) == 0 {
		s.drop(k)
		return
	}
	if o.GetDeletionTimestamp() != nil {
		return
	}
	o = copyOf(o)
	at := s.now()
	o.SetDeletionTimestamp(&at)
	o.SetGeneration(o.GetGeneration() + 1)
	s.store(k, o)
}

// removePod gives a bound pod its grace, or less than it had; the function that plays the kubelet ends it.
func (s *Server) removePod(k key, pod *corev1.Pod, grace *int64) {
	seconds := int64(30)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	if grace != nil {
		seconds = *grace
	}
	if seconds == 0 {
		s.drop(k)
		return
	}
	end := metav1.NewTime(s.now().Add(time.Duration(seconds) * time.Second))
	if pod.DeletionTimestamp != nil && !end.Before(pod.DeletionTimestamp) {
		return
	}
	pod = pod.DeepCopy()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &end, &seconds
	s.store(k, pod)
}

func copyOf(o client.Object) client.Object { return o.DeepCopyObject().(client.Object) }

// replace stores what a request made of an object. Only what the request may write is taken.
func (s *Server) replace(k key, change func(before map[string]any) (map[string]any, error), subresource string) (client.Object, error) {
	old := s.objects[k]
	if old == nil {
		return nil, notFound(k)
	}
	before, err := fields(old)
	if err != nil {
		return nil, err
	}
	after, err := change(before)
	if err != nil {
		return nil, err
	}
	if err := checkMeta(k, old, after); err != nil {
		return nil, err
	}
	merged, err := merge(old, before, after, subresource)
	if err != nil {
		return nil, err
	}
	if reflect.DeepEqual(merged, old) {
		return old, nil
	}
	s.store(k, merged)
	return merged, nil
}

// checkMeta refuses a request that is about another version or another incarnation of the object.
func checkMeta(k key, old client.Object, after map[string]any) error {
	meta, _ := after["metadata"].(map[string]any)
	if v, _ := meta["resourceVersion"].(string); v != "" && v != old.GetResourceVersion() {
		return apierrors.NewConflict(resource(k), k.Name,
			fmt.Errorf("the object has been modified: it is at %s, not %s", old.GetResourceVersion(), v))
	}
	if uid, _ := meta["uid"].(string); uid != "" && uid != string(old.GetUID()) {
		return apierrors.NewConflict(resource(k), k.Name, fmt.Errorf("uid is %s, not %s", old.GetUID(), uid))
	}
	return nil
}

// merge takes the new status for the status subresource, and everything else that is new for the object itself.
func merge(old client.Object, before, after map[string]any, subresource string) (client.Object, error) {
	base, status := maps.Clone(after), before["status"]
	if subresource == "status" {
		base, status = maps.Clone(before), after["status"]
	}
	delete(base, "status")
	if status != nil {
		base["status"] = status
	}
	out := bare(old)
	raw, err := json.Marshal(base)
	if err == nil {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		return nil, err
	}
	out.SetResourceVersion(old.GetResourceVersion())
	out.SetUID(old.GetUID())
	out.SetCreationTimestamp(old.GetCreationTimestamp())
	out.SetDeletionTimestamp(old.GetDeletionTimestamp())
	out.SetGeneration(old.GetGeneration())
	if !reflect.DeepEqual(before["spec"], base["spec"]) {
		out.SetGeneration(old.GetGeneration() + 1)
	}
	return out, nil
}

func fields(o client.Object) (map[string]any, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(raw, &out)
}

func resource(k key) schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Kind}
}

func notFound(k key) error { return apierrors.NewNotFound(resource(k), k.Name) }
