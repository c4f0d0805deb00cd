// Package looptest holds tests only: all of Karpenter's loops over the AWS provider over the model of AWS, in simulated time.
// Machines become nodes through their user data alone, pods are bound and run, and Karpenter is stopped and started again
// while AWS has a bad day.
//
// LOOP_SEEDS=17 or LOOP_SEEDS=0-999 chooses seeds, BAD_DAYS=17 days, and LOOP_LOG=1 shows what Karpenter says. A
// seed chooses the troubles, on whom they fall and which calls fail, whatever else happened (lot); the order in
// which goroutines take their turns it does not, so that a failure may need some tries to come again.
package looptest
