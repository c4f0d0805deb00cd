// Package wire speaks the protocols of AWS's services from the server's side: Query requests, XML answers, and JSON in
// the two spellings that AWS uses.
//
// The shapes are the ones of the SDK for Go, so a request is decoded into the same struct that a client filled, and an
// answer is the same struct that the client will read. What the SDK does not say, the names on the wire, stands in the
// tables of names.go. The promise, tested with the SDK's own clients, is that every field survives the way in both directions.
package wire
