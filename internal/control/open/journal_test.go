package open

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/benchload"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// many is a question about so many pods of all sizes, and a pool that may buy machines of 4 to 64 cores for them.
func many(pods int) engine.Question {
	var kinds []*cloud.InstanceType
	for i, cores := range []int64{4, 8, 16, 32, 48, 64} {
		kinds = append(kinds, fakecloud.Kind(fmt.Sprintf("m%d", cores), cores, float64(cores)*0.05+0.001*float64(i), "a"))
	}
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"}}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "test", Kind: "Class", Name: "default"}
	random := rand.New(rand.NewPCG(1, 1))
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, pool)
		for i := range pods {
			d.PutPod(benchload.Pending(fmt.Sprintf("web-%05d", i), []int64{250, 500, 1000, 1500, 2000}[random.IntN(5)], []int64{512, 1 << 10, 2 << 10, 6 << 10}[random.IntN(4)]))
		}
		d.Synced(true)
	})
	snap := store.Snapshot()
	return engine.Question{Snap: snap, Pods: snap.Provisionable(), Pools: []engine.Pool{{Pool: pool, Catalog: &cloud.Catalog{Types: kinds}}}, Settings: engine.Settings{Search: work.Second / 10}}
}

// tell writes what a plan opens into a journal, as the service does when the claims are there.
func tell(j *journal.Journal, q *engine.Question, plan *engine.Plan) {
	s := &Service{Journal: j}
	m := machinesOf(q.Pools[0].Catalog)
	for i := range plan.Open {
		s.Journal.Add(s.record(&task{opening: &plan.Open[i], reason: "provisioned", machines: m, created: plan.Open[i].Claim}))
	}
}

// A decision is one record, whatever the number of its pods, and is made of few pieces.
func TestRecordsOfAPlanAreFewAndSmall(t *testing.T) {
	q := many(500)
	plan := engine.New(label.Table{}).Plan(q)
	j := journal.New()
	tell(j, &q, plan)
	if got := len(j.Select(journal.Query{})); got != len(plan.Open) || got == 0 {
		t.Errorf("%d records of %d openings", got, len(plan.Open))
	}
	if got := testing.AllocsPerRun(20, func() { tell(j, &q, plan) }) / float64(len(plan.Open)); got > 30 {
		t.Errorf("%.0f allocations for a record", got)
	}
}

// BenchmarkJournal is what the journal costs beside what it tells of, a plan and the claims that are made for it. The aim is a hundredth of
// what a loop costs; one and a half are allowed, because an API in memory costs a fraction of a real one. What a folder costs is paid once a
// second beside the loops, and only told.
func BenchmarkJournal(b *testing.B) {
	for _, pods := range []int{100, 10_000} {
		b.Run(fmt.Sprint(pods, " pods"), func(b *testing.B) {
			q, j := many(pods), journal.New()
			keeper := journal.NewKeeper(b.TempDir())
			defer keeper.Close()
			var loop, records, kept time.Duration // kept is that of several times the records
			for b.Loop() {
				metrics := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
				s := New(cluster.NewStore(), memapi.New(memapi.Scheme()).Client("main"), sold(q.Pools), metrics,
					telemetry.NewEvents(func(context.Context, *corev1.Event) error { return nil }, metrics))
				s.store.Update(func(d *cluster.Draft) { d.Synced(true); cluster.Pools.Put(d, q.Pools[0].Pool) })
				began := benchload.ProcessorTime()
				plan := engine.New(label.Table{}).Plan(q)
				if _, err := s.Open(b.Context(), "seed", "provisioned", plan.Open); err != nil {
					b.Fatal(err)
				}
				loop += benchload.ProcessorTime() - began
				records += quickest(func() { tell(j, &q, plan) })
				told := benchload.ProcessorTime()
				if err := keeper.Keep(j); err != nil {
					b.Fatal(err)
				}
				kept += benchload.ProcessorTime() - told
			}
			b.ReportMetric(100*float64(records)/float64(loop), "journal-%")
			b.ReportMetric(100*float64(kept)/tries/float64(loop), "folder-%")
			if records > 3*loop/200 {
				b.Errorf("the journal takes %v beside %v of the loop", records, loop)
			}
		})
	}
}

const tries = 20

// quickest is the shortest of some times, without what others did meanwhile.
func quickest(do func()) time.Duration {
	least := time.Hour
	for range tries {
		began := time.Now()
		do()
		least = min(least, time.Since(began))
	}
	return least
}

// sold are the pools of a question.
type sold []engine.Pool

func (s sold) Pools(context.Context, *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	out := map[string]engine.Pool{}
	for _, p := range s {
		out[p.Pool.Name] = p
	}
	return out, nil
}
