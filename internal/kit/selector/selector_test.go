package selector_test

import (
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"karpenter.sh/karpenter/internal/kit/selector"
	"karpenter.sh/karpenter/internal/kit/selectorerr"
)

func TestSelects(t *testing.T) {
	tens := "[" + strings.Repeat("1,", 9) + "1]"
	for name, tc := range map[string]struct {
		expression string
		yes        bool
		useless    bool   // for every device
		says       string // the error; "" for none
	}{
		"it takes the device":             {`device.driver == "gpu.example" && device.attributes["gpu.example"].model == "a100"`, true, false, ""},
		"it does not":                     {`device.driver == "nic.example"`, false, false, ""},
		"an attribute that is not there":  {`device.attributes["gpu.example"].memory == 3`, false, false, "no such key: memory"},
		"it cannot be read":               {`device.driver ==`, false, true, "Syntax error"},
		"it is no yes or no":              {`device.driver`, false, true, "must evaluate to bool"},
		"it is costly":                    {loops(4, tens), false, true, "may cost 5000"},
		"it costs more than is evaluated": {loops(7, tens), false, true, "may cost 5000"},
	} {
		t.Run(name, func(t *testing.T) {
			model := "a100"
			yes, err := selector.Selects(tc.expression, "gpu.example", &resourcev1.Device{Name: "g", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}})
			if yes != tc.yes || (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("says %v, %v, want %v, %q", yes, err, tc.yes, tc.says)
			}
			if _, useless := errors.AsType[*selectorerr.Unusable](err); useless != tc.useless {
				t.Errorf("of use for no device: %v, want %v", useless, tc.useless)
			}
		})
	}
}

// loops is an expression that goes through a list for each item of a list, so many deep.
func loops(deep int, list string) string {
	text := "true"
	for i := range deep {
		v := string(rune('a' + i))
		text = list + ".all(" + v + ", " + text + ")"
	}
	return text
}
