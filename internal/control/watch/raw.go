package watch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"karpenter.sh/karpenter/internal/kit/bounded"
)

// rawServer reads a kind of custom resources from the API server. Of each object it decodes only the head; kind.read decodes the rest.
// So an object that cannot be decoded does not end the watch, and an object that a loop wrote itself (kind.known) is not decoded at
// all.
type rawServer struct {
	rest   rest.Interface
	mapper meta.RESTMapper
	gvk    schema.GroupVersionKind
}

// rawObject is the head of an object and the JSON of all of it.
type rawObject struct {
	metav1.TypeMeta
	metav1.ObjectMeta // name, namespace, uid and version
	decode            func(to any) error
}

type rawList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []rawObject `json:"items"`
}

// head is the part of an object that is always decoded.
type head struct {
	Metadata struct {
		Name            string    `json:"name"`
		Namespace       string    `json:"namespace"`
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
	} `json:"metadata"`
}

func (h *head) object(decode func(to any) error) rawObject {
	m := &h.Metadata
	return rawObject{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion},
		decode:     decode,
	}
}

// UnmarshalJSON reads the head of an item of a list.
func (o *rawObject) UnmarshalJSON(data []byte) error {
	var h head
	if err := json.Unmarshal(data, &h); err != nil {
		return err
	}
	own := append([]byte(nil), data...)
	*o = h.object(func(to any) error { return unmarshal(own, to) })
	return nil
}

// unmarshal decodes an object. It refuses an object with a number that would take long to parse (package bounded).
func unmarshal(object []byte, to any) error {
	if err := bounded.JSON(object); err != nil {
		return err
	}
	return json.Unmarshal(object, to)
}

// DeepCopyObject implements runtime.Object. What it shares is never changed.
func (o *rawObject) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *rawList) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

// get returns the request for a list of the kind.
func (s rawServer) get(o metav1.ListOptions) (*rest.Request, error) {
	m, err := s.mapper.RESTMapping(s.gvk.GroupKind(), s.gvk.Version)
	if err != nil {
		return nil, err
	}
	r := s.rest.Get().AbsPath("/apis", m.Resource.Group, m.Resource.Version, m.Resource.Resource).SetHeader("Accept",
		runtime.ContentTypeJSON)
	for key, value := range map[string]string{"continue": o.Continue, "resourceVersion": o.ResourceVersion} {
		if value != "" {
			r = r.Param(key, value)
		}
	}
	if o.Limit > 0 {
		r = r.Param("limit", strconv.FormatInt(o.Limit, 10))
	}
	return r, nil
}

// List implements source.
func (s rawServer) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	r, err := s.get(o)
	if err != nil {
		return nil, err
	}
	answer := r.Do(ctx)
	if err := answer.Error(); err != nil { // says more than the error of Raw
		return nil, err
	}
	body, err := answer.Raw()
	if err != nil {
		return nil, err
	}
	l := &rawList{}
	if err := json.Unmarshal(body, l); err != nil {
		return nil, fmt.Errorf("decode the list: %w", err)
	}
	return l, nil
}

// Watch implements source.
func (s rawServer) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	r, err := s.get(o)
	if err != nil {
		return nil, err
	}
	r = r.Param("watch", "true").Param("allowWatchBookmarks", strconv.FormatBool(o.AllowWatchBookmarks))
	if o.TimeoutSeconds != nil {
		r = r.Param("timeoutSeconds", strconv.FormatInt(*o.TimeoutSeconds, 10))
	}
	body, err := r.Stream(ctx)
	if err != nil {
		return nil, err
	}
	d := &eventDecoder{body: body, lines: bufio.NewReader(body)}
	return apiwatch.NewStreamWatcher(d, apierrors.NewClientErrorReporter(http.StatusInternalServerError,
		http.MethodGet, "ClientWatchDecoding")), nil
}

// eventDecoder reads the events of a watch, each of which is one line.
type eventDecoder struct {
	body  io.ReadCloser
	lines *bufio.Reader
}

// Close implements watch.Decoder.
func (d *eventDecoder) Close() { d.body.Close() }

// Decode implements watch.Decoder.
func (d *eventDecoder) Decode() (apiwatch.EventType, runtime.Object, error) {
	line, err := d.lines.ReadBytes('\n')
	if err != nil {
		return "", nil, err // a line that was cut off cannot be used
	}
	var e struct {
		Type   apiwatch.EventType `json:"type"`
		Object head               `json:"object"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return "", nil, fmt.Errorf("decode an event: %w", err)
	}
	decode := func(to any) error {
		return unmarshal(line, &struct {
			Object any `json:"object"`
		}{to})
	}
	if e.Type == apiwatch.Error {
		status := &metav1.Status{}
		if err := decode(status); err != nil {
			return "", nil, fmt.Errorf("decode the error of a watch: %w", err)
		}
		return e.Type, status, nil
	}
	o := e.Object.object(decode)
	return e.Type, &o, nil
}
