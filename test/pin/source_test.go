package pin

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A tree holds the parsed sources of a few modules, by import path. It is read, never compiled.
type tree map[string]*source

// A source is a package, with the values that its constants and variables start with, by name.
type source struct {
	files  []*ast.File
	values map[string]value
}

type value struct {
	expr ast.Expr
	file *ast.File
}

// read adds the packages under folder/pkg of the module to the tree, without tests and generated files.
func (tr tree) read(module, folder string) error {
	return filepath.WalkDir(filepath.Join(folder, "pkg"), func(name string, e fs.DirEntry, err error) error {
		base := filepath.Base(name)
		if err != nil || e.IsDir() || !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") || strings.HasPrefix(base, "zz_") {
			return err
		}
		if strings.Contains(name, "/pkg/test/") || strings.Contains(name, "/pkg/fake/") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(folder, filepath.Dir(name))
		if err != nil {
			return err
		}
		tr.add(path.Join(module, filepath.ToSlash(rel)), file)
		return nil
	})
}

func (tr tree) add(importPath string, file *ast.File) {
	p := tr[importPath]
	if p == nil {
		p = &source{values: map[string]value{}}
		tr[importPath] = p
	}
	p.files = append(p.files, file)
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
				for i, name := range v.Names {
					p.values[name.Name] = value{v.Values[i], file}
				}
			}
		}
	}
}

// values returns the names of the package's constants and variables that hold a text, with the text.
func (tr tree) values(p *source) map[string]string {
	all := map[string]string{}
	for name, v := range p.values {
		if s, ok := tr.text(v.expr, p, v.file); ok {
			all[name] = s
		}
	}
	return all
}

// text returns what an expression of a file says: a literal, a constant, the Name of a composite, two of them joined, or one converted.
func (tr tree) text(e ast.Expr, p *source, file *ast.File) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		if err != nil {
			return e.Value, e.Kind != token.STRING
		}
		return s, true
	case *ast.Ident:
		if v, ok := p.values[e.Name]; ok {
			return tr.text(v.expr, p, v.file)
		}
		return e.Name, e.Name == "true" || e.Name == "false"
	case *ast.SelectorExpr:
		return tr.selected(e, p, file)
	case *ast.UnaryExpr:
		x, ok := tr.text(e.X, p, file)
		return e.Op.String() + x, ok
	case *ast.ParenExpr:
		return tr.text(e.X, p, file)
	case *ast.BinaryExpr:
		x, okX := tr.text(e.X, p, file)
		y, okY := tr.text(e.Y, p, file)
		if e.Op == token.MUL {
			return x + y, okX && okY // 10*time.Second
		}
		return x + y, okX && okY && e.Op == token.ADD
	case *ast.CompositeLit:
		if name := field(e, "Name"); name != nil {
			return tr.text(name, p, file)
		}
	case *ast.CallExpr:
		if len(e.Args) == 1 {
			return tr.text(e.Args[0], p, file)
		}
	}
	return "", false
}

func (tr tree) selected(e *ast.SelectorExpr, p *source, file *ast.File) (string, bool) {
	x, ok := e.X.(*ast.Ident)
	if !ok {
		return "", false
	}
	from := importOf(file, x.Name)
	if from == "time" {
		return map[string]string{"Second": "s", "Minute": "m", "Hour": "h"}[e.Sel.Name], true
	}
	if q := tr[from]; q != nil {
		if v, ok := q.values[e.Sel.Name]; ok {
			return tr.text(v.expr, q, v.file)
		}
		return "", false
	}
	if _, ok := p.values[x.Name]; ok && e.Sel.Name == "Name" {
		return tr.text(e.X, p, file)
	}
	return "", false
}

func importOf(file *ast.File, name string) string {
	for _, spec := range file.Imports {
		from, _ := strconv.Unquote(spec.Path.Value)
		if spec.Name != nil && spec.Name.Name == name || spec.Name == nil && path.Base(from) == name {
			return from
		}
	}
	return ""
}

// field returns what a composite literal sets a field to, or nil.
func field(c *ast.CompositeLit, name string) ast.Expr {
	for _, e := range c.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == name {
				return kv.Value
			}
		}
	}
	return nil
}

// calls visits every call in the tree, in the order of the sources.
func (tr tree) calls(visit func(c *ast.CallExpr, method string, p *source, file *ast.File)) {
	for _, importPath := range slices.Sorted(maps.Keys(tr)) {
		p := tr[importPath]
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					method := ""
					switch f := c.Fun.(type) {
					case *ast.SelectorExpr:
						method = f.Sel.Name
					case *ast.Ident:
						method = f.Name
					}
					visit(c, method, p, file)
				}
				return true
			})
		}
	}
}

// flags returns each flag with its environment variable and default, as "ENV default".
func (tr tree) flags() map[string]string {
	all := map[string]string{}
	tr.calls(func(c *ast.CallExpr, method string, p *source, file *ast.File) {
		name := func(i int) string { s, _ := tr.text(c.Args[i], p, file); return s }
		switch {
		case method == "BoolVarWithEnv" && len(c.Args) == 5:
			all["--"+name(1)] = name(2) + " " + name(3)
		case strings.HasSuffix(method, "Var") && len(c.Args) == 4:
			if env, ok := c.Args[2].(*ast.CallExpr); ok && len(env.Args) == 2 {
				variable, _ := tr.text(env.Args[0], p, file)
				value, _ := tr.text(env.Args[1], p, file)
				all["--"+name(1)] = strings.TrimSpace(variable + " " + strings.Replace(value, "time.", "", 1))
			}
		}
	})
	return all
}

// gates returns each feature gate with its default.
func (tr tree) gates() map[string]string {
	all := map[string]string{}
	for _, p := range tr {
		for name, v := range p.values {
			if c, ok := v.expr.(*ast.CompositeLit); ok && strings.HasSuffix(name, "FeatureGate") {
				gate, _ := tr.text(c, p, v.file)
				all[gate], _ = tr.text(field(c, "Default"), p, v.file)
			}
		}
	}
	return all
}

// metrics returns each metric with its labels.
func (tr tree) metrics() map[string]string {
	all := map[string]string{}
	tr.calls(func(c *ast.CallExpr, method string, p *source, file *ast.File) {
		if !strings.HasPrefix(method, "NewPrometheus") || len(c.Args) < 3 {
			return
		}
		opts, ok := c.Args[1].(*ast.CompositeLit)
		if !ok {
			return
		}
		var name []string
		for _, part := range []string{"Namespace", "Subsystem", "Name"} {
			if e := field(opts, part); e != nil {
				s, _ := tr.text(e, p, file)
				name = append(name, s)
			}
		}
		all[strings.Join(name, "_")] = tr.labels(c.Args[2], p, file)
	})
	return all
}

// unknown stands for labels that upstream works out when it starts.
const unknown = "?"

// labels returns the sorted names in a list of labels, or unknown where a function makes them.
func (tr tree) labels(e ast.Expr, p *source, file *ast.File) string {
	list, ok := e.(*ast.CompositeLit)
	if !ok {
		return unknown
	}
	var names []string
	for _, label := range list.Elts {
		s, ok := tr.text(label, p, file)
		if !ok {
			return unknown
		}
		names = append(names, s)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// reasons returns the reasons of events.
func (tr tree) reasons() map[string]string {
	all := map[string]string{}
	for importPath, p := range tr {
		if strings.HasSuffix(importPath, "karpenter/pkg/events") {
			for name, s := range tr.values(p) {
				if name == s {
					all[s] = ""
				}
			}
		}
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if c, ok := n.(*ast.CompositeLit); ok && field(c, "InvolvedObject") != nil && field(c, "Reason") != nil {
					if s, ok := tr.text(field(c, "Reason"), p, file); ok {
						all[s] = ""
					}
				}
				return true
			})
		}
	}
	return all
}

// conditionReasons returns the reasons that conditions are set to.
func (tr tree) conditionReasons() map[string]string {
	all := map[string]string{}
	tr.calls(func(c *ast.CallExpr, method string, p *source, file *ast.File) {
		if slices.Contains([]string{"SetFalse", "SetUnknownWithReason", "SetTrueWithReason"}, method) && len(c.Args) > 2 {
			if s, ok := tr.text(c.Args[1], p, file); ok {
				all[s] = ""
			}
		}
	})
	return all
}

// texts returns the constants of the API packages that accept says are of interest, by their names.
func (tr tree) texts(accept func(name, text string) bool) map[string]string {
	all := map[string]string{}
	for importPath, p := range tr {
		if strings.Contains(importPath, "/pkg/apis/") {
			for name, s := range tr.values(p) {
				if accept(name, s) {
					all[s] = ""
				}
			}
		}
	}
	return all
}

// actions returns the IAM actions behind the methods of the provider's interfaces to AWS.
func (tr tree) actions() map[string]string {
	all := map[string]string{}
	services := map[string]string{"EC2API": "ec2", "IAMAPI": "iam", "EKSAPI": "eks", "PricingAPI": "pricing", "SSMAPI": "ssm", "SQSAPI": "sqs", "ARCZonalShiftAPI": "arc-zonal-shift"}
	for importPath, p := range tr {
		if !strings.HasSuffix(importPath, "/pkg/aws") {
			continue
		}
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if t, ok := n.(*ast.TypeSpec); ok && services[t.Name.Name] != "" {
					for _, m := range t.Type.(*ast.InterfaceType).Methods.List {
						all[services[t.Name.Name]+":"+m.Names[0].Name] = ""
					}
				}
				return true
			})
		}
	}
	return all
}

// readTree reads the modules in the folders.
func readTree(folders map[string]string) (tree, error) {
	tr := tree{}
	for module, folder := range folders {
		if _, err := os.Stat(filepath.Join(folder, "pkg")); err != nil {
			return nil, fmt.Errorf("sources of %s: %w", module, err)
		}
		if err := tr.read(module, folder); err != nil {
			return nil, fmt.Errorf("sources of %s: %w", module, err)
		}
	}
	return tr, nil
}
