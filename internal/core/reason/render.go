package reason

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Render makes one sentence of an explanation: first what is wrong with the pod, then existing nodes, then each pool.
func Render(why []Count) string {
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
			pod = append(pod, phrase(&c))
		}
	}
	parts := pod
	if total > 0 {
		parts = append(parts, fmt.Sprintf("%s: %s", count(total, "existing node"), strings.Join(nodes, ", ")))
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(a, b) })
	for _, p := range order {
		parts = append(parts, fmt.Sprintf("pool %q: %s", p, strings.Join(pools[p], ", ")))
	}
	return strings.Join(parts, "; ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// poolText says how many of a pool's types a constraint removed.
func poolText(c *Count) string {
	switch c.Code {
	case TooLarge, NoOffering, LabelMismatch, HostPort, VolumeLimit:
		if c.Candidates > 0 {
			return fmt.Sprintf("%s %s", count(c.Candidates, "type"), numbered(c))
		}
	}
	return phrase(c)
}

// numbered is the phrase of a constraint after the number of candidates that it removed.
func numbered(c *Count) string {
	text := phrase(c)
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

// phrase says what a constraint means, to be read after a number of candidates or alone.
func phrase(c *Count) string {
	text := phrases[c.Code]
	if c.Key != "" {
		if strings.Contains(text, "%") {
			text = strings.ReplaceAll(text, "%", c.Key)
		} else {
			text += " (" + c.Key + ")"
		}
	} else {
		text = strings.ReplaceAll(strings.ReplaceAll(text, " %", ""), "%", "")
	}
	if c.Detail != "" {
		text += " " + c.Detail
	}
	return text
}

var phrases = [numCodes]string{
	Invalid:           "the pod's %",
	RestrictedLabel:   "the pod asks for label %, which may not be asked for",
	VolumeInvalid:     "volume claim %",
	DeviceClaims:      "the pod references resource claims, which are not supported",
	NoPools:           "no pool may open nodes",
	AvoidsManaged:     "the pod demands a node without pool",
	NotReached:        "the time for a plan ran out before its turn; it comes next time",
	Postponed:         "this pod's constraints and those of others are more work than one plan may take; its turn comes with the next plans",
	UninitializedOnly: "only node %, which is not initialised yet, has room",
	Taint:             "has a taint % that is not tolerated",
	LabelMismatch:     "does not match the required label %",
	LabelUnknown:      "label % is not defined by the pool and not well-known",
	TooLarge:          "not enough %",
	NoShape:           "no instance type meets all constraints at once",
	NoOffering:        "cannot be bought in an allowed zone and capacity type",
	HostPort:          "host port % is taken",
	VolumeLimit:       "no more volumes % can be attached",
	Spread:            "topology spread over % would be violated",
	Affinity:          "no matching pod for affinity over %",
	AntiAffinity:      "anti-affinity over % forbids it",
	Limit:             "the limit % of the pool is reached",
	MinValues:         "minValues of % cannot be met",
	Reservation:       "a reservation that could serve it is in use",
	NoTypes:           "the pool's requirements leave no instance type",
	Closed:            "takes no pods",
}
