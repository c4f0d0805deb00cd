// Package provision finds places for pods that wait: it collects them for a moment, asks the engine, and has opened what
// the plan asks for.
//
// The loop looks at what is, not at what happened. A pod is due when it is new, when what was planned for it has
// gone, and otherwise every ten seconds for as long as it waits, so no pod is ever lost between two batches. What
// was planned stays in the store; a pod whose node is still booting is not planned for again. A pod that came into
// the seat of another is looked at once, like any new pod.
package provision
