package recording

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// tell writes lives as namespace/name cpu memory more from-to, in seconds since the first.
func tell(r *Recording) []string {
	var out []string
	for _, l := range r.Lives {
		asks := l.Pod.Spec.Containers[0].Resources.Requests
		line := fmt.Sprintf("%s/%s cpu=%s mem=%s", l.Pod.Namespace, l.Pod.Name, asks.Cpu(), asks.Memory())
		if gpu, ok := asks["nvidia.com/gpu"]; ok {
			line += " gpu=" + gpu.String()
		}
		line += fmt.Sprintf(" %d-", int(l.From.Sub(r.Begin).Seconds()))
		if !l.To.IsZero() {
			line += fmt.Sprint(int(l.To.Sub(r.Begin).Seconds()))
		}
		out = append(out, line)
	}
	return out
}

const (
	captureText = `{"cluster": "c", "captured": "2026-06-01T12:00:00Z", "events": [
 {"type": "create", "kind": "Deployment", "key": "shop/web", "timestamp": "2026-06-01T10:00:00Z",
  "deployment": {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}}},
 {"type": "scale", "kind": "Deployment", "key": "shop/web", "replicas": 3, "timestamp": "2026-06-01T10:01:00Z"},
 {"type": "scale", "kind": "Deployment", "key": "shop/web", "replicas": 1, "timestamp": "2026-06-01T10:02:00Z"},
 {"type": "scale", "kind": "Deployment", "key": "shop/web", "replicas": 0, "timestamp": "2026-06-01T10:03:00Z"},
 {"type": "scale", "kind": "Deployment", "key": "shop/web", "replicas": 1, "timestamp": "2026-06-01T10:04:00Z"},
 {"type": "create", "kind": "Job", "key": "shop/sum", "timestamp": "2026-06-01T10:00:30Z",
  "job": {"metadata": {"name": "sum", "namespace": "shop"}, "spec": {"parallelism": 3, "completions": 1, "template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}}}}},
 {"type": "delete", "kind": "Deployment", "key": "shop/web", "timestamp": "2026-06-01T10:05:00Z"}
]}`
	watchText = `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web-1", "namespace": "shop", "uid": "1", "creationTimestamp": "2026-06-01T10:00:00Z",
  "ownerReferences": [{"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "web", "uid": "rs", "controller": true}]},
 "spec": {"nodeName": "n1", "volumes": [{"name": "v"}], "containers": [{"name": "c", "env": [{"name": "A", "value": "b"}], "resources": {"requests": {"cpu": "1"}}}]}}
{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web-1", "namespace": "shop", "uid": "1", "creationTimestamp": "2026-06-01T10:00:00Z",
  "deletionTimestamp": "2026-06-01T10:01:30Z", "deletionGracePeriodSeconds": 30,
  "ownerReferences": [{"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "web", "uid": "rs", "controller": true}]},
 "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
 "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}}
{"kind": "List", "apiVersion": "v1", "items": [
 {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web-2", "namespace": "shop", "uid": "2", "creationTimestamp": "2026-06-01T10:01:02Z",
  "ownerReferences": [{"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "web", "uid": "rs", "controller": true}]},
  "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
 {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}}]}
{"type": "ADDED", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "job", "namespace": "shop", "uid": "3", "creationTimestamp": "2026-06-01T10:02:00Z"},
  "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}}
{"type": "MODIFIED", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "job", "namespace": "shop", "uid": "3", "creationTimestamp": "2026-06-01T10:02:00Z"},
  "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
  "status": {"phase": "Succeeded", "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-06-01T10:03:00Z"}}}]}}}
{"type": "DELETED", "at": "2026-06-01T10:04:00Z", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web-2", "namespace": "shop", "uid": "2", "creationTimestamp": "2026-06-01T10:01:02Z"},
  "spec": {"containers": [{"name": "c"}]}}}
{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "ds-1", "uid": "4", "creationTimestamp": "2026-06-01T10:00:00Z",
  "ownerReferences": [{"kind": "DaemonSet", "apiVersion": "apps/v1", "name": "ds", "uid": "ds", "controller": true}]}, "spec": {"containers": [{"name": "c"}]}}
`
)

func TestFormats(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"a table of pods": {
			"name,namespace,app,created,deleted,cpu,memory,gpu\nb,shop,web,2026-06-01T10:00:10Z,,500m,1Gi,\na,,,2026-06-01T10:00:00Z,2026-06-01T11:00:00Z,2,,1\n",
			[]string{"default/a cpu=2 mem=0 gpu=1 0-3600", "shop/b cpu=500m mem=1Gi 10-"},
		},
		"rows may stand for many pods and have no name": {
			"created,cpu,count\n100,1,2\n", []string{"default/line-2-0 cpu=1 mem=0 0-", "default/line-2-1 cpu=1 mem=0 0-"},
		},
		"the columns of Alibaba's trace": {
			"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n" +
				"openb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,0\nopenb-pod-0061,11908,47104,0,0,V100M16|V100M32,BE,Pending,10001278,10001403,\n",
			[]string{"default/openb-pod-0000 cpu=12 mem=16Gi gpu=1 0-12537496", "default/openb-pod-0061 cpu=11908m mem=46Gi 10001278-10001403"},
		},
		"what kubereplay captured: scaled up and down, the newest goes first": {captureText, []string{
			"shop/web-1 cpu=1 mem=0 0-180", "shop/web-2 cpu=1 mem=0 0-120", "shop/sum-1 cpu=2 mem=0 30-", "shop/web-3 cpu=1 mem=0 60-120", "shop/web-4 cpu=1 mem=0 240-300",
		}},
		"what kubectl saw: an evicted pod goes on in the one that its owner makes": {watchText, []string{
			"shop/web-1 cpu=1 mem=0 0-240", "shop/job cpu=2 mem=0 120-180",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Read("file", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, tell(r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatIsNotWantedIsLeftOut(t *testing.T) {
	r, err := Read("file", []byte(watchText))
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Lives[0].Pod; p.Spec.NodeName != "" || p.Spec.Volumes != nil || len(p.Status.Conditions) > 0 {
		t.Errorf("%+v", p)
	}
}

func TestAWatchedPodThatIsDeletedInTheFarPast(t *testing.T) {
	text := strings.Replace(watchText, "2026-06-01T10:01:30Z", "0001-01-01T00:00:00Z", 1)
	if _, err := Read("file", []byte(text)); err != nil {
		t.Error(err)
	}
}

// Every error says where it is and what to do.
func TestBadInput(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"an empty file":                       {" \n", `file:1: the file is empty`},
		"a column that there is not":          {"name,created,cpus\n", `file:1: there is no column "cpus"; use some of app, count, cpu`},
		"a column twice":                      {"created,cpu,CPU\n", `file:1: column "cpu" stands there twice`},
		"no times":                            {"name,cpu\na,1\n", `file:1: there is no column created`},
		"a line with too many fields":         {"created,cpu\n0,1\n0,1,2\n", `file:3: wrong number of fields; every line has as many`},
		"a quote that does not end":           {"created,cpu\n0,\"1\n", `file:2: extraneous or missing "`},
		"no amount":                           {"created,cpu\n0,many\n", `file:2: cpu "many": write an amount such as 500m`},
		"less than nothing":                   {"created,memory\n0,-1Gi\n", `file:2: memory "-1Gi": write an amount`},
		"no time":                             {"created,cpu\nyesterday,1\n", `file:2: created "yesterday": write a time as 2026-06-01T12:00:00Z, or as seconds`},
		"a time that is none":                 {"created,cpu\nNaN,1\n", `file:2: created "NaN": write a time`},
		"the wrong order":                     {"created,deleted\n100,50\n", `file:2: the pod is deleted at 1970-01-01T00:00:50Z, before it is created`},
		"no beginning":                        {"created,cpu\n,1\n", `file:2: created is empty`},
		"too many at once":                    {"created,count\n0,1000000\n", `file:2: count "1000000": write a number from 1 to 100000`},
		"a selector that is none":             {"created,node_selector\n0,zone\n", `file:2: node_selector "zone": write key=value`},
		"no pod at all":                       {"created,cpu\n", `file: there is no pod in it`},
		"JSON that was cut":                   {"{\"kind\": \"Pod\",\n\"metadata\": {", `file:2: no valid JSON: unexpected EOF; was the file cut?`},
		"an object that is none":              {"{\"a\": 1}", `file:1: the object has no kind`},
		"a pod without time":                  {"{\"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}}", `file:1: pod a has no creationTimestamp`},
		"an event of no kind":                 {"{\"type\": \"ERROR\", \"object\": {\"kind\": \"Status\"}}", `file:1: an event's type is ADDED, MODIFIED or DELETED`},
		"a scale of what nothing created":     {strings.Replace(captureText, `"type": "create", "kind": "Deployment"`, `"type": "scale", "kind": "Deployment"`, 1), `file:2: scale of Deployment shop/web, which nothing created`},
		"a scale without a number":            {strings.Replace(captureText, `"replicas": 3, `, ``, 1), `file:4: scale has no replicas`},
		"a scale below nothing":               {strings.Replace(captureText, `"replicas": 3,`, `"replicas": -3,`, 1), `file:4: -3 replicas; write a number from 0`},
		"an event of a captured time of none": {strings.Replace(captureText, `10:01:00Z`, `10 o'clock`, 1), `file:4: parsing time`},
		"a captured event of no type":         {strings.Replace(captureText, `"type": "delete"`, `"type": "forget"`, 1), `file:10: type "forget" is none of create, scale and delete`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read("file", []byte(tc.text))
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("%v\nwant %s…", err, tc.want)
			}
		})
	}
}

func TestCut(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0).UTC() }
	whole, err := Read("file", []byte("name,created,deleted\na,1000,1100\nb,1050,1300\nc,1200,\nd,1400,1500\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		from, to time.Time
		want     string
		length   int
	}{
		"all of it":                              {time.Time{}, time.Time{}, "a 0-100 b 50-300 c 200- d 400-500 ", 500},
		"what is there begins with it":           {at(60), at(250), "a 0-40 b 0- c 140- ", 190},
		"what ended just then is gone":           {at(100), time.Time{}, "b 0-200 c 100- d 300-400 ", 400},
		"what begins just then is not there yet": {time.Time{}, at(200), "a 0-100 b 50- ", 200},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := whole.Cut(tc.from, tc.to)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, line := range tell(r) {
				f := strings.Fields(line)
				got += strings.TrimPrefix(f[0], "default/") + " " + f[len(f)-1] + " "
			}
			if got != tc.want || int(r.End.Sub(r.Begin).Seconds()) != tc.length {
				t.Errorf("%s%v, want %s%ds", got, r.End.Sub(r.Begin), tc.want, tc.length)
			}
		})
	}
	for _, ends := range [][2]time.Time{{at(300), at(200)}, {at(600), at(700)}} {
		if _, err := whole.Cut(ends[0], ends[1]); err == nil && ends[0].After(ends[1]) {
			t.Errorf("nothing lies between %v", ends)
		}
	}
}

// A pod that is there when a recording begins is as old as it is, however often the recording is cut.
func TestAgesOutlastACut(t *testing.T) {
	r, err := Read("file", []byte("name,created\na,1000\nb,1200\n"))
	for _, begin := range []int64{1050, 1100} {
		if err == nil {
			r, err = r.Cut(time.Unix(begin, 0), time.Time{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if a, b := r.Lives[0].Made, r.Lives[1].Made; a.Unix() != 1000 || !b.IsZero() {
		t.Errorf("what was there was made at %v, what came later at %v", a, b)
	}
}

func TestPodsThatAreAlikeShareWhatTheySay(t *testing.T) {
	r, err := Read("file", []byte("created,cpu\n0,1\n5,1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := r.Lives[0].Pod, r.Lives[1].Pod; &a.Spec.Containers[0] != &b.Spec.Containers[0] {
		t.Error("two pods of one kind have a spec each")
	}
}

// Whatever is read is a recording that can be played, or an error with a line.
func check(t *testing.T, text []byte, err error, r *Recording) {
	t.Helper()
	if err != nil {
		if !strings.HasPrefix(err.Error(), "file:") {
			t.Errorf("%q: the error names no place: %v", text, err)
		}
		return
	}
	for i, l := range r.Lives {
		if l.Pod.Name == "" && l.Pod.Namespace == "" || l.From.Before(r.Begin) || l.From.After(r.End) || !l.To.IsZero() && (l.To.Before(l.From) || l.To.After(r.End)) {
			t.Errorf("%q: life %d is %v to %v in %v to %v", text, i, l.From, l.To, r.Begin, r.End)
		}
		for name, q := range resourcesOf(l.Pod) {
			if q < 0 {
				t.Errorf("%q: pod asks for %d of %s", text, q, name)
			}
		}
	}
}

func resourcesOf(p *corev1.Pod) map[corev1.ResourceName]int64 {
	out := map[corev1.ResourceName]int64{}
	for _, c := range p.Spec.Containers {
		for name, q := range c.Resources.Requests {
			out[name] = q.Value()
		}
	}
	return out
}

func FuzzTable(f *testing.F) {
	f.Add("name,created,deleted,cpu\na,0,10,1\n")
	f.Add("created,count,node_selector,gpu,gpu_resource,priority,do_not_disrupt\n0,3,a=b;c=d,1,amd.com/gpu,5,true\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<12 || strings.Contains(text, "count") && len(text) > 200 {
			return
		}
		s := source{"file", []byte(text)}
		lives, err := readTable(s)
		if err == nil {
			r, bad := Of("file", lives, time.Time{})
			check(t, s.text, bad, r)
			return
		}
		check(t, s.text, err, nil)
	})
}

func FuzzCapture(f *testing.F) {
	f.Add([]byte(captureText))
	f.Fuzz(func(t *testing.T, text []byte) {
		lives, err := readCapture(source{"file", text})
		if err != nil {
			check(t, text, err, nil)
			return
		}
		r, err := Of("file", lives, time.Time{})
		if err == nil && len(lives) < 1000 {
			for _, l := range r.Lives {
				if !l.To.IsZero() && l.To.Before(l.From) {
					t.Errorf("a life from %v to %v", l.From, l.To)
				}
			}
		}
	})
}

func FuzzWatch(f *testing.F) {
	f.Add([]byte(watchText))
	f.Fuzz(func(t *testing.T, text []byte) {
		w, err := readWatch(source{"file", text})
		if err != nil {
			check(t, text, err, nil)
			return
		}
		r, err := Of("file", w.joinedLives(), w.end)
		if err != nil {
			return
		}
		for _, l := range r.Lives {
			if !l.To.IsZero() && l.To.Before(l.From) || l.To.After(r.End) {
				t.Errorf("a life from %v to %v, of a recording to %v", l.From, l.To, r.End)
			}
		}
	})
}
