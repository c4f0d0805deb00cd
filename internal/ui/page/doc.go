// Package page serves a web page that shows the cluster as Karpenter sees it: the fleet as bars, pods that wait and why, steps and what
// holds nodes back, what was decided, what it costs.
//
// It reads and never acts. Snapshots, the journal and the latest explanations of the loops (package board) become one picture, at most once
// a second for all viewers, and none without viewers. A viewer gets the whole picture once and then only changes. A slow viewer misses
// changes and gets the whole picture again; it delays no other. Pod names and reasons are foreign text: they travel as JSON and are shown
// as text.
//
// Terms:
//
//	picture  all that the page shows at one time (picture.go)
//	frame    a picture with its number, encoded for viewers, and the changes from the frame before (service.go, changes.go)
//	moment   what the fleet cost at one time; a series of them is the curve on the page (series.go)
//	viewer   one open connection to /picture (serve.go)
//
// Read service.go first: its loop draws pictures. The files of the page are in assets, unchanged: no build step, nothing from elsewhere.
package page
