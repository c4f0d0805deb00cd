package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	controlcatalog "karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
	"karpenter.sh/karpenter/internal/ui/cli"
	"karpenter.sh/karpenter/internal/ui/page"
)

// planted is wherever people keep what nobody else is to read, and nowhere else.
const planted = "hunter2"

var note = map[string]string{"vault.example.com/token": planted}

// entrusted puts a secret into every place of a pod that decisions do not read.
func entrusted(p *corev1.Pod) {
	p.Annotations = map[string]string{"vault.example.com/token": planted, "kubectl.kubernetes.io/last-applied-configuration": `{"env":"` + planted + `"}`}
	p.Spec.ServiceAccountName = planted
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: planted}}
	p.Spec.Volumes = []corev1.Volume{
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: planted}}},
		{Name: "map", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: planted}}}},
		{Name: "path", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/" + planted}}},
	}
	c := &p.Spec.Containers[0]
	c.Name, c.Image, c.Command, c.Args, c.WorkingDir = planted, planted, []string{planted}, []string{"--key=" + planted}, "/"+planted
	c.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: planted}}
	c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: planted}}}}
	p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: planted, Env: []corev1.EnvVar{{Name: "PASSWORD", Value: planted}}, Args: []string{planted}}}
	p.Status.Message = planted
}

// entrust does the same to pools, node classes, claims and nodes.
func entrust(w *sim.World) {
	for _, p := range memapi.All[*v1.NodePool](w.API) {
		memapi.Edit(w.API, "", p.Name, func(p *v1.NodePool) { p.Annotations, p.Spec.Template.Annotations = note, note })
	}
	for _, c := range memapi.All[*awsv1.EC2NodeClass](w.API) {
		memapi.Edit(w.API, "", c.Name, func(c *awsv1.EC2NodeClass) {
			c.Annotations, c.Spec.UserData, c.Spec.Tags = note, new("#!/bin/sh\necho "+planted), map[string]string{"token": planted}
		})
	}
	for _, n := range memapi.All[*corev1.Node](w.API) {
		memapi.Edit(w.API, "", n.Name, func(n *corev1.Node) { n.Annotations = note })
	}
}

// viewer is a browser whose connection waits for it.
type viewer struct{ *httptest.ResponseRecorder }

func (viewer) SetWriteDeadline(time.Time) error { return nil }

// TestNoSecretReachesTheJournal has every act there is in a cluster full of secrets, and looks for them wherever decisions can be read: in memory, in
// the files of --journal-dir, in what "karpenter history" prints, in both answers of the page, and in the log.
func TestNoSecretReachesTheJournal(t *testing.T) {
	var log bytes.Buffer
	said := map[string][]byte{}
	sim.Bubble(t, sim.Options{}, doingAll(&log), func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		entrust(w)
		shown := page.New(page.Deps{Store: k.Store, Catalogs: controlcatalog.New(w.Cloud), Journal: k.Journal, Verdicts: board.New(), Metrics: k.Metrics, Leading: func() bool { return true }})
		ctx, stop := context.WithCancel(t.Context())
		drawn, looked := make(chan struct{}), make(chan struct{})
		go func() { defer close(drawn); _ = shown.Run(ctx) }()
		look := func(accept string) []byte {
			to := viewer{httptest.NewRecorder()}
			q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/picture", nil)
			q.Header.Set("Accept", accept)
			shown.Open().ServeHTTP(to, q)
			return to.Body.Bytes()
		}
		var stream []byte
		go func() {
			defer close(looked)
			for ctx.Err() == nil { // each answer lasts for minutes
				stream = append(stream, look("text/event-stream")...)
			}
		}()
		live(t, w)
		said["the page"] = look("application/json")
		stop()
		<-drawn
		<-looked
		said["the stream of the page"] = stream

		var acts []journal.Act
		for _, r := range k.Journal.Select(journal.Query{}) {
			acts = append(acts, r.Act)
		}
		for _, act := range journal.Acts() {
			if !slices.Contains(acts, act) {
				t.Errorf("nothing was %s: the test does not look at what it should", act)
			}
		}
		var memory bytes.Buffer
		if err := journal.Write(&memory, k.Journal.Select(journal.Query{})); err != nil {
			t.Fatal(err)
		}
		said["the journal in memory"] = memory.Bytes()
		folder := t.TempDir()
		keeper := journal.NewKeeper(folder)
		if err := keeper.Keep(k.Journal); err != nil {
			t.Fatal(err)
		}
		keeper.Close()
		files, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%v: %d files", err, len(files))
		}
		for _, name := range files {
			if said[name], err = os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
		for _, format := range []string{"table", "json"} {
			var out, trouble bytes.Buffer
			if code := cli.Run(t.Context(), cli.Env{Out: &out, Err: &trouble}, []string{"history", "--journal", folder, "--last", "0", "-o", format}); code != 0 {
				t.Fatalf("history: code %d: %s", code, &trouble)
			}
			said["karpenter history -o "+format] = out.Bytes()
		}
	})
	said["the log"] = log.Bytes()
	for where, text := range said {
		if !bytes.Contains(text, []byte("giant")) {
			t.Errorf("%s does not tell what happened: %s", where, text)
		}
		for _, secret := range []string{planted, "vault", "PASSWORD", "last-applied"} {
			if at := bytes.Index(text, []byte(secret)); at >= 0 {
				t.Errorf("%s tells a secret: … %s …", where, text[max(0, at-100):min(len(text), at+100)])
			}
		}
	}
}

// doingAll is a Karpenter that does all there is, and says all of it.
func doingAll(log io.Writer) sim.KarpenterOptions {
	return sim.KarpenterOptions{Provision: true, Disrupt: true, LegacyRepair: true, Telling: sim.Telling{Log: slog.New(telemetry.NewHandler(log, slog.LevelDebug))}}
}

// live has everything happen once of which the journal tells.
func live(t *testing.T, w *sim.World) {
	t.Helper()
	for i := range 3 {
		w.API.Put(sim.Pod(fmt.Sprintf("p-%d", i), "2500m", entrusted))
	}
	w.API.Put(sim.Pod("giant", "900", entrusted)) // refused
	time.Sleep(2 * time.Second)
	w.API.Put(sim.Pod("late", "50m", entrusted)) // placed on the machine that boots
	time.Sleep(time.Minute)
	entrust(w)
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		if strings.HasPrefix(p.Name, "p-") {
			sim.Delete(t, w, p)
		}
	}
	time.Sleep(10 * time.Minute) // a step, and an eviction
	w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
		if c.Method != fakecloud.Launch {
			return fakecloud.Fault{}
		}
		return fakecloud.Fault{Err: &cloud.NoCapacityError{Err: errors.New("none is left")}}
	})
	w.API.Put(sim.Pod("unlucky", "1500m", entrusted, func(p *corev1.Pod) { p.Annotations[v1.DoNotDisruptAnnotationKey] = "true" }))
	time.Sleep(time.Minute)
	w.Cloud.SetFault(nil)
	time.Sleep(5 * time.Minute) // its node is held back
	entrust(w)
	for _, n := range memapi.All[*corev1.Node](w.API) {
		memapi.Edit(w.API, "", n.Name, func(n *corev1.Node) { sim.SetReady(n, corev1.ConditionFalse) })
		break
	}
	time.Sleep(35 * time.Minute) // it is repaired
}
