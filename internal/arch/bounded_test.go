package arch

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// Objects without quantities, and those whose quantities newPod bounds.
var putsWithoutQuantities = []string{
	"PutBroken", "PutCSINode", "PutDeviceClass", "PutDisruptionPlan", "PutNamespace", "PutNodeClass", "PutOwnerSelector", "PutPDB",
	"PutPriorityClass", "PutService", "PutStorageClass", "PutVolumeAttachment", "PutPod", "PutSpares",
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

// A quantity such as 1e40000000 takes many seconds to compare. Package bounded replaces it where objects enter the store.
func TestQuantitiesAreBoundedWhereObjectsEnter(t *testing.T) {
	checked := 0
	for _, s := range sources(t) {
		if s.folder != "internal/cluster" {
			continue
		}
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !strings.HasPrefix(f.Name.Name, "Put") && f.Name.Name != "newPod" || slices.Contains(putsWithoutQuantities, f.Name.Name) {
				continue
			}
			checked++
			if !mentionsPackage(f.Body, "bounded") {
				t.Errorf("%s: pass the object through bounded.Object, or name the method in putsWithoutQuantities if the kind has no quantities", s.fset.Position(f.Pos()))
			}
		}
	}
	if checked < 12 {
		t.Errorf("%d methods were checked; the test looks in the wrong place", checked)
	}
}
