package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"

	"karpenter.sh/karpenter/internal/core/problem"
)

// Each kind of constraint has a file, in which it answers the same few questions, as far as it has a say:
//
//	admit  may one more pod join this bin?                    (a verdict; choices in the trial get fewer)
//	take   what changes when pods join                        (columns of the fleet)
//	open   what a new bin begins with                         (columns of the fleet)
//	fits   could a machine of this shape hold a pod at all?   (before any bin is there)
//	cut    which machines could hold what is on a bin?        (shapes get fewer)
//
// Here are the lists; a new kind is a file and a line in each list that concerns it. Calls are static, because
// admit is the innermost loop. What is cheap and final comes before what is a choice.

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

func (f *fleet) take(q *trial, n int) {
	f.bins.takeRoom(q, n)
	f.takePorts(q)
	f.takeVolumes(q)
	f.takeDevices(q, n)
	f.census.takeHosts(q, n)
	f.census.takeDomains(q, n)
}

func (f *fleet) opened(bin problem.BinID) {
	f.bins.openRoom(bin)
	f.bins.openLabels(bin)
	f.openPorts(bin)
	f.openVolumes(bin)
	f.openDevices(bin)
	f.bins.openDomains(bin)
	f.stock.openLimits(bin)
}

func fits(c *problem.Class, t *problem.Template, shape int) bool {
	return c.Need.Fits(t.Room[shape]) && fitsPorts(c, t, shape) && fitsVolumes(c, t, shape) && fitsDevices(c, t, shape)
}

// cut leaves the shapes that could hold the pods of a bin as they are counted now. What limits and other bins want of it is not asked.
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
