package devices

import (
	"errors"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/devices"
	"karpenter.sh/karpenter/internal/kit/selectorerr"
)

// An ask is a request, or one of its alternatives, whose device class is known.
type ask struct {
	name        string
	class       *resourcev1.DeviceClass
	mode        resourcev1.DeviceAllocationMode
	count       int64
	admin       bool
	selectors   []resourcev1.DeviceSelector
	tolerations []resourcev1.DeviceToleration
	capacity    *resourcev1.CapacityRequirements
}

// understand turns the requests of a claim into numbers, but for what they make of devices, and says why the claim cannot be planned for.
func (d *Model) understand(c *claim) reason.Count {
	for i := range c.spec.Devices.Requests {
		asks, bad := d.asksOf(c, &c.spec.Devices.Requests[i])
		if bad.Code != 0 {
			return bad
		}
		r := devices.Request{Name: c.spec.Devices.Requests[i].Name}
		for _, a := range asks {
			if a.count > math.MaxInt32 {
				return badClaim(c.Name, reason.TooMany, a.name)
			}
			r.Options = append(r.Options, devices.Option{Count: int(a.count),
				All: a.mode == resourcev1.DeviceAllocationModeAll, Admin: a.admin})
		}
		c.Requests = append(c.Requests, r)
	}
	for i := range c.spec.Devices.Constraints {
		k := &c.spec.Devices.Constraints[i]
		if (k.MatchAttribute == nil) == (k.DistinctAttribute == nil) {
			return badClaim(c.Name, reason.ConstraintUnknown, "")
		}
		out := devices.Constraint{Distinct: k.DistinctAttribute != nil}
		for r := range c.spec.Devices.Requests {
			out.On = append(out.On, concerns(k.Requests, &c.spec.Devices.Requests[r]))
		}
		c.Constraints = append(c.Constraints, out)
	}
	return reason.Count{}
}

// concerns says by option which ways to serve a request a constraint is about. None named: all are.
func concerns(names []string, r *resourcev1.DeviceRequest) []bool {
	on := len(names) == 0 || slices.Contains(names, r.Name)
	if len(r.FirstAvailable) == 0 {
		return []bool{on}
	}
	var out []bool
	for i := range r.FirstAvailable {
		out = append(out, on || slices.Contains(names, r.Name+"/"+r.FirstAvailable[i].Name))
	}
	return out
}

// asksOf returns the ways to serve a request.
func (d *Model) asksOf(c *claim, r *resourcev1.DeviceRequest) ([]ask, reason.Count) {
	var out []ask
	if x := r.Exactly; x != nil {
		out = append(out, ask{name: r.Name, mode: x.AllocationMode, count: x.Count, admin: x.AdminAccess != nil && *x.AdminAccess,
			selectors: x.Selectors, tolerations: x.Tolerations, capacity: x.Capacity})
		out[0].class = cluster.DeviceClasses.Get(d.in.Snap, x.DeviceClassName)
		if out[0].class == nil {
			return nil, badClaim(c.Name, reason.DeviceClassMissing, x.DeviceClassName)
		}
	}
	for i := range r.FirstAvailable {
		x := &r.FirstAvailable[i]
		class := cluster.DeviceClasses.Get(d.in.Snap, x.DeviceClassName)
		if class == nil {
			return nil, badClaim(c.Name, reason.DeviceClassMissing, x.DeviceClassName)
		}
		out = append(out, ask{name: r.Name + "/" + x.Name, class: class, mode: x.AllocationMode, count: x.Count,
			selectors: x.Selectors, tolerations: x.Tolerations, capacity: x.Capacity})
	}
	if len(out) == 0 {
		return nil, badClaim(c.Name, reason.RequestUnknown, r.Name)
	}
	for i := range out {
		a := &out[i]
		if a.mode == "" {
			a.mode = resourcev1.DeviceAllocationModeExactCount
		}
		if a.mode == resourcev1.DeviceAllocationModeExactCount && a.count <= 0 {
			a.count = 1 // as the API server would have written it
		}
		if a.mode != resourcev1.DeviceAllocationModeExactCount && a.mode != resourcev1.DeviceAllocationModeAll {
			return nil, badClaim(c.Name, reason.CountUnknown, a.name+" ("+string(a.mode)+")")
		}
		for _, s := range slices.Concat(a.class.Spec.Selectors, a.selectors) {
			if s.CEL == nil {
				return nil, badClaim(c.Name, reason.SelectorUnknown, a.name)
			}
		}
	}
	return out, reason.Count{}
}

// fill compares a claim with all kinds of devices. A claim that is too much work is retried with the next plan if selectors were still
// being evaluated (the results are cached); otherwise it is refused.
func (d *Model) fill(c *claim) {
	if c.bad.Code != 0 || len(c.Requests) == 0 {
		return
	}
	began, evaluated := d.cost(), d.evaluated
	tooMuch := func() bool {
		if d.cost()-began <= mostClaim {
			return false
		}
		c.bad = reason.Count{Code: reason.DeviceHard, Key: c.Name}
		if d.evaluated > evaluated {
			c.bad = reason.Count{Code: reason.Postponed}
		}
		return true
	}
	for i := range c.Requests {
		asks, _ := d.asksOf(c, &c.spec.Devices.Requests[i])
		for o := range asks {
			fits := make([]devices.Fit, len(d.kinds))
			for k, kind := range d.kinds {
				if fits[k] = d.fitOf(&asks[o], kind); (k+1)%100 == 0 && tooMuch() {
					return
				}
			}
			if tooMuch() {
				return
			}
			c.Requests[i].Options[o].Fits = fits
		}
	}
	for i := range c.Constraints {
		if d.fillConstraint(&c.Constraints[i], &c.spec.Devices.Constraints[i]); tooMuch() {
			return
		}
	}
}

func (d *Model) fillConstraint(out *devices.Constraint, k *resourcev1.DeviceConstraint) {
	name := k.MatchAttribute
	if out.Distinct {
		name = k.DistinctAttribute
	}
	out.Values, out.Bad = make([]int32, len(d.kinds)), make([]string, len(d.kinds))
	d.compared += len(d.kinds)
	for i, kind := range d.kinds {
		out.Values[i] = -1
		if at := slices.IndexFunc(kind.later, func(l string) bool {
			return qualified(kind.driver, resourcev1.QualifiedName(l)) == string(*name)
		}); at >= 0 {
			out.Bad[i] = string(*name)
			continue
		}
		for attr, v := range kind.device.Attributes {
			if qualified(kind.driver, attr) == string(*name) {
				out.Values[i] = d.value(&v)
			}
		}
	}
}

// value numbers the value of an attribute, −1 for one of a type that is not known.
func (d *Model) value(v *resourcev1.DeviceAttribute) int32 {
	var key string
	switch {
	case v.StringValue != nil:
		key = "s" + *v.StringValue
	case v.IntValue != nil:
		key = "i" + strconv.FormatInt(*v.IntValue, 10)
	case v.BoolValue != nil:
		key = "b" + strconv.FormatBool(*v.BoolValue)
	case v.VersionValue != nil:
		key = "v" + *v.VersionValue
	default:
		return -1
	}
	n, ok := d.values[key]
	if !ok {
		n = int32(len(d.values))
		d.values[key] = n
	}
	return n
}

// fitOf says what a request makes of a kind of device.
func (d *Model) fitOf(a *ask, kind *kind) devices.Fit {
	d.compared++
	var out devices.Fit
	out.Selected = true
	for _, s := range slices.Concat(a.class.Spec.Selectors, a.selectors) {
		if out.Selected, out.Bad = d.selects(kind, s.CEL.Expression); !out.Selected {
			return out
		}
	}
	out.Tolerated = !slices.ContainsFunc(kind.device.Taints, func(t resourcev1.DeviceTaint) bool {
		return (t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute) &&
			!slices.ContainsFunc(a.tolerations, func(x resourcev1.DeviceToleration) bool { return toleratesDevice(&x, &t) })
	})
	out.Takes, out.Within = takes(a.capacity, kind)
	return out
}

func toleratesDevice(x *resourcev1.DeviceToleration, t *resourcev1.DeviceTaint) bool {
	if x.Effect != "" && x.Effect != t.Effect || x.Key != "" && x.Key != t.Key {
		return false
	}
	return x.Operator == resourcev1.DeviceTolerationOpExists ||
		(x.Operator == "" || x.Operator == resourcev1.DeviceTolerationOpEqual) && x.Value == t.Value
}

// selects asks a selector about a kind of device. What it asks of a device that is not there yet has to be known beforehand.
func (d *Model) selects(kind *kind, expression string) (bool, *devices.Refusal) {
	for _, name := range kind.later {
		if mentions(expression, name) {
			return false, &devices.Refusal{Why: devices.Unknown, Detail: name}
		}
	}
	if no := d.useless[expression]; no != nil {
		return false, no
	}
	said := d.in.Memory.of(expression)
	if said.said[kind.id] == notAsked {
		switch yes, err := d.in.Selects(expression, kind.driver, kind.device); {
		case err != nil:
			d.in.Memory.fails(said, kind.id, err)
		case yes:
			said.said[kind.id] = takesIt
		default:
			said.said[kind.id] = leavesIt
		}
		d.evaluated++
	}
	if said.said[kind.id] != fails {
		return said.said[kind.id] == takesIt, nil
	}
	err := said.errs[kind.id]
	if missing, ok := errors.AsType[*selectorerr.MissingKey](err); ok && kind.coming {
		return false, &devices.Refusal{Why: devices.Unknown, Detail: missing.Key}
	}
	what, _, _ := strings.Cut(err.Error(), "\n")
	no := &devices.Refusal{Why: devices.Invalid, Detail: what}
	if _, ok := errors.AsType[*selectorerr.Unusable](err); ok {
		d.useless[expression] = no // it is not asked about other kinds of devices: that could take minutes
	}
	return false, no
}

// mentions reports whether a selector asks for an attribute, by the last part of its name.
func mentions(expression, attribute string) bool {
	_, last, found := strings.Cut(attribute, "/")
	if !found {
		last = attribute
	}
	return slices.Contains(words.FindAllString(expression, -1), last)
}

var words = regexp.MustCompile(`\w+`)

// takes says what a share takes of each capacity of a device, by name, and whether capacity and its rules allow one.
func takes(want *resourcev1.CapacityRequirements, kind *kind) (out []int64, within bool) {
	within = true
	var requests map[resourcev1.QualifiedName]resource.Quantity
	if want != nil {
		requests = want.Requests
	}
	for name := range requests {
		if _, has := kind.device.Capacity[name]; !has {
			within = false
		}
	}
	for _, name := range sorted(kind.device.Capacity) {
		c := kind.device.Capacity[name]
		asked, says := requests[name]
		share := shareOf(&c, asked, says)
		out = append(out, milli(&share))
		within = within && share.Cmp(c.Value) <= 0 && allowed(c.RequestPolicy, &share)
	}
	return out, within
}

// shareOf is what is taken of a capacity: what is asked for, as the driver rounds it up, or what it gives to those who ask for nothing.
func shareOf(c *resourcev1.DeviceCapacity, asked resource.Quantity, says bool) resource.Quantity {
	p := c.RequestPolicy
	switch {
	case !says && p != nil && p.Default != nil:
		return *p.Default
	case !says:
		return c.Value
	case p == nil:
		return asked
	case p.ValidRange != nil && p.ValidRange.Min != nil:
		return roundUp(asked, p.ValidRange)
	}
	for _, v := range p.ValidValues {
		if asked.Cmp(v) <= 0 {
			return v
		}
	}
	return asked
}

func roundUp(asked resource.Quantity, r *resourcev1.CapacityRequestPolicyRange) resource.Quantity {
	switch {
	case asked.Cmp(*r.Min) < 0:
		return *r.Min
	case r.Step == nil || r.Step.Value() <= 0:
		return asked
	}
	least, step := r.Min.Value(), r.Step.Value()
	steps := (asked.Value() - least + step - 1) / step
	return *resource.NewQuantity(least+steps*step, resource.BinarySI)
}

// allowed reports whether the rules of a capacity allow a share.
func allowed(p *resourcev1.CapacityRequestPolicy, share *resource.Quantity) bool {
	switch {
	case p == nil || p.Default != nil && share.Cmp(*p.Default) == 0:
		return true
	case p.ValidRange != nil:
		r := p.ValidRange
		if r.Max != nil && share.Cmp(*r.Max) > 0 {
			return false
		}
		return r.Min == nil || r.Step == nil || r.Step.Value() <= 0 || (share.Value()-r.Min.Value())%r.Step.Value() == 0
	case len(p.ValidValues) > 0:
		return slices.ContainsFunc(p.ValidValues, func(v resource.Quantity) bool { return share.Cmp(v) == 0 })
	}
	return true
}

// milli is a quantity in thousandths, the most there can be for what is larger, and none for less than that.
func milli(q *resource.Quantity) int64 {
	switch {
	case q.CmpInt64(devices.Most/1000) > 0:
		return devices.Most
	case q.Sign() < 0:
		return 0
	}
	return q.MilliValue()
}
