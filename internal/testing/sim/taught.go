package sim

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/learn"
	"karpenter.sh/karpenter/internal/core/forecast"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// A Change is so many pods of an application that come, or go where it is negative, at a time of the day.
type Change struct {
	At   time.Duration
	App  string
	Pods int
}

// Taught returns what a process has learned of the pool "default" that lived through so many days until midnight. Day -1 is the last of
// them, and whose machines cost so many dollars a day. Pods have a place at once. All that are left go at the end of a day.
func Taught(t *testing.T, days int, midnight time.Time, bill float64, changes func(day int) []Change,
	pod func(app string, number int) *corev1.Pod) []byte {
	t.Helper()
	metrics := telemetry.NewMetrics(prometheus.NewRegistry(), nil)
	l := learn.New(nil, metrics, telemetry.NewEvents(nil, metrics), 0.9)
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		p := Pool("default")
		p.Annotations = map[string]string{v1.LearnAnnotationKey: "true"}
		cluster.Pools.Put(d, p)
		d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1.NodePoolLabelKey: "default"}}})
		d.Synced(true)
	})
	made := 0
	for day := -days; day < 0; day++ {
		began, all, alive := midnight.AddDate(0, 0, day), changes(day), map[string][]cluster.PodKey{}
		for tick := time.Duration(0); tick < 24*time.Hour; tick += 10 * time.Second {
			news := false
			for ; len(all) > 0 && all[0].At <= tick; all = all[1:] {
				news = true
				store.Update(func(d *cluster.Draft) {
					for range all[0].Pods {
						made++
						p := pod(all[0].App, made)
						p.UID, p.CreationTimestamp, p.Spec.NodeName = types.UID(p.Name), metav1.NewTime(began.Add(all[0].At)), "n"
						d.PutPod(p)
						alive[all[0].App] = append(alive[all[0].App], cluster.PodKey{Namespace: p.Namespace, Name: p.Name})
					}
					for range -all[0].Pods {
						d.DeletePod(alive[all[0].App][0])
						alive[all[0].App] = alive[all[0].App][1:]
					}
				})
			}
			if news || tick%time.Minute == 0 {
				l.Turn(t.Context(), store.Snapshot(), began.Add(tick), time.Minute, 0)
			}
		}
		store.Update(func(d *cluster.Draft) {
			for _, keys := range alive {
				for _, k := range keys {
					d.DeletePod(k)
				}
			}
		})
	}
	kept, err := l.Kept()
	if err != nil {
		t.Fatal(err)
	}
	return withBill(t, kept, bill)
}

// withBill writes the usual bill of a day into the histories of a Learner: the machine of Taught has no price.
func withBill(t *testing.T, kept []byte, bill float64) []byte {
	t.Helper()
	text, err := gzip.NewReader(bytes.NewReader(kept))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Object  forecast.Object   `json:"object"`
		History *forecast.History `json:"history"`
	}
	if err := json.NewDecoder(text).Decode(&all); err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		x.History.Balance.Usual = bill
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(zip).Encode(all), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}
