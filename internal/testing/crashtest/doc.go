// Package crashtest holds tests only: Karpenter is stopped at random moments while it launches and removes machines, loses
// everything it knew, and starts again. Whatever the moment, every pod runs in the end, nothing is left over, and no limit is
// ever exceeded.
//
// CRASH_SEEDS=17 or CRASH_SEEDS=0-999 chooses seeds, CRASH_LOG=1 shows what Karpenter says.
package crashtest
