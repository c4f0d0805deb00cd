package policy

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// implied are actions that no call is named after: AWS asks for them when others are called.
var implied = map[string]string{
	"ec2:CreateTags":         "what is made with tags, and tags on machines",
	"iam:PassRole":           "a role in a profile, and a profile on a machine",
	"iam:TagInstanceProfile": "profiles are made with tags",
}

// What the provider calls is what the policies allow, and nothing else is: a call that is new needs a right, and a right that no call
// needs any more goes.
func TestEveryRightHasItsCallAndEveryCallItsRight(t *testing.T) {
	docs, err := Documents(Names{"aws", "us-east-1", "123456789012", "demo", nodeRole, "demo"})
	if err != nil {
		t.Fatal(err)
	}
	granted := map[string]bool{}
	for _, text := range docs {
		var doc struct{ Statement []struct{ Action []string } }
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		for _, s := range doc.Statement {
			for _, action := range s.Action {
				granted[action] = true
			}
		}
	}
	needed := calls(t)
	for action := range implied {
		needed[action] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(needed)), slices.Sorted(maps.Keys(granted))); diff != "" {
		t.Errorf("calls (-) and rights (+) differ:\n%s", diff)
	}
}

// calls are the operations of AWS's services for which the provider builds an input, as actions.
func calls(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch entry.Name() {
			case "awsmodel", "policy", "preflight": // preflight asks with the rights of people
				return filepath.SkipDir
			}
			return nil
		}
		if path == filepath.Join("..", "price", "table.go") { // karpenter prices fetch asks with the rights of people too
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		return callsIn(path, out)
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func callsIn(path string, out map[string]bool) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return err
	}
	services := map[string]string{} // by the name that the file has for the package
	for _, i := range file.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		if service, ok := strings.CutPrefix(imported, "github.com/aws/aws-sdk-go-v2/service/"); ok && !strings.Contains(service, "/") {
			name := service
			if i.Name != nil {
				name = i.Name.Name
			}
			services[name] = service
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		kind, ok := literal.Type.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, ok := kind.X.(*ast.Ident)
		if operation, input := strings.CutSuffix(kind.Sel.Name, "Input"); ok && input && services[from.Name] != "" {
			service := services[from.Name]
			if service == "arczonalshift" {
				service = "arc-zonal-shift" // as actions are spelled
			}
			out[service+":"+operation] = true
		}
		return true
	})
	return nil
}
