// Package fakecloud is a working cloud in memory: a cloud.Provider for tests of the loops and for clusters without AWS.
//
// It serves EC2NodeClass, so that the objects of a test are those of a real cluster; what can be bought comes from outside.
// Machines start and stop after a delay, and tell it to the function that plays the kubelet. Trouble is on switches: stock that
// runs out, calls that are slow, fail, or act and then lose the answer, reads that lag behind. With a journal file a
// second process finds the machines of the first, as it would in a real cloud.
package fakecloud
