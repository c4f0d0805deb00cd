package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"

	"karpenter.sh/karpenter/internal/core/problem"
)

// Each kind of constraint has a file, in which it answers those of five questions that concern it:
//
//	admit  may one more pod join this bin?                    (a verdict; choices in the trial get fewer)
//	take   what changes when pods join                        (columns of the fleet)
//	open   what a new bin begins with                         (columns of the fleet)
//	fits   could a machine of this shape hold a pod at all?   (before any bin is there)
//	cut    which machines could hold what is on a bin?        (shapes get fewer)
//
// The functions below are the lists, one for each question. A new kind is a file and a line in each list that concerns it. Calls are
// static, because admit is the innermost loop. Reservations and prices are not in the lists: they are asked when a node is opened or
// finished. minValues are asked within admitDomains, because the chosen domain decides which types are left.

// admit asks each kind whether one more pod may join the bin of a trial, and returns the first refusal. Checks that are cheap and final
// come before those that choose among domains.
func (f *fleet) admit(q *trial) verdict {
	no := f.bins.admitRoom(q)
	if no.code == 0 {
		no = f.admitLabels(q)
	}
	if no.code == 0 {
		no = f.admitPorts(q)
	}
	if no.code == 0 {
		no = f.admitVolumes(q)
	}
	if no.code == 0 {
		no = f.admitDevices(q)
	}
	if no.code == 0 {
		no = f.census.admitHosts(q)
	}
	if no.code == 0 {
		no = f.admitDomains(q)
	}
	return no
}

// take counts n pods of an admitted trial on its bin.
func (f *fleet) take(q *trial, n int) {
	f.bins.takeRoom(q, n)
	f.takePorts(q)
	f.takeVolumes(q)
	f.takeDevices(q, n)
	f.census.takeHosts(q, n)
	f.census.takeDomains(q, n)
}

// open enters a new bin, which was just added, into the books of each kind of rule: its room and choices, the ports of its daemons, how
// many volumes it can attach, its devices without those that daemons take, the domains in which it counts, and what it takes from limits.
func (f *fleet) open(bin problem.BinID) {
	f.bins.openRoom(bin)
	f.bins.openLabels(bin)
	f.openPorts(bin)
	f.openVolumes(bin)
	f.openDevices(bin)
	f.bins.openDomains(bin)
	f.stock.openLimits(bin)
}

// fits reports whether an empty node of a shape could hold one pod of a class. Labels, limits and prices are not asked.
func fits(c *problem.Class, t *problem.Template, shape int) bool {
	return c.Need.Fits(t.Room[shape]) && fitsPorts(c, t, shape) && fitsVolumes(c, t, shape) && fitsDevices(c, t, shape)
}

// cut takes out the shapes that could not hold the pods of a new bin, or on which they would be counted in other domains than now. It does
// not look at limits, nor at what pods of other bins need.
func (f *fleet) cut(bin problem.BinID, shapes bits.Set) {
	if only := f.bins.node(bin).only; only != nil {
		shapes.And(only)
	}
	f.bins.cutDomains(bin, shapes)
	f.census.cutCounts(bin, shapes)
	f.census.cutDaemons(f.bins.node(bin).tmpl, f.bins.node(bin).target, f.bins.maskOf(bin), shapes)
	f.cutPorts(bin, shapes)
	f.cutVolumes(bin, shapes)
	f.cutDevices(bin, nil, shapes)
}
