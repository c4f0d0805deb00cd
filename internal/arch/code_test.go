package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostFields is how many fields a struct of the solver may have: more is several things.
const mostFields = 20

// wide lists the structs of a file that have too many fields.
func wide(s source) []string {
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.StructType); ok && of.Fields.NumFields() > mostFields {
			found = append(found, s.fset.Position(spec.Pos()).String()+" "+spec.Name.Name)
		}
		return true
	})
	return found
}

func TestStructsOfTheSolverAreSmall(t *testing.T) {
	for _, s := range sources(t) {
		if s.folder != "internal/core/solve" && s.folder != "internal/core/repack" {
			continue
		}
		for _, where := range wide(s) {
			t.Errorf("%s: it has more than %d fields; which of them belong together?", where, mostFields)
		}
	}
}

// The controller links what cmd/karpenter imports, and what that imports.
func TestTheControllerDoesNotLinkTesting(t *testing.T) {
	imports := map[string][]string{}
	for _, s := range sources(t) {
		imports[s.folder] = append(imports[s.folder], s.imports()...)
	}
	from := map[string]string{"cmd/karpenter": ""}
	for next := []string{"cmd/karpenter"}; len(next) > 0; next = next[1:] {
		for _, p := range imports[next[0]] {
			if p == "testing" {
				t.Errorf("%s imports testing, and %s imports it: what tests need is in packages that only tests import", next[0], from[next[0]])
			}
			if _, known := from[p]; !known {
				from[p] = next[0]
				next = append(next, p)
			}
		}
	}
	if len(from) < 100 {
		t.Errorf("only %d packages are linked; the test looks in the wrong place", len(from))
	}
}

// A named is what a file declares at its top, with its comment.
type named struct {
	name string
	doc  *ast.CommentGroup
	at   token.Pos
}

// declared lists functions, methods, types, and variables and constants, as far as each has a comment of its own.
func declared(s source) []named {
	var out []named
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			out = append(out, named{d.Name.Name, d.Doc, d.Pos()})
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				doc := d.Doc
				if len(d.Specs) > 1 {
					doc = nil
				}
				switch x := spec.(type) {
				case *ast.TypeSpec:
					if x.Doc != nil {
						doc = x.Doc
					}
					out = append(out, named{x.Name.Name, doc, x.Pos()})
				case *ast.ValueSpec:
					if x.Doc != nil {
						doc = x.Doc
					}
					out = append(out, named{x.Names[0].Name, doc, x.Pos()})
				}
			}
		}
	}
	return out
}

var word = regexp.MustCompile(`[\pL_][\pL\d_]*`)

// strangers lists comments that begin with the name of something else of the package and do not mention what they stand above.
func strangers(files []source) []string {
	known := map[string]bool{}
	for _, s := range files {
		for _, n := range declared(s) {
			known[n.name] = true
		}
	}
	var found []string
	for _, s := range files {
		for _, n := range declared(s) {
			if n.doc == nil {
				continue
			}
			words := word.FindAllString(n.doc.Text(), -1)
			if len(words) > 1 && slices.Contains([]string{"A", "An", "The"}, words[0]) {
				words = words[1:]
			}
			if len(words) > 0 && words[0] != n.name && known[words[0]] && !slices.Contains(words, n.name) {
				found = append(found, s.fset.Position(n.at).String()+" "+n.name+": "+words[0])
			}
		}
	}
	return found
}

func byFolder(all []source) map[string][]source {
	out := map[string][]source{}
	for _, s := range all {
		out[s.folder] = append(out[s.folder], s)
	}
	return out
}

func TestCommentsNameWhatTheyStandAbove(t *testing.T) {
	for _, files := range byFolder(sources(t)) {
		for _, where := range strangers(files) {
			t.Errorf("%s: the comment is about something else", where)
		}
	}
}

// mentions notes which names of our other packages a file uses, by folder. Tests in a package of their own are another package.
func mentions(s source, used map[string]map[string]bool) {
	alias := map[string]string{}
	for _, i := range s.file.Imports {
		path, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module+"/")
		if !ours || path == s.folder && !strings.HasSuffix(s.file.Name.Name, "_test") {
			continue
		}
		name := path[strings.LastIndexByte(path, '/')+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		alias[name] = path
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && alias[x.Name] != "" {
				if used[alias[x.Name]] == nil {
					used[alias[x.Name]] = map[string]bool{}
				}
				used[alias[x.Name]][sel.Sel.Name] = true
			}
		}
		return true
	})
}

// promised notes the types of a package that others get without naming them: they stand in what else it exports.
func promised(s source, all map[string]bool) {
	note := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				all[id.Name] = true
			}
			return true
		})
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				note(d.Type)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch x := spec.(type) {
				case *ast.ValueSpec:
					if x.Names[0].IsExported() && x.Type != nil {
						note(x.Type)
					}
				case *ast.TypeSpec:
					if x.Name.IsExported() {
						note(x.Type)
					}
				}
			}
		}
	}
}

// homebodies lists the functions and types that the files of a package export, although nobody else has to do with them. used are those that
// others name.
func homebodies(files []source, used map[string]bool) []string {
	given := map[string]bool{}
	for _, s := range files {
		promised(s, given)
	}
	var found []string
	for _, s := range files {
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.IsExported() && !used[d.Name.Name] {
					found = append(found, s.fset.Position(d.Pos()).String()+" "+d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if x, ok := spec.(*ast.TypeSpec); ok && x.Name.IsExported() && !used[x.Name.Name] && !given[x.Name.Name] {
						found = append(found, s.fset.Position(x.Pos()).String()+" "+x.Name.Name)
					}
				}
			}
		}
	}
	return found
}

func TestWhatIsExportedIsUsedElsewhere(t *testing.T) {
	used := map[string]map[string]bool{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.Contains(path, "testdata") {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		mentions(source{folder: filepath.ToSlash(folder), file: file, fset: fset}, used)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder, files := range byFolder(sources(t)) {
		if !covers("internal/...", folder) || folder == "internal/testing/awsmodel" { // what it calls by AWS' names is read by them
			continue
		}
		for _, where := range homebodies(files, used[folder]) {
			t.Errorf("%s: nobody else uses it; exported means that another package does today", where)
		}
	}
}

// locks lists where a file makes a patch with an optimistic lock by hand.
func locks(s source) []string {
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "MergeFromWithOptimisticLock" {
			found = append(found, s.fset.Position(n.Pos()).String())
		}
		return true
	})
	return found
}

// comparers lists the functions of a file that make one time of two.
func comparers(s source) []string {
	isTime := func(e ast.Expr) bool {
		sel, ok := e.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		x, ok := sel.X.(*ast.Ident)
		return ok && x.Name == "time" && sel.Sel.Name == "Time"
	}
	var found []string
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Type.Results.NumFields() != 1 || f.Type.Params.NumFields() != 2 || !isTime(f.Type.Results.List[0].Type) {
			continue
		}
		if p := f.Type.Params.List; isTime(p[0].Type) && isTime(p[len(p)-1].Type) {
			found = append(found, s.fset.Position(f.Pos()).String()+" "+f.Name.Name)
		}
	}
	return found
}

// limiters lists where a function of a file lets so many things go on at once for as long as it runs: slots that it makes for itself.
func limiters(s source) []string {
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		made, ok := n.(*ast.AssignStmt)
		if !ok || made.Tok != token.DEFINE {
			return true
		}
		for _, value := range made.Rhs {
			call, ok := value.(*ast.CallExpr)
			if !ok || types.ExprString(call.Fun) != "make" || len(call.Args) != 2 || types.ExprString(call.Args[0]) != "chan struct{}" {
				continue
			}
			if _, number := call.Args[1].(*ast.BasicLit); !number { // a channel for one is a signal
				found = append(found, s.fset.Position(made.Pos()).String())
			}
		}
		return true
	})
	return found
}

// operators are those of requirements that are easily read in another way: bounds, and whether a label that is not there satisfies them.
var operators = []string{"NodeSelectorOpNotIn", "NodeSelectorOpGt", "NodeSelectorOpLt", "NodeSelectorOpGte", "NodeSelectorOpLte"}

// readers lists where a file decides by such an operator.
func readers(s source) []string {
	named := func(e ast.Expr) bool {
		sel, ok := e.(*ast.SelectorExpr)
		return ok && slices.Contains(operators, sel.Sel.Name)
	}
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CaseClause:
			if slices.ContainsFunc(n.List, named) {
				found = append(found, s.fset.Position(n.Pos()).String())
			}
		case *ast.BinaryExpr:
			if named(n.X) || named(n.Y) {
				found = append(found, s.fset.Position(n.Pos()).String())
			}
		}
		return true
	})
	return found
}

// Who looks at the operator and not only at what it means: package why, which says what would have to be written otherwise, and class.go, to which
// kube-scheduler's own words for "no values" come.
var writers = []string{"internal/explain/why", "internal/core/compile"}

func TestThereIsOneWay(t *testing.T) {
	for _, s := range sources(t) {
		if s.folder != "internal/kit/patch" {
			for _, where := range locks(s) {
				t.Errorf("%s: patch.Over makes a patch that whoever was faster wins", where)
			}
		}
		if s.folder != "internal/kit/parallel" && s.folder != "internal/aws/turns" { // turns has no list: who is called again comes again
			for _, where := range limiters(s) {
				t.Errorf("%s: package parallel does the same for many things, so many at once", where)
			}
		}
		if covers("internal/...", s.folder) && !slices.Contains(writers, s.folder) {
			for _, where := range readers(s) {
				t.Errorf("%s: package need says what a requirement means", where)
			}
		}
		if s.folder != "internal/kit/ztime" {
			for _, where := range comparers(s) {
				t.Errorf("%s: package ztime compares times, of which the zero one is none", where)
			}
		}
	}
}

// Whoever holds a snapshot cannot change it: it has no field that others see, and nobody else makes a draft.
func TestOnlyTheStoreChangesThePicture(t *testing.T) {
	seen := 0
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				of, ok := n.Type.(*ast.StructType)
				if !ok || s.folder != "internal/cluster" || n.Name.Name != "Snapshot" && n.Name.Name != "Draft" && n.Name.Name != "Store" {
					return true
				}
				seen++
				for _, f := range of.Fields.List {
					for _, name := range f.Names {
						if name.IsExported() {
							t.Errorf("%s: %s.%s can be changed by everybody", s.fset.Position(f.Pos()), n.Name.Name, name.Name)
						}
					}
				}
			case *ast.CompositeLit:
				if sel, ok := n.Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "Draft" && s.folder != "internal/cluster" {
					t.Errorf("%s: drafts are made by Store.Update", s.fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
	if seen != 3 {
		t.Errorf("found %d of the types of a picture, want 3", seen)
	}
}

// A law that stands in ARCHITECTURE.md names the test that holds it.
func TestTheArchitectureNamesTestsThatAreThere(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	err = filepath.WalkDir(filepath.Join(root, "internal"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range testName.FindAllStringSubmatch(string(code), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := testNamed.FindAllStringSubmatch(string(text), -1)
	for _, m := range named {
		if !there[m[1]] {
			t.Errorf("%s is named, and is no test", m[1])
		}
	}
	if len(named) < 5 {
		t.Errorf("%d tests are named, and there are five laws", len(named))
	}
}

var (
	testName  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	testNamed = regexp.MustCompile("`(Test\\w+)`")
)

func TestTheTestsOfCodeFindWhatTheyLookFor(t *testing.T) {
	s := parse(t, `package x

import "karpenter.sh/karpenter/api/label"

// other is far below.
func here() {} // found

// A here that is another one, see again.
func again() {}

// Free text.
func other() { label.Known() }

func sooner(a, b time.Time) time.Time { return a } // found

func until(a time.Time, b time.Duration) time.Time { return a }

func write(c client.Client) { c.Patch(client.MergeFromWithOptions(nil, client.MergeFromWithOptimisticLock{})) } // found

func all(list []int) { slots := make(chan struct{}, len(list)); wake := make(chan struct{}, 1) } // found

func less(r Requirement) bool { switch { case r.Operator == corev1.NodeSelectorOpGt: return true }; return false } // found

func not(r Requirement) bool { switch r.Operator { case corev1.NodeSelectorOpNotIn, "": return true }; return false } // found

type Shy struct{} // found

type Given struct{}

func Used() Given

func Unused() {} // found

type wide struct { a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u int } // found
`)
	if got := strangers([]source{s}); len(got) != 1 || !strings.Contains(got[0], "here: other") {
		t.Errorf("comments = %v, want the one of here", got)
	}
	if got := wide(s); len(got) != 1 || !strings.HasSuffix(got[0], " wide") {
		t.Errorf("structs = %v, want the one that is wide", got)
	}
	if got := comparers(s); len(got) != 1 || !strings.HasSuffix(got[0], " sooner") {
		t.Errorf("comparers of times = %v, want sooner", got)
	}
	if got := locks(s); len(got) != 1 {
		t.Errorf("locks = %v, want the one of write", got)
	}
	if got := limiters(s); len(got) != 1 {
		t.Errorf("slots = %v, want those of all", got)
	}
	if got := readers(s); len(got) != 2 {
		t.Errorf("operators = %v, want those of less and not", got)
	}
	if got := homebodies([]source{s}, map[string]bool{"Used": true}); len(got) != 2 || !strings.HasSuffix(got[0], " Shy") || !strings.HasSuffix(got[1], " Unused") {
		t.Errorf("exported for nobody = %v, want Shy and Unused", got)
	}
	used := map[string]map[string]bool{}
	if mentions(s, used); !used["api/label"]["Known"] {
		t.Errorf("uses = %v, want label.Known", used)
	}
}
