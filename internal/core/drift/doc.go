// Package drift reports whether a claim still matches its pool.
//
// It answers three questions: was the claim made from the pool's present template (static drift, by hash: [Static]), do the claim's labels
// satisfy the pool's requirements ([Satisfied]), and is its instance type still sold ([InstanceTypeGone]). The provider answers what only
// the cloud knows: node classes, images and networks.
//
// Hashes are made of copies of the API structs that never change (hash.go), and have a version. So a new field in the API changes no hash.
// Hashes of another version are replaced and never compared (migrate.go); other implementations of Karpenter write such hashes.
package drift
