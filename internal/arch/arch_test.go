// Package arch holds no code, only tests that keep the shape of the repository: who may import whom, one comment for each
// package, one home for the strings that others read, no clock and no chance in the core. Every ban says why, because the
// reader of a failure needs it.
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
	"strconv"
	"strings"
	"testing"
)

const module = "karpenter.sh/karpenter"

// A ban forbids an import. Patterns are paths; "/..." also covers everything below. Our own packages are written without
// the module's name.
type ban struct {
	in, no string
	except []string
	why    string
}

var bans = []ban{
	{in: "api/...", no: "cloud/...", why: "everybody imports the API; it imports nobody"},
	{in: "api/...", no: "internal/...", why: "everybody imports the API; it imports nobody"},
	{in: "api/...", no: "k8s.io/client-go/...", why: "types do no calls"},
	{in: "api/...", no: "sigs.k8s.io/controller-runtime/...", why: "types do no calls"},
	{in: "cloud/...", no: "internal/...", why: "the contract is public; what is internal cannot stand in it"},
	{in: "cloud/...", no: "api/aws/...", why: "the contract is the same for every cloud"},

	{in: "internal/core/...", no: "k8s.io/client-go/...", why: "the core decides, it does not call"},
	{in: "internal/core/...", no: "sigs.k8s.io/controller-runtime/...", why: "the core decides, it does not call"},
	{in: "internal/core/...", no: "github.com/aws/...", why: "the core knows machines and prices, not EC2"},
	{in: "internal/core/...", no: "internal/aws/...", why: "the core knows machines and prices, not EC2"},
	{in: "internal/core/...", no: "api/aws/...", why: "the core knows machines and prices, not EC2"},
	{in: "internal/core/...", no: "internal/control/...", why: "the shell calls the core, never the other way"},
	{in: "internal/core/...", no: "internal/observe/telemetry", why: "the core returns what it found; the shell tells it to people"},
	{in: "internal/core/...", no: "internal/explain/sentence", why: "every no is a code with arguments; text is made once, at the edge"},
	{in: "internal/core/...", no: "net/...", except: []string{"net/netip", "net/url"}, why: "the core does no I/O"},
	{in: "internal/core/...", no: "os/...", why: "the core does no I/O"},
	{in: "internal/core/...", no: "syscall", why: "the core does no I/O"},
	{in: "internal/core/...", no: "log/...", why: "the core returns what it found; the shell tells it to people"},
	{in: "internal/core/...", no: "github.com/go-logr/...", why: "the core returns what it found; the shell tells it to people"},
	{in: "internal/core/...", no: "context", why: "a deadline is a clock: the shell hands in functions that say when to stop"},
	{in: "internal/core/...", no: "k8s.io/component-helpers/resource", why: "podclass.Requests says what a pod counts for"},
	{in: "internal/core/...", no: "api/karpenter/v1beta1", why: "v1 is the only version that decisions know; package generations turns others into it"},
	{in: "internal/core/...", no: "math/rand/...", why: "the same problem gives the same plan"},
	{in: "internal/core/...", no: "crypto/rand", why: "the same problem gives the same plan"},
	{in: "internal/core/...", no: "sync/...", why: "values that never change need no lock; who runs parts of the core at once hands each its own"},

	{in: "internal/core/pack/...", no: "internal/core/solve", why: "the packer knows nothing of rules; package repack tells it what it may know"},
	{in: "internal/core/pack/verify", no: "internal/...", except: []string{"internal/core/bits"}, why: "who checks a bound shares nothing with who found it: else both could be wrong together"},
	{in: "internal/core/pack/lp", no: "internal/...", except: []string{"internal/core/work"}, why: "a linear program knows nothing of machines"},

	{in: "internal/cluster/...", no: "internal/control/...", why: "the Store holds state; it does not act"},
	{in: "internal/cluster/...", no: "internal/core/...", why: "the Store is what is decided about, not what decides; it only knows which pods are equal"},
	{in: "internal/cluster/...", no: "cloud/...", why: "what can be bought is no state of the cluster"},
	{in: "internal/cluster/...", no: "k8s.io/client-go/...", why: "the Store is told, it does not ask"},
	{in: "internal/cluster/...", no: "sigs.k8s.io/controller-runtime/...", why: "the Store is told, it does not ask"},

	{in: "internal/control/...", no: "internal/core/label", why: "package need says what a requirement means"},
	{in: "internal/aws/...", no: "internal/core/label", why: "package need says what a requirement means"},
	{in: "internal/ui/cli", no: "internal/core/label", why: "package need says what a requirement means"},
	{in: "internal/explain/view", no: "k8s.io/component-helpers/resource", why: "podclass.Requests says what a pod counts for"},
	{in: "internal/control/...", no: "k8s.io/component-helpers/resource", why: "podclass.Requests says what a pod counts for"},
	{in: "internal/control/...", no: "api/karpenter/v1beta1", why: "v1 is the only version that loops know; package generations turns others into it"},
	{in: "internal/control/...", no: "internal/aws/...", why: "loops know cloud.Provider only"},
	{in: "internal/control/...", no: "internal/testing/fakecloud", why: "loops know cloud.Provider only"},
	{in: "internal/control/...", no: "api/aws/...", why: "loops know cloud.Provider only"},
	{in: "internal/control/...", no: "internal/ui/cli", why: "loops do not know who else reads the snapshots"},

	{in: "internal/aws/...", no: "internal/cluster", why: "a provider sells machines; what the cluster does with them is not its business"},
	{in: "internal/aws/...", no: "internal/core/solve/...", why: "a provider sells machines; what the cluster does with them is not its business"},
	{in: "internal/aws/...", no: "internal/core/repack", why: "a provider sells machines; what the cluster does with them is not its business"},
	{in: "internal/aws/...", no: "internal/core/compile", why: "a provider sells machines; what the cluster does with them is not its business"},
	{in: "internal/aws/...", no: "internal/core/engine", why: "a provider sells machines; what the cluster does with them is not its business"},
	{in: "internal/aws/...", no: "internal/control/...", why: "a provider sells machines; what the cluster does with them is not its business"},
	{in: "internal/testing/awsmodel/...", no: "internal/aws/...", except: []string{"internal/testing/awsmodel/...", "internal/aws/awsdata", "internal/aws/price"}, why: "the model of AWS shares facts about AWS with the provider, but no code: else both could be wrong together"},

	{in: "internal/ui/cli", no: "internal/control/...", why: "commands read; they do not act"},
	{in: "internal/operator", no: "api/aws/...", why: "what is one cloud's comes with it, from cmd"},
	{in: "internal/operator", no: "internal/aws/...", why: "what is one cloud's comes with it, from cmd"},
	{in: "internal/operator", no: "internal/testing/fakecloud", why: "only tests and the local cluster run on a cloud that is not there"},
	{in: "cmd/...", no: "internal/testing/fakecloud", why: "only tests and the local cluster run on a cloud that is not there"},
}

// The numeric packages see numbers only: package compile reads the objects for them.
var numeric = []string{"bits", "quantity", "label", "problem", "reason", "shape", "work", "pack/...", "repack", "rule/...", "solve/..."}

// The local cluster links the main module. What both use in two versions would be compiled twice by who builds both, and with it
// everything that imports it.
func TestModulesUseOneSetOfVersions(t *testing.T) {
	main, local := versions(t, "go.mod"), versions(t, "local/go.mod")
	for path, version := range main {
		if other, both := local[path]; both && other != version {
			t.Errorf("%s is %s in go.mod and %s in local/go.mod: go get %[1]s@ the newer one where it is older, then go mod tidy", path, version, other)
		}
	}
}

// versions reads which version of each module a go.mod asks for.
func versions(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case !strings.HasPrefix(line, "\t") || len(fields) < 2:
		case fields[1] != "=>":
			out[fields[0]] = fields[1]
		case len(fields) == 4: // another version, below all that is required
			out[fields[0]] = fields[3]
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s asks for nothing", file)
	}
	return out
}

func allBans() []ban {
	all := slices.Clone(bans)
	for _, name := range numeric {
		in := "internal/core/" + name
		all = append(all,
			ban{in: in, no: "k8s.io/...", why: "the solver sees numbers; package compile has read the objects"},
			ban{in: in, no: "sigs.k8s.io/...", why: "the solver sees numbers; package compile has read the objects"},
			ban{in: in, no: "api/...", why: "the solver sees numbers; package compile has read the objects"},
			ban{in: in, no: "cloud/...", why: "the solver sees numbers; package compile has read the objects"},
			ban{in: in, no: "internal/cluster", why: "the solver sees numbers; package compile has read the objects"},
		)
	}
	return all
}

// covers says whether a pattern names the path.
func covers(pattern, path string) bool {
	if root, below := strings.CutSuffix(pattern, "/..."); below {
		return path == root || strings.HasPrefix(path, root+"/")
	}
	return path == pattern
}

// breaks says whether the import is banned. Both paths are as in a ban.
func (b ban) breaks(importer, imported string) bool {
	free := func(pattern string) bool { return covers(pattern, imported) }
	return covers(b.in, importer) && covers(b.no, imported) && !slices.ContainsFunc(b.except, free)
}

func TestBan(t *testing.T) {
	b := ban{in: "internal/core/...", no: "net/...", except: []string{"net/netip"}}
	for name, tc := range map[string]struct {
		importer, imported string
		want               bool
	}{
		"the package itself is banned":                {"internal/core/solve", "net", true},
		"what is below it is banned":                  {"internal/core/solve", "net/http", true},
		"the root of the pattern is covered":          {"internal/core", "net", true},
		"an exception is not":                         {"internal/core/solve", "net/netip", false},
		"a name that only begins alike is not banned": {"internal/core/solve", "netrc", false},
		"another folder is free":                      {"internal/control/gc", "net", false},
		"a folder that only begins alike is free":     {"internal/corelike", "net", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := b.breaks(tc.importer, tc.imported); got != tc.want {
				t.Errorf("breaks(%s, %s) = %t, want %t", tc.importer, tc.imported, got, tc.want)
			}
		})
	}
}

// A source is one Go file, without tests.
type source struct {
	folder string // below the module's root
	path   string
	file   *ast.File
	fset   *token.FileSet
}

func (s source) imports() []string {
	var all []string
	for _, i := range s.file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			panic(err) // the parser has accepted it
		}
		all = append(all, strings.TrimPrefix(path, module+"/"))
	}
	return all
}

// sources parses every file below the repository's root, except tests.
func sources(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var all []source
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		all = append(all, source{folder: filepath.ToSlash(folder), path: path, file: file, fset: fset})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found %d files; the test looks in the wrong place", len(all))
	}
	return all
}

func TestImports(t *testing.T) {
	all := allBans()
	for _, s := range sources(t) {
		for _, imported := range s.imports() {
			for _, b := range all {
				if b.breaks(s.folder, imported) {
					t.Errorf("%s imports %s: %s", s.path, imported, b.why)
				}
			}
		}
	}
}

// Folders below control that several loops are given by main. They are services, not loops.
var services = []string{"internal/control/catalog", "internal/control/open", "internal/control/hint"}

// Folders below control that hold no loop. Every loop may import them.
var sharedByLoops = []string{"internal/control/definition", "internal/control/protection", "internal/control/status", "internal/control/workqueue"}

func TestLoopsDoNotImportEachOther(t *testing.T) {
	for _, s := range sources(t) {
		if !covers("internal/control/...", s.folder) || slices.Contains(services, s.folder) {
			continue
		}
		for _, imported := range s.imports() {
			if slices.Contains(sharedByLoops, imported) {
				continue
			}
			if covers("internal/control/...", imported) && !covers(imported+"/...", s.folder) && !covers(s.folder+"/...", imported) {
				t.Errorf("%s imports %s: loops meet in cluster.Store and the API server, not in each other", s.path, imported)
			}
		}
	}
}

func TestRulesDoNotImportEachOther(t *testing.T) {
	for _, s := range sources(t) {
		if !covers("internal/core/rule/...", s.folder) {
			continue
		}
		for _, imported := range s.imports() {
			if strings.HasPrefix(imported, "internal/core/rule/") && imported != s.folder {
				t.Errorf("%s imports %s: each kind of constraint is understood by itself", s.path, imported)
			}
		}
	}
}

func TestOnlyTheLocalModuleEmbedsAControlPlane(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, heavy := range []string{"k8s.io/kubernetes", "helm.sh/helm", "go.etcd.io/etcd/server", "sigs.k8s.io/kwok", module + "/local"} {
		if strings.Contains(string(text), heavy) {
			t.Errorf("go.mod names %s: the controller must not link it", heavy)
		}
	}
}

// packageComments counts the files of each package that carry a package comment.
func packageComments(all []source) map[string]int {
	count := map[string]int{}
	for _, s := range all {
		count[s.folder] += 0
		if s.file.Doc != nil && strings.TrimSpace(s.file.Doc.Text()) != "" {
			count[s.folder]++
		}
	}
	return count
}

func TestOnePackageCommentEach(t *testing.T) {
	for folder, n := range packageComments(sources(t)) {
		if n != 1 {
			t.Errorf("%s has %d package comments, want one that says what it holds, promises and refuses to do", folder, n)
		}
	}
}

func TestNoPackageForThisAndThat(t *testing.T) {
	for _, s := range sources(t) {
		if name := s.file.Name.Name; slices.Contains([]string{"util", "utils", "common", "helpers", "misc", "types", "manager"}, name) {
			t.Errorf("%s: a package is named after what it holds, and %q holds nothing in particular", s.path, name)
		}
	}
}

// homes are where strings that users see may stand.
var homes = []string{"api/...", "internal/observe/telemetry/..."}

// foreignStrings lists the string literals of a file that belong into a home.
func foreignStrings(s source) []string {
	var found []string
	imports := map[*ast.BasicLit]bool{}
	for _, i := range s.file.Imports {
		imports[i.Path] = true
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING || imports[literal] {
			return true
		}
		if text, err := strconv.Unquote(literal.Value); err == nil && strings.HasPrefix(text, "karpenter.") {
			found = append(found, s.fset.Position(literal.Pos()).String()+" "+literal.Value)
		}
		return true
	})
	return found
}

func TestStringsThatOthersReadHaveOneHome(t *testing.T) {
	for _, s := range sources(t) {
		if slices.ContainsFunc(homes, func(home string) bool { return covers(home, s.folder) }) {
			continue
		}
		for _, where := range foreignStrings(s) {
			t.Errorf("%s: labels, annotations and the like are named in api/, events and metrics in internal/observe/telemetry", where)
		}
	}
}

// clock names what package time has that is not a value.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// clockReads lists where a file asks or waits for the time.
func clockReads(s source) []string {
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, selector.Sel.Name) {
			found = append(found, s.fset.Position(selector.Pos()).String())
		}
		return true
	})
	return found
}

func TestTheCoreHasNoClock(t *testing.T) {
	for _, s := range sources(t) {
		if !covers("internal/core/...", s.folder) {
			continue
		}
		for _, where := range clockReads(s) {
			t.Errorf("%s: time is an argument of the core, so that every decision can be repeated", where)
		}
	}
}

// goroutines lists where a file starts them.
func goroutines(s source) []string {
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if start, ok := n.(*ast.GoStmt); ok {
			found = append(found, s.fset.Position(start.Pos()).String())
		}
		return true
	})
	return found
}

func TestTheCoreStartsNoGoroutines(t *testing.T) {
	for _, s := range sources(t) {
		if !covers("internal/core/...", s.folder) {
			continue
		}
		for _, where := range goroutines(s) {
			t.Errorf("%s: who asks several questions at once starts what is needed for that, and the core stays a function of its arguments", where)
		}
	}
}

// logKeys are what objects are called in the log, by what they must not be called: queries over logs know one name for each.
var logKeys = map[string]string{
	"claim": "NodeClaim", "nodeclaim": "NodeClaim", "node": "Node", "pool": "NodePool", "nodepool": "NodePool", "pod": "Pod", "class": "EC2NodeClass",
}

var logMethods = []string{"Debug", "Info", "Warn", "Error", "DebugContext", "InfoContext", "WarnContext", "ErrorContext"}

// wrongLogKeys lists where a file writes a line of the log that calls an object otherwise.
func wrongLogKeys(s source) []string {
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if method, ok := call.Fun.(*ast.SelectorExpr); !ok || !slices.Contains(logMethods, method.Sel.Name) {
			return true
		}
		for _, arg := range call.Args {
			if text, ok := arg.(*ast.BasicLit); ok && text.Kind == token.STRING && logKeys[strings.Trim(text.Value, `"`)] != "" {
				found = append(found, s.fset.Position(text.Pos()).String())
			}
		}
		return true
	})
	return found
}

func TestTheLogCallsObjectsByOneName(t *testing.T) {
	for _, s := range sources(t) {
		if !covers("internal/...", s.folder) {
			continue
		}
		for _, where := range wrongLogKeys(s) {
			t.Errorf("%s: the log has NodeClaim, Node, NodePool, Pod and EC2NodeClass as keys", where)
		}
	}
}

// parse makes a source of a text.
func parse(t *testing.T, text string) source {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "x.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return source{folder: "x", path: "x.go", file: file, fset: fset}
}

// textMade lists where a file makes text with package fmt that is no error.
func textMade(s source) []string {
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if of, ok := sel.X.(*ast.Ident); ok && of.Name == "fmt" && sel.Sel.Name != "Errorf" {
			found = append(found, s.fset.Position(sel.Pos()).String())
		}
		return true
	})
	return found
}

// prose is a word and a space beside it.
var prose = regexp.MustCompile(`[a-z]\W? | \W?[a-z]`)

// sentences lists where a file has words for people: literals with prose in them, but for the formats of errors and the tags of fields.
func sentences(s source) []string {
	var found []string
	free := map[ast.Node]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			free[n.Tag] = true
		case *ast.CallExpr:
			if called := types.ExprString(n.Fun); called == "fmt.Errorf" || called == "errors.New" || strings.HasSuffix(called, ".failf") {
				free[n.Args[0]] = true
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && !free[n] && err == nil && prose.MatchString(text) {
				found = append(found, s.fset.Position(n.Pos()).String())
			}
		}
		return true
	})
	return found
}

// Every no is a code with arguments; text is made once, at the edge. What is left to the core are errors: of a field that cannot be read, and of
// a proof that does not hold.
func TestTheCoreMakesNoText(t *testing.T) {
	for _, s := range sources(t) {
		if !covers("internal/core/...", s.folder) {
			continue
		}
		for _, at := range append(textMade(s), sentences(s)...) {
			t.Errorf("%s: return a code with arguments, and let package sentence say it", at)
		}
	}
}

func TestTheTestsFindWhatTheyLookFor(t *testing.T) {
	s := parse(t, `package x

import (
	"time"
	"karpenter.sh/karpenter/api"
)

const label = "karpenter.sh/nodepool" // found
const text = "about karpenter.sh"     // free text

var now = time.Now()          // found
var later = time.Unix(0, 0)   // a value

func f() {
	log.Error("no claim", "claim", c.Name)        // found
	log.Error("no claim", "NodeClaim", c.Name)
	other("claim")
	fmt.Errorf("an error")
	fmt.Sprint("a text") // found
	say(Count{Detail: "is gone", Key: "one-word"}, "[ ]") // found
	fmt.Errorf("an error: %s", "in a hurry") // found
	go other("claim") // found
}

type tagged struct { field int "json:x yaml:x" }
`)
	if got := sentences(s); len(got) < 2 || !strings.HasPrefix(got[len(got)-2], "x.go:20:") || !strings.HasPrefix(got[len(got)-1], "x.go:21:") {
		t.Errorf("sentences = %v, want the one of line 20 and that of an argument in line 21", got)
	}
	if got := textMade(s); len(got) != 1 || !strings.HasPrefix(got[0], "x.go:19:") {
		t.Errorf("text = %v, want that of line 19", got)
	}
	if got := wrongLogKeys(s); len(got) != 1 || !strings.HasPrefix(got[0], "x.go:15:") {
		t.Errorf("log keys = %v, want the one in line 15", got)
	}
	if got := foreignStrings(s); len(got) != 1 || !strings.HasPrefix(got[0], "x.go:8:") {
		t.Errorf("strings = %v, want the one in line 8", got)
	}
	if got := clockReads(s); len(got) != 1 || !strings.HasPrefix(got[0], "x.go:11:") {
		t.Errorf("clock reads = %v, want the one in line 11", got)
	}
	if got := goroutines(s); len(got) != 1 || !strings.HasPrefix(got[0], "x.go:22:") {
		t.Errorf("goroutines = %v, want the one in line 22", got)
	}
	if got := packageComments([]source{s})["x"]; got != 0 {
		t.Errorf("package comments = %d, want none", got)
	}
	if got := s.imports(); !slices.Contains(got, "api") || !slices.Contains(got, "time") {
		t.Errorf("imports = %v, want our own without the module's name", got)
	}
}

// People look for trouble with a search for "error". A line that tells of none must not be found.
func TestOnlyTroubleIsLoggedAsError(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "Info" && method.Sel.Name != "InfoContext" {
				return true
			}
			for _, arg := range call.Args {
				if text, ok := arg.(*ast.BasicLit); ok && text.Value == `"error"` {
					t.Errorf("%s: a line of level INFO has the key error; name what it is, or log it as an error", s.fset.Position(call.Pos()))
				}
			}
			return true
		})
	}
}
