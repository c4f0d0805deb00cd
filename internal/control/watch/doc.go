// Package watch keeps the store in step with the API server.
//
// Each kind has a feed that lists page by page and then watches. Objects go straight into the store's rows; there is no
// other cache. An object that cannot be read is named in the store and left out, and the rest goes on. The store counts as
// synced once the first list of every kind is in it; afterwards a feed that has to start over replaces what it knows
// step by step and never empties the picture.
//
// A feed that meets nothing but errors for a minute, or hears nothing at all for eleven, has failed, and the store says so until it works
// again. That nothing happens is no failure: watches are renewed all the same.
package watch
