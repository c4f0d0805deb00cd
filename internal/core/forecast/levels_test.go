package forecast

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// A town is a cluster with a node of the pool "default", of whose pods Levels looks.
type town struct {
	store *cluster.Store
	now   time.Time
	made  int
	pods  map[string][]*corev1.Pod // by owner
	Levels
}

func newTown() *town {
	c := &town{store: cluster.NewStore(), now: monday, pods: map[string][]*corev1.Pod{}}
	c.store.Update(func(d *cluster.Draft) {
		d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1.NodePoolLabelKey: "default"}}})
	})
	return c
}

// start makes pods of an owner: "web-1" is a ReplicaSet of the Deployment web, of a template with the hash 1.
func (c *town) start(kind, owner, node string, n int, edits ...func(*corev1.Pod)) {
	for range n {
		c.made++
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(owner, "-", c.made), UID: types.UID(fmt.Sprint(c.made)),
			CreationTimestamp: metav1.NewTime(c.now), Labels: map[string]string{"pod-template-hash": owner[len(owner)-1:]}}}
		if kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, UID: types.UID(owner), Controller: new(true)}}
		}
		p.Spec.NodeName = node
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
		for _, edit := range edits {
			edit(p)
		}
		c.pods[owner] = append(c.pods[owner], p)
		c.store.Update(func(d *cluster.Draft) { d.PutPod(p) })
	}
}

// evict has the oldest pods of an owner end, which takes until gone is called.
func (c *town) evict(owner string, n int) {
	for _, p := range c.pods[owner][:n] {
		p = p.DeepCopy()
		p.DeletionTimestamp = &metav1.Time{Time: c.now}
		c.store.Update(func(d *cluster.Draft) { d.PutPod(p) })
	}
	c.pods[owner] = c.pods[owner][n:]
}

// look passes a minute and counts the arrivals.
func (c *town) look() string {
	c.now = c.now.Add(time.Minute)
	out := map[string]int{}
	for _, a := range c.Look(c.store.Snapshot(), c.now) {
		out[a.Pool+" "+a.Workload.Kind+" "+a.Workload.String()]++
	}
	if len(out) == 0 {
		return ""
	}
	return fmt.Sprint(out)[3:]
}

func (c *town) wait(d time.Duration) { c.now = c.now.Add(d) }

func TestWhatIsAnArrival(t *testing.T) {
	const web20 = "[default Deployment shop/web:20]"
	for name, tc := range map[string]struct {
		before, then func(c *town)
		want         string
	}{
		"a Deployment that is scaled up": {func(c *town) { c.start("ReplicaSet", "web-1", "n", 10) },
			func(c *town) { c.start("ReplicaSet", "web-1", "n", 20) }, web20},
		"a new Deployment": {func(*town) {}, func(c *town) { c.start("ReplicaSet", "web-1", "n", 20) }, web20},
		"a StatefulSet":    {func(*town) {}, func(c *town) { c.start("StatefulSet", "db", "n", 3) }, "[default StatefulSet shop/db:3]"},
		"pods of a Job":    {func(*town) {}, func(c *town) { c.start("Job", "x-1", "n", 3) }, "[default  shop/pods-56187170:3]"},
		"the same bare":    {func(*town) {}, func(c *town) { c.start("", "y-1", "n", 2) }, "[default  shop/pods-56187170:2]"},
		"pods of no pool":  {func(*town) {}, func(c *town) { c.start("ReplicaSet", "web-1", "other", 20) }, ""},
		"pods of DaemonSet": {func(*town) {}, func(c *town) {
			c.start("DaemonSet", "log", "n", 20, func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "apps/v1" })
		}, ""},
		"a run of a CronJob that is known": {func(c *town) {
			c.store.Update(func(d *cluster.Draft) {
				cluster.CronJobs.Put(d, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}})
			})
		}, func(c *town) { c.start("Job", "x-1", "n", 3) }, ""},
		"pods that are evicted by a drain": {func(c *town) { c.start("ReplicaSet", "web-1", "n", 20) },
			func(c *town) { c.evict("web-1", 20); c.start("ReplicaSet", "web-1", "n", 20) }, ""},
		"a drain of pods that come again a while later": {func(c *town) { c.start("ReplicaSet", "web-1", "n", 20) },
			func(c *town) {
				c.evict("web-1", 20)
				c.look()
				c.wait(10 * time.Minute)
				c.start("ReplicaSet", "web-1", "n", 20)
			}, ""},
		"a workload that sleeps for long": {func(c *town) { c.start("ReplicaSet", "web-1", "n", 20) },
			func(c *town) {
				c.evict("web-1", 20)
				c.look()
				c.wait(21 * time.Minute)
				c.start("ReplicaSet", "web-1", "n", 20)
			}, web20},
		"a drain and a scale-up": {func(c *town) { c.start("ReplicaSet", "web-1", "n", 20) },
			func(c *town) { c.evict("web-1", 10); c.start("ReplicaSet", "web-1", "n", 30) }, web20},
		"a rollout with surge": {func(c *town) { c.start("ReplicaSet", "web-1", "n", 20) },
			func(c *town) { c.start("ReplicaSet", "web-2", "n", 5) }, ""},
		"a rollout without surge": {func(c *town) { c.start("ReplicaSet", "web-1", "n", 20) },
			func(c *town) { c.evict("web-1", 20); c.look(); c.start("ReplicaSet", "web-2", "n", 20) }, ""},
		"a rollout to pods that ask for more": {func(c *town) { c.start("ReplicaSet", "web-1", "n", 20) },
			func(c *town) {
				c.evict("web-1", 20)
				c.start("ReplicaSet", "web-2", "n", 20, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2") })
			}, ""},
		"a StatefulSet that is restarted": {func(c *town) { c.start("StatefulSet", "db", "n", 3) },
			func(c *town) { c.evict("db", 1); c.look(); c.start("StatefulSet", "db", "n", 1) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTown()
			if tc.before(c); c.look() != "" {
				t.Error("what was there before the first look has come")
			}
			c.look()
			tc.then(c)
			if got := c.look(); got != tc.want {
				t.Errorf("arrivals are %q, want %q", got, tc.want)
			}
			if got := c.look(); got != "" {
				t.Errorf("then %q come again", got)
			}
		})
	}
}

// A pod without a place comes to the pool from which it gets one, if that is soon.
func TestAPodComesWhereItGetsAPlace(t *testing.T) {
	for wait, want := range map[time.Duration]string{2 * time.Minute: "[default Deployment shop/web:1]", 20 * time.Minute: ""} {
		c := newTown()
		c.look()
		c.start("ReplicaSet", "web-1", "", 1)
		if got := c.look(); got != "" || c.Waiting(web) != 1 {
			t.Errorf("%q come without a place, %d wait", got, c.Waiting(web))
		}
		c.wait(wait)
		bound := c.pods["web-1"][0].DeepCopy()
		bound.Spec.NodeName = "n"
		c.store.Update(func(d *cluster.Draft) { d.PutPod(bound) })
		if got := c.look(); got != want || c.Waiting(web) != 0 {
			t.Errorf("after %v arrivals are %q, want %q; %d wait", wait, got, want, c.Waiting(web))
		}
	}
}

// A process that begins where another one ended counts the pods that came in between, and those that had no place then.
func TestTheNextProcessCountsWhatCameInBetween(t *testing.T) {
	for name, tc := range map[string]struct {
		unplaced bool          // the last pods that the first process saw
		dark     time.Duration // no process runs
		fresh    bool          // the second process does not know of the first
		rollout  bool
		want     string
	}{
		"pods that came while no process ran":     {dark: 2 * time.Minute, want: "[default Deployment shop/web:5]"},
		"and pods that had no place":              {unplaced: true, dark: 2 * time.Minute, want: "[default Deployment shop/web:8]"},
		"a process that does not know of another": {dark: 2 * time.Minute, fresh: true},
		"too long ago":                            {dark: 20 * time.Minute},
		"a rollout":                               {dark: 2 * time.Minute, rollout: true},
	} {
		c := newTown()
		c.start("ReplicaSet", "web-1", "n", 10)
		c.look()
		node := map[bool]string{false: "n"}[tc.unplaced]
		c.start("ReplicaSet", "web-1", node, 3)
		c.look()
		until := c.Until(c.now)
		c.wait(time.Second)
		c.start("ReplicaSet", map[bool]string{false: "web-1", true: "web-2"}[tc.rollout], "n", 5)
		c.wait(tc.dark)
		c.Levels = Levels{Since: until}
		if tc.fresh {
			c.Levels = Levels{}
		}
		for _, p := range c.pods["web-1"] {
			p = p.DeepCopy()
			p.Spec.NodeName = "n"
			c.store.Update(func(d *cluster.Draft) { d.PutPod(p) })
		}
		if got := c.look(); got != tc.want {
			t.Errorf("%s: %q come, want %q", name, got, tc.want)
		}
	}
}

func TestWorkloadsThatAreGoneAreForgotten(t *testing.T) {
	c := newTown()
	c.look()
	c.start("ReplicaSet", "web-1", "n", 5)
	c.look()
	c.evict("web-1", 5)
	for range 40 {
		c.look()
	}
	if len(c.of) != 0 || len(c.waiting) != 0 {
		t.Errorf("%d workloads and %d pods are remembered", len(c.of), len(c.waiting))
	}
}
