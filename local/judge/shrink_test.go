package judge

import (
	"slices"
	"strconv"
	"strings"
)

// shrink returns the smallest world it comes to that still fails in the same way, and what is found in it.
func shrink(judge func([]byte) []finding, text []byte, found []finding) ([]byte, []finding) {
	kind := found[0].kind
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for {
		smaller := false
		for i := len(lines) - 1; i >= 0; i-- {
			for _, less := range lesser(lines, i) {
				now := judge([]byte(strings.Join(less, "\n") + "\n"))
				if len(now) > 0 && now[0].kind == kind {
					lines, found, smaller = less, now, true
					break
				}
			}
		}
		if !smaller {
			return []byte(strings.Join(lines, "\n") + "\n"), found
		}
	}
}

// lesser returns what may be left out at a line: all of it, fewer copies, or one of its fields.
func lesser(lines []string, i int) [][]string {
	if i >= len(lines) || i == 0 || lines[i] == "" || strings.HasPrefix(lines[i], "-- ") || lines[i] == "---" {
		return nil
	}
	from := i
	if lines[i-1] == "---" {
		from--
	}
	out := [][]string{slices.Delete(slices.Clone(lines), from, i+1)}
	if strings.HasPrefix(lines[i], "{") {
		return out
	}
	fields := strings.Fields(lines[i])
	with := func(fields []string) {
		less := slices.Clone(lines)
		less[i] = strings.Join(fields, " ")
		out = append(out, less)
	}
	for k := 1; k < len(fields); k++ {
		if n, err := strconv.Atoi(strings.TrimPrefix(fields[k], "x")); err == nil && n > 1 {
			fewer := slices.Clone(fields)
			fewer[k] = "x" + strconv.Itoa(n-1)
			with(fewer)
		}
		with(slices.Delete(slices.Clone(fields), k, k+1))
	}
	return out
}
