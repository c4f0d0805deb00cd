// Package formula reads numbers of the kubelet's configuration that depend on the machine, written in CEL: maxPods as
// "(default_enis - 1) * (ips_per_eni - 1) + 2", or memory to reserve as "11 * max_pods + 255".
package formula

import (
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// A Machine is what a formula may ask of an instance type.
type Machine struct {
	VCPUs        int64
	MemoryMiB    int64 // as EC2 sells it
	Interfaces   int64 // of the default network card; 0 if unknown
	Addresses    int64 // IPv4, of an interface
	Pods         int64 // that the node would hold; in the formula of maxPods itself, without that formula
	InstanceType string
}

func (m Machine) variables() map[string]any {
	return map[string]any{
		"vcpus": m.VCPUs, "memory_mib": m.MemoryMiB, "default_enis": m.Interfaces, "ips_per_eni": m.Addresses, "max_pods": m.Pods,
		"instance_type": m.InstanceType,
	}
}

// A Formula is a text that was found to be one. It may be used concurrently.
type Formula struct {
	text    string
	program cel.Program
}

// mostCost ends the work of a formula that was written to be slow; arithmetic costs a few units.
const mostCost = 10_000

// New reads a formula.
func New(text string) (*Formula, error) {
	env, err := language()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	if t := ast.OutputType(); !t.IsExactType(cel.IntType) && !t.IsExactType(cel.DoubleType) {
		return nil, fmt.Errorf("%q is of type %s; it must be an int or a double", text, t)
	}
	program, err := env.Program(ast, cel.CostLimit(mostCost))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return &Formula{text, program}, nil
}

// MarshalText returns the text that was read: two formulas are equal if their texts are.
func (f *Formula) MarshalText() ([]byte, error) { return []byte(f.text), nil }

// Number returns the formula's value for a machine, without its fraction. It may be negative.
func (f *Formula) Number(m Machine) (int64, error) {
	value, _, err := f.program.Eval(m.variables())
	if err != nil {
		return 0, fmt.Errorf("%q for %s: %w", f.text, m.InstanceType, err)
	}
	switch v := value.(type) {
	case types.Int:
		return int64(v), nil
	case types.Double:
		// Both limits are powers of two, so that the comparison is exact; it fails for what is not a number.
		if whole := math.Trunc(float64(v)); whole >= math.MinInt64 && whole < math.MaxInt64 {
			return int64(whole), nil
		}
	}
	return 0, fmt.Errorf("%q for %s: %v is no number that can be used", f.text, m.InstanceType, value.Value())
}

// Pods returns the formula's value as a number of pods.
func (f *Formula) Pods(m Machine) (int32, error) {
	n, err := f.Number(m)
	if err == nil && (n < 0 || n > math.MaxInt32) {
		err = fmt.Errorf("%q for %s: %d is no number of pods", f.text, m.InstanceType, n)
	}
	return int32(n), err
}

// Amount returns the formula's value as a quantity of a resource to reserve: CPU in thousandths, rounded up to a
// multiple of 10; memory in MiB, rounded up to a multiple of 16; disk in GiB; process ids unchanged.
func (f *Formula) Amount(resource string, m Machine) (string, error) {
	n, err := f.Number(m)
	if err != nil {
		return "", err
	}
	if n < 0 {
		return "", fmt.Errorf("%q for %s: %d is negative", f.text, m.InstanceType, n)
	}
	switch resource {
	case "cpu":
		return strconv.FormatInt(up(n, 10), 10) + "m", nil
	case "memory":
		return strconv.FormatInt(up(n, 16), 10) + "Mi", nil
	case "ephemeral-storage":
		return strconv.FormatInt(n, 10) + "Gi", nil
	}
	return strconv.FormatInt(n, 10), nil
}

// up rounds up to a multiple; n itself if the result would be too large.
func up(n, multiple int64) int64 {
	if n > math.MaxInt64-multiple {
		return n
	}
	return (n + multiple - 1) / multiple * multiple
}

// language is CEL with min and max of two numbers.
var language = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("vcpus", cel.IntType), cel.Variable("memory_mib", cel.IntType), cel.Variable("default_enis", cel.IntType),
		cel.Variable("ips_per_eni", cel.IntType), cel.Variable("max_pods", cel.IntType), cel.Variable("instance_type", cel.StringType),
		cel.Function("min", choices("min", types.IntNegOne)...),
		cel.Function("max", choices("max", types.IntOne)...),
	)
})

// choices returns the overloads of min or max. A function takes its first number if comparing it with the second
// gives way. Two ints give an int, everything else a double.
func choices(name string, way types.Int) []cel.FunctionOpt {
	var out []cel.FunctionOpt
	for _, a := range []*cel.Type{cel.IntType, cel.DoubleType} {
		for _, b := range []*cel.Type{cel.IntType, cel.DoubleType} {
			result := cel.DoubleType
			if a == cel.IntType && b == cel.IntType {
				result = cel.IntType
			}
			choose := func(x, y ref.Val) ref.Val {
				chosen := y
				if x.(interface{ Compare(ref.Val) ref.Val }).Compare(y) == way {
					chosen = x
				}
				return chosen.ConvertToType(result)
			}
			out = append(out, cel.Overload(fmt.Sprintf("%s_%s_%s", name, a, b), []*cel.Type{a, b}, result, cel.BinaryBinding(choose)))
		}
	}
	return out
}
