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

// A deviceBook holds which devices are left on each bin, and on which bin each claim is that several pods share.
type deviceBook struct {
	at   [][]*devices.State    // by bin: what its devices may turn out to be, nearly always one; all of them must be able to serve a pod
	held map[int]problem.BinID // by ID of a shared claim
}

// newDeviceBook returns the book of the existing nodes; nil if no pod asks for devices, as in nearly all problems.
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

// admitDevices refuses a pod if its shared claim is on another bin, or if the bin's free devices cannot serve its claims. Devices never
// become free again, so a refusal is final.
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

// heldOff reports whether a shared claim of the pod is on another bin.
func (f *fleet) heldOff(q *trial, bin problem.BinID) bool {
	return slices.ContainsFunc(q.c.Devices, func(d *devices.Claim) bool {
		at, held := f.devices.held[d.ID]
		return held && at != bin
	})
}

// withDevices returns what is left of a bin's devices once one more pod has its own, or why it cannot have them. It charges the work of the
// search.
func (f *facts) withDevices(at []*devices.State, claims []*devices.Claim) ([]*devices.State, *devices.Refusal) {
	if len(at) == 0 {
		return nil, &devices.Refusal{Request: claims[0].Name}
	}
	before := f.p.Devices.Steps
	next, no := devices.All(at, claims)
	f.meter.Charge(work.Units(f.p.Devices.Steps-before) * tryWork)
	return next, no
}

// takeDevices gives n pods their devices one after the other, and notes where their shared claims are now.
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

// fitsDevices reports whether an empty new node of a shape has the devices that one pod asks for. If a claim is allocated already, no new
// node will do.
func fitsDevices(c *problem.Class, t *problem.Template, shape int) bool {
	if len(c.Devices) == 0 {
		return true
	}
	_, no := ownDevices(c, t, shape)
	return no == nil
}

// ownDevices returns why an empty new node of a shape cannot give one pod its devices; 0 and nil if it can.
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

// codeOfDevices returns the code under which a refusal of the device search is explained.
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

// cutDevices takes out the shapes that lack devices for the pods of a new bin and for one more pod with claims more (nil: no more pod).
func (f *fleet) cutDevices(bin problem.BinID, more []*devices.Claim, shapes bits.Set) {
	if f.devices == nil {
		return
	}
	shapes.Only(func(sh int) bool {
		_, ok := f.replayDevices(bin, sh, more)
		return ok
	})
}

// replayDevices allocates devices to the pods of a new bin once more, in the order in which they came, as if the bin were another shape,
// and then to one more pod with claims more, if there are any. It returns what is left; ok is false if some pod gets none. The bin
// does not change.
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

// retargetDevices gives the pods of a new bin their devices on its new target. If the target lacks them, the bin has no devices left for
// further pods.
func (f *fleet) retargetDevices(bin problem.BinID) {
	if f.devices != nil {
		f.devices.at[bin], _ = f.replayDevices(bin, f.bins.node(bin).target, nil)
	}
}

// driversOn returns the drivers of which the pods of a new bin get devices on each of some shapes.
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

// whyNoDevices returns the request or shared claim for which the bin of a trial refused a pod, and a detail (see devices.Refusal). Both
// are "" for a node that is not opened yet, unless a claim is elsewhere.
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

// explainDevices counts the shapes of a template that have no devices for a pod, by the reason.
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
