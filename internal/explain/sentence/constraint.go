package sentence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
)

// Explanation says why a pod has no place: first what is wrong with the pod, then existing nodes, then each pool.
func Explanation(why []reason.Count) string {
	if len(why) == 0 {
		return "no reason is known"
	}
	var pod []string
	var nodes []string
	total := 0
	pools := map[string][]string{}
	var order []string
	for _, c := range why {
		switch {
		case c.Pool != "":
			if pools[c.Pool] == nil {
				order = append(order, c.Pool)
			}
			pools[c.Pool] = append(pools[c.Pool], poolText(&c))
		case c.Candidates > 0:
			total += c.Candidates
			nodes = append(nodes, fmt.Sprintf("%d %s", c.Candidates, numbered(&c)))
		default:
			pod = append(pod, constraint(&c))
		}
	}
	parts := pod
	if total > 0 {
		parts = append(parts, fmt.Sprintf("%s: %s", Count(total, "existing node"), strings.Join(nodes, ", ")))
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(a, b) })
	for _, p := range order {
		parts = append(parts, fmt.Sprintf("pool %q: %s", p, strings.Join(pools[p], ", ")))
	}
	return strings.Join(parts, "; ")
}

// Count returns a number with a noun, whose plural ends in s: "1 node", "3 nodes".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// poolText returns the phrase about a constraint in a pool, with the number of types that it ruled out where that is
// known.
func poolText(c *reason.Count) string {
	switch c.Code {
	case reason.TooLarge, reason.NoOffering, reason.LabelMismatch, reason.HostPort, reason.VolumeLimit, reason.Devices, reason.DeviceCEL:
		if c.Candidates > 0 {
			return fmt.Sprintf("%s %s", Count(c.Candidates, "type"), numbered(c))
		}
	}
	return constraint(c)
}

// numbered returns the phrase of a constraint to be put behind a number of candidates. For more than one its verb is
// plural.
func numbered(c *reason.Count) string {
	text := constraint(c)
	if c.Candidates < 2 {
		return text
	}
	for one, several := range map[string]string{"does not ": "do not ", "has ": "have ", "takes ": "take "} {
		if rest, ok := strings.CutPrefix(text, one); ok {
			return several + rest
		}
	}
	return text
}

// constraint returns the phrase of a constraint. In the texts of constraints and flaws, % stands for the key and &
// for the detail. A text without & gets the detail at its end; one without % gets the key in brackets.
func constraint(c *reason.Count) string {
	text, key, detail := constraints[c.Code], c.Key, c.Detail
	switch {
	case c.Flaw != reason.NoFlaw:
		text += " " + flaws[c.Flaw]
	case c.Code == reason.NoTypes && detail != "":
		key, detail = key+" and "+detail, ""
	}
	if c.Key == dollarsAnHour {
		key = "dollars an hour"
	}
	if words := assumed[c.Key]; c.Code == reason.TooLarge && words != "" {
		key = words
	}
	if key == "" {
		text = strings.ReplaceAll(strings.ReplaceAll(text, " %", ""), "%", "")
	} else if !strings.Contains(text, "%") {
		text += " (%)"
	}
	if strings.Contains(text, "&") {
		text, detail = strings.NewReplacer("%", key, "&", detail).Replace(text), ""
	} else {
		text = strings.ReplaceAll(text, "%", key)
	}
	if c.Code == reason.LabelUnknown && c.Key == v1.ProvisionerLabelKey {
		text += "; its name today is " + v1.NodePoolLabelKey + ", or a pool stands in by the annotation " + v1.ProvisionerAnnotationKey
	}
	if numbers := LimitNumbers(c); numbers != "" {
		text += " " + numbers
	}
	if detail != "" {
		text = strings.TrimPrefix(text+" "+detail, " ")
	}
	return text
}

// dollarsAnHour is the resource by which a quota limits what its nodes cost.
const dollarsAnHour = string(autoscalingv1beta1.ResourceDollars)

// assumed are the resources in which containers without requests count.
var assumed = map[string]string{
	quantity.AssumedCPU:    "cpu, where a container without a request counts as 100m",
	quantity.AssumedMemory: "memory, where a container without a request counts as 200Mi",
}

// LimitNumbers returns, for a limit that is reached, its amount, how much of it is used and what would be needed;
// "" where that is not known.
func LimitNumbers(c *reason.Count) string {
	switch {
	case c.Limit == "":
		return ""
	case c.Least == "":
		return fmt.Sprintf("(%s, used %s)", c.Limit, c.Used)
	}
	return fmt.Sprintf("(%s, used %s; the smallest machine that would do has %s)", c.Limit, c.Used, c.Least)
}

// constraints are what codes mean; % is the key. Those that are missing say all in their detail.
var constraints = map[reason.Code]string{
	reason.Invalid:         "the pod's %",
	reason.RestrictedLabel: "the pod asks for label %, which may not be asked for",
	reason.VolumeInvalid:   "volume claim %",
	reason.DeviceClaims:    "the pod references resource claims, which are ignored (ignore-dra-requests)",
	reason.DevicesUnread:   "the pod references resource claims, and what devices there are cannot be read now",
	reason.DeviceInvalid:   "resource claim %",
	reason.Devices:         "has too few free devices for request %",
	reason.DeviceUnknown:   "request % asks for an attribute that is known only once the device is there:",
	reason.DeviceCEL:       "has a device for which a selector of request % fails:",
	reason.DeviceHard:      "the search for devices for request % was given up",
	reason.DeviceAt:        "resource claim % is allocated on another node",
	reason.NoPools:         "no pool may open nodes",
	reason.AvoidsManaged:   "the pod demands a node without pool",
	reason.NotReached:      "the time for a plan ran out before its turn; it comes next time",
	reason.Postponed: "this pod's constraints and those of others are more work than one plan may take; its " +
		"turn comes with the next plans",
	reason.UninitializedOnly: "only node %, which is not initialised yet or lacks a driver of its volumes, has room",
	reason.Taint:             "has a taint % that is not tolerated",
	reason.LabelMismatch:     "does not match the required label %",
	reason.NodeFeature:       "does not declare the feature % that the pod needs of a kubelet",
	reason.LabelUnknown:      "label % is not defined by the pool and not well-known",
	reason.TooLarge:          "not enough %",
	reason.NoShape:           "no instance type meets all constraints at once",
	reason.NoOffering:        "cannot be bought in an allowed zone and capacity type",
	reason.HostPort:          "host port % is taken",
	reason.VolumeLimit:       "no more volumes % can be attached",
	reason.Spread:            "topology spread over % would be violated",
	reason.Affinity:          "no matching pod for affinity over %",
	reason.AntiAffinity:      "anti-affinity over % forbids it",
	reason.Limit:             "the limit % of the pool is reached",
	reason.Quota:             "CapacityQuota & allows no more %",
	reason.MinValues:         "minValues of % cannot be met",
	reason.Reservation:       "a reservation that could serve it is in use",
	reason.NoTypes:           "the pool's requirements leave no instance type",
	reason.Closed:            "takes no pods",
}

// flaws go on where the codes that have flaws leave off; & is the detail.
var flaws = map[reason.Flaw]string{
	reason.SelectorValue:  "node selector wants a value of label & that no label can have",
	reason.AffinityValue:  "required node affinity wants a value of label & that no label can have",
	reason.Operator:       "operator & does not go with its values",
	reason.FieldTerms:     "matchFields is not supported in required node affinity",
	reason.EmptyTerms:     "required node affinity has only empty terms, which match no node",
	reason.Missing:        "does not exist",
	reason.Leaving:        "is being deleted",
	reason.Lost:           "has lost its volume",
	reason.VolumeMissing:  "names a volume that does not exist",
	reason.VolumeLeaving:  "names a volume that is being deleted",
	reason.NotBound:       "is not bound to its volume yet",
	reason.ClassNotNamed:  "is unbound and names no storage class",
	reason.ClassMissing:   "names storage class &, which does not exist",
	reason.BoundAtOnce:    "is of a class with immediate binding and unbound",
	reason.InUseByAnother: "may be used by one pod at a time, and that is &",

	reason.NotListed:          "is used by a container and not listed by the pod",
	reason.NamesNothing:       "names neither a claim nor a template",
	reason.TemplateMissing:    "is made from template &, which does not exist",
	reason.DeviceClassMissing: `names device class "&", which does not exist`,
	reason.InUseElsewhere:     "is allocated on node &, which takes no pods, and is in use there",
	reason.PlaceUnknown:       "is allocated for nodes that are described in a way which is not understood",
	reason.OfSeveralNodes:     "could get device &, which is not of one node: such devices are not planned for",
	reason.TooMany:            "has request &, which wants more devices than there can be",
	reason.RequestUnknown:     "has request &, which is of a kind that is not understood",
	reason.CountUnknown:       "has request &, which counts devices in a way that is not understood",
	reason.SelectorUnknown:    "has a selector for request & that is not understood",
	reason.ConstraintUnknown:  "has a constraint of a kind that is not understood",
}
