package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// joinedKeys are the functions in which a joined text is a key or hashed, and why it may be.
var joinedKeys = map[string]string{
	"internal/aws/ami/ami.go bestOf":              "the requirements are those of our own tables, and the status is sorted by the same text",
	"internal/aws/nodegroup/write.go unique":      "the text is a name that an object gets",
	"internal/aws/profile/profile.go Name":        "the name of a profile that exists in IAM must not change",
	"internal/control/open/names.go name":         "names of claims must not change between versions; %q quotes each part",
	"internal/core/disrupt/queue.go Add":          "the ID of a step is what people read in logs; names have no commas",
	"internal/explain/why/space.go ofContainers":  "the text is what people read; no part of a port has a slash",
	"internal/history/recording/capture.go apply": "the text is the UID of a workload in a recording; create events have two kinds, neither with a space",
	"internal/ui/cli/expand.go addStatefulPods":   "the text is the name of a pod",
	"internal/ui/cli/expand.go addReplicas":       "the text is the name of a pod",
	"internal/ui/cli/report.go refusals":          "pods are grouped by the text that people read",
}

// A keyFinder finds keys of maps and caches, and inputs of hashes, that a file joins from several parts. It reads one function at a time.
type keyFinder struct {
	joiners map[string]bool // functions and methods of the package that return joined text
	joined  map[string]bool // variables of the function that hold joined text
	hashes  map[string]bool // variables of the function that hold a hash
	found   []ast.Node
}

// operands lists the operands of a chain of plus signs.
func operands(e ast.Expr) []ast.Expr {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return operands(e.X)
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return append(operands(e.X), operands(e.Y)...)
		}
	}
	return []ast.Expr{e}
}

// literals counts the operands that are literals, and reports whether one of them is a text.
func literals(list []ast.Expr) (n int, text bool) {
	for _, e := range list {
		if l, ok := e.(*ast.BasicLit); ok {
			n, text = n+1, text || l.Kind == token.STRING || l.Kind == token.CHAR
		}
		if call, ok := e.(*ast.CallExpr); ok {
			name := types.ExprString(call.Fun)
			text = text || name == "string" || strings.HasPrefix(name, "strconv.") || strings.HasPrefix(name, "strings.") || strings.HasPrefix(name, "fmt.S")
		}
	}
	return n, text
}

// isJoined reports whether an expression joins several parts into one text.
func (f *keyFinder) isJoined(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return f.isJoined(e.X)
	case *ast.Ident:
		return f.joined[e.Name]
	case *ast.BinaryExpr:
		list := operands(e)
		n, text := literals(list)
		return text && len(list)-n > 1 || slices.ContainsFunc(list, func(e ast.Expr) bool { return e != nil && len(list) > 1 && f.isJoined(e) })
	case *ast.CallExpr:
		switch name := types.ExprString(e.Fun); {
		case name == "strings.Join":
			return true
		case strings.HasPrefix(name, "fmt.Sprint"), strings.HasPrefix(name, "fmt.Append"):
			n, _ := literals(e.Args)
			return len(e.Args)-n > 1
		case name == "string", name == "[]byte", name == "strings.ToLower":
			return len(e.Args) == 1 && f.isJoined(e.Args[0])
		default:
			name = name[strings.LastIndexByte(name, '.')+1:]
			sel, method := e.Fun.(*ast.SelectorExpr)
			if method && name == "String" {
				return f.isJoined(sel.X)
			}
			return f.joiners[name]
		}
	}
	return false
}

// note remembers variables that hold joined text or a hash.
func (f *keyFinder) note(n ast.Node) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			id, ok := left.(*ast.Ident)
			if !ok || len(n.Lhs) != len(n.Rhs) {
				continue
			}
			f.joined[id.Name] = f.joined[id.Name] || f.isJoined(n.Rhs[i])
			made := types.ExprString(n.Rhs[i])
			f.hashes[id.Name] = f.hashes[id.Name] || strings.HasPrefix(made, "fnv.New") || strings.HasPrefix(made, "sha") && strings.Contains(made, ".New")
		}
	case *ast.ValueSpec:
		kind := ""
		if n.Type != nil {
			kind = types.ExprString(n.Type)
		}
		for i, id := range n.Names {
			f.joined[id.Name] = kind == "strings.Builder" || kind == "bytes.Buffer" || i < len(n.Values) && f.isJoined(n.Values[i])
			f.hashes[id.Name] = kind == "maphash.Hash"
		}
	}
}

// cacheCalls are the methods of caches and sets whose first argument is a key.
var cacheCalls = []string{"Get", "Put", "Has", "Delete", "Insert", "Load", "Store", "LoadOrStore", "LoadAndDelete"}

// look notes where a node uses joined text as a key or hashes it.
func (f *keyFinder) look(n ast.Node) {
	switch n := n.(type) {
	case *ast.IndexExpr:
		if f.isJoined(n.Index) {
			f.found = append(f.found, n)
		}
	case *ast.CallExpr:
		name := types.ExprString(n.Fun)
		sel, method := n.Fun.(*ast.SelectorExpr)
		keys := n.Args
		switch {
		case name == "delete" && len(keys) == 2:
			keys = keys[1:]
		case strings.HasPrefix(name, "sha") && strings.Contains(name, ".Sum"), name == "maphash.String":
		case name == "fmt.Fprintf" || name == "fmt.Fprint" || name == "io.WriteString":
			if id, ok := n.Args[0].(*ast.Ident); !ok || !f.hashes[id.Name] {
				return
			}
			if n, _ := literals(keys[1:]); len(keys)-1-n > 1 {
				f.found = append(f.found, sel)
				return
			}
		case method && (sel.Sel.Name == "Write" || sel.Sel.Name == "WriteString"):
			if id, ok := sel.X.(*ast.Ident); !ok || !f.hashes[id.Name] {
				return
			}
		case method && slices.Contains(cacheCalls, sel.Sel.Name) && len(keys) > 0:
			keys = keys[:1]
		default:
			return
		}
		if slices.ContainsFunc(keys, f.isJoined) {
			f.found = append(f.found, n)
		}
	}
}

// read looks at one function.
func (f *keyFinder) read(body ast.Node) {
	f.joined, f.hashes = map[string]bool{}, map[string]bool{}
	ast.Inspect(body, func(n ast.Node) bool { f.note(n); f.look(n); return true })
}

// joiners lists the functions and methods of a package that return text which they join.
func joiners(files []source) map[string]bool {
	out := map[string]bool{}
	for _, s := range files {
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || fn.Type.Results.NumFields() != 1 || fn.Name.Name == "String" || fn.Name.Name == "Error" {
				continue
			}
			f := &keyFinder{joiners: out}
			f.read(fn.Body)
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) == 1 && f.isJoined(r.Results[0]) {
					out[fn.Name.Name] = true
				}
				return true
			})
		}
	}
	return out
}

// joins lists where a file uses text that it joins as a key, or hashes it.
func joins(s source, joiners map[string]bool) (where, function []string) {
	f := &keyFinder{joiners: joiners}
	for _, d := range s.file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		f.read(fn.Body)
		for _, n := range f.found[len(where):] {
			where, function = append(where, s.fset.Position(n.Pos()).String()), append(function, fn.Name.Name)
		}
	}
	return where, function
}

func TestKeysAreNotJoinedByHand(t *testing.T) {
	used := map[string]bool{}
	for folder, files := range byFolder(sources(t)) {
		if !covers("internal/...", folder) && !covers("cmd/...", folder) || covers("internal/testing/...", folder) {
			continue
		}
		known := joiners(files)
		for _, s := range files {
			where, functions := joins(s, known)
			for i, function := range functions {
				name := strings.TrimPrefix(s.path, "../../") + " " + function
				if used[name] = true; joinedKeys[name] == "" {
					t.Errorf("%s: other parts may be joined to the same key; use a struct as the key, or write its parts with package identity "+
						"(exceptions with their reasons are in joinedKeys)", where[i])
				}
			}
		}
	}
	for name := range joinedKeys {
		if !used[name] {
			t.Errorf("%s joins no keys any more: remove the exception", name)
		}
	}
}

func TestJoinedKeysAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want int
	}{
		"an index of two texts":              {`_ = m[a+"/"+b]`, 1},
		"an index by a format":               {`_ = m[fmt.Sprintf("%s %v", a, b)]`, 1},
		"a variable that is a key later":     {`key := a + "/" + b; m[key] = 1`, 1},
		"a list as a key":                    {`m[strings.Join(list, ",")] = 1`, 1},
		"a key that a function joins":        {`m[keyOf(a, b)] = 1`, 1},
		"a deleted key":                      {`delete(m, a+"/"+b)`, 1},
		"a text that is built":               {`var s strings.Builder; s.WriteString(a); m[s.String()] = 1`, 1},
		"a key of a cache":                   {`cache.Put(a+"/"+b, 1)`, 1},
		"a hash of two texts":                {`_ = sha256.Sum256([]byte(a + "\n" + b))`, 1},
		"a hash that is written to":          {`h := fnv.New64a(); h.Write([]byte(a + " "))`, 0},
		"a hash of a format":                 {`h := fnv.New64a(); fmt.Fprintf(h, "%s/%s", a, b)`, 1},
		"one text with a prefix":             {`_ = m["x/"+a]`, 0},
		"the next place of a list":           {`_ = list[i+j+1]`, 0},
		"a struct":                           {`_ = m[key{a, b}]`, 0},
		"the identity of two texts":          {`_ = m[identity.Of(a, b)]`, 0},
		"a joined text that is no key":       {`log(a + "/" + b); m[a] = 1`, 0},
		"two texts that are written to logs": {`fmt.Fprintf(w, "%s/%s", a, b)`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fset := token.NewFileSet()
			text := "package x\nfunc f() { " + tc.body + " }\nfunc keyOf(a, b string) string { return a + \"/\" + b }\n"
			file, err := parser.ParseFile(fset, "x.go", text, 0)
			if err != nil {
				t.Fatal(err)
			}
			s := source{file: file, fset: fset}
			if got, _ := joins(s, joiners([]source{s})); len(got) != tc.want {
				t.Errorf("found %v, want %d", got, tc.want)
			}
		})
	}
}
