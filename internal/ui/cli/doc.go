// Package cli holds the commands that people type after "karpenter" or "kubectl karpenter", one file for each.
//
// A command reads files or a cluster, asks the same core that the controller uses, and prints the answer. Only orphans, pause, resume,
// approve and deny change objects: they write an annotation or a decision, which the controller then acts on. prices and snapshot write
// a file. A command needs no access to the controller, except for its journal, forecast and snapshot (records.go).
//
// Terms:
//
//	Env        what a command gets from outside: streams, and functions that reach AWS and the cluster. Tests pass their own.
//	document   one object of a file as text, with file and line for messages (document.go)
//	objects    all objects that a plan is made from, by kind (objects.go)
//	question   what the engine is asked: engine.Question, made by planFlags.input
//	world      all that an answer is based on: files and cluster, or a snapshot (planFlags.worldFlags)
//	snapshot   a file with a whole question, which karpenter snapshot writes (snapshot.go)
//	idle pool  a NodePool that launches nothing because of its EC2NodeClass (remedy.go)
//	edit       a change of an object and its effect: of lint on nodes (lint.go), of why on a refusal (whyedit.go)
//	variant    in a replay, one set of NodePools and settings (replay.go)
//
// From files to a plan: readAll parses documents, typed decodes and checks them (schema.go), readCluster adds the objects of a cluster
// (live.go), assemble completes them as Kubernetes would (expand.go), input makes the question, and newReport the answer.
//
// Read cli.go first, then plan.go with document.go, objects.go, live.go and expand.go: most commands share them. Then the command in
// question: report.go for plan; whypod.go, whynode.go, remedy.go and whyedit.go for why; replay.go and replayworld.go for replay;
// convert.go, comments.go and values.go for convert; cost.go and costfocus.go for cost.
//
// Exit codes are constants in cli.go. JSON output (-o json) is documented and stable: fields are added and keep their meaning.
package cli
