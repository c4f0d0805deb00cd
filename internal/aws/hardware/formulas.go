package hardware

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/formula"
)

// HasFormulas reports whether the kubelet's numbers depend on the machine.
func (c *Class) HasFormulas() bool {
	return c.Kubelet.MaxPodsFormula != nil || len(c.Kubelet.KubeFormulas) > 0 || len(c.Kubelet.SystemFormulas) > 0
}

// Resolve returns the kubelet's configuration of machines of type t, with formulas replaced by their values. A
// formula without a value for t is left out: the node reserves its default, which was counted too.
func (c *Class) Resolve(m *awsv1.ManagedKubelet, t *awsdata.InstanceType) *awsv1.ManagedKubelet {
	out := *m
	out.KubeReserved = resolved(m.KubeReserved, c.Kubelet.KubeFormulas, t, c)
	out.SystemReserved = resolved(m.SystemReserved, c.Kubelet.SystemFormulas, t, c)
	return &out
}

// resolved returns the written amounts, with the values of formulas in their place.
func resolved(written map[string]string, formulas map[string]*formula.Formula, t *awsdata.InstanceType, c *Class) map[string]string {
	out := maps.Clone(written)
	for name := range formulas {
		delete(out, name)
	}
	for name, amount := range amounts(formulas, t, c) {
		out[name] = amount
	}
	return out
}

// amounts returns the values that formulas have for a machine; formulas without a value are left out.
func amounts(formulas map[string]*formula.Formula, t *awsdata.InstanceType, c *Class) map[string]string {
	if len(formulas) == 0 {
		return nil
	}
	out, m := map[string]string{}, machineOf(t, podsOf(t, c))
	for name, f := range formulas {
		if amount, err := f.Amount(name, m); err == nil {
			out[name] = amount
		}
	}
	return out
}

// FormulaErrors returns which formulas have no value for some of the types that can be launched.
func (c *Class) FormulaErrors(types []*awsdata.InstanceType) error {
	var errs []error
	check := func(field string, value func(t *awsdata.InstanceType) error) {
		var first error
		more := 0
		for _, t := range types {
			if !Usable(t) {
				continue
			}
			if err := value(t); err != nil && first == nil {
				first = err
			} else if err != nil {
				more++
			}
		}
		if more > 0 {
			first = fmt.Errorf("%w (and %d more types)", first, more)
		}
		if first != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, first))
		}
	}
	if f := c.Kubelet.MaxPodsFormula; f != nil {
		check("maxPods", func(t *awsdata.InstanceType) error {
			_, err := f.Pods(machineOf(t, defaultPods(t, c)))
			return err
		})
	}
	for _, of := range []struct {
		field    string
		formulas map[string]*formula.Formula
	}{{"kubeReserved", c.Kubelet.KubeFormulas}, {"systemReserved", c.Kubelet.SystemFormulas}} {
		for _, name := range slices.Sorted(maps.Keys(of.formulas)) {
			check(of.field+"."+name, func(t *awsdata.InstanceType) error {
				_, err := of.formulas[name].Amount(name, machineOf(t, podsOf(t, c)))
				return err
			})
		}
	}
	return errors.Join(errs...)
}

// machineOf returns what formulas may ask of a type whose node would hold so many pods.
func machineOf(t *awsdata.InstanceType, pods int) formula.Machine {
	return formula.Machine{
		VCPUs: int64(t.VCPU.Default), MemoryMiB: t.Memory.MiB, Interfaces: int64(defaultCardInterfaces(t)),
		Addresses: int64(t.Network.IPv4PerInterface), Pods: int64(pods), InstanceType: t.Name,
	}
}
