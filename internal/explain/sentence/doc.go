// Package sentence has the words for what the core decides and refuses: a code with its arguments becomes one
// sentence for events, logs, reports and commands. The core itself makes no text, so that what it returns can be
// compared, counted and kept.
package sentence
