package top

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/explain/view"
)

var update = flag.Bool("update", false, "write the screens of testdata anew")

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// node is one of eight CPUs and 32 gigabytes.
func node(name, pool string, price, cpu float64, mark view.Mark) Node {
	return Node{view.Machine{Name: name, Claim: "claim-" + name, Pool: pool, Type: "m5.2xlarge", Zone: "eu-west-1a", CapacityType: "spot", Price: cloud.FromDollars(price),
		CPU: view.Share{Used: cpu, All: 8}, Memory: view.Share{Used: cpu * (1 << 30), All: 32 << 30}, Pods: int(cpu)}, mark}
}

// small is a fleet of four, of which all tables have something to say.
func small() *Picture {
	return &Picture{
		At:    noon,
		Nodes: []Node{node("n1", "web", 0.1, 7, ""), node("n2", "web", 0.4, 2, view.InStep), node("n3", "batch", 0.3, 4, view.Boots), node("n4", "batch", 0.2, 1, view.Drifted)},
		Steps: []view.Step{{ID: "drifted-1", Stage: "waits for approval: karpenter approve drifted-1", Reason: "Drifted", Text: "replace 1 node: n4, replaced by m5.large", Nodes: []string{"n4"},
			SavesDay: 1.2, Pods: 1, Until: noon.Add(time.Hour)}},
		Held: []view.Held{
			{By: "Deployment shop/web", Why: "pod shop/web-1 has the annotation karpenter.sh/do-not-disrupt=true", Nodes: []string{"n1", "n2"}, Count: 7, PerDay: 12},
			{By: "budgets of NodePool batch", Why: "they allow no more now for Drifted", PerDay: 2.4, Saves: true},
		},
		Waiting: []Pod{{"shop", "web-9", "Deployment shop/web", noon.Add(-90 * time.Second), 1.5, 2 << 30}},
		Paused:  []string{"NodePool batch: its NodePool is paused until karpenter resume ends it"},
		Open: func(name string) Detail {
			if name == "n3" {
				return Detail{Step: "remove 1 node; empty, saves $0.3000 an hour"}
			}
			return Detail{Holds: []string{"pod shop/web-1 has the annotation karpenter.sh/do-not-disrupt=true, which somebody has set"},
				Pods: []Pod{{"shop", "web-1", "Deployment shop/web", noon.Add(-26 * time.Hour), 6.5, 3 << 30}, {"kube-system", "kube-proxy-x", "DaemonSet kube-system/kube-proxy", noon, 0.1, 1 << 28}}}
		},
	}
}

// later is the same fleet a while later: one node and the step have gone.
func later() *Picture {
	p := small()
	p.At, p.Nodes, p.Steps, p.Waiting = noon.Add(time.Minute), p.Nodes[:3], nil, nil
	return p
}

// large is a fleet of many pools.
func large() *Picture {
	p := &Picture{At: noon}
	for i := range 500 {
		p.Nodes = append(p.Nodes, node(fmt.Sprintf("node-%03d", i), fmt.Sprintf("pool-%d", i%3), 0.1, float64(i%9), ""))
	}
	for i := range 5 {
		p.Remarks = append(p.Remarks, fmt.Sprintf("NodePool %d is paused", i))
	}
	return p
}

// hostile is a fleet of which everything that others write would steer a terminal.
func hostile() *Picture {
	const evil = "\x1b[2J\x1b]0;owned\a\x9b31m\rall\nis well\u202e\u200b"
	pod := Pod{evil, evil, evil, noon, 1, 1}
	p := &Picture{
		At: noon, Nodes: []Node{node(evil, evil, 1, 1, view.Mark(evil))},
		Steps:   []view.Step{{ID: evil, Stage: evil, Reason: evil, Text: evil, Nodes: []string{evil}, Until: noon}},
		Held:    []view.Held{{By: evil, Why: evil, Nodes: []string{evil}, Count: 1}},
		Waiting: []Pod{pod}, Paused: []string{evil}, Remarks: []string{evil},
		Open: func(string) Detail { return Detail{Holds: []string{evil}, Step: evil, Pods: []Pod{pod}} },
	}
	p.Nodes[0].Type, p.Nodes[0].Zone, p.Nodes[0].CapacityType, p.Nodes[0].Claim = evil, evil, evil, evil
	return p
}

// A player presses keys.
type player struct {
	*Model
	next []*Picture // what is read
	cmd  tea.Cmd    // what the last key asks to be done
}

func play(pictures ...*Picture) *player {
	p := &player{next: pictures[1:]}
	p.Model = New(pictures[0], "price", Source{Every: time.Hour, Read: func() (*Picture, error) {
		if len(p.next) == 0 {
			return nil, errors.New("the API server is not to be reached")
		}
		read := p.next[0]
		p.next = p.next[1:]
		return read, nil
	}})
	return p
}

var codes = map[string]rune{"up": tea.KeyUp, "down": tea.KeyDown, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd, "enter": tea.KeyEnter,
	"esc": tea.KeyEscape, "tab": tea.KeyTab, "backspace": tea.KeyBackspace, "left": tea.KeyLeft, "right": tea.KeyRight}

// do does what a word says: a size, a key, letters, or what the last key or the clock asked for.
func (p *player) do(t *testing.T, word string) {
	t.Helper()
	var width, height int
	code, named := codes[word]
	switch {
	case word == "answer":
		p.tell(p.cmd())
	case word == "due":
		p.tell(readDue{})
	case word == "space":
		p.tell(tea.KeyPressMsg{Code: tea.KeySpace, Text: " "})
	case word == "shift+tab":
		p.tell(tea.KeyPressMsg{Code: tea.KeyTab, Mod: tea.ModShift})
	case strings.HasPrefix(word, "ctrl+"):
		p.tell(tea.KeyPressMsg{Code: rune(word[5]), Mod: tea.ModCtrl})
	case strings.HasPrefix(word, "paste:"):
		p.tell(tea.PasteMsg{Content: word[6:]})
	case named:
		p.tell(tea.KeyPressMsg{Code: code})
	default:
		if n, _ := fmt.Sscanf(word, "%dx%d", &width, &height); n == 2 {
			p.tell(tea.WindowSizeMsg{Width: width, Height: height})
			break
		}
		for _, letter := range word {
			p.tell(tea.KeyPressMsg{Code: letter, Text: string(letter)})
		}
	}
	p.check(t, word)
}

// check sees that what is drawn is as large as the screen, over nothing that was there before, and steers the terminal by our own looks alone.
func (p *player) check(t *testing.T, after string) {
	t.Helper()
	v := p.View()
	if !v.AltScreen {
		t.Errorf("after %s: it draws over what was on the terminal", after)
	}
	text := strings.NewReplacer(bold, "", faint, "", inverse, "", normal, "", "\n", "").Replace(v.Content)
	if plain := Plain(text); plain != text {
		t.Errorf("after %s: %q is not plain", after, v.Content)
	}
	lines := strings.Split(v.Content, "\n")
	if len(lines) > p.height {
		t.Errorf("after %s: %d lines in %d", after, len(lines), p.height)
	}
	for _, line := range lines {
		if ansi.StringWidth(line) > p.width {
			t.Errorf("after %s: %q is wider than %d", after, line, p.width)
		}
	}
}

func (p *player) tell(msg tea.Msg) { _, p.cmd = p.Model.Update(msg) }

// seen is the screen without looks, but for the line of the cursor.
func (p *player) seen() string {
	var out strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(p.View().Content, inverse, "»")) {
		fmt.Fprintln(&out, strings.TrimRight(ansi.Strip(line), " \n"))
	}
	return out.String()
}

// Each file is a story: the name of a part says what was pressed, the part what is to be seen then.
func TestScreens(t *testing.T) {
	for name, pictures := range map[string][]*Picture{
		"small": {small()}, "changes": {small(), later()}, "large": {large()}, "empty": {{At: noon}}, "hostile": {hostile()},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".txtar")
			story, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := play(pictures...)
			for i, part := range story.Files {
				for word := range strings.FieldsSeq(part.Name) {
					p.do(t, word)
				}
				got := p.seen()
				if *update {
					story.Files[i].Data = []byte(got)
				} else if diff := cmp.Diff(string(part.Data), got); diff != "" {
					t.Errorf("after %s (-want +got):\n%s", part.Name, diff)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(story), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
