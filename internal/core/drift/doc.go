// Package drift reports whether a claim still is what its pool asks for.
//
// Three questions are answered here, each from values alone: is the template that the claim was made from still the pool's
// (static drift, by hash), do the claim's labels still satisfy the pool's requirements, and can its instance type still
// be had. What only the cloud knows, node classes, images and networks, is the provider's question.
//
// Hashes are taken over frozen copies of the API structs and carry a version text of our own. So a new field in the API changes
// no hash, and hashes that another implementation wrote are replaced, never compared.
package drift
