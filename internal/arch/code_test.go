package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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

func TestCommentsNameWhatTheyStandAbove(t *testing.T) {
	byFolder := map[string][]source{}
	for _, s := range sources(t) {
		byFolder[s.folder] = append(byFolder[s.folder], s)
	}
	for _, files := range byFolder {
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
	for _, s := range sources(t) {
		if !covers("internal/...", s.folder) {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && f.Name.IsExported() && !used[s.folder][f.Name.Name] {
				t.Errorf("%s %s: nobody else uses it; exported means that another package does today", s.fset.Position(f.Pos()), f.Name.Name)
			}
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

func TestThereIsOneWay(t *testing.T) {
	for _, s := range sources(t) {
		if s.folder != "internal/patch" {
			for _, where := range locks(s) {
				t.Errorf("%s: patch.Over makes a patch that whoever was faster wins", where)
			}
		}
		if s.folder != "internal/when" {
			for _, where := range comparers(s) {
				t.Errorf("%s: package when compares times, of which the zero one is none", where)
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
	used := map[string]map[string]bool{}
	if mentions(s, used); !used["api/label"]["Known"] {
		t.Errorf("uses = %v, want label.Known", used)
	}
}
