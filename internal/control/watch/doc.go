// Package watch keeps the store up to date with the API server.
//
// Each kind has a feed (feed.go) that lists page by page and then watches. Objects go straight into the store's rows; there is no other
// cache. An object that cannot be read is noted in the store (Broken) and left out, and the rest goes on. The store counts as synced
// after the first list of every kind. If a feed has to start over later, it replaces rows step by step and never empties the store.
//
// A feed has failed if it gets only errors for a minute, or no answer at all for eleven minutes (health.go). The store notes that until
// the feed works again. A quiet cluster is not a failure, because watches are renewed every few minutes.
//
// kinds.go lists the kinds; raw.go reads custom resources and decodes an object only if it is needed; watch.go puts the feeds together.
package watch
