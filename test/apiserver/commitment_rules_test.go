//go:build apiserver

package apiserver

import "strings"

func commitmentRules() []rule {
	const (
		kind     = "CommitmentDiscount"
		reserved = "category: Usage, type: ReservedInstance, quantity: \"2\", scope: {region: r, instanceType: m5.large}"
		instance = "type: EC2InstanceSavingsPlan, scope: {region: r, family: m5}"
	)
	spec := func(fields string) string { return "{spec: {" + fields + "}}" }
	scope := func(field string) string {
		return spec("category: Usage, type: ReservedInstance, scope: {region: r, instanceType: m5.large, " + field + ": %s}")
	}
	rate := func(fields string) string { return spec("rates: [{" + fields + "}]") }
	amounts := func(edit string, field string) rule {
		return rule{kind: kind, text: field + ": a decimal number", ok: with(edit, `"0"`, `"12.50"`, `"999999"`),
			no: each(edit, field, "should match", `""`, `"-1"`, `"1e3"`, `".5"`, `"1."`, `"1234567"`, `"$1"`)}
	}
	r := func(text string, ok []string, no ...refusal) rule {
		return rule{kind: kind, text: text, ok: ok, no: no}
	}
	return append([]rule{
		r("spec: required", nil, no("{spec: null}", "spec", "Required value")),
		r("category, type and quantity: required", nil, no(spec("category: null"), "spec.category", "Required value"),
			no(spec("type: null"), "spec.type", "Required value"), no(spec("quantity: null"), "spec.quantity", "Required value")),
		r("category: a known one", nil, no(spec("category: Money"), "spec.category", "Unsupported value")),
		r("type: a known one", []string{spec(reserved), spec(instance)}, no(spec("type: SageMaker"), "spec.type", "Unsupported value")),
		r("category: that of the type", nil, no(spec("category: Usage"), "spec", "category is Usage for a ReservedInstance and Spend for Savings Plans")),
		r("scope.region: of all but ComputeSavingsPlans", nil, no(spec("scope: {region: r}"), "spec", "scope.region is required, but a ComputeSavingsPlan has none"),
			no(spec("type: EC2InstanceSavingsPlan, scope: {family: m5}"), "spec", "scope.region is required, but a ComputeSavingsPlan has none")),
		r("scope.family: of EC2InstanceSavingsPlans", nil, no(spec("type: EC2InstanceSavingsPlan, scope: {region: r}"), "spec", "scope.family is required"),
			no(spec("scope: {family: m5}"), "spec", "scope.family is required")),
		r("scope.instanceType: of ReservedInstances", nil, no(spec("category: Usage, type: ReservedInstance, scope: {region: r}"), "spec", "scope.instanceType is required"),
			no(spec("scope: {instanceType: m5.large}"), "spec", "scope.instanceType is required")),
		r("scope.zone, operatingSystem and tenancy: of ReservedInstances", nil, each(spec("scope: {%s}"), "spec", "scope.zone, operatingSystem and tenancy are of a ReservedInstance",
			"zone: a", "operatingSystem: Linux", "tenancy: default")...),
		r("scope: names", with(scope("zone"), "us-east-1a"), append(append(
			each(scope("zone"), "spec.scope.zone", "should match", `""`, "A", `"a b"`),
			each(spec("category: Usage, type: ReservedInstance, scope: {region: %s, instanceType: m5.large}"), "spec.scope.region", "should match", `""`, "A_B")...),
			append(each(spec("type: EC2InstanceSavingsPlan, scope: {region: r, family: %s}"), "spec.scope.family", "should match", `""`, "m5.large"),
				each(spec("category: Usage, type: ReservedInstance, scope: {region: r, instanceType: %s}"), "spec.scope.instanceType", "should match", `""`, "m5", "M5.large")...)...)...),
		r("scope.operatingSystem: a known one", with(scope("operatingSystem"), "Linux", "Windows", "RHEL", "SUSE"),
			each(scope("operatingSystem"), "spec.scope.operatingSystem", "Unsupported value", "BSD", `""`)...),
		r("scope.tenancy: a known one", with(scope("tenancy"), "default", "dedicated"), each(scope("tenancy"), "spec.scope.tenancy", "Unsupported value", "host")...),
		r("rates: of Savings Plans", nil, no(spec(reserved+", rates: []"), "spec", "rates are of Savings Plans")),
		r("hourlyCost: of ReservedInstances", nil, no(spec(`hourlyCost: "1"`), "spec", "hourlyCost is of a ReservedInstance")),
		r("quantity: whole machines", nil, no(spec(`category: Usage, type: ReservedInstance, scope: {region: r, instanceType: m5.large}, quantity: "1.5"`), "spec",
			"quantity is a whole number of machines for a ReservedInstance")),
		r("end: after start", with(spec(`start: "2026-01-01T00:00:00Z", end: %s`), `"2026-01-01T00:00:01Z"`),
			no(spec(`start: "2026-01-01T00:00:00Z", end: "2026-01-01T00:00:00Z"`), "spec", "end must be after start")),
		r("id: at most 256 characters", with(spec("id: %s"), strings.Repeat("x", 256)), no(spec("id: "+strings.Repeat("x", 257)), "spec.id", "Too long")),
		r("share: a percentage or a part of one", with(spec("share: %s"), `"0"`, `"1"`, `"0.5"`, "50%", "100%", "99.5%"),
			each(spec("share: %s"), "spec.share", "should match", `""`, `"2"`, "101%", `"-1"`, `"1.5"`)...),
		amounts(spec("quantity: %s"), "spec.quantity"),
		amounts(spec(reserved+", hourlyCost: %s"), "spec.hourlyCost"),
		amounts(rate("family: m5, price: %s"), "spec.rates[0].price"),
		r("rates: type or family, price or discount", []string{rate(`family: m5, price: "1"`), rate("instanceType: m5.large, discount: 27%")},
			no(rate(`price: "1"`), "spec.rates[0]", "give instanceType or family"), no(rate(`family: m5, instanceType: m5.large, price: "1"`), "spec.rates[0]", "give instanceType or family"),
			no(rate("family: m5"), "spec.rates[0]", "give price or discount"), no(rate(`family: m5, price: "1", discount: 1%`), "spec.rates[0]", "give price or discount")),
		r("rates: names", nil, append(each(rate(`family: %s, price: "1"`), "spec.rates[0].family", "should match", `""`, "m5.large"),
			each(rate(`instanceType: %s, price: "1"`), "spec.rates[0].instanceType", "should match", `""`, "m5")...)...),
		r("rates: at most 2000", nil, no(rate(strings.Repeat("family: m5, discount: 1%}, {", 2000)+"family: m5, discount: 1%"), "spec.rates", "must have at most 2000 items")),
		r("rates.discount: a percentage", with(rate("family: m5, discount: %s"), "0%", "100%", "12.5%"),
			each(rate("family: m5, discount: %s"), "spec.rates[0].discount", "should match", `"27"`, "101%", "-1%", `""`)...),
	}, conditionRules(kind, false)...)
}
