package lower

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/podclass"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/core/work"
)

// An Engine answers Inputs and keeps what it derived from rows between calls. It is not safe for concurrent use.
type Engine struct {
	known     *apilabel.Vocabulary
	turn      uint64
	resources table
	missing   []string // resources that pods ask for and no machine had
	infos     map[*podclass.Class]*podInfo
	nodes     map[*cluster.Node]*nodeInfo
	catalogs  map[catalogKey]*catalog
	templates map[templateKey]*template
	mentioned map[string]map[string]bool // values that pods ask for, of labels that are chosen for each node

	reservations  map[string]int
	daemons       []daemon
	daemonVersion int
	poolCatalogs  map[string]*catalog // by pool name, of this turn

	world  *world       // of the last snapshot
	memory solve.Memory // of the last answer
}

// New returns an Engine that remembers nothing yet. The tables are what providers know about labels beside what is known without any.
func New(provider ...apilabel.Table) *Engine {
	e := &Engine{known: apilabel.NewVocabulary(append([]apilabel.Table{v1.Labels()}, provider...)...), resources: table{names: quantity.NewNames(), had: map[corev1.ResourceName]bool{}}, reservations: map[string]int{}}
	e.forget()
	return e
}

// Prepare reads the catalogues of pools ahead of the first question.
func (e *Engine) Prepare(pools []PoolInput, s Settings) {
	e.turn++
	e.learnMachines(Input{Pools: pools, Settings: s, Snap: cluster.NewStore().Snapshot()})
	for _, p := range pools {
		e.catalogOf(p.Catalog, s.ReservedCapacity)
	}
}

// forget drops everything that depends on the columns of resources.
func (e *Engine) forget() {
	e.missing = nil
	e.infos = map[*podclass.Class]*podInfo{}
	e.nodes = map[*cluster.Node]*nodeInfo{}
	e.catalogs = map[catalogKey]*catalog{}
	e.templates = map[templateKey]*template{}
	e.mentioned = map[string]map[string]bool{}
	e.daemons, e.world, e.memory = nil, nil, solve.Memory{}
	e.daemonVersion++
}

// keepTurns is for how many turns something is remembered that nobody asked for.
const keepTurns = 256

// tidy forgets what has not been asked for in a while.
func (e *Engine) tidy() {
	if e.turn%keepTurns != 0 {
		return
	}
	e.mentioned = map[string]map[string]bool{} // the pods at hand mention theirs again
	for k, v := range e.infos {
		if v.used+keepTurns < e.turn {
			delete(e.infos, k)
		}
	}
	for k, v := range e.nodes {
		if v.seen+keepTurns < e.turn {
			delete(e.nodes, k)
		}
	}
	for k, v := range e.catalogs {
		if v.used+keepTurns < e.turn {
			delete(e.catalogs, k)
		}
	}
	for k, v := range e.templates {
		if v.used+keepTurns < e.turn {
			delete(e.templates, k)
		}
	}
}

// defaults of the size policy and of the search.
const (
	defaultLarge  = 64
	defaultGain   = 10
	defaultSearch = work.Second * 5 / 4
	// sureSearch is which part of the search is done whatever there is to win, one of so many.
	sureSearch = 4
)

func (e *Engine) plan(ctx context.Context, in Input) *Plan {
	e.turn++
	e.tidy()
	in.ended = func() bool { return ctx.Err() != nil }
	b := e.lower(in)
	b.problem.Settings = solveSettings(in)
	meter := work.NewMeter(in.Settings.CutAt, func() bool { return in.ended() || in.Stop != nil && in.Stop() })
	meter.Charge(b.spent)
	b.problem.Settings.Meter, b.problem.Settings.Memory = meter, e.memory
	r := solve.Run(b.problem)
	e.memory = r.Memory
	out := b.raise(r)
	out.Work, out.CutAt = meter.Spent(), meter.CutAt()
	return out
}

// lower builds the problem. When a resource turns up that needs a column, everything is derived once more.
func (e *Engine) lower(in Input) *builder {
	for {
		columns := e.resources.names.Len()
		e.learnMachines(in)
		b := newBuilder(e, in)
		b.build()
		for _, name := range e.missing {
			if e.resources.had[corev1.ResourceName(name)] {
				e.resources.names.Intern(name)
			}
		}
		if e.resources.names.Len() == columns {
			return b
		}
		e.forget()
	}
}

// learnMachines notes the resources that machines have, and gives those that limits name a column.
func (e *Engine) learnMachines(in Input) {
	before := e.resources.names.Len()
	note := func(list corev1.ResourceList) {
		for name := range list {
			e.resources.had[name] = true
		}
	}
	for _, p := range in.Pools {
		if e.catalogs[catalogKey{p.Catalog, in.Settings.ReservedCapacity}] == nil {
			for _, it := range p.Catalog.Types {
				note(it.Capacity)
				for i := range it.Offerings {
					note(it.Offerings[i].Capacity)
				}
			}
		}
	}
	if e.world == nil || e.world.snap != in.Snap {
		for row := range in.Snap.Nodes() {
			if e.nodes[row] == nil && !row.Incomplete {
				note(row.Allocatable())
			}
		}
	}
	for _, p := range in.Pools {
		for name := range p.Pool.Spec.Limits {
			if e.resources.had[name] {
				e.resources.names.Intern(string(name))
			}
		}
	}
	if e.resources.names.Len() != before {
		e.forget()
	}
}

func solveSettings(in Input) solve.Settings {
	s := in.Settings
	out := solve.Settings{
		MinBestEffort: s.MinValuesBestEffort, Large: s.Size.Large, GainPermille: s.Size.GainPermille,
		Terms: termsOf(&s), Most: s.Search, FirstFit: s.FirstFit, Unproven: s.Unproven,
	}
	if out.Most == 0 {
		out.Most = defaultSearch
	}
	out.Least = max(out.Most/sureSearch, 1)
	switch {
	case out.Large == 0:
		out.Large, out.GainPermille = defaultLarge, defaultGain
	case out.Large < 0:
		out.Large = 0
	}
	return out
}

// sortPods puts pods into an order that does not depend on the caller's: oldest first, then by name.
func sortPods(pods []*cluster.Pod) []*cluster.Pod {
	out := slices.Clone(pods)
	if !slices.IsSortedFunc(out, olderFirst) {
		slices.SortFunc(out, olderFirst)
	}
	return out
}

func olderFirst(a, b *cluster.Pod) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
