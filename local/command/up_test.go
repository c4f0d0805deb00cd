package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"karpenter.sh/karpenter/local/home"
)

// A stand-in for the binary says how it was called, so that the lines are really typed, into a shell, in any folder.
func TestWhatToTypeNextCanBeTyped(t *testing.T) {
	for name, folder := range map[string]string{
		"a plain path":           "plain",
		"a path with blanks":     "two words",
		"a path with everything": `it's $HOME; "#1" & \n*`,
	} {
		t.Run(name, func(t *testing.T) {
			base := filepath.Join(t.TempDir(), folder)
			if err := os.MkdirAll(base, 0o700); err != nil {
				t.Fatal(err)
			}
			self := filepath.Join(base, "karpenter-local")
			if err := os.WriteFile(self, []byte("#!/bin/sh\nprintf '%s|%s|%s\\n' \"$KARPENTER_LOCAL_DIR\" \"$KUBECONFIG\" \"$*\"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			lines := next(home.Dir(base+"/state"), quoted(self))
			shell := exec.Command("sh") // its aliases work in scripts too
			shell.Dir = t.TempDir()
			shell.Stdin = strings.NewReader(strings.Join(lines, "\n"))
			out, err := shell.CombinedOutput()
			state := base + "/state|" + base + "/state/kubeconfig|"
			want := state + "kubectl scale deployment inflate --replicas=10\n" + state + "kubectl get nodeclaims,nodes,pods\n" + state + "status\n"
			if err != nil || string(out) != want {
				t.Errorf("typed:\n%s\nsaid: %v\n%s\nwant:\n%s", strings.Join(lines, "\n"), err, out, want)
			}
		})
	}
}
