package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// The burst: so many pods, of which four fit a machine.
const (
	podCount = 200
	podCPU   = "1900m"
	limitCPU = 440 // 55 machines of 8 CPUs: five more than are needed
)

func TestCrashesLoseNothing(t *testing.T) {
	sim.EachSeed(t, "CRASH_SEEDS", 40, 2000, crashing)
}

// crashing lets one seed decide when Karpenter stops, for how long, and what goes wrong besides.
func crashing(t *testing.T, seed uint64) {
	w := newTrial(t, seed)
	ctx, stop := context.WithCancel(t.Context())
	world := make(chan struct{})
	go func() { w.Run(ctx); close(world) }()
	go w.watchLimit(ctx)
	bought := watchPurchases(t, w.World)

	w.live(w.between(0, 2*time.Second))
	w.burst()
	for range 1 + w.rand.IntN(4) {
		w.jump()
		w.live(w.between(0, 6*time.Second))
		w.deleteSome()
		time.Sleep(w.between(0, 10*time.Second))
	}
	end := w.start()
	w.API.SetSkew(0)
	w.eventually("every pod runs", 4*time.Minute, w.allRun)
	w.eventually("machines, claims and nodes are the same", time.Minute, w.same)

	// And back to nothing, through more crashes.
	sim.ScaleToZero(w.t, w.World)
	w.deleteClaims()
	for range w.rand.IntN(3) {
		w.jump()
		time.Sleep(w.between(0, 8*time.Second))
		end()
		time.Sleep(w.between(0, 5*time.Second))
		end = w.start()
	}
	w.API.SetSkew(0)
	w.eventually("nothing is left", 2*time.Minute, w.nothing)
	if launches := w.Cloud.Launches(); launches > bought.count() {
		t.Errorf("seed %d: %d machines were launched for %d claims", seed, launches, bought.count())
	}
	if w.exceeded != "" {
		t.Errorf("seed %d: %s", seed, w.exceeded)
	}
	end()
	stop()
	<-world
	time.Sleep(time.Minute) // machines that are still stopping do so
}

// trial is one world with its troubles.
type trial struct {
	*sim.World
	t        *testing.T
	seed     uint64
	rand     *rand.Rand // used by the test's own goroutine
	troubles *rand.Rand // used under the cloud's fault hook, which asks for one call at a time
	process  int
	disrupt  bool // the processes remove nodes, too
	exceeded string
}

func newTrial(t *testing.T, seed uint64) *trial {
	w, err := sim.New(sim.Options{
		Cloud: fakecloud.Options{
			Catalog: func(*v1.NodePool) (*cloud.Catalog, error) { return catalog, nil },
			Boot: func(m cloud.Machine) time.Duration {
				return 2*time.Second + time.Duration(len(m.ProviderID)%3)*time.Second
			},
			Shutdown: 3 * time.Second,
			Lag:      2 * time.Second,
		},
		ReadyAfter: time.Second, PodStart: time.Second, PodStop: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &trial{World: w, t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), troubles: rand.New(rand.NewPCG(seed, 2))}
	w.API.Put(sim.ReadyClass("default"))
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}
	pool.Spec.Limits = v1.Limits{corev1.ResourceCPU: *resource.NewQuantity(limitCPU, resource.DecimalSI)}
	w.API.Put(pool)
	w.Cloud.SetFault(r.fault)
	return r
}

// fault makes the cloud slow, and now and then worse.
func (r *trial) fault(c fakecloud.Call) fakecloud.Fault {
	f := fakecloud.Fault{Delay: time.Duration(r.troubles.IntN(300)) * time.Millisecond}
	if c.Method == fakecloud.Launch || c.Method == fakecloud.Terminate {
		f.After = time.Duration(r.troubles.IntN(1500)) * time.Millisecond
	}
	switch r.troubles.IntN(30) {
	case 0:
		f.Lost = true
	case 1:
		f.Err = fmt.Errorf("%s: throttled", c.Method)
	}
	return f
}

func (r *trial) between(from, to time.Duration) time.Duration {
	return from + time.Duration(r.rand.Int64N(int64(to-from)))
}

// live runs a process that knows nothing for a while and then stops it in the middle of whatever it does. Now and then another one acts
// beside it, as if the lease had failed.
func (r *trial) live(d time.Duration) {
	end := r.start()
	if r.rand.IntN(3) == 0 {
		time.Sleep(d / 2)
		next := r.start()
		time.Sleep(d / 2)
		end()
		end = next
	}
	time.Sleep(d)
	end()
}

// jump sets the clock of the API server, now and then by more than any time that loops wait.
func (r *trial) jump() {
	switch r.rand.IntN(6) {
	case 0:
		r.API.SetSkew(r.between(-5*time.Minute, 5*time.Minute))
	case 1:
		r.API.SetSkew(r.between(-2*time.Hour, 2*time.Hour))
	}
}

// start starts a process, and returns what stops it.
func (r *trial) start() (end func()) {
	r.process++
	k := r.Karpenter(sim.KarpenterOptions{
		Name: fmt.Sprint("process ", r.process), Lag: 20 * time.Millisecond, Delay: 30 * time.Millisecond, Provision: true, Disrupt: r.disrupt,
	})
	ctx, stop := context.WithCancel(sim.Loud(r.t.Context(), "CRASH_LOG", r.process))
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	return func() { stop(); <-done }
}

func (r *trial) burst() {
	for i := range podCount {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("web-%03d", i), Labels: map[string]string{"app": "web"},
		}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(podCPU), corev1.ResourceMemory: resource.MustParse("1Gi")},
		}}}
		p.Status.Phase = corev1.PodPending
		sim.OwnedBy("web")(p)
		r.API.Put(p)
	}
}

// deleteSome deletes a tenth of the claims, whatever they are about: some are being launched, and nobody knows of it yet.
func (r *trial) deleteSome() {
	for _, c := range memapi.All[*v1.NodeClaim](r.API) {
		if r.rand.IntN(10) == 0 {
			if err := r.API.Client("user").Delete(r.t.Context(), c); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

func (r *trial) deleteClaims() {
	for _, c := range memapi.All[*v1.NodeClaim](r.API) {
		if err := r.API.Client("user").Delete(r.t.Context(), c); err != nil {
			r.t.Fatal(err)
		}
	}
}

// eventually waits for something to become true, and to be true a second later as well.
func (r *trial) eventually(what string, within time.Duration, is func() string) {
	r.t.Helper()
	deadline := time.Now().Add(within)
	for {
		why := is()
		if why == "" {
			time.Sleep(time.Second)
			if why = is(); why == "" {
				return
			}
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("seed %d: not within %s: %s: %s", r.seed, within, what, why)
		}
		time.Sleep(time.Second)
	}
}

func (r *trial) allRun() string {
	running, pods := 0, 0
	memapi.Each(r.API, func(p *corev1.Pod) {
		pods++
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			running++
		}
	})
	if running == podCount && pods == podCount {
		return ""
	}
	return fmt.Sprintf("%d of %d pods run; pool: %v", running, pods, memapi.All[*v1.NodePool](r.API)[0].Status.Conditions)
}

// same says in which way machines, claims and nodes are not one to one.
func (r *trial) same() string {
	machines, claims, nodes := ids(r)
	if slices.Equal(machines, claims) && slices.Equal(claims, nodes) {
		return ""
	}
	return fmt.Sprintf("%d machines, %d claims, %d nodes", len(machines), len(claims), len(nodes))
}

func (r *trial) nothing() string {
	machines, claims, nodes := ids(r)
	if len(machines)+len(claims)+len(nodes) == 0 {
		return ""
	}
	return fmt.Sprintf("%d machines, %d claims, %d nodes", len(machines), len(claims), len(nodes))
}

// ids are the provider ids of everything there is.
func ids(r *trial) (machines, claims, nodes []string) {
	for _, m := range r.Cloud.Machines() {
		machines = append(machines, m.ProviderID)
	}
	memapi.Each(r.API, func(c *v1.NodeClaim) { claims = append(claims, c.Status.ProviderID) })
	memapi.Each(r.API, func(n *corev1.Node) { nodes = append(nodes, n.Spec.ProviderID) })
	slices.Sort(machines)
	slices.Sort(claims)
	slices.Sort(nodes)
	return machines, claims, nodes
}

// watchLimit looks all the time whether the machines of the pool are more than it may have. A machine that has lost its claim
// counts no more than one that stops: it never runs a pod and is stopped within a minute.
func (r *trial) watchLimit(ctx context.Context) {
	for ctx.Err() == nil {
		var cpu int64
		claimed := map[string]bool{}
		memapi.Each(r.API, func(c *v1.NodeClaim) { claimed[c.Name] = c.DeletionTimestamp == nil })
		for _, m := range r.Cloud.Machines() {
			if !m.Deleting && claimed[m.ClaimName] {
				cpu += m.Capacity.Cpu().Value()
			}
		}
		if cpu > limitCPU && r.exceeded == "" {
			r.exceeded = fmt.Sprintf("the pool's machines have %d CPUs, its limit is %d", cpu, limitCPU)
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

var catalog = &cloud.Catalog{Types: []*cloud.InstanceType{fakecloud.Kind("m.2xlarge", 8, 0.4, "a", "b")}}
