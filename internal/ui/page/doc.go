// Package page serves a page on which the cluster can be seen as Karpenter sees it: the fleet as bars, pods that
// wait and why, steps and what holds them back, what was decided, what it costs.
//
// It reads and never acts: snapshots, the journal and the last word of the loops (package board) become one picture, at most once a second
// for all who look, and none without viewers. A viewer gets the picture once and then what has changed; a slow reader misses changes
// and gets the picture again, and delays no other. Pod names and reasons are foreign text: they travel as JSON and are shown as text.
//
// What the page is made of is in assets, unchanged: no build step, nothing from elsewhere.
package page
