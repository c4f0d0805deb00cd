// Package pin compares us with the sources of the Karpenter that we promise to be compatible with: definitions, settings, gates, texts of
// the API, metrics, events, rights, and chart values. differences.txt lists what differs, each with the reason.
package pin
