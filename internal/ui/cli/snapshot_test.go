package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/scenario"
)

const snapshotWorld = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p}
spec:
  limits: {cpu: 30}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: topology.kubernetes.io/zone, operator: In, values: [z1]}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: q}
spec:
  weight: 3
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      taints: [{key: team, value: red, effect: NoSchedule}]
      requirements: []
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 7
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {token: topsecret}}
    spec:
      topologySpreadConstraints: [{maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]
      containers: [{name: c, image: topsecret, env: [{name: PASSWORD, value: topsecret}], args: [topsecret], resources: {requests: {cpu: 900m, memory: 1Gi}}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      tolerations: [{key: team, value: red}]
      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: db}}}]}}
      containers: [{name: c, image: i, resources: {requests: {cpu: "3"}}, volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: giant}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: 90}}}]
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {kubernetes.io/hostname: n1, kubernetes.io/arch: amd64, kubernetes.io/os: linux, topology.kubernetes.io/zone: z2}}
spec: {providerID: x}
status: {allocatable: {cpu: "2", memory: 4Gi, pods: "10"}, capacity: {cpu: "2", memory: 4Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: old, labels: {app: web}}
spec:
  nodeName: n1
  containers: [{name: c, image: i, resources: {requests: {cpu: 500m}}}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]}
`

// The plan of a snapshot is that of what it was made of, byte for byte but for the time that it took.
func TestAPlanOfASnapshotIsTheSame(t *testing.T) {
	folder := t.TempDir()
	file, kept := filepath.Join(folder, "world.yaml"), filepath.Join(folder, "snapshot.txtar")
	if err := os.WriteFile(file, []byte(snapshotWorld), 0o600); err != nil {
		t.Fatal(err)
	}
	seconds := regexp.MustCompile(`(?m)("seconds": |; )[0-9.]+( s$)?`)
	run := func(args ...string) string {
		var out, trouble bytes.Buffer
		env := Env{In: strings.NewReader(""), Out: &out, Err: &trouble, Catalog: threeTypes, CheckClass: noPlacementGroups}
		if code := Run(t.Context(), env, args); code == exitBadInput {
			t.Fatal(trouble.String())
		}
		return seconds.ReplaceAllString(out.String(), "")
	}
	run("snapshot", "-f", file, "-o", kept)
	for _, format := range []string{"table", "json", "yaml"} {
		want := run("plan", "-f", file, "-o", format)
		if format == "yaml" {
			want = regexp.MustCompile(`(?m)^seconds: .*$`).ReplaceAllString(want, "")
		}
		got := run("plan", "--snapshot", kept, "-o", format)
		if format == "yaml" {
			got = regexp.MustCompile(`(?m)^seconds: .*$`).ReplaceAllString(got, "")
		}
		if got != want || !strings.Contains(got, "giant") {
			t.Errorf("the snapshot gives\n%s\nwant\n%s", got, want)
		}
	}
	if got, want := run("why", "pod", "giant", "--snapshot", kept), run("why", "pod", "giant", "-f", file); got != want {
		t.Errorf("the snapshot answers\n%s\nwant\n%s", got, want)
	}
	text, err := os.ReadFile(kept)
	if err != nil || bytes.Contains(text, []byte("topsecret")) || bytes.Contains(text, []byte("PASSWORD")) {
		t.Errorf("%v, or it tells a secret:\n%s", err, text)
	}
	hidden := run("snapshot", "-f", file, "-o", "-", "--anonymous")
	if strings.Contains(hidden, "giant") || !strings.Contains(hidden, "pod-000001") {
		t.Errorf("it is not anonymous:\n%s", hidden)
	}
}

// The plan of what a controller was asked is the one that it made, which another one than is made now.
func TestAPlanOfAControllersSnapshotIsItsPlan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "world.yaml")
	if err := os.WriteFile(file, []byte(snapshotWorld), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, trouble bytes.Buffer
	env := Env{In: strings.NewReader(""), Out: &out, Err: &trouble, Catalog: threeTypes, CheckClass: noPlacementGroups}
	flags := planFlags{files: []string{file}, market: Market{Region: "here"}}
	in, err := flags.question(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(awsv1.Labels())
	e.Plan(in)
	in.Pods = in.Pods[:5] // the others wait for something else
	story, err := scenario.Recollection("Asked.", in, e.Memory())
	if err != nil {
		t.Fatal(err)
	}
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/snapshot" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, "%s# %s\n", story, r.URL.RawQuery)
	}))
	defer controller.Close()
	kept := filepath.Join(t.TempDir(), "snapshot.txtar")
	run := func(want int, args ...string) {
		t.Helper()
		out.Reset()
		trouble.Reset()
		if code := Run(t.Context(), env, args); code != want {
			t.Fatalf("%q: code %d: %s", args, code, &trouble)
		}
	}
	run(exitFine, "snapshot", "--controller", "--journal", controller.URL, "-o", "-", "--anonymous")
	if !strings.Contains(out.String(), "# anonymous=true\n") {
		t.Error("the controller was not asked to leave out names")
	}
	controller.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(story) })
	run(exitFine, "snapshot", "--controller", "--journal", controller.URL, "-o", kept)
	var want bytes.Buffer
	r := newReport(e.Plan(in), 0)
	if err := r.write(&want, "json"); err != nil {
		t.Fatal(err)
	}
	code := exitFine
	if len(r.Unschedulable) > 0 {
		code = exitUnschedulable
	}
	run(code, "plan", "--snapshot", kept, "-o", "json")
	seconds := regexp.MustCompile(`"seconds": [^,\n]*`)
	if got, want := seconds.ReplaceAllString(out.String(), ""), seconds.ReplaceAllString(want.String(), ""); got != want {
		t.Errorf("the snapshot gives\n%s\nthe controller gave\n%s", got, want)
	}
	for _, args := range [][]string{{"--controller", "-f", file}, {"--controller", "--snapshot", kept}, {"--journal", controller.URL}, {"--controller", "--journal", "http://127.0.0.1:1"}} {
		run(exitBadInput, append([]string{"snapshot", "-o", "-"}, args...)...)
	}
}
