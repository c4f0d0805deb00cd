package approval

import (
	"slices"
	"strconv"
	"strings"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

// A Rule approves plans: all of its conditions must hold.
type Rule struct {
	Text       string
	conditions []func(*v1alpha1.DisruptionStep) bool
}

// An Unread condition of a rule is a condition that is not understood.
type Unread struct {
	Text  string
	Of    string // its subject: reason, pods, nodes or saves; "" if nothing that is known
	Value string // what that is compared with
}

// Rules reads the rules of a pool. Where one cannot be read none counts: it may be the condition that was to forbid something.
func Rules(p *v1.NodePool) ([]Rule, *Unread) {
	var out []Rule
	for text := range strings.SplitSeq(p.Annotations[v1.AutoApproveAnnotationKey], ";") {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		rule := Rule{Text: text}
		for part := range strings.SplitSeq(text, ",") {
			c, unread := condition(strings.TrimSpace(part))
			if unread != nil {
				return nil, unread
			}
			rule.conditions = append(rule.conditions, c)
		}
		out = append(out, rule)
	}
	return out, nil
}

func condition(text string) (func(*v1alpha1.DisruptionStep) bool, *Unread) {
	if name, ok := strings.CutPrefix(text, "reason="); ok {
		if !slices.Contains(v1.DisruptionReasons, v1.DisruptionReason(name)) {
			return nil, &Unread{text, "reason", name}
		}
		return func(s *v1alpha1.DisruptionStep) bool { return string(s.Reason) == name }, nil
	}
	for name, of := range map[string]func(*v1alpha1.DisruptionStep) int{
		"pods":  func(s *v1alpha1.DisruptionStep) int { return s.Pods },
		"nodes": func(s *v1alpha1.DisruptionStep) int { return len(s.Remove) },
	} {
		if value, ok := strings.CutPrefix(text, name+"<="); ok {
			most, err := strconv.Atoi(value)
			if err != nil || most < 0 {
				return nil, &Unread{text, name, value}
			}
			return func(s *v1alpha1.DisruptionStep) bool { return of(s) <= most }, nil
		}
	}
	if value, ok := strings.CutPrefix(text, "saves>="); ok {
		least, err := strconv.ParseFloat(value, 64)
		if err != nil || least != least {
			return nil, &Unread{text, "saves", value}
		}
		return func(s *v1alpha1.DisruptionStep) bool {
			saves, err := strconv.ParseFloat(s.Saves, 64)
			return err == nil && saves >= least
		}, nil
	}
	return nil, &Unread{Text: text}
}

// Approve returns the rule by which every one of the pools approves a step, "" where one of them does not.
func Approve(pools []*v1.NodePool, step *v1alpha1.DisruptionStep) string {
	var by []string
	for _, p := range pools {
		rules, unread := Rules(p)
		if unread != nil {
			return ""
		}
		i := slices.IndexFunc(rules, func(r Rule) bool {
			return !slices.ContainsFunc(r.conditions, func(holds func(*v1alpha1.DisruptionStep) bool) bool { return !holds(step) })
		})
		if i < 0 {
			return ""
		}
		by = append(by, p.Name+": "+rules[i].Text)
	}
	return strings.Join(by, "; ")
}
