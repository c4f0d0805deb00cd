// Package journal keeps what the controller decided. Each act of a loop is one record, which is added where the act is logged.
//
// A Journal holds the newest records in memory, up to mostRecords and mostBytes (journal.go, record.go). A Keeper also
// writes them to a folder as lines of JSON, in files of bounded size, of which the oldest are removed (folder.go).
// Adding a record is cheap and never waits for a disk. After a crash, the records of the last second may be missing and
// the last line may be torn; readers skip such a line and count it.
//
// Records hold names, amounts and Karpenter's own sentences. They have no field for commands, environments, user data or annotations.
package journal
