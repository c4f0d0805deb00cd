package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/volumes"
)

func (f *fleet) admitVolumes(q *trial) verdict {
	if len(q.c.Volumes) > 0 && f.volumes.Full(int(q.bin), q.c.Volumes) >= 0 {
		return verdict{reason.VolumeLimit, true}
	}
	return verdict{}
}

func (f *fleet) takeVolumes(q *trial) {
	if len(q.c.Volumes) > 0 {
		f.volumes.Attach(int(q.bin), q.c.Volumes)
	}
}

func (f *fleet) openVolumes(bin problem.BinID) {
	n := f.bins.node(bin)
	f.volumes.Open(f.facts.attachables(n.tmpl, n.target), nil)
}

// attachables returns, by driver, how many volumes a shape of a template can attach.
func (f *facts) attachables(t problem.TemplateID, shape int) []volumes.Use {
	var out []volumes.Use
	for d := range f.p.Drivers {
		out = append(out, volumes.Use{Limit: f.p.Templates[t].Attachable(d, shape)})
	}
	return out
}

// fitsVolumes reports whether an empty node of a shape can attach all volumes of one pod. It looks only at driver limits.
func fitsVolumes(c *problem.Class, t *problem.Template, shape int) bool {
	for i, v := range c.Volumes {
		n := int32(0)
		for j := range c.Volumes[:i+1] {
			if c.Volumes[j].Driver == v.Driver {
				n++
			}
		}
		if limit := t.Attachable(v.Driver, shape); limit >= 0 && n > limit {
			return false
		}
	}
	return true
}

func (f *fleet) cutVolumes(bin problem.BinID, shapes bits.Set) { f.cutVolumesWith(bin, nil, shapes) }

// cutVolumesWith takes out the shapes that cannot attach the volumes on a new bin and more ones.
func (f *fleet) cutVolumesWith(bin problem.BinID, more []volumes.Volume, shapes bits.Set) {
	t := f.bins.template(f.bins.node(bin))
	for d := range f.facts.p.Drivers {
		if n := f.volumes.With(int(bin), d, more); n > 0 {
			shapes.Only(func(sh int) bool { limit := t.Attachable(d, sh); return limit < 0 || n <= int(limit) })
		}
	}
}
