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

// A printer writes a new object as YAML. Where a part of it says the same as the part of an old object that it comes from, the old
// text is taken, with its quotes and comments; what is left of the old comments goes to the nearest place that is still there.
type printer struct {
	made    *generations.Converted
	sources []*yaml.Node
	used    map[*yaml.Node]bool // keys of old objects whose comments are written
}

// writeTree writes a converted object.
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

func encodeYAML(node *yaml.Node) []byte {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(node); err != nil {
		bug.Reportf("convert: %v", err)
	}
	return out.Bytes()
}

// origin finds where a part of the new object was: the longest move that it is below, else the same place of the same document.
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

// find walks a path through mappings and lists.
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

func pair(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

func child(mapping *yaml.Node, name string) *yaml.Node {
	_, value := pair(mapping, name)
	return value
}

// build makes the node of a value that stands at a path of the new object.
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

// usual is the order in which people write the fields of our kinds.
var usual = strings.Fields(`apiVersion kind metadata name labels annotations spec template amiFamily amiSelectorTerms role instanceProfile
	subnetSelectorTerms securityGroupSelectorTerms kubelet blockDeviceMappings userData tags metadataOptions taints
startupTaints key operator
	values requirements nodeClassRef expireAfter limits disruption consolidationPolicy consolidateAfter budgets weight`)

// order lists the keys of an object as they were written; new ones come after the last key that people usually write before them. A
// reference begins with its group.
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

// sameKind reports whether the old object is of the new one's kind, so that its order means something. Values have none.
func (p *printer) sameKind() bool {
	kind := child(p.sources[p.made.Doc], "kind")
	return kind == nil || kind.Value == p.made.Object["kind"]
}

// sameYAML reports whether an old text means a value.
func sameYAML(node *yaml.Node, value any) bool {
	var decoded any
	if err := node.Decode(&decoded); err != nil {
		return false
	}
	a, errA := json.Marshal(decoded)
	b, errB := json.Marshal(value)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// markUsed notes that everything below a node is written as it was.
func (p *printer) markUsed(node *yaml.Node) {
	p.used[node] = true
	for _, inner := range node.Content {
		p.markUsed(inner)
	}
}

// rescue puts the comments of what is gone onto the nearest thing above that is still there.
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

// annotate puts a comment before what stands at a path, or before the nearest thing above it.
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

func joinComments(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "\n")
}
