// Package judge holds tests only: the filter plugins of kube-scheduler itself judge our plans on random worlds.
//
// A world is a scenario, made from a seed. The engine plans it; the plan becomes Nodes, each a machine that the launch of
// its claim could give, picked at random, with its DaemonSet pods; then the planned pods are bound one by one in an order that
// kube-scheduler could take. A pod that the filters refuse in every such order is a failure. The other way round, a pod that the
// plan refuses must be refused by the filters on every node there is then, and on every node that a pool could have opened, if each claim
// becomes the machine that the plan reckons with.
//
// So are the steps of disruption: pods run on a random fleet wherever the filters let them, and after each step
// that the planner proposes and confirms, all pods of the removed nodes must fit where it says; nothing that
// protects a node may be passed over. Then the steps are begun one after the other, as the loop begins them, each
// confirmed in the world that has come of those before it, and all of them must fit together.
//
// A world that fails is made as small as it still fails, and belongs into testdata, a fleet into testdata/fleets,
// where it is judged again for ever. JUDGE_SEEDS=17 or JUDGE_SEEDS=0-999 chooses worlds, JUDGE_FLEETS fleets,
// JUDGE_FEATURES=node,spread allows only these kinds of constraints.
package judge
