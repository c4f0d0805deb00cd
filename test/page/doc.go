// Package page tests the page of the controller (internal/ui/page) in Chromium, as a person would use it: what it
// shows and asks for, keys, light and dark, foreign text, thousands of nodes, who may see it.
//
// It is a module of its own, so that nothing else has to build what drives a browser. Where there is no Chromium
// its tests say how to get one.
package page
