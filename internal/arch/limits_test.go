package arch

import (
	"bufio"
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	mostColumns = 140 // of a line; a tab counts four
	mostMethods = 60  // of a receiver, promoted ones included
)

// generated reports whether a source is generated.
func (s source) generated() bool { return strings.Contains(s.path, "zz_generated") }

// standIns are words that stand for an actor or a thing that a comment should name.
var standIns = regexp.MustCompile(`(?i)\b(nobody|somebody|whoever|whomever|tells whether|says whether|of ours|is told|are told|one that|who asks|says of|` +
	`what becomes of|what it is|as it is)\b`)

func TestCommentsNameWhoActs(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated() {
			continue
		}
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				if found := standIns.FindString(c.Text); found != "" {
					t.Errorf("%s: %q: name the actor or the thing: the controller, kube-scheduler, the pod, the user; a function \"reports whether\" or \"returns\"",
						s.fset.Position(c.Pos()), found)
				}
			}
		}
	}
}

func TestLinesFitTheScreen(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated() {
			continue
		}
		f, err := os.Open(s.path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			line := strings.ReplaceAll(lines.Text(), "\t", "    ")
			marker := strings.HasPrefix(strings.TrimSpace(line), "// +") // the generator of definitions reads one line
			if utf8.RuneCountInString(line) > mostColumns && !marker {
				t.Errorf("%s:%d has more than %d columns: break it after a comma or an operator at about 120", s.path, n, mostColumns)
			}
		}
		f.Close()
	}
}

// A shape is what a struct type declares.
type shape struct {
	at      string
	methods map[string]bool // its own
	embeds  []string        // folder and name of what it embeds
	fields  int
}

// shapes returns the struct types and receivers of our packages, by folder and name.
func shapes(all []source) map[string]*shape {
	out := map[string]*shape{}
	of := func(folder, name string) *shape {
		key := folder + "." + name
		if out[key] == nil {
			out[key] = &shape{methods: map[string]bool{}}
		}
		return out[key]
	}
	for _, s := range all {
		if s.generated() {
			continue
		}
		imported := map[string]string{}
		for _, path := range s.imports() {
			imported[path[strings.LastIndexByte(path, '/')+1:]] = path
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					if name := typeName(n.Recv.List[0].Type); name != "" {
						of(s.folder, name).methods[n.Name.Name] = true
					}
				}
			case *ast.TypeSpec:
				if st, ok := n.Type.(*ast.StructType); ok {
					x := of(s.folder, n.Name.Name)
					x.at, x.fields = s.fset.Position(n.Pos()).String(), st.Fields.NumFields()
					x.embeds = embedded(st, s.folder, imported)
				}
			}
			return true
		})
	}
	return out
}

// typeName returns the name of the type of a receiver or an embedded field, "" for a type of another package.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func embedded(st *ast.StructType, folder string, imported map[string]string) []string {
	var out []string
	for _, f := range st.Fields.List {
		if len(f.Names) > 0 {
			continue
		}
		if name := typeName(f.Type); name != "" {
			out = append(out, folder+"."+name)
		}
		e := f.Type
		if star, ok := e.(*ast.StarExpr); ok {
			e = star.X
		}
		if sel, ok := e.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				out = append(out, imported[x.Name]+"."+sel.Sel.Name)
			}
		}
	}
	return out
}

// methodsOf returns the methods that answer to a receiver, those of embedded types included.
func methodsOf(all map[string]*shape, name string, seen map[string]bool) map[string]bool {
	out := map[string]bool{}
	x := all[name]
	if x == nil || seen[name] {
		return out
	}
	seen[name] = true
	for m := range x.methods {
		out[m] = true
	}
	for _, e := range x.embeds {
		for m := range methodsOf(all, e, seen) {
			out[m] = true
		}
	}
	return out
}

func TestTypesAreSmall(t *testing.T) {
	all := shapes(sources(t))
	for name, x := range all {
		if n := len(methodsOf(all, name, map[string]bool{})); n > mostMethods {
			t.Errorf("%s (%s) answers to %d methods, at most %d, promoted ones included: pass parts as fields instead of embedding them", name, x.at, n, mostMethods)
		}
		if x.fields > mostFields && !strings.HasPrefix(name, "api/") {
			t.Errorf("%s (%s) has %d fields, at most %d: which of them belong together?", name, x.at, x.fields, mostFields)
		}
	}
}

func TestLimitsFindWhatTheyLookFor(t *testing.T) {
	s := parse(t, `package x

// Whoever calls it is told.
type base struct{}

func (b base) one() {}
func (b *base) two() {}

type derived struct {
	*base
	a, b int
}

func (d *derived) three() {}
`)
	s.folder = "x"
	all := shapes([]source{s})
	if got := methodsOf(all, "x.derived", map[string]bool{}); len(got) != 3 {
		t.Errorf("methods of derived = %v, want its own and those of base", got)
	}
	if all["x.derived"].fields != 3 {
		t.Errorf("fields of derived = %d, want 3", all["x.derived"].fields)
	}
	var found []string
	for _, c := range s.file.Comments {
		found = append(found, standIns.FindAllString(c.Text(), -1)...)
	}
	if !slices.Equal(found, []string{"Whoever", "is told"}) {
		t.Errorf("stand-ins = %q", found)
	}
}
