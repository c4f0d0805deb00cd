// Package journal keeps what the controller decided: each act of a loop is one record, written once, where the act is logged.
//
// A Journal holds the newest records in memory, at most so many and at most so many bytes; with a folder it also writes them there as
// lines of JSON, in files of bounded size of which the oldest go. Adding is cheap and never waits for a disk: a second's records may be
// missing after a crash, and a line that a crash tore is passed over by who reads.
//
// Records hold names, amounts and our own sentences. Nothing of what a container is started with, no environment, no user data and no
// annotation finds its way into one: there is no field for it.
package journal
