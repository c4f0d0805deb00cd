package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/quantity"
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

func (f *fleet) openVolumes(bin BinID) {
	n := f.node(bin)
	f.volumes.Open(f.attachables(n.tmpl, n.target), nil)
}

// attachables is what a shape of a template takes of each driver.
func (f *facts) attachables(t TemplateID, shape int) []volumes.Use {
	var out []volumes.Use
	for d := range f.p.Drivers {
		out = append(out, volumes.Use{Limit: f.p.Templates[t].attachable(d, shape)})
	}
	return out
}

// attachable is how many volumes of a driver a shape takes, −1 where that is not limited.
func (t *Template) attachable(driver, shape int) int32 {
	if driver >= len(t.Drivers) || t.Drivers[driver] == nil {
		return -1
	}
	return t.Drivers[driver][shape]
}

func fitsVolumes(c *Class, t *Template, shape int) bool {
	for i, v := range c.Volumes {
		n := int32(0)
		for j := range c.Volumes[:i+1] {
			if c.Volumes[j].Driver == v.Driver {
				n++
			}
		}
		if limit := t.attachable(v.Driver, shape); limit >= 0 && n > limit {
			return false
		}
	}
	return true
}

func (f *fleet) cutVolumes(bin BinID, shapes bits.Set) { f.cutVolumesWith(bin, nil, shapes) }

// cutVolumesWith is cutVolumes once more volumes are attached.
func (f *fleet) cutVolumesWith(bin BinID, more []volumes.Volume, shapes bits.Set) {
	t := f.template(f.node(bin))
	for d := range f.p.Drivers {
		if n := f.volumes.With(int(bin), d, more); n > 0 {
			shapes.Only(func(sh int) bool { limit := t.attachable(d, sh); return limit < 0 || n <= int(limit) })
		}
	}
}

// roomsOf is what every shape has, with attach limits as further dimensions where volumes are counted.
func (f *facts) roomsOf(t *Template) []quantity.Vec {
	if f.p.Drivers == 0 {
		return t.Room
	}
	rooms := make([]quantity.Vec, len(t.Room))
	for sh := range rooms {
		rooms[sh] = f.roomWithVolumes(t, sh)
	}
	return rooms
}

func (f *facts) roomWithVolumes(t *Template, shape int) quantity.Vec {
	out := append(make(quantity.Vec, 0, len(t.Room[shape])+f.p.Drivers), t.Room[shape]...)
	for d := range f.p.Drivers {
		most := quantity.Max
		if limit := t.attachable(d, shape); limit >= 0 {
			most = int64(limit)
		}
		out = append(out, most)
	}
	return out
}

// sharedVolume reports whether several pods mount a volume.
func (f *facts) sharedVolume(v volumes.Volume) bool {
	if f.mounts == nil {
		f.mounts = map[int]int{}
		for i := range f.p.Classes {
			for _, w := range f.p.Classes[i].Volumes {
				f.mounts[w.ID] += f.p.Classes[i].Count
			}
		}
	}
	return f.mounts[v.ID] > 1
}
