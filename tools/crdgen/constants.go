package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// A group is one block of constants, with the comment that stands above it.
type group struct {
	title     string
	constants []documented
}

// listed reports whether the reference lists the group: labels and their values have a table of their own.
func (g *group) listed() bool {
	return !strings.HasPrefix(g.title, "Labels of") && !strings.HasPrefix(g.title, "Values of") && !strings.HasPrefix(g.title, "Resources")
}

// documented is a text constant and its comment.
type documented struct{ value, doc string }

// sources are the files whose constants the reference lists.
type sources map[string][]group

// readConstants reads the blocks of text constants of source files. Each constant needs a comment: it is what the reference
// says.
func readConstants(files ...string) (sources, error) {
	var folders []string
	for _, file := range files {
		folders = append(folders, "./"+filepath.Dir(file))
	}
	slices.Sort(folders)
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes |
			packages.NeedTypesInfo | packages.NeedImports,
	}, slices.Compact(folders)...)
	if err != nil {
		return nil, err
	}
	out := sources{}
	for _, pkg := range loaded {
		if len(pkg.Errors) > 0 {
			return nil, fmt.Errorf("load %s: %v", pkg.PkgPath, pkg.Errors)
		}
		for _, syntax := range pkg.Syntax {
			path := pkg.Fset.Position(syntax.Pos()).Filename
			i := slices.IndexFunc(files, func(file string) bool { return strings.HasSuffix(filepath.ToSlash(path), "/"+file) })
			if i < 0 {
				continue
			}
			if out[files[i]], err = blocks(pkg.TypesInfo, syntax); err != nil {
				return nil, err
			}
		}
	}
	for _, file := range files {
		if len(out[file]) == 0 {
			return nil, fmt.Errorf("%s has no constants", file)
		}
	}
	return out, nil
}

func blocks(info *types.Info, file *ast.File) ([]group, error) {
	var out []group
	for _, declaration := range file.Decls {
		block, ok := declaration.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST || !block.Lparen.IsValid() {
			continue
		}
		g := group{title: strings.TrimSpace(block.Doc.Text())}
		for _, spec := range block.Specs {
			value := spec.(*ast.ValueSpec)
			for _, name := range value.Names {
				text, ok := textOf(info, name)
				if !ok {
					continue
				}
				doc := strings.TrimSpace(value.Doc.Text() + value.Comment.Text())
				if doc == "" && g.listed() {
					return nil, fmt.Errorf("constant %s has no comment", name.Name)
				}
				g.constants = append(g.constants, documented{text, doc})
			}
		}
		out = append(out, g)
	}
	return out, nil
}

func textOf(info *types.Info, name *ast.Ident) (string, bool) {
	object, ok := info.Defs[name].(*types.Const)
	if !ok || object.Val().Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(object.Val()), true
}
