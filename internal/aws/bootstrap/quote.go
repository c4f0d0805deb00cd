package bootstrap

import "strings"

// Every value that a Karpenter script contains goes through one of these functions, also those that were validated before.

// bashWord returns a value as one word of a Bash script.
func bashWord(value string) string { return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'" }

// powerShellWord returns a value as one word of a PowerShell script. PowerShell takes typographic quotes for plain ones.
func powerShellWord(value string) string {
	return "'" + strings.NewReplacer("'", "''", "\u2018", "\u2018\u2018", "\u2019", "\u2019\u2019", "\u201a",
		"\u201a\u201a", "\u201b", "\u201b\u201b").Replace(value) + "'"
}
