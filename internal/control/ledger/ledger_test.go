package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/control/catalog"
	control "karpenter.sh/karpenter/internal/control/ledger"
	"karpenter.sh/karpenter/internal/core/ledger"
	"karpenter.sh/karpenter/internal/history/costs"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// A shop sells machines on demand, and spot machines at a price that changes every 25 minutes.
type shop struct {
	began time.Time
	made  map[int]*cloud.Catalog
}

func (s *shop) catalog(*v1.NodePool) (*cloud.Catalog, error) {
	turn := int(time.Since(s.began) / (25 * time.Minute))
	if s.made[turn] == nil {
		c := &cloud.Catalog{}
		for _, it := range []*cloud.InstanceType{sim.Kind("large", 8, 0.4), sim.Kind("small", 2, 0.1)} {
			it.Labels[v1.CapacityTypeLabelKey] = []string{v1.CapacityTypeOnDemand, v1.CapacityTypeSpot}
			for _, o := range it.Offerings {
				spot := o
				spot.Labels = map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeSpot, corev1.LabelTopologyZone: o.Zone()}
				spot.Price = o.Price/3 + cloud.NanoUSD(turn*7919%1000)*1001
				it.Offerings = append(it.Offerings, spot)
			}
			c.Types = append(c.Types, it)
		}
		s.made[turn] = c
	}
	return s.made[turn], nil
}

func (s *shop) price(labels map[string]string) cloud.NanoUSD {
	c, _ := s.catalog(nil)
	price, _ := c.Price(labels)
	return price
}

// A meter counts what machines cost, second by second, from what the API server shows.
type meter struct {
	began  time.Time
	shop   *shop
	quotes map[string]*quote
	total  map[int64]cloud.NanoUSD // nano-dollars an hour × seconds, up to a second
	ended  cloud.NanoUSD           // what machines that ended cost in an hour
}

type quote struct {
	price cloud.NanoUSD
	until int64
}

func (m *meter) second(api *memapi.Server, at int64) {
	sum, seen := m.total[at], map[string]bool{}
	memapi.Each(api, func(c *v1.NodeClaim) {
		launched := meta.FindStatusCondition(c.Status.Conditions, v1.ConditionTypeLaunched)
		if launched == nil || launched.Status != metav1.ConditionTrue {
			return
		}
		seen[c.Name] = true
		since, begin := launched.LastTransitionTime.Unix(), int64(0)
		if c.Labels[v1.CapacityTypeLabelKey] == v1.CapacityTypeSpot {
			begin = since
		}
		q := m.quotes[c.Name]
		if q == nil {
			q = &quote{}
			m.quotes[c.Name] = q
			sum += m.shop.price(c.Labels) * cloud.NanoUSD(max(0, at-max(since, m.began.Unix())))
		}
		if at >= q.until {
			q.price, q.until = m.shop.price(c.Labels), begin+((at-begin)/3600+1)*3600
		}
		sum += q.price
	})
	for name, q := range m.quotes {
		if !seen[name] {
			m.ended += q.price
			delete(m.quotes, name)
		}
	}
	m.total[at+1] = sum
}

// add reads what was kept and adds it up.
func add(t *testing.T, api *memapi.Server) (paid, list cloud.NanoUSD, estimated, until int64) {
	t.Helper()
	var maps []corev1.ConfigMap
	memapi.Each(api, func(c *corev1.ConfigMap) { maps = append(maps, *c) })
	books, until, torn := costs.Books(maps)
	if len(torn) > 0 {
		t.Fatal(torn)
	}
	parts := cloud.NanoUSD(0)
	for i, b := range books {
		end := until + 3600
		if i+1 < len(books) {
			end = books[i+1].First()
		}
		b.Bills(0, end, func(bill *ledger.Bill) {
			paid, list, estimated = paid+bill.Paid, list+bill.List, estimated+bill.Estimated
			for _, p := range bill.Parts {
				if parts += p.Cost; p.Cost < 0 {
					t.Errorf("%+v costs %d", p.Account, p.Cost)
				}
			}
		})
	}
	if parts != paid {
		t.Fatalf("parts %d, bills %d", parts, paid)
	}
	return paid, list, estimated, until
}

// A replica is a process that may lead.
type replica struct {
	ledger *control.Ledger
	name   string
	stop   context.CancelFunc
	done   chan struct{}
}

type cluster struct {
	world   *sim.World
	k       *sim.Karpenter
	shop    *shop
	serial  int
	killed  map[string]bool
	context context.Context
}

func (c *cluster) replica() *replica {
	c.serial++
	r := &replica{name: fmt.Sprint("replica-", c.serial), done: make(chan struct{})}
	r.ledger = control.New(control.Deps{Store: c.k.Store, Client: c.world.API.Client(r.name), Catalogs: catalog.New(c.world.Cloud),
		Metrics: c.k.Metrics}, control.Settings{ConfigMaps: client.ObjectKey{Namespace: "kube-system", Name: "l"}, Labels: []string{"team"}})
	ctx, stop := context.WithCancel(c.context)
	r.stop = stop
	done := r.done
	go func() { _ = r.ledger.Watch(ctx); close(done) }()
	return r
}

// lead makes a replica lead until it is stopped.
func (c *cluster) lead(r *replica) {
	ctx, stop := context.WithCancel(c.context)
	watch, watched, done := r.stop, r.done, make(chan struct{})
	r.stop, r.done = func() { stop(); watch() }, done
	go func() { _ = r.ledger.Run(ctx); <-watched; close(done) }()
}

// end ends a replica; killed ones write nothing any more.
func (c *cluster) end(r *replica, kill bool) {
	c.killed[r.name] = kill
	r.stop()
	<-r.done
}

func test(t *testing.T, do func(*testing.T, *cluster)) {
	s := &shop{made: map[int]*cloud.Catalog{}}
	sim.Bubble(t, sim.Options{Cloud: fakecloud.Options{Catalog: s.catalog}}, sim.KarpenterOptions{Provision: true, Disrupt: true},
		func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			s.began = time.Now()
			for n := range costs.Slots {
				w.API.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: costs.Name("l", n)}})
			}
			ctx, stop := context.WithCancel(telemetry.WithLog(t.Context(), slog.New(slog.DiscardHandler)))
			defer stop()
			c := &cluster{world: w, k: k, shop: s, killed: map[string]bool{}, context: ctx}
			w.API.SetFault(func(r memapi.Request) error {
				if c.killed[r.Client] {
					return errors.New("killed")
				}
				return nil
			})
			do(t, c)
		})
}

// A day of pods that come and go, spot prices that change and leaders that are killed or restarted: every book that is kept adds up, and a
// meter that counts seconds comes to the same but for the last two seconds of machines.
func TestADayAddsUp(t *testing.T) {
	for name, standby := range map[string]bool{"with a standby": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			test(t, func(t *testing.T, c *cluster) {
				random := rand.New(rand.NewPCG(1, 2))
				leader := c.replica()
				c.lead(leader)
				var next *replica
				if standby {
					next = c.replica()
				}
				m := &meter{began: time.Now(), shop: c.shop, quotes: map[string]*quote{}, total: map[int64]cloud.NanoUSD{}}
				pods, last := []string{}, int64(0)
				for second := range 24 * 3600 {
					if second%60 == 7 && random.IntN(3) == 0 {
						if len(pods) > 0 && random.IntN(2) == 0 {
							i := random.IntN(len(pods))
							c.world.API.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pods[i]}})
							pods = append(pods[:i], pods[i+1:]...)
						} else if len(pods) < 25 {
							name := fmt.Sprint("p", second)
							c.world.API.Put(sim.Pod(name, fmt.Sprintf("%dm", 200+random.IntN(1800))))
							pods = append(pods, name)
						}
					}
					if second%3000 == 2990 {
						c.end(leader, random.IntN(2) == 0)
						if leader = next; leader == nil {
							leader = c.replica()
						} else {
							next = c.replica()
						}
						c.lead(leader)
					}
					m.second(c.world.API, time.Now().Unix())
					time.Sleep(time.Second)
					if second%60 != 59 {
						continue
					}
					paid, list, estimated, until := add(t, c.world.API)
					if until == last {
						continue
					}
					last = until
					want := m.total[until] / 3600
					slack := m.ended*5/3600 + 200
					if !standby {
						slack += m.ended * 300 / 3600
					}
					if paid < want-slack || paid > want+slack || list < paid || standby && estimated > 0 {
						t.Fatalf("after %d s: paid %d, want %d ± %d; list %d, %d s estimated", second, paid, want, slack, list, estimated)
					}
				}
				if last == 0 || m.ended == 0 || len(m.quotes) == 0 {
					t.Error("nothing happened")
				}
				c.end(leader, false)
				if next != nil {
					c.end(next, false)
				}
			})
		})
	}
}

// What is not there costs an error in the log, and no more: the loop goes on and begins when the ConfigMaps come.
func TestALedgerWithoutConfigMapsBeginsWhenTheyCome(t *testing.T) {
	test(t, func(t *testing.T, c *cluster) {
		for n := range costs.Slots {
			c.world.API.Remove(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: costs.Name("l", n)}})
		}
		leader := c.replica()
		c.lead(leader)
		c.world.API.Put(sim.Pod("p", "1"))
		time.Sleep(10 * time.Minute)
		for n := range costs.Slots {
			c.world.API.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: costs.Name("l", n)}})
		}
		time.Sleep(10 * time.Minute)
		if paid, _, _, _ := add(t, c.world.API); paid == 0 {
			t.Error("nothing was kept")
		}
		c.end(leader, false)
	})
}

// A book that is torn costs its hours. The ledger goes on in the next ConfigMap, and the reader names the torn one.
func TestATornBookIsLeftBehind(t *testing.T) {
	test(t, func(t *testing.T, c *cluster) {
		memapi.Edit(c.world.API, "kube-system", "l-7", func(m *corev1.ConfigMap) {
			m.Data, m.BinaryData = map[string]string{"sequence": "27"}, map[string][]byte{"ledger.json.gz": []byte("torn")}
		})
		leader := c.replica()
		c.lead(leader)
		c.world.API.Put(sim.Pod("p", "1"))
		time.Sleep(10 * time.Minute)
		c.end(leader, false)
		var maps []corev1.ConfigMap
		memapi.Each(c.world.API, func(m *corev1.ConfigMap) { maps = append(maps, *m) })
		if books, _, torn := costs.Books(maps); len(books) != 1 || len(torn) != 1 || !strings.Contains(torn[0].Error(), "kube-system/l-7") {
			t.Errorf("%d books, torn: %v", len(books), torn)
		}
	})
}

// Workloads are named after their owners; Jobs of a CronJob are one workload.
func TestWhoPays(t *testing.T) {
	test(t, func(t *testing.T, c *cluster) {
		leader := c.replica()
		c.lead(leader)
		owned := func(kind, name string) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: kind, Name: name, UID: types.UID(name), Controller: new(true)}}
				p.Labels = map[string]string{"team": "data", "other": "x"}
			}
		}
		c.world.API.Put(sim.Pod("a", "1", owned("Job", "report-29384756")))
		c.world.API.Put(sim.Pod("b", "1", owned("Job", "import-7")))
		c.world.API.Put(sim.Pod("c", "1"))
		time.Sleep(10 * time.Minute)
		c.end(leader, false)
		var maps []corev1.ConfigMap
		memapi.Each(c.world.API, func(m *corev1.ConfigMap) { maps = append(maps, *m) })
		books, until, _ := costs.Books(maps)
		if len(books) != 1 {
			t.Fatal(books)
		}
		got := map[string]bool{}
		books[0].Bills(0, until+3600, func(b *ledger.Bill) {
			for _, p := range b.Parts {
				if p.Account.Kind == ledger.Requested {
					got[p.Account.Workload+" "+p.Account.Labels] = true
				}
			}
		})
		for _, want := range []string{"CronJob default/report team=data", "Job default/import-7 team=data", "Pod default/c "} {
			if !got[want] {
				t.Errorf("%q pays nothing; got %v", want, got)
			}
		}
		if strings.Contains(fmt.Sprint(got), "other") {
			t.Errorf("got %v, want no other labels", got)
		}
	})
}
