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

// An Unread is a condition of a rule that cannot be read.
type Unread struct {
	Text  string
	Of    string // its subject: reason, pods, nodes or saves; "" if it has no known subject
	Value string // the value with which the subject is compared
}

// Rules reads the rules of a pool from its annotation: rules are separated by ";", conditions of a rule by ",". If any condition cannot be
// read, it returns that and no rules, because that condition may have been meant to forbid something.
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

// condition returns a function that reports whether a step meets the condition in text.
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
		if err != nil || least != least { // NaN
			return nil, &Unread{text, "saves", value}
		}
		return func(s *v1alpha1.DisruptionStep) bool {
			saves, err := strconv.ParseFloat(s.Saves, 64)
			return err == nil && saves >= least
		}, nil
	}
	return nil, &Unread{Text: text}
}

// Approve returns the rules by which the pools approve a step, as "pool: rule", joined by "; ". It returns "" if any pool has no rule that
// does.
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
