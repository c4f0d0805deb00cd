package awsmodel

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// A policy is an IAM policy document.
type policy struct {
	Version   string
	Statement list[statement]
}

type statement struct {
	Sid         string
	Effect      string
	Action      list[string]
	NotAction   list[string]
	Resource    list[string]
	NotResource list[string]
	Condition   map[string]map[string]list[string]
}

// A list is a JSON array, or a single member of one.
type list[T any] []T

func (l *list[T]) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '[' {
		return json.Unmarshal(raw, (*[]T)(l))
	}
	var one T
	if err := json.Unmarshal(raw, &one); err != nil {
		var b bool
		text, ok := any(&one).(*string)
		if !ok || json.Unmarshal(raw, &b) != nil {
			return err
		}
		*text = strconv.FormatBool(b) // conditions may be written as JSON booleans
	}
	*l = []T{one}
	return nil
}

// parsePolicy reads a policy document and refuses what the evaluation below could not judge.
func parsePolicy(raw []byte) (policy, error) {
	var p policy
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("policy: %w", err)
	}
	for _, s := range p.Statement {
		if s.Effect != "Allow" && s.Effect != "Deny" {
			return p, fmt.Errorf("policy statement %q: effect %q", s.Sid, s.Effect)
		}
		if len(s.Action)+len(s.NotAction) == 0 || len(s.Resource)+len(s.NotResource) == 0 {
			return p, fmt.Errorf("policy statement %q has no action or no resource", s.Sid)
		}
		for op := range s.Condition {
			if _, ok := operators[baseOperator(op)]; !ok {
				return p, fmt.Errorf("policy statement %q: unknown condition operator %s", s.Sid, op)
			}
		}
	}
	return p, nil
}

// A need is one permission that a call needs: an action on a resource, with what is known about the request.
type need struct {
	action, resource string
	context          map[string][]string // condition key to its values; keys are compared without case
}

type verdict int

const (
	notAllowed verdict = iota
	allowed
	denied
)

// judge applies policies to one need: an explicit denial wins, else some statement must allow.
func judge(policies []policy, n need) verdict {
	out := notAllowed
	for _, p := range policies {
		for _, s := range p.Statement {
			if !s.applies(n) {
				continue
			}
			if s.Effect == "Deny" {
				return denied
			}
			out = allowed
		}
	}
	return out
}

func (s *statement) applies(n need) bool {
	action := func(p string) bool { return match(strings.ToLower(p), strings.ToLower(n.action)) }
	resource := func(p string) bool { return match(p, n.resource) }
	switch {
	case len(s.Action) > 0 && !slices.ContainsFunc(s.Action, action),
		len(s.NotAction) > 0 && slices.ContainsFunc(s.NotAction, action),
		len(s.Resource) > 0 && !slices.ContainsFunc(s.Resource, resource),
		len(s.NotResource) > 0 && slices.ContainsFunc(s.NotResource, resource):
		return false
	}
	for _, op := range slices.Sorted(maps.Keys(s.Condition)) {
		for key, want := range s.Condition[op] {
			if !holds(op, n.value(key), want) {
				return false
			}
		}
	}
	return true
}

// value returns the request's values under a condition key, nil if it has none.
func (n need) value(key string) []string {
	for k, v := range n.context {
		if strings.EqualFold(k, key) {
			return v
		}
	}
	return nil
}

// operators compare one value of the request with one of the policy.
var operators = map[string]func(have, want string) bool{
	"StringEquals":           func(h, w string) bool { return h == w },
	"StringEqualsIgnoreCase": strings.EqualFold,
	"StringLike":             func(h, w string) bool { return match(w, h) },
	"ArnEquals":              func(h, w string) bool { return match(w, h) },
	"ArnLike":                func(h, w string) bool { return match(w, h) },
	"Bool":                   strings.EqualFold,
	"NumericEquals":          numeric(func(h, w float64) bool { return h == w }),
	"NumericLessThanEquals":  numeric(func(h, w float64) bool { return h <= w }),
	"IpAddress":              inNetwork,
	"Null":                   nil, // special: see holds
}

func numeric(compare func(h, w float64) bool) func(string, string) bool {
	return func(have, want string) bool {
		h, err1 := strconv.ParseFloat(have, 64)
		w, err2 := strconv.ParseFloat(want, 64)
		return err1 == nil && err2 == nil && compare(h, w)
	}
}

func inNetwork(have, want string) bool {
	_, n, err := net.ParseCIDR(want)
	ip := net.ParseIP(have)
	return err == nil && ip != nil && n.Contains(ip)
}

// baseOperator strips the quantifier, the negation and the IfExists of an operator's name.
func baseOperator(op string) string {
	if _, rest, ok := strings.Cut(op, ":"); ok {
		op = rest
	}
	op = strings.TrimSuffix(op, "IfExists")
	for _, kind := range []string{"String", "Arn", "Numeric", "Ip"} {
		if rest, ok := strings.CutPrefix(op, kind+"Not"); ok {
			if kind == "Ip" {
				return "IpAddress"
			}
			return kind + rest
		}
	}
	if op == "NotIpAddress" {
		return "IpAddress"
	}
	return op
}

// holds evaluates one condition: some wanted value must fit, or, negated, none.
func holds(op string, have, want []string) bool {
	quantifier, name, quantified := strings.Cut(op, ":")
	if !quantified {
		quantifier, name = "", op
	}
	if strings.TrimSuffix(name, "IfExists") == "Null" {
		return slices.ContainsFunc(want, func(w string) bool { return strings.EqualFold(w, strconv.FormatBool(have == nil)) })
	}
	base := baseOperator(op)
	negated := strings.TrimSuffix(name, "IfExists") != base
	if have == nil {
		return strings.HasSuffix(name, "IfExists") || quantifier == "ForAllValues" || negated
	}
	one := func(h string) bool {
		fits := slices.ContainsFunc(want, func(w string) bool { return operators[base](h, w) })
		return fits != negated
	}
	if quantifier == "ForAllValues" {
		return !slices.ContainsFunc(have, func(h string) bool { return !one(h) })
	}
	return slices.ContainsFunc(have, one)
}
