// Package conversion tests how v1beta1 is served beside v1, and dropped, against a real API server that begins with an installation of
// Karpenter 0.33: definitions that store v1beta1, and objects in it.
package conversion
