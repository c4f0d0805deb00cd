package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"karpenter.sh/karpenter/internal/compat/generations"
	"karpenter.sh/karpenter/internal/kit/bug"
)

// A printer writes a converted object as YAML. A part that has the same value as the part of the old object that it
// comes from is written as the old text, with quotes and comments. Comments of parts that are gone go to the nearest
// part above that is still there.
type printer struct {
	made    *generations.Converted
	sources []*yaml.Node
	used    map[*yaml.Node]bool // keys of old objects whose comments are written
}

// writeTree returns a converted object as YAML, with the comments of the documents (sources) that it was made of, and
// a comment for each thing that was lost.
func writeTree(c *generations.Converted, sources []*yaml.Node) ([]byte, error) {
	p := &printer{made: c, sources: sources, used: map[*yaml.Node]bool{}}
	root := p.build(c.Object, nil)
	root.HeadComment = joinComments(sources[c.Doc].HeadComment)
	p.rescue(sources[c.Doc], nil, root)
	for _, n := range c.Notes {
		annotate(root, n.At, "karpenter convert: "+lostMark(n)+n.Text)
	}
	return encodeYAML(root), nil
}

// encodeYAML writes a node with an indentation of two.
func encodeYAML(node *yaml.Node) []byte {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(node); err != nil {
		bug.Reportf("convert: %v", err)
	}
	return out.Bytes()
}

// origin returns the key and value in the old documents that the part at a path was made of. The longest move (a
// field that was renamed) above the path decides; without one it is the same path of the same document. Both are nil
// where nothing is there.
func (p *printer) origin(at []string) (key, value *yaml.Node) {
	doc, from := p.made.Doc, at
	longest := -1
	for _, m := range p.made.Moves {
		if len(m.To) > longest && len(m.To) <= len(at) && slices.Equal(m.To, at[:len(m.To)]) {
			if _, there := find(p.sources[m.Doc], m.From); there == nil {
				continue
			}
			longest, doc, from = len(m.To), m.Doc, slices.Concat(m.From, at[len(m.To):])
		}
	}
	return find(p.sources[doc], from)
}

// find follows a path through mappings and lists, and returns the last key and its value; both nil where the path
// ends before. The key is nil for an item of a list.
func find(node *yaml.Node, path []string) (key, value *yaml.Node) {
	value = node
	for _, step := range path {
		key = nil
		switch {
		case value == nil:
			return nil, nil
		case value.Kind == yaml.MappingNode:
			key, value = pair(value, step)
		case value.Kind == yaml.SequenceNode:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(value.Content) {
				return nil, nil
			}
			value = value.Content[i]
		default:
			return nil, nil
		}
	}
	return key, value
}

// pair returns the key and value of a name in a mapping, nil if it is not there.
func pair(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

// child returns the value of a name in a mapping, nil if it is not there.
func child(mapping *yaml.Node, name string) *yaml.Node {
	_, value := pair(mapping, name)
	return value
}

// build returns the YAML node of a value at a path of the new object. If the old part has the same value, it returns
// the old node itself. Else it builds a new node, and takes the comments from the old keys.
func (p *printer) build(value any, at []string) *yaml.Node {
	_, old := p.origin(at)
	if old != nil && sameYAML(old, value) {
		p.markUsed(old)
		return old
	}
	switch v := value.(type) {
	case map[string]any:
		node := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range p.order(v, old) {
			below := append(slices.Clone(at), name)
			key := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
			inner := p.build(v[name], below)
			if oldKey, oldValue := p.origin(below); oldKey != nil && !p.used[oldKey] {
				p.used[oldKey] = true
				key.Style, key.HeadComment, key.LineComment, key.FootComment = oldKey.Style, oldKey.HeadComment,
					oldKey.LineComment, oldKey.FootComment
				if oldKey.Value != name {
					key.Style = 0
				}
				if inner != oldValue && inner.LineComment == "" && inner.Kind == yaml.ScalarNode {
					inner.LineComment = oldValue.LineComment
				}
			}
			node.Content = append(node.Content, key, inner)
		}
		return node
	case []any:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if len(v) == 0 {
			node.Style = yaml.FlowStyle
		}
		for i := range v {
			node.Content = append(node.Content, p.build(v[i], append(slices.Clone(at), strconv.Itoa(i))))
		}
		return node
	}
	node := &yaml.Node{}
	if err := node.Encode(value); err != nil {
		bug.Reportf("convert: %v", err)
	}
	return node
}

// usual is the order in which people usually write the fields of Karpenter's kinds.
var usual = strings.Fields(`apiVersion kind metadata name labels annotations spec template amiFamily amiSelectorTerms role instanceProfile
	subnetSelectorTerms securityGroupSelectorTerms kubelet blockDeviceMappings userData tags metadataOptions taints
startupTaints key operator
	values requirements nodeClassRef expireAfter limits disruption consolidationPolicy consolidateAfter budgets weight`)

// order returns the keys of an object in the order in which the old object has them. A key that is new is put behind
// the last key that usual lists before it. A reference begins with its group.
func (p *printer) order(object map[string]any, old *yaml.Node) []string {
	if _, ok := object["group"]; ok && len(object) == 3 {
		return []string{"group", "kind", "name"}
	}
	var out []string
	if old != nil && old.Kind == yaml.MappingNode && p.sameKind() {
		for i := 0; i < len(old.Content); i += 2 {
			if _, ok := object[old.Content[i].Value]; ok && !slices.Contains(out, old.Content[i].Value) {
				out = append(out, old.Content[i].Value)
			}
		}
	}
	rank := func(name string) int {
		if i := slices.Index(usual, name); i >= 0 {
			return i
		}
		return len(usual)
	}
	missing := slices.DeleteFunc(slices.Sorted(maps.Keys(object)), func(name string) bool { return slices.Contains(out, name) })
	slices.SortStableFunc(missing, func(a, b string) int { return rank(a) - rank(b) })
	for _, name := range missing {
		place := 0
		for i, other := range out {
			if rank(other) <= rank(name) {
				place = i + 1
			}
		}
		out = slices.Insert(out, place, name)
	}
	return out
}

// sameKind reports whether the old object has the kind of the new one, because only then the order of its keys is
// kept. Chart values have no kind, so it is true for them.
func (p *printer) sameKind() bool {
	kind := child(p.sources[p.made.Doc], "kind")
	return kind == nil || kind.Value == p.made.Object["kind"]
}

// sameYAML reports whether a YAML node has a value, compared as JSON.
func sameYAML(node *yaml.Node, value any) bool {
	var decoded any
	if err := node.Decode(&decoded); err != nil {
		return false
	}
	a, errA := json.Marshal(decoded)
	b, errB := json.Marshal(value)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// markUsed notes that a node and all nodes below it are written as they were, so that rescue leaves their comments
// alone.
func (p *printer) markUsed(node *yaml.Node) {
	p.used[node] = true
	for _, inner := range node.Content {
		p.markUsed(inner)
	}
}

// rescue walks an old document and puts the comments of keys that are gone onto the nearest part of the new object
// above them. Keys in made.Gone are skipped: another new object has them.
func (p *printer) rescue(node *yaml.Node, at []string, root *yaml.Node) {
	if p.used[node] || node.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		below := append(slices.Clone(at), key.Value)
		if slices.ContainsFunc(p.made.Gone, func(gone []string) bool { return slices.Equal(gone, below) }) {
			continue
		}
		if !p.used[key] && !p.used[value] {
			if text := joinComments(key.HeadComment, key.LineComment, value.LineComment, key.FootComment); text != "" {
				annotate(root, at, fmt.Sprintf("%s: %s", key.Value, strings.ReplaceAll(strings.TrimLeft(text, "# "), "\n# ", "\n")))
			}
		}
		p.rescue(value, below, root)
	}
}

// annotate adds a comment before the part at a path, or before the nearest part above it that exists.
func annotate(root *yaml.Node, at []string, text string) {
	for n := len(at); n > 0; n-- {
		key, value := find(root, at[:n])
		if key == nil {
			if value == nil {
				continue
			}
			key = value
		}
		key.HeadComment = joinComments(key.HeadComment, "# "+strings.ReplaceAll(text, "\n", "\n# "))
		return
	}
	root.HeadComment = joinComments(root.HeadComment, "# "+strings.ReplaceAll(text, "\n", "\n# "))
}

// joinComments joins comments that are not empty, one below the other.
func joinComments(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "\n")
}
