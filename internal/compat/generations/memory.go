package generations

import (
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// A remembered says that one value of an object is another than plain conversion of the other version's object gives.
type remembered struct {
	At []string `json:"at"`
	// Is holds the value, Gives what conversion makes of it; nothing where there is no such field.
	Is    []any `json:"is,omitempty"`
	Gives []any `json:"gives,omitempty"`
	// Each says that Is and Gives are the items of a list, which are compared one by one: items may come, go and move.
	Each bool `json:"each,omitempty"`
}

// differences lists where an object is another than what conversion gives.
func differences(is, gives tree) []remembered {
	var out []remembered
	for _, key := range keys(is, gives) {
		switch key {
		case "apiVersion", "kind":
		case "metadata": // of which conversion may change annotations only
			out = append(out, within(annotations(), treeAt(is, annotations()...), treeAt(gives, annotations()...))...)
		default:
			out = append(out, differ([]string{key}, is, gives)...)
		}
	}
	return out
}

// differ compares the values that the last key of a path has in two objects.
func differ(path []string, is, gives tree) []remembered {
	key := path[len(path)-1]
	a, aThere := is[key]
	b, bThere := gives[key]
	switch {
	case !aThere:
		return []remembered{{At: path, Gives: []any{b}}}
	case !bThere:
		return []remembered{{At: path, Is: []any{a}}}
	}
	switch a := a.(type) {
	case tree:
		if b, ok := b.(tree); ok {
			return within(path, a, b)
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) && !same(a, b) {
			return []remembered{{At: path, Is: a, Gives: b, Each: true}}
		}
	}
	if same(a, b) {
		return nil
	}
	return []remembered{{At: path, Is: []any{a}, Gives: []any{b}}}
}

func within(path []string, is, gives tree) []remembered {
	var out []remembered
	for _, key := range keys(is, gives) {
		out = append(out, differ(append(path[:len(path):len(path)], key), is, gives)...)
	}
	return out
}

// restore puts back what is remembered wherever the object still has what conversion gives. What was changed since counts.
func restore(o tree, memory []remembered) {
	for _, m := range memory {
		if m.Each {
			m.restoreItems(o)
			continue
		}
		value, there := at(o, m.At...)
		if there != (len(m.Gives) == 1) || there && !same(value, m.Gives[0]) {
			continue
		}
		if len(m.Is) == 1 {
			put(o, m.Is[0], m.At...)
		} else {
			take(o, m.At...)
		}
	}
	dropEmptyAnnotations(o)
}

// restoreItems puts back the items of a list, the first of several that look alike first.
func (m *remembered) restoreItems(o tree) {
	value, _ := at(o, m.At...)
	list, ok := value.([]any)
	if !ok {
		return
	}
	used := make([]bool, len(m.Gives))
	for i := range list {
		for j := range m.Gives {
			if !used[j] && j < len(m.Is) && same(list[i], m.Gives[j]) {
				list[i], used[j] = clone(m.Is[j]), true
				break
			}
		}
	}
}

// takeMemory removes the annotation that holds a memory and reads it. What cannot be read, or is about what conversion must not touch,
// is forgotten: the annotation is ours alone.
func takeMemory(o tree, key string) []remembered {
	text := takeAnnotation(o, key)
	if text == "" {
		return nil
	}
	var memory []remembered
	if err := utiljson.Unmarshal([]byte(text), &memory); err != nil {
		return nil
	}
	return slices.DeleteFunc(memory, func(m remembered) bool { return !m.ours() })
}

// ours reports whether conversion writes such memories: about the spec, the status, or one annotation.
func (m *remembered) ours() bool {
	if !m.Each && (len(m.Is) > 1 || len(m.Gives) > 1) || len(m.At) == 0 {
		return false
	}
	if m.At[0] == "metadata" {
		return len(m.At) == 3 && m.At[1] == "annotations"
	}
	return m.At[0] != "apiVersion" && m.At[0] != "kind"
}

// remember writes a memory, if there is anything to remember.
func remember(o tree, key string, memory []remembered) {
	if len(memory) > 0 {
		put(o, string(asJSON(memory)), annotations(key)...)
	}
}
