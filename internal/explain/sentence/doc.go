// Package sentence has the words for what the core decides and refuses: a code with its arguments becomes one sentence for events, logs,
// reports and commands. The core itself makes no text, so that what it returns can be compared, counted and stored.
//
// Texts begin in lower case and have no full stop, because callers put them behind a subject or join several of them. There is one file for
// each subject of the core: constraint.go says why a pod has no place, refusal.go why a node stays, step.go what a step does.
package sentence
