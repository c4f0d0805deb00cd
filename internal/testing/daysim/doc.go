// Package daysim tests how Karpenter treats a cluster over a long time: whole days of small changes, and the replacement of a whole
// fleet. All loops run, on simulated time, and what is measured is what users pay and notice: money, evictions, waiting pods.
package daysim
