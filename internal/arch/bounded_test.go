package arch

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// Objects without quantities, those whose quantities newPod bounds, and Named.Put, which is Scoped.Put.
var putsWithoutQuantities = []string{
	"Draft.PutBroken", "Draft.PutCSINode", "Draft.PutDisruptionPlan", "Draft.PutNodeClass", "Draft.PutOwnerSelector", "Draft.PutPod",
	"Draft.PutSpares", "Named.Put",
}

// mentionsPackage reports whether code uses something of a package.
func mentionsPackage(n ast.Node, name string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			x, ok := sel.X.(*ast.Ident)
			found = found || ok && x.Name == name
		}
		return !found
	})
	return found
}

// parsersOfUsers take long for some texts. Package bounded calls them for texts that it has looked at.
var parsersOfUsers = []string{"resource.ParseQuantity", "cron.ParseStandard", "cron.NewParser", "cron.Parse"}

// TestWhatUsersWriteIsParsedByBounded: of production code only package bounded parses quantities and schedules, and the API package that
// package aws calls with a checked document.
func TestWhatUsersWriteIsParsedByBounded(t *testing.T) {
	calls := 0
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok || !slices.Contains(parsersOfUsers, x.Name+"."+sel.Sel.Name) {
				return true
			}
			calls++
			if s.folder != "internal/kit/bounded" && s.folder != "api/aws/v1" && !strings.HasPrefix(s.folder, "local") {
				t.Errorf("%s: call bounded.ParseQuantity or bounded.ParseSchedule", s.fset.Position(n.Pos()))
			}
			return true
		})
	}
	if calls < 3 {
		t.Errorf("%d calls were found; the test looks in the wrong place", calls)
	}
}

// A quantity such as 1e40000000 takes many seconds to compare. Package bounded replaces it where objects enter the store.
func TestQuantitiesAreBoundedWhereObjectsEnter(t *testing.T) {
	checked := 0
	for _, s := range sources(t) {
		if s.folder != "internal/cluster" {
			continue
		}
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !strings.HasPrefix(f.Name.Name, "Put") && f.Name.Name != "newPod" ||
				slices.Contains(putsWithoutQuantities, typeName(f.Recv.List[0].Type)+"."+f.Name.Name) {
				continue
			}
			checked++
			if !mentionsPackage(f.Body, "bounded") {
				t.Errorf("%s: pass the object through bounded.Object, or name the method in putsWithoutQuantities if the kind has no quantities", s.fset.Position(f.Pos()))
			}
		}
	}
	if checked < 4 {
		t.Errorf("%d methods were checked; the test looks in the wrong place", checked)
	}
}
