package recording

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
)

var ten = time.Date(2026, 6, 1, 10, 0, 0, 0, time.UTC)

// planted is in every place of a pod where a secret could be.
const planted = "s3cr3t"

func running(name string, age time.Duration) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(ten.Add(-age)), Labels: map[string]string{"app": "web"},
		Annotations:     map[string]string{"note": planted, "karpenter.sh/do-not-disrupt": "30m"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: new(true)}},
	}}
	p.Spec.NodeName = "n1"
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: planted}}
	p.Spec.ServiceAccountName = planted
	p.Spec.Containers = []corev1.Container{{
		Name: planted, Image: planted, Command: []string{planted}, Args: []string{planted}, Env: []corev1.EnvVar{{Name: planted, Value: planted}},
		EnvFrom:   []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: planted}}}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}}
	p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: planted, Env: []corev1.EnvVar{{Name: "A", Value: planted}}}}
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: planted}}}}
	p.Status.Phase, p.Status.Message = corev1.PodRunning, planted
	return p
}

// A kept world is a store and who records it.
type keptWorld struct {
	store  *cluster.Store
	folder string
}

func newKept(t *testing.T) *keptWorld {
	w := &keptWorld{cluster.NewStore(), filepath.Join(t.TempDir(), "new")}
	w.store.Update(func(d *cluster.Draft) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1"}}
		d.PutNode(n)
		d.Synced(true)
	})
	return w
}

// at changes the world some seconds after ten and has it recorded.
func (w *keptWorld) at(t *testing.T, k *Keeper, seconds int, edit func(d *cluster.Draft)) {
	t.Helper()
	w.store.Update(edit)
	if err := k.Keep(w.store.Snapshot(), ten.Add(time.Duration(seconds)*time.Second)); err != nil {
		t.Fatal(err)
	}
}

func (w *keptWorld) read(t *testing.T) (lives []string, torn int) {
	t.Helper()
	r, torn, err := ReadFolder(w.folder)
	if err != nil {
		t.Fatal(err)
	}
	return tell(r), torn
}

func gone(name string) func(*cluster.Draft) {
	return func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: "shop", Name: name}) }
}

func put(p *corev1.Pod) func(*cluster.Draft) { return func(d *cluster.Draft) { d.PutPod(p) } }

func TestWhatIsKeptIsReadAgain(t *testing.T) {
	w := newKept(t)
	k := NewKeeper(w.folder)
	w.at(t, k, 0, func(d *cluster.Draft) { d.PutPod(running("old", time.Hour)); d.PutPod(running("new", 0)) })
	w.at(t, k, 60, put(running("late", -60*time.Second)))
	w.at(t, k, 120, gone("new"))
	k.Close()
	w.store.Update(gone("old")) // while nobody records
	k = NewKeeper(w.folder)     // a restart begins a file
	defer k.Close()
	w.at(t, k, 180, put(running("last", -180*time.Second)))
	want := []string{"shop/new cpu=1 mem=0 0-120", "shop/old cpu=1 mem=0 0-", "shop/late cpu=1 mem=0 60-", "shop/last cpu=1 mem=0 180-"}
	got, torn := w.read(t)
	if diff := cmp.Diff(want, got); diff != "" || torn != 0 {
		t.Error(diff, torn)
	}
}

// Files are begun in the middle of it, the first one is lost, and a crash tears the last line.
func TestEachFileStandsForItself(t *testing.T) {
	w := newKept(t)
	for i, name := range []string{"a", "b", "c"} {
		k := NewKeeper(w.folder)
		w.at(t, k, 60*i, put(running(name, -time.Duration(i)*time.Minute)))
		w.at(t, k, 60*i+30, put(running(name+"-short", -time.Duration(60*i+10)*time.Second)))
		w.at(t, k, 60*i+50, gone(name+"-short"))
		k.Close()
	}
	files, err := filepath.Glob(filepath.Join(w.folder, pattern))
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(files[2])
	if err != nil || os.WriteFile(files[2], text[:len(text)-9], 0o600) != nil {
		t.Fatal(err)
	}
	got, torn := w.read(t) // it begins with the second file, at one minute; the end of the last pod is what was torn
	want := []string{"shop/a cpu=1 mem=0 0-", "shop/b cpu=1 mem=0 0-", "shop/b-short cpu=1 mem=0 10-50", "shop/c cpu=1 mem=0 60-", "shop/c-short cpu=1 mem=0 70-"}
	if diff := cmp.Diff(want, got); diff != "" || torn != 1 {
		t.Error(diff, torn)
	}
	if err := os.WriteFile(files[2], text[:len(text)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	got, torn = w.read(t) // the last line lost nothing but its end
	want[4] = "shop/c-short cpu=1 mem=0 70-110"
	if diff := cmp.Diff(want, got); diff != "" || torn != 0 {
		t.Error(diff, torn)
	}
}

// When a file is full the next one says what ended in between, too.
func TestNothingIsLostBetweenFiles(t *testing.T) {
	w := newKept(t)
	k := NewKeeper(w.folder)
	defer k.Close()
	w.at(t, k, 0, put(running("a", 0)))
	w.at(t, k, 10, put(running("b", -10*time.Second)))
	k.listed = -fileBytes // full
	w.at(t, k, 20, func(d *cluster.Draft) { gone("a")(d); d.PutPod(running("c", -20*time.Second)) })
	files, _ := filepath.Glob(filepath.Join(w.folder, pattern))
	want := []string{"shop/a cpu=1 mem=0 0-20", "shop/b cpu=1 mem=0 10-", "shop/c cpu=1 mem=0 20-"}
	got, _ := w.read(t)
	if diff := cmp.Diff(want, got); diff != "" || len(files) != 2 || k.listed <= 0 {
		t.Error(diff, files, k.listed)
	}
}

func TestAnEvictedPodGoesOn(t *testing.T) {
	w := newKept(t)
	k := NewKeeper(w.folder)
	defer k.Close()
	w.at(t, k, 0, put(running("a", 0)))
	w.at(t, k, 30, func(d *cluster.Draft) { d.MarkForRemoval("n1") })
	w.at(t, k, 60, func(d *cluster.Draft) {
		gone("a")(d)
		p := running("b", -61*time.Second)
		p.Spec.NodeName = ""
		d.PutPod(p)
	})
	if got, _ := w.read(t); len(got) != 1 || got[0] != "shop/a cpu=1 mem=0 0-" {
		t.Errorf("%q", got)
	}
}

func TestNothingSecretIsRecorded(t *testing.T) {
	w := newKept(t)
	k := NewKeeper(w.folder)
	defer k.Close()
	w.at(t, k, 0, put(running("a", 0)))
	w.at(t, k, 10, gone("a"))
	files, _ := filepath.Glob(filepath.Join(w.folder, pattern))
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil || strings.Contains(string(text), planted) || !strings.Contains(string(text), `"karpenter.sh/do-not-disrupt":"30m"`) {
			t.Errorf("%v %s", err, text)
		}
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info.Mode(), err)
		}
	}
}

// What is written again and again is only what changed.
func TestWhatStaysIsNotWrittenAgain(t *testing.T) {
	w := newKept(t)
	k := NewKeeper(w.folder)
	defer k.Close()
	w.at(t, k, 0, put(running("a", 0)))
	before, _ := k.folder.Written()
	w.at(t, k, 10, func(d *cluster.Draft) {
		p := running("a", 0)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		d.PutPod(p)
	})
	if after, _ := k.folder.Written(); after != before {
		t.Errorf("%d bytes became %d", before, after)
	}
}

// A store that knows nothing yet is no cluster without pods.
func TestNothingIsKeptBeforeTheFirstList(t *testing.T) {
	k := NewKeeper(filepath.Join(t.TempDir(), "none"))
	if err := k.Keep(cluster.NewStore().Snapshot(), ten); err != nil {
		t.Fatal(err)
	}
	if _, open := k.folder.Written(); open {
		t.Error("a file was begun")
	}
}

func TestAFolderWithoutRecording(t *testing.T) {
	if _, _, err := ReadFolder(t.TempDir()); err == nil || !strings.Contains(err.Error(), "--record-dir") {
		t.Error(err)
	}
}

// A recording tells where the disks of pods are, once in a file, and nothing of what is on them.
func TestDisksAreKept(t *testing.T) {
	w := newKept(t)
	w.store.Update(func(d *cluster.Draft) {
		notes := map[string]string{"note": planted, bound: "yes"}
		cluster.StorageClasses.Put(d, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "ssd", Annotations: notes}, Provisioner: "ebs.csi.aws.com", Parameters: map[string]string{"key": planted}})
		cluster.PVs.Put(d, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "vol", Annotations: notes}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: planted, VolumeAttributes: map[string]string{"key": planted}}}}})
		cluster.PVCs.Put(d, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", Annotations: notes}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("ssd"), VolumeName: "vol"}})
		for _, name := range []string{"a", "b"} {
			p := running(name, time.Hour)
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}})
			d.PutPod(p)
		}
	})
	k := NewKeeper(w.folder)
	defer k.Close()
	if err := k.Keep(w.store.Snapshot(), ten); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(w.folder, pattern))
	text, err := os.ReadFile(files[0])
	if err != nil || strings.Contains(string(text), planted) || strings.Count(string(text), `"kind":"PersistentVolumeClaim"`) != 1 {
		t.Errorf("%v, %s", err, text)
	}
	r, torn, err := ReadFolder(w.folder)
	if err != nil || torn != 0 || len(r.Lives) != 2 {
		t.Fatal(r, torn, err)
	}
	d := r.Disks
	if len(d.Claims) != 1 || len(d.Volumes) != 1 || len(d.Classes) != 1 || d.Claims[0].Spec.VolumeName != "vol" || d.Claims[0].Annotations[bound] != "yes" ||
		d.Volumes[0].Spec.CSI.Driver != "ebs.csi.aws.com" || d.Classes[0].Provisioner != "ebs.csi.aws.com" {
		t.Errorf("%+v", d)
	}
	for _, l := range r.Lives {
		if len(l.Pod.Spec.Volumes) != 1 || l.Pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data" || l.On != "n1" {
			t.Errorf("%s has volumes %v and is on %q", l.Pod.Name, l.Pod.Spec.Volumes, l.On)
		}
	}
}
