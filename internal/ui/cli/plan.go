package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/budget"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/overlay"
	"karpenter.sh/karpenter/internal/core/rollout"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

// planFlags are the flags of "karpenter plan", and what was learned while its input was read. Other commands share
// them.
type planFlags struct {
	files             []string
	output            string
	market            Market
	source            Source // of the prices; zero where it is not known
	kubeconfig        string
	snapshot          string
	memory            *engine.Memory // of the engine of a snapshot, nil for none
	static            bool           // pools with a fixed number of nodes are looked at too
	assumeRequests    bool
	interruptionCost  float64
	ignorePreferences bool
	bestEffort        bool
	ignoreDRA         bool
	budget            time.Duration
	lone              bool // a question without NodePools is no error
	quiet             bool // no warning is printed about workloads without requests, nor about prices of another region
	propose           bool // the cluster may lack Karpenter, its NodePools and its classes; defaults stand for them
	commitments       []*v1alpha1.CommitmentDiscount
	books             *commitment.Books   // of the last input
	idle              map[string]idlePool // pools that the last input left out because of their classes, by name
}

const planHelp = `usage: karpenter plan -f FILE_OR_DIR_OR_-… [-o table|json|yaml] [--region us-east-1]
                    [--prices FILE] [--spot-prices model|none|FILE]
       karpenter plan --kubeconfig FILE [-f FILE_OR_DIR…]
       karpenter plan --snapshot FILE

Works out the machines that Karpenter would launch for pods that have no node, and changes nothing. "-f -" reads what is piped
in. Files may hold Pods, Deployments, ReplicaSets, StatefulSets, Jobs, CronJobs (one run of each), DaemonSets,
NodePools, EC2NodeClasses, CommitmentDiscounts, Nodes, NodeClaims, PersistentVolumes
and claims, StorageClasses, CSIDrivers, PodDisruptionBudgets, PriorityClasses, RuntimeClasses, Namespaces, Services,
CapacityBuffers, PodTemplates, ResourceClaims and their templates, DeviceClasses and ResourceSlices. With --kubeconfig
the objects of a cluster are read as well.

Exit code: 0 every pod can run, 1 some cannot, 2 the input is wrong.

`

// parsePlan reads the flags and arguments of plan. Unlike other commands, plan does not read kubectl's cluster by
// itself.
func parsePlan(env Env, args []string) (planFlags, error) {
	p := planFlags{}
	fs := flag.NewFlagSet("plan", flag.ContinueOnError)
	fs.SetOutput(env.Err)
	fs.Usage = func() { fmt.Fprint(env.Err, planHelp); fs.PrintDefaults() }
	p.worldFlags(fs)
	fs.StringVar(&p.output, "o", "table", "table, json or yaml")
	if err := fs.Parse(args); err != nil {
		return p, err
	}
	p.files = append(p.files, fs.Args()...) // so that "-f a b c", as a shell expands it, works
	switch {
	case !slices.Contains([]string{"table", "json", "yaml"}, p.output):
		return p, fmt.Errorf("-o %s: use table, json or yaml", p.output)
	case len(p.files) == 0 && p.kubeconfig == "" && p.snapshot == "":
		return p, errors.New("nothing to plan; give files with -f, or a cluster with --kubeconfig")
	}
	return p, p.checkWorld()
}

// worldFlags adds the flags about what a plan is made from: files, cluster, prices, settings.
func (p *planFlags) worldFlags(fs *flag.FlagSet) {
	add := func(path string) error { p.files = append(p.files, path); return nil }
	fs.Func("f", "file or folder with manifests, - for standard input; may be given several times", add)
	fs.Func("filename", "the same as -f", add)
	fs.StringVar(&p.market.Region, "region", "us-east-1", "region whose instance types and prices are used")
	fs.StringVar(&p.market.Prices, "prices", "", "file of prices that karpenter prices fetch wrote, instead of those "+
		"that ship with Karpenter; it names the region")
	fs.StringVar(&p.market.Spot, "spot-prices", "model",
		`"model" for computed prices, "none" for no spot, or a file {"type": {"zone": dollars}}`)
	fs.StringVar(&p.snapshot, "snapshot", "", "file that karpenter snapshot wrote, instead of files and clusters: it "+
		"holds the types, prices and policies too")
	fs.StringVar(&p.kubeconfig, "kubeconfig", "", "read the objects of this cluster too")
	fs.BoolVar(&p.assumeRequests, "assume-requests", true, "containers without CPU or memory request count as 100m and "+
		"200Mi on new nodes, as for the controller; =false plans as it does with --assume-requests=false")
	fs.BoolVar(&p.ignorePreferences, "ignore-preferences", false, "plan as the controller does with --preference-policy=Ignore")
	fs.BoolVar(&p.ignoreDRA, "ignore-dra-requests", false, "plan as the controller does with --ignore-dra-requests, which is its default")
	fs.BoolVar(&p.bestEffort, "min-values-best-effort", false, "plan as the controller does with --min-values-policy=BestEffort")
	fs.Float64Var(&p.interruptionCost, "interruption-cost", 0, "dollars that it costs when a spot machine is taken back, as for the "+
		"controller")
	fs.DurationVar(&p.budget, "time", 0, "how long the reference machine may look for a cheaper fleet; 0: the "+
		"controller's default. On any machine the plan is the same")
}

// checkWorld checks the flags of worldFlags. If they name no files, cluster or snapshot, it takes the cluster that
// kubectl would use.
func (p *planFlags) checkWorld() error {
	switch {
	case p.snapshot != "" && (len(p.files) > 0 || p.kubeconfig != ""):
		return errors.New("--snapshot holds the whole world; give it without -f and --kubeconfig")
	case !(p.interruptionCost >= 0 && p.interruptionCost <= v1.MostInterruptionCost):
		return fmt.Errorf("--interruption-cost %v: give dollars from 0 to %d", p.interruptionCost, v1.MostInterruptionCost)
	case len(p.files) == 0 && p.kubeconfig == "" && p.snapshot == "":
		p.kubeconfig = clientcmd.NewDefaultClientConfigLoadingRules().GetDefaultFilename()
	}
	return nil
}

// question returns what the engine is asked: of a snapshot, or of files and cluster.
func (p *planFlags) question(ctx context.Context, env Env) (engine.Question, error) {
	if p.snapshot != "" {
		in, memory, err := readSnapshot(p.snapshot)
		p.memory = memory
		return in, err
	}
	world, err := p.read(ctx, env)
	if err != nil {
		return engine.Question{}, err
	}
	return p.input(env, world)
}

// plan runs "karpenter plan": it reads the world, plans, and prints the plan.
func plan(ctx context.Context, env Env, args []string) (int, error) {
	p, err := parsePlan(env, args)
	if err != nil {
		return exitBadInput, err
	}
	input, err := p.question(ctx, env)
	if err != nil {
		return exitBadInput, err
	}
	waiting := len(input.Pods)
	input = withSpares(input)
	if len(input.Pods) == 0 {
		fmt.Fprintln(env.Err, "no pod is waiting for a node: workloads with replicas: 0 and pods that run already need nothing")
	}
	if spares := len(input.Pods) - waiting; spares > 0 {
		fmt.Fprintf(env.Err, "CapacityBuffers keep room for %s\n", sentence.Count(spares, "pod"))
	}
	fmt.Fprintf(env.Err, "planning %s over %s …\n", sentence.Count(len(input.Pods), "pod"), sentence.Count(len(input.Pools), "pool"))
	input.Ended = func() bool { return ctx.Err() != nil }
	began := time.Now()
	answer := bestPlan(input, func(in engine.Question) *engine.Plan { return p.planner().Plan(in) })
	r := newReport(answer, time.Since(began).Seconds())
	r.beside = input.Snap.NodeCount() > 0
	r.explainSpot(&input)
	if p.foreign() {
		r.PricesOf = p.source.Region
	}
	if err := r.write(env.Out, p.output); err != nil {
		return exitBadInput, err
	}
	if len(r.Unschedulable) > 0 {
		return exitUnschedulable, nil
	}
	return exitFine, nil
}

// bestPlan returns a plan made with the work that the user grants (--time). If that is more than usual, it also plans
// with the usual work and returns the cheaper plan: a longer search ends sooner once its bound is better, and its
// fleet may be some thousandths dearer. Both bounds are proven, so the plan gets the higher one.
func bestPlan(in engine.Question, plan func(engine.Question) *engine.Plan) *engine.Plan {
	long := plan(in)
	if in.Settings.Search <= engine.DefaultSearch || in.Ended != nil && in.Ended() {
		return long
	}
	in.Settings.Search = 0
	usual := plan(in)
	if cmp.Or(len(usual.Refused)-len(long.Refused), cmp.Compare(usual.Cost, long.Cost)) >= 0 {
		return long
	}
	best := *usual
	if len(usual.Refused) == len(long.Refused) {
		best.ConfigBound, best.VolumeBound = max(best.ConfigBound, long.ConfigBound), max(best.VolumeBound, long.VolumeBound)
	}
	return &best
}

// planner returns an engine, with the memory that a snapshot holds if there is any.
func (p *planFlags) planner() *engine.Engine {
	if p.memory == nil {
		return engine.New(awsv1.Labels())
	}
	return engine.Recall(*p.memory, awsv1.Labels())
}

// read returns the objects of files and cluster.
func (p *planFlags) read(ctx context.Context, env Env) (*objects, error) {
	docs, others, err := readAll(env.In, p.files)
	if err != nil {
		return nil, err
	}
	tellOthers(env, others)
	return p.assemble(ctx, env, docs)
}

// tellOthers prints the names of files without manifests.
func tellOthers(env Env, others []string) {
	if len(others) > 0 {
		fmt.Fprintf(env.Err, "no manifests, left out: %s\n", strings.Join(others, ", "))
	}
}

// assemble makes objects of documents, adds those of the cluster, and completes them as Kubernetes would: pods of
// workloads, defaults, volume claims, priorities. What it assumes or leaves out it prints.
func (p *planFlags) assemble(ctx context.Context, env Env, docs []*document) (*objects, error) {
	o, err := typed(ctx, docs)
	if err != nil {
		return nil, err
	}
	if p.kubeconfig != "" {
		fmt.Fprintf(env.Err, "reading the cluster …\n")
		if err := o.readCluster(ctx, env, p.kubeconfig, p.propose); err != nil {
			return nil, err
		}
	}
	if kinds := o.ignoredKinds(); len(kinds) > 0 {
		fmt.Fprintf(env.Err, "not needed for a plan: %s\n", strings.Join(kinds, ", "))
	}
	if err := o.expand(mostPods); err != nil {
		return nil, err
	}
	if p.kubeconfig != "" && o.usesDevices() {
		c, err := env.cluster(p.kubeconfig)
		if err == nil {
			err = o.readDevices(ctx, c)
		}
		if err != nil {
			return nil, err
		}
	}
	o.applyPodDefaults()
	o.addEphemeralClaims()
	o.applyDefaultClass()
	unknown := o.fillPriorities()
	if p.kubeconfig == "" { // what the files do not hold may be in the cluster
		if assumed := o.assumeStorageClasses(); len(assumed) > 0 {
			fmt.Fprintf(env.Err, "storage classes in no file, taken for EBS volumes that are made where their pod "+
				"goes: %s\n", strings.Join(assumed, ", "))
		}
		if len(unknown) > 0 {
			fmt.Fprintf(env.Err, "priority classes in no file, taken for priority 0: %s\n", strings.Join(unknown, ", "))
		}
	} else if len(unknown) > 0 {
		return nil, fmt.Errorf("there is no PriorityClass named %s; the cluster would refuse the pods", strings.Join(unknown, ", "))
	}
	if gated := o.markUnschedulable(); len(gated) > 0 {
		fmt.Fprintf(env.Err, "left out, because of scheduling gates: %s\n", strings.Join(gated, ", "))
	}
	if p.propose && len(o.pools) == 0 {
		o.pools = append(o.pools, proposedPool())
		fmt.Fprintln(env.Err, proposedText)
	}
	switch {
	case len(o.pools) == 0 && p.kubeconfig == "":
		return nil, errors.New("there is no NodePool, and Karpenter launches nothing without; add one, or read those " +
			"of a cluster with --kubeconfig")
	case len(o.pools) == 0:
		return nil, errors.New("there is no NodePool; add one, Karpenter launches nothing without")
	}
	return o, nil
}

// input makes the engine's question of objects. A pool that cannot be used is reported and left out, and noted in
// p.idle if its class is the reason: the other pools are planned with all the same. lone allows that none is left.
func (p *planFlags) input(env Env, o *objects) (engine.Question, error) {
	store := o.store()
	snap := store.Snapshot()
	in := engine.Question{Snap: snap, Pods: snap.Provisionable(), Now: time.Now()}
	in.Settings.IgnorePreferences, in.Settings.MinValuesBestEffort, in.Settings.Search = p.ignorePreferences,
		p.bestEffort, work.Units(p.budget)
	in.Settings.ReservedCapacity, in.Settings.AssumeRequests = true, p.assumeRequests
	in.Settings.InterruptionCost = cloud.FromDollars(p.interruptionCost)
	p.planForDevices(env, o, &in)
	if text := assumption(withoutRequests(in.Pods)); text != "" && p.assumeRequests && !p.quiet {
		fmt.Fprintln(env.Err, text)
	}
	if err := p.tellSource(env, o.pools, in.Pods); err != nil {
		return in, err
	}
	known := label.NewVocabulary(v1.Labels(), awsv1.Labels())
	classes := map[string]*awsv1.EC2NodeClass{}
	for _, c := range o.classes {
		classes[c.Name] = c
	}
	p.idle = map[string]idlePool{}
	_, rollouts := rollout.Read(snap)
	for _, pool := range o.pools {
		pool = withLastGood(env, snap, rollouts[pool.Name], pool, known)
		if err := pool.Validate(known); err != nil {
			fmt.Fprintf(env.Err, "NodePool %q is left out: %v\n", pool.Name, err)
			continue
		}
		if pool.Spec.Replicas != nil && !p.static {
			fmt.Fprintf(env.Err, "NodePool %q is left out: it has %d node(s) (spec.replicas) whatever pods there are; "+
				"what those cost is not in the plan\n", pool.Name, *pool.Spec.Replicas)
			continue
		}
		if _, err := budget.Allowed(pool.Spec.Disruption.Budgets, v1.DisruptionReasonEmpty, 1, in.Now); err != nil {
			fmt.Fprintf(env.Err, "NodePool %q: %v; until that is mended none of its nodes is disrupted\n", pool.Name, err)
		}
		ref := pool.Spec.Template.Spec.NodeClassRef
		class := classes[ref.Name]
		if err := classError(env, class); err != nil {
			fmt.Fprintf(env.Err, "NodePool %q is left out: the controller does not use EC2NodeClass %q: %v\n", pool.Name, class.Name, err)
			p.idle[pool.Name] = o.idlePool(env, fmt.Sprintf("EC2NodeClass %s is not ready: %v", class.Name, err))
			continue
		}
		if class == nil && p.kubeconfig != "" && !p.propose {
			fmt.Fprintf(env.Err, "NodePool %q is left out: there is no %s named %q in the cluster; create it, or change "+
				"the pool's nodeClassRef\n", pool.Name, ref.Kind, ref.Name)
			p.idle[pool.Name] = o.idlePool(env, fmt.Sprintf("there is no EC2NodeClass %s", ref.Name))
			continue
		}
		if class == nil {
			fmt.Fprintf(env.Err, "NodePool %q: its %s %q is in no file; planning with the defaults\n", pool.Name, ref.Kind, ref.Name)
		}
		catalog, err := env.Catalog(p.market, class)
		if err != nil {
			return in, err
		}
		if zones := zonesNotSold(pool, catalog); len(zones) > 0 {
			fmt.Fprintf(env.Err, "NodePool %q asks for zones %s, which region %s does not have; choose another with "+
				"--region\n", pool.Name, strings.Join(zones, ", "), p.market.Region)
		}
		in.Pools = append(in.Pools, engine.Pool{Pool: pool, Catalog: catalog})
	}
	o.applyOverlays(env, known, in.Pools)
	in.Snap = o.keepRoom(env, store, in)
	in.Pods = in.Snap.Provisionable()
	if len(in.Pools) == 0 && !p.lone {
		return in, errors.New("no NodePool is left to plan with; see above")
	}
	p.useCommitments(env, o.commitments, &in)
	return in, nil
}

// withLastGood returns a pool as the controller plans new machines of it, and reports where that is with the state that passed last.
func withLastGood(env Env, snap *cluster.Snapshot, p *rollout.Policy, pool *v1.NodePool, known *label.Vocabulary) *v1.NodePool {
	if p == nil {
		return pool
	}
	e := p.Entry(pool.Name)
	if !p.GoesBack(snap, pool, e) {
		return pool
	}
	last, err := rollout.Restore(snap, pool, e.LastGood, known)
	fmt.Fprintf(env.Err, "RolloutPolicy %q stopped the rollout of NodePool %q: %s\n", p.Object.Name, pool.Name,
		sentence.LastGood(e, last, err))
	if err != nil {
		return pool
	}
	return last
}

// applyOverlays applies NodeOverlays to the catalogues of pools. Overlays that the controller does not apply are
// reported and left out.
func (o *objects) applyOverlays(env Env, known *label.Vocabulary, pools []engine.Pool) {
	var counted []*v1alpha1.NodeOverlay
	for _, over := range o.overlays {
		if c := condition.Get(over, v1alpha1.ConditionTypeValidationSucceeded); c != nil &&
			c.Reason == v1alpha1.ReasonFeatureGateDisabled {
			fmt.Fprintf(env.Err, "NodeOverlay %q is left out: %s\n", over.Name, c.Message)
			continue
		}
		counted = append(counted, over)
	}
	if len(counted) == 0 {
		return
	}
	judged := make([]overlay.Pool, len(pools))
	for i, p := range pools {
		judged[i] = overlay.Pool(p)
	}
	book, verdicts := overlay.Judge(counted, judged, known)
	for i, v := range verdicts {
		switch {
		case v.Invalid != nil:
			fmt.Fprintf(env.Err, "NodeOverlay %q is left out: %v\n", counted[i].Name, v.Invalid)
		case v.Conflict != nil:
			fmt.Fprintf(env.Err, "NodeOverlay %q is left out: %s\n", counted[i].Name, v.Conflict.Message())
		}
	}
	for i := range pools {
		pools[i].Catalog = book.Apply(pools[i].Pool, pools[i].Catalog, nil).Catalog()
	}
}

// classError returns why the controller launches nothing with a class: it is not ready, or the checks of the provider
// refuse it. nil stands for the defaults, which have no error.
func classError(env Env, class *awsv1.EC2NodeClass) error {
	if class == nil {
		return nil
	}
	if ready := condition.Get(class, condition.Ready); ready != nil && ready.Status == metav1.ConditionFalse {
		return errors.New(ready.Message)
	}
	return env.CheckClass(class)
}

// zonesNotSold returns the zones that a requirement of a pool asks for, if the catalogue sells nothing in any of
// them; else nil.
func zonesNotSold(pool *v1.NodePool, catalog *cloud.Catalog) []string {
	for _, q := range pool.Spec.Template.Spec.Requirements {
		if q.Key != corev1.LabelTopologyZone || q.Operator != corev1.NodeSelectorOpIn {
			continue
		}
		sold := func(o cloud.Offering) bool { return slices.Contains(q.Values, o.Zone()) }
		if !slices.ContainsFunc(catalog.Types, func(it *cloud.InstanceType) bool { return slices.ContainsFunc(it.Offerings, sold) }) {
			return q.Values
		}
	}
	return nil
}

// sortedKeys returns the keys of a map, sorted.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// store returns a store that holds the objects, as if it had been synced with a cluster.
func (o *objects) store() *cluster.Store {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		putAll(d, o.namespaces, cluster.Namespaces.Put)
		putAll(d, o.priorityClasses, cluster.PriorityClasses.Put)
		putAll(d, o.pools, cluster.Pools.Put)
		putAll(d, o.quotas, cluster.Quotas.Put)
		putAll(d, o.volumes.storageClasses, cluster.StorageClasses.Put)
		putAll(d, o.volumes.pvs, cluster.PVs.Put)
		putAll(d, o.volumes.pvcs, cluster.PVCs.Put)
		putAll(d, o.apps.pdbs, cluster.PDBs.Put)
		putAll(d, o.apps.daemonSets, cluster.DaemonSets.Put)
		putAll(d, o.services, cluster.Services.Put)
		putAll(d, o.volumes.csiNodes, (*cluster.Draft).PutCSINode)
		putAll(d, o.volumes.csiDrivers, cluster.CSIDrivers.Put)
		putAll(d, o.resourceClaims, cluster.ResourceClaims.Put)
		putAll(d, o.claimTemplates, cluster.ClaimTemplates.Put)
		putAll(d, o.deviceClasses, cluster.DeviceClasses.Put)
		putAll(d, o.resourceSlices, cluster.ResourceSlices.Put)
		putAll(d, o.nodes, func(d *cluster.Draft, n *corev1.Node) { d.PutNode(n) })
		putAll(d, o.claims, func(d *cluster.Draft, c *v1.NodeClaim) { d.PutClaim(c) })
		putAll(d, o.plans, (*cluster.Draft).PutDisruptionPlan)
		putAll(d, o.rollouts, cluster.Rollouts.Put)
		putAll(d, o.classes, func(d *cluster.Draft, c *awsv1.EC2NodeClass) {
			d.PutNodeClass(&cluster.NodeClass{Group: awsv1.Group, Kind: "EC2NodeClass", Name: c.Name, UID: c.UID, Generation: c.Generation})
		})
		putAll(d, o.pods, (*cluster.Draft).PutPod)
		d.Synced(true)
	})
	return store
}

// putAll puts each object into a draft by the function for its kind.
func putAll[T any](d *cluster.Draft, objects []T, put func(*cluster.Draft, T)) {
	for _, o := range objects {
		put(d, o)
	}
}
