package generations

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"karpenter.sh/karpenter/internal/kit/bug"
)

// tree is an object, or a part of one, as read from JSON.
type tree = map[string]any

// at returns what stands under a path, and whether anything does. A null is nothing.
func at(o tree, path ...string) (any, bool) {
	var value any = o
	for _, key := range path {
		inner, ok := value.(tree)
		if !ok {
			return nil, false
		}
		if value, ok = inner[key]; !ok {
			return nil, false
		}
	}
	return value, value != nil
}

// treeAt returns the object under a path, nil if there is none. A nil tree reads as an empty one.
func treeAt(o tree, path ...string) tree {
	value, _ := at(o, path...)
	inner, _ := value.(tree)
	return inner
}

func textAt(o tree, path ...string) string {
	value, _ := at(o, path...)
	text, _ := value.(string)
	return text
}

func listAt(o tree, path ...string) []any {
	value, _ := at(o, path...)
	list, _ := value.([]any)
	return list
}

// put writes a value under a path and makes the objects above it. Where something else than an object is in the way, nothing is
// written: such an object is broken, and who reads it says so.
func put(o tree, value any, path ...string) {
	last := len(path) - 1
	for _, key := range path[:last] {
		inner, ok := o[key].(tree)
		if !ok {
			if o[key] != nil {
				return
			}
			inner = tree{}
			o[key] = inner
		}
		o = inner
	}
	o[path[last]] = value
}

// take removes what stands under a path and returns it.
func take(o tree, path ...string) (any, bool) {
	value, ok := at(o, path...)
	if parent := treeAt(o, path[:len(path)-1]...); parent != nil {
		delete(parent, path[len(path)-1])
	}
	return value, ok
}

// annotations is the path of one annotation, or of all.
func annotations(key ...string) []string {
	return append([]string{"metadata", "annotations"}, key...)
}

// takeAnnotation removes an annotation and returns it. Without annotations there is no object that holds them.
func takeAnnotation(o tree, key string) string {
	value, _ := take(o, annotations(key)...)
	dropEmptyAnnotations(o)
	text, _ := value.(string)
	return text
}

func dropEmptyAnnotations(o tree) {
	if all := treeAt(o, annotations()...); all != nil && len(all) == 0 {
		take(o, annotations()...)
	}
}

// clone copies an object deeply.
func clone(value any) any {
	switch v := value.(type) {
	case tree:
		out := make(tree, len(v))
		for key, inner := range v {
			out[key] = clone(inner)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = clone(v[i])
		}
		return out
	default:
		return value
	}
}

// same reports whether two values are the same JSON.
func same(a, b any) bool {
	switch a := a.(type) {
	case string:
		text, ok := b.(string)
		return ok && a == text
	case bool:
		truth, ok := b.(bool)
		return ok && a == truth
	}
	return bytes.Equal(asJSON(a), asJSON(b))
}

func asJSON(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		bug.Reportf("generations: a value that was read from JSON cannot be written: %v", err)
	}
	return text
}

// keys lists the keys of two objects, sorted.
func keys(a, b tree) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}
