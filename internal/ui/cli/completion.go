package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
)

const completionUsage = `usage: karpenter completion bash|zsh|fish

Prints the script with which a shell completes the commands and flags of karpenter, and of "kubectl karpenter" as far as kubectl asks.

  bash: source <(karpenter completion bash)
  zsh:  source <(karpenter completion zsh)
  fish: karpenter completion fish | source
`

// The scripts ask for the words that can follow with "karpenter completion words COMMAND".
var completionScripts = map[string]string{
	"bash": `_karpenter() {
  local word=${COMP_WORDS[COMP_CWORD]}
  local words; words=$(karpenter completion words "${COMP_WORDS[@]:1:COMP_CWORD-1}")
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}
complete -o filenames -F _karpenter karpenter
`,
	"zsh": `autoload -Uz compinit && compinit -u
_karpenter() {
  local -a words_of
  words_of=(${=$(karpenter completion words "${(@)words[2,CURRENT-1]}")})
  compadd -a words_of || _files
}
compdef _karpenter karpenter
`,
	"fish": `complete -c karpenter -f -n __fish_use_subcommand -a "(karpenter completion words)"
complete -c karpenter -n "not __fish_use_subcommand" -a "(karpenter completion words (commandline -opc)[2..-1])"
`,
}

// completion prints the script for a shell. With "words", which only these scripts call, it prints the words that can
// come next.
func completion(ctx context.Context, env Env, args []string) (int, error) {
	switch {
	case len(args) > 0 && args[0] == "words":
		for _, word := range wordsAfter(ctx, env, args[1:]) {
			fmt.Fprintln(env.Out, word)
		}
		return exitFine, nil
	case len(args) == 1 && completionScripts[args[0]] != "":
		fmt.Fprint(env.Out, completionScripts[args[0]])
		return exitFine, nil
	case len(args) == 1 && (args[0] == "-h" || args[0] == "--help"):
		fmt.Fprint(env.Err, completionUsage)
		return exitFine, nil
	}
	return exitBadInput, fmt.Errorf("name a shell: bash, zsh or fish")
}

// wordsAfter returns the words that can follow the words before: the commands if there are none, else the flags that
// the help of the command lists.
func wordsAfter(ctx context.Context, env Env, before []string) []string {
	if len(before) == 0 {
		words := []string{"controller", "help", "version"}
		for _, c := range commands() {
			words = append(words, c.name)
		}
		slices.Sort(words)
		return words
	}
	all := commands()
	at := slices.IndexFunc(all, func(c command) bool { return c.name == before[0] })
	if at < 0 || before[0] == "completion" {
		return sortedKeys(completionScripts)
	}
	var help bytes.Buffer
	env.Out, env.Err = &help, &help
	if _, err := all[at].run(ctx, env, []string{"--help"}); err != nil && help.Len() == 0 {
		return nil
	}
	var words []string
	for line := range strings.Lines(help.String()) {
		if name, ok := strings.CutPrefix(line, "  -"); ok {
			words = append(words, "--"+strings.TrimLeft(strings.Fields(name)[0], "-"))
		}
	}
	return words
}
