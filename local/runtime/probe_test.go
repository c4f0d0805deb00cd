package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestProbes(t *testing.T) {
	probe := corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 10, TimeoutSeconds: 3, FailureThreshold: 3}
	for name, tc := range map[string]struct {
		answers string // of the first questions: y, n, or - for none
		want    []string
	}{
		"the first good answer counts":                   {"yyyy", []string{"5s true"}},
		"failures count after so many in a row":          {"ynnnn", []string{"5s true", "35s false"}},
		"fewer in a row do not":                          {"ynnynny", []string{"5s true"}},
		"what never answered well is bad from the third": {"nnnny", []string{"25s false", "45s true"}},
		"no answer in time is a failure":                 {"---", []string{"28s false"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, asked := time.Now(), 0
				ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
				defer stop()
				var got []string
				keepAsking(ctx, &probe, func(ctx context.Context) error {
					if asked == len(tc.answers) {
						stop()
						return ctx.Err()
					}
					answer := tc.answers[asked]
					asked++
					switch answer {
					case 'n':
						return errors.New("no")
					case '-':
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}, func(ok bool, _ error) { got = append(got, fmt.Sprint(time.Since(begin), " ", ok)) })
				if !slices.Equal(got, tc.want) {
					t.Errorf("told %v, want %v", got, tc.want)
				}
			})
		})
	}
}

func TestProbesAskThePortOfThisMachine(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" && r.Header.Get("X") == "y" {
			return
		}
		http.Error(w, "no", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	c := &corev1.Container{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8081}}}
	get := func(path string, port intstr.IntOrString) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: port, HTTPHeaders: []corev1.HTTPHeader{{Name: "X", Value: "y"}},
		}}}
	}
	for name, tc := range map[string]struct {
		probe *corev1.Probe
		ok    bool
	}{
		"by name":                {get("/readyz", intstr.FromString("http")), true},
		"by number":              {get("/readyz", intstr.FromInt32(8081)), true},
		"a bad answer":           {get("/else", intstr.FromString("http")), false},
		"a connection is enough": {&corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ask, err := question(c, tc.probe, map[int32]int{8081: port})
			if err != nil {
				t.Fatal(err)
			}
			if err := ask(t.Context()); (err == nil) != tc.ok {
				t.Errorf("the answer is %v", err)
			}
		})
	}
	for name, probe := range map[string]*corev1.Probe{
		"a port that there is not": get("/", intstr.FromString("x")),
		"a command":                {ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{}}},
	} {
		if _, err := question(c, probe, nil); err == nil {
			t.Errorf("%s can be asked", name)
		}
	}
}
