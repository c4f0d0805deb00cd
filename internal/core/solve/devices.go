package solve

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/devices"
	"karpenter.sh/karpenter/internal/core/work"
)

// A deviceBook is which devices are left on each bin, and where the claims are that several pods share.
type deviceBook struct {
	at   [][]*devices.State    // by bin
	held map[int]problem.BinID // by claim
}

// newDeviceBook returns nil for nearly all problems: no pod asks for devices.
func newDeviceBook(p *problem.Problem) *deviceBook {
	if p.Devices == nil {
		return nil
	}
	b := &deviceBook{held: map[int]problem.BinID{}}
	for i := range p.Nodes {
		b.at = append(b.at, p.Nodes[i].Devices)
	}
	for i := range p.Classes {
		for _, d := range p.Classes[i].Devices {
			if d.At != devices.Nowhere {
				b.held[d.ID] = problem.BinID(d.At)
			}
		}
	}
	return b
}

func (f *fleet) admitDevices(q *trial) verdict {
	if len(q.c.Devices) == 0 {
		return verdict{}
	}
	if f.heldOff(q, q.bin) {
		return verdict{reason.DeviceAt, true}
	}
	if _, no := f.facts.withDevices(f.devices.at[q.bin], q.c.Devices); no != nil {
		return verdict{codeOfDevices(no), true}
	}
	return verdict{}
}

// heldOff reports whether a claim of a pod is on another bin.
func (f *fleet) heldOff(q *trial, bin problem.BinID) bool {
	return slices.ContainsFunc(q.c.Devices, func(d *devices.Claim) bool {
		at, held := f.devices.held[d.ID]
		return held && at != bin
	})
}

// withDevices is what is left of the devices of a place once one more pod has its own.
func (f *facts) withDevices(at []*devices.State, claims []*devices.Claim) ([]*devices.State, *devices.Refusal) {
	if len(at) == 0 {
		return nil, &devices.Refusal{Request: claims[0].Name}
	}
	before := f.p.Devices.Steps
	next, no := devices.All(at, claims)
	f.meter.Charge(work.Units(f.p.Devices.Steps-before) * tryWork)
	return next, no
}

func (f *fleet) takeDevices(q *trial, n int) {
	if len(q.c.Devices) == 0 {
		return
	}
	for range n {
		if next, no := f.facts.withDevices(f.devices.at[q.bin], q.c.Devices); no == nil {
			f.devices.at[q.bin] = next
		}
	}
	for _, d := range q.c.Devices {
		if d.Shared {
			f.devices.held[d.ID] = q.bin
		}
	}
}

func (f *fleet) openDevices(bin problem.BinID) {
	if f.devices != nil {
		n := f.bins.node(bin)
		f.devices.at = append(f.devices.at, f.bins.template(n).DevicesOf(n.target))
	}
}

// fitsDevices asks about a node of its own. Where a claim is allocated already no new node will do.
func fitsDevices(c *problem.Class, t *problem.Template, shape int) bool {
	if len(c.Devices) == 0 {
		return true
	}
	_, no := ownDevices(c, t, shape)
	return no == nil
}

func ownDevices(c *problem.Class, t *problem.Template, shape int) (code reason.Code, no *devices.Refusal) {
	for _, d := range c.Devices {
		if d.At != devices.Nowhere {
			return reason.DeviceAt, &devices.Refusal{Request: d.Name}
		}
	}
	at := t.DevicesOf(shape)
	if at == nil {
		return reason.Devices, &devices.Refusal{Request: c.Devices[0].Name}
	}
	if _, no = at[0].With(c.Devices); no != nil {
		return codeOfDevices(no), no
	}
	return 0, nil
}

func codeOfDevices(no *devices.Refusal) reason.Code {
	switch no.Why {
	case devices.Unknown:
		return reason.DeviceUnknown
	case devices.Invalid:
		return reason.DeviceCEL
	case devices.TooHard:
		return reason.DeviceHard
	default:
		return reason.Devices
	}
}

// cutDevices leaves the shapes that have devices for all pods of a bin, and for one more that brings claims.
func (f *fleet) cutDevices(bin problem.BinID, more []*devices.Claim, shapes bits.Set) {
	if f.devices == nil {
		return
	}
	shapes.Only(func(sh int) bool {
		_, ok := f.replayDevices(bin, sh, more)
		return ok
	})
}

// replayDevices gives the pods of a bin their devices as if it were another shape.
func (f *fleet) replayDevices(bin problem.BinID, shape int, more []*devices.Claim) (at []*devices.State, ok bool) {
	n := f.bins.node(bin)
	at = f.bins.template(n).DevicesOf(shape)
	add := func(claims []*devices.Claim) bool {
		next, no := f.facts.withDevices(at, claims)
		at = next
		return no == nil
	}
	for _, p := range n.puts {
		if claims := f.facts.p.Classes[p.Class].Devices; len(claims) > 0 {
			for range p.Count {
				if !add(claims) {
					return nil, false
				}
			}
		}
	}
	if len(more) > 0 && !add(more) {
		return nil, false
	}
	return at, true
}

// retargetDevices gives the pods of a bin their devices on the shape that it is filled for now. Where they have
// none there, nothing else gets any.
func (f *fleet) retargetDevices(bin problem.BinID) {
	if f.devices != nil {
		f.devices.at[bin], _ = f.replayDevices(bin, f.bins.node(bin).target, nil)
	}
}

// driversOn are the drivers whose devices the pods of a bin get, whichever of some shapes it is.
func (f *fleet) driversOn(bin problem.BinID, shapes bits.Set) (out []int) {
	if f.devices == nil {
		return nil
	}
	first := true
	for sh := range shapes.All() {
		at, ok := f.replayDevices(bin, sh, nil)
		if !ok || len(at) == 0 {
			return nil
		}
		if first {
			out, first = slices.Clone(at[0].Drivers()), false
			continue
		}
		out = slices.DeleteFunc(out, func(d int) bool { return !slices.Contains(at[0].Drivers(), d) })
	}
	return out
}

// whyNoDevices names the request that a bin refuses, and what is wrong with it.
func (s *state) whyNoDevices(q *trial) (request, detail string) {
	for _, d := range q.c.Devices {
		if at, held := s.fleet.devices.held[d.ID]; held && at != q.bin {
			return d.Name, ""
		}
	}
	if q.bin == s.fleet.bins.next() {
		return "", ""
	}
	if _, no := s.facts.withDevices(s.fleet.devices.at[q.bin], q.c.Devices); no != nil {
		return no.Request, no.Detail
	}
	return "", ""
}

// explainDevices says which shapes of a template have no devices for a pod, and why.
func (s *state) explainDevices(c *problem.Class, tmpl *problem.Template, pool string) reason.Explanation {
	counts := map[cause]int{}
	for sh := range tmpl.Shapes.All() {
		if len(c.Devices) == 0 {
			break
		}
		if code, no := ownDevices(c, tmpl, sh); no != nil {
			counts[cause{code, no.Request, no.Detail}]++
		}
	}
	var out reason.Explanation
	for _, why := range slices.SortedFunc(maps.Keys(counts), cause.compare) {
		out = append(out, reason.Count{Code: why.code, Key: why.key, Detail: why.detail, Pool: pool, Candidates: counts[why]})
	}
	return out
}

// compare orders causes by their code, then by what they are about.
func (c cause) compare(other cause) int {
	return cmp.Or(cmp.Compare(c.code, other.code), strings.Compare(c.key, other.key), strings.Compare(c.detail, other.detail))
}
