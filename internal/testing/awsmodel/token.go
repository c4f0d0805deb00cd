package awsmodel

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// tokenLife is how long a client token is remembered.
const tokenLife = 24 * time.Hour

// idempotent carries a call out once for each client token. A repeated call gets the first one's answer; a call that reuses
// the token for something else is refused. A call that failed may be tried again.
func idempotent[O any](c *call, clientToken *string, in any, run func() (*O, error)) (*O, error) {
	if aws.ToString(clientToken) == "" {
		return run()
	}
	request, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	key := c.op.String() + "/" + *clientToken
	if t, ok := c.world.st.Tokens[key]; ok && c.now.Sub(t.At) < tokenLife {
		if t.Request != hash(string(request)) {
			return nil, refuse("IdempotentParameterMismatch",
				"Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
		}
		out := new(O)
		return out, json.Unmarshal(t.Answer, out)
	}
	out, err := run()
	if err != nil {
		return nil, err
	}
	answer, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("remember the answer: %w", err)
	}
	maps.DeleteFunc(c.world.st.Tokens, func(_ string, t *token) bool { return c.now.Sub(t.At) >= tokenLife })
	c.world.st.Tokens[key] = &token{hash(string(request)), answer, c.now}
	return out, nil
}

// setOutside names a member of a struct that is set but not among those listed.
func setOutside(v any, listed []string) string {
	s := reflect.Indirect(reflect.ValueOf(v))
	for i := range s.NumField() {
		f := s.Type().Field(i)
		if f.IsExported() && !s.Field(i).IsZero() && !slices.Contains(listed, f.Name) {
			return f.Name
		}
	}
	return ""
}
